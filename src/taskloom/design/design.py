"""The data of a problem as a value: features, groupings, targets and weights, and their decompositions, each computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import diags_array, issparse

from .._time_limit import check_time
from ..features.kernels import Matrix, as_csr, entries, weighted_gram
from . import shared_inputs, smooth_loss_tasks, stacked_inputs
from .input_spectrum import InputSpectrum, MeanGram
from .inputs import Inputs
from .observations import Observations, Value
from .shared_inputs import DiagonalInputs, Eigenbasis, SharedInputs, SparseSharedInputs
from .table_with_gaps import TableWithGaps
from .task_data import Grams
from .task_span import TaskSpan

Array = np.ndarray
# Within these ranges no product of squares in a fit overflows or vanishes in double precision.
FEATURE_SIZES, TARGET_SIZES = (1e-110, 1e110), (1e-50, 1e50)


@dataclass(frozen=True, eq=False)
class Design(Value):
    """Features, observations, and whether every task has an intercept; independent of loss and structure.

    Derived quantities are cached properties. Problems that differ only in loss, structure or regularisation strength share
    the design, and so these quantities.
    """

    inputs: Inputs
    observations: Observations
    fit_intercept: bool = True
    diagonal: DiagonalInputs | None = None  # the decomposition of diagonal features
    features: Matrix = field(init=False)
    n_rows: int = field(init=False)
    n_features: int = field(init=False)
    n_tasks: int = field(init=False)

    def __post_init__(self) -> None:
        held = self.inputs
        self.__dict__.update(
            features=held.features, n_rows=held.n_rows, n_features=held.n_features, n_tasks=self.observations.n_tasks
        )

    @classmethod
    def build(cls, features: Matrix, observations: Observations, fit_intercept: bool) -> Design:
        """Validate features and targets."""
        features = as_csr(features) if issparse(features) else rows_in_place(features)
        if features.ndim != 2:
            raise ValueError(f"features must be a matrix, got shape {features.shape}")
        if not np.isfinite(entries(features)).all():
            raise ValueError("features must be finite, got NaN or infinity")
        check_size(entries(features), "features", *FEATURE_SIZES)
        check_size(observations.y, "y", *TARGET_SIZES)
        rows = int(observations.row.max(initial=-1)) + 1
        if rows > features.shape[0]:
            raise ValueError(f"observations name row {rows - 1}, but features have {features.shape[0]} rows")
        return cls(Inputs(features, observations.grouping), observations, fit_intercept)

    def with_features(self, features: Matrix) -> Design:
        """The same observations of other features of the same rows."""
        return Design.build(features, self.observations, self.fit_intercept)

    def with_observations(self, observations: Observations) -> Design:
        """Other targets and weights of the same rows and tasks; layouts of the features are shared."""
        return Design(self.inputs, observations, self.fit_intercept)

    @cached_property
    def weight_correlations(self) -> Array:
        """``Phi'v`` for each task (``r x T``): its weighted sum of features."""
        return self.inputs.correlate(self.observations.weight)

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """The means of the features (``r x T``) and of the targets; 0 where there are no intercepts."""
        if not self.fit_intercept:
            return np.zeros((self.n_features, self.n_tasks)), np.zeros(self.n_tasks)
        obs = self.observations
        return self.weight_correlations / obs.task_weights, obs.task_means(obs.y)

    mean_gram = cached_property(MeanGram)

    # --- the squared loss ---------------------------------------------------------------------------------------

    separable_weights = cached_property(shared_inputs.separable_weights)

    @cached_property
    def shared_inputs(self) -> SharedInputs | None:
        """If all tasks have the same rows: one decomposition for all tasks, structures and regularisation strengths."""
        if self.diagonal is not None or self.separable_weights is None:
            return self.diagonal
        return (SparseSharedInputs if issparse(self.features) else SharedInputs)(self, *self.separable_weights)

    @cached_property
    def eigenbasis(self) -> Eigenbasis | None:
        """Shared inputs along their eigenvectors, with rows and intercepts eliminated."""
        return None if issparse(self.features) or self.shared_inputs is None else self.shared_inputs.eigenbasis

    @cached_property
    def along_eigenvectors(self) -> Design:
        """The design in the eigenbasis: diagonal features, one row for each direction, no intercepts."""
        assert self.eigenbasis is not None
        return Design.of_diagonal(self.eigenbasis.diagonal)

    @classmethod
    def of_diagonal(cls, inputs: DiagonalInputs) -> Design:
        """The design of diagonal features, with one row for each, and no intercepts."""
        r, T = inputs.targets.shape
        y = (inputs.rows / np.sqrt(inputs.c)[:, None]).ravel()
        seen = Observations(np.tile(np.arange(r), T), np.repeat(np.arange(T), r), y, np.repeat(inputs.c, r), T)
        return cls(Inputs(diags_array(inputs.d, format="csr"), seen.grouping), seen, False, inputs)

    @cached_property
    def task_span(self) -> TaskSpan | None:
        """For diagonal features of many more tasks than these, of equal weight: the span of the targets of the tasks."""
        return None if self.diagonal is None else TaskSpan.of(self.diagonal)

    stacked_tasks = cached_property(stacked_inputs.stacked_tasks)

    @cached_property
    def task_data(self) -> tuple[Sequence[stacked_inputs.TaskStack | TableWithGaps], InputSpectrum]:
        """The tasks for Newton's method on a factor: a table with gaps, or stacks."""
        if not TableWithGaps.suits(self):
            return self.stacked_tasks
        table = TableWithGaps.of(self)
        return [table], table.spectrum

    @cached_property
    def task_data_single(self) -> list[stacked_inputs.TaskStack | TableWithGaps] | None:
        """``task_data`` in single precision, where that is safe and saves time."""
        data = self.task_data[0]
        return self.stacked_single if not TableWithGaps.suits(self) else stacked_inputs.single_precision(data)

    @cached_property
    def stacked_single(self) -> list[stacked_inputs.TaskStack | TableWithGaps] | None:
        """The stacked tasks in single precision, where that is safe and saves time."""
        return stacked_inputs.single_precision(self.stacked_tasks[0])

    @cached_property
    def stacked_grams(self) -> list[Array]:
        """``X_t'X_t`` of the stacked tasks."""
        return [
            block.G if isinstance(block, Grams) else np.matmul(block.X.transpose(0, 2, 1), block.X)
            for block in self.stacked_tasks[0]
        ]

    @cached_property
    def task_grams(self) -> Array:
        """Twice ``Phi_t' V_t Phi_t`` of every task with its intercept eliminated (``T x r x r``)."""
        return self.weighted_grams(2 * self.observations.weight)

    def weighted_grams(self, h: Array, damping: Array | float = 0.0) -> Array:
        """``Phi_t' H_t Phi_t`` of every task, with its (damped) intercept eliminated."""
        grams = np.empty((self.n_tasks, self.n_features, self.n_features))
        total = self.observations.sum_by_task(h) + damping
        for t, (place, phi) in enumerate(self.inputs.by_task):
            check_time()
            grams[t] = weighted_gram(phi, h[place])
            if self.fit_intercept:
                mean = h[place] @ phi
                grams[t] -= np.outer(mean, mean) / total[t]
        return grams

    @cached_property
    def normal_equations(self) -> tuple[Array, Array, Array]:
        """Curvatures ``h`` of the squared loss, their sums over tasks, and the right-hand side ``Phi'(h y)``, centred."""
        obs = self.observations
        h = 2 * obs.weight
        total, hy = 2 * obs.task_weights, h * obs.y
        if self.fit_intercept:
            hy = hy - h * (obs.sum_by_task(hy) / total)[obs.task]
        return h, total, self.inputs.correlate(hy)

    @cached_property
    def centred_svd(self) -> tuple[Array, Array, Array]:
        """The singular value decomposition of the features, less their mean where there are intercepts."""
        phi = self.features
        return np.linalg.svd(phi - phi.mean(axis=0) if self.fit_intercept else phi, full_matrices=False)

    # --- smooth losses ------------------------------------------------------------------------------------------

    smooth_loss_tasks = cached_property(smooth_loss_tasks.smooth_loss_tasks)


def rows_in_place(features: Array) -> Array:
    """As doubles, each row in one place; rows of a wider table stay where they are."""
    features = np.asarray(features, dtype=float)
    in_place = (
        features.ndim == 2
        and features.strides[1] == features.itemsize
        and features.strides[0] >= features.shape[1] * features.itemsize
    )
    return features if in_place else np.ascontiguousarray(features)


def check_size(values: Array, name: str, least: float, most: float) -> None:
    """Raise if squares of the values would overflow or vanish; all zeros are allowed."""
    size = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if not (size == 0 or least <= size <= most):
        raise ValueError(
            f"the largest entry of {name} is {size:.3g} in size, and a fit needs it between {least:g} and {most:g}, where "
            f"squares neither overflow nor vanish; divide by {size:.0e}"
        )
