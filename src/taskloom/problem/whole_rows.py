"""What a loss of whole rows asks of observations: every row complete, gradients that are probabilities, balanced classes."""

from __future__ import annotations

import numpy as np

from ..design import Observations
from ..losses import RowLoss

Array = np.ndarray


def check_rows(loss: RowLoss, seen: Observations, fit_intercept: bool) -> None:
    """Refuse observations that are not the classes of whole rows."""
    name, T = type(loss).__name__, seen.n_tasks
    if not T >= 2:
        raise ValueError(f"{name} compares the classes of a row: it needs at least 2 of them (columns of Y), got {T}")
    m = int(seen.counts[0])
    complete = bool(np.all(seen.counts == m)) and bool(np.all(seen.row.reshape(T, m) == seen.row[:m]))
    if not complete:
        raise ValueError(
            f"{name} is a loss of whole rows: each row must be observed for all {T} classes or for none, and {seen.y.size} "
            "observations are not that; leave incomplete rows out, or use a loss of entries such as 'logistic'"
        )
    Y = seen.y.reshape(T, m)
    if not np.all(np.abs(Y) == 1):
        raise ValueError(f"{name} needs labels -1 and +1 (+1 at the class of the row), got {_odd(Y)}")
    several = np.flatnonzero((Y > 0).sum(axis=0) != 1)
    row = int(seen.row[several[0]]) if several.size else 0
    if several.size != 0:
        raise ValueError(f"{name} needs exactly one +1 in each row, the class of the row; row {row} is not so")
    v = seen.weight.reshape(T, m)
    if not np.allclose(v, v[0], rtol=1e-12, atol=0.0):
        raise ValueError(
            f"{name} has one loss a row, so the weights of a row must be equal over the classes: give one sample_weight for "
            "each "
            "row, and task_weight='equal'"
        )
    absent = np.flatnonzero((Y > 0).sum(axis=1) == 0)
    if fit_intercept and absent.size:
        raise ValueError(
            f"class {absent[0]} never occurs: under {name} its intercept would go to minus infinity; leave "
            "the class out, or set fit_intercept=False"
        )


def _odd(Y: Array) -> float:
    """A label that is neither -1 nor +1."""
    odd = Y[np.abs(Y) != 1]
    return float(odd[0]) if odd.size else 0.0


def class_shares(seen: Observations) -> Array:
    """The share of each class in the weight of all rows."""
    return seen.sum_by_task(seen.weight * (seen.y > 0)) / float(seen.weight @ (seen.y > 0))


def row_gradients(seen: Observations, gradients: Array, balance: bool) -> Array:
    """Gradients near these with a finite conjugate: ``s + e_y`` are probabilities; ``balance``: every class adds up to 0.

    A shift of each class balances, and may leave the domain. Then probabilities are scaled, which leaves zeros alone, and
    what that cannot do is done by the gradients of the predictor that knows the shares of the classes and nothing else: they
    are balanced too, and inside, so a mixture with just enough of them is both.
    """
    own = (seen.y > 0).reshape(seen.n_tasks, -1)
    v = seen.weight[: own.shape[1]] / seen.weight[: own.shape[1]].sum()
    others = np.where(own, 0.0, np.maximum(gradients.reshape(own.shape), 0.0))
    s = _closed(own, others / np.maximum(others.sum(axis=0), 1.0))
    if not balance:
        return s.ravel()
    shifted = s - (s @ v)[:, None]
    if (shifted + own).min() < 0:
        s = _raked(own, s, v)
        shifted = s - (s @ v)[:, None]
    p = shifted + own
    short = p < 0
    if not short.any():
        return shifted.ravel()
    shares = np.broadcast_to(class_shares(seen)[:, None], p.shape)
    share = float((-p[short] / (shares[short] - p[short])).max())
    mixed = (1 - share) * shifted + share * (shares - own)
    return _closed(own, np.where(own, 0.0, np.maximum(mixed, 0.0))).ravel()


def _raked(own: Array, s: Array, v: Array) -> Array:
    """Scale probabilities by ``1 + d_k - mean_i d``, which keeps rows complete: one linear system says which ``d`` balance."""
    p = np.maximum(s + own, 0.0)
    spread = np.diag(p @ v) - (p * v) @ p.T
    d = -np.linalg.lstsq(spread, s @ v, rcond=1e-12)[0]
    factor = 1 + d[:, None] - d @ p
    return _closed(own, np.where(own, 0.0, p * factor)) if factor.min() >= 0 else s


def _closed(own: Array, others: Array) -> Array:
    """Gradients of the other classes, and for the class of the row what makes them add up to zero."""
    return np.where(own, -others.sum(axis=0), others)
