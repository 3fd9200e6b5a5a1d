"""Figures of what was learned, in scikit-learn's ``Display`` convention; needs the extra ``taskloom[plot]``."""

from .convergence import ConvergenceDisplay
from .graph import TaskGraphDisplay
from .path import PathDisplay
from .structure import TaskStructureDisplay
from .transfer import TransferDisplay

__all__ = ["ConvergenceDisplay", "PathDisplay", "TaskGraphDisplay", "TaskStructureDisplay", "TransferDisplay"]
