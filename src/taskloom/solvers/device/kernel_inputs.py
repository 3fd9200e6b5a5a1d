"""A kernel on a device, in a Krylov subspace of its ``n x n`` matrix that grows with the certificate; or all of it.

As ``subspaces.KrylovBasis`` on the host, in coefficients of the rows. Weights are ``Phi'C`` with ``C = S w``, and with

    S'KS = I,     (KS)'(KS) = diag(d^2),

the rows are independent (``task_data.Rows``). Only products with ``K`` are needed, in the precision of the inputs, and no
decomposition of it unless most directions are needed. Certificates are computed in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._array_api import cast, double, eigh, inner, like, namespace, to_numpy
from ..._linalg import psd_root, sum_of_ratios
from ..._time_limit import check_time
from ...design.task_data import Rows, TaskBlock
from ...features.kernels import GROWING, PER_TASK, check_definite, check_finite
from ..factor.newton import Point
from ..reformulations.subspaces import TUNING
from .device_problem import DualCandidate
from .eigenbasis_inputs import Shared, first_kept

Array = Any
MAX_ROWS = 4096  # of a kernel matrix that are computed again at a time


@dataclass(frozen=True, eq=False)
class Directions(Rows):
    """Rows with the coefficients ``S`` (``n x q``) of their directions, and the error of their orthonormality."""

    S: Array
    slack: float


class KernelInputs(Shared):
    """A kernel on shared inputs, with complete targets.

    Parameters
    ----------
    X : array of shape (n, d), on its device
    kernel : callable
        ``k(X, Z)`` for arrays on the device; see ``accelerated_kernel``.
    Y, *settings
        As in ``EigenbasisInputs``.
    definite : bool
        Whether the kernel is known to be positive semidefinite; if not, its eigenvalues are checked.
    linear : bool
        Whether the kernel is the product of two inputs. With an intercept, inputs are then centred before: far from zero the
        digits of their differences would be lost in the products.
    """

    basis_too_large = False  # whether more directions were needed than a basis may have

    def __init__(self, X: Array, kernel: Callable, Y: Array, *settings: Any, definite: bool = False, linear: bool = False):
        self.kernel, self.definite, self.linear = kernel, definite, linear
        super().__init__(X, Y, *settings)

    def _decompose(self, Y: Array) -> None:
        X, xp, inputs = self.X, self.xp, double(self.X)
        self.x_mean = self.s @ inputs if self.linear and self.fit_intercept else 0.0 * inputs[0, :]
        if self.linear:
            inputs = inputs - self.x_mean
        self.single = X.dtype == xp.float32
        self.K = self.kernel(inputs, inputs)
        self.k_mean = self.s @ self.K
        check_finite(xp.all(xp.isfinite(self.k_mean)))  # a mean of finite numbers is finite, and of no others
        self.row_root = xp.sqrt(self.s)[:, None]
        self.Y = self.row_root * (Y - self.y_mean)
        self.scale = inner(self.Y**2, xp.ones_like(self.Y) * self.c)
        self.light = self._centred() if self.single else None  # for directions, in the precision of the inputs
        self.S = self.P = cast(self.Y[:, :0], X.dtype)  # no direction yet
        n, T = self.Y.shape
        self.whole = not (self.definite and n >= max(GROWING, PER_TASK * T) and self._grow(self._gradients(self.Y)))
        if self.whole:
            self._take_all()

    def _times(self, C: Array) -> Array:
        """The product of ``_centred`` with ``C``, in double precision; centring products takes no pass over the matrix."""
        C = self.row_root * C
        if not self.fit_intercept:
            return self.row_root * (self.K @ C)
        product = self.K @ (C - self.s[:, None] * self.xp.sum(C, axis=0))
        return self.row_root * (product - self.s @ product)

    def _gradients(self, left: Array) -> Array:
        """``G`` of the residuals, the coefficients of ``Z = Phi'G``."""
        return 2 * left * self.c

    def _set(self, S: Array, d: Array, along: Array, slack: float = 0.0) -> None:
        """Set the directions, with their products ``(KS)'Y`` with the targets."""
        root = cast(self.root, S.dtype)
        self.data: list[TaskBlock] = [Directions(d, along / d[:, None] * root, root, S, slack)]

    def _take_all(self) -> None:
        """Use all directions: the eigenvectors of the kernel matrix."""
        k, U = self.xp.linalg.eigh(self._centred() if self.light is None else self.light)
        check_definite(float(k[0]), float(k[-1]), max(1e-7, U.shape[0] * float(self.xp.finfo(k.dtype).eps)))
        first = first_kept(k)
        d = self.xp.sqrt(k[first:])
        self.S = U[:, first:] / d
        self.P = self.S[:, :0]  # not stored: it is ``S d^2``
        self._set(self.S, d, d[:, None] ** 2 * (self.S.T @ cast(self.Y, d.dtype)))

    def _centred(self) -> Array:
        """The kernel matrix of the centred features, times the roots of the weights on both sides."""
        K = self.K
        if self.fit_intercept:
            K = K - self.k_mean[:, None]
            K -= (self.k_mean - float(self.s @ self.k_mean))[None, :]
        return cast(self.row_root * K * self.row_root.T, self.X.dtype)

    # --- few directions -----------------------------------------------------------------------------------------------

    def _grow(self, block: Array, least: float | None = None) -> bool:
        """Add the leading directions of ``Phi'block``, omitting squares that add up to ``least``, and their Krylov directions.

        Returns whether any were added, and few enough. By default, ``least`` is a small share of all squares.
        """
        n, S, P = self.Y.shape[0], self.S, self.P
        new, product = self._outside(cast(block, P.dtype), S, P, least)
        for k in range(TUNING.krylov_depth):
            check_time()
            if k > 0:
                new, product = self._outside(product, S, P, 0.0)
            if new.shape[1] == 0:
                break
            if S.shape[1] + new.shape[1] > TUNING.max_basis_share * n:
                self.basis_too_large = True
                return False
            S, P = self.xp.concat([S, new], axis=1), self.xp.concat([P, product], axis=1)
        if S.shape[1] == self.S.shape[1]:
            return False
        squares, U = eigh(P.T @ P)
        kept = squares > len(squares) * float(self.xp.finfo(P.dtype).eps) * squares[-1]
        U, d = like(U[:, kept], P), like(np.sqrt(squares[kept]), P)
        self.S, self.P = S @ U, P @ U
        off = to_numpy(self.S.T @ self.P) - np.eye(d.shape[0])
        self._set(self.S, d, self.P.T @ cast(self.Y, P.dtype), float(np.abs(off).sum(axis=0).max()))
        return True

    def _outside(self, block: Array, S: Array, P: Array, least: float | None) -> tuple[Array, Array]:
        """Orthonormal directions that span the part of ``block`` outside the span of ``S``, and the kernel times these."""
        for again in (False, True):  # orthogonalise twice
            block = block - S @ (P.T @ block)
            product = self._times(block) if self.light is None else self.light @ block
            product = product - P @ (S.T @ product)
            if block.shape[1] == 0:
                break
            squares, V = eigh((block.T @ product + product.T @ block) / 2)
            noise = len(squares) * 10 * float(self.xp.finfo(block.dtype).eps) * max(float(squares[-1]), 0.0)
            kept = squares > max(noise, np.finfo(float).tiny)
            if not again:
                kept &= np.cumsum(np.maximum(squares, 0.0)) > (
                    TUNING.first_omitted_share * float(squares.sum()) if least is None else least
                )
            scaled = like(V[:, kept] / np.sqrt(squares[kept]), block)
            block, product = block @ scaled, product @ scaled
        return block, product

    def enlarged(self, point: Point, tol: float, moved: bool, stalled: bool) -> Array | None:
        """Add directions according to the certificate of a point, and return its weights along all; or ``None``.

        All directions are used if most are needed, if enlarging did not help (``stalled``), and if none are missing although
        the
        iteration has ended (``moved`` is false).
        """
        if self.whole:
            return None
        C, values = self.coefficients(point)
        known = self.structure.known
        A = np.eye(C.shape[1]) if known else self.structure.best_structure(self.alpha * to_numpy(C.T @ values))
        root = psd_root(A + TUNING.structure_ridge_share * float(np.trace(A)) / len(A) * np.eye(len(A)))
        asked = self._gradients(self.Y - values) @ like(root, values)
        if stalled or not self._grow(asked, TUNING.omitted_value_share * tol * self.scale * 4 * self.alpha):
            if moved and not (stalled or self.basis_too_large):
                return None
            self.whole = True
            self._take_all()
        return self._along(C)

    def _along(self, C: Array) -> Array:
        """The weights of coefficients along the directions."""
        if self.whole:
            return self.data[0].d[:, None] ** 2 * (self.S.T @ cast(C, self.S.dtype))  # type: ignore[attr-defined]
        return self.P.T @ cast(C, self.P.dtype)

    def to_inner(self, coef: np.ndarray) -> Array:
        return self._along(self._double(coef) / self.row_root)

    # --- certificates ---------------------------------------------------------------------------------------------------

    def coefficients(self, point: Point | None) -> tuple[Array, Array]:
        """Coefficients ``C`` of the centred, weighted features (``n x T``), and ``KC``."""
        if point is None:
            return 0.0 * self.Y, 0.0 * self.Y
        C = double(point.tasks.parts[0].block.S @ point.tasks.weights())
        return C, self._times(C)

    def terms(self, point: Point | None) -> tuple[float, float, list[DualCandidate]]:
        C, values = self.coefficients(point)
        left = self.Y - values
        penalty = 0.0
        if point is not None and self.single:  # in single precision directions are not quite orthogonal
            penalty = self._penalty(C.T @ values)
        elif point is not None:
            penalty = point.penalty + point.tasks.parts[0].block.slack * self.alpha * point.tasks.squared_norm
        correlation = 4 * self.c[:, None] * (left.T @ self._times(left)) * self.c
        return self._prove(left.T @ left, left.T @ self.Y, correlation, penalty)

    def _penalty(self, products: Array) -> float:
        """The penalty for these inner products of the tasks, an upper bound up to rounding."""
        squared_norm = self.alpha * np.maximum(eigh(products)[0], 0.0)
        squared_norm = squared_norm + np.finfo(float).eps * squared_norm[-1]
        if self.structure.known:
            return float(squared_norm.sum())
        a = self.structure.f_best(squared_norm)
        return sum_of_ratios(squared_norm, a) + float(self.structure.f(a))

    def loss_of(self, W: Array, b: Array) -> float:
        inputs = double(self.X)
        return self._loss(lambda rows: inputs[rows, :] @ W.T + b)

    def objective_of_dual(self, dual: np.ndarray, b: np.ndarray) -> float:
        """The objective of dual coefficients (``n x T``) and intercepts, from the kernel before it was centred."""
        C, intercepts, inputs, products = self._double(dual), self._double(b), double(self.X), []

        def values(rows: slice) -> Array:
            KC = self.kernel(inputs[rows, :], inputs) @ C
            products.append(C[rows, :].T @ KC)
            return KC + intercepts

        loss = self._loss(values)
        return loss + self._penalty(sum(products[1:], products[0]))

    def _loss(self, values: Callable[[slice], Array]) -> float:
        """The loss of predictions, some rows at a time."""
        n, total = self.X.shape[0], 0.0
        for first in range(0, n, MAX_ROWS):
            rows = slice(first, min(first + MAX_ROWS, n))
            left = self.Y[rows, :] - self.row_root[rows, :] * (values(rows) - self.y_mean)
            total += inner(left**2, self.xp.ones_like(left) * self.c)
        return total

    def fitted(self, point: Point | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients (``T x d`` if linear, else dual), intercepts, inner products of the tasks, and of ``Z`` with them."""
        C, values = self.coefficients(point)
        products, pulls = C.T @ values, 2 * self.c[:, None] * ((self.Y - values).T @ values)
        dual = self.row_root * C
        b = self.y_mean
        if self.fit_intercept:
            dual = dual - self.s[:, None] * self.xp.sum(dual, axis=0)
            b = b - self.k_mean @ dual
        if self.linear:
            dual = dual.T @ (double(self.X) - self.x_mean)
            b = b - dual @ self.x_mean
        return to_numpy(dual), to_numpy(b), to_numpy(products), to_numpy(pulls)


def accelerated_kernel(kernel: str, gamma: float | None, degree: float, coef0: float) -> Callable[[Array, Array], Array] | None:
    """A kernel of scikit-learn by its name, for arrays of any library; ``None`` for kernels that are not made of products."""

    def products(X: Array, Z: Array) -> Array:
        return X @ Z.T

    def polynomial(X: Array, Z: Array) -> Array:
        return ((1 / X.shape[1] if gamma is None else gamma) * (X @ Z.T) + coef0) ** degree

    def rbf(X: Array, Z: Array) -> Array:
        xp, width = namespace(X), 1 / X.shape[1] if gamma is None else gamma
        x, z = (width * xp.sum(each * each, axis=1)[:, None] for each in (X, Z))
        # One product: each pass over the matrix is a large part of the time of a fit.
        exponent = xp.concat([2 * width * X, x, -xp.ones_like(x)], axis=1) @ xp.concat([Z, -xp.ones_like(z), z], axis=1).T
        beyond = exponent > 0 if width >= 0 else exponent < 0  # by rounding: distances are not negative
        return xp.exp(xp.where(beyond, xp.zeros_like(exponent[:1, :1]), exponent))

    return {"linear": products, "poly": polynomial, "polynomial": polynomial, "rbf": rbf}.get(kernel)


def is_definite(kernel: str, gamma: float | None, degree: float, coef0: float) -> bool:
    """Whether one of these kernels is positive semidefinite whatever the inputs."""
    if kernel == "linear":
        return True
    upward = gamma is None or gamma >= 0
    return upward and (kernel == "rbf" or (coef0 >= 0 and degree >= 0 and float(degree).is_integer()))
