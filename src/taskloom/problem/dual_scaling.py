"""Along a ray: the best multiple of a dual candidate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar


def best_on_ray(bound: Callable[[float], float], max_scale: float) -> float:
    """The largest ``bound(c)`` over ``0 <= c <= 1`` within the domain, ``c^2 <= max_scale``; ``bound`` is concave."""
    top, nudge = min(1.0, float(np.sqrt(max_scale))), 1e-15
    while not np.isfinite(best := bound(top)) and top > 1e-300:  # rounding at the very edge of the domain
        top, nudge = top * (1 - nudge), min(2 * nudge, 0.5)
    if bound(top * (1 - 1e-4)) > best:
        inner = minimize_scalar(lambda c: -bound(c), bounds=(0.0, top), method="bounded", options={"xatol": 1e-12 * top})
        best = max(best, float(-inner.fun))
    return best
