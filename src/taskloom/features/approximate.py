"""Kernel approximation: features with ``Phi Phi'`` close to ``K``, by Nystroem's method or random Fourier features.

The cost is linear in the number of rows. The map depends only on a uniform sample of the rows, which is the same for rows that
come in blocks and for rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import issparse
from scipy.sparse import vstack as sparse_vstack
from sklearn.base import clone
from sklearn.utils import check_random_state, gen_batches

from .._component import warn
from .kernels import KernelFeatures, LinearFeatures, Matrix, kernel_function, to_dense

Array = np.ndarray
TARGET = 0.05  # relative error of the kernel for n_components="auto"
FEWEST, MOST = 64, 5000  # smallest and largest number of features for a target error
PROBE = 1000  # rows on which the error is measured
CANDIDATES = 20  # rows per landmark from which leverage scores sample
BLOCK = 1 << 23  # entries of the feature matrix that are computed at a time


class FeatureMap(Protocol):
    """A fitted transformer of scikit-learn, or the like."""

    def transform(self, X: Matrix) -> Array: ...


class Landmarks:
    """Nystroem features: an orthonormal basis of the span of the kernel functions at some rows.

    ``phi(x) = k(x, points) U / sqrt(s)`` with ``K(points, points) = U diag(s) U'``. Predictors have
    the same norm as in the reproducing kernel Hilbert space of the exact kernel. Like scikit-learn's ``Nystroem``, for kernels
    ``k(X, Z)`` of matrices; eigenvalues below rounding are dropped.
    """

    def __init__(self, points: Matrix, kernel: Any, parameters: dict[str, float]):
        self.points, self.kernel, self.parameters = points, kernel, parameters
        basis = KernelFeatures(to_dense(self._function(points, points)))
        self.root = basis.U * basis.inverse_root

    def _function(self, X: Matrix, Z: Matrix) -> Array:
        return kernel_function(self.kernel, **self.parameters)(X, Z)

    def transform(self, X: Matrix) -> Array:
        """The features of other rows."""
        return to_dense(self._function(X, self.points)) @ self.root


class MappedFeatures(LinearFeatures):
    """The features of a map; the model is linear in them."""

    def __init__(self, feature_map: FeatureMap, phi: Array, error: float | None = None):
        super().__init__(phi)
        self.map, self.error = feature_map, error

    def project(self, X: Matrix) -> Matrix:
        return super().project(mapped(self.map, X))


def pieces(n_rows: int, width: int) -> Iterator[slice]:
    """Blocks of rows."""
    return gen_batches(max(n_rows, 1), max(BLOCK // max(width, 1), 1))


def mapped(feature_map: FeatureMap, X: Matrix) -> Array:
    """The features of some rows, in double precision."""
    phi = to_dense(feature_map.transform(X.astype(np.float64, copy=False)))
    if not (phi.ndim == 2 and phi.shape[0] == X.shape[0] and bool(np.isfinite(phi).all())):
        raise ValueError(f"approximation={feature_map!r} must give a finite row of features for each row of X")
    return phi


class Reservoir:
    """A uniform sample of streamed rows, in random order: each row gets a random key, and the smallest keys are kept."""

    def __init__(self, size: int, random_state: Any):
        self.size = size
        self.rng = check_random_state(0 if random_state is None else random_state)  # fits are deterministic by default
        self.seed = self.rng.randint(1 << 31)  # for other random numbers, independent of the number of rows
        self.keys = np.zeros(0)
        self.kept: Any = None

    def add(self, X: Matrix) -> None:
        keys = self.rng.random_sample(X.shape[0])
        if len(self.keys) == self.size:
            X, keys = X[keys < self.keys[-1]], keys[keys < self.keys[-1]]
        order = np.argsort(np.concatenate([self.keys, keys]), kind="stable")[: self.size]
        if self.kept is None:
            self.kept = X[order]
        elif len(keys):
            both = sparse_vstack([self.kept, X], format="csr") if issparse(X) else np.vstack([self.kept, X])
            self.kept = both[order]
        self.keys = np.concatenate([self.keys, keys])[order]


@dataclass(frozen=True, eq=False)
class Approximation:
    """The kind of map (``"nystroem"``, ``"leverage"``, ``"fourier"`` or a transformer), and its number of features or error."""

    kind: Any
    n_components: Any
    kernel: Any
    parameters: dict[str, Any]

    def __post_init__(self) -> None:
        named = self.kernel if isinstance(self.kernel, str) else None
        if isinstance(self.kernel, (list, tuple)):
            raise ValueError(f"approximation={self.kind!r} takes one kernel, got a list of them")
        if named == "precomputed":
            raise ValueError(
                f'approximation={self.kind!r} maps rows of X, which kernel="precomputed" does not have; pass a kernel by name '
                "or as k(X, Z), or approximation=None"
            )
        if named == "linear" and isinstance(self.kind, str):
            raise ValueError(
                f'approximation={self.kind!r} has nothing to approximate: kernel="linear" is exact, with one feature a column; '
                "choose another kernel, or approximation=None"
            )
        if self.kind == "fourier" and named != "rbf":
            raise ValueError(
                f'approximation="fourier" is for kernel="rbf", got kernel={self.kernel!r}; use approximation="nystroem"'
            )

    @property
    def target(self) -> float | None:
        """The target for the relative error of the kernel; ``None`` where the number of features is given."""
        if self.n_components == "auto":
            return TARGET
        return None if isinstance(self.n_components, (int, np.integer)) else float(self.n_components)

    @property
    def sample_size(self) -> int:
        """The number of rows that the map is computed from."""
        if not isinstance(self.kind, str):
            return 10 * PROBE
        if self.target is not None:
            return MOST + PROBE
        return {"nystroem": 1, "leverage": CANDIDATES, "fourier": 0}[self.kind] * int(self.n_components) or 1

    def draw(self, sample: Matrix, seed: int) -> tuple[FeatureMap, float | None]:
        """The map from a uniform sample of the rows, and the error of the kernel if it has a target."""
        sample = sample.astype(np.float64, copy=False)
        if not isinstance(self.kind, str):
            return clone(self.kind).fit(sample), None
        make = self._fourier if self.kind == "fourier" else self._landmarks
        if self.target is None:
            return make(sample, int(self.n_components), seed), None
        return self._grow(make, sample, seed)

    def _grow(self, make: Callable, sample: Matrix, seed: int) -> tuple[FeatureMap, float]:
        """Increase the number of features by factors of about 1.4 until the error on a probe meets the target."""
        target, number = self.target, FEWEST
        assert target is not None
        probe = sample[-PROBE:]
        most = MOST if self.kind == "fourier" else min(MOST, sample.shape[0])
        K = to_dense(kernel_function(self.kernel, **self.parameters)(probe, probe))
        while True:
            number = min(number, most)
            made = make(sample, number, seed)
            phi = mapped(made, probe)
            error = float(np.linalg.norm(K - phi @ phi.T) / max(np.linalg.norm(K), np.finfo(float).tiny))
            if error <= target or number == most:
                break
            number = int(np.ceil(number * np.sqrt(2)))
        if error > target and most == MOST:
            warn(
                f"approximation={self.kind!r} with {MOST} features leaves a relative error of the kernel of {error:.2g}, more "
                f"than the {target:.2g} that n_components={self.n_components!r} asks for; ask for less, or give a number",
            )
        return made, error

    def _landmarks(self, sample: Matrix, number: int, seed: int) -> Landmarks:
        if self.kind == "nystroem" or sample.shape[0] <= number:
            return Landmarks(sample[:number], self.kernel, self.parameters)
        scores = leverage_scores(sample, number, kernel_function(self.kernel, **self.parameters))
        chosen = check_random_state(seed).choice(sample.shape[0], number, replace=False, p=scores / scores.sum())
        return Landmarks(sample[chosen], self.kernel, self.parameters)

    def _fourier(self, sample: Matrix, number: int, seed: int) -> FeatureMap:
        from sklearn.kernel_approximation import RBFSampler  # slow to import

        gamma = self.parameters.get("gamma")
        gamma = 1.0 / sample.shape[1] if gamma is None else float(gamma)
        return RBFSampler(gamma=gamma, n_components=number, random_state=seed).fit(sample[:1])


def leverage_scores(X: Matrix, number: int, k: Callable[..., Array]) -> Array:
    """Ridge leverage scores of the rows, estimated from the first of them (Musco and Musco, 2017, one level).

    ``(k_ii - k_iS (K_SS + p ridge I)^-1 k_Si) / ridge``, at most 1: the relative error of row ``i`` given the rows ``S``, a
    share ``p`` of all. The ridge is chosen such that the sum of the scores is the number of landmarks.
    """
    first = X[: min(number, X.shape[0] // 2)]
    share = first.shape[0] / X.shape[0]
    s, U = np.linalg.eigh(to_dense(k(first, first)))
    size, explained = diagonal(k, X), np.empty((X.shape[0], len(s)))
    for rows in pieces(X.shape[0], len(s)):
        explained[rows] = (to_dense(k(X[rows], first)) @ U) ** 2

    def scores(ridge: float) -> Array:
        return np.clip((size - explained @ (1 / (np.maximum(s, 0.0) + share * ridge))) / ridge, 1e-12, 1.0)

    high = max(float(size.sum()), np.finfo(float).tiny)
    low = 1e-12 * high
    for _ in range(40):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if scores(middle).sum() > number else (low, middle)
    return scores(high)


def diagonal(k: Callable[..., Array], X: Matrix, block: int = 256) -> Array:
    """``k(x, x)`` for each row, from small blocks, because kernels need not have a method for the diagonal."""
    return np.concatenate([np.diag(to_dense(k(X[some], X[some]))) for some in gen_batches(X.shape[0], block)])
