"""The interface of nonconvex structures: a stationarity residual instead of a conjugate and a prox."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NoReturn

from ..base import Array, Structure


class NonConvex(Structure):
    """A penalty ``F(A)`` on a set of matrices, where the penalty or the set is not convex.

    There is no dual bound. A fit stops near a stationary point, where ``residual``, the norm of the projected gradient in the
    parameters of ``A``, is small.
    """

    convex: ClassVar[bool] = False

    @abstractmethod
    def residual(self, A: Array, correlation: Array, unit: float, factor: Array | None = None) -> float:
        """The norm of the projected gradient of ``h(A) + F(A)`` in the parameters of ``A``, made dimensionless.

        ``h`` is the objective minimised over the weights, and ``-dh/dA = Z1'Z1 / (4 alpha)``.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            The current structure.
        correlation : ndarray of shape (n_tasks, n_tasks)
            The negative gradient of ``h`` at ``A``.
        unit : float
            The loss of the best constant predictor, the unit of the result.
        factor : ndarray of shape (n_tasks, rank), default=None
            The factor of ``A``, for structures that are parametrised by one.

        Returns
        -------
        float
            The norm; 0 at a stationary point.
        """

    @abstractmethod
    def convex_bound(self) -> tuple[Structure, float]:
        """A convex structure and a factor of ``alpha`` with which it penalises weights near zero at most as much as this one.

        It gives the ``alpha`` from which on the optimal weights are zero.

        Returns
        -------
        tuple of Structure and float
            The convex structure, and the factor of ``alpha``.
        """

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(f'{self!r} is not convex and has no {what}; solver="auto" picks a solver that needs none')

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        self._refuse("conjugate, so no bound on the minimum")

    def prox(self, A: Array, step: float) -> Array:
        self._refuse("prox")
