"""Structure penalties ``F(A)``: each brings a value, a step, a conjugate and a prox. ``Problem`` uses nothing else."""

from .._component import resolve
from .base import Structure
from .clusters import Clusters
from .known import Fixed, Independent, OutputCode, OutputMetric, SharedMean, TaskGraph
from .selection import FeatureSelection
from .sparse import LogDet, Sparse
from .spectral import Frobenius, Schatten, SchattenNorm, Trace, UnitTrace
from .sums import Sum

__all__ = [
    "Clusters",
    "FeatureSelection",
    "Fixed",
    "Frobenius",
    "Independent",
    "LogDet",
    "OutputCode",
    "OutputMetric",
    "Schatten",
    "SchattenNorm",
    "SharedMean",
    "Sparse",
    "Structure",
    "Sum",
    "TaskGraph",
    "Trace",
    "UnitTrace",
]

_CATALOGUE: list[type] = [
    Clusters,
    FeatureSelection,
    Fixed,
    Frobenius,
    Independent,
    LogDet,
    OutputCode,
    OutputMetric,
    Schatten,
    SchattenNorm,
    SharedMean,
    Sparse,
    Sum,
    TaskGraph,
    Trace,
    UnitTrace,
]


def as_structure(structure: "str | Structure | None") -> Structure:
    """The structure object for a name such as ``"unit_trace"``, or the object itself; ``None`` is ``Trace()``."""
    return Trace() if structure is None else resolve(structure, Structure, _CATALOGUE, "structure")
