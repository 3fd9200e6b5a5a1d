"""Sums of terms that are other models, or other sums: mixed models, ridge regression, single-level groupings."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from term_cases import LEVELS, LOSSES, STRUCTURES, N, chain, psd

from taskloom import Problem, losses, solve
from taskloom.design.term_inputs import TermData
from taskloom.problem.term_problem import PosedTerm, term_problem
from taskloom.structures import Clusters, Fixed, Frobenius, Independent, SharedMean, TaskGraph, Trace

rng = np.random.default_rng(0)
X, ONE = rng.normal(size=(N, 2)), np.ones((N, 1))
X -= X.mean(axis=0)
SHOP, REGION, V = rng.permutation(np.arange(N) % LEVELS), rng.integers(0, 3, N), np.full(N, 1 / N)
Z = X @ [1.0, -0.5] + np.einsum("ij,ji->i", X, rng.normal(size=(2, LEVELS))[:, SHOP]) + rng.normal(size=LEVELS)[SHOP]
Y = Z + 0.5 * rng.normal(size=N)
COMMON = PosedTerm(TermData(X), Independent(), 2.0)
INTERCEPTED = np.hstack([X, ONE])


def own(structure, weight=0.6, phi=INTERCEPTED, codes=SHOP, levels=LEVELS, **options):
    return PosedTerm(TermData(phi, codes, levels, **options), structure, weight)


def targets(loss, y=Y):
    return np.where(y > np.median(y), 1.0, -1.0) if losses.as_loss(loss).targets == "signs" else y


def fit(terms, loss="squared", alpha=0.02, v=V, y=Y, tol=1e-10, **settings):
    """Predictions, objective, and the weights of each term in units of the user."""
    problem = term_problem(terms, targets(loss, y), v, loss, alpha, **settings)
    solution = solve(problem, tol=tol)
    parts = problem.structure.features_of(solution.W)
    roots = [1.0 if term.data.free else np.sqrt(term.weight) for term in terms]
    weights = [root * part for root, part in zip(roots, parts, strict=True)]
    return problem.predict(solution.W, solution.b), solution.certificate, weights


def assert_same(first, second, tol=1e-6):
    (z, found, _), (expected_z, expected, _) = first, second
    assert found.optimal
    assert expected.optimal
    assert found.primal == pytest.approx(expected.primal, rel=tol)
    assert np.allclose(z, expected_z, atol=np.sqrt(tol))


SMOOTH = ["squared", "huber", "logistic", "squared_hinge"]


class TestMixedModels:
    """``alpha = sigma^2 / n`` and ``v = 1/n`` make the objective the penalised likelihood of the random effects."""

    def blup(self, fixed, random, D, sigma2):
        """Fixed effects by generalised least squares, random effects and fitted values by the textbook."""
        V = sum(K @ d @ K.T for K, d in zip(random, D, strict=True)) + sigma2 * np.eye(len(Y))
        beta = np.linalg.solve(fixed.T @ np.linalg.solve(V, fixed), fixed.T @ np.linalg.solve(V, Y))
        left = np.linalg.solve(V, Y - fixed @ beta)
        effects = [d @ K.T @ left for K, d in zip(random, D, strict=True)]
        return beta, effects, fixed @ beta + sum(K @ u for K, u in zip(random, effects, strict=True))

    def expanded(self, phi, codes, levels):
        return (np.eye(levels)[codes][:, :, None] * phi[:, None, :]).reshape(len(phi), -1)

    def test_intercepts_and_slopes_of_each_level_and_a_crossed_grouping(self):
        """``y ~ x + (1 + x | shop) + (1 | region)``; features times a root of ``D`` have the covariance ``D``."""
        D, region_variance, sigma2 = psd(3) / 3, 0.4, 0.3
        random = [self.expanded(INTERCEPTED, SHOP, LEVELS), np.eye(3)[REGION]]
        covariances = [np.kron(np.eye(LEVELS), D), region_variance * np.eye(3)]
        beta, effects, fitted = self.blup(np.hstack([ONE, X]), random, covariances, sigma2)
        L = np.linalg.cholesky(D)
        free = PosedTerm(TermData(X, free=True), Independent())
        by_region = own(Independent(), region_variance, ONE, REGION, 3)
        z, certificate, weights = fit([free, own(Independent(), 1.0, INTERCEPTED @ L), by_region], alpha=sigma2 / N)
        assert certificate.optimal
        assert np.allclose(z, fitted, atol=1e-9)
        assert np.allclose(weights[0].ravel(), beta[1:], atol=1e-9)
        assert np.allclose((L @ weights[1]).T.ravel(), effects[0], atol=1e-9)
        assert np.allclose(weights[2].ravel(), effects[1], atol=1e-9)

    def test_correlated_levels(self):
        """A pedigree or a map: the covariance of the levels is known, ``Fixed``."""
        A, sigma2 = psd(LEVELS), 0.3
        beta, (effects,), fitted = self.blup(np.hstack([ONE, X]), [np.eye(LEVELS)[SHOP]], [A], sigma2)
        free = PosedTerm(TermData(X, free=True), Independent())
        z, _, weights = fit([free, own(Fixed(A), 1.0, ONE)], alpha=sigma2 / N)
        assert np.allclose(z, fitted, atol=1e-9)
        assert np.allclose(weights[0].ravel(), beta[1:], atol=1e-9)
        assert np.allclose(weights[1].ravel(), effects, atol=1e-9)

    def test_statsmodels(self):
        """Its random effects, given the covariance and the noise that it estimates."""
        mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
        many = np.random.default_rng(1)
        n, levels = 600, 40
        codes, x = many.integers(0, levels, n), many.normal(size=(n, 1))
        x -= x.mean()
        both = np.hstack([np.ones((n, 1)), x])
        effects = many.normal(size=(levels, 2)) @ np.linalg.cholesky([[1.0, 0.3], [0.3, 0.5]]).T
        y = 2 + x[:, 0] + np.einsum("ij,ij->i", both, effects[codes]) + 0.7 * many.normal(size=n)
        fitted = mixed.MixedLM(y, both, codes, exog_re=both).fit()
        free = PosedTerm(TermData(x, free=True), Independent())
        L = np.linalg.cholesky(np.asarray(fitted.cov_re))
        terms = [free, own(Independent(), 1.0, both @ L, codes, levels)]
        _, _, weights = fit(terms, alpha=fitted.scale / n, v=np.full(n, 1 / n), y=y)
        expected = np.array([fitted.random_effects[level] for level in range(levels)])
        assert np.allclose((L @ weights[1]).T, expected, atol=1e-6)
        assert weights[0][0, 0] == pytest.approx(fitted.fe_params[1], abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_shared_mean_is_independent_levels_and_a_common_part(loss):
    gamma = 1.7
    two = [own(Independent(), 1 / (1 + gamma)), PosedTerm(TermData(INTERCEPTED), Independent(), gamma / (LEVELS * (1 + gamma)))]
    one = fit([own(SharedMean(gamma), 1.0)], loss, fit_intercept=False, tol=1e-8)
    assert_same(one, fit(two, loss, fit_intercept=False, tol=1e-8))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_independent_is_ridge_on_the_expanded_design(fit_intercept):
    v, alpha = np.random.default_rng(2).uniform(0.2, 2, N), 0.05
    terms = [COMMON, own(Independent(), 0.6), own(Independent(), 0.3, ONE, REGION, 3)]
    by_shop = (np.eye(LEVELS)[SHOP][:, None, :] * INTERCEPTED[:, :, None]).reshape(N, -1)
    columns = np.hstack([np.sqrt(2.0) * X, np.sqrt(0.6) * by_shop, np.sqrt(0.3) * np.eye(3)[REGION]])
    twin = Ridge(alpha, fit_intercept=fit_intercept).fit(columns, Y, sample_weight=v)
    z, _, weights = fit(terms, v=v, alpha=alpha, fit_intercept=fit_intercept)
    assert np.allclose(z, twin.predict(columns), atol=1e-9)
    assert np.allclose(weights[0].ravel(), np.sqrt(2.0) * twin.coef_[:2], atol=1e-9)
    assert np.allclose(weights[1].ravel(), np.sqrt(0.6) * twin.coef_[2:-3], atol=1e-9)


@pytest.mark.parametrize("structure", [Independent(), Trace(), Frobenius(), Fixed([[0.7]])], ids=str)
@pytest.mark.parametrize("loss", SMOOTH)
def test_a_grouping_with_one_level_is_a_common_term(loss, structure):
    rest = [own(Independent(), 0.3)]
    grouped = fit([*rest, own(structure, 2.0, X, np.zeros(N, int), 1)], loss)
    assert_same(grouped, fit([*rest, PosedTerm(TermData(X), structure, 2.0)], loss))


@pytest.mark.parametrize("loss", SMOOTH)
def test_two_copies_of_a_level_at_half_weight_are_that_level_with_twice_the_penalty(loss):
    """The penalty of one level is its own, so that halving the squares of its features doubles it."""
    first = np.flatnonzero(SHOP == 0)
    rows = np.concatenate([np.arange(N), first])
    codes, v = SHOP[rows].copy(), V[rows].copy()
    codes[N:] = LEVELS
    v[first] /= 2
    v[N:] /= 2
    y = targets(loss)[rows]
    copies = [PosedTerm(TermData(X[rows]), Independent()), own(Independent(), 0.6, INTERCEPTED[rows], codes, LEVELS + 1)]
    z, found, weights = fit(copies, loss, v=v, y=y)
    scale = np.where(SHOP == 0, np.sqrt(0.5), 1.0)[:, None]
    once = fit([PosedTerm(TermData(X), Independent()), own(Independent(), 0.6, scale * INTERCEPTED)], loss)
    assert_same((z[:N], found, weights), once)
    assert np.allclose(weights[1][:, 0], weights[1][:, LEVELS], atol=1e-7)


@pytest.mark.parametrize("structure", ["independent", "trace", "fixed", "clusters"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_a_term_of_weight_almost_zero_is_not_there(loss, structure):
    with_it = fit([COMMON, own(Trace()), own(STRUCTURES[structure](3), 1e-12, INTERCEPTED, REGION, 3)], loss)
    assert_same(with_it, fit([COMMON, own(Trace())], loss))
    assert np.abs(with_it[2][2]).max() <= 1e-6


@pytest.mark.parametrize("structure", ["independent", "trace", "shared mean", "clusters", "log det", "fixed", "graph"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_permuting_levels_permutes(loss, structure):
    order = np.array([3, 0, 4, 1, 2])  # the new place of each level
    back = np.argsort(order)
    before = STRUCTURES[structure](LEVELS)
    after = {"fixed": Fixed(psd(LEVELS)[np.ix_(back, back)]), "graph": TaskGraph(chain(LEVELS)[np.ix_(back, back)], 0.5)}
    first = fit([COMMON, own(before)], loss)
    second = fit([COMMON, own(after.get(structure, before), codes=order[SHOP])], loss)
    assert_same(second, first)
    assert np.allclose(second[2][1][:, order], first[2][1], atol=1e-4)


@pytest.mark.parametrize("structure", [name for name in STRUCTURES if name != "sum"])
@pytest.mark.parametrize("loss", ["squared", "absolute", "logistic"])
@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_one_term_is_the_plain_problem(loss, structure, ridge):
    """Long layout, no intercepts; each task has a total weight of 1."""
    wide = np.full((N, LEVELS), np.nan)
    wide[np.arange(N), SHOP] = y = targets(loss)
    plain = Problem(INTERCEPTED, wide, loss, STRUCTURES[structure](LEVELS), 0.1, ridge, fit_intercept=False)
    expected = solve(plain, tol=1e-7)
    v = 1 / np.bincount(SHOP)[SHOP]
    problem = term_problem([own(STRUCTURES[structure](LEVELS), 1.0)], y, v, loss, 0.1, ridge, fit_intercept=False)
    found = solve(problem, tol=1e-7)
    assert found.certificate.optimal
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-6)
    assert problem.scale == pytest.approx(plain.scale)
    assert problem.best_primal(expected.W.reshape(-1, 1), np.zeros(1))[0] == pytest.approx(
        expected.certificate.primal, rel=1e-7
    )


@pytest.mark.parametrize(("structure", "power"), [("independent", 1), ("graph", 1), ("trace", 2)])
def test_the_strength_of_tasks_of_equal_size_that_count_alike(structure, power):
    """``v_i = 1/n`` is a ``T``-th of the plain weights: a known structure needs ``alpha/T``, the trace ``alpha/T^2``."""
    wide = np.full((N, LEVELS), np.nan)
    wide[np.arange(N), SHOP] = Y
    plain = solve(Problem(INTERCEPTED, wide, "squared", STRUCTURES[structure](LEVELS), 0.1, fit_intercept=False), tol=1e-9)
    terms = [own(STRUCTURES[structure](LEVELS), 1.0)]
    _, found, (W,) = fit(terms, alpha=0.1 / LEVELS**power, fit_intercept=False)
    assert found.primal == pytest.approx(plain.certificate.primal / LEVELS, rel=1e-6)
    assert np.allclose(W, plain.W, atol=1e-4)


@pytest.mark.parametrize("loss", SMOOTH)
def test_descriptors_are_a_known_structure(loss):
    """Independent weights of descriptors ``U`` relate the levels by ``UU'``; descriptors ``I`` are a grouping."""
    for p in (2, 7):
        U = np.random.default_rng(p).normal(size=(LEVELS, p))
        described = own(Independent(), 0.6, descriptors=U)
        assert_same(fit([COMMON, described], loss), fit([COMMON, own(Fixed(U @ U.T))], loss))
    same = own(Clusters(2), 0.6, descriptors=np.eye(LEVELS))
    assert_same(fit([COMMON, same], loss, tol=1e-8), fit([COMMON, own(Clusters(2))], loss, tol=1e-8))


