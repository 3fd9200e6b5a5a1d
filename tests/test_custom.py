"""Structures and losses that users write: equal to the built-in ones, certified, checked, refused when they make no sense."""

import pickle
import re
import sys
import threading
from copy import deepcopy
from pathlib import Path

import cvxpy as cp
import numpy as np
import oracle
import pytest
import zoo
from scipy.special import xlogy
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import GridSearchCV

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, Problem, alpha_max, losses, solve, structures
from taskloom.losses import CustomLoss, Huber
from taskloom.structures import CustomStructure, Sparse
from taskloom.testing import check_loss, check_structure


class Offset:
    """The trace, plus a constant that may be changed from outside."""

    def __init__(self, off):
        self.off = off

    def value(self, A):
        return float(np.trace(A)) + self.off if np.linalg.eigvalsh(A)[0] >= -1e-9 else np.inf

    def prox(self, A, step):
        a, V = np.linalg.eigh(A)
        return (V * np.maximum(a - step, 0.0)) @ V.T


class Bent:
    """Huber's loss, of which nothing is known but value and gradient."""

    def __init__(self, width):
        self.width = width

    def value(self, y, z):
        r = np.abs(z - y)
        return np.where(r <= self.width, r**2, self.width * (2 * r - self.width))

    def gradient(self, y, z):
        return 2 * np.clip(z - y, -self.width, self.width)


class Parabola:
    def value(self, y, z):
        return (y - z) ** 2

    def gradient(self, y, z):
        return 2 * (z - y)


rng = np.random.default_rng(0)
X = rng.normal(size=(12, 4))
Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(12, 3))
INPUTS, TARGETS = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))


T = zoo.T
APART = np.abs(np.subtract.outer(np.arange(T), np.arange(T))) > 1
PAGE = (Path(__file__).parent.parent / "docs" / "custom.md").read_text()


def from_the_page(name):
    """A class exactly as the tutorial shows it, with the class it derives from."""
    namespace = {"np": np, "xlogy": xlogy, "Structure": structures.Structure, "__name__": __name__}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE):
        if "\nclass " in f"\n{block}":
            exec(re.search(r"^class .*?(?=^\S|\Z)", block, flags=re.DOTALL | re.MULTILINE)[0], namespace)
    return namespace[name]


Poisson, ExactPoisson, MyTrace = (from_the_page(name) for name in ("Poisson", "ExactPoisson", "MyTrace"))


class Wrapped:
    """A built-in structure that shows its value and prox alone."""

    def __init__(self, F):
        self.F = F

    def value(self, A):
        return self.F.value(A)

    def prox(self, A, step):
        return self.F.prox(A, step)


class Banded:
    """What the oracle sees of ``tr A`` for tasks that are related to their neighbours only."""

    apart = APART


def module_level_trace(A):
    return cp.trace(A)


def size(A):
    return cp.sum_squares(A)


def small(layout="missing", n=12, d=3, seed=0):
    return zoo.data(losses.Squared(), layout, seed=seed, n=n, d=d)


def counts(layout, n=24, seed=0):
    X, Y = small(layout, n=n, seed=seed)
    rate = np.exp(np.clip(np.nan_to_num(Y) / 2, -3, 3))
    return X, np.where(np.isnan(Y), np.nan, np.random.default_rng(seed).poisson(rate).astype(float))


WRITTEN = {
    "trace": (module_level_trace, structures.Trace()),
    "frobenius": (size, structures.Frobenius()),
    "unit trace": (lambda A: (0.0, [cp.trace(A) <= 1]), structures.UnitTrace()),
    "log det": (lambda A: cp.trace(A) - 0.3 * cp.log_det(A), structures.LogDet(0.3)),
    "sparse": (lambda A: cp.trace(A) + 0.3 * cp.sum(cp.abs(cp.multiply(1 - np.eye(T), A))), structures.Sparse(0.3)),
}


