"""What structures that are not convex have in common: no conjugate, no prox, and a residual in place of a proof."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NoReturn

from ..base import Array, Structure


class NonConvex(Structure):
    """``F(A)`` on a set of structures, where one of the two is not convex.

    There is no dual bound: all that a fit can know is that it stands at a stationary point, and how nearly. ``residual`` says
    how nearly, from the gradient of the objective in the parameters of ``A``.
    """

    convex: ClassVar[bool] = False

    @abstractmethod
    def residual(self, A: Array, pull: Array, unit: float, factor: Array | None = None) -> float:
        """The norm of the gradient of ``h(A) + F(A)`` in the parameters of ``A``, projected on their constraints; no dimension.

        ``h`` is the objective with the tasks eliminated and ``pull = -dh/dA``, that is ``Z1'Z1 / (4 alpha)``. ``unit`` is the
        loss scale, ``factor`` is what ``A`` was made of, where ``A`` does not tell.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            The structure at hand.
        pull : ndarray of shape (n_tasks, n_tasks)
            The negative gradient of ``h`` at ``A``.
        unit : float
            The loss of the best constant predictor.
        factor : ndarray of shape (n_tasks, rank), default=None
            The factor of ``A``.

        Returns
        -------
        float
            The norm; 0 at a stationary point.
        """

    @abstractmethod
    def convex_bound(self) -> tuple[Structure, float]:
        """A convex structure, and the share of ``alpha`` at which it penalises weights near zero no more than this one does.

        It says at which strength there is nothing left to learn.
        """

    def _nothing_convex(self, what: str) -> NoReturn:
        raise ValueError(f'{self!r} is not convex and has no {what}; solver="auto" picks a solver that needs none')

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        self._nothing_convex("conjugate, so no bound on the minimum")

    def prox(self, A: Array, step: float) -> Array:
        self._nothing_convex("prox")
