"""Newton's method on the factor as devices run it: value, slope and Hessian against a naive twin."""

import naive
import numpy as np
import pytest
from test_projected import problem_of

from taskloom.solvers.blocks import blocks
from taskloom.solvers.factor_newton import Point
from taskloom.solvers.task_blocks import Stack


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("q", [2, 6])
def test_value_slope_and_hessian_are_those_of_the_naive_twin(q, fit_intercept):
    problem = problem_of(fit_intercept=fit_intercept)
    rng, data = np.random.default_rng(1), [Stack.of(block.X, block.y) for block in blocks(problem)]
    assert len(data) > 1  # tasks of different sizes, in systems of both kinds
    Q, step = rng.normal(size=(problem.n_features, q)), rng.normal(size=(problem.n_features, q))

    def at(t):
        return Point(data, Q + t * step, problem.alpha)

    def h(t):
        return naive.projected_objective(problem, Q + t * step)

    assert np.isclose(at(0.3).value - at(0).value, h(0.3) - h(0), rtol=1e-9)
    eps = 1e-4
    assert np.isclose(np.vdot(at(0).slope, step), (h(eps) - h(-eps)) / (2 * eps), rtol=1e-5)
    here = at(0)
    here.lift = 0.0  # the plain Hessian
    assert np.allclose(here.hessian(step), (at(eps).slope - at(-eps).slope) / (2 * eps), rtol=1e-4, atol=1e-5)
