"""Laws of every structure: the step beats every other structure, Fenchel-Young holds, with equality at the step."""

import numpy as np
import pytest
import zoo
from sklearn.base import clone

from taskloom import structures

EVERY = pytest.mark.parametrize("F", zoo.STRUCTURES + zoo.KNOWN_ON_FEATURES + zoo.ON_FEATURES, ids=zoo.name)
LEARNED = pytest.mark.parametrize("F", zoo.LEARNED + zoo.ON_FEATURES, ids=zoo.name)
SPECTRAL = pytest.mark.parametrize("F", [F for F in zoo.LEARNED if F.either_side], ids=zoo.name)


def step_value(F, S, A):
    return np.trace(np.linalg.solve(A, S)) + F.value(A)


@LEARNED
def test_the_step_beats_every_other_structure(F):
    rng = np.random.default_rng(0)
    for _ in range(5):
        S = zoo.random_psd(rng) + 0.01 * np.eye(zoo.T)
        A = F.best_structure(S)
        best = step_value(F, S, A)
        assert np.isfinite(best)
        for _ in range(20):
            other = zoo.random_feasible(F, rng)
            mixed = A + 10 ** rng.uniform(-4, 0) * (other - A)  # near and far: the domain is convex
            assert best <= step_value(F, S, mixed + 1e-12 * np.eye(zoo.T)) * (1 + 1e-9) + 1e-9


@EVERY
def test_fenchel_young(F):
    rng = np.random.default_rng(1)
    for _ in range(30):
        A = zoo.random_feasible(F, rng)
        S = zoo.random_psd(rng, rank=rng.integers(1, zoo.T + 1)) * 10 ** rng.uniform(-2, 1)
        assert F.value(A) < np.inf
        assert np.vdot(A, S) <= F.value(A) + F.conjugate(S, A) + 1e-8


@LEARNED
def test_the_step_and_the_conjugate_agree(F):
    rng = np.random.default_rng(2)
    for _ in range(5):
        S = zoo.random_psd(rng) + 0.05 * np.eye(zoo.T)
        A = F.best_structure(S)
        G = np.linalg.solve(A, np.linalg.solve(A, S).T)  # A^-1 S A^-1 lies in dF(A)
        G = (1 - 1e-7) * (G + G.T) / 2
        assert np.isclose(np.vdot(G, A), F.value(A) + F.conjugate(G, A), rtol=1e-5, atol=1e-5)


@LEARNED
def test_the_prox_beats_every_other_structure(F):
    rng = np.random.default_rng(3)
    for step in (0.05, 1.0):
        B = rng.normal(size=(zoo.T, zoo.T))
        B = B + B.T
        A = F.prox(B, step)
        best = step * F.value(A) + np.sum((A - B) ** 2) / 2
        assert np.linalg.eigvalsh(A)[0] >= -1e-12
        for _ in range(30):
            other = A + 10 ** rng.uniform(-4, 0) * (zoo.random_feasible(F, rng) - A)
            assert best <= step * F.value(other) + np.sum((other - B) ** 2) / 2 + 1e-9


@EVERY
def test_the_ray_is_the_conjugate_along_a_ray(F):
    rng = np.random.default_rng(4)
    A, S = zoo.random_feasible(F, rng), zoo.random_psd(rng)
    ray = F.ray(S, A)
    assert ray.max_scale > 0
    for c in (0.1, 0.5, 0.999):
        scale = c * min(ray.max_scale, 10.0)
        assert np.isfinite(ray.conjugate(scale))
        assert ray.conjugate(scale) >= np.vdot(A, scale * S) - F.value(A) - 1e-8
    if np.isfinite(ray.max_scale):
        assert ray.conjugate(1.001 * ray.max_scale) == np.inf


@EVERY
def test_best_of_root_charges_what_the_structure_costs(F):
    rng = np.random.default_rng(5)
    R = rng.normal(size=(7, zoo.T)) @ zoo.random_psd(rng)
    if isinstance(F, structures.OutputCode):
        R = R @ F.matrix(zoo.T)  # stay in the range of a singular A
    A, penalty = F.best_of_root(R)
    inverse = np.linalg.pinv(A, rcond=1e-10)
    assert np.isclose(penalty, np.trace(inverse @ R.T @ R) + F.value(A), rtol=1e-6)


