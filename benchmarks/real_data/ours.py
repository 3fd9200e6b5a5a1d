"""The first call of taskloom, as a user types it, and candidates made by hand for what it could choose among.

Candidates see scaled inputs, targets over their standard deviation, a wide grid of alpha, and one score on the same folds:
pooled over the rows of a long table, ``"steady"`` for a wide one. So their cross-validated scores compare, and a portfolio can
be judged from the records alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.linear_model import RidgeCV

from .loaders import DataSet, Part, scaled
from .method import Method, answers, numbers

Array = np.ndarray
EXACT_ROWS = {"wide": 1600, "labels": 1600, "long": 500, "binary": 500}  # a kernel on more is approximated from landmarks
LEARNED = np.logspace(4, -7, 23)  # the penalty is about the square root of alpha
KNOWN = np.logspace(2, -5, 15)
SHARED = {"independent": np.logspace(1, -10, 23), "trace": np.logspace(2, -14, 33), "frobenius": np.logspace(2, -12, 29)}
SHARED["feature_selection"] = SHARED["trace"]


def first_call(data: DataSet, train: Part, new: Part, **options: Any) -> tuple[Array, dict[str, Any]]:
    """``MultiTaskRegressorCV()`` or ``MultiTaskClassifierCV()``, with the task column where there is one."""
    from taskloom import MultiTaskClassifierCV, MultiTaskRegressorCV

    kind = MultiTaskRegressorCV if data.form in ("long", "wide") else MultiTaskClassifierCV
    given = {} if train.task is None else {"task_column": -1}
    model = kind(**given, **options).fit(train.table(), train.y)
    guess = model.predict_proba(new.table())[:, 1] if data.form == "binary" else model.predict(new.table())
    return guess, {"cv": model.best_score_, "said": model.selection_}


def first_call_scaled(data: DataSet, train: Part, new: Part, **options: Any) -> tuple[Array, dict[str, Any]]:
    X, X_new = scaled(train, new)
    return first_call(data, Part(X, train.y, train.task), Part(X_new, new.y, new.task), **options)


def explained(model: Any, X: Array, y: Array) -> float:
    """The share of the variance of standardised targets that is explained, pooled over rows."""
    return 1 - float(np.mean((model.predict(X) - y) ** 2))


def relevance(X: Array, y: Array, task: Array | None) -> Array:
    """How much single tasks use a column: the root mean square of its weights in a ridge for each task; 1 on average."""
    if task is None:
        rows = RidgeCV(np.logspace(-2, 4, 13), alpha_per_target=y.ndim > 1).fit(X, y).coef_
    else:
        mine = [np.flatnonzero(task == t) for t in np.unique(task)]
        mine = [own for own in mine if len(own) > 3 and np.ptp(y[own]) > 0][:300]
        rows = np.array([RidgeCV(np.logspace(-2, 4, 13)).fit(X[own], y[own]).coef_ for own in mine])
    used = np.sqrt(np.mean(np.atleast_2d(rows) ** 2, axis=0))
    return used / np.sqrt(np.mean(used**2))


def selected(X: Array, y: Array, task: Array | None) -> Array:
    """The same from a fit that selects columns for all tasks (the (2, 1) norm); 0 for columns that it leaves out."""
    from taskloom import MultiTaskRegressorCV

    options: dict[str, Any] = {"scoring": "steady"} if task is None else {"scoring": explained, "task_column": -1}
    Z = X if task is None else np.column_stack([X, task])
    model = MultiTaskRegressorCV("feature_selection", common=None, alphas=LEARNED, **options).fit(Z, (y - y.mean(0)) / y.std())
    used = np.sqrt(np.mean(model.coef_**2, axis=0))
    return used / np.sqrt(np.mean(used**2)) if used.any() else np.ones(len(used))


WEIGHTS = {"relevance": relevance, "selected": selected}


def by_hand(
    data: DataSet, train: Part, new: Part, width: float | None = None, weights: str | None = None, **options: Any
) -> tuple[Array, dict[str, Any]]:
    """A regressor (on labels, of indicators); ``width`` is gamma in units of one over the median squared distance."""
    from taskloom import MultiTaskRegressorCV

    X, X_new = scaled(train, new)
    y = numbers(data, train.y)
    if weights is not None:
        weight = WEIGHTS[weights](X, y, train.task)
        X, X_new = X * weight, X_new * weight
    std = y.std(axis=0) if options.pop("own_units", False) else y.std()
    if width is not None:
        some = X[np.random.default_rng(0).permutation(len(X))[:1000]]
        options |= {"kernel": "rbf", "gamma": width / float(np.median(pdist(some, "sqeuclidean")))}
        if len(X) > EXACT_ROWS[data.form] and "common" not in options:
            options |= {"approximation": "nystroem", "n_components": 300}
    if train.task is not None:
        options |= {"task_column": -1}
        X, X_new = np.column_stack([X, train.task]), np.column_stack([X_new, new.task])
    options = {"common": None, "scoring": "steady" if train.task is None else explained} | options
    if train.task is None:  # with shared inputs more values of alpha cost little
        options["alphas"] = SHARED[options["structure"]]
    model = MultiTaskRegressorCV(**options).fit(X, y / std)
    at_edge = model.alpha_ in (np.max(model.path_["alphas"]), np.min(model.path_["alphas"]))
    extras = {"cv": model.best_score_, "alpha": model.alpha_, "at edge": bool(at_edge), "chosen": repr(model.best_structure_)}
    return answers(data, model.predict(X_new) * std), extras


def shared_means() -> dict[str, Any]:
    from taskloom.structures import SharedMean

    return {"structures": [SharedMean(gamma) for gamma in (10.0, 100.0)], "alphas": np.logspace(2, -3, 11)}


def candidates() -> Iterator[Method]:
    """Structures, a common part or not, linear or Gaussian at three widths."""

    def made(name: str, forms: tuple[str, ...] = ("long", "wide", "binary", "labels"), **options: Any) -> Method:
        def run(data: DataSet, train: Part, new: Part) -> tuple[Array, dict[str, Any]]:
            extra = shared_means() if options.get("structure") == "shared_mean" else {}
            rest = {key: value for key, value in options.items() if not (extra and key == "structure")}
            return by_hand(data, train, new, **(rest | extra))

        return Method(name, "candidate", forms, run, limit=40)

    long = ("long", "binary")
    yield Method("first call, scaled inputs", "candidate", ("long", "wide", "binary", "labels"), first_call_scaled)
    yield made("linear trace", structure="trace", alphas=LEARNED)
    yield made("linear independent", structure="independent", alphas=KNOWN)
    yield made("linear shared mean", long, structure="shared_mean")
    yield made("linear frobenius", structure="frobenius", alphas=LEARNED)
    yield made("linear independent, common", long, structure="independent", common=True)
    yield made("linear trace, common", long, structure="trace", common=True)
    for width in (0.02, 0.1, 0.5, 2.0, 8.0):
        yield made(f"rbf {width:g} trace", width=width, structure="trace", alphas=LEARNED)
        yield made(f"rbf {width:g} independent", width=width, structure="independent", alphas=KNOWN)
    for width in (0.1, 0.5, 2.0):
        yield made(f"relevance, rbf {width:g} trace", width=width, weights="relevance", structure="trace", alphas=LEARNED)
        yield made(f"selected, rbf {width:g} trace", width=width, weights="selected", structure="trace", alphas=LEARNED)
    yield made("linear feature selection", structure="feature_selection", alphas=LEARNED)
    yield made("selected, linear trace", weights="selected", structure="trace", alphas=LEARNED)
    yield made("relevance, linear trace", weights="relevance", structure="trace", alphas=LEARNED)
    yield made("rbf 0.5 frobenius", width=0.5, structure="frobenius", alphas=LEARNED)
    yield made("rbf 0.5 shared mean", long, width=0.5, structure="shared_mean")
    yield made("rbf 0.5 independent, common", long, width=0.5, structure="independent", common=True)
    yield made("linear trace, size", long, structure="trace", alphas=LEARNED, task_weight="size")
    yield made("linear trace, own units", ("wide",), structure="trace", alphas=LEARNED, own_units=True)
    yield made("rbf 0.5 trace, own units", ("wide",), width=0.5, structure="trace", alphas=LEARNED, own_units=True)
    yield made("linear trace, default score", ("long", "wide"), structure="trace", alphas=LEARNED, scoring=None)
    yield made("linear trace, steady", long, structure="trace", alphas=LEARNED, scoring="steady")


FIRST = [Method("taskloom, first call", "taskloom", ("long", "wide", "binary", "labels"), first_call, limit=300)]
CANDIDATES = list(candidates())
