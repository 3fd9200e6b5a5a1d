"""The objective once more, from its definition, in extended precision: no formula here comes from the library.

    J = sum_i v_i loss(y_i, z_i) + alpha tr(A^+ W'W) + ridge ||W||^2 + F(A)

Where the best ``A`` for given weights has a closed form, the value with that ``A`` is what a fit is held to; elsewhere the
value at the ``A`` that was handed back. NumPy has eigenvalues in double precision only: nothing else is computed in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics.pairwise import pairwise_kernels

from .build import Instance

Array = np.ndarray
Long = np.longdouble
SPECTRAL = ("trace", "schatten", "schatten_norm", "unit_trace", "frobenius", "log_det")
KNOWN = ("fixed", "output_metric", "output_code", "shared_mean", "task_graph")
CLOSED = (*SPECTRAL, "independent", "feature_selection")  # the best penalty of given weights has a formula


class Value(NamedTuple):
    """The objective at a fitted model, and how far rounding of the fitted numbers may have moved it."""

    total: float
    rounding_floor: float


# --- data -------------------------------------------------------------------------------------------------------


def observation_weights(instance: Instance) -> Array:
    """``v = c_t s_i / S_t`` (``n x T``), zero where unobserved; for whole rows ``s_i / S`` in every column."""
    seen = ~np.isnan(instance.Y)
    s = np.ones(seen.shape, Long) if instance.weight is None else np.asarray(instance.weight, Long)
    s = np.where(seen, s[:, None] if s.ndim == 1 else s, 0)
    S = s.sum(axis=0)
    c = instance.task_weight
    if isinstance(c, str):
        c = np.ones(len(S), Long) if c == "equal" else len(S) * S / S.sum()
    return s * np.asarray(c, Long) / S


def kernel_matrices(instance: Instance) -> list[Array]:
    """One matrix for each kernel of the instance, in extended precision."""
    names = instance.kernel if isinstance(instance.kernel, list) else [instance.kernel]
    return [_kernel(name, instance.X.astype(Long), Long(instance.gamma)) for name in names]


def rounded_kernel_matrices(instance: Instance) -> list[Array]:
    """The same as scikit-learn computes them: distances of inputs far from zero are differences of large numbers."""
    names = instance.kernel if isinstance(instance.kernel, list) else [instance.kernel]
    X, shape = instance.X.astype(float), {"gamma": float(instance.gamma), "degree": 3, "coef0": 1}

    def rounded(name: str) -> Array:
        if name in ("precomputed", "callable"):
            return _kernel(name, X, shape["gamma"])
        return pairwise_kernels(X, metric=name, filter_params=True, **shape)

    return [rounded(name).astype(Long) for name in names]


def _kernel(name: str, X: Array, gamma: Any) -> Array:
    if name == "precomputed":
        return X
    inner = X @ X.T
    if name == "linear":
        return inner
    if name in ("poly", "callable"):
        return (gamma * inner + 1) ** (3 if name == "poly" else 2)
    if name == "sigmoid":
        return np.tanh(gamma * inner + 1)
    if name == "cosine":
        size = np.sqrt(np.diag(inner))
        size = np.where(size > 0, size, 1)
        return inner / np.outer(size, size)
    apart = X[:, None, :] - X[None, :, :]
    if name in ("chi2", "additive_chi2"):
        both = X[:, None, :] + X[None, :, :]
        away = np.divide(apart**2, both, out=np.zeros_like(apart), where=both > 0).sum(axis=2)
        return np.exp(-gamma * away) if name == "chi2" else -away
    away = np.abs(apart).sum(axis=2) if name == "laplacian" else (apart**2).sum(axis=2)
    return np.exp(-gamma * away)


# --- losses -----------------------------------------------------------------------------------------------------


def loss_values(spec: dict[str, Any], y: Array, z: Array) -> Array:
    """``loss(y, z)`` of each entry."""
    r = np.abs(y - z)
    match spec["name"]:
        case "squared":
            return r**2
        case "huber":
            w = Long(spec["width"])
            return np.where(r <= w, r**2, 2 * w * r - w**2)
        case "absolute":
            return r
        case "epsilon_insensitive":
            return np.maximum(r - Long(spec["epsilon"]), 0)
        case "quantile":
            q = Long(spec["q"])
            return np.where(y >= z, q * (y - z), (1 - q) * (z - y))
        case "logistic":
            m = y * z
            return np.log1p(np.exp(-np.abs(m))) + np.maximum(-m, 0)
        case "hinge":
            return np.maximum(1 - y * z, 0)
        case "squared_hinge":
            return np.maximum(1 - y * z, 0) ** 2
        case "log_cosh":
            r = r / Long(spec["width"])
            return r + np.log1p(np.exp(-2 * r)) - np.log(Long(2))
        case name:
            raise NotImplementedError(name)


def _row_values(name: str, Y: Array, Z: Array) -> Array:
    """The loss of each row; ``Y`` is +1 at its class."""
    own = Y > 0
    at_class = np.where(own, Z, 0).sum(axis=1)
    if name == "multiclass_hinge":
        return (Z + ~own).max(axis=1) - at_class
    top = Z.max(axis=1, keepdims=True)
    return np.log(np.exp(Z - top).sum(axis=1)) + top[:, 0] - at_class


def loss_term(instance: Instance, Z: Array) -> Any:
    """``sum_i v_i loss(y_i, z_i)`` for predictions ``n x T``."""
    v, total = observation_weights(instance), Long(0)
    if instance.whole_rows:
        return (v[:, 0] * _row_values(instance.losses[0]["name"], instance.Y, Z)).sum()
    for t, spec in enumerate(instance.losses):
        live = v[:, t] > 0
        total += (v[live, t] * loss_values(spec, instance.Y[live, t].astype(Long), Z[live, t])).sum()
    return total


def loss_of_nothing(instance: Instance) -> float:
    """The loss of the best constants, by search on each task (of whole rows from the shares); of 0 without them."""
    n, T = instance.Y.shape
    if not instance.fit_intercept:
        return float(loss_term(instance, np.zeros((n, T), Long)))
    if instance.whole_rows:
        shares = (observation_weights(instance) * (instance.Y > 0)).sum(axis=0)
        hinge = instance.losses[0]["name"] == "multiclass_hinge"
        return float(min(1, 2 - 2 * shares.max()) if hinge else -(shares * np.log(shares)).sum())
    return float(sum(_least_loss(instance, t) for t in range(T)))


def _least_loss(instance: Instance, t: int) -> Any:
    """The loss of the best constant for one task."""
    v = observation_weights(instance)[:, t]
    live = v > 0
    v, y, spec = v[live], instance.Y[live, t].astype(Long), instance.losses[t]
    numbers = spec["name"] in ("squared", "huber", "absolute", "epsilon_insensitive", "quantile", "log_cosh")
    low, high = (y.min(), y.max()) if numbers else (Long(-30), Long(30))

    def cost(x: Any) -> Any:
        return (v * loss_values(spec, y, x)).sum()

    for _ in range(80):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if cost(left) <= cost(right) else (left, high)
    return cost((low + high) / 2)


def rounding_of_the_targets(instance: Instance) -> float:
    """The loss of predictions that are off by the rounding of a mean: less than that is nothing."""
    if instance.whole_rows:
        return 0.0
    off = 4e-16 * (4 + len(instance.Y)) * np.nan_to_num(np.abs(instance.Y)).astype(Long)
    edge = np.array([Long(spec.get("epsilon", 0)) for spec in instance.losses])  # targets may lie on the edge of the tube
    return float(abs(loss_term(instance, instance.Y + edge + off)))


def rounding_of_the_loss(instance: Instance) -> float:
    """What a user's own loss loses to rounding by the way it is written: ``log cosh`` takes ``log 2`` off a number above it."""
    v = observation_weights(instance)
    return float(sum(1e-15 * v[:, t].sum() for t, spec in enumerate(instance.losses) if spec["name"] == "log_cosh"))


