"""Mixed models: a random intercept for each task, and slopes in time where the data set has a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr

from .loaders import DataSet, Part, powers, scaled
from .method import Method, numbers

Array = np.ndarray


def independent_columns(X: Array) -> Array:
    """Indices of columns that are linearly independent of each other and of a constant."""
    ones = np.column_stack([np.ones(len(X)), X])
    _, R, order = qr(ones, mode="economic", pivoting=True)
    size = np.abs(np.diag(R))
    kept = order[: int(np.sum(size > 1e-8 * size[0]))]
    return np.sort(kept[kept > 0]) - 1


def fixed_effects(train: Part, new: Part) -> tuple[Array, Array]:
    """A constant and the independent ones among the scaled inputs."""
    X, X_new = scaled(train, new)
    kept = independent_columns(X)
    return tuple(np.column_stack([np.ones(len(Z)), Z[:, kept]]) for Z in (X, X_new))  # type: ignore[return-value]


def mixed_lm(data: DataSet, train: Part, new: Part) -> Array:
    """statsmodels; its predictions leave the random effects out, so they are added."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    X, X_new = fixed_effects(train, new)
    assert new.task is not None
    slopes, slopes_new = powers(data, train, train), powers(data, train, new)
    own, own_new = np.ones((len(X), 1)), np.ones((len(X_new), 1))
    if slopes is not None and slopes_new is not None:
        own, own_new = np.hstack([own, slopes]), np.hstack([own_new, slopes_new])
    found = MixedLM(numbers(data, train.y), X, groups=train.task, exog_re=own).fit()
    none = np.zeros(own.shape[1])
    effects = np.array([np.asarray(found.random_effects.get(task, none)) for task in new.task.tolist()])
    return X_new @ found.fe_params + np.einsum("ij,ij->i", own_new, effects)


def slopes_of(powers_of_time: Array | None) -> dict[str, Any]:
    """Random slopes, as GPBoost takes them."""
    if powers_of_time is None:
        return {}
    return {"group_rand_coef_data": powers_of_time, "ind_effect_group_rand_coef": [1] * powers_of_time.shape[1]}


def gpboost_linear(data: DataSet, train: Part, new: Part) -> Array:
    """GPBoost's linear mixed model."""
    import gpboost

    X, X_new = fixed_effects(train, new)
    likelihood = "bernoulli_logit" if data.form == "binary" else "gaussian"
    model = gpboost.GPModel(group_data=train.task, likelihood=likelihood, **slopes_of(powers(data, train, train)))
    model.fit(y=train.y, X=X)
    asked = {"group_rand_coef_data_pred": powers(data, train, new)} if data.time is not None else {}
    return model.predict(group_data_pred=new.task, X_pred=X_new, predict_var=False, predict_response=True, **asked)["mu"]


MIXED = [
    Method("statsmodels MixedLM", "mixed model", ("long", "binary"), mixed_lm, "statsmodels", 60),
    Method("GPBoost, linear mixed model", "mixed model", ("long", "binary"), gpboost_linear, "gpboost", 60),
]