class TestPenaltiesInCvxpy:
    @pytest.mark.parametrize("name", list(WRITTEN))
    def test_they_equal_the_built_in_ones(self, name):
        function, F = WRITTEN[name]
        X, Y = small("own" if name in ("trace", "sparse") else "missing")
        found = solve(Problem(X, Y, structure=CustomStructure(function), alpha=0.05), tol=1e-6)
        known = solve(Problem(X, Y, structure=F, alpha=0.05), tol=1e-9)
        assert found.certificate.optimal, found.certificate.message
        assert abs(found.certificate.primal - known.certificate.primal) <= 1e-6 * known.certificate.primal + 2 * found.gap
        assert "bounded numerically, from the prox that a conic solver computes" in found.certificate.message

    def test_a_band(self):
        X, Y = small("own")
        banded = CustomStructure(lambda A: (cp.trace(A), [A[APART] == 0]))
        found = solve(Problem(X, Y, structure=banded, alpha=0.05), tol=1e-6)
        truth = oracle.minimum(X, Y, losses.Squared(), Banded(), 0.05)
        assert found.certificate.optimal
        assert abs(found.certificate.primal - truth) <= 1e-6
        assert np.abs(found.A[APART]).max() <= 1e-6

    def test_variables_beside_the_structure(self):
        """``min_t t`` with ``t >= A_ii`` is the largest diagonal entry: its value is a problem of its own."""

        def largest(A):
            t = cp.Variable()
            return t + cp.trace(A), [cp.diag(A) <= t]

        X, Y = small()
        found = solve(Problem(X, Y, structure=largest, alpha=0.05), tol=1e-4)
        direct = solve(Problem(X, Y, structure=lambda A: cp.max(cp.diag(A)) + cp.trace(A), alpha=0.05), tol=1e-4)
        assert abs(found.certificate.primal - direct.certificate.primal) <= found.gap + direct.gap + 1e-7

    def test_the_block_method(self):
        X, Y = small()
        found = solve(Problem(X, Y, structure=size, alpha=0.05), "block", tol=1e-4)
        known = solve(Problem(X, Y, structure="frobenius", alpha=0.05), tol=1e-9)
        assert found.certificate.optimal
        assert abs(found.certificate.primal - known.certificate.primal) <= found.gap

    @pytest.mark.parametrize(
        ("function", "words"),
        [
            (lambda A: -cp.sum_squares(A), "must be convex by CVXPY's rules"),
            (lambda A: A, "must be one number, got an expression of shape"),
            (lambda _: "trace", "got str"),
            (lambda A: (cp.trace(A), [cp.trace(A) <= -1]), "infeasible"),
            (lambda A: (cp.trace(A), [cp.sum_squares(A) >= 1]), "constraints of CustomStructure must be convex"),
            (lambda A: -cp.trace(A), "unbounded below"),
        ],
    )
    def test_nonsense_is_refused_when_the_problem_is_posed(self, function, words):
        with pytest.raises(ValueError, match=words):
            Problem(*small(), structure=function)

    def test_without_cvxpy_the_remedy_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "cvxpy", None)
        with pytest.raises(ImportError, match=r"pip install 'taskloom\[custom\]'"):
            Problem(*small(), structure=CustomStructure(module_level_trace))

    def test_copies_leave_what_was_compiled_behind(self):
        F = CustomStructure(module_level_trace)
        A = zoo.random_psd(np.random.default_rng(0))
        assert np.isclose(F.value(A), np.trace(A))
        for twin in (clone(F), deepcopy(F), pickle.loads(pickle.dumps(F))):
            assert not twin._by_size
            assert np.isclose(twin.value(A), np.trace(A))
        assert np.isclose(F.set_params(penalty=MyTrace()).value(A), np.trace(A))
        assert "bounded numerically, from its prox" in F.proof

    def test_threads_do_not_mix_their_questions(self):
        F, rng = CustomStructure(module_level_trace), np.random.default_rng(0)
        questions = [zoo.random_psd(rng) for _ in range(6)]
        answers = [None] * 6

        def ask(k):
            answers[k] = F.prox(questions[k], 0.1)

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for question, answer in zip(questions, answers, strict=True):
            assert np.allclose(answer, structures.Trace().prox(question, 0.1), atol=1e-7)


