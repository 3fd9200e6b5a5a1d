"""Many tasks: structures held by a factor are the arrays that fewer tasks get, and nothing makes a T x T matrix."""

import gc
import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

import taskloom
from taskloom import FactoredStructure, MultiTaskClassifier, MultiTaskRegressor, Problem, solve, structures
from taskloom.design import Observations, observations
from taskloom.estimators.inspection.task_order import every_pair
from taskloom.structures import factored_matrix as factors


@pytest.fixture
def few(monkeypatch):
    """From 6 tasks on structures are factored, and systems go in pieces of a few tasks."""
    monkeypatch.setattr(factors, "DENSE_TASKS", 5)
    monkeypatch.setattr(observations, "MAX_BATCH_ENTRIES", 1000)


def long_table(T=12, d=4, n=6, seed=0, ragged=False, shuffled=False, rank=2):
    """Tasks with inputs of their own; the task is the last column."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, n + 6, size=T) if ragged else np.full(T, n)
    task = np.repeat(np.arange(T), counts)
    X = rng.normal(size=(task.size, d))
    W = rng.normal(size=(d, rank)) @ rng.normal(size=(rank, T))
    y = np.einsum("ij,ji->i", X, W[:, task]) + 0.1 * rng.normal(size=task.size) + task % 3
    order = rng.permutation(task.size) if shuffled else np.arange(task.size)
    return np.column_stack([X, task])[order], y[order]


def dense(model, X, y, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(factors, "DENSE_TASKS", 2000)
        patch.setattr(observations, "MAX_BATCH_ENTRIES", 1 << 20)
        return clone(model).fit(X, y)


class TestTheFactoredStructure:
    L = np.random.default_rng(0).normal(size=(7, 3))
    own = np.array([0.0, 0.5, 0, 0, 2.0, 0, 0])
    A = FactoredStructure(L, own)
    whole = L @ L.T + np.diag(own)

    @pytest.mark.parametrize(
        "key",
        [
            (2, 3),
            (4, 4),
            (-1, 0),
            (np.array([0, 4, 1]), np.array([0, 4, 2])),
            np.ix_([1, 4], [4, 1, 0]),
            (slice(1, 3), slice(None)),
            (4, slice(None)),
            (slice(None), 4),
            3,
            (slice(None), np.array([4, 1])),
            (np.arange(7) > 3, 1),
        ],
        ids=str,
    )
    def test_entries_are_those_of_the_array(self, key):
        assert np.allclose(self.A[key], self.whole[key], atol=1e-14)
        assert np.shape(self.A[key]) == np.shape(self.whole[key])

    def test_it_says_what_an_array_says(self):
        x = np.random.default_rng(1).normal(size=(7, 2))
        assert self.A.shape == (7, 7)
        assert len(self.A) == 7
        for mine, theirs in (
            (self.A.to_array(), self.whole),
            (np.asarray(self.A), self.whole),
            (self.A.diag, np.diag(self.whole)),
            (self.A @ x, self.whole @ x),
            (self.A @ x[:, 0], self.whole @ x[:, 0]),
            (x.T @ self.A, x.T @ self.whole),
            (self.A[2:6, 2:6].to_array(), self.whole[2:6, 2:6]),
            (FactoredStructure.total([self.A, self.A]).to_array(), 2 * self.whole),
            (self.A.trace(), np.trace(self.whole)),
        ):
            assert np.allclose(mine, theirs, atol=1e-13)
        assert self.A.rank == np.linalg.matrix_rank(self.whole) == 5
        assert FactoredStructure(self.L).rank == 3
        assert self.A.astype(np.float32).dtype == np.float32

    def test_correlations(self):
        size = np.sqrt(np.diag(self.whole))
        C = self.whole / np.outer(size, size)
        assert np.allclose(self.A.correlations().to_array(), C)
        assert np.isclose(self.A.correlation(1, 4), C[1, 4])
        assert self.A.correlation(4, 4) == 1
        assert np.allclose(self.A.correlation(1, np.arange(7)), C[1])
        tasks, found = self.A.nearest(1, k=3)
        others = [t for t in np.argsort(-C[1]) if t != 1][:3]
        assert tasks.tolist() == others
        assert np.allclose(found, C[1, others])

    def test_a_task_without_variance_has_no_correlations(self):
        A = FactoredStructure(np.array([[0.0], [1.0], [2.0]]))
        assert A.correlation(0, 1) == 0
        assert A.correlation(0, 0) == 1
        assert A.correlations().to_array().tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]

    def test_eigenvalues_and_what_a_ridge_leaves(self):
        for A in (FactoredStructure(self.L), FactoredStructure(self.L, 0.3), FactoredStructure(np.zeros((4, 0)), 1.0)):
            whole = A.to_array()
            assert np.allclose(A.spectrum(), np.linalg.eigvalsh(whole)[::-1], atol=1e-12)
            left = whole @ np.linalg.inv(np.eye(len(whole)) + 0.7 * whole)
            assert np.allclose(A.shrunk(0.7).to_array(), left, atol=1e-12)

    def test_what_would_not_fit_is_refused_in_a_sentence(self):
        A = FactoredStructure(np.ones((20_000, 1)))
        for ask in (A.to_array, lambda: np.asarray(A), lambda: A[:, 1:]):
            with pytest.raises(ValueError, match=r"2.98 GiB.*A.nearest"):
                ask()
        with pytest.raises(TypeError):
            A + 1
        with pytest.raises(ValueError, match="k must be between 1 and"):
            A.nearest(0, 20_000)
        with pytest.raises(ValueError, match="negative"):
            FactoredStructure(np.ones((2, 1)), -1.0)


SPECTRAL = ["trace", "frobenius", "unit_trace", "independent", structures.Schatten(1.5), structures.SchattenNorm(2)]


class TestSolutions:
    @pytest.mark.parametrize("structure", SPECTRAL, ids=str)
    @pytest.mark.parametrize("alpha", [0.05, 1e6], ids=["some", "nothing"])
    def test_the_factor_is_the_array(self, few, monkeypatch, structure, alpha):
        X, y = long_table()
        seen = Observations.build(np.arange(len(X)), X[:, -1].astype(int), y, 12)
        problem = Problem(X[:, :-1], seen, "squared", structure, alpha, ridge=0.01)
        lazy = solve(problem, tol=1e-8)
        assert isinstance(lazy.A, FactoredStructure)
        monkeypatch.setattr(factors, "DENSE_TASKS", 2000)
        whole = solve(problem, tol=1e-8)
        assert isinstance(whole.A, np.ndarray)
        assert np.allclose(lazy.A.to_array(), whole.A, rtol=1e-9, atol=1e-9 * np.abs(whole.A).max())
        assert np.isclose(problem.primal(lazy.W, lazy.b, lazy.A), lazy.certificate.primal, rtol=1e-9)
        assert np.isclose(lazy.certificate.primal, whole.certificate.primal, rtol=1e-12)
        assert lazy.certificate.dual <= whole.certificate.primal + 1e-12

    def test_weights_outside_the_range_are_forbidden_here_too(self):
        A = FactoredStructure(np.eye(6, 1))
        assert np.isinf(structures.Trace().squared_norm(np.eye(2, 6, 1), A))
        assert np.isclose(structures.Trace().squared_norm(np.eye(1, 6), A), 1.0)
        assert np.isinf(structures.Independent().value(A))

    @pytest.mark.parametrize("loss", ["squared", "logistic", "huber"])
    @pytest.mark.parametrize("ragged", [False, True])
    def test_pieces_and_mixed_rows_change_nothing(self, monkeypatch, loss, ragged):
        """Tasks of one size or of many, rows in order or not, all tasks in one system or a few at a time."""
        X, y = long_table(ragged=ragged)
        y = np.sign(y) if loss == "logistic" else y
        order = np.random.default_rng(1).permutation(len(X))
        task = X[:, -1].astype(int)
        values = []
        for rows in (np.arange(len(X)), order):
            for most in (1 << 20, 1000):
                monkeypatch.setattr(observations, "MAX_BATCH_ENTRIES", most)
                seen = Observations.build(np.arange(len(X)), task[rows], y[rows], 12)
                found = solve(Problem(X[rows, :-1], seen, loss, "trace", 0.05), tol=1e-9)
                assert found.certificate.optimal
                values.append(found.certificate.primal)
        assert np.allclose(values, values[0], rtol=1e-8)

    def test_robust_and_selection(self, few, monkeypatch):
        X, y = long_table()
        for structure in (structures.Robust(), structures.FeatureSelection()):
            model = MultiTaskRegressor(structure, alpha=0.05, task_column=-1, tol=1e-8).fit(X, y)
            assert isinstance(model.structure_, FactoredStructure)
            whole = dense(model, X, y, monkeypatch)
            assert np.allclose(model.structure_.to_array(), whole.structure_, rtol=1e-6, atol=1e-8)


class TestEstimators:
    def fitted(self, monkeypatch, **options):
        X, y = long_table(**{key: options.pop(key) for key in ("ragged", "shuffled") if key in options})
        model = MultiTaskRegressor("trace", alpha=0.05, task_column=-1, tol=1e-8, **options).fit(X, y)
        return model, dense(model, X, y, monkeypatch), X, y

    @pytest.mark.parametrize("ragged", [False, True])
    @pytest.mark.parametrize("shuffled", [False, True])
    def test_lazy_and_dense_fits_say_the_same(self, few, monkeypatch, ragged, shuffled):
        lazy, whole, X, y = self.fitted(monkeypatch, ragged=ragged, shuffled=shuffled, ridge=0.01)
        assert isinstance(lazy.structure_, FactoredStructure)
        assert np.allclose(lazy.structure_.to_array(), whole.structure_, atol=1e-6)
        assert np.allclose(lazy.predict(X), whole.predict(X), atol=1e-5)
        assert np.isclose(lazy.score(X, y), whole.score(X, y))
        assert np.allclose(lazy.task_correlation().to_array(), whole.task_correlation(), atol=1e-5)
        mine, theirs = lazy.explain(3), whole.explain(3)
        assert np.isclose(sum(mine.values()), 1)
        assert all(np.isclose(mine[t], theirs[t], atol=1e-5) for t in theirs)
        assert np.array_equal(lazy.task_clusters(3), whole.task_clusters(3))
        assert [edge[:2] for edge in lazy.task_graph(0.3)] == [edge[:2] for edge in whole.task_graph(0.3)]

    @pytest.mark.parametrize("structure", ["trace", "independent"])
    def test_one_more_task(self, few, monkeypatch, structure):
        X, y = long_table()
        model = MultiTaskRegressor(structure, alpha=0.05, task_column=-1, tol=1e-8).fit(X, y)
        whole = dense(model, X, y, monkeypatch)
        new = np.random.default_rng(5).normal(size=(8, 4))
        for each in (model, whole):
            each.add_task(new, new[:, 0], 99.0).add_task(new, new[:, 1], 100.0)
        assert np.allclose(model.coef_, whole.coef_, atol=1e-5)
        assert np.allclose(model.structure_.to_array(), whole.structure_, atol=1e-5)

    def test_files_and_pickles_keep_the_factor(self, few, monkeypatch, tmp_path):
        model, _, X, _ = self.fitted(monkeypatch)
        model.save(tmp_path / "m.taskloom")
        for again in (taskloom.load(tmp_path / "m.taskloom"), pickle.loads(pickle.dumps(model))):
            assert isinstance(again.structure_, FactoredStructure)
            assert np.array_equal(again.structure_.L, model.structure_.L)
            assert np.array_equal(again.predict(X), model.predict(X))
            assert again.explain(2) == model.explain(2)

    def test_a_file_with_another_number_of_tasks_is_refused(self, few, monkeypatch, tmp_path):
        model, _, _, _ = self.fitted(monkeypatch)
        model.structure_ = FactoredStructure(model.structure_.L[:-1])
        model.save(tmp_path / "m.taskloom")
        with pytest.raises(taskloom.ModelFileError, match="11 tasks, not 12"):
            taskloom.load(tmp_path / "m.taskloom")

    def test_kernels(self, few, monkeypatch):
        rng = np.random.default_rng(0)
        X, Y = rng.normal(size=(6, 2)), rng.normal(size=(6, 9))
        model = MultiTaskRegressor("trace", kernel="rbf", alpha=0.01, tol=1e-8).fit(X, Y)
        whole = dense(model, X, Y, monkeypatch)
        assert isinstance(model._state.inner_products, FactoredStructure)
        assert np.allclose(model.structure_.to_array(), whole.structure_, atol=1e-6)
        for each in (model, whole):
            each.add_task(X, Y[:, 0] + Y[:, 1], 9)
        assert np.allclose(model.predict(X), whole.predict(X), atol=1e-5)

    def test_classifier_and_cross_validation(self, few):
        X, y = long_table(n=12)
        labels = np.where(y > np.median(y), "up", "down")
        both = [t for t in range(12) if len(set(labels[X[:, -1] == t])) == 2]
        keep = np.isin(X[:, -1], both)
        model = MultiTaskClassifier(alpha=0.1, task_column=-1).fit(X[keep], labels[keep])
        assert isinstance(model.structure_, FactoredStructure)
        assert model.score(X[keep], labels[keep]) > 0.7
        search = taskloom.MultiTaskRegressorCV(
            structures=["trace", "frobenius"], alphas=3, task_column=-1, cv=2, common=None, kernels=None
        ).fit(X, y)
        assert isinstance(search.structure_, FactoredStructure)
        assert search.path_["spectrum"].shape == (3, 12)

    def test_what_cannot_be_done_is_said(self, few, monkeypatch):
        model, _, X, y = self.fitted(monkeypatch)
        with pytest.raises(AttributeError, match="need systems over all tasks"):
            model.predict(X, return_std=True)
        with pytest.raises(ValueError, match="say how many groups"):
            model.task_clusters()
        with pytest.raises(ValueError, match=r"limited to .* tasks, got 12"):
            every_pair(model)
        with pytest.raises(ValueError, match=r"limited to .* tasks, got 12"):
            taskloom.stability(model, X, y)
        monkeypatch.setattr(factors, "LARGEST_ARRAY", 10)
        with pytest.raises(ValueError, match=r"structure_.nearest\(task, k\)"):
            model.task_graph()

    @pytest.mark.parametrize("structure", ["sparse", "shared_mean", structures.Clusters(2), structures.TaskGraph([(0, 1)])])
    def test_structures_of_pairs_refuse_early(self, monkeypatch, structure):
        monkeypatch.setattr(factors, "LARGEST_ARRAY", 10)
        X, y = long_table()
        with pytest.raises(ValueError, match=r"needs matrices of 12 x 12 tasks .* stops at 10 tasks; take a structure"):
            MultiTaskRegressor(structure, task_column=-1).fit(X, y)

    def test_the_block_solver_refuses_early(self, monkeypatch):
        monkeypatch.setattr(factors, "LARGEST_ARRAY", 10)
        X, y = long_table()
        with pytest.raises(ValueError, match=r'solver="block" needs matrices of 12 x 12 tasks.*use solver="auto"'):
            MultiTaskRegressor(task_column=-1, solver="block").fit(X, y)


@pytest.mark.parametrize("ragged", [False, True])
def test_five_thousand_tasks_take_a_few_copies_of_the_data(ragged):
    """A 5000 x 5000 matrix would be 200 MB; everything together must stay below that, predictions included."""
    X, y = long_table(T=5000, d=10, n=8, ragged=ragged, shuffled=True)
    tracemalloc.start()
    model = MultiTaskRegressor(alpha=0.1, task_column=-1).fit(X, y)
    guess = model.predict(X)
    score = model.score(X, y)
    tasks, near = model.structure_.nearest(17, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert model.certificate_.relative_gap <= 1e-4
    assert peak < 100e6
    assert np.corrcoef(guess, y)[0, 1] > 0.9
    assert score > 0.5
    assert near[0] > 0.9
    assert np.allclose(near, model.structure_.correlation(17, tasks))
    assert model.explain(17.0)


def test_the_data_are_free_after_the_fit():
    """No cycle keeps the copy of the inputs alive until the collector comes by."""
    X, y = long_table(T=2500, d=20, n=6)
    model = MultiTaskRegressor(alpha=0.1, task_column=-1)
    gc.collect()
    gc.disable()
    try:
        tracemalloc.start()
        model.fit(X, y)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < 0.8 * X.nbytes


def test_whole_numbers_in_a_factor_do_not_cut_variances():
    assert FactoredStructure(np.array([[1], [2]]), own=0.5).own.tolist() == [0.5, 0.5]
