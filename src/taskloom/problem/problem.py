"""The problem as a frozen value: it evaluates itself, its dual and its gap (docs/notation.md has the letters).

J(W, b, A) = sum_i v_i loss(y_i, <phi_i, w_t> + b_t) + alpha tr(A^+ W'W) + ridge ||W||^2 + F(A)
D(G)       = - sum_i v_i loss*(y_i, -G_i / v_i) - F*(Z1'Z1 / (4 alpha)) - ||Z2||^2 / (4 ridge) <= min J
             with Z1 + Z2 = Phi'G, and the G of each task adding up to 0 when there is an intercept
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from .._component import is_number
from ..features import Matrix, as_csr, densely, entries
from ..losses import Loss, RowLoss, as_loss
from ..structures import Structure, as_structure
from .dual_scaling import best_on_ray
from .intercepts import balanced, best_constants
from .memo import LOSS, STRUCTURE, without
from .observations import Observations
from .whole_rows import check_rows, row_gradients

Array = np.ndarray
# Between these sizes no square, and no product of the squares that a fit makes, leaves the range of double precision.
FEATURE_SIZES, TARGET_SIZES = (1e-110, 1e110), (1e-50, 1e50)


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a solver may look at.

    Parameters
    ----------
    features : array or sparse matrix of shape (n, r)
        ``Phi``, with ``K = Phi Phi'``; ``X`` itself for a linear kernel. Sparse features are kept by rows and never made dense.
    observations : Observations, or array of shape (n, T)
        What was seen; an array is ``Y`` with NaN where a task was not observed.
    loss, structure : component or name
    alpha : float > 0
        Strength of the structured norm.
    ridge : float >= 0
    fit_intercept : bool
    """

    features: Matrix
    observations: Observations
    loss: Loss = "squared"  # type: ignore[assignment]
    structure: Structure = None  # type: ignore[assignment]
    alpha: float = 0.01
    ridge: float = 0.0
    fit_intercept: bool = True
    _memo: dict = field(init=False, repr=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen; names become objects once, here
        sparse = issparse(self.features)
        set_field(self, "features", as_csr(self.features) if sparse else np.ascontiguousarray(self.features, dtype=float))
        if not isinstance(self.observations, Observations):
            set_field(self, "observations", Observations.from_wide(self.observations))
        set_field(self, "loss", as_loss(self.loss))
        self.loss.forget()
        set_field(self, "structure", as_structure(self.structure))
        if self.features.ndim != 2:
            raise ValueError(f"features must be a matrix, got shape {self.features.shape}")
        if not np.isfinite(entries(self.features)).all():
            raise ValueError("features must be finite, got NaN or infinity")
        _check_size(entries(self.features), "features", *FEATURE_SIZES)
        _check_size(self.observations.y, "y", *TARGET_SIZES)
        rows = int(self.observations.row.max(initial=-1)) + 1
        if not rows <= self.n_rows:
            raise ValueError(f"observations name row {rows - 1}, but features have {self.n_rows} rows")
        if not (is_number(self.alpha) and self.alpha > 0):
            raise ValueError(f"alpha must be a positive finite number, got alpha={self.alpha!r}")
        if not (is_number(self.ridge) and self.ridge >= 0):
            raise ValueError(f"ridge must be a finite number >= 0, got ridge={self.ridge!r}")
        self.structure.check_size(self.n_tasks)
        self.structure.check_tasks(self.n_tasks)
        if isinstance(self.loss, RowLoss):
            check_rows(self.loss, self.observations, self.fit_intercept)
        set_field(self, "_memo", {})  # what was computed once from the data: ``once`` fills it

    def __copy__(self) -> Problem:
        """With what was computed, which a pickle leaves out: it can be computed again, and may be larger than the data."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_memo": {}}

    def at(self, alpha: float) -> Problem:
        """The same problem at another strength; what was computed from the data alone is shared, not computed again."""
        if not (is_number(alpha) and alpha > 0):
            raise ValueError(f"alpha must be a positive finite number, got alpha={alpha!r}")
        twin = copy.copy(self)
        object.__setattr__(twin, "alpha", float(alpha))
        return twin

    def with_loss(self, loss: Loss) -> Problem:
        """The same data under another loss; what depends on rows, tasks and weights alone is shared."""
        twin = copy.copy(self)
        object.__setattr__(twin, "loss", loss)
        object.__setattr__(twin, "_memo", without(self._memo, [LOSS]))
        return twin

    def with_structure(self, structure: Structure) -> Problem:
        """The same data and loss under another structure; everything that was computed from the data is shared."""
        structure.check_size(self.n_tasks)
        structure.check_tasks(self.n_tasks)
        twin = copy.copy(self)
        object.__setattr__(twin, "structure", structure)
        object.__setattr__(twin, "_memo", without(self._memo, [STRUCTURE]))
        return twin

    def under(self, structure: Structure) -> Problem:
        """The same problem under its own structure, where that is asked for; else ``with_structure``."""
        return self if structure is self.structure else self.with_structure(structure)

    def unfolded(self) -> Problem:
        """Where the structure splits the weights into addends: the same problem with features and weights for each of them."""
        return (self.once("unfolded", self._unfolded) or self).at(self.alpha)

    def _unfolded(self) -> Problem | None:
        structure = self.structure.unfold(self.n_features, self.n_tasks)
        if structure is self.structure:
            return None  # a problem that remembered itself would outlive its last user
        copies = len(structure.members)  # type: ignore[attr-defined]
        return replace(self, features=np.hstack([densely(self.features)] * copies), structure=structure)

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, computed once for this problem and its copies at other strengths (see ``memo.py``)."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def keep(self, other: Problem, changed: Iterable[str]) -> None:
        """Take over what another problem has computed, less what has changed between the two."""
        self._memo.update(without(other._memo, changed))

    def known(self, key: str) -> Any:
        """What was computed once under this key, if it was."""
        return self._memo.get(key)

    @property
    def n_tasks(self) -> int:
        return self.observations.n_tasks

    @property
    def n_rows(self) -> int:
        return self.features.shape[0]

    @property
    def n_features(self) -> int:
        return self.features.shape[1]

    # --- primal -------------------------------------------------------------------------------------------------

    def predict(self, W: Array, b: Array) -> Array:
        """``z``: the prediction for each observation."""
        seen = self.observations
        n, T = self.n_rows, self.n_tasks
        if not W.any():
            return b[seen.task]
        if seen.y.size * 4 >= n * T:  # most places observed: one product, then pick
            Z = (self.features @ W).T if issparse(self.features) else W.T @ self.features.T  # T x n, as observations are
            if seen.full_rows == n:
                return (Z + b[:, None]).ravel()
            return Z.ravel()[seen.places(n)] + b[seen.task]
        if (stacked := self.stacked()) is not None:
            return (np.matmul(stacked, W.T[:, :, None])[..., 0] + b[:, None]).ravel()
        z, by_task = np.empty(seen.y.size), np.ascontiguousarray(W.T)
        for w, (part, phi) in zip(by_task, self.by_task(), strict=True):
            z[part] = phi @ w
        return z + b[seen.task]

    def by_task(self) -> list[tuple[slice, Matrix]]:
        """The place of each task among the observations, and its features (a view where its rows follow each other)."""
        return self.once("parts", self._by_task)

    def stacked(self) -> Array | None:
        """The features as ``T x m x r`` (a view), where every task has ``m`` rows of its own, one after the other."""
        return self.once("stacked", self._stacked)

    def _stacked(self) -> Array | None:
        m, ordered = int(self.observations.counts[0]), self.by_observation()
        if ordered is None or np.any(self.observations.counts != m):
            return None
        return ordered.reshape(self.n_tasks, m, self.n_features)

    def by_observation(self) -> Array | None:
        """Dense features with a row for each observation, sorted as they are: themselves, or one copy where rows were mixed.

        ``None`` where rows are seen more than once: then it would be more than a copy.
        """
        return self.once("by observation", self._by_observation)

    def _by_observation(self) -> Array | None:
        row = self.observations.row
        if issparse(self.features) or row.size > self.n_rows:
            return None
        return self.features if np.array_equal(row, np.arange(self.n_rows)) else self.features[row]

    def _by_task(self) -> list[tuple[slice, Matrix]]:
        starts, ordered = self.observations.starts.tolist(), self.by_observation()
        parts = [slice(starts[t], starts[t + 1]) for t in range(self.n_tasks)]
        if ordered is not None and ordered is not self.features:
            return [(part, ordered[part]) for part in parts]
        return [(part, self._rows(self.observations.row[part])) for part in parts]

    def _rows(self, rows: Array) -> Matrix:
        """Some rows of the features, without a copy where possible (even a slice of sparse rows is one)."""
        together = rows.size > 0 and rows[-1] - rows[0] == rows.size - 1 and bool(np.all(np.diff(rows) == 1))
        if together and rows.size == self.n_rows:
            return self.features
        return self.features[rows[0] : rows[-1] + 1] if together else self.features[rows]

    def loss_term(self, z: Array) -> float:
        """``sum_i v_i loss(y_i, z_i)``."""
        return float(self.observations.weight @ self.loss.value(self.observations.y, z))

    def seen_by_structure(self, W: Array) -> Array:
        """``R`` with ``R'R`` what the structure sees: ``W'W``, or ``WW'`` if it sits on the features."""
        return W.T if self.structure.on_features else W

    def primal(self, W: Array, b: Array, A: Array) -> float:
        """``J(W, b, A)`` from its definition; ``inf`` where ``W`` leaves the range of ``A``."""
        norm = self.alpha * self.structure.charge(self.seen_by_structure(W), A) + self.ridge * float(np.vdot(W, W))
        return self.loss_term(self.predict(W, b)) + norm + self.structure.value(A)

    def best_primal(self, W: Array, b: Array) -> tuple[float, Array]:
        """``min_A J(W, b, A)`` and the structure that attains it."""
        penalty, A = self.best_penalty(W)
        return self.loss_term(self.predict(W, b)) + penalty, A

    def best_penalty(self, W: Array) -> tuple[float, Array]:
        """``min_A alpha tr(A^+ W'W) + ridge ||W||^2 + F(A)`` and the structure that attains it."""
        A, penalty = self.structure.final_structure(np.sqrt(self.alpha) * self.seen_by_structure(W))
        return penalty + self.ridge * float(np.vdot(W, W)), A

    # --- dual ---------------------------------------------------------------------------------------------------

    def correlate(self, G: Array) -> Array:
        """``Z = Phi'G`` (``r x T``); column ``t`` adds up over the observations of task ``t``."""
        seen = self.observations
        n, T = self.n_rows, self.n_tasks
        if seen.y.size * 4 >= n * T:
            full = seen.scatter(G, n)
            return self._transposed @ full if issparse(self.features) else (full.T @ self.features).T
        if (stacked := self.stacked()) is not None:
            return np.matmul(G.reshape(T, 1, -1), stacked)[:, 0].T
        Z = np.empty((T, self.n_features))
        for t, (part, phi) in enumerate(self.by_task()):
            Z[t] = G[part] @ phi
        return Z.T

    @property
    def _transposed(self) -> Matrix:
        """``Phi'``; of sparse features it is a new object, so it is kept."""
        return self.once("transposed", lambda: self.features.T) if issparse(self.features) else self.features.T

    def dual_candidate(self, gradients: Array) -> Array:
        """``G = -v s`` from gradients of the loss, moved until the conjugate is finite and intercepts are balanced."""
        seen = self.observations
        if isinstance(self.loss, RowLoss):
            return -seen.weight * row_gradients(seen, gradients, self.fit_intercept)
        if self.loss.quadratic:  # any gradient has a finite conjugate
            return -seen.weight * (gradients - self.task_means(gradients)[seen.task] if self.fit_intercept else gradients)
        lower, upper = (np.broadcast_to(edge, gradients.shape) for edge in self.loss.gradient_bounds(seen.y))
        s = np.clip(gradients, lower, upper)
        if self.fit_intercept:
            s = balanced(seen, s, lower, upper)
        return -seen.weight * s

    def shifted_correlations(self, gradients: Array, G: Array, Z: Array) -> Array | None:
        """``Phi'G`` for a candidate ``G`` that differs from ``-v gradients``, whose ``Z`` is known, by one shift for each task.

        ``None`` where it does not: then nothing but the product itself will do.
        """
        if self.loss.quadratic and not self.fit_intercept:
            return Z  # nothing was shifted
        seen = self.observations
        step = G / seen.weight + gradients
        shift = step[seen.starts[:-1]]
        if np.any(np.abs(step - shift[seen.task]) > 1e-14 * np.abs(gradients).max(initial=0.0)):
            return None
        return Z + self.once("weights", lambda: self.correlate(seen.weight)) * shift

    def task_means(self, values: Array) -> Array:
        """The weighted mean over the observations of each task."""
        return self.observations.sum_by_task(self.observations.weight * values) / self.once("task weights", self._task_weights)

    def _task_weights(self) -> Array:
        return self.observations.sum_by_task(self.observations.weight)

    def dual(self, G: Array, W: Array | None = None, near: Array | None = None, Z: Array | None = None) -> float:
        """The best ``D(c G)`` over ``0 <= c <= 1``: a lower bound on the minimum of ``J``.

        ``W`` is the primal guess that says how a ridge splits ``Z``; ``near`` is the structure that goes with it. ``Z = Phi'G``
        is computed unless it is given.
        """
        seen = self.observations
        Z = self.correlate(G) if Z is None else Z
        ridge_part = 0.0
        if self.ridge > 0 and W is not None:
            Z2 = 2 * self.ridge * W
            ridge_part = float(np.vdot(Z2, Z2)) / (4 * self.ridge)
            Z = Z - Z2
        feature_side = self.structure.on_features or (self.structure.either_side and self.n_features < self.n_tasks)
        root = (Z.T if feature_side else Z) / (2 * np.sqrt(self.alpha))
        reach, conjugate = self.structure.ray_of_root(root, None if feature_side else near)
        gradients = -G / seen.weight

        def bound(c: float) -> float:
            loss = float(seen.weight @ self.loss.conjugate(seen.y, c * gradients))
            return -loss - conjugate(c * c) - c * c * ridge_part

        return best_on_ray(bound, reach)

    @property
    def scale(self) -> float:
        """The loss term of the best constant predictor (of the zero predictor when there is no intercept)."""
        return self.once("scale", self._scale)

    def _scale(self) -> float:
        constants = self.best_constants if self.fit_intercept else np.zeros(self.n_tasks)
        scale = self.loss_term(constants[self.observations.task])
        if not scale >= -1e-12 * (1 + float(np.abs(self.observations.y).max(initial=0.0))):
            raise ValueError(
                f"a loss must not be negative, got {scale:.3g} for constant predictions; add a function of y to it"
            )
        return max(scale, 0.0)

    @property
    def best_constants(self) -> Array:
        """The constant that minimises the loss of each task."""
        return self.once("constants", lambda: best_constants(self.loss, self.observations))

    @property
    def rounding_floor(self) -> float:
        """What rounding alone may leave of the loss where every target is constant: less than that is nothing."""
        return self.once("rounding_floor", self._rounding_floor)

    def _rounding_floor(self) -> float:
        seen = self.observations
        if not self.loss.of_differences:
            return 0.0
        off = np.finfo(float).eps * (4 + seen.counts[seen.task]) * np.abs(seen.y)
        return float(seen.weight @ self.loss.value(np.zeros_like(off), off))

    def relative(self, gap: float, size: float = 0.0) -> float:
        """``gap / scale``, and 0 when both are 0: the scale beside the rounding of targets, the gap beside that of ``size``."""
        if gap <= 0:
            return 0.0
        size = size if np.isfinite(size) else 0.0
        if self.scale <= self.rounding_floor and gap <= max(self.rounding_floor, 1e-12 * size):
            return 0.0
        return gap / self.scale if self.scale > 0 else np.inf


def _check_size(values: Array, name: str, least: float, most: float) -> None:
    """Refuse units in which squares would overflow or vanish; zeros alone are fine."""
    size = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if not (size == 0 or least <= size <= most):
        raise ValueError(
            f"the largest entry of {name} is {size:.3g} in size, and a fit needs it between {least:g} and {most:g}, where "
            "squares "
            f"neither overflow nor vanish; divide by {size:.0e}"
        )
