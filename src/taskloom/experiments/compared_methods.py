"""The compared methods; each chooses its regularisation strength by 5-fold cross-validation over its own grid.

The scale of ``alpha`` depends on the structure (it multiplies the squared norm for STL, and is half the square of the threshold
for the trace norm), so each grid starts where the coefficients (almost) vanish on these data and goes down five decades.
MTRL has a second parameter (``ridge``), as have MTCL (number of clusters) and LogDet (``mu``), chosen by the same folds.

Single-task learning (``STL``) chooses a regularisation strength for each task by the folds of that task. ``STL, one strength``
uses one strength for all tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import methods
from ..estimators import MultiTaskRegressor, MultiTaskRegressorCV
from ..structures import Fixed, LogDet, Structure

Array = np.ndarray
SINGLE = "STL"


@dataclass(frozen=True)
class GridPoint:
    """A method with a value of its second parameter."""

    structure: Structure
    ridge: float = 0.0


@dataclass(frozen=True)
class Method:
    """A name in the tables, and the candidates of cross-validation beside ``alpha``."""

    name: str
    candidates: list[GridPoint] = field(default_factory=list)


def _of(recipe: Callable[..., MultiTaskRegressor], **options: Any) -> Structure:
    return recipe(**options).structure


METHODS = [
    Method("STL, one strength", [GridPoint(_of(methods.STL))]),
    Method("MTFL", [GridPoint(_of(methods.MTFL))]),
    Method("MTRL", [GridPoint(_of(methods.MTRL), ridge) for ridge in (0.0, 0.01)]),
    Method("OKL", [GridPoint(_of(methods.OKL))]),
    Method("MTCL", [GridPoint(_of(methods.MTCL, n_clusters=n, mean=1.0)) for n in (2, 4)]),
    Method("LogDet", [GridPoint(LogDet(mu)) for mu in (0.01, 0.1)]),
]
NAMES = [SINGLE, *(method.name for method in METHODS)]


class TaskErrors:
    """A scorer that records the squared errors of every task, for each fold and ``alpha``."""

    def __init__(self, long: bool):
        self.long, self.seen = long, list[Array]()

    def __call__(self, model: Any, X: Array, y: Array) -> float:
        errors = (y - model.predict(X)) ** 2
        self.seen.append(np.bincount(X[:, -1].astype(int), errors) if self.long else errors.sum(axis=0))
        return -float(errors.mean())


def _single_task(X: Array, y: Array, settings: dict[str, Any], seed: int, cv: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Every task at the ``alpha`` with the least squared error in its own folds: ``A = diag(alpha / alpha_t)``."""
    began, errors = time.perf_counter(), TaskErrors("task_column" in options)
    search = {"alphas": settings["n_alphas"], "random_state": seed, "cv": cv, "scoring": errors}
    found = MultiTaskRegressorCV(methods.STL().structure, **search, **options).fit(X, y)
    alphas = found.cv_results_["param_alpha"].astype(float)
    folds = np.reshape(errors.seen, (found.n_splits_, -1, errors.seen[0].size))  # later scores belong to the search itself
    totals = folds[:, : alphas.size].sum(axis=0)
    best = alphas[np.argmin(totals, axis=0)]
    alpha = float(np.exp(np.log(best).mean()))
    model = MultiTaskRegressor(Fixed(np.diag(alpha / best)), alpha=alpha, **options).fit(X, y)
    report = {
        "setting": "Independent(), one alpha per task",
        "alpha": alpha,
        "alphas": best.tolist(),
        "place_in_grid": np.argmin(totals, axis=0).tolist(),
        "relative_gap": float(model.certificate_.relative_gap),
        "relative_gap_in_folds": float(found.cv_results_["max_relative_gap"].max()),
        "seconds": time.perf_counter() - began,
    }
    return {"model": model, "report": report}


def choose(
    X: Any, y: Any, settings: dict[str, Any], seed: int, *, cv: Any = 5, scoring: Any = None, **options: Any
) -> dict[str, Any]:
    """Choose and fit every method: its model, its setting, its certificates and its time.

    ``cv`` and ``scoring`` are those of :class:`MultiTaskRegressorCV`, ``options`` go to every model. Of the settings it reads
    ``methods``, ``n_alphas`` and ``second_parameters`` (whether to choose these too; otherwise the first value is taken).
    """
    names, n_alphas, several = settings["methods"], settings["n_alphas"], settings["second_parameters"]
    chosen = [(method.name, candidate) for method in METHODS for candidate in method.candidates[: None if several else 1]]
    chosen = [pair for pair in chosen if pair[0] in names]
    scored: dict[str, list[dict[str, Any]]] = {}
    ridges = sorted({candidate.ridge for _, candidate in chosen})
    groups = [[pair for pair in chosen if pair[1].ridge == ridge] for ridge in ridges]  # these share their folds
    for group in groups:
        candidates, ridge = [(name, candidate.structure) for name, candidate in group], group[0][1].ridge
        found = MultiTaskRegressorCV(
            structures=[structure for _, structure in candidates],
            alphas=n_alphas,
            ridge=ridge,
            random_state=seed,
            cv=cv,
            scoring=scoring,
            **options,
        )
        results = found.fit(X, y).cv_results_
        for k, (name, structure) in enumerate(candidates):
            part = slice(k * n_alphas, (k + 1) * n_alphas)
            best = int(np.argmax(results["mean_test_score"][part]))
            scored.setdefault(name, []).append(
                {
                    "score": float(results["mean_test_score"][part][best]),
                    "alpha": float(results["param_alpha"][part][best]),
                    "place": best,
                    "gap_in_folds": float(results["max_relative_gap"][part].max()),
                    "seconds": float(results["mean_fit_time"][part].sum()) * found.n_splits_,
                    "structure": structure,
                    "ridge": ridge,
                }
            )
    fitted = {SINGLE: _single_task(X, y, settings, seed, cv, options)} if SINGLE in names else {}
    for name in (name for name in names if name != SINGLE):
        best_setting = max(scored[name], key=lambda setting: setting["score"])
        began = time.perf_counter()
        model = MultiTaskRegressor(
            best_setting["structure"], alpha=best_setting["alpha"], ridge=best_setting["ridge"], **options
        )
        extra = f", ridge {best_setting['ridge']:g}" if best_setting["ridge"] else ""
        fitted[name] = {
            "model": model.fit(X, y),
            "report": {
                "setting": repr(best_setting["structure"]) + extra,
                "alpha": best_setting["alpha"],
                "place_in_grid": best_setting["place"],
                "relative_gap": float(model.certificate_.relative_gap),
                "relative_gap_in_folds": max(setting["gap_in_folds"] for setting in scored[name]),
                "seconds": sum(setting["seconds"] for setting in scored[name]) + time.perf_counter() - began,
            },
        }
    return fitted
