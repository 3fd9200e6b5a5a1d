"""Symmetric positive definite systems, one for each element of a batch."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Array = np.ndarray
LARGE = 64  # unknowns from which on a factor is worth its calls


def solve_spd(M: Array, rhs: Array) -> Array:
    """Each system once; where one is singular by rounding, all are lifted by a trace of themselves."""
    try:
        return np.linalg.solve(M, rhs)
    except np.linalg.LinAlgError:
        lift = 1e-12 * np.trace(M, axis1=-2, axis2=-1)[..., None, None]
        return np.linalg.solve(M + lift * np.eye(M.shape[-1]), rhs)


class Positive:
    """Systems that are solved more than once. A single large one is factored for good.

    Small ones are solved together each time: calls, not arithmetic, are what they cost. So is one that rounding has made
    indefinite.
    """

    def __init__(self, M: Array):
        self.M = M
        self._factor: tuple[Array, bool] | None = None
        self._fails = len(M) > 1 or M.shape[-1] < LARGE

    def solve(self, rhs: Array) -> Array:
        if self._factor is None and not self._fails:
            try:
                self._factor = cho_factor(self.M[0], lower=True, check_finite=False)
            except LinAlgError:
                self._fails = True
        return solve_spd(self.M, rhs) if self._factor is None else cho_solve(self._factor, rhs[0], check_finite=False)[None]
