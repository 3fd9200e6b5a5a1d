"""The estimators."""

from .classifier import MultiTaskClassifier as MultiTaskClassifier
from .classifier_cv import MultiTaskClassifierCV as MultiTaskClassifierCV
from .inspection.bootstrap import stability as stability
from .inspection.single_task_comparison import compare_to_single_task as compare_to_single_task
from .model_files.save_load import load as load
from .model_files.save_load import save as save
from .regressor import MultiTaskRegressor as MultiTaskRegressor
from .regressor_cv import MultiTaskRegressorCV as MultiTaskRegressorCV
