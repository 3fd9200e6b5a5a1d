"""The dual bound once more, from its definition, in extended precision.

    D(G) = - sum_i v_i loss*(y_i, -G_i / v_i) - F*(Z'Z / (4 alpha)),    Z = X'G

``G`` is the library's (``solve`` hands it back), and so is nothing else; ``None`` where ``F*`` has no closed form here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taskloom import Problem, solve
from taskloom.design import Observations

from .build import Instance, a_loss, a_structure
from .values import Array, Long, _known, observation_weights, rounding_of_the_loss

EDGE = 1e-9  # how far rounding may carry gradients out of the domain of a conjugate


def solved(instance: Instance, solver: str) -> Any:
    """The solution of the same problem below the estimators, where ``G`` is public; linear kernels only."""
    row, task = np.nonzero(observation_weights(instance) > 0)
    weight = None
    if instance.weight is not None:
        weight = instance.weight[row] if instance.weight.ndim == 1 else instance.weight[row, task]
    c = instance.task_weight
    seen = Observations.build(row, task, instance.Y[row, task], instance.Y.shape[1], weight, c)
    X, loss, structure = instance.X.astype(float), a_loss(instance.losses[0]), a_structure(instance.structure)
    return solve(Problem(X, seen, loss, structure, instance.alpha, 0.0, instance.fit_intercept), solver)


def dual(instance: Instance, G: Array, enough: float = np.inf) -> tuple[float, float] | None:
    """The best ``D(c G)`` over ``0 <= c <= 1``, and how much rounding may hide; ``-inf`` where ``G`` is not admissible.

    The search for the best ``c`` is left out where the first one gives ``enough``: then a claim of that much is true.
    """
    v = observation_weights(instance)
    order = np.nonzero(v.T > 0)  # sorted by task, then row: the order of the library's observations
    v, y = v.T[order], instance.Y.T[order].astype(Long)
    dense = np.zeros(instance.Y.shape, Long)
    dense.T[order] = G
    X = instance.X.astype(Long)
    if instance.fit_intercept:
        sizes = np.abs(dense).sum(axis=0)
        if np.any(np.abs(dense.sum(axis=0)) > EDGE * sizes + 1e-20 * sizes.sum()):
            return -np.inf, 0.0
        X = X - X.mean(axis=0)  # the same where G adds up to 0, and no rounding of that sum times a column far from zero
    Z = X.T @ dense / (2 * np.sqrt(Long(instance.alpha)))
    ray = penalty_ray(instance.structure, Z)
    if ray is None:
        return None
    max_scale, conjugate = ray
    gradients = -G.astype(Long) / v

    def bound(c: Any) -> Any:
        return -_loss_conjugates(instance, order, v, y, c * gradients) - conjugate(c * c)

    rounding_floor = float((v * np.abs(gradients * y)).sum()) * 1e-12 + rounding_of_the_loss(instance)
    high = min(Long(1), np.sqrt(max_scale))
    low, best = Long(0), bound(high)
    if best >= enough:
        return float(best), rounding_floor
    for _ in range(150):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if bound(left) <= bound(right) else (low, right)
    return float(max(bound((low + high) / 2), best)), rounding_floor


def _loss_conjugates(instance: Instance, order: tuple[Array, Array], v: Array, y: Array, s: Array) -> Any:
    if instance.whole_rows:
        T = instance.Y.shape[1]
        own, p = (y > 0).reshape(T, -1), (s + (y > 0)).reshape(T, -1)
        if p.min() < -EDGE or np.abs(p.sum(axis=0) - 1).max() > EDGE * T:
            return np.inf
        p = np.maximum(p, 0)
        hinge = instance.losses[0]["name"] == "multiclass_hinge"
        each = (p * own).sum(axis=0) - 1 if hinge else (p * np.log(np.where(p > 0, p, 1))).sum(axis=0)
        return (v.reshape(T, -1)[0] * each).sum()
    total = Long(0)
    for t, spec in enumerate(instance.losses):
        mine = order[0] == t
        total += (v[mine] * _conjugate(spec, y[mine], s[mine])).sum()
    return total


def _within(s: Array, low: Any, high: Any) -> Array:
    """Gradients inside an interval, rounding at its ends forgiven; ``inf`` where they are not."""
    room = EDGE * (1 + np.maximum(np.abs(low), np.abs(high)))
    return np.where((s >= low - room) & (s <= high + room), np.clip(s, low, high), np.inf)


def _conjugate(spec: dict[str, Any], y: Array, s: Array) -> Array:
    """``sup_z s z - loss(y, z)`` of each entry."""
    zero, one = Long(0), Long(1)
    match spec["name"]:
        case "squared":
            return s * y + s**2 / 4
        case "huber":
            width = 2 * Long(spec["width"])
            s = np.where(np.abs(s) <= width * (1 + EDGE), np.clip(s, -width, width), np.inf)
            return np.where(np.isfinite(s), np.where(np.isfinite(s), s, 0) * y + s**2 / 4, np.inf)
        case "absolute" | "epsilon_insensitive":
            s = _within(s, -one, one)
            return np.where(
                np.isfinite(s), np.where(np.isfinite(s), s, 0) * y + Long(spec.get("epsilon", 0)) * np.abs(s), np.inf
            )
        case "quantile":
            s = _within(s, -Long(spec["q"]), 1 - Long(spec["q"]))
            return np.where(np.isfinite(s), np.where(np.isfinite(s), s, 0) * y, np.inf)
        case "log_cosh":
            s = _within(s * Long(spec["width"]), -one, one)
            a, b = (np.where(np.isfinite(s) & (x > 0), x, 1) for x in (1 + s, 1 - s))
            along = np.where(np.isfinite(s), s, 0) * y / Long(spec["width"])
            return np.where(np.isfinite(s), along + (a * np.log(a) + b * np.log(b)) / 2, np.inf)
        case "logistic":
            p = _within(-y * s, zero, one)
            a, b = (np.where(np.isfinite(p) & (x > 0), x, 1) for x in (p, 1 - p))
            return np.where(np.isfinite(p), a * np.log(a) + b * np.log(b), np.inf)
        case "hinge":
            p = _within(-y * s, zero, one)
            return np.where(np.isfinite(p), -p, np.inf)
        case _:  # squared hinge
            p = -y * s
            return np.where(p >= -EDGE, np.maximum(p, 0) ** 2 / 4 - np.maximum(p, 0), np.inf)


def _root(spec: dict[str, Any], T: int) -> Array:
    """``L`` with ``A = LL'``: off the range of ``A`` a ``Z`` may be large, so its rounding eigenvalues must not count."""
    if spec["name"] == "output_code":
        return spec["L"].T.astype(Long)
    a, V = np.linalg.eigh(_known(spec, T).astype(float))
    return V.astype(Long) * np.sqrt(np.where(a > 1e-12 * a[-1], a, 0).astype(Long))


