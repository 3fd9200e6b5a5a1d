"""Structure penalties ``F(A)``: each brings a value, a step, a conjugate and a prox. ``Problem`` uses nothing else."""

from .._component import resolve
from .base import Structure
from .clusters import Clusters
from .known import Fixed, Independent, OutputCode, OutputMetric, SharedMean, TaskGraph
from .parts import Parts as Parts  # not for users: lists of kernels make one
from .robust import Dirty, Robust
from .selection import FeatureSelection
from .sparse import Sparse
from .spectral import Frobenius, LogDet, Schatten, SchattenNorm, Trace, UnitTrace

__all__ = [
    "Clusters",
    "Dirty",
    "FeatureSelection",
    "Fixed",
    "Frobenius",
    "Independent",
    "LogDet",
    "OutputCode",
    "OutputMetric",
    "Robust",
    "Schatten",
    "SchattenNorm",
    "SharedMean",
    "Sparse",
    "Structure",
    "TaskGraph",
    "Trace",
    "UnitTrace",
]

_CATALOGUE: list[type] = [
    Clusters,
    Dirty,
    FeatureSelection,
    Fixed,
    Frobenius,
    Independent,
    LogDet,
    OutputCode,
    OutputMetric,
    Robust,
    Schatten,
    SchattenNorm,
    SharedMean,
    Sparse,
    TaskGraph,
    Trace,
    UnitTrace,
]


def as_structure(structure: "str | Structure | None") -> Structure:
    """The structure object for a name such as ``"unit_trace"``, or the object itself; ``None`` is ``Trace()``."""
    return Trace() if structure is None else resolve(structure, Structure, _CATALOGUE, "structure")
