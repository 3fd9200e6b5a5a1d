"""Learned graphs and sparse precisions where correlations are nearly singular, edges huge and targets tiny."""

import numpy as np
import pytest

from taskloom import MultiTaskRegressor, structures
from taskloom.structures.nonconvex.learned_graphs import graphical_lasso, shrink

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 4))
Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(12, 3))


@pytest.mark.parametrize("n_tasks", [4, 13])
def test_a_sparse_graph_of_nearly_singular_correlations(n_tasks):
    """Newton steps that may not cross zero went round in circles: 100 of them left a residual of 3e-2."""
    draw = np.random.default_rng(n_tasks)
    R = draw.normal(size=(3, n_tasks))
    C = R.T @ R + 1e-4 * np.eye(n_tasks)
    size = np.sqrt(np.diag(C))
    C, price = C / np.outer(size, size), 1e-3 * (1 - np.eye(n_tasks))
    A, P = graphical_lasso(C, price)
    assert np.allclose(A @ P, np.eye(n_tasks), atol=1e-7)
    assert np.abs(P - shrink(P - (C - A), price)).max() < 1e-10


def test_a_sparse_graph_with_tiny_targets_is_as_good_as_its_digits():
    said = MultiTaskRegressor(structures.SparsePrecision(), alpha=0.1).fit(X, 1e-40 * Y).certificate_
    assert said.converged, said.message


@pytest.mark.parametrize("unit", [1e-3, 1e-5, 1e-12, 1e-38])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_tasks_that_grow_together_under_a_learned_graph(unit, loss):
    """Edges grew until ``gamma`` was lost beside them, and a loss of 1e-10 beside the trace: no progress after 300 steps."""
    alpha = 1e-2 if loss == "squared" else 1e-2 / unit
    model = MultiTaskRegressor(structures.LearnedGraph(2.0), alpha=alpha, loss=loss, max_iter=50).fit(X, unit * Y)
    assert model.certificate_.status == "stationary", model.certificate_.message
    pooled = model.coef_ - model.coef_.mean(axis=0)
    assert np.abs(pooled).max() <= 1e-3 * np.abs(model.coef_).max() or unit > 1e-4


def test_a_structure_made_of_huge_edges_is_told_from_one_that_is_not():
    F = structures.LearnedGraph(2.0, sparsity=0.1).for_run()
    R = np.array([[1.0, 1.0, 1.0], [0.0, 1e-13, 3.0]])
    A, penalty = structures.LearnedGraph(2.0).best_of_root(R)
    assert structures.LearnedGraph(2.0).value(A) == np.trace(A)
    assert np.isclose(penalty, np.trace(np.linalg.solve(A, R.T @ R)) + np.trace(A), rtol=1e-4)
    made, price = F.best_of_root(R)
    w = F.weights(made)
    assert np.isclose(price, np.trace(F.precision(w, 3) @ R.T @ R) + np.trace(made) + 0.1 * w.sum())
    assert F.value(made - 1e-3 * np.eye(3)) == np.inf
