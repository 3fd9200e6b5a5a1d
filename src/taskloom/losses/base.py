"""The interface of a loss: entrywise, convex in the prediction ``z``, with a conjugate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from .._component import Component

Array = np.ndarray


OLD_NAMES = {"gradient": "slope", "gradient_bounds": "slopes"}  # deprecated; custom losses may still define them


class Loss(Component, ABC):
    """A loss ``l(y, z)``, convex in ``z``. All methods are entrywise; ``Problem`` computes weighted sums.

    A smooth loss has ``gradient`` and ``curvature``. A nonsmooth loss has ``prox``, from which ``smoothed`` makes a smooth
    surrogate. Every loss has ``conjugate`` and ``gradient_bounds``, the interval on which the conjugate is finite; the dual
    bound is computed from them.
    """

    smooth: ClassVar[bool] = True
    quadratic: ClassVar[bool] = False  # l(y, z) = (y - z)^2: the optimum solves a linear system
    targets: ClassVar[Literal["numbers", "signs", "mixed"]] = "numbers"
    is_surrogate: ClassVar[bool] = False  # a smoothed nonsmooth loss, whose centre is updated during the fit
    max_curvature: ClassVar[float] = np.inf  # Lipschitz constant of the gradient
    of_differences: ClassVar[bool] = False  # a function of y - z: targets may be centred
    proof: ClassVar[str] = ""  # a remark on the accuracy of the conjugate for the message of the certificate

    def __init_subclass__(cls, **options: Any) -> None:
        """Define the new method names for losses that were written with the old ones."""
        super().__init_subclass__(**options)
        for name, old in OLD_NAMES.items():
            if old in vars(cls) and name not in vars(cls):
                setattr(cls, name, vars(cls)[old])

    @abstractmethod
    def value(self, y: Array, z: Array) -> Array:
        """``l(y, z)``.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets; -1 and +1 for a classification loss.
        z : ndarray of shape (n_observations,)
            Predictions.

        Returns
        -------
        ndarray of shape (n_observations,)
            The loss of each observation, never negative.
        """

    @abstractmethod
    def conjugate(self, y: Array, s: Array) -> Array:
        """``l*(y, s) = sup_z s z - l(y, z)``; ``inf`` outside the interval ``gradient_bounds(y)``.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.
        s : ndarray of shape (n_observations,)
            Gradients (slopes in ``z``).

        Returns
        -------
        ndarray of shape (n_observations,)
            The conjugate of each observation.
        """

    @abstractmethod
    def gradient_bounds(self, y: Array) -> tuple[Array | float, Array | float]:
        """The closed interval of gradients on which the conjugate is finite; it holds 0.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.

        Returns
        -------
        tuple of float or ndarray
            Lower and upper end, for all observations or for each.
        """

    def gradient(self, y: Array, z: Array) -> Array:
        """``dl/dz``; a subgradient where the loss is not differentiable.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.
        z : ndarray of shape (n_observations,)
            Predictions.

        Returns
        -------
        ndarray of shape (n_observations,)
            The derivative in ``z`` for each observation.
        """
        raise TypeError(f"{type(self).__name__} has no gradient; it offers prox")

    def slope(self, y: Array, z: Array) -> Array:
        """Deprecated: the old name of ``gradient``.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.
        z : ndarray of shape (n_observations,)
            Predictions.

        Returns
        -------
        ndarray of shape (n_observations,)
            As ``gradient``.
        """
        return self.gradient(y, z)

    def slopes(self, y: Array) -> tuple[Array | float, Array | float]:
        """Deprecated: the old name of ``gradient_bounds``.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.

        Returns
        -------
        tuple of float or ndarray
            As ``gradient_bounds``.
        """
        return self.gradient_bounds(y)

    def curvature(self, y: Array, z: Array) -> Array:
        """``d2l/dz2``; a one-sided derivative where the gradient is not differentiable.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.
        z : ndarray of shape (n_observations,)
            Predictions.

        Returns
        -------
        ndarray of shape (n_observations,)
            The second derivative in ``z`` for each observation.
        """
        raise TypeError(f"{type(self).__name__} has no curvature; it offers prox")

    def majorant(self, y: Array, z: Array) -> Array:
        """The curvature of a quadratic majorant of the loss at ``z``, used where a Newton step fails.

        If the curvature of the loss is unbounded, the largest curvature within a distance of 1 is used instead.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.
        z : ndarray of shape (n_observations,)
            Predictions, where the majorant equals the loss.

        Returns
        -------
        ndarray of shape (n_observations,)
            The second derivative of the majorant for each observation.
        """
        if np.isfinite(self.max_curvature):
            return np.full_like(z, self.max_curvature)
        return np.maximum.reduce([self.curvature(y, z + step) for step in (-1.0, 0.0, 1.0)])

    def best_constant(self, up: Array, down: Array) -> Array | None:
        """The best constant prediction for labels with these total weights; ``None`` if it has no closed form.

        Parameters
        ----------
        up : ndarray of shape (n_tasks,)
            Total weight of the labels +1 of each task.
        down : ndarray of shape (n_tasks,)
            Total weight of the labels -1.

        Returns
        -------
        ndarray of shape (n_tasks,) or None
            The best constant prediction of each task.
        """
        return None

    def fresh(self) -> Loss:
        """The loss for a new problem: a copy with an empty cache, where the loss has one."""
        return self

    def pick(self, which: Array | tuple[Array, ...]) -> Loss:
        """The loss of a subset of the observations; losses without a parameter per observation return themselves.

        Parameters
        ----------
        which : ndarray or tuple of ndarray
            Indices of the observations, or a mask.

        Returns
        -------
        Loss
            The loss of these observations, in this order.
        """
        return self

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        """``argmin_u step l(y, u) + (u - z)^2 / 2``.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.
        z : ndarray of shape (n_observations,)
            Points at which the prox is computed.
        step : float or ndarray of shape (n_observations,)
            Step length.

        Returns
        -------
        ndarray of shape (n_observations,)
            The minimiser for each observation.
        """
        raise TypeError(f"{type(self).__name__} has no prox; it offers gradient and curvature")

    def smoothed(self, guess: Array, width: Array | float) -> Loss:
        """The smoothed surrogate of a nonsmooth loss, centred at these gradients.

        Parameters
        ----------
        guess : ndarray of shape (n_observations,)
            An estimate of the gradients at the optimum.
        width : float or ndarray of shape (n_observations,)
            The smoothing parameter, one number or one per observation.

        Returns
        -------
        Loss
            A smooth loss with curvature at most ``1 / width``.
        """
        from .smoothed import Smoothed  # avoids a circular import

        return Smoothed(self, guess, width)

    def as_smoothed(self) -> Loss | None:
        """The loss as a smoothed piecewise linear one, if it is one.

        Returns
        -------
        Smoothed or None
            The same function; ``None`` if it has other pieces than lines and parabolas of one curvature between them.
        """
        return None

    def intercepts(self, b: Array) -> Array:
        """Normalised intercepts with the same loss as ``b``; for entrywise losses ``b`` itself.

        Parameters
        ----------
        b : ndarray of shape (n_tasks,)
            Intercepts.

        Returns
        -------
        ndarray of shape (n_tasks,)
            Intercepts with the same loss.
        """
        return b

    def unit(self, residual: Array) -> Array | float:
        """The unit of the smoothing parameter: the mean absolute residual, or 1 for labels.

        Parameters
        ----------
        residual : ndarray of shape (n_observations,)
            Residuals of the best constant predictor.

        Returns
        -------
        float or ndarray of shape (n_observations,)
            The unit.
        """
        return 1.0 if self.targets == "signs" else max(float(np.abs(residual).mean()), 1e-300)