def penalty_ray(spec: dict[str, Any], Z: Array) -> tuple[Any, Any] | None:
    """The largest ``c`` with a finite ``F*(c Z'Z)``, and ``c -> F*(c Z'Z)``; ``Z`` comes over ``2 sqrt(alpha)``."""
    name, T = spec["name"], Z.shape[1]
    size = np.abs(Z).max(initial=0.0)
    s = np.zeros(T, Long)
    if size > 0:
        found = np.linalg.svd((Z / size).astype(float), compute_uv=False)[:T]
        s[: len(found)] = (found.astype(Long) * size) ** 2
    top = s.max(initial=0.0)

    def up_to(largest: Any) -> tuple[Any, Any]:
        return (1 / largest if largest > 0 else Long(1)), (lambda _: Long(0))

    match name:
        case "trace":
            return up_to(top)
        case "feature_selection":
            return up_to((Z**2).sum(axis=1).max(initial=0.0))
        case "robust":
            return up_to(max(top, (Z**2).sum(axis=0).max() / Long(spec["outliers"]) ** 2))
        case "dirty":
            return up_to(max((Z**2).sum(axis=1).max(initial=0.0), (Z**2).max(initial=0.0) / Long(spec["private"]) ** 2))
        case "schatten_norm" | "schatten" if spec["p"] == 1:
            return up_to(top)
        case "schatten_norm":
            q = Long(spec["p"]) / (Long(spec["p"]) - 1)
            return up_to(top * ((s / top) ** q).sum() ** (1 / q) if top > 0 else Long(0))
        case "schatten" | "frobenius":
            p = Long(spec.get("p", 2))
            return np.inf, lambda c: (p - 1) * ((c * s / p) ** (p / (p - 1))).sum()
        case "unit_trace":
            return np.inf, lambda c: c * top
        case "log_det":
            mu = Long(spec["mu"])
            far = (1 - Long(1e-18)) / top if top > 0 else Long(1)
            return far, lambda c: (mu * np.log(mu / np.maximum(1 - c * s, 1e-300)) - mu).sum()
        case "independent":
            return np.inf, lambda c: c * (Z**2).sum()
        case "fixed" | "output_metric" | "output_code" | "shared_mean" | "task_graph":
            total = ((Z @ _root(spec, T)) ** 2).sum()
            return np.inf, lambda c: c * total
        case "clusters":
            across = Z - Z.mean(axis=1, keepdims=True)
            found = np.linalg.svd((across / (size or 1)).astype(float), compute_uv=False).astype(Long) ** 2 * size**2
            spread = 1 / Long(spec["between"]) - 1 / Long(spec["within"])
            whole = (Z.sum(axis=1) ** 2).sum() / (T * Long(spec["mean"])) + (across**2).sum() / Long(spec["within"])
            whole += spread * found[: min(spec["n_clusters"] - 1, T - 1)].sum()
            return np.inf, lambda c: c * whole
        case _:
            return None
