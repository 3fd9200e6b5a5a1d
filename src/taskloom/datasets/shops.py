"""Sixty simulated shops: the data of ``taskloom demo``."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Bunch

Array = np.ndarray
FEATURES = ("price cut", "rain", "holiday", "street traffic", "newsletter", "season")


def load_shops(random_state: int = 0) -> Bunch:
    """Sixty simulated shops in four clusters, eleven weeks of sales each: the data of ``taskloom demo``.

    Shops of one cluster have similar coefficients for price cuts, rain, holidays and so on. The clusters are the ground truth;
    models do not see them.

    Parameters
    ----------
    random_state : int, default=0
        Seed of the simulation.

    Returns
    -------
    Bunch
        ``X`` (660 weeks x 6) and ``y`` (sales, in thousands) with ``task`` (the shop of each week); ``X_test``, ``y_test`` and
        ``task_test`` (40 more weeks of each shop); ``kind`` (the true cluster of each shop), ``coef`` (60 x 6, the
        true coefficients), ``feature_names``, ``task_names``.
    """
    rng = np.random.default_rng(random_state)
    n_shops, n_kinds, weeks, weeks_test = 60, 4, 11, 40
    kind = np.arange(n_shops) % n_kinds
    centres = rng.normal(size=(n_kinds, len(FEATURES))) * 1.5
    coef = centres[kind] + 0.25 * rng.normal(size=(n_shops, len(FEATURES)))
    level = rng.normal(20, 4, size=n_shops)

    def weeks_of_sales(count: int) -> tuple[Array, Array, Array]:
        X = rng.normal(size=(n_shops * count, len(FEATURES)))
        task = np.repeat(np.arange(n_shops), count)
        y = level[task] + np.einsum("ij,ij->i", X, coef[task]) + 1.5 * rng.normal(size=task.size)
        return X, y, task

    X, y, task = weeks_of_sales(weeks)
    X_test, y_test, task_test = weeks_of_sales(weeks_test)
    return Bunch(
        X=X,
        y=y,
        task=task,
        X_test=X_test,
        y_test=y_test,
        task_test=task_test,
        kind=kind,
        coef=coef,
        feature_names=list(FEATURES),
        task_names=[f"shop {s:02d}" for s in range(n_shops)],
    )
