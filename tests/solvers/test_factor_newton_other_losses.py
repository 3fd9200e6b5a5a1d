"""Newton's method on the factor under any loss of entries: derivatives, the optimum of other solvers, kinks, fallbacks."""

import numpy as np
import oracle
import pytest
import zoo

from taskloom import Problem, alpha_max, losses, path, solve, structures
from taskloom.design import Observations
from taskloom.losses.mixed import Mixed
from taskloom.solvers import Factored, Proximal
from taskloom.solvers.auto import choose
from taskloom.solvers.factor import fitted_tasks
from taskloom.solvers.factor.factored import FittedTasksRun
from taskloom.solvers.factor.fitted_tasks import FittedEngine
from taskloom.solvers.factor.newton import Point
from taskloom.solvers.supervised.sides import FeatureSide

SMOOTH = [losses.Logistic(), losses.SquaredHinge(), losses.Huber(0.5), losses.Squared()]


def problem_of(loss, layout="own", share=0.1, **options):
    problem = Problem(*zoo.data(loss, layout), loss, "trace", 1.0, **options)
    return problem.at(share * alpha_max(problem))


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Squared()], ids=zoo.name)
def test_the_model_is_the_loss_to_second_order(loss):
    problem = problem_of(loss)
    rng = np.random.default_rng(0)
    start = rng.normal(size=(problem.n_features, problem.n_tasks)), rng.normal(size=problem.n_tasks)
    run = FittedTasksRun(Factored(), problem, start, 1e-6)
    here = run.point()
    z = problem.predict(here.W, here.b)
    model = run._model(z)
    step, eps = rng.normal(size=z.size), 1e-3

    def along(posed, t):
        return posed.loss_term(z + t * step)

    for t in (0.0, eps, -eps):
        rest = (along(problem, t) - along(model, t)) - (along(problem, 0) - along(model, 0))
        assert abs(rest) <= 1e-7 * max(1.0, problem.scale)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Huber(1.5), losses.CustomLoss(zoo.LogCosh())], ids=zoo.name)
@pytest.mark.parametrize("layout", ["own", "missing"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gradient_and_hessian_are_those_of_the_objective_with_the_tasks_eliminated(loss, layout, fit_intercept):
    problem = problem_of(loss, layout, fit_intercept=fit_intercept)
    rng = np.random.default_rng(1)
    Q, _ = np.linalg.qr(rng.normal(size=(problem.n_features, 3)))
    move, T = rng.normal(size=Q.shape), problem.n_tasks
    nothing, engine = (np.zeros((T, problem.n_features)), np.zeros(T)), FittedEngine(problem)
    engine.accuracy = 1e-20 * T

    def at(t):
        U, s, V = np.linalg.svd(Q + t * move, full_matrices=False)  # orthogonal columns, as the solver keeps them
        return Point(engine.eliminate(U * s, start=nothing), U * s, problem.alpha), V

    def h(t):
        """The same by alternation over nothing but the tasks: a known structure, solved by other code."""
        D = (Q + t * move) @ (Q + t * move).T
        fit = FeatureSide(problem).supervise(Q + t * move)
        return problem.loss_term(fit.z) + fit.norm + np.trace(D)

    here, V = at(0)
    assert np.isclose(here.value, h(0), rtol=1e-10)
    eps, turned = 1e-4, move @ V.T
    assert np.isclose(np.vdot(here.gradient, turned), (h(eps) - h(-eps)) / (2 * eps), rtol=1e-5, atol=1e-7)
    here.lift = 0.0  # the plain Hessian
    bend = (h(eps) - 2 * h(0) + h(-eps)) / eps**2
    assert np.isclose(np.vdot(here.hessian(turned), turned), bend, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_first_weights_are_those_of_tasks_on_their_own(fit_intercept):
    problem = problem_of(losses.Logistic(), fit_intercept=fit_intercept)
    rng, eye = np.random.default_rng(2), np.eye(problem.n_features)
    for block in problem.design.smooth_loss_tasks[0]:
        h, g = block.v * rng.uniform(0.1, 1, size=block.v.shape), block.v * rng.normal(size=block.v.shape)
        block = block.sized(h)
        for found, X, curved, gradients, size in zip(
            block.independent_fit(h, g, fit_intercept), block.X, h, g, block.size, strict=True
        ):
            centred = X - (curved @ X / curved.sum() if fit_intercept else 0)
            naive_twin = np.linalg.solve(centred.T @ (curved[:, None] * centred) + 0.6 * size * eye, -centred.T @ gradients)
            assert np.linalg.norm(found - naive_twin) <= 0.2 * np.linalg.norm(naive_twin)  # three conjugate gradients


@pytest.mark.parametrize("loss", SMOOTH, ids=zoo.name)
@pytest.mark.parametrize("layout", ["own", "shared", "missing"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("share", [1.1, 0.3, 0.01])
def test_it_reaches_what_proximal_steps_reach(loss, layout, fit_intercept, share):
    problem = problem_of(loss, layout, share, fit_intercept=fit_intercept)
    quick, slow = solve(problem, "factored", tol=1e-7), solve(problem, "proximal", tol=1e-7, max_iter=5000)
    assert quick.certificate.optimal, quick.certificate.message
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap
    assert np.isclose(problem.primal(quick.W, quick.b, quick.A), quick.certificate.primal, rtol=1e-9)


@pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if not loss.smooth], ids=zoo.name)
@pytest.mark.parametrize(("layout", "fit_intercept"), [("own", True), ("shared", False), ("missing", True), ("missing", False)])
def test_nonsmooth_losses_take_few_steps(loss, layout, fit_intercept):
    for share in (1.1, 0.01):
        problem = problem_of(loss, layout, share, fit_intercept=fit_intercept)
        found = solve(problem, "factored", tol=1e-7, max_iter=55)
        assert found.certificate.optimal, found.certificate.message
        assert np.isclose(problem.primal(found.W, found.b, found.A), found.certificate.primal, rtol=1e-9)


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.Quantile(0.3)], ids=zoo.name)
def test_nonsmooth_losses_end_where_an_interior_point_method_ends(loss):
    problem = problem_of(loss, share=0.1)
    found, (X, Y) = solve(problem, "factored", tol=1e-7), zoo.data(loss, "own")
    expected = oracle.minimum(X, Y, loss, problem.structure, problem.alpha)
    assert abs(found.certificate.primal - expected) <= found.gap + 1e-6 * problem.scale


@pytest.mark.parametrize("kinked", [losses.Hinge(), losses.Absolute()], ids=zoo.name)
def test_many_tasks_under_a_nonsmooth_loss_take_few_steps(kinked):
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(600, 8)), np.repeat(np.arange(40), 15)
    y = np.einsum("ij,ij->i", X, (rng.normal(size=(40, 2)) @ rng.normal(size=(2, 8)))[task]) + 0.3 * rng.normal(size=600)
    y = np.where(y > 0, 1.0, -1.0) if kinked.targets == "signs" else y
    problem = Problem(X, Observations.build(np.arange(600), task, y, 40), kinked, "trace")
    for share in (0.3, 0.03):
        found = solve(problem.at(share * alpha_max(problem)), tol=1e-6, max_iter=40)
        assert found.solver == "factored"
        assert found.certificate.optimal, found.certificate.message


