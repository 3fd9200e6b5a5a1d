"""Supervised learning with a given metric, to machine precision: batches of small convex problems by Newton's method.

One batch element is   min_{beta, b}  sum_i v_i loss(y_i, <x_i, beta> + b_{e(i)}) + ||beta||^2 / 2.

The strength is inside ``x`` (divided by ``sqrt(2 alpha)``), ``e(i)`` names the intercept of observation ``i``. A batch of
one element with many intercepts is the coupled problem of the task side; many elements with one intercept each are the
decoupled tasks of the feature side. Padding has weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..losses.base import Loss

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Design:
    """``x`` in one of two forms: ``X`` (``B x m x p``) when ``p`` is small, else the Gram matrix ``K = XX'``.

    ``coef`` is ``beta`` in the first form and the dual ``u`` (``beta = X'u``) in the second.
    """

    X: Array | None
    K: Array | None

    def start(self, u: Array) -> Array:
        return u if self.X is None else np.einsum("bmp,bm->bp", self.X, u)

    def predict(self, coef: Array) -> Array:
        M = self.K if self.X is None else self.X
        return np.matmul(M, coef[..., None])[..., 0]

    def energy(self, coef: Array, other: Array, other_predicted: Array) -> Array:
        """``<beta, other beta>`` for two coefficients, given the predictions of the second."""
        return np.einsum("bi,bi->b", coef, other_predicted if self.X is None else other)

    def pick(self, which: Array) -> Design:
        return Design(None if self.X is None else self.X[which], None if self.K is None else self.K[which])


def _solve(M: Array, rhs: Array) -> Array:
    """Symmetric positive definite systems, one for each batch element."""
    try:
        return np.linalg.solve(M, rhs)
    except np.linalg.LinAlgError:
        eye = np.eye(M.shape[-1])
        return np.linalg.solve(M + 1e-12 * np.trace(M, axis1=-2, axis2=-1)[..., None, None] * eye, rhs)


def _damping(v: Array, h: Array, E: Array, max_curvature: float) -> Array:
    """Intercepts are unpenalised: where no observation of a task bends, its step must come from somewhere.

    A trace of damping elsewhere; a hundredth of the largest possible curvature where there is almost none.
    """
    most = np.einsum("bmk,bm->bk", E, v) * max_curvature
    there = np.einsum("bmk,bm->bk", E, h)
    return np.maximum(np.where(there < 1e-4 * most, 1e-2, 1e-12) * most, 1e-300)


class _Direction:
    """The Newton direction at curvatures ``h``; the factorisation is kept for a second right-hand side."""

    def __init__(self, design: Design, h: Array, E: Array | None, damping: Array | None):
        self.design, self.h, self.E = design, h, E
        if design.X is None:
            K = design.K
            assert K is not None
            self.root = np.sqrt(h)
            self.M = self.root[:, :, None] * K * self.root[:, None, :] + np.eye(K.shape[-1])
        else:
            HX = h[:, :, None] * design.X
            self.M = np.matmul(design.X.transpose(0, 2, 1), HX) + np.eye(design.X.shape[-1])
        if E is not None and damping is not None:
            edge = self.root[:, :, None] * E if design.X is None else np.matmul(design.X.transpose(0, 2, 1), h[:, :, None] * E)
            self.edge = edge
            self.through = _solve(self.M, edge)
            k = E.shape[-1]
            own = np.zeros((h.shape[0], k, k)) if design.X is None else np.einsum("bmk,bm,bml->bkl", E, h, E)
            sign = 1.0 if design.X is None else -1.0
            self.schur = own + sign * np.matmul(edge.transpose(0, 2, 1), self.through) + damping[:, :, None] * np.eye(k)

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        """The steps of ``coef`` and ``b`` that solve the Newton system with loss gradient ``g``."""
        if self.design.X is None:
            return self._in_dual(coef, g)
        X = self.design.X
        first = _solve(self.M, (-(np.einsum("bmp,bm->bp", X, g) + coef))[..., None])
        if self.E is None:
            return first[..., 0], np.zeros((len(g), 0))
        rhs = -np.einsum("bmk,bm->bk", self.E, g)[..., None] - np.matmul(self.edge.transpose(0, 2, 1), first)
        db = _solve(self.schur, rhs)
        return (first - np.matmul(self.through, db))[..., 0], db[..., 0]

    def _in_dual(self, u: Array, g: Array) -> tuple[Array, Array]:
        e = -g - u
        Ke = self.design.predict(e)
        first = _solve(self.M, (self.root * Ke)[..., None])
        if self.E is None:
            return e - self.root * first[..., 0], np.zeros((len(g), 0))
        rhs = -np.einsum("bmk,bm->bk", self.E, g)[..., None] - np.matmul(self.edge.transpose(0, 2, 1), first)
        db = _solve(self.schur, rhs)
        m = first + np.matmul(self.through, db)
        return e - self.root * m[..., 0], db[..., 0]


@dataclass(eq=False)
class Fit:
    """A supervised solution in batch form: coefficients, intercepts, and ``||beta||^2 / 2`` over the batch."""

    coef: Array
    b: Array
    norm: float


def newton(loss: Loss, y: Array, v: Array, design: Design, E: Array | None, coef: Array, b: Array, max_steps: int = 200) -> Fit:
    """Minimise a smooth loss from ``coef`` and ``b``; every element runs until its Newton decrement is rounding noise."""
    coef, b = coef.copy(), b.copy()
    z = design.predict(coef) + (0.0 if E is None else np.einsum("bmk,bk->bm", E, b))
    active = np.arange(len(y))
    best_decrement = np.full(len(y), np.inf)
    stalled = np.zeros(len(y), int)
    for _ in range(max_steps):
        part = design if active.size == len(y) else design.pick(active)
        Ea = None if E is None else E[active]
        ya, va, za, ca, ba = y[active], v[active], z[active], coef[active], b[active]
        la = loss.pick(active)
        g = va * la.slope(ya, za)
        h = va * la.curvature(ya, za)
        damping = None if Ea is None else _damping(va, h, Ea, la.max_curvature)
        direction = _Direction(part, h, Ea, damping)
        dcoef, db = direction(ca, g)
        dz = part.predict(dcoef) + (0.0 if Ea is None else np.einsum("bmk,bk->bm", Ea, db))
        plain = za - (0.0 if Ea is None else np.einsum("bmk,bk->bm", Ea, ba))
        dplain = dz - (0.0 if Ea is None else np.einsum("bmk,bk->bm", Ea, db))
        drop = np.einsum("bm,bm->b", g, dz) + part.energy(dcoef, ca, plain)
        if la.quadratic:  # one step is exact; a second with the same factor mops up rounding
            coef, b, z = ca + dcoef, ba + db, za + dz
            dcoef, db = direction(coef, va * la.slope(ya, z))
            coef, b = coef + dcoef, b + db
            return _finish(design, coef, b)
        now = np.einsum("bm,bm->b", va, la.value(ya, za))
        bend = part.energy(dcoef, dcoef, dplain)
        t = _line_search(la, ya, va, za, dz, now, part.energy(ca, ca, plain) / 2, part.energy(dcoef, ca, plain), bend, drop)
        coef[active] = ca + t[:, None] * dcoef
        b[active] = ba + t[:, None] * db
        z[active] = za + t[:, None] * dz
        decrement = -drop
        better = decrement < 0.5 * best_decrement[active]
        stalled[active] = np.where(better, 0, stalled[active] + 1)
        best_decrement[active] = np.minimum(best_decrement[active], decrement)
        size = now + part.energy(ca, ca, plain) / 2
        go_on = (decrement > 1e-15 * np.maximum(size, 1e-300)) & (t > 0) & (stalled[active] < 25)
        active = active[go_on]
        if active.size == 0:
            break
    return _finish(design, coef, b)


def _finish(design: Design, coef: Array, b: Array) -> Fit:
    return Fit(coef, b, float(design.energy(coef, coef, design.predict(coef)).sum()) / 2)


def _line_search(
    loss: Loss, y: Array, v: Array, z: Array, dz: Array, now: Array, quad: Array, lin: Array, bend: Array, drop: Array
) -> Array:
    """Armijo's rule for each element, halving from 1; the quadratic part of the objective is known exactly."""
    t = np.ones(len(y))
    undecided = np.ones(len(y), bool)
    for _ in range(60):
        trial = np.einsum("bm,bm->b", v, loss.value(y, z + t[:, None] * dz)) + quad + t * lin + t * t * bend / 2
        noise = 1e-14 * (np.abs(now) + np.abs(quad))
        undecided = trial > now + quad + 1e-4 * t * drop + noise
        if not undecided.any():
            return t
        t = np.where(undecided, t / 2, t)
    return np.where(undecided, 0.0, t)
