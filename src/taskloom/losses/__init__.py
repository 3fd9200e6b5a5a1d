"""Losses, each with a value, a gradient or a proximal operator, and a conjugate."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._component import resolve
from .base import Array, Loss
from .classification import Hinge, Logistic, SquaredHinge
from .custom_loss import CustomLoss, has_methods
from .mixed import Mixed
from .multiclass import MulticlassHinge, RowLoss, Softmax
from .regression import Absolute, EpsilonInsensitive, Huber, Quantile, Squared

__all__ = ["Absolute", "CustomLoss", "EpsilonInsensitive", "Hinge", "Huber", "Logistic", "Loss", "MulticlassHinge"]
__all__ += ["Quantile", "RowLoss", "Softmax", "Squared", "SquaredHinge"]

_CATALOGUE: list[type] = [globals()[name] for name in __all__ if name not in ("Loss", "RowLoss")]


def as_loss(loss: Any) -> Loss:
    """The loss object for a name such as ``"squared_hinge"``, or the object itself.

    Any other object with ``value`` and ``gradient`` or ``prox`` becomes a ``CustomLoss``.
    """
    if not isinstance(loss, (Loss, str)) and has_methods(loss):
        return CustomLoss(loss)
    return resolve(loss, Loss, _CATALOGUE, "loss")


def mixed_loss(losses: Sequence[Loss], task: Array) -> Loss:
    """The loss of observations whose task is ``task``, with one loss per task; a plain loss if all are equal."""
    parts: list[Loss] = []
    index = []
    for loss in losses:
        k = next((k for k, part in enumerate(parts) if _equal(part, loss)), len(parts))
        parts += [loss] if k == len(parts) else []
        index.append(k)
    multiclass = next((type(part).__name__ for part in parts if isinstance(part, RowLoss)), None)
    if len(parts) > 1 and multiclass is not None:
        raise ValueError(f"{multiclass} is one loss for the rows of all tasks; it does not mix with others")
    return parts[0] if len(parts) == 1 else Mixed(parts, np.array(index)[task])


def _equal(one: Loss, other: Loss) -> bool:
    """Whether two losses have the same type and parameters."""
    mine, theirs = one.get_params(), other.get_params()
    return type(one) is type(other) and all(np.array_equal(mine[name], theirs[name]) for name in mine)
