"""What a fit leaves, as one value: predictions, readings, new tasks and model files are functions of it.

An estimator holds its parameters and, once it was fitted, a :class:`FittedState`; its fitted attributes (``coef_``, ``tasks_``,
...) are the fields of that state whose names end in an underscore. A fit writes nothing before it has made the whole state.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..design import Observations
from ..features import KernelFeatures, LinearFeatures, SumFeatures, kernel_function
from ..problem import Problem
from ..problem.solution import Solution
from .inspection.contributions import contributions
from .target_encoding import TargetScale
from .validation import Columns, Targets, described, double

Array = np.ndarray
Features = LinearFeatures | KernelFeatures | SumFeatures


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel of a model with its parameters, or several kernels."""

    kernel: Any
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1

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
        X, Z = double(X), double(Z)
        if self.several:
            return [kernel_function(k, **self.parameters)(X, Z) for k in self.kernel]
        return kernel_function(self.kernel, **self.parameters)(X, Z)


@dataclass(frozen=True, eq=False)
class Training:
    """What the posterior of a squared-loss fit needs of its data: references to features and targets, nothing computed.

    A table in which every row has every task needs neither rows nor tasks to be listed, and weights that are the same for all
    rows of a task are kept once: for 100 tasks that is a quarter of the observations of a problem.
    """

    inputs: Any
    features: LinearFeatures | KernelFeatures
    row: Array | None
    task: Array | None
    y: Array
    weight: Array
    settings: dict[str, Any]  # of the problem: loss, structure, alpha, ridge, fit_intercept
    W: Array
    b: Array
    A: Array
    G: Array | None = None  # the dual point, which explain reads; a model file holds what was made of it

    @classmethod
    def of(cls, inputs: Any, features: Any, problem: Problem, solution: Solution) -> Training:
        seen = problem.observations
        complete = seen.grouping.full_rows == problem.n_rows
        first = seen.weight[seen.starts[:-1]]
        weight = first if np.array_equal(first[seen.task], seen.weight) else seen.weight
        settings = {name: getattr(problem, name) for name in ("loss", "structure", "alpha", "ridge", "fit_intercept")}
        row, task = (None, None) if complete else (seen.row, seen.task)
        return cls(inputs, features, row, task, seen.y, weight, settings, solution.W, solution.b, solution.A, solution.G)

    @property
    def observations(self) -> Observations:
        T, row, task, weight = len(self.b), self.row, self.task, self.weight
        if row is None or task is None:
            n = self.y.size // T
            row, task = np.tile(np.arange(n), T), np.repeat(np.arange(T), n)
        return Observations(row, task, self.y, weight[task] if len(weight) < len(self.y) else weight, T)

    def problem(self) -> Problem:
        """The problem of the fit, posed again."""
        return Problem(self.features.phi, self.observations, **self.settings)

    def pulled_towards(self) -> Array:
        """What each task's data pull it towards, in the coordinates of the inputs."""
        assert self.G is not None
        return self.features.coef(self.problem().correlate(self.G))  # type: ignore[union-attr]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data that have passed the door: what a solver needs, and what a fitted model must know about them."""

    columns: Columns
    targets: Targets
    inputs: Any
    features: Features
    problem: Problem
    scale: TargetScale
    kernel: Kernel

    def described(self) -> dict[str, Any]:
        """The fields of a state that the data alone decide."""
        return described(self.columns, self.targets) | {"scale": self.scale, "kernel": self.kernel}

    def deciding(self, values: Array) -> FittedState:
        """A state that knows decision values, and nothing of where they come from: a fold of cross-validation has them."""
        return FittedState(**self.described(), dtype=values.dtype, intercept_=np.zeros(self.problem.n_tasks), decided=values)


