"""Engines: sums over tasks in memory against a naive computation, and over workers against those in memory."""

import numpy as np
import pytest
from synchronous_workers import engine_over

from taskloom import Problem
from taskloom.design import Observations
from taskloom.design.task_data import Grams, Rows, Stack
from taskloom.engines.local import LocalEngine, WeightSpectrum
from taskloom.solvers.device import OwnInputs, TaskRows

COUNTS, D, ALPHA = (4, 9, 3, 7, 5, 30, 2, 40), 5, 0.3


def problem_of(fit_intercept=True, task_weight="equal"):
    rng = np.random.default_rng(0)
    task = rng.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
    X = rng.normal(size=(task.size, D)) + 0.5
    y = np.einsum("ij,ji->i", X, rng.normal(size=(D, len(COUNTS)))[:, task]) + 0.3 * rng.normal(size=task.size) + 1
    obs = Observations.build(np.arange(task.size), task, y, len(COUNTS), task_weight=task_weight)
    return Problem(X, obs, "squared", "trace", ALPHA, fit_intercept=fit_intercept)


def local_engine(problem):
    """The engine of a device, on the host: like that of workers, it takes the inputs as isotropic."""
    obs = problem.observations
    rows = TaskRows(obs.row, obs.y, obs.weight, obs.counts, obs.task_weights)
    return OwnInputs(problem.features, rows, problem.structure, ALPHA, problem.fit_intercept).engine


def kinds_of_blocks():
    """The same tasks by rows and by products, and shared inputs by eigenvectors; each with inputs and targets of every task."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(6, 8, D)), rng.normal(size=(6, 8))
    G, size = X.transpose(0, 2, 1) @ X, np.einsum("bmd,bmd->b", X, X) / D
    d, Y, root = rng.uniform(0.1, 2, size=7), rng.normal(size=(7, D)), rng.uniform(0.5, 2, size=D)
    return {
        "rows": (Stack.of(X, y), X, y),
        "products": (Grams(G, np.einsum("bmd,bm->bd", X, y), np.square(y).sum(axis=1), size), X, y),
        "eigenvectors": (Rows(d, Y, root), d[:, None, None] * np.diag(root), Y),
    }


@pytest.mark.parametrize("kind", kinds_of_blocks())
@pytest.mark.parametrize("q", [2, D])
def test_tasks_in_memory_are_ridge_regressions_one_by_one(kind, q):
    block, X, y = kinds_of_blocks()[kind]
    rng = np.random.default_rng(2)
    Q, dQ, U = rng.normal(size=(D, q)), rng.normal(size=(D, q)), np.linalg.qr(rng.normal(size=(D, 2)))[0]
    engine = LocalEngine([block], ALPHA)
    assert (engine.n_tasks, engine.n_features) == (len(X), D)
    assert np.isclose(engine.target_squares, np.sum(y**2))

    def naive(Q):
        """Coefficients, correlations and the minimum, one task after the other."""
        B = np.array(
            [np.linalg.solve((x @ Q).T @ (x @ Q) + ALPHA * np.eye(q), (x @ Q).T @ t) for x, t in zip(X, y, strict=True)]
        )
        left = [t - x @ Q @ b for x, t, b in zip(X, y, B, strict=True)]
        Z = np.array([2 * x.T @ r for x, r in zip(X, left, strict=True)])
        return B, Z, sum(r @ r for r in left) + ALPHA * np.sum(B**2)

    (B, Z, minimum), tasks, eps = naive(Q), engine.eliminate(Q), 1e-6
    assert np.isclose(tasks.minimum, minimum)
    assert np.isclose(tasks.squared_norm, np.sum(B**2))
    assert np.allclose(tasks.product, Z.T @ B)
    assert np.allclose(tasks.weights(), B @ Q.T)
    (ahead, Z_ahead, _), (back, Z_back, _) = naive(Q + eps * dQ), naive(Q - eps * dQ)
    assert np.allclose(tasks.hessian(dQ), (Z_back.T @ back - Z_ahead.T @ ahead) / (2 * eps), rtol=1e-5, atol=1e-5)
    assert np.allclose(tasks.correlation_gram(U), U.T @ Z.T @ Z @ U)
    outside = Z - Z @ U @ U.T
    largest, curvature = tasks.outside(U)
    assert np.isclose(largest, np.linalg.norm(outside, 2) ** 2)
    sizes = [np.sum(x**2) / D for x in X]
    assert 0 <= curvature <= max(sizes) * (1 + 1e-12)
    squares, vectors = tasks.grown(Q, 0.7)
    assert np.allclose((vectors * squares) @ vectors.T, Q @ Q.T + 0.7 * Z.T @ Z)
    assert np.allclose(moments(tasks.weight_spectrum()), Q @ B.T @ B @ Q.T)
    assert np.allclose(tasks.curvature, tasks.curvature.T)
    assert np.linalg.eigvalsh(tasks.curvature)[0] >= -1e-12


def moments(spectrum):
    """``W'W``, which does not depend on the signs of singular vectors."""
    return (spectrum.vectors * np.maximum(spectrum.squares, 0)) @ spectrum.vectors.T