def test_a_loss_of_its_own_for_each_task():
    X, y = zoo.data(losses.Hinge(), "own")
    obs = Problem(X, y, "hinge").observations
    mixed = Mixed([losses.Logistic(), losses.Hinge()], obs.task % 2)
    found = solve(Problem(X, obs, mixed, "trace", 0.01), "factored", tol=1e-6, max_iter=21)
    assert found.certificate.optimal, found.certificate.message


def test_where_no_system_can_be_factored_proximal_steps_take_over(monkeypatch):
    def refuse(K, lift):
        raise np.linalg.LinAlgError

    problem = problem_of(losses.Logistic())
    expected = solve(problem, "proximal", tol=1e-7)
    run = Factored().begin(problem, None, 1e-7)
    run.step(None)
    monkeypatch.setattr(fitted_tasks, "inverse_roots", refuse)
    found = solve(problem, "factored", tol=1e-7)
    assert abs(found.certificate.primal - expected.certificate.primal) <= found.gap + expected.gap
    run.step(np.inf)
    assert run.point().objective(problem) < np.inf
    assert isinstance(run.successor, Proximal)


def test_warm_starts_and_few_steps():
    problem = problem_of(losses.Logistic())
    solutions = path(problem, problem.alpha * np.array([1.0, 0.7, 0.5, 0.3]), "factored", tol=1e-6)
    assert all(solution.certificate.optimal for solution in solutions)
    assert max(solution.n_iter for solution in solutions) <= 12


def test_where_tasks_cannot_be_eliminated_it_takes_steps_of_bfgs():
    X, Y = zoo.data(losses.Logistic(), "own")
    for given in ({"structure": structures.Frobenius()}, {"ridge": 0.1}):
        problem = Problem(X, Y, "logistic", **given)
        assert not isinstance(Factored().begin(problem, None, 1e-4), FittedTasksRun)
        assert solve(problem, "factored", tol=1e-4).certificate.optimal
    with pytest.raises(ValueError, match="forcing"):
        Factored(forcing=0.0)


def test_auto_takes_it_for_every_loss():
    for loss in zoo.LOSSES:
        assert choose(Problem(*zoo.data(loss, "own"), loss)).name == "factored"
    many = Problem(np.eye(2), np.ones((2, 20_000)), "huber")
    assert choose(many).name == "proximal"  # a system for each task would not fit


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(0.3)], ids=zoo.name)
def test_the_best_constants_are_stationary(loss):
    problem = Problem(*zoo.data(loss, "missing"), loss)
    obs, b = problem.observations, problem.best_constants
    gradient = obs.sum_by_task(obs.weight * loss.gradient(obs.y, b[obs.task]))
    assert np.abs(gradient).max() < 1e-12
    if isinstance(loss, losses.Logistic):
        positive = obs.sum_by_task(obs.weight * (obs.y > 0))
        assert np.allclose(b, np.log(positive / (1 - positive)), atol=1e-12)