# Of a field that a model file does not hold under its own name: the parameters of the estimator say it, or nobody asks.
NOT_SAVED = {"saved": False}


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedState(Columns, Targets):
    """A fitted model; ``None`` stands for what it does not have.

    In single precision where the inputs were and the numbers fit it (``dtype``). ``scale`` undoes the scaling of targets.
    """

    scale: TargetScale
    kernel: Any = field(default=None, metadata=NOT_SAVED)  # a Kernel; a fold of cross-validation may do without
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
    inner_products: Any = None  # of the tasks' functions, in fitted units, where the kernel is not linear
    # the structure
    structure_: Any = None
    feature_structure_: Any = None
    learned: Any = None  # a copy of what was fitted: the parameter may be set anew
    shared_coef_: Array | None = None
    own_coef_: Array | None = None
    outlier_tasks_: Array | None = None
    term_structures: list[Array] | None = field(default=None, metadata=NOT_SAVED)  # of a sum on the same features
    added_tasks_: list | None = None
    # how it was found
    certificate_: Any = None
    n_iter_: int | None = None
    history_: dict[str, Array] | None = None
    device_: str | None = None
    # what explain reads: contributions of tasks to each other, or what they are made of when somebody asks
    pulls: Any = None
    dual: Array | None = field(
        default=None, metadata=NOT_SAVED
    )  # what each task's data pull it towards, in the coordinates of coef_ or dual_coef_
    # what return_std and partial_fit need
    training: Any = field(default=None, metadata=NOT_SAVED)
    training_left_out: bool = field(default=False, metadata=NOT_SAVED)  # of the file, or because it is on a cluster
    statistics: Any = field(default=None, metadata=NOT_SAVED)
    decided: Array | None = field(
        default=None, metadata=NOT_SAVED
    )  # decision values of the only inputs that will come: a fold of cross-validation
    joining: Any = field(default=None, metadata=NOT_SAVED)  # how tasks join those of the fit, once one did

    @cached_property
    def contributions(self) -> Any:
        """What the data of each task (rows) contribute to each task of the fit, as ``explain`` reads it."""
        return contributions(self)

    @cached_property
    def posteriors(self) -> dict[tuple[float | None, bool], Any]:
        """Those that were asked for, by the noise that was given and whether the structure is uncertain, too."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Fields only: what was derived from them can be derived again."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"joining": None}

    @property
    def n_tasks(self) -> int:
        return len(self.tasks_)

    @property
    def weights(self) -> Any:
        """The tasks' weights in units of their scaled targets, if the model is linear in its (mapped) inputs."""
        return None if self.coef_ is None else self.coef_.astype(float) / self.scale.spread[:, None]


def saved_fields(kind: Any) -> Iterator[tuple[str, Field]]:
    """The fields of a state that a model file holds, with their names there: private ones begin with an underscore."""
    for each in fields(kind):
        if each.metadata.get("saved", True):
            yield (each.name if each.name.endswith("_") else f"_{each.name}"), each


class FittedAttribute:
    """A field of the state as an attribute of the estimator; before a fit, or where a model has none, there is no attribute."""

    def __init__(self, name: str, holder: str):
        self.name, self.holder = name, holder

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        if model is None:
            return self
        value = getattr(vars(model).get(self.holder), self.name, None)
        if value is None:
            raise AttributeError(f"{type(model).__name__!r} object has no attribute {self.name!r}")
        return value

    def __set__(self, model: Any, value: Any) -> None:
        """Put a state with another value in place of the one that is there."""
        if self.holder not in vars(model):
            raise AttributeError(f"{self.name!r} belongs to a fitted model; this {type(model).__name__} is not fitted")
        setattr(model, self.holder, replace(vars(model)[self.holder], **{self.name: value}))

    def __delete__(self, model: Any) -> None:
        self.__set__(model, None)


def show_fields(cls: type, state: Any, holder: str) -> None:
    """Give an estimator an attribute for each public field of what its fit leaves in ``holder``."""
    for each in fields(state):
        if each.name.endswith("_"):
            setattr(cls, each.name, FittedAttribute(each.name, holder))


def with_state(model: Any, state: Any) -> Any:
    """A copy of an estimator that has this state."""
    twin = copy.copy(model)
    twin._state = state
    return twin
