"""Newton's method on the weights under ``Clusters``: the cluster norm against a naive twin, and the optimum it must reach."""

from dataclasses import replace

import naive
import numpy as np
import pytest

from taskloom import Problem, alpha_max, losses, path, solve, structures
from taskloom.design import Observations
from taskloom.solvers import cluster_newton
from taskloom.solvers.cluster_newton import ClusterNewton, ClusterNewtonRun, SquaredLoss
from taskloom.structures.base import Structure
from taskloom.structures.cluster_norm import ClusterNorm

SHAPES = [(12, 5), (7, 20), (12, 12), (12, 11), (12, 3), (2, 4), (5, 1)]


def problem_of(counts=(4, 9, 3, 7, 5, 30), d=6, seed=0, structure=None, **options):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(counts)), counts)
    X = rng.normal(size=(task.size, d)) + 0.3
    y = np.einsum("ij,ji->i", X, rng.normal(size=(d, len(counts)))[:, task]) + 0.3 * rng.normal(size=task.size)
    weight = rng.uniform(0.5, 2, size=task.size)
    obs = Observations.build(np.arange(task.size), task, y, len(counts), sample_weight=weight)
    return Problem(X, obs, "squared", structure or structures.Clusters(min(3, len(counts))), 0.02, **options)


def strength(problem):
    return alpha_max(problem.with_structure(structures.Trace()))


@pytest.mark.parametrize(("T", "r"), SHAPES)
def test_the_norm_is_that_of_the_naive_twin(T, r):
    rng = np.random.default_rng(0)
    structure = structures.Clusters(min(4, T), mean=0.3, between=1.0, within=4.0)
    W = rng.normal(size=(T, r)) * np.linspace(0.2, 1, r)
    norm = ClusterNorm(structure, W)
    value, gradient = naive.cluster_norm(structure, W)
    assert np.isclose(norm.value, value, rtol=1e-10)
    assert np.allclose(norm.gradient, gradient, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("T", "r"), SHAPES)
def test_the_inverse_undoes_the_curvature_of_the_norm(T, r, seed):
    rng = np.random.default_rng(seed)
    structure = structures.Clusters(min(4, T), mean=0.3, between=1.0, within=4.0)
    W, E, eps = rng.normal(size=(T, r)) * np.linspace(0.2, 1, r), rng.normal(size=(T, r)), 1e-6
    here, there, back = (ClusterNorm(structure, W + t * E) for t in (0, eps, -eps))
    kinked = (here.k, _inner(here)) != (there.k, _inner(there)) or (here.k, _inner(here)) != (back.k, _inner(back))
    assert not kinked, "take another seed: the curvature jumps here"
    bent = 2.0 * (there.gradient - back.gradient) / (2 * eps) + 0.1 * E
    assert np.allclose(here.inverse(2.0, 0.1)(bent), E, atol=1e-5)


@pytest.mark.parametrize("decay", [1.0, 0.3])  # singular values up to 1e-6 of the largest
@pytest.mark.parametrize(("T", "r"), SHAPES)
def test_the_inverse_in_single_precision_has_two_digits(T, r, decay):
    rng = np.random.default_rng(2)
    structure = structures.Clusters(min(4, T), mean=0.3, between=1.0, within=4.0)
    norm, E = ClusterNorm(structure, rng.normal(size=(T, r)) * decay ** np.arange(r)), rng.normal(size=(T, r))
    rough, exact = norm.inverse(2.0, 0.1, np.float32)(E.astype(np.float32)), norm.inverse(2.0, 0.1)(E)
    assert rough.dtype == np.float32
    assert np.linalg.norm(rough - exact) <= 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_directions_in_single_precision_lead_to_the_same_minimum(monkeypatch, alpha):
    problem = problem_of((30,) * 40, 25, structure=structures.Clusters(4)).at(alpha)
    assert SquaredLoss(problem).dtype == np.float32
    coarse = solve(problem, ClusterNewton(), tol=1e-10)
    monkeypatch.setattr(cluster_newton.SquaredLoss, "_in_single", lambda *_: None)
    fine = solve(problem, ClusterNewton(), tol=1e-10)
    assert coarse.certificate.status == fine.certificate.status == "optimal"
    assert np.isclose(coarse.certificate.primal, fine.certificate.primal, rtol=1e-9)


