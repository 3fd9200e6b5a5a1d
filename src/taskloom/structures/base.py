"""The interface of a structure penalty ``F(A)``: value, best structure, conjugate and proximal operator."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from .._component import Component, is_number
from .._linalg import inverse_quadratic, psd_root, symmetric
from . import factored_matrix as factors

if TYPE_CHECKING:
    from .terms import Term

Array = np.ndarray
TINY = float(np.finfo(float).tiny)


class Ray(NamedTuple):
    """The function ``c -> F*(c S)``, or an upper bound of it: finite for ``0 <= c <= max_scale``."""

    max_scale: float
    conjugate: Callable[[float], float]


def linear_ray(slope: float) -> Ray:
    """``F*(c S) = c slope``: of support functions, and of known structures."""
    return Ray(np.inf, lambda c: c * slope)


def indicator_ray(norm: float) -> Ray:
    """``F*(c S)`` is 0 for ``c norm <= 1`` and infinite beyond: of penalties that are norms."""
    return Ray(1 / max(norm, TINY), lambda c: 0.0 if c * norm <= 1 else np.inf)


def finite_ray(bound: Callable[[float], float], n_steps: int = 200) -> Ray:
    """``bound`` up to the largest ``c <= 1`` where it is finite, found by bisection; dual bounds need no larger scale."""
    low, high = (1.0, 1.0) if np.isfinite(bound(1.0)) else (0.0, 1.0)
    for _ in range(n_steps):
        if high - low <= 1e-15 * low:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if np.isfinite(bound(middle)) else (low, middle)
    return Ray(low, lambda c: bound(c) if c <= low else np.inf)


def penalty_with(F: Any, R: Array, A: Array) -> float:
    """``tr(A^-1 R'R) + F(A)``; infinite where ``R`` is not in the range of ``A``."""
    norm = inverse_quadratic(R, *np.linalg.eigh(symmetric(A)))
    return norm + F.value(A) if np.isfinite(norm) else np.inf


class Structure(Component, ABC):
    """A penalty ``F(A)``, convex on the positive semidefinite ``T x T`` matrices.

    A subclass must define four methods: ``value`` (the objective), ``best_structure`` (the unsupervised step of the
    alternation), ``conjugate`` (the dual bound) and ``prox`` (the proximal step). All other methods have defaults that follow
    from these four; a subclass overrides them where it has a faster or more accurate formula.

    Solvers and estimators never ask for the class of a structure, but for what it declares:

    - ``convex``, ``known``, ``interior``, ``low_rank``, ``iterative``, ``is_singleton``: what a fit may expect of ``A``;
    - ``either_side``, ``on_features``, ``keeps_columns``, ``is_sum``, ``splits_weights``, ``task_factor``: where ``A`` lives;
    - ``spectral``, ``schatten_power`` (the ``p`` of ``F(A) = tr A^p``) and ``mu_and_l1``: which formula ``F`` has;
    - ``sums_row_norms``: the penalty of the best structure is twice the sum of the norms of the rows of the weights;
    - ``smooth_norm``: the penalty of the best structure is a smooth function of the weights, which ``weight_norm`` computes.
    """

    # --- required -----------------------------------------------------------------------------------------------

    @abstractmethod
    def value(self, A: Array) -> float:
        """``F(A)``; ``inf`` outside the domain.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.

        Returns
        -------
        float
            The penalty.
        """

    @abstractmethod
    def best_structure(self, S: Array) -> Array:
        """``argmin_A tr(A^-1 S) + F(A)`` for a positive semidefinite ``S``.

        Parameters
        ----------
        S : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite, ``alpha W'W`` in a fit.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            The minimiser.
        """

    @abstractmethod
    def conjugate(self, S: Array, near: Array | None = None) -> float:
        """``F*(S) = sup_A <S, A> - F(A)`` over positive semidefinite ``A``, or an upper bound.

        Parameters
        ----------
        S : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.
        near : ndarray of shape (n_tasks, n_tasks), default=None
            The current structure. A numerical bound is computed around it, and must become exact as it becomes optimal.

        Returns
        -------
        float
            ``F*(S)``, or an upper bound; ``inf`` outside its domain.
        """

    @abstractmethod
    def prox(self, A: Array, step: float) -> Array:
        """``argmin_B step F(B) + ||B - A||^2 / 2`` over positive semidefinite ``B``, for any symmetric ``A``.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            Symmetric.
        step : float
            Step length.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            The minimiser.
        """

    # --- properties that solvers and estimators read ------------------------------------------------------------

    convex: ClassVar[bool] = True  # if not, a fit finds a stationary point, and the certificate says so
    known: ClassVar[bool] = False  # A is given, not learned
    interior: ClassVar[bool] = False  # F keeps A away from singular matrices: the alternation needs no barrier
    either_side: ClassVar[bool] = False  # a function of the nonzero eigenvalues: can penalise tasks or features
    on_features: ClassVar[bool] = False  # penalises the features (r x r), not the tasks
    keeps_columns: ClassVar[bool] = False  # the features must be the columns of X, not a rotation of them
    is_sum: ClassVar[bool] = False  # a sum of terms, each with its own structure variable
    is_stack: ClassVar[bool] = False  # ... whose task sides differ: weights are one column
    splits_weights: ClassVar[bool] = False  # splits the weights into several terms on the same features
    task_factor: ClassVar[bool] = False  # parametrised by a factor on the tasks
    zeroes_relations: ClassVar[bool] = False  # sets off-diagonal entries of A to zero
    precision_graph: ClassVar[bool] = False  # the edges between tasks are the nonzero entries of A^-1
    low_rank: ClassVar[bool] = False  # the optimal A is typically singular, as under a trace penalty
    iterative: ClassVar[bool] = False  # best_structure and prox are iterative, so that solvers should call them rarely
    sums_row_norms: ClassVar[bool] = False  # min_A tr(A^-1 WW') + F(A) is twice the sum of the norms of the rows of W
    smooth_norm: ClassVar[bool] = False  # min_A tr(A^-1 W'W) + F(A) is smooth in W: weight_norm gives its derivatives
    schatten_power: float | None = None  # the p of F(A) = tr A^p
    mu_and_l1: tuple[float, float] | None = None  # of F(A) = tr A - mu log det A + l1 sum_{t != s} |A_ts|
    spectral: ClassVar[bool] = False  # a function f of the eigenvalues, with f_best, f_conjugate and f_prox
    proof: ClassVar[str] = ""  # a remark on the accuracy of F* for the message of the certificate

    @property
    def needs_task_matrix(self) -> bool:
        """Whether solvers need the ``T x T`` matrix ``A``, which they do not if the penalty can be put on the features."""
        return not (self.either_side or self.on_features or self.splits_weights)  # splits: it depends on the terms

    def is_singleton(self, n_tasks: int) -> bool:
        """Whether only one matrix is feasible for this number of tasks, so that there is nothing to learn.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.

        Returns
        -------
        bool
            True if the set of feasible matrices has one element.
        """
        return False

    def weight_norm(self, W: Array) -> Any:
        """``min_A tr(A^-1 W'W) + F(A)`` at some weights, with its gradient and inverse Hessian, where ``smooth_norm`` is true.

        Parameters
        ----------
        W : ndarray of shape (n_tasks, n_features)
            Weights, one row per task.

        Returns
        -------
        ClusterNorm
            The smooth function at ``W``.
        """
        raise TypeError(f"{type(self).__name__} has no smooth penalty of the weights")

    # --- checks and parameters ----------------------------------------------------------------------------------

    def check_tasks(self, n_tasks: int) -> None:
        """Raise ``ValueError`` when the structure cannot describe this many tasks (features, where it sits on these).

        Parameters
        ----------
        n_tasks : int
            The size of its matrices.
        """

    def check_size(self, n_tasks: int) -> None:
        """Raise ``ValueError`` when a ``T x T`` matrix is needed and would be too large.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.
        """
        if n_tasks > factors.LARGEST_ARRAY and self.needs_task_matrix:
            raise ValueError(
                f"{type(self).__name__} needs matrices of {n_tasks} x {n_tasks} tasks ({factors.gibibytes(n_tasks)} each), and "
                f"stops at {factors.LARGEST_ARRAY} tasks; take a structure that can be put on the features (Trace, Frobenius, "
                "Schatten, UnitTrace, Independent, FeatureSelection), or fit groups of tasks"
            )

    def bind(self, tasks: Any) -> Structure:
        """The structure with its matrices in the order of these task names; most structures do not depend on names.

        Parameters
        ----------
        tasks : sequence
            Names of the tasks, in the order of the data.

        Returns
        -------
        Structure
            The structure in this order.
        """
        return self

    def bind_features(self, names: Any) -> Structure:
        """The structure with its matrices in the order of these feature names; most structures do not depend on names.

        Parameters
        ----------
        names : sequence
            Names of the features, in the order of the data.

        Returns
        -------
        Structure
            The structure in this order.
        """
        return self

    def for_run(self) -> Structure:
        """The structure for one run of a solver: a copy that keeps warm starts between steps, where these help."""
        return self

    def moved_to_features(self, n_tasks: int) -> Structure | None:
        """The penalty of a matrix on the features with the same minimum, for weights of at most as many features as tasks.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.

        Returns
        -------
        Structure or None
            ``None`` where there is none.
        """
        return self if self.either_side or self.on_features else None

    def in_task_span(self, n_tasks: int, n_directions: int) -> Structure | None:
        """The penalty with the same minimum for weights that lie in a span of directions of the tasks.

        The directions are orthonormal, and their mean is a multiple of the mean of the tasks, which lies in the span.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.
        n_directions : int
            The dimension of the span.

        Returns
        -------
        Structure or None
            The penalty of a matrix of the size of the span; ``None`` where there is none.
        """
        return self if self.either_side and not self.known else None

    @property
    def summands(self) -> list[tuple[float, Structure]]:
        """Weights and penalties whose sum this is: one, unless it is a ``Sum``."""
        return [(1.0, self)]

    def __add__(self, other: Any) -> Structure:
        """The sum of both penalties, on the same ``A``."""
        from .penalty_sum import Sum  # a sum is a structure itself

        return Sum.of([*self.summands, *other.summands]) if isinstance(other, Structure) else NotImplemented

    def __rmul__(self, factor: Any) -> Structure:
        """The penalty times a positive number."""
        from .penalty_sum import Sum

        if not (is_number(factor) and factor > 0):
            raise ValueError(f"a structure can be multiplied by a positive number, got {factor!r}")
        return Sum.of([(factor * weight, structure) for weight, structure in self.summands])

    # --- optional: best structures, from a root R of S = R'R ----------------------------------------------------

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """``A = best_structure(R'R + floor I)``, and the penalty ``tr(A^-1 R'R) + F(A)``.

        Squared norms are computed from ``R V``, not from ``R'R``, which would lose everything below 1e-8 of the largest.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.
        floor : float, default=0.0
            Added to the diagonal of ``R'R`` (a barrier).

        Returns
        -------
        tuple of ndarray of shape (n_tasks, n_tasks) and float
            ``A``, and the penalty.
        """
        S = R.T @ R
        lift = max(floor, 1e-24 * float(np.trace(S)))
        A = self.best_structure(S + lift * np.eye(len(S)))
        return A, penalty_with(self, R, A)

    def final_structure(self, R: Array) -> tuple[Any, float]:
        """``best_of_root`` for the end of a fit; the matrix may be in factored form, unless there are few tasks.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.

        Returns
        -------
        tuple of ndarray or FactoredStructure, and float
            ``A``, and the penalty ``tr(A^-1 R'R) + F(A)``.
        """
        return self.best_of_root(R)

    def first_structure(self, R: Array, floor: float) -> Array:
        """An initial structure for weights ``R``: the best one, or an approximation of it that needs no iteration.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.
        floor : float
            Added to the diagonal of ``R'R`` (a barrier).

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            A structure in the domain of ``F``.
        """
        return self.best_of_root(R, floor)[0]

    def squared_norm(self, R: Array, A: Any) -> float:
        """``tr(A^+ R'R)``; ``inf`` where ``R`` is not in the range of ``A``.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.
        A : ndarray of shape (n_tasks, n_tasks), or FactoredStructure
            Symmetric positive semidefinite.

        Returns
        -------
        float
            The structured squared norm.
        """
        if isinstance(A, factors.FactoredStructure):
            return A.inverse_quadratic(R)
        return inverse_quadratic(R, *np.linalg.eigh(symmetric(A)), rank_tol=1e-15, outside_tol=1e-14)

    def moments(self, R: Array) -> Array:
        """The second moments of ``R`` that the penalty depends on: ``R'R``.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            Weights, scaled by ``sqrt(alpha)``.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            ``R'R``.
        """
        return R.T @ R

    def root(self, A: Array) -> Array:
        """A tall ``L`` with ``A = LL'``.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.

        Returns
        -------
        ndarray of shape (n_tasks, rank)
            The root.
        """
        return psd_root(A)

    def metric(self, A: Any) -> Any:
        """``A`` as the supervised step takes it: a root, or the factored form where few columns and a diagonal make it up.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.

        Returns
        -------
        ndarray of shape (n_tasks, rank), or FactoredStructure
            The root, or the factored form.
        """
        return self.root(A)

    def inverse_trace(self, A: Array) -> float:
        """``tr A^-1``, the barrier.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive definite.

        Returns
        -------
        float
            The sum of the inverse eigenvalues.
        """
        return float((1 / np.maximum(np.linalg.eigvalsh(symmetric(A)), 1e-300)).sum())

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        """``F - min F`` and ``min F``, for penalties whose large minimum would hide a small loss; else ``None``.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.

        Returns
        -------
        tuple of Structure and float, or None
            The shifted penalty, and the constant.
        """
        return None

    # --- optional: the dual bound -------------------------------------------------------------------------------

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        """``F*`` along the ray ``c S``, which the dual bound scales into the domain of ``F*``.

        Parameters
        ----------
        S : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.
        near : ndarray of shape (n_tasks, n_tasks), default=None
            The current structure, as in ``conjugate``.

        Returns
        -------
        Ray
            The largest ``c`` with a finite ``F*(c S)``, and the function ``c -> F*(c S)``.
        """
        return Ray(np.inf, lambda c: self.conjugate(c * S, near))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        """The ray of ``S = R'R``, for structures that are more accurate without forming ``S``.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.
        near : ndarray of shape (n_tasks, n_tasks), default=None
            The current structure, as in ``conjugate``.

        Returns
        -------
        Ray
            As ``ray`` gives.
        """
        return self.ray(R.T @ R, near)

    def whitened(self, R: Array) -> Array | None:
        """``R`` rescaled such that ``F*(R'R) = 0`` if and only if no singular value exceeds 1; ``None`` if impossible.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.

        Returns
        -------
        ndarray of shape (n_rows, n_tasks) or None
            The scaled root.
        """
        return None

    # --- optional: proximal steps -------------------------------------------------------------------------------

    def proximal_step(self, A: Array, gradient: Array, step: float) -> Array:
        """``prox(A - step gradient, step)``, or an inexact prox that decreases the objective almost as much.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            The current structure.
        gradient : ndarray of shape (n_tasks, n_tasks)
            The gradient of the smooth part at ``A``.
        step : float
            Step length.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            The next structure.
        """
        return self.prox(A - step * gradient, step)

    def longest_step(self, A: Array, least: float = 0.0) -> float:
        """The largest useful step length of a proximal step from ``A``; longer ones make an iterative prox fail.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            The current structure.
        least : float, default=0.0
            A lower bound for the norm of ``A``.

        Returns
        -------
        float
            The step length; ``inf`` where there is no such limit.
        """
        return np.inf

    # --- optional: terms, and tasks that are added later --------------------------------------------------------

    def terms(self, width: int, n_tasks: int) -> tuple[Term, ...]:
        """The terms of a predictor with this structure: one, unless the structure splits the weights.

        Parameters
        ----------
        width : int
            The number of features.
        n_tasks : int
            The number of tasks.

        Returns
        -------
        tuple of Term
            The terms, whose predictions are added.
        """
        from .terms import FeatureMatrix, TaskMatrix, Term  # a term holds a structure

        return (Term(slice(0, width), FeatureMatrix(self) if self.on_features else TaskMatrix(self)),)

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float] | None:
        """The conditional distribution of one more task given ``n_tasks`` others; ``None`` if the structure has none.

        Parameters
        ----------
        n_tasks : int
            The number of existing tasks.

        Returns
        -------
        tuple of ndarray of shape (n_tasks,) and float, or None
            Weights of the existing tasks in the conditional mean, and the conditional variance.
        """
        return None


