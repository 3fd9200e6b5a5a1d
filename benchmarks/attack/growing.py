"""Small problems on the paths of large ones: thresholds (``solvers/reformulations/subspaces.py``, kernels) are lowered."""

from __future__ import annotations

import os
from dataclasses import replace

import taskloom.features.kernels
from taskloom.solvers.reformulations import subspaces

ASKED = "TASKLOOM_ATTACK_GROWS"  # in the environment, which workers have from their parent


def grow_if_asked() -> None:
    """A basis for two features and more, one direction at a time, up to nearly all of them; a factor for every kernel."""
    if ASKED not in os.environ:
        return
    taskloom.features.kernels.LARGE = taskloom.features.kernels.GROWING = 2
    subspaces.GROWING = 2
    taskloom.features.kernels.PER_TASK = subspaces.PER_TASK = 0
    subspaces.TUNING = replace(
        subspaces.TUNING, min_krylov_features=2, min_krylov_observations=2, max_basis_share=0.95, krylov_depth=1
    )
