"""The contract of a loss: entrywise, convex in the prediction ``z``, and it brings its own conjugate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from .._component import Component

Array = np.ndarray


OLD_NAMES = {"gradient": "slope", "gradient_bounds": "slopes"}  # deprecated; a loss of a user's own may still have them


class Loss(Component, ABC):
    """``l(y, z)``, convex in ``z``. Entrywise: no masks, no weights, no sums; ``Problem`` weighs and adds.

    A *smooth* loss has ``gradient`` and ``curvature``; a nonsmooth one has ``prox`` instead (and may leave both out), from
    which ``smoothed`` makes a smooth surrogate. Every loss has ``conjugate`` and ``gradient_bounds``, the interval outside
    which the conjugate is infinite: they are its half of the certificate.
    """

    smooth: ClassVar[bool] = True
    quadratic: ClassVar[bool] = False  # l(y, z) = (y - z)^2 up to a constant: one linear system solves it
    targets: ClassVar[Literal["numbers", "signs", "mixed"]] = "numbers"
    is_surrogate: ClassVar[bool] = False  # for a loss with kinks, around a guess of its gradients that will be renewed
    max_curvature: ClassVar[float] = np.inf  # Lipschitz constant of the gradient
    of_differences: ClassVar[bool] = False  # l(y, z) sees y - z alone: targets may be moved to where rounding is least
    proof: ClassVar[str] = ""  # what a reader of the certificate must know about the conjugate, if anything

    def __init_subclass__(cls, **options: Any) -> None:
        """A loss that was written with the old names of its methods has the new ones, too."""
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
            Targets; -1 and +1 for a loss of labels.
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
        """``dl/dz``; at a kink, some gradient between the left and the right one.

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
        """``d2l/dz2``; where the gradient has a kink, either side's value.

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
        """The curvature of a parabola that touches the loss at ``z`` and lies above it: where Newton's own step fails.

        Where curvatures have no bound, no parabola does; then the largest curvature within a step of 1 stands in for it.

        Parameters
        ----------
        y : ndarray of shape (n_observations,)
            Targets.
        z : ndarray of shape (n_observations,)
            Predictions, where the parabola touches.

        Returns
        -------
        ndarray of shape (n_observations,)
            Its second derivative for each observation.
        """
        if np.isfinite(self.max_curvature):
            return np.full_like(z, self.max_curvature)
        return np.maximum.reduce([self.curvature(y, z + step) for step in (-1.0, 0.0, 1.0)])

    def best_constant(self, up: Array, down: Array) -> Array | None:
        """Of labels: the constant that costs least where +1 and -1 have these weights; ``None`` where it must be searched.

        Parameters
        ----------
        up : ndarray of shape (n_tasks,)
            Total weight of the labels +1 of each task.
        down : ndarray of shape (n_tasks,)
            Total weight of the labels -1.

        Returns
        -------
        ndarray of shape (n_tasks,) or None
            The best constant predictor of each task, where it has a closed form.
        """
        return None

    def fresh(self) -> Loss:
        """The loss for one problem: a copy, where it keeps what it computed; a user's own may have changed in between."""
        return self

    def pick(self, which: Array | tuple[Array, ...]) -> Loss:
        """The loss of a selection of observations; only a loss that holds one number for each has to do anything.

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
            Points from which to step.
        step : float or ndarray of shape (n_observations,)
            Step length.

        Returns
        -------
        ndarray of shape (n_observations,)
            The minimiser for each observation.
        """
        raise TypeError(f"{type(self).__name__} has no prox; it offers gradient and curvature")

    def smoothed(self, guess: Array, width: Array | float) -> Loss:
        """The smooth stand-in around these gradients, for a loss with kinks; ``width`` may differ between observations.

        Parameters
        ----------
        guess : ndarray of shape (n_observations,)
            A guess of the gradients at the optimum.
        width : float or ndarray of shape (n_observations,)
            Width of the smoothing.

        Returns
        -------
        Loss
            A smooth loss with curvature at most ``1 / width``.
        """
        from .smoothed import Smoothed  # it is a loss itself: imported here, or the two modules would need each other

        return Smoothed(self, guess, width)

    def intercepts(self, b: Array) -> Array:
        """Of the intercepts that predict as ``b`` does, the ones to hand back; a loss of entries tells all of them apart.

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
        """The size of the residuals, in which widths of a smoothing are measured; labels have none but 1.

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
