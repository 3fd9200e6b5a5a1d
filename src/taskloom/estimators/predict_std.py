"""Standard deviations of predictions, from the Gaussian-process posterior whose mean is the fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..features.approximate import Landmarks, diagonal
from ..features.kernels import row_squares
from ..structures import factored_matrix as factors
from ..structures.factored_matrix import FactoredStructure
from ..uncertainty.posterior import Posterior
from .decision import cross_kernel
from .fitted import FittedState

Array = np.ndarray


def noise_of(state: FittedState, noise: float | None, otherwise: str) -> Array:
    """Standard deviation of the noise of each task."""
    return posterior_of(state, noise, otherwise).noise * state.scale.std


def posterior_of(state: FittedState, noise: float | None, otherwise: str, joint: bool = False) -> Posterior:
    """The posterior for a given or estimated noise level; ``otherwise`` is the message if there is none."""
    reason = _missing(state, otherwise)
    if reason is not None:
        raise AttributeError(f"standard deviations {reason}")
    if (noise, joint) not in state.posteriors:
        state.posteriors[noise, joint] = _posterior(state, noise, joint)
    return state.posteriors[noise, joint]


def _missing(state: FittedState, otherwise: str) -> str | None:
    """Why there is no posterior, as a sentence; ``None`` if there is one."""
    if state.statistics is not None:
        return "need the rows of the fit, which partial_fit and fit_blocks do not keep"
    if state.added_tasks_ is not None:
        return "describe the tasks of a fit; fit again with the tasks that were added"
    if state.training is not None:
        return None
    if state.training_left_out:
        return "need the training data, which were not saved with this model (save(path, training=True))"
    if state.device_ is not None:
        return "need the training data on the host, which a fit on a device does not keep; fit with device=None"
    if isinstance(state.structure_, FactoredStructure):
        return f"need systems over all tasks, and end at {factors.DENSE_TASKS} of them; fit fewer tasks together"
    return otherwise


def _posterior(state: FittedState, noise: float | None, joint: bool) -> Posterior:
    training = state.training
    structure = training.settings["structure"]
    if structure.keeps_columns or structure.is_sum:
        raise ValueError(
            "standard deviations need one kernel and a structure on the tasks, got "
            f"{f'kernel={state.kernel.kernel!r}' if structure.is_sum else repr(structure)}"
        )
    if joint and not (structure.known or structure.either_side):
        raise ValueError(
            'return_std="joint" needs a structure whose penalty is a function of its eigenvalues '
            f"(Trace, Schatten, Frobenius, UnitTrace) or a given A, got {structure!r}; return_std=True takes the "
            "learned structure as known"
        )
    if noise is not None:  # in units of the fit, for tasks with different standard deviations
        noise = noise / float(np.sqrt(np.mean(state.scale.std**2)))
    try:
        return Posterior(training.problem(), training.W, training.b, training.A, noise, joint)
    except np.linalg.LinAlgError as error:
        raise ValueError(f"the training data are too badly scaled for standard deviations ({error})") from None


def predict_std(state: FittedState, inputs: Any, task: Array | None, posterior: Posterior) -> Array:
    """Standard deviations of every task at every row, or of the task of each row."""
    if state.kernel.precomputed:
        raise ValueError('return_std needs k(x, x), which kernel="precomputed" does not give; pass a kernel function')
    features = state.training.features
    if state.feature_map_ is not None:
        phi = features.project(inputs)
        size = diagonal(state.kernel, inputs) if isinstance(state.feature_map_, Landmarks) else row_squares(phi)
    elif state.coef_ is not None:
        phi, size = features.project(inputs), row_squares(inputs)
    else:
        phi, size = features.project(cross_kernel(state, inputs)), diagonal(state.kernel, inputs)
    deviation = (posterior.deviation(phi, size) * state.scale.std).astype(state.dtype)
    if task is None:
        return deviation
    if not (task >= 0).all():
        raise ValueError('return_std needs tasks that were seen in training; unseen="mean" has no posterior')
    return deviation[np.arange(len(task)), task]