PENALTIES = {
    "trace": (cp.trace, 2.0),
    "frobenius": (cp.sum_squares, 4.0),
    "unit_trace": (lambda A: (0 * cp.trace(A), [cp.trace(A) <= 1]), 0.0),
}


class TestUnitsOfPenaltiesInCvxpy:
    """A conic solver is right to an absolute number, so it must be asked in the units of the structures."""

    @pytest.mark.parametrize("unit", [1e-3, 1e-2, 1.0, 1e4])
    @pytest.mark.parametrize("name", sorted(PENALTIES))
    def test_bounds_are_true_in_any_units(self, name, unit):
        function, power = PENALTIES[name]
        deep = np.random.default_rng(0)
        X = deep.normal(size=(30, 3))
        Y = unit * (X @ deep.normal(size=(3, 2)) @ deep.normal(size=(2, 4)) + 0.3 * deep.normal(size=(30, 4)))
        alpha = {"trace": 0.6, "frobenius": 0.5, "unit_trace": 0.5}[name] * unit ** min(power, 2.0)
        truth = MultiTaskRegressor(name, alpha=alpha, tol=1e-9).fit(X, Y).certificate_.primal
        said = MultiTaskRegressor(structures.CustomStructure(function), alpha=alpha).fit(X, Y).certificate_
        assert said.optimal, said.message
        assert said.dual <= truth * (1 + 1e-7)

    @pytest.mark.parametrize("name", ["trace", "frobenius"])
    def test_a_search_has_strengths_at_which_something_is_learned(self, name):
        deep = np.random.default_rng(0)
        X = deep.normal(size=(30, 3))
        Y = X @ deep.normal(size=(3, 2)) @ deep.normal(size=(2, 4)) + 0.3 * deep.normal(size=(30, 4))
        own = structures.CustomStructure(PENALTIES[name][0])
        if name == "trace":
            exact = alpha_max(Problem(X, Y, structure="trace"))
            assert np.isclose(alpha_max(Problem(X, Y, structure=own)), exact, rtol=1e-3)
            above = MultiTaskRegressor(own, alpha=1.05 * exact).fit(X, Y)
            assert above.certificate_.optimal
        assert MultiTaskRegressorCV(own, alphas=5, cv=3, common=None, kernels=None).fit(X, Y).score(X, Y) > 0.9


def test_a_bound_above_the_objective_is_no_proof():
    """A conjugate that forgot where it is infinite."""

    class Forgetful:
        def value(self, A):
            return float(np.trace(A))

        def prox(self, A, step):
            a, V = np.linalg.eigh(A)
            return (V * np.maximum(a - step, 0)) @ V.T

        def conjugate(self, S):
            return 0.0

    deep = np.random.default_rng(0)
    X = deep.normal(size=(20, 3))
    Y = X @ deep.normal(size=(3, 4)) + deep.normal(size=(20, 4))
    for solver in ("auto", "alternating", "block"):
        model = MultiTaskRegressor(Forgetful(), alpha=0.05, solver=solver)
        with pytest.warns(ConvergenceWarning, match="lies above the objective"):
            said = model.fit(X, Y).certificate_
        assert said.status == "contradiction"
        assert not said.optimal
        assert said.dual == -np.inf
        assert said.gap == said.relative_gap == np.inf


