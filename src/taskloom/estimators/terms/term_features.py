"""Features and descriptors of a term, as maps that a fit determines and predictions apply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..._linalg import psd_eigh
from ...design.levels import FEW_COLUMNS, joined
from ...features.approximate import Approximation, Landmarks, diagonal
from ...features.kernels import KernelFeatures, kernel_function, row_squares, to_dense
from ...tables.layout import code_labels

Array = np.ndarray
MAX_EXACT_ROWS = 5000  # of a kernel; beyond that it has landmarks
LANDMARKS = 400
ROUNDING = 1e-10  # of ``k(x, x)``, up to which it is inside of the features


@dataclass(frozen=True, eq=False)
class KernelMap:
    """The features of a kernel that is neither linear nor constant: exact on the rows of the fit, or from landmarks."""

    kernel: Any
    points: Array
    root: Array  # features are k(x, points) root
    exact: bool
    parameters: dict[str, Any] = field(default_factory=dict)  # gamma, degree, coef0 of a kernel by name

    @classmethod
    def of(cls, X: Array, kernel: Any, parameters: dict[str, Any] | None = None, seed: int = 0) -> KernelMap:
        exact, given = len(X) <= MAX_EXACT_ROWS, parameters or {}
        if exact:
            features = KernelFeatures(to_dense(kernel_function(kernel, **given)(X, X)))
            return cls(kernel, X, features.U * features.inverse_root, True, given)
        sample = X[np.random.default_rng(seed).choice(len(X), LANDMARKS, replace=False)]
        drawn: Any = Approximation("nystroem", LANDMARKS, kernel, given).draw(sample, seed)[0]
        assert isinstance(drawn, Landmarks)
        return cls(kernel, drawn.points, drawn.root, False, given)

    @property
    def function(self) -> Any:
        """``k(X, Z)``."""
        return kernel_function(self.kernel, **self.parameters)

    def __call__(self, X: Array) -> Array:
        return to_dense(self.function(X, self.points)) @ self.root

    def extended(self, X: Array) -> KernelMap:
        """With more features, at the end, so that these are all of the kernel at more points, too."""
        phi, K = self(X), to_dense(self.function(X, X))
        s, U = psd_eigh(K - phi @ phi.T)
        kept = s > ROUNDING * max(float(np.diag(K).max()), np.finfo(float).tiny)
        more = U[:, kept] / np.sqrt(s[kept])
        root = np.block([[self.root, -self.root @ (phi.T @ more)], [np.zeros((len(X), self.root.shape[1])), more]])
        return replace(self, points=np.vstack([self.points, X]), root=root)

    def outside(self, X: Array) -> Array:
        """The part of ``k(x, x)`` that the features of each row do not have."""
        size = diagonal(self.function, X)
        rest = np.maximum(size - row_squares(self(X)), 0.0)
        return np.where(rest < ROUNDING * size, 0.0, rest)


@dataclass(frozen=True, eq=False)
class InputMap:
    """``phi(x)`` from the columns of a term: centred inputs, a constant, or the features of a kernel."""

    columns: tuple[int, ...]
    mean: Array | None = None  # of linear inputs
    kernel: KernelMap | None = None
    constant: float = 0.0  # the last feature, of an intercept; 0 is none

    @property
    def width(self) -> int:
        """The number of features."""
        inputs = self.kernel.root.shape[1] if self.kernel is not None else 0 if self.mean is None else len(self.mean)
        return inputs + bool(self.constant)

    def __call__(self, X: Array) -> Array:
        """``n x r``, from the columns of the term."""
        parts = []
        if self.kernel is not None:
            parts.append(self.kernel(X))
        elif self.mean is not None and X.shape[1] > FEW_COLUMNS:
            parts.append(X - self.mean)
        elif self.mean is not None:
            parts += [column - mean for column, mean in zip(X.T, self.mean, strict=True)]
        if self.constant:
            parts.append(np.full(len(X), float(self.constant)))
        return joined(parts)

    def extended(self, X: Array) -> InputMap:
        """With all features of its kernel at more points; the constant stays the last."""
        return self if self.kernel is None else replace(self, kernel=self.kernel.extended(X))

    def same_weights(self, W: Array, before: InputMap) -> Array:
        """The weights of a function (a column for each) in these features, from those in the features of ``before``."""
        if self.kernel is None or before.kernel is None:
            return W
        end, more = before.kernel.root.shape[1], self.kernel.root.shape[1] - before.kernel.root.shape[1]
        return np.insert(W, [end] * more, 0.0, axis=0)

    def outside(self, X: Array) -> Array | None:
        """The part of ``k(x, x)`` outside of the features; ``None`` without a kernel."""
        return None if self.kernel is None else self.kernel.outside(X)


@dataclass(frozen=True, eq=False)
class DescriptorMap:
    """Descriptors of levels: numbers as they are, categories one-hot, then perhaps the features of a kernel."""

    columns: tuple[int, ...]
    categories: tuple[tuple[str, ...] | None, ...]  # of each column, in order; None for numbers
    kernel: KernelMap | None = None

    @classmethod
    def of(cls, columns: tuple[int, ...], values: list[Array], kernel: Any) -> DescriptorMap:
        """From the descriptors of the levels of a fit, one array for each column."""
        plain = cls(columns, tuple(map(_categories, values)))
        return plain if kernel is None else cls(columns, plain.categories, KernelMap.of(plain(values), kernel))

    @property
    def n_encoded(self) -> int:
        """The number of columns of numbers and indicators."""
        return sum(1 if known is None else len(known) for known in self.categories)

    @property
    def width(self) -> int:
        """The number of descriptors."""
        return self.n_encoded if self.kernel is None else self.kernel.root.shape[1]

    def __call__(self, values: list[Array]) -> Array:
        described = self._numbers(values)
        return described if self.kernel is None else self.kernel(described)

    def outside(self, values: list[Array]) -> Array | None:
        """The part of ``k(u, u)`` outside of the features; ``None`` without a kernel."""
        return None if self.kernel is None else self.kernel.outside(self._numbers(values))

    def _numbers(self, values: list[Array]) -> Array:
        parts = [
            np.asarray(value, dtype=float)[:, None] if known is None else _one_hot(value, known)
            for value, known in zip(values, self.categories, strict=True)
        ]
        return np.hstack(parts)


def _categories(values: Array) -> tuple[str, ...] | None:
    """The distinct categories in order, which any text is (``"01"``, too); ``None`` for numbers."""
    if any(isinstance(value, str) for value in values.tolist()):
        return tuple(sorted(set(map(str, values.tolist()))))
    return None


def _one_hot(values: Array, known: tuple[str, ...]) -> Array:
    """An indicator for each category; zeros for one that was not seen."""
    codes = code_labels(_objects(map(str, values.tolist())), _objects(known))
    indicators = np.zeros((len(codes), len(known)))
    rows = np.flatnonzero(codes >= 0)
    indicators[rows, codes[rows]] = 1.0
    return indicators


def _objects(texts: Iterable[str]) -> Array:
    return np.fromiter(texts, dtype=object)
