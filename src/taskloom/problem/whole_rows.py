"""Multiclass losses: validation of complete rows, and feasible dual candidates (class probabilities, balanced classes)."""

from __future__ import annotations

import numpy as np

from ..design import Observations
from ..losses import RowLoss
from ..losses.multiclass import gradients_of

Array = np.ndarray


def check_rows(loss: RowLoss, obs: Observations, fit_intercept: bool) -> None:
    """Raise unless every row is complete and has exactly one class."""
    name, T = type(loss).__name__, obs.n_tasks
    if not T >= 2:
        raise ValueError(f"{name} compares the classes of a row: it needs at least 2 of them (columns of Y), got {T}")
    m = int(obs.counts[0])
    if not (np.all(obs.counts == m) and np.all(obs.row.reshape(T, m) == obs.row[:m])):
        raise ValueError(
            f"{name} is a loss of whole rows: each row must be observed for all {T} classes or for none, and {obs.y.size} "
            "observations are not that; leave incomplete rows out, or use a loss of entries such as 'logistic'"
        )
    Y = obs.y.reshape(T, m)
    if (odd := Y[np.abs(Y) != 1]).size:
        raise ValueError(f"{name} needs labels -1 and +1 (+1 at the class of the row), got {float(odd[0])}")
    if (several := np.flatnonzero((Y > 0).sum(axis=0) != 1)).size:
        row = int(obs.row[several[0]])
        raise ValueError(f"{name} needs exactly one +1 in each row, the class of the row; row {row} is not so")
    v = obs.weight.reshape(T, m)
    if not np.allclose(v, v[0], rtol=1e-12, atol=0.0):
        raise ValueError(
            f"{name} has one loss a row, so the weights of a row must be equal over the classes: give one sample_weight for "
            "each row, and task_weight='equal'"
        )
    absent = np.flatnonzero((Y > 0).sum(axis=1) == 0)
    if fit_intercept and absent.size:
        raise ValueError(
            f"class {absent[0]} never occurs: under {name} its intercept would go to minus infinity; leave "
            "the class out, or set fit_intercept=False"
        )


def class_shares(obs: Observations) -> Array:
    """The share of each class in the weight of all rows."""
    return obs.sum_by_task(obs.weight * (obs.y > 0)) / float(obs.weight @ (obs.y > 0))


def row_gradients(obs: Observations, gradients: Array, balance: bool) -> Array:
    """The gradients moved to where the conjugate is finite: ``s + e_y`` are class probabilities.

    With ``balance`` the gradients of every class also add up to 0. A shift of each class achieves that, but may leave the
    simplex. Then the probabilities are rescaled, which preserves zeros. What remains infeasible is mixed with the gradients of
    the intercept-only model, which are balanced and lie in the interior.
    """
    is_class = (obs.y > 0).reshape(obs.n_tasks, -1)
    v = obs.weight[: is_class.shape[1]] / obs.weight[: is_class.shape[1]].sum()
    others = np.where(is_class, 0.0, np.maximum(gradients.reshape(is_class.shape), 0.0))
    s = gradients_of(is_class, others / np.maximum(others.sum(axis=0), 1.0))
    if not balance:
        return s.ravel()
    shifted = s - (s @ v)[:, None]
    if (shifted + is_class).min() < 0:
        s = _raked(is_class, s, v)
        shifted = s - (s @ v)[:, None]
    p = shifted + is_class
    short = p < 0
    if not short.any():
        return shifted.ravel()
    shares = np.broadcast_to(class_shares(obs)[:, None], p.shape)
    share = float((-p[short] / (shares[short] - p[short])).max())
    mixed = (1 - share) * shifted + share * (shares - is_class)
    return gradients_of(is_class, np.maximum(mixed, 0.0)).ravel()


def _raked(is_class: Array, s: Array, v: Array) -> Array:
    """Scale probabilities by ``1 + d_k - mean_i d``, which preserves their sums over rows; a linear system gives ``d``."""
    p = np.maximum(s + is_class, 0.0)
    covariance = np.diag(p @ v) - (p * v) @ p.T
    d = -np.linalg.lstsq(covariance, s @ v, rcond=1e-12)[0]
    factor = 1 + d[:, None] - d @ p
    return gradients_of(is_class, p * factor) if factor.min() >= 0 else s