# --- penalties --------------------------------------------------------------------------------------------------


def penalty(spec: dict[str, Any], R: Array, A: Array | None, eps: float = 1e-16) -> float:
    """``tr(A^+ R'R) + F(A)`` with the best ``A``, or with ``A`` where no closed form is known; ``R`` is ``sqrt(alpha) W``."""
    name, T = spec["name"], R.shape[1]
    if name in SPECTRAL:
        size = float(np.abs(R).max(initial=0.0))
        s = np.zeros(T, Long)
        if size > 0:
            found = np.linalg.svd((R / size).astype(float), compute_uv=False)
            s[: len(found[:T])] = found[:T].astype(Long) * size
        return float(_of_singular_values(spec, s))
    if name == "independent":
        return float((R**2).sum())
    if name in KNOWN:
        return charge(R, _known(spec, T), eps)
    if name == "feature_selection":
        return float(2 * np.sqrt((R**2).sum(axis=1)).sum())
    assert A is not None
    return charge(R, A, eps) + _at(spec, A.astype(Long))


def addends_penalty(spec: dict[str, Any], shared: Array, own: Array) -> float:
    """Of ``Robust`` and ``Dirty``, from the two addends."""
    if spec["name"] == "robust":
        return penalty({"name": "trace"}, shared, None) + float(2 * spec["outliers"] * np.sqrt((own**2).sum(axis=0)).sum())
    return penalty({"name": "feature_selection"}, shared, None) + float(2 * spec["private"] * np.abs(own).sum())