class TestPenaltiesFromMethods:
    @pytest.mark.parametrize(
        "F", [F for F in zoo.LEARNED if not isinstance(F, (structures.SchattenNorm, structures.Sum))], ids=zoo.name
    )
    def test_value_and_prox_are_enough(self, F):
        X, Y = small("own")
        found = solve(Problem(X, Y, structure=Wrapped(F), alpha=0.05), tol=1e-7)
        known = solve(Problem(X, Y, structure=F, alpha=0.05), tol=1e-9)
        assert found.certificate.optimal, found.certificate.message
        assert abs(found.certificate.primal - known.certificate.primal) <= 1e-6 * known.certificate.primal
        assert found.certificate.dual <= known.certificate.primal
        assert "The conjugate of the penalty was bounded numerically, from its prox." in found.certificate.message

    @pytest.mark.parametrize("solver", ["auto", "block", "alternating"])
    def test_every_solver_takes_the_trace_of_the_page(self, solver):
        X, Y = small()
        found = solve(Problem(X, Y, structure=MyTrace(), alpha=0.05), solver, tol=1e-6)
        known = solve(Problem(X, Y, structure="trace", alpha=0.05), tol=1e-9)
        assert found.certificate.optimal, found.certificate.message
        assert abs(found.certificate.primal - known.certificate.primal) <= 1e-6 * known.certificate.primal + found.gap

    def test_a_known_conjugate_needs_no_numerical_bound(self):
        class Exact(MyTrace):
            def conjugate(self, S):
                return 0.0 if np.linalg.eigvalsh(S)[-1] <= 1 else np.inf

            def best_structure(self, S):
                return structures.Trace().best_structure(S)

        X, Y = small()
        found = solve(Problem(X, Y, structure=Exact(), alpha=0.05), tol=1e-8)
        assert found.certificate.optimal
        assert "numerically" not in found.certificate.message
        check_structure(Exact())

    def test_where_no_bound_is_found_the_message_says_so(self):
        class NoBound(MyTrace):
            def conjugate(self, S):
                return np.inf

        X, Y = small()
        found = solve(Problem(X, Y, structure=NoBound(), alpha=0.05), tol=1e-6, max_iter=20)
        assert not found.certificate.optimal
        assert found.certificate.gap == np.inf
        assert "No certificate is available" in found.certificate.message

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: CustomStructure(3), "a function of a CVXPY variable, or an object with the methods value and prox; got 3"),
            (lambda: CustomStructure(MyTrace), "MyTrace is a class; pass an object of it"),
            (lambda: losses.CustomLoss(3), "methods value and gradient, or value and prox; got 3"),
            (lambda: losses.CustomLoss(Poisson), "Poisson is a class"),
            (lambda: structures.as_structure(3), "got 3"),
        ],
    )
    def test_nonsense_is_refused_by_name(self, make, words):
        with pytest.raises(ValueError, match=words):
            make()

    def test_a_prox_of_the_wrong_shape_is_refused_when_the_problem_is_posed(self):
        class Flat(MyTrace):
            def prox(self, A, step):
                return np.diag(A)

        with pytest.raises(ValueError, match=r"Flat.prox must give a matrix of shape \(4, 4\), got shape \(4,\)"):
            Problem(*small(), structure=Flat())

    def test_parameters_can_be_searched(self):
        X, Y = small("shared", n=20)
        grid = {"structure": [MyTrace(), CustomStructure(MyTrace())], "loss": [losses.CustomLoss(zoo.LogCosh())]}
        search = GridSearchCV(MultiTaskRegressor(alpha=0.05), grid, cv=2).fit(X, Y)
        assert np.ptp(search.cv_results_["mean_test_score"]) < 1e-9


