"""Types of the parameters that several estimators take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from numpy.typing import ArrayLike

from ..losses import Loss
from ..structures import Structure


class PenaltyMethods(Protocol):
    """The methods that a custom penalty must have."""

    def value(self, A: Any, /) -> Any: ...

    def prox(self, A: Any, step: Any, /) -> Any: ...


class LossMethods(Protocol):
    """The methods that a custom loss must have, besides ``gradient`` or ``prox``."""

    def value(self, y: Any, z: Any, /) -> Any: ...


StructureLike: TypeAlias = Structure | str | PenaltyMethods | Callable[[Any], Any]
LossLike: TypeAlias = Loss | str | LossMethods
KernelLike: TypeAlias = str | Callable[[Any, Any], Any]

StructureParameter: TypeAlias = StructureLike | Sequence[StructureLike] | None  # one for each of several kernels
LossParameter: TypeAlias = LossLike | Mapping[Any, LossLike]  # by task
KernelParameter: TypeAlias = KernelLike | Sequence[KernelLike]
TaskWeight: TypeAlias = Literal["equal", "size"] | ArrayLike | Mapping[Any, float]
Relation: TypeAlias = ArrayLike | Mapping[Any, float] | None  # by task
Unseen: TypeAlias = Literal["auto", "raise", "mean"]
