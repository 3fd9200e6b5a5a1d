"""taskloom: many related prediction tasks, and the structure that relates them, learned as one certified convex problem."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what a type checker sees; at run time the same names are imported on first use
    from . import datasets as datasets
    from . import distributed as distributed
    from . import equivalences as equivalences
    from . import experiments as experiments
    from . import losses as losses
    from . import maps as maps
    from . import methods as methods
    from . import metrics as metrics
    from . import persistence as persistence
    from . import plots as plots
    from . import solvers as solvers
    from . import structures as structures
    from . import testing as testing
    from .estimators import MultiTaskClassifier as MultiTaskClassifier
    from .estimators import MultiTaskClassifierCV as MultiTaskClassifierCV
    from .estimators import MultiTaskRegressor as MultiTaskRegressor
    from .estimators import MultiTaskRegressorCV as MultiTaskRegressorCV
    from .estimators import compare_to_single_task as compare_to_single_task
    from .estimators import load as load
    from .estimators import save as save
    from .estimators import stability as stability
    from .persistence import ModelFileError as ModelFileError
    from .problem import Problem as Problem
    from .report import write_report as write_report
    from .solvers import alpha_max as alpha_max
    from .solvers import path as path
    from .solvers import solve as solve
    from .structures.factored_matrix import FactoredStructure as FactoredStructure
    from .tables.layout import stack as stack
    from .tables.layout import unstack as unstack
    from .tables.parquet import parquet_blocks as parquet_blocks
    from .tables.preprocessing import TablePreprocessor as TablePreprocessor
    from .versions import show_versions as show_versions

__version__ = "0.1.0.dev0"

# Public name -> module: imported on first use, so that the command line starts fast.
_HOMES = {
    "FactoredStructure": "structures.factored_matrix",
    "ModelFileError": "persistence",
    "MultiTaskClassifier": "estimators",
    "MultiTaskClassifierCV": "estimators",
    "MultiTaskRegressor": "estimators",
    "MultiTaskRegressorCV": "estimators",
    "Problem": "problem",
    "TablePreprocessor": "tables.preprocessing",
    "alpha_max": "solvers",
    "compare_to_single_task": "estimators",
    "load": "estimators",
    "parquet_blocks": "tables.parquet",
    "path": "solvers",
    "save": "estimators",
    "show_versions": "versions",
    "solve": "solvers",
    "stability": "estimators",
    "stack": "tables.layout",
    "unstack": "tables.layout",
    "write_report": "report",
}
_MODULES = (
    "datasets",
    "distributed",
    "equivalences",
    "experiments",
    "losses",
    "methods",
    "metrics",
    "persistence",
    "plots",
    "solvers",
    "structures",
    "testing",
)
_OLD_NAMES = ("maps",)  # kept for code that was written for them

__all__ = [*_HOMES, *_MODULES, "__version__"]  # noqa: PLE0604

if not TYPE_CHECKING:  # with this a checker would believe in every name

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        if name in _MODULES or name in _OLD_NAMES:
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
