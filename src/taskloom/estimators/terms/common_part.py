"""A common function of all tasks beside one for each: ``f_t(x) + b_t = b + g(x) + h_t(x)``, intercepts shrunk with ``h``.

These are two terms, with the weights of the observations that the plain problem has, ``v_i = c_t s_i / S_t``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...design import Observations
from ...design.term_inputs import TermData
from ...problem.term_problem import PosedTerm
from ...structures import Independent
from .term_features import InputMap, KernelMap

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class CommonPart:
    """The features of both parts; after a fit also their weights and the intercept of all rows."""

    common: InputMap
    own: InputMap
    common_weights: Array | None = None  # r
    own_weights: Array | None = None  # r x T
    intercept: float = 0.0

    @classmethod
    def of(cls, inputs: Array, seen: Observations, common: Any, own: Any, fit_intercept: bool) -> CommonPart:
        """Linear inputs are centred at their weighted mean over all observations."""
        mean = seen.weight @ inputs[seen.row] / seen.weight.sum()
        columns = tuple(range(inputs.shape[1]))

        def features(kernel: Any, constant: bool) -> InputMap:
            linear = isinstance(kernel, str) and kernel == "linear"
            return InputMap(columns, mean if linear else None, None if linear else KernelMap.of(inputs, kernel), constant)

        return cls(features(common, False), features(own, fit_intercept))

    def posed(self, inputs: Array, seen: Observations, structure: Any) -> list[PosedTerm]:
        """Both terms over the observations."""
        phi, own = self.common(inputs)[seen.row], self.own(inputs)[seen.row]
        return [PosedTerm(TermData(phi), Independent()), PosedTerm(TermData(own, seen.task, seen.n_tasks), structure)]

    @property
    def exact(self) -> bool:
        return all(each.kernel is None or each.kernel.exact for each in (self.common, self.own))

    def coef(self) -> tuple[Array, Array] | None:
        """Total coefficients (``T x d``) and intercepts in the units of the inputs, where both parts are linear."""
        mean = self.common.mean
        if mean is None or self.own.mean is None:
            return None
        assert self.own_weights is not None
        assert self.common_weights is not None
        d = len(mean)
        coef = (self.common_weights[:, None] + self.own_weights[:d]).T
        shrunk = self.own_weights[d] if self.own.constant else np.zeros(coef.shape[0])
        return coef, self.intercept + shrunk - coef @ mean

    def shared(self, inputs: Array) -> Array:
        """The common part of each row."""
        assert self.common_weights is not None
        return self.common(inputs) @ self.common_weights

    def values(self, inputs: Array, task: Array | None) -> Array:
        """Every task at every row, or the task of each row; -1 stands for a task that was not seen: the common part alone."""
        assert self.own_weights is not None
        shared, own = self.intercept + self.shared(inputs), self.own(inputs)
        if task is None:
            return shared[:, None] + own @ self.own_weights
        return shared + np.where(task < 0, 0.0, np.einsum("ij,ij->i", own, self.own_weights.T[task]))