def _of_singular_values(spec: dict[str, Any], s: Array) -> Any:
    name, p = spec["name"], Long({"trace": 1, "frobenius": 2}.get(spec["name"], spec.get("p", 1)))
    if name == "unit_trace":
        return s.sum() ** 2
    if name == "schatten_norm":
        q, top = 2 * p / (p + 1), s.max()
        return 2 * top * ((s / top) ** q).sum() ** (1 / q) if top > 0 else 0.0
    if name == "log_det":
        mu = Long(spec["mu"])
        a = (mu + np.sqrt(mu**2 + 4 * s**2)) / 2
        return (s**2 / a + a - mu * np.log(a)).sum()
    s = s[s > 0]
    a = (s**2 / p) ** (1 / (p + 1))
    return (s**2 / a + a**p).sum()


def _known(spec: dict[str, Any], T: int) -> Array:
    match spec["name"]:
        case "fixed":
            return spec["A"]
        case "output_metric":
            return spec["theta"]
        case "output_code":
            return spec["L"].T @ spec["L"]
        case "shared_mean":
            return np.linalg.inv(np.eye(T) + spec["gamma"] * (np.eye(T) - 1 / T))
        case _:
            laplacian = np.diag(spec["adjacency"].sum(axis=0)) - spec["adjacency"]
            return np.linalg.inv(2 * laplacian + spec["gamma"] * np.eye(T))


def charge(R: Array, A: Array, eps: float = 1e-16) -> float:
    """``tr(A^+ R'R)``; ``inf`` where ``R`` leaves the range of ``A`` by more than rounding (``eps`` of the fitted numbers)."""
    size = float(np.abs(A).max(initial=0.0))
    if size == 0:
        return 0.0 if not R.any() else np.inf
    a, V = np.linalg.eigh((A / size).astype(float))
    energy = ((R @ V.astype(Long)) ** 2).sum(axis=0)
    inside = a > 1e-13 * a[-1]
    if energy[~inside].sum() > max(1e-12, 1e4 * eps**2) * energy.sum():
        return np.inf
    return float((energy[inside] / a[inside]).sum() / size)


def _at(spec: dict[str, Any], A: Array) -> float:
    """``F(A)`` from its definition."""
    T, trace, off = len(A), float(np.trace(A)), float(np.abs(A).sum() - np.abs(np.diag(A)).sum())
    match spec["name"]:
        case "sparse":
            return trace + spec["l1"] * off
        case "sparse_log_det":
            return trace - spec["mu"] * _log_det(A) + spec["l1"] * off
        case "sum":
            return float((A**2).sum()) + spec["weight"] * (trace + spec["l1"] * off)
        case "custom":
            factor = spec["factor"] if spec.get("fault") == "value" else 1.0
            return factor * (trace + (float((A**2).sum()) / 2 if spec.get("base") != "trace" else 0.0))
        case "constrained":
            return 0.0 if spec["what"] == "bounded trace" else trace  # inside; how far out, users.violation says
        case "clusters":
            return _clusters(spec, A.astype(float))
        case "low_rank":
            return trace
        case "learned_graph":
            w = -np.linalg.inv(A.astype(float))[np.triu_indices(T, 1)]
            return trace + spec["sparsity"] * float(w.sum())
        case "sparse_precision":
            P = np.linalg.inv(A.astype(float))  # parameters are the defaults of the structure
            return 0.1 * _log_det(A) + 0.001 * np.trace(P) + 0.001 * (np.abs(P).sum() - np.abs(np.diag(P)).sum())
        case name:
            raise NotImplementedError(name)


def _log_det(A: Array) -> float:
    return float(np.linalg.slogdet(A.astype(float))[1])


def _clusters(spec: dict[str, Any], A: Array) -> float:
    """0 inside the set, ``inf`` outside: ``A = U/mean`` along the mean, eigenvalues between the two others across it."""
    T = len(A)
    low, high = 1 / spec["within"], 1 / spec["between"]
    along = A @ np.ones(T) - 1 / spec["mean"]
    P = np.eye(T) - 1 / T
    a = np.sort(np.linalg.eigvalsh(P @ A @ P))[::-1][: T - 1] if T > 1 else np.zeros(0)
    total = (T - 1) * low + (spec["n_clusters"] - 1) * (high - low)
    inside = np.abs(along).max() <= 1e-6 / spec["mean"] and np.all(a >= low - 1e-6) and np.all(a <= high + 1e-6)
    return 0.0 if inside and abs(a.sum() - total) <= 1e-6 * T else np.inf


# --- fitted models ----------------------------------------------------------------------------------------------