@SPECTRAL
def test_spectral_structures_ignore_zero_eigenvalues_and_rotations(F):
    rng = np.random.default_rng(6)
    A = zoo.random_feasible(F, rng)
    padded = np.zeros((7, 7))
    padded[: zoo.T, : zoo.T] = A
    V = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    assert np.isclose(F.value(V @ padded @ V.T), F.value(A))
    assert np.isclose(F.conjugate(0.01 * V @ padded @ V.T), F.conjugate(0.01 * A))


@SPECTRAL
def test_gradients_come_back_through_the_factor(F):
    rng = np.random.default_rng(7)
    Q, M = rng.normal(size=(6, 3)), zoo.random_psd(rng, 6, 6)

    def value(Q):
        landed = F.project_factor(Q)
        return np.vdot(landed, M @ landed) + F.f(np.linalg.svd(landed, compute_uv=False) ** 2)

    gradient = F.pull_back(Q, 2 * M @ F.project_factor(Q))
    for _ in range(5):
        D = rng.normal(size=Q.shape)
        numeric = (value(Q + 1e-6 * D) - value(Q - 1e-6 * D)) / 2e-6
        assert np.isclose(np.vdot(gradient, D), numeric, rtol=1e-5, atol=1e-6)


@EVERY
def test_clone_and_parameters(F):
    twin = clone(F)
    assert type(twin) is type(F)
    assert set(twin.get_params()) == set(F.get_params())
    assert F.set_params(**F.get_params()) is F


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: structures.Schatten(0.5), "p >= 1 to be convex, got p=0.5"),
        (lambda: structures.SchattenNorm(0.9), "p >= 1"),
        (lambda: structures.Fixed([[1, 2], [0, 1]]), "symmetric"),
        (lambda: structures.Fixed([[1, 0], [0, -1]]), "smallest eigenvalue is -1"),
        (lambda: structures.Fixed(np.ones((2, 3))), r"square matrix A, got shape \(2, 3\)"),
        (lambda: structures.Fixed([[np.nan]]), "finite"),
        (lambda: structures.Fixed(np.eye(2), side="inputs"), r'side="tasks" or side="features", got side=\'inputs\''),
        (lambda: structures.Fixed([[1, 2], [0, 1]], "features"), r"differ by 1.0e\+00 .* pass \(A \+ A.T\) / 2"),
        (lambda: structures.Fixed([[1, 0], [0, -1]], "features"), "smallest eigenvalue is -1: add 1 to its diagonal"),
        (
            lambda: structures.Fixed(np.eye(2), "features").check_tasks(3),
            "2 features, but the data have 3; give a row",
        ),
        (lambda: structures.OutputMetric([[1, 0], [0, -2]]), "smallest eigenvalue is -2"),
        (lambda: structures.TaskGraph([[0, -1], [-1, 0]]), "weights >= 0"),
        (lambda: structures.TaskGraph([[0, 1], [1, 0]], gamma=0), "gamma > 0"),
        (lambda: structures.SharedMean(-1), "gamma=-1"),
        (lambda: structures.OutputCode([1, 2]), r"shape \(2,\)"),
        (lambda: structures.Clusters(0), "n_clusters=0"),
        (lambda: structures.Clusters(2, within=0.1, between=1.0), "within >= between"),
        (lambda: structures.LogDet(0), "mu=0"),
        (lambda: structures.Sparse(-1), "l1=-1"),
        (lambda: structures.as_structure("tracee"), "'tracee'"),
        (lambda: structures.as_structure("fixed"), r"pass an object, structure=Fixed\(...\)"),
        (lambda: structures.Clusters(5).check_tasks(3), "the data have 3"),
        (lambda: structures.Fixed(np.eye(2)).check_tasks(3), "describes 2 tasks"),
    ],
)
def test_nonsense_is_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_water_is_filled_to_the_brim_when_every_task_is_a_cluster():
    """With as many clusters as tasks every direction takes its largest value, rounding or not."""
    for seed in range(200):
        S = zoo.random_psd(np.random.default_rng(seed), size=2, rank=2)
        A = structures.Clusters(2).best_structure(S)
        assert np.allclose(np.linalg.eigvalsh(A), [1.0, 10.0])


