"""Mixed models with a random intercept for each task, and a Gaussian process over tasks, on small tables."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from .loaders import DataSet, Part, scaled
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
    found = MixedLM(numbers(data, train.y), X, groups=train.task).fit()
    effects = {task: float(np.asarray(effect)[0]) for task, effect in found.random_effects.items()}
    return X_new @ found.fe_params + np.array([effects.get(task, 0.0) for task in new.task.tolist()])


def gpboost_linear(data: DataSet, train: Part, new: Part) -> Array:
    """GPBoost's linear mixed model."""
    import gpboost

    X, X_new = fixed_effects(train, new)
    model = gpboost.GPModel(group_data=train.task, likelihood="bernoulli_logit" if data.form == "binary" else "gaussian")
    model.fit(y=train.y, X=X)
    return model.predict(group_data_pred=new.task, X_pred=X_new, predict_var=False, predict_response=True)["mu"]


MIXED = [
    Method("statsmodels MixedLM", "mixed model", ("long", "binary"), mixed_lm, "statsmodels", 60),
    Method("GPBoost, linear mixed model", "mixed model", ("long", "binary"), gpboost_linear, "gpboost", 60),
]
