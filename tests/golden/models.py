"""The models whose files are frozen, the rows they predict, and everything that they say of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    TablePreprocessor,
    structures,
)

D, T, N = 3, 4, 24


class Data:
    """One small data set in every form that the estimators take, and new rows for each of them."""

    def __init__(self, seed: int = 0):
        rng = np.random.default_rng(seed)
        self.X, self.new = rng.normal(size=(N, D)), rng.normal(size=(5, D))
        self.Y = self.X @ rng.normal(size=(D, 2)) @ rng.normal(size=(2, T)) + 0.3 * rng.normal(size=(N, T)) + 1.0
        self.gone = np.where(rng.random(self.Y.shape) < 0.2, np.nan, self.Y)
        self.labels = np.where(np.median(self.Y, axis=0) < self.Y, "yes", "no")
        self.classes = np.array(["ash", "elm", "oak", "yew"])[np.argmax(self.Y - self.Y.mean(axis=0), axis=1)]
        self.long, self.new_long = self._with_tasks(self.X), self._with_tasks(self.new)
        kinds, shops = np.where(self.X[:, 0] > 0, "big", None), np.resize(["a", "b", "c"], N)
        self.frame = pd.DataFrame(self.X, columns=list("pqr")).assign(kind=kinds, shop=shops)
        self.frame.loc[3, "q"] = np.nan

    @staticmethod
    def _with_tasks(X: np.ndarray) -> np.ndarray:
        return np.column_stack([np.repeat(X, T, axis=0), np.tile(np.arange(T), len(X))])


def _wide(data: Data) -> dict[str, Callable[[], Any]]:
    X, Y, gone = data.X, data.Y, data.gone
    rbf = {"kernel": "rbf", "gamma": 0.3, "alpha": 0.1}
    first, rest = slice(0, 10), slice(10, N)
    return {
        "regressor_wide": lambda: MultiTaskRegressor("trace", alpha=0.05).fit(X, gone),
        "regressor_clusters": lambda: MultiTaskRegressor(structures.Clusters(2), alpha=0.05, loss="huber").fit(X, gone),
        "regressor_rbf": lambda: MultiTaskRegressor("frobenius", **rbf).fit(X, gone),
        "regressor_nystroem": lambda: MultiTaskRegressor(approximation="nystroem", n_components=8, **rbf).fit(X, gone),
        "regressor_fourier": lambda: MultiTaskRegressor(approximation="fourier", n_components=8, **rbf).fit(X, gone),
        "regressor_two_kernels": lambda: MultiTaskRegressor(
            ["trace", structures.Clusters(2)], kernel=["linear", "rbf"], gamma=0.3, alpha=0.1
        ).fit(X, gone),
        "regressor_robust": lambda: MultiTaskRegressor("robust", alpha=0.05).fit(X, gone),
        "regressor_feature_selection": lambda: MultiTaskRegressor("feature_selection", alpha=0.05).fit(X, gone),
        "regressor_low_rank": lambda: MultiTaskRegressor(structures.LowRank(2), alpha=0.05).fit(X, gone),
        "regressor_standardized": lambda: MultiTaskRegressor(
            alpha=0.05, standardize_targets=True, task_weight=[1, 2, 3, 4]
        ).fit(X, 100 * Y),
        "regressor_partial_fit": lambda: (
            MultiTaskRegressor(alpha=0.05).partial_fit(X[first], gone[first]).partial_fit(X[rest], gone[rest])
        ),
        "regressor_added_task": lambda: MultiTaskRegressor("frobenius", **rbf).fit(X, Y).add_task(X[:6], Y[:6, 1], "hull"),
        "regressor_cv": lambda: MultiTaskRegressorCV(structures=["trace", "shared_mean"], alphas=3, cv=3).fit(X, gone),
        "regressor_cv_fallback": lambda: MultiTaskRegressorCV(
            structures.SharedMean(100.0), kernel="rbf", alphas=3, cv=3, fallback="single"
        ).fit(X, np.column_stack([Y[:, 0], Y[:, 0], -Y[:, 0]])),
        "classifier_wide": lambda: MultiTaskClassifier(alpha=0.05).fit(X, data.labels),
        "classifier_rbf_hinge": lambda: MultiTaskClassifier("frobenius", loss="hinge", **rbf).fit(X, data.labels),
        "classifier_softmax": lambda: MultiTaskClassifier(loss="softmax", alpha=0.05).fit(X, data.classes),
        "classifier_multiclass_hinge": lambda: MultiTaskClassifier(loss="multiclass_hinge", alpha=0.05).fit(X, data.classes),
        "classifier_cv": lambda: MultiTaskClassifierCV(alphas=[1.0, 0.1], cv=2).fit(X, data.labels),
        "pipeline_scaler": lambda: make_pipeline(StandardScaler(), MultiTaskRegressor(alpha=0.05)).fit(X, gone),
    }


def _long(data: Data) -> dict[str, Callable[[], Any]]:
    Y, labels = data.gone.ravel(), data.labels.ravel()
    return {
        "regressor_long": lambda: MultiTaskRegressor(alpha=0.05, task_column=-1, unseen="mean").fit(data.long, Y),
        "classifier_long": lambda: MultiTaskClassifier(alpha=0.05, task_column=-1).fit(data.long, labels),
    }


def _framed(data: Data) -> dict[str, Callable[[], Any]]:
    pipe = make_pipeline(TablePreprocessor(task_column="shop"), MultiTaskRegressor(alpha=0.05, task_column="shop"))
    return {"pipeline_table": lambda: pipe.fit(data.frame, data.Y[:, 0])}


def fitted() -> dict[str, tuple[Any, Any]]:
    """Each model, fitted by the taskloom that is imported, and rows that it can predict."""
    data = Data()
    found: dict[str, tuple[Any, Any]] = {}
    for makers, rows in ((_wide, data.new), (_long, data.new_long), (_framed, data.frame[:6])):
        found |= {name: (make(), rows) for name, make in makers(data).items()}
    return found


def answers(model: Any, rows: Any) -> dict[str, Any]:
    """Whatever the model says about the rows, as plain numbers, names and lists."""
    found = {"predict": model.predict(rows)}
    for name in ("decision_function", "predict_proba", "predict_addends"):
        if hasattr(model, name):
            found[name] = _if_any(lambda name=name: getattr(model, name)(rows))
    found["return_std"] = _if_any(lambda: model.predict(rows, return_std=True))
    return {name: plain(value) for name, value in found.items() if value is not None}


def _if_any(ask: Callable[[], Any]) -> Any:
    """``None`` where this model has no such answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return ask()
        except (AttributeError, TypeError, ValueError):
            return None


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return np.asarray(value).tolist()


def as_columns(rows: Any) -> Any:
    """What JSON can hold of a table: columns by name, or the rows of an array."""
    if isinstance(rows, pd.DataFrame):
        return {name: [None if pd.isna(v) else v for v in rows[name]] for name in rows}
    return rows.tolist()


def from_columns(rows: Any) -> Any:
    return pd.DataFrame(rows) if isinstance(rows, dict) else np.array(rows)
