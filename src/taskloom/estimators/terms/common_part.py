"""A common function of all tasks beside one for each: ``f_t(x) + b_t = b + g(x) + h_t(x)``, intercepts shrunk with ``h``.

These are two terms, with the weights of the observations that the plain problem has, ``v_i = c_t s_i / S_t``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...design import Observations
from ...design.levels import FEW_COLUMNS, joined
from ...design.term_inputs import Scale, TermData
from ...problem.term_problem import PosedTerm
from ...structures import Independent
from .term import Term
from .term_features import InputMap, KernelMap

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class CommonPart:
    """The features of both parts and the weight of the common one; after a fit also their weights and the free intercept."""

    common: InputMap
    own: InputMap
    weight: float = 1.0  # of the common part, beside own parts of weight 1
    common_weights: Array | None = None  # r
    own_weights: Array | None = None  # r x T
    intercept: float = 0.0
    structure: Any = None  # the matrix of the own part, on the side where it was learned; empty where there is none
    on_features: bool = False  # that side

    @classmethod
    def of(cls, inputs: Array, seen: Observations, common: Term, model: Any) -> CommonPart:
        """Linear inputs are centred at their weighted mean over all observations; not without intercepts."""
        mean = seen.weight @ inputs[seen.row] / seen.weight.sum() if model.fit_intercept else np.zeros(inputs.shape[1])
        columns = tuple(range(inputs.shape[1]))
        parameters = model._kernel(inputs).parameters

        def features(kernel: Any, constant: float) -> InputMap:
            if isinstance(kernel, str) and kernel == "linear":
                return InputMap(columns, mean, None, constant)
            return InputMap(columns, None, KernelMap.of(inputs, kernel, parameters), constant)

        own = features(model.kernel, float(model.intercept_scaling) if model.fit_intercept else 0.0)
        same = common.kernel is model.kernel or (isinstance(common.kernel, str) and common.kernel == model.kernel)
        shared = replace(own, constant=0.0) if same else features(common.kernel, 0.0)
        return cls(shared, own, float(common.weight))

    def posed(self, inputs: Array, seen: Observations, structure: Any) -> list[PosedTerm]:
        """Both terms over the observations."""
        free = self.weight == np.inf
        phi = self.common(inputs)
        same = self.common.kernel is self.own.kernel and self.common.mean is self.own.mean
        phi = at_rows(phi, seen.row)
        own = phi if same else at_rows(replace(self.own, constant=0.0)(inputs), seen.row)
        shared = PosedTerm(TermData(phi, free=free), Independent(), 1.0 if free else self.weight)
        own = joined([own, np.ones((len(phi), 1))]) if self.own.constant else own
        data = TermData(own, seen.task, seen.n_tasks)
        return [shared, PosedTerm(data, structure, units=self.units(data.r))]

    def units(self, r: int) -> Scale:
        """Of the own features, whose last one is the constant 1 of an intercept."""
        return 1.0 if self.own.constant in (0.0, 1.0) else np.append(np.ones(r - 1), self.own.constant)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of an estimator that stand for the weights of the parts."""
        kernel = "linear" if self.common.kernel is None else self.common.kernel.kernel
        return {"common": Term(kernel, weight=self.weight), "intercept_scaling": self.own.constant or 1.0}

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
        shrunk = self.own.constant * self.own_weights[d] if self.own.constant else np.zeros(coef.shape[0])
        return coef, self.intercept + shrunk - coef @ mean

    def shared(self, inputs: Array) -> Array:
        """The common part of each row."""
        assert self.common_weights is not None
        return self.common(inputs) @ self.common_weights

    def values(self, inputs: Array, task: Array | None) -> Array:
        """Every task at every row, or the task of each row; -1 stands for a task that was not seen: the common part alone."""
        assert self.own_weights is not None
        shared, own = self.intercept + self.shared(inputs), self.own(inputs)
        return own_values(shared, own, self.own_weights, task)


def at_rows(phi: Array, row: Array) -> Array:
    """Some rows, and some perhaps more than once."""
    if np.array_equal(row, np.arange(len(phi))):
        return phi
    return phi[row] if phi.shape[1] > FEW_COLUMNS else joined([column.take(row) for column in phi.T])


def own_values(shared: Array, own: Array, W: Array, task: Array | None) -> Array:
    """The common part of each row, plus the own part of every task, or of the task of the row (-1: none)."""
    if task is None:
        return shared[:, None] + own @ W
    return shared + np.where(task < 0, 0.0, np.einsum("ij,ij->i", own, W.T[task]))


def common_term(model: Any) -> Term:
    """What ``common=`` stands for: ``True`` is the kernel of the own parts, a kernel is a term of weight 1."""
    common = model.common
    if not isinstance(common, Term):
        return Term(model.kernel if common is True else common)
    given = {name for name in ("by", "structure", "columns", "described_by") if getattr(common, name) is not None}
    if given or common.intercept:
        wrong = sorted(given) or ["intercept"]
        raise ValueError(f"common= takes a term of all rows with a kernel and a weight, got {wrong[0]}= in {common!r}")
    return common
