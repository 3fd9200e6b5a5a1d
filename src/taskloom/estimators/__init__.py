"""What users hold."""

from .classifier import MultiTaskClassifier
from .regressor import MultiTaskRegressor

__all__ = ["MultiTaskClassifier", "MultiTaskRegressor"]
