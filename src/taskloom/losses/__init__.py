"""Losses: each brings its value, its slope or prox, and its conjugate. ``Problem`` weighs and adds them."""

from .._component import resolve
from .base import Loss
from .classification import Hinge, Logistic, SquaredHinge
from .regression import Absolute, EpsilonInsensitive, Huber, Quantile, Squared

__all__ = ["Absolute", "EpsilonInsensitive", "Hinge", "Huber", "Logistic", "Loss", "Quantile", "Squared", "SquaredHinge"]

_CATALOGUE: list[type] = [Absolute, EpsilonInsensitive, Hinge, Huber, Logistic, Quantile, Squared, SquaredHinge]


def as_loss(loss: str | Loss) -> Loss:
    """The loss object for a name such as ``"squared_hinge"``, or the object itself."""
    return resolve(loss, Loss, _CATALOGUE, "loss")
