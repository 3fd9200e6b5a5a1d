"""What users hold."""

from .classifier import MultiTaskClassifier
from .classifier_cv import MultiTaskClassifierCV
from .regressor import MultiTaskRegressor
from .regressor_cv import MultiTaskRegressorCV
from .saving import load, save
from .stability import stability
from .transfer import compare_to_single_task

__all__ = [
    "MultiTaskClassifier",
    "MultiTaskClassifierCV",
    "MultiTaskRegressor",
    "MultiTaskRegressorCV",
    "compare_to_single_task",
    "load",
    "save",
    "stability",
]