@pytest.mark.parametrize(("T", "r"), SHAPES)
def test_the_majorant_is_the_structure_at_hand_and_lies_above_the_norm(T, r):
    rng = np.random.default_rng(1)
    structure = structures.Clusters(min(4, T), mean=0.3, between=1.0, within=4.0)
    W, E, V = rng.normal(size=(3, T, r))
    norm = ClusterNorm(structure, W)
    inverse = np.linalg.inv(norm.best())
    assert np.allclose(norm.majorant(2.0, 0.1)(2 * 2.0 * inverse @ E + 0.1 * E), E)
    assert np.isclose(np.vdot(W, inverse @ W), norm.value)
    assert np.vdot(V, inverse @ V) >= ClusterNorm(structure, V).value * (1 - 1e-9)


def test_steps_far_from_the_end_do_not_lead_astray(monkeypatch):
    """Few rows, many features and a weak penalty: the curvature of the norm changes within a step."""
    problem = problem_of((8,) * 10, 40, structure=structures.Clusters(4, mean=0.1, between=1.0, within=10.0))
    problem, steps = problem.at(1e-3 * strength(problem)), []
    plain = ClusterNewtonRun._newton_step
    monkeypatch.setattr(ClusterNewtonRun, "_newton_step", lambda run: steps.append(run) or plain(run))
    assert solve(problem, ClusterNewton(), tol=1e-6).certificate.optimal
    few = len(steps)
    monkeypatch.setattr(cluster_newton, "TUNING", replace(cluster_newton.TUNING, max_newton_decrease=np.inf))
    assert solve(problem, ClusterNewton(), tol=1e-6).certificate.optimal
    assert few < len(steps) - few


def _inner(norm):
    return int(np.count_nonzero(norm.a[: norm.k] < (1 - 1e-12) / norm.structure.between))


def test_the_inverse_where_nothing_bends():
    """Weights of zero and a loss that is flat but for rounding: no direction shares anything, and nothing overflows."""
    norm = ClusterNorm(structures.Clusters(2), np.zeros((3, 4)))
    assert norm.k == 0
    assert np.isfinite(norm.inverse(1e-42, np.finfo(float).tiny)(np.ones((3, 4)))).all()


def test_weights_that_lack_directions_have_a_norm_too():
    rng = np.random.default_rng(0)
    structure = structures.Clusters(4)
    for T, r, rank in ((10, 6, 1), (6, 10, 2), (10, 6, 0)):
        W = rng.normal(size=(T, rank)) @ rng.normal(size=(rank, r)) + rng.normal(size=r)
        norm = ClusterNorm(structure, W)
        assert np.isclose(norm.value, naive.cluster_norm(structure, W)[0], rtol=1e-9)
        E = rng.normal(size=(T, r))
        assert np.vdot(E, norm.inverse(1.0, 1e-3)(E)) > 0


@pytest.mark.parametrize(("T", "r"), SHAPES)
def test_short_cuts_of_clusters_agree_with_the_long_way(T, r):
    rng = np.random.default_rng(1)
    structure = structures.Clusters(min(4, T), mean=0.3, between=1.0, within=4.0)
    for R in (rng.normal(size=(r, T)), np.outer(rng.normal(size=r), rng.normal(size=T)), np.zeros((r, T))):
        (A, charge), (B, other) = structure.best_of_root(R), Structure.best_of_root(structure, R)
        assert np.isclose(charge, other, rtol=1e-9, atol=1e-12)
        assert structure.value(A) == structure.value(B) == 0
        assert np.isclose(structure.squared_norm(R, A), charge, rtol=1e-9, atol=1e-12)
        assert np.isclose(structure.ray_of_root(R).conjugate(1.0), structure.conjugate(R.T @ R), rtol=1e-10, atol=1e-12)
    S = structure.best_structure(np.eye(T)) + np.diag(rng.uniform(size=T))
    feasible = structure.best_structure(S)
    assert np.vdot(S, structure.best_of_root(np.linalg.cholesky(S).T)[0]) <= structure.conjugate(S) + 1e-9
    assert np.vdot(S, feasible) <= structure.conjugate(S) + 1e-9


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"ridge": 0.3}], ids=str)
@pytest.mark.parametrize("share", [1.0, 0.1, 1e-2, 1e-4])
def test_it_reaches_what_proximal_steps_reach(share, options):
    problem = problem_of(**options)
    problem = problem.at(share * strength(problem))
    quick, slow = solve(problem, ClusterNewton(), tol=1e-8), solve(problem, "proximal", tol=1e-8, max_iter=5000)
    assert quick.certificate.optimal, quick.certificate.message
    assert quick.n_iter <= 10
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap
    assert np.isclose(problem.primal(quick.W, quick.b, quick.A), quick.certificate.primal, rtol=1e-9)


