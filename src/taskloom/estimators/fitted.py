"""The state of a fitted model, as one value: predictions, inspection, new tasks and model files are functions of it.

An estimator holds its parameters and, after a fit, a :class:`FittedState`. Its fitted attributes (``coef_``, ``tasks_``, ...)
are the fields of that state whose names end in an underscore. ``fit`` assigns the state once, at its end.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..design import Observations
from ..design.observations import Value
from ..features.kernels import KernelFeatures, LinearFeatures, SumFeatures, is_wide, kernel_function
from ..problem import Problem
from .inspection.contributions import contributions_of
from .target_encoding import TargetScale
from .validation import InputColumns, TargetInfo

Array = np.ndarray
OF_TERMS = {  # where a fit with terms= has what a plain one has in an attribute
    "coef_": "; with terms= coef_frame() has the coefficients",
    "structure_": "; with terms= relations_frame() has the matrix of each grouping",
}
Features = LinearFeatures | KernelFeatures | SumFeatures


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel of a model with its parameters, or several kernels."""

    kernel: Any
    gamma: float | str | None = None  # a word until the inputs of a fit are known
    degree: float = 3
    coef0: float = 1
    gamma_from_inputs: bool = False

    @property
    def found_gamma(self) -> float | None:
        """``gamma``, where it follows from the inputs."""
        return float(self.gamma) if self.gamma_from_inputs and self.gamma is not None else None

    @property
    def several(self) -> bool:
        return isinstance(self.kernel, (list, tuple))

    @property
    def precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    @property
    def linear(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "linear"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}

    def __call__(self, X: Any, Z: Any) -> Any:
        """The kernel between two sets of inputs, in double precision; a list of matrices for several kernels."""
        X, Z = X.astype(np.float64, copy=False), Z.astype(np.float64, copy=False)
        if self.several:
            return [kernel_function(k, **self.parameters)(X, Z) for k in self.kernel]
        return kernel_function(self.kernel, **self.parameters)(X, Z)


@dataclass(frozen=True, eq=False)
class Training(Value):
    """The training data of a squared-loss fit, for its posterior: references to features and targets, nothing computed.

    If every task is observed in every row, ``row`` and ``task`` are ``None``. Weights that are equal within each task are
    stored once per task. For 100 tasks that is a quarter of the memory of the observations.
    """

    inputs: Any
    features: Any
    row: Array | None
    task: Array | None
    y: Array
    weight: Array
    settings: dict[str, Any]  # of the problem: loss, structure, alpha, ridge, fit_intercept
    W: Array
    b: Array
    A: Array

    @property
    def observations(self) -> Observations:
        T, row, task, weight = len(self.b), self.row, self.task, self.weight
        if row is None or task is None:
            n = self.y.size // T
            row, task = np.tile(np.arange(n), T), np.repeat(np.arange(T), n)
        return Observations(row, task, self.y, weight[task] if len(weight) < len(self.y) else weight, T)

    def problem(self) -> Problem:
        """The problem of the fit."""
        return Problem(self.features.phi, self.observations, **self.settings)

    @cached_property
    def in_span(self) -> Training:
        """The same with at most as many features as rows: those of the kernel matrix, where a sparse X is wider than high."""
        if not is_wide(self.features.phi):
            return self
        features = LinearFeatures.in_span(self.features.phi, len(self.b))
        return replace(self, features=features, W=features.weights(self.W))


@dataclass(frozen=True, eq=False)
class Prepared:
    """Validated data: the problem that a solver needs, and the description that a fitted model keeps."""

    columns: InputColumns
    targets: TargetInfo
    inputs: Any
    features: Features
    problem: Problem
    scale: TargetScale
    kernel: Kernel

    def weights_of(self, last: FittedState) -> tuple[Array, Array] | None:
        """The weights and intercepts of a fitted model in this problem, if their shape is that of the data."""
        linear = isinstance(self.features, LinearFeatures)
        coef = last.coef_ if linear else last.dual_coef_
        if coef is None or isinstance(coef, list):  # the terms of a sum are not unique: a cold start is as fast
            return None
        coef = (coef.T if linear else coef).astype(float)
        if coef.shape != (self.features.n_inputs, self.problem.n_tasks):
            return None
        mean, std = self.scale.mean, self.scale.std
        return self.features.weights(coef / std), (last.intercept_.astype(float) - mean) / std