def test_the_spectrum_of_weights():
    W = np.random.default_rng(3).normal(size=(9, 4))
    spectrum = WeightSpectrum.of(W)
    assert spectrum.n_tasks == 9
    assert np.all(np.diff(spectrum.squares) >= 0)
    assert np.allclose(moments(spectrum), W.T @ W)
    assert np.isclose(spectrum.rms, np.sqrt(np.mean(np.sum(W**2, axis=1))))


@pytest.mark.parametrize("n_blocks", [1, 3, 20])
@pytest.mark.parametrize(("fit_intercept", "task_weight"), [(True, "equal"), (False, "size")])
def test_sums_over_workers_are_those_in_memory(n_blocks, fit_intercept, task_weight):
    problem = problem_of(fit_intercept, task_weight)
    here, there = local_engine(problem), engine_over(problem, n_blocks)
    rng = np.random.default_rng(4)
    Q, dQ, U = rng.normal(size=(D, 3)), rng.normal(size=(D, 3)), np.linalg.qr(rng.normal(size=(D, 2)))[0]
    assert (here.n_tasks, here.n_features) == (there.n_tasks, there.n_features)
    assert np.isclose(here.size, there.size, rtol=1e-10)
    assert np.isclose(here.target_squares, there.target_squares, rtol=1e-10)
    assert np.isclose(there.target_squares, problem.scale, rtol=1e-10)
    for shrinkage in (0.01, 0.3):
        one, other = here.independent_fits(shrinkage), there.independent_fits(shrinkage)
        assert one.n_tasks == other.n_tasks
        assert np.allclose(moments(one), moments(other), rtol=1e-8, atol=1e-10)
    assert np.allclose(here.known_factor(), there.known_factor())
    one, other = here.eliminate(Q), there.eliminate(Q)
    assert np.isclose(one.minimum, other.minimum, rtol=1e-10)
    assert np.isclose(one.squared_norm, other.squared_norm, rtol=1e-10)
    for name in ("product", "curvature"):
        assert np.allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-10), name
    assert np.allclose(one.hessian(dQ), other.hessian(dQ), rtol=1e-9, atol=1e-10)
    for _ in range(2):  # from the workers, then from moments that are known
        assert np.allclose(one.correlation_gram(U), other.correlation_gram(U), rtol=1e-9, atol=1e-10)
        assert np.allclose(one.outside(U), other.outside(U), rtol=1e-8)
    assert np.allclose(one.grown(Q, 0.7)[0], other.grown(Q, 0.7)[0], rtol=1e-8, atol=1e-10)
    assert np.allclose(moments(one.weight_spectrum()), moments(other.weight_spectrum()), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weights_come_from_the_workers_in_the_order_of_the_tasks(fit_intercept):
    problem = problem_of(fit_intercept)
    engine, Q = engine_over(problem), np.random.default_rng(5).normal(size=(D, D))
    W, Z, b = engine.weights(engine.eliminate(Q))
    obs = problem.observations
    z = problem.predict(W, b)
    gradients = problem.loss.gradient(obs.y, z)
    assert np.allclose(Z, problem.correlate(-obs.weight * gradients), rtol=1e-8, atol=1e-10)
    inverse = np.linalg.inv(Q @ Q.T)
    assert np.allclose(2 * ALPHA * inverse @ W, Z, rtol=1e-7, atol=1e-8)  # the gradient in the weights of every task is zero
    if fit_intercept:
        assert np.allclose(obs.sum_by_task(obs.weight * gradients), 0, atol=1e-10)
    else:
        assert not b.any()
    nothing, at_zero, means = engine.weights(None)
    assert not nothing.any()
    assert np.allclose(
        at_zero.T @ at_zero, problem.correlate(-obs.weight * problem.loss.gradient(obs.y, means[obs.task])).T @ at_zero
    )
    assert np.allclose(engine.correlations_at_zero, at_zero @ at_zero.T)
