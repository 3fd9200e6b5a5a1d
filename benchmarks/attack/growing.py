"""Small problems on the paths of large ones: thresholds (``solvers/reformulations/krylov.py``, kernels) are lowered."""

from __future__ import annotations

import os

import taskloom.features.kernels
from taskloom.solvers.reformulations import krylov

ASKED = "TASKLOOM_ATTACK_GROWS"  # in the environment, which workers have from their parent


def grow_if_asked() -> None:
    """A basis for two features and more, one direction at a time, up to nearly all of them; a factor for every kernel."""
    if ASKED not in os.environ:
        return
    taskloom.features.kernels.LARGE = taskloom.features.kernels.GROWING = 2
    krylov.GROWING = krylov.MIN_FEATURES_FOR_KRYLOV = 2
    taskloom.features.kernels.PER_TASK = krylov.PER_TASK = 0
    krylov.MAX_BASIS_SHARE, krylov.KRYLOV_DEPTH = 0.95, 1
