"""Standard deviations of predictions: the posterior of the Gaussian process whose mean the fit is."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..features import row_squares
from ..features.approximate import Landmarks, diagonal
from ..structures import factored_matrix as factors
from ..structures.factored_matrix import FactoredStructure
from ..uncertainty.posterior import Posterior
from .base import MultiTaskEstimator
from .target_encoding import TargetScale


class Deviating(MultiTaskEstimator):
    """``noise_``, and what ``return_std`` adds to predictions."""

    noise: Any
    structure_: Any
    _scale: TargetScale
    _training: Any
    _posterior: Any

    @property
    def noise_(self) -> np.ndarray:
        """Standard deviation of the noise of each task."""
        check_is_fitted(self, "certificate_")
        return self._posterior_of_fit().noise * self._scale.spread

    def _posterior_of_fit(self, joint: bool = False) -> Posterior:
        if getattr(self, "_training", None) is None:
            reason = f"need a fit with the squared loss for all tasks, got loss={self.loss!r}"
            if hasattr(self, "_statistics"):
                reason = "need the rows of the fit, which partial_fit and fit_blocks do not keep"
            elif "_training" not in vars(self) and not hasattr(self, "added_tasks_"):
                reason = "need the training data, which were not saved with this model (save(path, training=True))"
            elif hasattr(self, "device_"):
                reason = "need the training data on the host, which a fit on a device does not keep; fit with device=None"
            elif hasattr(self, "added_tasks_"):
                reason = "describe the tasks of a fit; fit again with the tasks that were added"
            elif isinstance(self.structure_, FactoredStructure):
                reason = f"need systems over all tasks, and end at {factors.DENSE_TASKS} of them; fit fewer tasks together"
            elif len(getattr(self, "fallback_tasks_", ())):
                reason = "describe a joint fit of all tasks, but fallback gave some a model of their own (fallback_tasks_)"
            raise AttributeError(f"standard deviations {reason}")
        if not hasattr(self, "_posterior") or self._posterior[0] != self.noise:
            self._posterior = (self.noise, {})  # one for each answer to ``joint``
        known = self._posterior[1]
        if joint not in known:
            data, W, b, A = self._training
            structure = data.problem.structure
            if structure.keeps_columns or structure.is_sum:
                raise ValueError(
                    f"standard deviations need one kernel and a structure on the tasks, got {self.structure!r} with "
                    f"kernel={self.kernel!r}"
                )
            if joint and not (structure.known or structure.either_side):
                raise ValueError(
                    'return_std="joint" knows how a structure moves with the weights where F is a function of its eigenvalues '
                    f"(Trace, Schatten, Frobenius, UnitTrace) or A is given, got {self.structure!r}; return_std=True takes the "
                    "structure that was learned for known"
                )
            noise = None
            if self.noise is not None:  # in units of the fit: a common level over tasks of different spread
                noise = self.noise / float(np.sqrt(np.mean(self._scale.spread**2)))
            try:
                known[joint] = Posterior(data.problem, W, b, A, noise, joint)
            except np.linalg.LinAlgError as error:
                raise ValueError(f"the training data are too badly scaled for standard deviations ({error})") from None
        return known[joint]

    def _deviation(self, X, return_std):
        if isinstance(return_std, str) and return_std != "joint":
            raise ValueError(f'return_std must be True, False or "joint", got {return_std!r}')
        posterior = self._posterior_of_fit(joint=isinstance(return_std, str))
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError('return_std needs k(x, x), which kernel="precomputed" does not give; pass a kernel function')
        inputs, labels = self._inputs(X, reset=False)
        data = self._training[0]
        if hasattr(self, "feature_map_"):
            phi = data.features.project(inputs)
            size = self._kernel_diagonal(inputs) if isinstance(self.feature_map_, Landmarks) else row_squares(phi)
        elif hasattr(self, "coef_"):
            phi, size = data.features.project(inputs), row_squares(inputs)
        else:
            phi, size = data.features.project(self._cross(inputs)), self._kernel_diagonal(inputs)
        deviation = (posterior.deviation(phi, size) * self._scale.spread).astype(self._dtype)
        if labels is None:
            return deviation
        task = self._known_tasks(labels)
        if not (task >= 0).all():
            raise ValueError('return_std needs tasks that were seen in training; unseen="mean" has no posterior')
        return deviation[np.arange(len(task)), task]

    def _kernel_diagonal(self, inputs):
        return diagonal(self._kernel, inputs)
