"""The classes that a model file may name. Everything else is refused, in both directions."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import Any

from .. import losses, solvers, structures
from ..structures import simplex as coded  # the others are imported with their package

OURS = {  # every class of the package that is derived from the base; what users derive lives elsewhere
    "structure": (coded.__package__, structures.Structure),
    "loss": (losses.__name__, losses.Loss),
    "solver": (solvers.__name__, solvers.Solver),
}
GP_KERNELS = """CompoundKernel ConstantKernel DotProduct ExpSineSquared Exponentiation Matern PairwiseKernel Product RBF
    RationalQuadratic Sum WhiteKernel"""
SPLITTERS = """GroupKFold GroupShuffleSplit KFold LeaveOneGroupOut LeaveOneOut LeavePGroupsOut LeavePOut PredefinedSplit
    ShuffleSplit StratifiedGroupKFold StratifiedKFold StratifiedShuffleSplit TimeSeriesSplit"""
BY_NAME = {
    "kernel": ("sklearn.gaussian_process.kernels", GP_KERNELS),
    "splitter": ("sklearn.model_selection", SPLITTERS),
    "task_splitter": ("taskloom.tables.task_folds", "TaskKFold"),
    "term": ("taskloom.estimators.terms.term", "Term"),
}
PACKAGES = {kind: package for kind, (package, _) in (OURS | BY_NAME).items()}  # where the classes of a kind come from
# Old names of classes and of their parameters, in files that were written with them.
RENAMED = {("structure", "Parts"): ("TermSum", {"addends": "structures"})}


@cache
def classes(kind: str) -> dict[str, type]:
    """The classes of a kind, by name; those that import scikit-learn are slow to import: only for files that have one."""
    if kind in OURS:
        package, base = OURS[kind]
        derived = [cls for cls in _derived(base) if cls.__module__.startswith(f"{package}.")]
        return {cls.__name__: cls for cls in derived if not inspect.isabstract(cls)}
    module, names = BY_NAME[kind]
    theirs = vars(import_module(module))
    return {name: theirs[name] for name in names.split() if name in theirs}


def _derived(base: Any) -> list[type]:
    return [base, *(cls for child in base.__subclasses__() for cls in _derived(child))]


def kind_of(value: Any) -> str | None:
    """Which list the class of an object is on; the class itself, not one that is derived from it."""
    cls = type(value)
    near = [kind for kind, package in PACKAGES.items() if str(cls.__module__).startswith(package)]
    return next((kind for kind in near if classes(kind).get(cls.__name__) is cls), None)


def parameters(value: Any) -> dict[str, Any]:
    """What makes an object of its kind again."""
    if hasattr(value, "get_params"):
        return value.get_params(deep=False)
    names = inspect.signature(type(value).__init__).parameters
    return {name: vars(value)[name] for name in names if name in vars(value)}