class TestPoisson:
    """The very class of the tutorial."""

    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("layout", ["shared", "own", "missing"])
    @pytest.mark.parametrize("F", ["trace", "frobenius", structures.Clusters(2), structures.SharedMean(1.0)], ids=str)
    def test_certified_and_equal_to_the_oracle(self, F, layout, fit_intercept):
        X, Y = counts(layout)
        model = MultiTaskRegressor(F, loss=Poisson(), alpha=0.05, tol=1e-7, fit_intercept=fit_intercept).fit(X, Y)
        certificate = model.certificate_
        assert certificate.relative_gap <= 1e-7
        assert "The conjugate of the loss was bounded numerically, from its gradients" in certificate.message
        truth = oracle.minimum(X, Y, Poisson(), structures.as_structure(F), 0.05, fit_intercept=fit_intercept)
        assert abs(certificate.primal - truth) <= 1e-6
        assert certificate.dual <= truth + 1e-7

    @pytest.mark.parametrize("F", ["trace", "frobenius", "independent"])
    def test_the_block_method_finds_its_own_steps(self, F):
        X, Y = counts("own")
        found = MultiTaskRegressor(F, loss=ExactPoisson(), alpha=0.05, tol=1e-6, solver="block", max_iter=2000).fit(X, Y)
        assert found.certificate_.optimal
        assert "numerically" not in found.certificate_.message

    def test_independent_tasks_are_poisson_regressions(self):
        """scikit-learn's penalty is ``alpha / 2 ||w||^2``: its ``alpha`` is twice ours."""
        X, Y = counts("shared")
        model = MultiTaskRegressor("independent", loss=Poisson(), alpha=0.05, tol=1e-10).fit(X, Y)
        for t in range(T):
            alone = PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=1000).fit(X, Y[:, t])
            assert np.allclose(model.coef_[t], alone.coef_, atol=1e-6)
            assert np.isclose(model.intercept_[t], alone.intercept_, atol=1e-6)

    def test_the_best_constants_are_logarithms_of_means(self):
        Y = np.array([[1000.0, 0.1, 7.0], [1010.0, 0.0, 7.0], [990.0, 0.05, 7.0]])
        problem = Problem(np.zeros((3, 1)), Y, loss=Poisson())
        assert np.allclose(problem.best_constants, np.log(Y.mean(axis=0)), atol=1e-6)

    def test_counts_far_from_zero_are_not_shifted(self):
        X, _ = counts("shared", n=30)
        Y = np.random.default_rng(1).poisson(1000, size=(30, T)).astype(float)
        model = MultiTaskRegressor("frobenius", loss=ExactPoisson(), alpha=1.0, tol=1e-8).fit(X, Y)
        assert model.certificate_.optimal
        assert np.allclose(np.exp(model.predict(X)).mean(axis=0), Y.mean(axis=0), rtol=1e-3)

    def test_counts_are_not_standardized(self):
        with pytest.raises(ValueError, match="needs losses of differences"):
            MultiTaskRegressor(loss=Poisson(), standardize_targets=True).fit(*counts("shared"))

    def test_what_is_found_numerically_agrees_with_what_is_known(self):
        loss, exact = losses.CustomLoss(Poisson()), losses.CustomLoss(ExactPoisson())
        rng = np.random.default_rng(0)
        y, z = rng.poisson(3, size=200).astype(float), 2 * rng.normal(size=200)
        s = np.exp(z) - y
        assert np.allclose(loss.conjugate(y, s), exact.conjugate(y, s), rtol=1e-12, atol=1e-12)
        assert np.all(loss.conjugate(y, s) >= exact.conjugate(y, s) - 1e-13 * (1 + np.abs(s * z)))
        assert np.all(loss.conjugate(y, -y - 0.1) == np.inf)
        assert np.allclose(loss.curvature(y, z), np.exp(z), rtol=1e-6)
        lower, upper = loss.gradient_bounds(y)
        assert np.allclose(lower, -y)
        assert np.all(upper == np.inf)

    def test_a_loss_that_is_negative_is_refused(self):
        class Shifted(Poisson):
            def value(self, y, z):
                return np.exp(z) - y * z

        X, Y = counts("shared")
        with pytest.raises(ValueError, match="must not be negative"):
            solve(Problem(X, Y + 9, loss=Shifted()))


class OnlyProx:
    """A built-in loss with kinks that shows its value and prox alone."""

    def __init__(self, loss):
        self.loss, self.targets = loss, loss.targets

    def value(self, y, z):
        return self.loss.value(y, z)

    def prox(self, y, z, step):
        return self.loss.prox(y, z, step)


@pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if not loss.smooth], ids=zoo.name)
def test_nonsmooth_losses_from_their_prox(loss):
    X, Y = zoo.data(loss, "missing", n=12, d=3)
    custom = losses.CustomLoss(OnlyProx(loss))
    check_loss(custom)
    found = solve(Problem(X, Y, custom, "frobenius", alpha=0.05), tol=1e-6)
    known = solve(Problem(X, Y, loss, "frobenius", alpha=0.05), tol=1e-7)
    assert found.certificate.optimal, found.certificate.message
    assert (
        abs(found.certificate.primal - known.certificate.primal) <= 2e-6 * known.problem.scale
        if hasattr(known, "problem")
        else True
    )
    assert "from its prox" in found.certificate.message


