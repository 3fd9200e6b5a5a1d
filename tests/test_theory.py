"""Statements of the paper that are lemmas to us: they hold for any matrices, so they are checked on many random ones."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskRegressor, Problem, solve
from taskloom.equivalences import pseudo_inverse, r_to_q
from taskloom.structures import Fixed, Schatten, Trace

rng = np.random.default_rng(0)


def psd(size, rank):
    root = rng.normal(size=(size, rank))
    return root @ root.T


def span(M):
    """The orthogonal projection onto the range of ``M``."""
    return M @ np.linalg.pinv(M, rcond=1e-10)


def test_the_norm_of_a_separable_kernel_is_the_sum_over_pairs_of_tasks():
    """Eq. (3): for ``f = sum_i k(x_i, .) A c_i``, ``tr(A C'KC) = sum_ts A^+_ts <f_t, f_s>``, singular ``A`` included."""
    for rank in (1, 2, 4):
        K, A, C = psd(8, 5), psd(4, rank), rng.normal(size=(8, 4))
        inner = A @ C.T @ K @ C @ A  # <f_t, f_s>
        assert np.isclose(np.trace(A @ C.T @ K @ C), np.sum(pseudo_inverse(A) * inner))


def test_a_prediction_is_a_sum_over_training_inputs():
    """Eq. (2), the representer theorem: ``f(x) = sum_i k(x, x_i) A c_i``, with ``C`` of (P) from that of (R)."""
    X, Z = rng.normal(size=(15, 3)), rng.normal(size=(6, 3))
    Y, A = rng.normal(size=(15, 4)), psd(4, 4) + 0.1 * np.eye(4)
    model = MultiTaskRegressor(Fixed(A), kernel="rbf", gamma=0.3, alpha=0.1, fit_intercept=False).fit(X, Y)
    C, _ = r_to_q(model.dual_coef_, A)
    assert np.allclose(model.predict(Z), rbf_kernel(Z, X, gamma=0.3) @ C @ A)


def test_the_penalty_is_jointly_convex_on_a_convex_set():
    """Theorem 3.1: ``tr(A^+ C'KC)`` is convex in ``(C, A)`` together where the range of ``C'KC`` lies in that of ``A``."""
    K = psd(6, 4)

    def penalty(C, A):
        return np.trace(pseudo_inverse(A, rtol=1e-9) @ C.T @ K @ C)

    for _ in range(50):
        pairs = []
        for _ in range(2):
            A = psd(4, int(rng.integers(1, 5)))
            pairs.append((rng.normal(size=(6, 4)) @ span(A), A))
        share = rng.random()
        C, A = (share * one + (1 - share) * other for one, other in zip(*pairs, strict=True))
        assert np.allclose(span(A) @ C.T @ K @ C, C.T @ K @ C)  # the set is convex too
        assert penalty(C, A) <= share * penalty(*pairs[0]) + (1 - share) * penalty(*pairs[1]) + 1e-8


def test_ranges():
    """Lemma 6.1: ``C'KC``, ``C' sqrt(K)`` and ``C'K`` have one range."""
    for _ in range(20):
        K, C = psd(7, 3), rng.normal(size=(7, 5))
        k, U = np.linalg.eigh(K)
        root = (U * np.sqrt(np.where(k > 1e-10 * k[-1], k, 0))) @ U.T
        assert np.allclose(span(C.T @ K @ C), span(C.T @ root), atol=1e-6)
        assert np.allclose(span(C.T @ K @ C), span(C.T @ K), atol=1e-6)


@pytest.mark.parametrize("p", [1, 1.5, 2, 4])
def test_a_structure_may_be_aligned_with_the_tasks(p):
    """Proposition 6.3: with the eigenvectors of ``M`` some ``A*`` has the same ``tr(A^+ M)`` and no larger norm."""
    for _ in range(20):
        M, A = psd(5, int(rng.integers(1, 6))), psd(5, 5)
        m, U = np.linalg.eigh(M)
        inside = m > 1e-10 * m[-1]
        aligned = 1 / np.einsum("ij,ik,kj->j", U, pseudo_inverse(A), U)[inside]
        assert np.isclose(np.sum(m[inside] / aligned), np.trace(pseudo_inverse(A) @ M))
        assert np.sum(aligned**p) <= np.sum(np.linalg.eigvalsh(A) ** p) * (1 + 1e-9)
        best = Schatten(p).best_structure(M)  # so the step of our code is aligned
        assert np.allclose(best @ M, M @ best, atol=1e-7 * np.abs(best).max() * np.abs(M).max())


def test_codes_and_metrics_for_losses_of_the_inner_product():
    """Eqs. (6) to (8): with ``C~ = C L'`` the coded problem has the inner products and the norm of ``A = L'L``."""
    K, L, C, Y = psd(9, 6), rng.normal(size=(3, 5)), rng.normal(size=(9, 5)), rng.normal(size=(9, 5))
    A = L.T @ L
    coded = np.sum((Y @ L.T) * (K @ C @ L.T), axis=1)  # <L y, L g(x)>
    assert np.allclose(coded, np.sum(Y * (K @ C @ A), axis=1))
    assert np.isclose(np.trace((C @ L.T).T @ K @ (C @ L.T)), np.trace(A @ C.T @ K @ C))


def test_the_nuclear_norm_as_a_minimum_over_structures():
    """Appendix: ``||W||_* = 1/2 inf tr(W A^-1 W') + tr A``, attained at ``A = (W'W)^(1/2)``."""
    W = rng.normal(size=(6, 4))
    A = Trace().best_structure(W.T @ W)
    nuclear = np.linalg.norm(W, "nuc")
    assert np.isclose((np.trace(W @ np.linalg.solve(A, W.T)) + np.trace(A)) / 2, nuclear)
    for _ in range(20):
        B = psd(4, 4) + 0.01 * np.eye(4)
        assert (np.trace(W @ np.linalg.solve(B, W.T)) + np.trace(B)) / 2 >= nuclear


def test_the_kernel_form_and_the_feature_form_are_one_problem():
    """(R) with ``K``, and (U) with any ``Phi`` such that ``K = Phi Phi'``."""
    X, Y = rng.normal(size=(20, 3)), rng.normal(size=(20, 4))
    K = rbf_kernel(X, gamma=0.2)
    k, U = np.linalg.eigh(K)
    Phi = U * np.sqrt(np.maximum(k, 0))
    features = solve(Problem(Phi, Y, "squared", "frobenius", 0.05), tol=1e-9)
    kernel = MultiTaskRegressor("frobenius", kernel="precomputed", alpha=0.05, tol=1e-9).fit(K, Y)
    assert np.isclose(features.certificate.primal, kernel.certificate_.primal, rtol=1e-8)
    assert np.allclose(features.A, kernel.structure_, atol=1e-5)