# Fields that a model file does not hold: they are parameters of the estimator, or are not needed after loading.
NOT_SAVED = {"saved": False}


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedState(InputColumns, TargetInfo):
    """A fitted model; a field that does not apply is ``None``.

    Coefficients are in single precision if the inputs were and the numbers are in its range (``dtype``). ``scale`` is the mean
    and standard deviation of the targets, by task.
    """

    scale: TargetScale
    kernel: Any = field(default=None, metadata=NOT_SAVED)  # a Kernel
    alpha: float = field(default=np.nan, metadata=NOT_SAVED)
    ridge: float = field(default=0.0, metadata=NOT_SAVED)
    # the predictor: weights of inputs (or of mapped inputs), or coefficients of kernels at the inputs of the fit
    dtype: np.dtype
    intercept_: Array
    coef_: Any = None
    feature_map_: Any = None
    approximation_error_: float | None = None
    dual_coef_: Any = None
    X_fit_: Any = None
    gamma_: float | None = None  # of the kernel, where the parameter is a word
    inner_products: Any = None  # of the tasks' functions, in fitted units, where the kernel is not linear
    # the structure
    structure_: Any = None
    feature_structure_: Any = None
    learned: Any = None  # a copy of the structure of the fit: the parameter may change later
    shared_coef_: Array | None = None
    own_coef_: Array | None = None
    outlier_tasks_: Array | None = None
    term_structures: list[Array] | None = field(default=None, metadata=NOT_SAVED)  # of a sum on the same features
    added_tasks_: list | None = None
    fitted_terms: Any = None  # of ``terms=``
    common_part: Any = None  # of ``common=``
    term_rows: Any = field(default=None, metadata=NOT_SAVED)  # of both: the data of the fit, for ``summary``
    # how it was found
    n_observations: int | None = field(default=None, metadata=NOT_SAVED)  # of the fit; added tasks are not counted
    certificate_: Any = None
    n_iter_: int | None = None
    history_: dict[str, Array] | None = None
    device_: str | None = None
    # for explain: contributions of tasks to each other if computed, and what they are computed from
    stored_contributions: Any = field(default=None, metadata={"key": "_pulls"})
    # g_s = sum_i G_is k(x_i, .) of the dual point G, in the coordinates of coef_ or dual_coef_
    dual: Array | None = field(default=None, metadata=NOT_SAVED)
    # what return_std and partial_fit need
    training: Any = field(default=None, metadata=NOT_SAVED)
    training_left_out: bool = field(default=False, metadata=NOT_SAVED)  # not in the file, or on a cluster
    statistics: Any = field(default=None, metadata=NOT_SAVED)
    decision_values: Array | None = field(default=None, metadata=NOT_SAVED)  # of the test rows of a fold
    new_task_prior: Any = field(default=None, metadata=NOT_SAVED)  # of a further task, once one was added

    # what the data of each task (rows) contribute to each task of the fit (columns), for ``explain``
    contributions = cached_property(contributions_of)

    @cached_property
    def posteriors(self) -> dict[tuple[float | None, bool], Any]:
        """Posteriors computed so far, by the given noise and whether the structure is uncertain, too."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Fields only: cached properties are computed again."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"new_task_prior": None}

    @property
    def n_tasks(self) -> int:
        return len(self.tasks_)

    @property
    def is_sum(self) -> bool:
        """Whether the predictor is a sum of terms, or has a common part."""
        return self.fitted_terms is not None or self.common_part is not None

    @property
    def weights(self) -> Any:
        """The tasks' weights in units of standardized targets, if the model is linear in its (mapped) inputs."""
        return None if self.coef_ is None else self.coef_.astype(float) / self.scale.std[:, None]


def saved_fields(kind: Any) -> Iterator[tuple[str, Field]]:
    """The fields of a state that a model file holds, with their keys; those of private fields begin with an underscore."""
    for each in fields(kind):
        if each.metadata.get("saved", True):
            yield each.metadata.get("key", each.name if each.name.endswith("_") else f"_{each.name}"), each


class FittedAttribute:
    """A field of the state as an attribute of the estimator; absent before a fit, and where the field is ``None``."""

    def __init__(self, name: str, holder: str):
        self.name, self.holder = name, holder

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        if model is None:
            return self
        state = vars(model).get(self.holder)
        value = getattr(state, self.name, None)
        if value is None:
            instead = OF_TERMS.get(self.name, "") if getattr(state, "fitted_terms", None) is not None else ""
            raise AttributeError(f"{type(model).__name__!r} object has no attribute {self.name!r}{instead}")
        return value

    def __set__(self, model: Any, value: Any) -> None:
        """Replace the state by one with another value of the field."""
        if self.holder not in vars(model):
            raise AttributeError(f"{self.name!r} belongs to a fitted model; this {type(model).__name__} is not fitted")
        setattr(model, self.holder, replace(vars(model)[self.holder], **{self.name: value}))

    def __delete__(self, model: Any) -> None:
        self.__set__(model, None)


def show_fields(cls: type, state: Any, holder: str) -> None:
    """Add an attribute to an estimator for each public field of the state in ``holder``."""
    for each in fields(state):
        if each.name.endswith("_"):
            setattr(cls, each.name, FittedAttribute(each.name, holder))


def with_state(model: Any, state: Any) -> Any:
    """A copy of an estimator that has this state."""
    twin = copy.copy(model)
    twin._state = state
    return twin