@pytest.mark.parametrize(
    "structure",
    [
        structures.Clusters(1),
        structures.Clusters(6),
        structures.Clusters(3, 1.0, 2.0, 2.0),
        structures.Clusters(2, 1e-3, 1e-2, 1e3),
    ],
    ids=str,
)
def test_edges_of_the_set_of_structures(structure):
    problem = problem_of(structure=structure)
    problem = problem.at(0.05 * strength(problem))
    assert solve(problem, ClusterNewton(), tol=1e-7).certificate.optimal


@pytest.mark.parametrize(("d", "n_tasks", "n"), [(60, 50, 8), (5, 60, 30), (80, 4, 10), (3, 2, 1)])
def test_every_shape_is_solved_in_few_steps(d, n_tasks, n):
    problem = problem_of((n,) * n_tasks, d)
    top = strength(problem)
    for share in (0.1, 0.001):
        solution = solve(problem.at(share * max(top, 1e-12)), ClusterNewton(), tol=1e-6)
        assert solution.certificate.optimal, solution.certificate.message
        assert solution.n_iter <= 13


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_and_directions_of_very_different_size_do_not_matter(scale):
    problem = problem_of((12,) * 20, 8)
    features = problem.features * np.array([1, 1, 1, 1, 1e-3, 1e-3, 0.0, 1e3]) * scale
    problem = Problem(features, problem.observations, "squared", structures.Clusters(3), 1.0)
    problem = problem.at(0.01 * strength(problem))
    assert solve(problem, ClusterNewton(), tol=1e-7).certificate.optimal


def test_a_tolerance_below_rounding_ends():
    assert solve(problem_of(), ClusterNewton(), tol=0.0, max_iter=50).certificate.relative_gap < 1e-11


def test_a_path_starts_each_fit_from_the_last():
    problem = problem_of((15,) * 30, 12)
    top = strength(problem)
    assert all(solution.certificate.optimal for solution in path(problem, top * np.logspace(0, -3, 8), tol=1e-7))


@pytest.mark.parametrize("counts", [(4, 9, 3, 7, 5, 30), (1, 40, 2, 35), (30, 40), (2, 3, 2)])
def test_the_squared_loss_of_short_and_long_tasks(counts):
    """Value and gradient as the problem has them, and a Hessian that is the change of the gradient."""
    problem = problem_of(counts, d=12)
    loss, rng = SquaredLoss(problem), np.random.default_rng(1)
    W, E = rng.normal(size=(2, len(counts), 12))

    def best(W):
        means = problem.observations.task_means(problem.observations.y - problem.predict(W.T, np.zeros(len(counts))))
        z = problem.predict(W.T, means)
        gradients = problem.loss.gradient(problem.observations.y, z)
        return problem.loss_term(z), problem.correlate(-problem.observations.weight * gradients).T

    (value, Z), (other, ahead), (true, gradient), (true_other, _) = loss.at(W), loss.at(W + E), best(W), best(W + E)
    assert np.isclose(value - other, true - true_other, rtol=1e-9)  # the value is known up to a constant
    assert np.allclose(Z, gradient, rtol=1e-8, atol=1e-8)
    assert np.allclose(loss.product(E), Z - ahead, rtol=1e-8, atol=1e-8)


def test_it_says_what_it_needs():
    for options in ({"structure": structures.Trace()}, {"loss": losses.Logistic()}):
        given = {"loss": losses.Squared(), "structure": structures.Clusters(), **options}
        X, Y = np.eye(4), np.where(np.arange(8).reshape(4, 2) % 3 > 0, 1.0, -1.0)
        with pytest.raises(ValueError, match="Clusters"):
            solve(Problem(X, Y, alpha=0.1, **given), ClusterNewton())
    with pytest.raises(ValueError, match="forcing=2"):
        ClusterNewton(forcing=2)
    assert solve(problem_of(), tol=1e-4).solver == "clusternewton"
    for alone in (structures.Clusters(1), structures.Clusters(6), structures.Clusters(2, 1.0, 2.0, 2.0)):
        fit = solve(problem_of(structure=alone), tol=1e-8)
        assert fit.solver == "proximal"  # a single structure: nothing to learn but the tasks
        assert fit.n_iter <= 2
        assert np.allclose(fit.A, alone.best_structure(np.diag(np.arange(6.0))))
