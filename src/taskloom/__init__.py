"""taskloom: many related prediction tasks, and the structure that relates them, learned as one certified convex problem."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0.dev0"

# Public name -> module: imported on first use, so that the command line starts fast.
_HOMES = {
    "FactoredStructure": "factors",
    "ModelFileError": "model_file",
    "MultiTaskClassifier": "estimators",
    "MultiTaskClassifierCV": "estimators",
    "MultiTaskRegressor": "estimators",
    "MultiTaskRegressorCV": "estimators",
    "Problem": "problem",
    "TablePreprocessor": "preprocessing",
    "alpha_max": "solvers",
    "compare_to_single_task": "estimators",
    "load": "estimators",
    "parquet_blocks": "parquet",
    "path": "solvers",
    "save": "estimators",
    "show_versions": "versions",
    "solve": "solvers",
    "stability": "estimators",
    "stack": "tables",
    "unstack": "tables",
    "write_report": "report",
}
_MODULES = (
    "datasets",
    "distributed",
    "experiments",
    "losses",
    "maps",
    "methods",
    "metrics",
    "plots",
    "solvers",
    "structures",
    "testing",
)

__all__ = [*_HOMES, *_MODULES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
