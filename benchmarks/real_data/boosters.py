"""Boosted trees: the task as a category, one model for each task, and with random effects; rounds by a fifth held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from .loaders import DataSet, Part, powers
from .method import EVERY, Method, each_task
from .mixed import slopes_of

Array = np.ndarray
ROUNDS, PATIENCE = 500, 30
LEAVES = (7, 31)


def held_out(n: int) -> tuple[Array, Array]:
    """Four fifths and one fifth of the rows."""
    fold = np.random.default_rng(0).permutation(n) % 5
    return np.flatnonzero(fold != 0), np.flatnonzero(fold == 0)


# --- LightGBM ------------------------------------------------------------------------------------------------------------


def lightgbm(X: Array, y: Array, X_new: Array, objective: str, categories: Any = "auto", **more: Any) -> Array:
    """Leaves and rounds by a fifth of the rows, then a fit of all."""
    import lightgbm

    fit, rest = held_out(len(y))
    best: tuple = (np.inf,)
    for leaves in LEAVES if len(y) > 100 else LEAVES[:1]:
        options = {"objective": objective, "num_leaves": leaves, "learning_rate": 0.05, "min_child_samples": 5} | more
        options |= {"num_threads": 1, "verbosity": -1}
        data = lightgbm.Dataset(X[fit], y[fit], categorical_feature=categories, free_raw_data=False)
        check = lightgbm.Dataset(X[rest], y[rest], reference=data)
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        model = lightgbm.train(options, data, ROUNDS, valid_sets=[check], callbacks=[stop])
        (score,) = model.best_score["valid_0"].values()
        best = min(best, (score, model.best_iteration, options), key=lambda each: each[0])
    whole = lightgbm.Dataset(X, y, categorical_feature=categories)
    return lightgbm.train(best[2], whole, best[1]).predict(X_new)


def with_category(X: Array, n_targets: int) -> Array:
    """Every row once for each target, whose number is the last column."""
    return np.column_stack([np.repeat(X, n_targets, axis=0), np.tile(np.arange(n_targets), len(X))])


def lightgbm_category(data: DataSet, train: Part, new: Part) -> Array:
    """One model; the task, or the target of a wide table with its rows under each other, is a category."""
    if data.form == "labels":
        names, code = np.unique(train.y, return_inverse=True)
        return names[lightgbm(train.X, code, new.X, "multiclass", num_class=len(names)).argmax(axis=1)]
    if data.form == "wide":
        mean, std, n_targets = train.y.mean(axis=0), train.y.std(axis=0), train.y.shape[1]
        X, X_new = (
            np.column_stack([np.repeat(p.X, n_targets, 0), np.tile(np.arange(n_targets), len(p.X))]) for p in (train, new)
        )
        guess = lightgbm(X, ((train.y - mean) / std).ravel(), X_new, "regression", [X.shape[1] - 1])
        return guess.reshape(-1, n_targets) * std + mean
    objective = "binary" if data.form == "binary" else "regression"
    return lightgbm(train.table(), train.y, new.table(), objective, [train.X.shape[1]])


def lightgbm_each(data: DataSet, train: Part, new: Part) -> Array:
    if data.form == "wide":
        return np.column_stack([lightgbm(train.X, y, new.X, "regression") for y in train.y.T])
    objective = "binary" if data.form == "binary" else "regression"
    return each_task(train, new, lambda X, y, X_new: lightgbm(X, y, X_new, objective), fewest=10)


# --- CatBoost ------------------------------------------------------------------------------------------------------------


def catboost(data: DataSet, train: Part, new: Part) -> Array:
    """The task as a category; several targets as one loss; rounds by a fifth of the rows."""
    from catboost import CatBoostClassifier, CatBoostRegressor, Pool

    def pool(part: Part, y: Array | None = None) -> Any:
        if part.task is None:
            return Pool(part.X, y)
        import pandas as pd

        return Pool(pd.DataFrame(part.X).assign(task=part.task.astype(str)), y, cat_features=["task"])

    losses = {"long": "RMSE", "wide": "MultiRMSE", "binary": "Logloss", "labels": "MultiClass"}
    kind = CatBoostRegressor if data.form in ("long", "wide") else CatBoostClassifier
    options = {"loss_function": losses[data.form], "thread_count": 1, "verbose": False, "allow_writing_files": False}
    std = train.y.std(axis=0) if data.form == "wide" else 1
    y = train.y / std if data.form == "wide" else train.y
    fit, rest = held_out(len(y))
    first = kind(iterations=ROUNDS, learning_rate=0.05, early_stopping_rounds=PATIENCE, **options)
    first.fit(pool(train.rows(fit), y[fit]), eval_set=pool(train.rows(rest), y[rest]))
    model = kind(iterations=max(first.tree_count_, 1), learning_rate=0.05, **options).fit(pool(train, y))
    if data.form == "binary":
        return model.predict_proba(pool(new))[:, 1]
    return model.predict(pool(new)).ravel() if data.form == "labels" else model.predict(pool(new)) * std


# --- GPBoost -------------------------------------------------------------------------------------------------------------


def gpboost(data: DataSet, train: Part, new: Part) -> Array:
    """Trees, a random intercept for each task and slopes in time; targets are standardised, for steps are in their units."""
    import gpboost

    likelihood = "bernoulli_logit" if data.form == "binary" else "gaussian"
    mean, std = (0.0, 1.0) if data.form == "binary" else (train.y.mean(), train.y.std())
    train = train if data.form == "binary" else Part(train.X, (train.y - mean) / std, train.task)

    def slopes_asked(part: Part) -> dict[str, Any]:
        return {} if data.time is None else {"group_rand_coef_data_pred": powers(data, train, part)}

    def run(part: Part, rounds: int, leaves: int, asked: Part | None = None) -> Any:
        effects = gpboost.GPModel(group_data=part.task, likelihood=likelihood, **slopes_of(powers(data, train, part)))
        options = {"learning_rate": 0.05, "num_leaves": leaves, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1}
        inside = gpboost.Dataset(part.X, part.y)
        if asked is None:
            return gpboost.train(options, inside, num_boost_round=rounds, gp_model=effects)
        effects.set_prediction_data(group_data_pred=asked.task, **slopes_asked(asked))
        check = gpboost.Dataset(asked.X, asked.y, reference=inside)
        return gpboost.train(
            options,
            inside,
            num_boost_round=rounds,
            gp_model=effects,
            valid_sets=check,
            early_stopping_rounds=PATIENCE,
            use_gp_model_for_validation=True,
            verbose_eval=False,
        )

    fit, rest = held_out(len(train.y))
    best: tuple = (np.inf,)
    for leaves in LEAVES:
        tried = run(train.rows(fit), ROUNDS // 2, leaves, train.rows(rest))
        (score,) = next(iter(tried.best_score.values())).values()
        best = min(best, (score, tried.best_iteration, leaves), key=lambda each: each[0])
    model = run(train, best[1], best[2])
    options = {"predict_var": False, "pred_latent": False} | slopes_asked(new)
    found = model.predict(data=new.X, group_data_pred=new.task, **options)
    return found["response_mean"] * std + mean


BOOSTERS = [
    Method("LightGBM, task as category", "trees", EVERY, lightgbm_category, "lightgbm", 45),
    Method("LightGBM, each task", "trees", ("long", "wide", "binary"), lightgbm_each, "lightgbm", 45),
    Method("CatBoost", "trees", EVERY, catboost, "catboost", 45),
    Method("GPBoost", "trees", ("long", "binary"), gpboost, "gpboost", 45),
]
