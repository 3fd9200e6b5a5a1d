"""The contract of a structure penalty ``F``: a value, a step, a conjugate and a prox, on matrices, and nothing else."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from .._component import Component
from .._linalg import psd_root, symmetric
from . import factored_matrix as factors

if TYPE_CHECKING:
    from .terms import Term

Array = np.ndarray


class Ray(NamedTuple):
    """``c -> F*(c S)`` along one ray: finite for ``c <= max_scale``, and a bound from above everywhere."""

    max_scale: float
    conjugate: Callable[[float], float]


class Structure(Component, ABC):
    """``F(A)``, convex on the positive semidefinite ``T x T`` matrices. It answers four questions.

    ``value`` is for the objective, ``best_structure`` is the paper's unsupervised step, ``conjugate`` is the
    certificate, ``prox`` is the step of the block method. Nothing else in the library knows ``F``.
    """

    known: ClassVar[bool] = False  # A is given: nothing to learn but the tasks
    on_features: ClassVar[bool] = False  # sits on the features as they are (r x r), and nowhere else
    either_side: ClassVar[bool] = False  # a function of the nonzero eigenvalues: sits on tasks or on features alike

    zeroes_relations: ClassVar[bool] = False  # sets single relations to zero
    keeps_columns: ClassVar[bool] = False  # the features must be the columns of X, not turned
    is_sum: ClassVar[bool] = False  # the weights are those of stacked terms, each with a variable of its own

    proof: ClassVar[str] = ""  # what a reader of the certificate must know about the bound on F*, if anything
    convex: ClassVar[bool] = True  # where it is not, a fit can only name a stationary point, and the certificate says so
    task_factor: ClassVar[bool] = False  # made of a factor on the tasks, which is what solvers must work on
    precision_graph: ClassVar[bool] = False  # the edges between tasks are the entries of A^-1, many of them zero

    interior: ClassVar[bool] = False  # F keeps A away from singular: alternation needs no barrier

    @property
    def low_rank(self) -> bool:
        """Whether the best ``A`` is typically singular (as under a trace penalty)."""
        return False

    @property
    def iterative(self) -> bool:
        """Whether the step is itself an iteration, so that a solver should not ask for it often."""
        return False

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

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """``A = best_structure(R'R + floor I)``, and the penalty ``tr(A^-1 R'R) + F(A)`` that it charges for ``R``.

        Energies are read off ``R V``, not off ``R'R``: squaring would drown everything below 1e-8 of the largest.

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
        a, V = np.linalg.eigh(A)
        squared_norm = np.einsum("ij,ij->j", RV := R @ V, RV)
        if np.any(squared_norm[a <= 0] > 0):
            return A, np.inf
        return A, float((squared_norm[a > 0] / a[a > 0]).sum()) + self.value(A)

    def final_structure(self, R: Array) -> tuple[Any, float]:
        """``best_of_root`` for the end of a fit: with many tasks the matrix may come factored.

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

    @abstractmethod
    def conjugate(self, S: Array, near: Array | None = None) -> float:
        """``F*(S) = sup_A <S, A> - F(A)`` over positive semidefinite ``A``, or a bound from above.

        ``near`` is the structure at hand; a bound must become exact as ``near`` becomes optimal.

        Parameters
        ----------
        S : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.
        near : ndarray of shape (n_tasks, n_tasks), default=None
            The structure at hand, around which a numerical bound is sought.

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

    def proximal_step(self, A: Array, gradient: Array, step: float) -> Array:
        """``prox(A - step gradient, step)``, or near enough to it that a step from ``A`` gains almost as much.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            The structure at hand.
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
        """Beyond which length a proximal step from ``A`` (or one of size ``least``) gains nothing, and a search goes astray.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            The structure at hand.
        least : float, default=0.0
            Take ``A`` to be at least of this norm.

        Returns
        -------
        float
            The step length; ``inf`` where there is no such limit.
        """
        return np.inf

    def first_structure(self, R: Array, floor: float) -> Array:
        """Where a solver may start that has weights ``R``: the step, or something like it.

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

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        """The same penalty less its least value, and that value, where it could hide a small loss; ``None`` where it cannot.

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

    def for_run(self) -> Structure:
        """The structure for one run of a solver: a copy of its own, where it gains from what it found a step before."""
        return self

    def whitened(self, R: Array) -> Array | None:
        """``R`` in the units in which ``F*(R'R)`` is 0 as long as no singular value exceeds 1, where there are such units.

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

    def __add__(self, other: Any) -> Structure:
        """Both penalties on the same ``A``."""
        from .penalty_sum import added  # a sum is a structure itself

        return added(self, other) if isinstance(other, Structure) else NotImplemented

    def __rmul__(self, factor: Any) -> Structure:
        """The penalty, that many times."""
        from .penalty_sum import scaled

        return scaled(self, factor)

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

    def squared_norm(self, R: Array, A: Array) -> float:
        """``tr(A^+ R'R)``; ``inf`` where ``R`` leaves the range of ``A``.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.
        A : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.

        Returns
        -------
        float
            The structured squared norm.
        """
        a, V = np.linalg.eigh(symmetric(A))
        squared_norm = np.einsum("ij,ij->j", RV := R @ V, RV)
        inside = a > 1e-15 * max(a[-1], 0.0)
        if squared_norm[~inside].sum() > 1e-14 * squared_norm.sum():
            return np.inf
        return float((squared_norm[inside] / a[inside]).sum())

    def moments(self, R: Array) -> Array:
        """What the structure sees of ``R``: ``R'R``.

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

    def inverse_trace(self, A: Array) -> float:
        """``tr A^-1``: what a barrier charges.

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

    def terms(self, width: int, n_tasks: int) -> tuple[Term, ...]:
        """The terms of a predictor with ``width`` features and so many tasks: one, unless the structure splits the weights.

        Parameters
        ----------
        width : int
            The number of features.
        n_tasks : int
            The number of tasks.

        Returns
        -------
        tuple of Term
            The terms, whose predictions add up.
        """
        from .terms import Term, variable_of  # a term holds a structure

        return (Term(slice(0, width), variable_of(self)),)

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        """``F*`` along ``c S``: what shrinks a dual candidate into the domain of ``F*``.

        Parameters
        ----------
        S : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.
        near : ndarray of shape (n_tasks, n_tasks), default=None
            The structure at hand, as in ``conjugate``.

        Returns
        -------
        Ray
            The largest ``c`` with a finite ``F*(c S)``, and the function ``c -> F*(c S)``.
        """
        return Ray(np.inf, lambda c: self.conjugate(c * S, near))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        """The ray of ``S = R'R``; for structures that can do better than to form ``S``.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``S = R'R``.
        near : ndarray of shape (n_tasks, n_tasks), default=None
            The structure at hand, as in ``conjugate``.

        Returns
        -------
        Ray
            As ``ray`` gives.
        """
        return self.ray(R.T @ R, near)

    def bind(self, tasks: Any) -> Structure:
        """The structure for tasks of these names, in this order; most do not care what tasks are called.

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

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float] | None:
        """How one more task would join ``n_tasks`` old ones, where the structure itself says so.

        The weights of the old tasks in its conditional mean, and the variance that is left; ``None`` where nothing is said.

        Parameters
        ----------
        n_tasks : int
            The number of tasks that are there.

        Returns
        -------
        tuple of ndarray of shape (n_tasks,) and float, or None
            Weights of the old tasks in the conditional mean, and the conditional variance.
        """
        return None

    @property
    def needs_task_matrix(self) -> bool:
        """Whether solvers need ``A`` itself, ``T x T``; not where it may sit on the features."""
        return not (self.either_side or self.on_features)

    def check_size(self, n_tasks: int) -> None:
        """Raise ``ValueError`` before anyone makes a ``T x T`` matrix that is too large.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.
        """
        if n_tasks > factors.LARGEST_ARRAY and self.needs_task_matrix:
            raise ValueError(
                f"{type(self).__name__} needs matrices of {n_tasks} x {n_tasks} tasks ({factors.gibibytes(n_tasks)} each), and "
                f"stops at {factors.LARGEST_ARRAY} tasks; take a structure that may sit on the features (Trace, Frobenius, "
                "Schatten, UnitTrace, Independent, FeatureSelection), or fit groups of tasks"
            )

    def check_tasks(self, n_tasks: int) -> None:
        """Raise ``ValueError`` when the structure cannot describe this many tasks.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.
        """


class Remembering(Structure):
    """A structure whose prox is a search for multipliers, which a copy for one run remembers from step to step."""

    _N: Array | None = None
    _remembers = False
    _proves = False  # whether what is remembered belongs to the structure at hand

    @property
    def steepness(self) -> float:
        """The size of the gradients of the penalty's parts, which may cancel: what multipliers are measured in."""
        return 1.0

    def longest_step(self, A: Array, least: float = 0.0) -> float:
        """Multipliers move by ``A`` over the length of the step in each round of the search."""
        size = float(np.linalg.norm(A))
        return 3 * max(size, least) / self.steepness if size > 0 and self.iterative else np.inf

    def for_run(self) -> Structure:
        twin = copy.copy(self)
        twin._remembers = True
        return twin
