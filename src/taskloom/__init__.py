"""taskloom: many related prediction tasks, and the structure that relates them, learned as one certified convex problem."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what a type checker sees; at run time the same names are imported on first use
    from . import datasets as datasets
    from . import distributed as distributed
    from . import equivalences as equivalences
    from . import experiments as experiments
    from . import formula as formula
    from . import losses as losses
    from . import maps as maps
    from . import methods as methods
    from . import metrics as metrics
    from . import persistence as persistence
    from . import plots as plots
    from . import solvers as solvers
    from . import structures as structures
    from . import testing as testing
    from .estimators import *  # noqa: F403
    from .estimators.terms.term import Term as Term
    from .formula import from_formula as from_formula
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
    from .tables.task_folds import TaskKFold as TaskKFold
    from .versions import show_versions as show_versions

__version__ = "0.1.0.dev0"

# Module -> public names: imported on first use, so that the command line starts fast.
_NAMES = {
    "estimators": "MultiTaskClassifier MultiTaskClassifierCV MultiTaskRegressor MultiTaskRegressorCV "
    "compare_to_single_task load save stability",
    "estimators.terms.term": "Term",
    "formula": "from_formula",
    "persistence": "ModelFileError",
    "problem": "Problem",
    "report": "write_report",
    "solvers": "alpha_max path solve",
    "structures.factored_matrix": "FactoredStructure",
    "tables.layout": "stack unstack",
    "tables.parquet": "parquet_blocks",
    "tables.preprocessing": "TablePreprocessor",
    "tables.task_folds": "TaskKFold",
    "versions": "show_versions",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = ["datasets", "distributed", "equivalences", "experiments", "formula", "losses", "methods", "metrics", "persistence"]
_MODULES += ["plots", "solvers", "structures", "testing"]
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
