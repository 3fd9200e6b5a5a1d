"""Structure penalties ``F(A)``, each with a value, a best structure, a conjugate and a proximal operator."""

from inspect import isfunction
from typing import Any

from .._component import resolve
from .base import Structure
from .clusters import Clusters
from .custom.custom_structure import CustomStructure, has_methods
from .feature_selection import FeatureSelection
from .known import Independent, SharedMean
from .known_matrices import Fixed, OutputCode, OutputMetric, TaskGraph
from .nonconvex.learned_graphs import LearnedGraph, SparsePrecision
from .nonconvex.low_rank import LowRank
from .penalty_sum import Sum
from .robust import Dirty, Robust
from .sparse import LogDet, Sparse
from .spectral import Frobenius, Schatten, SchattenNorm, Trace, UnitTrace
from .term_sum import TermSum as TermSum  # not for users: lists of kernels make one

__all__ = ["Clusters", "CustomStructure", "Dirty", "FeatureSelection", "Fixed", "Frobenius", "Independent"]
__all__ += ["LearnedGraph", "LogDet", "LowRank", "OutputCode", "OutputMetric", "Robust", "Schatten", "SchattenNorm"]
__all__ += ["SharedMean", "Sparse", "SparsePrecision", "Structure", "Sum", "TaskGraph", "Trace", "UnitTrace"]

_CATALOGUE: list[type] = [globals()[name] for name in __all__ if name != "Structure"]


def as_structure(structure: Any) -> Structure:
    """The structure object for a name such as ``"unit_trace"``, or the object itself; ``None`` is ``Trace()``.

    Any other object with ``value`` and ``prox``, and any function (of a CVXPY variable), becomes a ``CustomStructure``.
    """
    if structure is None:
        return Trace()
    if not isinstance(structure, Structure) and (has_methods(structure) or isfunction(structure)):
        return CustomStructure(structure)
    return resolve(structure, Structure, _CATALOGUE, "structure")