def test_projection_onto_the_unit_trace_set_survives_huge_eigenvalues():
    assert np.allclose(structures.UnitTrace().prox(np.diag([1e20, 1e20, 3.0]), 1.0), np.diag([0.5, 0.5, 0.0]))


def test_names_stand_for_objects():
    assert isinstance(structures.as_structure(None), structures.Trace)
    assert isinstance(structures.as_structure("unit_trace"), structures.UnitTrace)
    assert isinstance(structures.as_structure("log_det"), structures.LogDet)
    assert isinstance(structures.as_structure("logdet"), structures.LogDet)


class TestTaskGraphs:
    def test_a_chain_is_tasks_in_time_order(self):
        matrix = structures.TaskGraph.chain(4, gamma=0.5, weight=2.0).matrix(4)
        W = 2.0 * (np.eye(4, k=1) + np.eye(4, k=-1))
        assert np.allclose(np.linalg.inv(matrix), 2 * (np.diag(W.sum(axis=0)) - W) + 0.5 * np.eye(4))
        named = structures.TaskGraph.chain(["mon", "tue", "wed"]).bind(["wed", "mon", "tue"])
        assert named.adjacency.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]

    def test_a_tree_relates_classes_by_the_branch_they_share(self):
        classes = ["cat", "dog", "cow", "car"]
        parents = {"cat": "pet", "dog": "pet", "pet": "animal", "cow": "animal", "animal": "thing", "car": "thing"}
        paths = {"cat": "thing/animal/pet", "dog": ("thing", "animal", "pet"), "cow": "thing/animal", "car": ("thing",)}
        for tree in (parents, paths):
            S = structures.TaskGraph.from_tree(tree).bind(classes).adjacency
            assert np.allclose(
                S, [[0, 3 / 4, 2 / 4, 1 / 4], [3 / 4, 0, 2 / 4, 1 / 4], [2 / 4, 2 / 4, 0, 1 / 3], [1 / 4, 1 / 4, 1 / 3, 0]]
            )
        with pytest.raises(ValueError, match=r"no leaf|cycle"):
            structures.TaskGraph.from_tree({"a": "b", "b": "a"})

    def test_similarities_may_keep_their_nearest(self):
        S = np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]])
        assert structures.TaskGraph.from_similarity(S).adjacency[0, 2] == 0.1
        assert structures.TaskGraph.from_similarity(S, neighbours=1).adjacency.tolist() == [
            [0, 0.9, 0],
            [0.9, 0, 0.2],
            [0, 0.2, 0],
        ]
        with pytest.raises(ValueError, match="neighbours"):
            structures.TaskGraph.from_similarity(S, neighbours=3)

    def test_networkx_graphs(self):
        networkx = pytest.importorskip("networkx")
        graph = networkx.Graph()
        graph.add_nodes_from(["a", "b", "c"])
        graph.add_edge("a", "b", weight=3.0)
        assert structures.TaskGraph(graph).bind(["b", "c", "a"]).adjacency.tolist() == [[0, 0, 3], [0, 0, 0], [3, 0, 0]]

    @pytest.mark.parametrize(
        ("edges", "words"),
        [([("a", "b", 1.0, 2.0)], "an edge must be"), ([("a", "a")], "to itself"), ([("a",)], "an edge must be")],
    )
    def test_what_is_no_graph(self, edges, words):
        with pytest.raises(ValueError, match=words):
            structures.TaskGraph(edges).bind(["a", "b"])


@EVERY
def test_what_a_structure_declares_is_true(F):
    rng = np.random.default_rng(11)
    A, W = zoo.random_feasible(F, rng), rng.normal(size=(zoo.T, 3))
    if F.schatten_power is not None:
        assert np.isclose(F.value(A), np.sum(np.linalg.eigvalsh(A) ** F.schatten_power))
    if F.is_singleton(zoo.T):
        assert np.allclose(A, zoo.random_feasible(F, rng))
    if F.smooth_norm:
        assert np.isclose(F.weight_norm(W).value, F.best_of_root(W.T)[1])
    else:
        with pytest.raises(TypeError, match="no smooth penalty"):
            F.weight_norm(W)