class Multipliers(NamedTuple):
    """The multipliers ``N`` that one run found last, from which its next inner iteration starts."""

    N: Array | None = None
    from_prox: bool = False  # whether a proximal step found them, so that they give a tight dual bound


class IterativeStructure(Structure):
    """A structure whose prox maximises over multipliers ``N``; the copy of one run keeps them between steps."""

    _run: Multipliers | None = None  # of a copy that for_run made

    @abstractmethod
    def _prox_and_multipliers(
        self, A: Array, step: float, N: Array | None = None, origin: Array | None = None
    ) -> tuple[Array, Array | None]:
        """The prox and its multipliers, from these multipliers on; inexact for a step from an ``origin``."""

    def prox(self, A: Array, step: float) -> Array:
        return self._prox_and_multipliers(A, step)[0]

    def proximal_step(self, A: Array, gradient: Array, step: float) -> Array:
        """An inexact prox, accurate relative to the length of the step, from the multipliers of the step before."""
        B, N = self._prox_and_multipliers(A - step * gradient, step, self._last_multipliers, A)
        self._keep(N, from_prox=True)
        return B

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return self.ray(S, near).conjugate(1.0)

    def longest_step(self, A: Array, least: float = 0.0) -> float:
        """A multiple of the norm of ``A``: one inner iteration moves the multipliers by ``A / step``."""
        size = float(np.linalg.norm(A))
        unit = sum(weight for weight, _ in self.summands)
        return 3 * max(size, least) / unit if size > 0 and self.iterative else np.inf

    def for_run(self) -> Structure:
        if not self.iterative:
            return self
        twin = copy.copy(self)
        twin._run = Multipliers()
        return twin

    @property
    def _last_multipliers(self) -> Array | None:
        return None if self._run is None else self._run.N

    def _keep(self, N: Array | None, from_prox: bool = False) -> None:
        """Store multipliers as the next warm start of this run."""
        if self._run is not None:
            self._run = Multipliers(N, from_prox or self._run.from_prox)

    def _multipliers_for_bound(self, S: Array, near: Array | None) -> Array | None:
        """Those of the last proximal step; before the first step of a run none; otherwise those of the prox around ``near``."""
        run, last = self._run, self._last_multipliers
        if run is not None and (last is None or run.from_prox):
            return last
        A = np.zeros_like(S) if near is None else near
        size = max(float(np.trace(A)), 1e-12)
        N = self._prox_and_multipliers(A + size * S, size, last)[1]
        self._keep(N)
        return N