class TestChecks:
    @pytest.mark.parametrize("loss", zoo.LOSSES, ids=zoo.name)
    def test_every_loss_passes(self, loss):
        check_loss(loss)

    @pytest.mark.parametrize("F", zoo.STRUCTURES, ids=zoo.name)
    def test_every_structure_passes(self, F):
        check_structure(F, T)

    @pytest.mark.parametrize(
        ("method", "wrong", "words"),
        [
            ("value", lambda _, z: -np.exp(z), "must not be negative"),
            ("value", lambda _, z: np.sqrt(np.abs(z)), "must be convex"),
            ("gradient", lambda _, z: np.exp(z), "gradient must be the derivative"),
            ("curvature", lambda _, z: 2 * np.exp(z), "curvature must be the derivative"),
            ("conjugate", lambda y, s: ExactPoisson().conjugate(y, s) - 0.1, "conjugate is too small"),
            ("conjugate", lambda y, s: ExactPoisson().conjugate(y, s) + 0.1, "conjugate is too large"),
            (
                "gradient_bounds",
                lambda y: (-y / 2, np.inf),
                "gradient_bounds must give an interval that contains every gradient",
            ),
        ],
    )
    def test_a_wrong_loss_is_caught(self, method, wrong, words):
        with pytest.raises(AssertionError, match=words):
            check_loss(type("Mine", (ExactPoisson,), {method: staticmethod(wrong)})())

    @pytest.mark.parametrize(
        ("method", "wrong", "words"),
        [
            ("value", lambda A: np.sqrt(np.trace(A)), "must be convex"),
            ("prox", lambda A, step: MyTrace().prox(A, 2 * step), "Mine.prox must minimise"),
            ("prox", lambda A, step: A - step * np.eye(len(A)), "positive semidefinite"),
            ("conjugate", lambda S: -0.1 * np.trace(S), "conjugate is too small"),
            ("conjugate", lambda S: 10.0 + np.trace(S), "conjugate is too large"),
            ("best_structure", lambda S: S, "best_structure must minimise"),
        ],
    )
    def test_a_wrong_structure_is_caught(self, method, wrong, words):
        with pytest.raises(AssertionError, match=words):
            check_structure(type("Mine", (MyTrace,), {method: staticmethod(wrong)})())


class _Traceish:
    """The trace, with a conjugate that is to be found out."""

    def __init__(self, edge):
        self.edge = edge

    def value(self, A):
        return float(np.trace(A)) if np.linalg.eigvalsh(A)[0] >= -1e-9 else np.inf

    def prox(self, A, step):
        a, V = np.linalg.eigh(A)
        return (V * np.maximum(a - step, 0)) @ V.T

    def conjugate(self, S):
        return 0.0 if np.linalg.eigvalsh(S)[-1] <= self.edge else np.inf


class _Coneless:
    """``tr A^2``, whose prox forgets the cone."""

    def value(self, A):
        return float(np.vdot(A, A))

    def prox(self, A, step):
        return A / (1 + 2 * step)


class _TooLarge:
    """The absolute loss, with a conjugate that is too large."""

    def value(self, y, z):
        return np.abs(y - z)

    def prox(self, y, z, step):
        return y + np.sign(z - y) * np.maximum(np.abs(z - y) - step, 0)

    def conjugate(self, y, s):
        return np.where(np.abs(s) <= 1 + 1e-12, s * y + 0.3, np.inf)

    def gradient_bounds(self, y):
        return -1.0, 1.0


