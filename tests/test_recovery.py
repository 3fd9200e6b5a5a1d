"""What was planted comes back: clusters, the rank, related pairs, outlying tasks.

Every data set has inputs of its own for each task, unequal sizes and 30 % of the targets missing. Strengths come from
cross-validation, or from the noise: Z, what the structure sees of the data, is compared with 2 sqrt(alpha), so the size that
noise alone gives to Z / 2 is the least strength that does not mistake it for structure. The true features are in
test_feature_selection.py.
"""

import numpy as np
import pytest
from cells import cells
from sklearn.metrics import adjusted_rand_score

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, methods, structures

KINDS = np.repeat([0, 1, 2], [5, 4, 3])


def noise_of(data, sigma, n_draws=50, seed=0):
    """The spectral norm that 19 of 20 draws of pure noise stay below, as seen through the inputs of the tasks (``d x T``)."""
    rng = np.random.default_rng(seed)
    draws = [np.stack([X.T @ rng.normal(size=len(X)) / len(X) for X in data.X], axis=1) for _ in range(n_draws)]
    return sigma * float(np.quantile([np.linalg.norm(draw, 2) for draw in draws], 0.95))


def clustered(seed, noise):
    """Twelve tasks of three kinds, five, four and three of them; kinds are at right angles, the signal has deviation 2.8."""
    rng = np.random.default_rng(100 + seed)
    centres = np.sqrt(8) * np.linalg.qr(rng.normal(size=(8, 3)))[0]
    W = centres[:, KINDS] + 0.1 * rng.normal(size=(8, 12))
    return cells(seed, rng.integers(18, 31, size=12), W, noise=noise)


class TestClusters:
    @pytest.mark.parametrize("structure", [structures.Clusters(3), structures.Trace(), structures.Frobenius()], ids=repr)
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_well_separated(self, structure, seed):
        """Noise of 0.2: any strength that is not far too large, the default too."""
        data = clustered(seed, noise=0.2)
        model = MultiTaskRegressor(structure, task_column=-1).fit(data.table, data.targets)
        assert adjusted_rand_score(KINDS, model.task_clusters(3)) == 1.0
        if isinstance(structure, structures.Clusters):
            assert adjusted_rand_score(KINDS, model.task_clusters()) == 1.0

    @pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
    def test_noisy(self, seed):
        """Noise of 2.0, with about 17 targets for 8 weights in each task.

        ``between=1`` charges ``alpha`` for weights of kinds, whose variance is 1: Bayes' strength is the noise over the sizes.
        """
        data = clustered(seed, noise=2.0)
        model = methods.MTCL(3, alpha=2.0**2 / data.sizes.mean(), task_column=-1).fit(data.table, data.targets)
        assert adjusted_rand_score(KINDS, model.task_clusters()) > 0.9

    def test_with_the_strength_by_validation(self):
        data = clustered(0, noise=0.5)
        search = MultiTaskRegressorCV(
            structures.Clusters(3), alphas=np.geomspace(10, 0.03, 4), cv=3, task_column=-1, kernels=None
        )
        assert adjusted_rand_score(KINDS, search.fit(data.table, data.targets).task_clusters()) == 1.0


class TestRank:
    def planted(self, seed, noise):
        rng = np.random.default_rng(50 + seed)
        W = rng.normal(size=(12, 3)) @ rng.normal(size=(3, 10))
        return cells(seed, rng.integers(40, 70, size=10), W, noise=noise)

    @pytest.mark.parametrize("noise", [0.3, 1.0])
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_at_the_strength_of_the_noise(self, seed, noise):
        """The eigenvalues of the structure past the third are zero."""
        data = self.planted(seed, noise)
        alpha = noise_of(data, noise) ** 2
        model = methods.MTFL(alpha=alpha, task_column=-1, tol=1e-7).fit(data.table, data.targets)
        a = np.linalg.eigvalsh(model.structure_)[::-1]
        assert a[2] > 0.1 * a[0]
        assert a[3] < 1e-4 * a[0]

    def test_at_the_strength_of_validation(self):
        """Validation asks for good predictions: it keeps small eigenvalues besides, a few per cent of the largest."""
        data = self.planted(0, 1.0)
        model = MultiTaskRegressorCV("trace", alphas=8, cv=3, task_column=-1, random_state=0, kernels=None).fit(
            data.table, data.targets
        )
        a = np.linalg.eigvalsh(model.structure_)
        assert np.sum(a > 0.1 * a[-1]) == 3


class TestEdges:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_sparse_relations(self, seed):
        """A pair, a pair of opposites, a triple and two loners: the relations that are not zero are the planted ones.

        ``l1`` must exceed what chance gives to tasks that have nothing in common: correlations of up to 0.5 in 20 dimensions.
        """
        rng = np.random.default_rng(10 + seed)
        origin = rng.normal(size=(20, 5))
        W = origin[:, [0, 0, 1, 1, 2, 2, 2, 3, 4]] * np.array([1, 1, 1, -1, 1, 1, 1, 1, 1]) + 0.3 * rng.normal(size=(20, 9))
        data = cells(seed, rng.integers(35, 55, size=9), W, noise=0.5)
        model = MultiTaskRegressor(structures.Sparse(0.6), alpha=0.05, task_column=-1).fit(data.table, data.targets)
        edges = {(int(a), int(b)): np.sign(weight) for a, b, weight in model.task_graph(0.01)}
        assert edges == {(0, 1): 1, (2, 3): -1, (4, 5): 1, (4, 6): 1, (5, 6): 1}


class TestOutliers:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_outlying_tasks(self, seed):
        """Ten tasks in a plane and two that go their own way, all of one length.

        Past ``outliers=1`` a task of its own is cheaper as one more dimension of the common part; much below, tasks that share
        are explained twice.
        """
        rng = np.random.default_rng(30 + seed)
        angle = rng.uniform(0, 2 * np.pi, size=12)
        W = 1.5 * rng.normal(size=(15, 2)) @ np.stack([np.cos(angle), np.sin(angle)])
        W[:, [3, 8]] = 1.5 * rng.normal(size=(15, 2))
        data = cells(seed, rng.integers(40, 60, size=12), W, noise=0.5)
        alpha = noise_of(data, 0.5) ** 2
        model = MultiTaskRegressor(structures.Robust(outliers=0.9), alpha=alpha, task_column=-1).fit(data.table, data.targets)
        assert list(model.outlier_tasks_) == [3, 8]
