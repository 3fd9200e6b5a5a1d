"""What users hold."""

from .bootstrap import stability
from .classifier import MultiTaskClassifier
from .classifier_cv import MultiTaskClassifierCV
from .model_files.save_load import load, save
from .regressor import MultiTaskRegressor
from .regressor_cv import MultiTaskRegressorCV
from .single_task_comparison import compare_to_single_task

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