@pytest.mark.parametrize("n_tasks", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wrong_components_are_found_out_by_any_seed(n_tasks, seed):
    check_structure(_Traceish(1 + 1e-12), n_tasks, random_state=seed)
    for edge in (np.inf, 1.5):
        with pytest.raises(AssertionError, match="conjugate is too small"):
            check_structure(_Traceish(edge), n_tasks, random_state=seed)
    with pytest.raises(AssertionError, match="semidefinite"):
        check_structure(_Coneless(), n_tasks, random_state=seed)
    with pytest.raises(AssertionError, match="conjugate is too large"):
        check_loss(_TooLarge(), random_state=seed)


def test_exponentials_find_the_way_back_from_far_out():
    """A start from the duals of another structure may lie where ``exp`` overflows."""
    rng = np.random.default_rng(15)
    X = rng.normal(size=(8, 4))
    Y = rng.poisson(np.exp(np.clip(2 * X @ rng.normal(size=(4, 6)), -3, 2))).astype(float)
    for alpha in (1e-3, 5e-4):
        solution = solve(Problem(X, Y, Poisson(), Sparse(0.3), alpha), tol=1e-6)
        assert solution.certificate.optimal


@pytest.mark.parametrize("unit", [1e-36, 1e-5, 1.0, 1e30])
def test_a_smooth_loss_of_a_user_is_known_in_any_unit(unit):
    """Curvatures were differences over 1e-5, conjugates searched from 1 on, whatever the targets: a gap of 1e7."""

    class LogCosh:
        def value(self, y, z):
            return np.logaddexp((z - y) / unit, (y - z) / unit) - np.log(2)

        def gradient(self, y, z):
            return np.tanh((z - y) / unit) / unit

    model = MultiTaskRegressor(structures.Trace(), loss=LogCosh(), alpha=1e-2 / unit**2).fit(X, unit * Y)
    one = CustomLoss(LogCosh())
    assert model.certificate_.optimal, model.certificate_.message
    y = unit * Y.ravel()
    z = unit * rng.normal(size=y.size)
    assert np.allclose(one.curvature(y, z), np.cosh((z - y) / unit) ** -2 / unit**2, rtol=1e-6)
    s = one.gradient(y, z)
    assert np.allclose(one.conjugate(y, s), s * z - one.value(y, z), rtol=1e-9, atol=1e-12)


def test_a_penalty_that_was_changed_is_not_remembered():
    penalty = Offset(5.0)
    structure = CustomStructure(penalty)
    first = MultiTaskRegressor(structure, alpha=0.1).fit(INPUTS, TARGETS).certificate_
    penalty.off = 1.0
    second = MultiTaskRegressor(structure, alpha=0.1).fit(INPUTS, TARGETS).certificate_
    assert second.dual <= second.primal
    assert np.isclose(first.primal - second.primal, 4.0)


def test_a_loss_that_was_changed_is_not_remembered_and_does_not_carry_data():
    bent = Bent(1.0)
    loss = CustomLoss(bent)
    MultiTaskRegressor("frobenius", loss=loss, alpha=0.1).fit(INPUTS, TARGETS)
    for width in (5.0, 0.2):
        bent.width = width
        said = MultiTaskRegressor("frobenius", loss=loss, alpha=0.1).fit(INPUTS, TARGETS).certificate_
        fresh = MultiTaskRegressor("frobenius", loss=CustomLoss(Bent(width)), alpha=0.1).fit(INPUTS, TARGETS).certificate_
        assert said.primal == fresh.primal
        assert said.dual == fresh.dual
    assert len(pickle.dumps(loss)) < 1000
    assert np.allclose(pickle.loads(pickle.dumps(loss)).gradient_bounds(np.array([0.5]))[1], 0.4)


@pytest.mark.parametrize("width", [0.1, 0.03, 0.01])
@pytest.mark.parametrize("structure", ["trace", "clusters", "independent"])
def test_a_loss_of_straight_pieces_needs_no_bound_on_its_curvature(structure, width):
    inputs = np.random.default_rng(0).normal(size=(60, 4))
    w = np.random.default_rng(1).normal(size=4)
    targets = np.column_stack([inputs @ w, inputs @ w, -inputs @ w]) + 0.1 * np.random.default_rng(2).normal(size=(60, 3))
    own = MultiTaskRegressor(structure, loss=CustomLoss(Bent(width)), alpha=0.1).fit(inputs, targets).certificate_
    ours = MultiTaskRegressor(structure, loss=Huber(width), alpha=0.1).fit(inputs, targets).certificate_
    assert own.optimal
    assert np.isclose(own.primal, ours.primal, rtol=2e-4)


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e-20])
def test_a_conjugate_that_is_found_closes_in_any_units(unit):
    said = (
        MultiTaskRegressor("trace", loss=CustomLoss(Parabola()), alpha=0.1 * unit**2).fit(INPUTS, unit * TARGETS).certificate_
    )
    assert said.optimal, said.message