@pytest.mark.parametrize("loss", SMOOTH)
def test_nested_groupings_are_a_known_structure(loss):
    """Shops in towns: two sums of squares are one covariance of the shops."""
    town = np.array([0, 0, 1, 1, 1])
    A = 0.8 * (town[:, None] == town) + 0.3 * np.eye(LEVELS)
    nested = [own(Independent(), 0.8, INTERCEPTED, town[SHOP], 2), own(Independent(), 0.3)]
    assert_same(fit([COMMON, *nested], loss), fit([COMMON, own(Fixed(A), 1.0)], loss))


@pytest.mark.parametrize("loss", SMOOTH)
def test_the_order_of_rows_and_terms_does_not_matter(loss):
    order, y = np.random.default_rng(3).permutation(N), targets(loss)
    terms = [COMMON, own(Trace()), own(Independent(), 0.3, ONE, REGION, 3)]
    shuffled = [
        own(Independent(), 0.3, ONE, REGION[order], 3),
        own(Trace(), 0.6, INTERCEPTED[order], SHOP[order]),
        PosedTerm(TermData(X[order]), Independent(), 2.0),
    ]
    z, found, weights = fit(terms, loss)
    assert_same(fit(shuffled, loss, y=y[order]), (z[order], found, weights))


def test_a_row_of_weight_two_is_two_rows():
    rows = np.concatenate([np.arange(N), np.arange(10)])
    terms = [PosedTerm(TermData(X[rows]), Independent(), 2.0), own(Trace(), 0.6, INTERCEPTED[rows], SHOP[rows])]
    twice = fit(terms, "huber", v=V[rows], y=Y[rows])
    v = V * np.where(np.arange(N) < 10, 2, 1)
    z, found, weights = fit([COMMON, own(Trace())], "huber", v=v)
    assert_same(twice, (z[rows], found, weights))