def objective(instance: Instance, model: Any) -> Value | None:
    """``J`` at a fitted model; ``None`` where a model does not show what its penalty sees (addends of kernels).

    ``None`` as well where the penalty is one of ``A^-1``, and the ``A`` handed back is too close to singular to have one.
    """
    instance = instance.by_observation() if instance.long else instance
    try:
        value = _objective(instance, model, kernel_matrices(instance))
        if value is None or hasattr(model, "coef_"):
            return value
        rounded = _objective(instance, model, rounded_kernel_matrices(instance))
    except np.linalg.LinAlgError:
        return None
    assert rounded is not None
    return value._replace(rounding_floor=value.rounding_floor + abs(value.total - rounded.total))


def held_objective(instance: Instance, model: Any) -> Value:
    """``J`` at the numbers that a model holds, as they are: only what rounds kernel matrices counts as rounding."""
    instance = instance.by_observation() if instance.long else instance
    value = _objective(instance, model, kernel_matrices(instance))
    assert value is not None
    if hasattr(model, "coef_"):
        return value._replace(rounding_floor=0.0)
    rounded = _objective(instance, model, rounded_kernel_matrices(instance))
    assert rounded is not None
    return value._replace(rounding_floor=abs(value.total - rounded.total))


def _objective(instance: Instance, model: Any, kernels: list[Array]) -> Value | None:
    eps = float(np.finfo(model.intercept_.dtype).eps)
    b, alpha, spec = model.intercept_.astype(Long), Long(instance.alpha), instance.structure
    root = np.sqrt(alpha)
    if hasattr(model, "coef_"):
        W = model.coef_.T.astype(Long)
        X = instance.X.astype(Long)
        Z, room = X @ W + b, np.abs(X) @ np.abs(W) + np.abs(b)
        ridge = Long(instance.ridge) * (W**2).sum()
        if spec["name"] in ("robust", "dirty"):
            shared, own = (getattr(model, name).T.astype(Long) for name in ("shared_coef_", "own_coef_"))
            paid = addends_penalty(spec, root * shared, root * own)
            ridge = Long(instance.ridge) * ((shared**2).sum() + (own**2).sum())
        else:
            paid = penalty(spec, root * W, model.structure_, eps)
        lost = 0.0
    else:
        if spec["name"] in ("robust", "dirty"):
            return None
        Cs = model.dual_coef_ if isinstance(model.dual_coef_, list) else [model.dual_coef_]
        As = model.structure_ if isinstance(model.structure_, list) else [model.structure_]
        Z, room, paid, ridge, lost = b + np.zeros(instance.Y.shape, Long), np.abs(b), 0.0, Long(0), 0.0
        for K, C, A in zip(kernels, Cs, As, strict=True):
            C = C.astype(Long)
            Z, room = Z + K @ C, room + np.abs(K) @ np.abs(C)
            R = _function_root(K, C)
            off = eps * float((np.abs(C) * (np.abs(K) @ np.abs(C))).sum())  # what rounding does to C'KC
            with_off = penalty(spec, root * np.vstack([R, np.sqrt(off / R.shape[1]) * np.eye(R.shape[1])]), A, eps)
            part = penalty(spec, root * R, A, eps)
            paid, lost = paid + part, lost + abs(with_off - part)
            ridge += Long(instance.ridge) * (R**2).sum()
            lost += float(instance.ridge) * off
    loss = loss_term(instance, Z)
    room = eps * (instance.X.shape[1] + 10) * room
    rounding_floor = max(abs(loss_term(instance, Z + room) - loss), abs(loss_term(instance, Z - room) - loss))
    rough = 40 * eps * (abs(loss) + abs(paid) + abs(ridge))
    return Value(float(loss + paid + ridge), float(rounding_floor + rough) + lost + rounding_of_the_loss(instance))


def objective_at(instance: Instance, phi: Array, W: Array, b: Array) -> float | None:
    """``J`` at weights on given features, where the best ``A`` has a closed form."""
    if instance.structure["name"] not in CLOSED:
        return None
    W, Z = W.astype(Long), phi.astype(Long) @ W.astype(Long) + b.astype(Long)
    paid = penalty(instance.structure, np.sqrt(Long(instance.alpha)) * W, None)
    return float(loss_term(instance, Z) + paid + Long(instance.ridge) * (W**2).sum())


def _function_root(K: Array, C: Array) -> Array:
    """``R`` with ``R'R = C'KC``: the weights of the tasks in the features of the kernel."""
    size = float(np.abs(K).max(initial=0.0)) or 1.0
    k, U = np.linalg.eigh((K / size).astype(float))
    return np.sqrt(Long(size) * np.maximum(k, 0))[:, None] * (U.T.astype(Long) @ C)
