"""The estimators."""

from .classifier import MultiTaskClassifier
from .classifier_cv import MultiTaskClassifierCV
from .inspection.bootstrap import stability
from .inspection.single_task_comparison import compare_to_single_task
from .model_files.save_load import load, save
from .regressor import MultiTaskRegressor
from .regressor_cv import MultiTaskRegressorCV

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
