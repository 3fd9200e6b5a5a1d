"""Plots of fitted models, in scikit-learn's ``Display`` convention; needs the extra ``taskloom[plot]``."""

from .convergence import ConvergenceDisplay
from .gains import TransferDisplay
from .heat_map import TaskStructureDisplay
from .regularization_path import PathDisplay
from .task_graph import TaskGraphDisplay

__all__ = ["ConvergenceDisplay", "PathDisplay", "TaskGraphDisplay", "TaskStructureDisplay", "TransferDisplay"]
