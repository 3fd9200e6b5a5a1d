"""The layers of a problem below its regularisation strengths: targets (design and loss) and model (targets and structure)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.sparse import issparse

from .._linalg import column_squares
from ..design import Design
from ..design.observations import Value
from ..design.shared_inputs import SharedInputs
from ..features.kernels import LinearFeatures, to_dense
from ..losses import Loss, RowLoss
from ..structures import Structure
from ..structures.term_sum import TermSum
from ..structures.terms import Term
from .intercepts import balanced, best_constants
from .whole_rows import check_rows, row_gradients

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Targets(Value):
    """A loss on the observations of a design; ``original`` is set for a reformulation of another ``Targets``."""

    design: Design
    loss: Loss
    original: Targets | None = None
    observations = property(attrgetter("design.observations"))

    def __post_init__(self) -> None:
        if isinstance(self.loss, RowLoss):
            check_rows(self.loss, self.observations, self.design.fit_intercept)

    def with_features(self, features: Array) -> Targets:
        """The same targets of other features of the same rows."""
        return Targets(self.design.with_features(features), self.loss, self.original)

    def loss_term(self, z: Array) -> float:
        """``sum_i v_i loss(y_i, z_i)``."""
        return float(self.observations.weight @ self.loss.value(self.observations.y, z))

    # --- the intercept-only model -------------------------------------------------------------------------------

    @cached_property
    def best_constants(self) -> Array:
        """The constant that minimises the loss of each task; 0 where there are no intercepts."""
        if not self.design.fit_intercept:
            return np.zeros(self.design.n_tasks)
        obs = self.observations
        return obs.task_means(obs.y) if self.loss.quadratic else best_constants(self.loss, obs)

    @cached_property
    def scale(self) -> float:
        """The loss term of the intercept-only model (of the zero predictor when there is no intercept)."""
        if self.original is not None:
            return self.original.scale
        scale = self.loss_term(self.best_constants[self.observations.task])
        if scale < -1e-12 * (1 + float(np.abs(self.observations.y).max(initial=0.0))):
            raise ValueError(
                f"a loss must not be negative, got {scale:.3g} for constant predictions; add a function of y to it"
            )
        return max(scale, 0.0)

    @cached_property
    def rounding_floor(self) -> float:
        """The loss that rounding alone may leave where all targets of a task are equal; a smaller loss counts as zero."""
        if self.original is not None:
            return self.original.rounding_floor
        obs = self.observations
        if not self.loss.of_differences:
            return 0.0
        off = np.finfo(float).eps * (4 + obs.counts[obs.task]) * np.abs(obs.y)
        return float(obs.weight @ self.loss.value(np.zeros_like(off), off))

    @cached_property
    def gradient_unit(self) -> float:
        """``scale``, or the loss of predicting zero where the intercept-only model fits up to rounding."""
        nothing = self.loss_term(np.zeros(self.observations.y.size))
        return self.scale if self.scale > 1e-24 * nothing else nothing or 1.0

    # --- other forms of the same targets ------------------------------------------------------------------------

    @property
    def shared_inputs(self) -> SharedInputs | None:
        """Under the squared loss: the decomposition of inputs shared by all tasks."""
        return self.design.shared_inputs if self.loss.quadratic else None

    @cached_property
    def in_eigenbasis(self) -> Targets | None:
        """Under the squared loss with shared inputs: the targets along the eigenvectors of the inputs."""
        if not self.loss.quadratic or self.design.eigenbasis is None:
            return None
        return Targets(self.design.along_eigenvectors, self.loss, original=self)

    @cached_property
    def in_task_span(self) -> Targets | None:
        """Of many tasks in the eigenbasis: the targets along directions of their span, which take the place of tasks."""
        if not self.loss.quadratic or self.design.task_span is None:
            return None
        return Targets(Design.of_diagonal(self.design.task_span.diagonal), self.loss, original=self)

    @cached_property
    def in_span(self) -> tuple[LinearFeatures, Targets]:
        """For sparse inputs with more columns than rows: the features of their kernel matrix, and the targets of these."""
        features = LinearFeatures.in_span(self.design.features, self.design.n_tasks)
        return features, self.with_features(features.phi)

    @cached_property
    def centering(self) -> Centering | None:
        """The centring of features and targets that are far from zero compared with their deviation.

        The squared loss needs none of its targets.
        """
        if not self.design.fit_intercept:
            return None
        obs, targets = self.observations, np.zeros(self.design.n_tasks)
        if self.loss.of_differences and not self.loss.quadratic:
            deviation = obs.sum_by_task(np.abs(obs.y - self.best_constants[obs.task])) / obs.counts
            targets = self.best_constants * np.any(np.abs(self.best_constants) > 10 * deviation)
        features = _feature_offset(self.design)
        return Centering(features, targets) if np.any(features) or np.any(targets) else None

    @cached_property
    def centred(self) -> Targets:
        """The targets after centring."""
        return self if self.centering is None else Targets(self.centering.apply(self.design), self.loss)

    # --- dual candidates ----------------------------------------------------------------------------------------

    def dual_candidate(self, gradients: Array) -> Array:
        """``G = -v s`` from gradients of the loss, moved to where the conjugate is finite and intercepts are balanced."""
        obs, fit_intercept = self.observations, self.design.fit_intercept
        if isinstance(self.loss, RowLoss):
            return -obs.weight * row_gradients(obs, gradients, fit_intercept)
        if self.loss.quadratic:  # any gradient has a finite conjugate
            return -obs.weight * (gradients - obs.task_means(gradients)[obs.task] if fit_intercept else gradients)
        lower, upper = (np.broadcast_to(edge, gradients.shape) for edge in self.loss.gradient_bounds(obs.y))
        s = np.clip(gradients, lower, upper)
        if fit_intercept:
            s = balanced(obs, s, lower, upper)
        return -obs.weight * s

    def shifted_correlations(self, gradients: Array, G: Array, Z: Array) -> Array | None:
        """``Phi'G`` for a candidate ``G`` that differs from ``-v gradients`` by one constant for each task.

        ``Z`` is ``Phi'(-v gradients)``. ``None`` where the difference is not a constant: then ``Phi'G`` has to be computed.
        """
        if self.loss.quadratic and not self.design.fit_intercept:
            return Z
        obs = self.observations
        step = G / obs.weight + gradients
        shift = step[obs.starts[:-1]]
        if np.any(np.abs(step - shift[obs.task]) > 1e-14 * np.abs(gradients).max(initial=0.0)):
            return None
        return Z + self.design.weight_correlations * shift


@dataclass(frozen=True, eq=False)
class Centering:
    """Constant offsets of the features, and of the targets under losses of ``z - y``, where these are far from zero.

    With intercepts the centred problem is equivalent, and better conditioned.
    """

    features: Array  # offset of every row
    targets: Array  # offset of the targets of each task

    def apply(self, design: Design) -> Design:
        """The centred design."""
        obs = design.observations
        features = design.features - self.features if np.any(self.features) else design.features
        return Design.build(features, obs.with_targets(obs.y - self.targets[obs.task]), design.fit_intercept)

    def to_inner(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights and intercepts for the centred data."""
        return W, b + self.features @ W - self.targets

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights and intercepts for the original data."""
        return W, b - self.features @ W + self.targets


def _feature_offset(design: Design) -> Array:
    """The mean of the features, if it is large compared with their deviation, else 0. Sparse features are never centred."""
    if issparse(design.features):
        return np.zeros(design.n_features)
    observed = np.bincount(design.observations.row, minlength=design.n_rows) > 0
    seen = design.features if observed.all() else design.features[observed]
    mean = seen.mean(axis=0)
    squares = column_squares(seen) / len(seen)  # cancellation occurs only where the offset is used anyway
    deviation = np.sqrt(np.maximum(squares - mean**2, 0.0))
    return mean * np.any(np.abs(mean) > 3 * deviation)


@dataclass(frozen=True, eq=False)
class Model(Value):
    """A predictor that is a sum of terms (usually one), and the structure that penalises their weights."""

    targets: Targets
    structure: Structure

    def __post_init__(self) -> None:
        design = self.targets.design
        self.structure.check_size(design.n_tasks)
        self.structure.check_tasks(design.n_features if self.structure.on_features else design.n_tasks)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the predictor: columns of the features, and the structure variable on their weights."""
        return self.structure.terms(self.targets.design.n_features, self.targets.design.n_tasks)

    @cached_property
    def stacked(self) -> Model | None:
        """If several terms share columns: the model with separate features and weights for each term, else ``None``."""
        if len(self.terms) == 1 or self.structure.is_sum:
            return None
        features = to_dense(self.targets.design.features)
        blocks = [features[:, term.columns] for term in self.terms]
        variables, widths = [term.variable for term in self.terms], [block.shape[1] for block in blocks]
        return Model(self.targets.with_features(np.hstack(blocks)), TermSum(variables, widths, self.targets.design.n_tasks))

    @cached_property
    def centred(self) -> Model:
        """The model of the centred data."""
        return Model(self.targets.centred, self.structure)

    @cached_property
    def in_eigenbasis(self) -> Model | None:
        """The model along the eigenvectors of shared inputs, under the squared loss."""
        targets = self.targets.in_eigenbasis
        return None if targets is None else Model(targets, self.structure)

    @cached_property
    def in_task_span(self) -> Model | None:
        """The model along directions of the span of many tasks, where its structure is a function of these alone."""
        span = self.targets.design.task_span
        structure = None if span is None else self.structure.in_task_span(*span.basis.shape)
        targets = None if structure is None else self.targets.in_task_span
        return None if targets is None or structure is None else Model(targets, structure)

    @cached_property
    def penalty_at_zero(self) -> tuple[float, Any]:
        """``min_A F(A)``, the penalty of weights of zero, and the structure that attains it."""
        design = self.targets.design
        zero = np.zeros((design.n_features, design.n_tasks))
        A, penalty = self.structure.final_structure(zero.T if self.structure.on_features else zero)
        return penalty, A
