"""The classes that a model file may name. Everything else is refused, in both directions."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from .. import losses, solvers, structures
from ..structures import simplex as coded  # the others are imported with their package


def _ours(base: type, package: str) -> dict[str, type]:
    """Every class of a package of ours that is derived from a base, by name; what users derive lives elsewhere."""
    found, todo = {}, [base]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if cls.__module__.startswith(f"{package}.") and not inspect.isabstract(cls):
            found[cls.__name__] = cls
    return found


COMPONENTS: dict[str, dict[str, type]] = {
    "structure": _ours(structures.Structure, coded.__package__),
    "loss": _ours(losses.Loss, losses.__name__),
    "solver": _ours(solvers.Solver, solvers.__name__),
}
# Old names of classes and of their parameters, in files that were written with them.
RENAMED = {("structure", "Parts"): ("TermSum", {"addends": "structures"})}
GP_KERNELS = (
    "CompoundKernel",
    "ConstantKernel",
    "DotProduct",
    "ExpSineSquared",
    "Exponentiation",
    "Matern",
    "PairwiseKernel",
    "Product",
    "RBF",
    "RationalQuadratic",
    "Sum",
    "WhiteKernel",
)
SPLITTERS = (
    "GroupKFold",
    "GroupShuffleSplit",
    "KFold",
    "LeaveOneGroupOut",
    "LeaveOneOut",
    "LeavePGroupsOut",
    "LeavePOut",
    "PredefinedSplit",
    "ShuffleSplit",
    "StratifiedGroupKFold",
    "StratifiedKFold",
    "StratifiedShuffleSplit",
    "TimeSeriesSplit",
)
FOREIGN = {"kernel": ("sklearn.gaussian_process.kernels", GP_KERNELS), "splitter": ("sklearn.model_selection", SPLITTERS)}


def kind_of(value: Any) -> str | None:
    """Which list the class of an object is on; the class itself, not one that is derived from it."""
    cls = type(value)
    for kind, classes in COMPONENTS.items():
        if classes.get(cls.__name__) is cls:
            return kind
    for kind, (module, names) in FOREIGN.items():
        if cls.__name__ in names and cls.__module__.startswith("sklearn.") and _foreign(module, cls.__name__) is cls:
            return kind
    return None


def find(kind: str, name: str) -> type | None:
    """The class that a name on a list stands for."""
    if kind in COMPONENTS:
        return COMPONENTS[kind].get(name)
    module, names = FOREIGN[kind]
    return _foreign(module, name) if name in names else None


def _foreign(module: str, name: str) -> Any:
    return getattr(import_module(module), name, None)  # slow to import: only for files that have one


def parameters(value: Any) -> dict[str, Any]:
    """What makes an object of its kind again."""
    if hasattr(value, "get_params"):
        return value.get_params(deep=False)
    names = inspect.signature(type(value).__init__).parameters
    return {name: vars(value)[name] for name in names if name in vars(value)}
