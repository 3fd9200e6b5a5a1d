"""Standard deviations of predictions, from the Gaussian posterior whose mean is the fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..features.approximate import Landmarks, diagonal
from ..features.kernels import row_squares
from ..structures import factored_matrix as factors
from ..structures.factored_matrix import FactoredStructure
from ..uncertainty.posterior import Posterior
from ..uncertainty.term_posterior import TermPosterior
from .decision import cross_kernel
from .fitted import FittedState
from .terms.sum_deviations import sum_posterior

Array = np.ndarray


def posterior_of(state: FittedState, noise: float | None, otherwise: str, joint: bool = False) -> Posterior | TermPosterior:
    """The posterior for a given or estimated noise level; ``otherwise`` is the message if there is none."""
    many = isinstance(state.structure_, FactoredStructure) and not state.is_sum
    without_data = state.term_rows is None if state.is_sum else state.training_left_out
    missing = {
        "need the rows of the fit, which partial_fit and fit_blocks do not keep": state.statistics is not None,
        "describe the tasks of a fit; fit again with the tasks that were added": state.added_tasks_ is not None,
        "need the training data, which were not saved with this model (save(path, training=True))": without_data,
        "need the training data on the host, which a fit on a device does not keep; fit with device=None": state.device_,
        f"need systems over all tasks, and end at {factors.DENSE_TASKS} of them; fit fewer tasks together": many,
        otherwise: not state.term_rows.loss.quadratic if state.is_sum and state.term_rows else state.training is None,
    }
    reason = next((sentence for sentence, holds in missing.items() if holds), None)
    if reason is not None:
        raise AttributeError(f"standard deviations {reason}")
    if (noise, joint) not in state.posteriors:
        make = sum_posterior if state.is_sum else _plain_posterior
        try:
            state.posteriors[noise, joint] = make(state, noise, joint)
        except np.linalg.LinAlgError as error:
            raise ValueError(f"the training data are too badly scaled for standard deviations ({error})") from None
    return state.posteriors[noise, joint]


def _plain_posterior(state: FittedState, noise: float | None, joint: bool) -> Posterior:
    training = state.training.in_span
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
    # in units of the fit, for tasks with different standard deviations
    own = None if noise is None else noise / float(np.sqrt(np.mean(state.scale.std**2)))
    return Posterior(training.problem(), training.W, training.b, training.A, own, joint)


def predict_std(state: FittedState, inputs: Any, task: Array | None, posterior: Posterior) -> Array:
    """Standard deviations of every task at every row, or of the task of each row."""
    if state.kernel.precomputed:
        raise ValueError('return_std needs k(x, x), which kernel="precomputed" does not give; pass a kernel function')
    features = state.training.in_span.features
    if state.feature_map_ is not None:
        phi = features.project(inputs)
        size = diagonal(state.kernel, inputs) if isinstance(state.feature_map_, Landmarks) else row_squares(phi)
    elif state.coef_ is not None:
        phi, size = features.project(inputs), row_squares(inputs)
    else:
        phi, size = features.project(cross_kernel(state, inputs)), diagonal(state.kernel, inputs)
    if task is not None and not (task >= 0).all():
        raise ValueError('return_std needs tasks that were seen in training; unseen="mean" has no posterior')
    std = state.scale.std if task is None else state.scale.std[task]
    return (posterior.deviation(phi, size, task) * std).astype(state.dtype)
