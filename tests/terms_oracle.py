"""What the minimum of a sum of terms is, by another road: the objective of the design, written in CVXPY as it stands.

    f(row i) = b + sum_q phi_q(x_i)' W_q u_q(i)
    J = sum_i v_i loss(y_i, f(row i)) + sum_q [ alpha/omega_q tr(A_q^+ W_q'W_q) + F_q(A_q) + ridge/omega_q ||W_q||^2 ]

Nothing of taskloom is imported, as in ``oracle``, whose formulas of losses and penalties are used. ``omega_q = inf`` is a term
without a penalty. On the feature side the structure is on ``D_q`` and sees ``W_q'``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from oracle import Penalty, losses, solve, structure_penalty

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class OracleTerm:
    """Features (``n x r``), what the task of each row looks like (``n x p``), a structure, its side, and the weight."""

    phi: Array
    u: Array
    structure: Any
    omega: float = 1.0
    on_features: bool = False

    @property
    def columns(self) -> Array:
        """The products of features and task side (``n x rp``): the predictions are these times ``W`` row by row."""
        return np.array([np.outer(phi, u).ravel() for phi, u in zip(self.phi, self.u, strict=True)])


class Optimum(NamedTuple):
    """The minimum, and where it was found."""

    value: float
    W: list[Array]
    b: float
    z: Array


def optimum(
    terms: list[OracleTerm],
    y: Array,
    v: Array,
    loss: Any,
    alpha: float,
    ridge: float = 0.0,
    fit_intercept: bool = True,
) -> Optimum:
    """The least ``J`` over all ``W_q``, ``A_q`` and ``b``, to about eight digits."""
    penalties = [term_penalty(term, alpha, ridge) for term in terms]
    b = cp.Variable() if fit_intercept else cp.Constant(0.0)
    z = sum(term.columns @ cp.vec(each.W, order="C") for term, each in zip(terms, penalties, strict=True)) + b
    objective = v @ losses(loss, y, z) + sum(each.value for each in penalties)
    problem = cp.Problem(cp.Minimize(objective), [c for each in penalties for c in each.constraints])
    value = solve(problem, f"{type(loss).__name__} with {[type(term.structure).__name__ for term in terms]}")
    return Optimum(value, [each.W.value for each in penalties], float(b.value), z.value)


def term_penalty(term: OracleTerm, alpha: float, ridge: float) -> Penalty:
    """``alpha/omega tr(A^+ W'W) + F(A) + ridge/omega ||W||^2``, as an expression of ``W`` (``r x p``)."""
    r, p = term.phi.shape[1], term.u.shape[1]
    if np.isinf(term.omega):
        return Penalty(cp.Variable((r, p)), cp.Constant(0.0), [])
    alpha, ridge = alpha / term.omega, ridge / term.omega
    if type(term.structure).__name__ == "FeatureSelection":
        W: cp.Expression = cp.Variable((r, p))
        value, constraints = diagonal(W, alpha)
    elif term.on_features:
        found = structure_penalty(term.structure, p, r, alpha)
        W, value, constraints = found.W.T, found.value, found.constraints
    else:
        W, value, constraints, _ = structure_penalty(term.structure, r, p, alpha)
    return Penalty(W, value + ridge * cp.sum_squares(W), constraints)


def diagonal(W: cp.Expression, alpha: float) -> tuple[cp.Expression, list[cp.Constraint]]:
    """``alpha tr(W'D^+W) + tr D`` with ``D`` diagonal."""
    d = cp.Variable(W.shape[0])
    energy = sum(cp.quad_over_lin(np.sqrt(alpha) * W[j], d[j]) for j in range(W.shape[0]))
    return energy + cp.sum(d), [d >= 0]
