"""Smooth losses as a sequence of squared ones: the model is the loss to second order, the optimum that of other solvers."""

import numpy as np
import pytest
import zoo

from taskloom import Problem, alpha_max, losses, path, solve, structures
from taskloom.solvers import Reweighted
from taskloom.solvers.reweighted import ReweightedRun

SMOOTH = [losses.Logistic(), losses.SquaredHinge(), losses.Huber(0.5), losses.Squared()]


def problem_of(loss, layout="own", share=0.1, **options):
    problem = Problem(*zoo.data(loss, layout), loss, "trace", 1.0, **options)
    return problem.at(share * alpha_max(problem))


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Squared()], ids=zoo.name)
def test_the_model_is_the_loss_to_second_order(loss):
    problem = problem_of(loss)
    rng = np.random.default_rng(0)
    start = rng.normal(size=(problem.n_features, problem.n_tasks)), rng.normal(size=problem.n_tasks)
    run = ReweightedRun(Reweighted(floor=1e-12), problem, start, 1e-6)
    model = run._model()
    step, eps = rng.normal(size=run.z.size), 1e-3

    def along(posed, t):
        return posed.loss_term(run.z + t * step)

    for t in (0.0, eps, -eps):
        rest = (along(problem, t) - along(model, t)) - (along(problem, 0) - along(model, 0))
        assert abs(rest) <= 1e-7 * max(1.0, problem.scale)


@pytest.mark.parametrize("loss", SMOOTH, ids=zoo.name)
@pytest.mark.parametrize("layout", ["own", "shared", "missing"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("share", [1.1, 0.3, 0.01])
def test_it_reaches_what_proximal_steps_reach(loss, layout, fit_intercept, share):
    problem = problem_of(loss, layout, share, fit_intercept=fit_intercept)
    quick, slow = solve(problem, "reweighted", tol=1e-7), solve(problem, "proximal", tol=1e-7, max_iter=5000)
    assert quick.certificate.optimal, quick.certificate.message
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap
    assert np.isclose(problem.primal(quick.W, quick.b, quick.A), quick.certificate.primal, rtol=1e-9)


def test_losses_with_kinks_are_smoothed_for_it():
    for loss in (losses.Hinge(), losses.Absolute()):
        found = solve(problem_of(loss), "reweighted", tol=1e-4, max_iter=3000)
        assert found.certificate.optimal, found.certificate.message


def test_warm_starts_and_few_steps():
    problem = problem_of(losses.Logistic())
    solutions = path(problem, problem.alpha * np.array([1.0, 0.7, 0.5, 0.3]), "reweighted", tol=1e-6)
    assert all(solution.certificate.optimal for solution in solutions)
    assert max(solution.n_iter for solution in solutions) <= 12


def test_what_it_does_not_accept():
    X, Y = zoo.data(losses.Logistic(), "own")
    for given in ({"structure": structures.Frobenius()}, {"ridge": 0.1}):
        with pytest.raises(ValueError, match="reweighted"):
            solve(Problem(X, Y, "logistic", **given), "reweighted")
    with pytest.raises(ValueError, match="floor"):
        Reweighted(floor=0.0)


def test_auto_takes_it_for_losses_that_bend_everywhere():
    assert solve(problem_of(losses.Logistic()), tol=1e-3).solver == "reweighted"
    assert solve(problem_of(losses.Huber(0.5)), tol=1e-3).solver == "proximal"


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(0.3)], ids=zoo.name)
def test_the_best_constants_are_stationary(loss):
    problem = Problem(*zoo.data(loss, "missing"), loss)
    seen, b = problem.observations, problem.best_constants
    slope = seen.sum_by_task(seen.weight * loss.slope(seen.y, b[seen.task]))
    assert np.abs(slope).max() < 1e-12
    if isinstance(loss, losses.Logistic):
        positive = seen.sum_by_task(seen.weight * (seen.y > 0))
        assert np.allclose(b, np.log(positive / (1 - positive)), atol=1e-12)
