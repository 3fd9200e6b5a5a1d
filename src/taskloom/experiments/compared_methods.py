"""The methods that are compared, and how each gets its strength: 5-fold cross-validation over a grid of its own.

A strength means something else for every structure (``alpha`` is the squared norm for STL, half the square of the threshold for
the trace norm, ...), so each has a grid that starts where that structure learns (almost) nothing on these data and goes down
five decades. MTRL has a second parameter (``ridge``), as have MTCL (how many clusters) and LogDet (``mu``): they are chosen
by the same folds.

Single-task learning shares nothing, not even a strength: each task takes the one that its own folds like best. ``STL, one
strength`` shares that one number.
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
ALONE = "STL"


@dataclass(frozen=True)
class GridPoint:
    """A method with a value of its second parameter."""

    structure: Structure
    ridge: float = 0.0


@dataclass(frozen=True)
class Method:
    """A name of the tables and what cross-validation chooses from, beside the strength."""

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
NAMES = [ALONE, *(method.name for method in METHODS)]


class TaskErrors:
    """A scorer that remembers the squared errors of every task, fold by fold and strength by strength."""

    def __init__(self, long: bool):
        self.long, self.seen = long, list[Array]()

    def __call__(self, model: Any, X: Array, y: Array) -> float:
        errors = (y - model.predict(X)) ** 2
        self.seen.append(np.bincount(X[:, -1].astype(int), errors) if self.long else errors.sum(axis=0))
        return -float(errors.mean())


def _alone(X: Array, y: Array, settings: dict[str, Any], seed: int, cv: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Every task at the strength with the least squared error in its own folds: ``A = diag(alpha / alpha_t)``."""
    began, errors = time.perf_counter(), TaskErrors("task_column" in options)
    search = {"alphas": settings["n_alphas"], "random_state": seed, "cv": cv, "scoring": errors}
    found = MultiTaskRegressorCV(methods.STL().structure, **search, **options).fit(X, y)
    walked = found.cv_results_["param_alpha"].astype(float)
    folds = np.reshape(errors.seen, (found.n_splits_, -1, errors.seen[0].size))  # after ours comes a grid of the search
    totals = folds[:, : walked.size].sum(axis=0)
    best = walked[np.argmin(totals, axis=0)]
    alpha = float(np.exp(np.log(best).mean()))
    model = MultiTaskRegressor(Fixed(np.diag(alpha / best)), alpha=alpha, **options).fit(X, y)
    report = {
        "setting": "Independent(), a strength for each task",
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
    """Choose and fit every method: its model, its setting, its certificates and how long it took.

    ``cv`` and ``scoring`` are those of :class:`MultiTaskRegressorCV`, ``options`` go to every model. Of the settings it reads
    ``methods``, ``n_alphas`` and ``second_parameters`` (whether to choose these too; otherwise the first value is taken).
    """
    names, n_alphas, several = settings["methods"], settings["n_alphas"], settings["second_parameters"]
    wanted = [(method.name, candidate) for method in METHODS for candidate in method.candidates[: None if several else 1]]
    wanted = [pair for pair in wanted if pair[0] in names]
    scored: dict[str, list[dict[str, Any]]] = {}
    ridges = sorted({candidate.ridge for _, candidate in wanted})
    groups = [[pair for pair in wanted if pair[1].ridge == ridge] for ridge in ridges]  # these share their folds
    for group in groups:
        mine, ridge = [(name, candidate.structure) for name, candidate in group], group[0][1].ridge
        found = MultiTaskRegressorCV(
            structures=[structure for _, structure in mine],
            alphas=n_alphas,
            ridge=ridge,
            random_state=seed,
            cv=cv,
            scoring=scoring,
            **options,
        )
        results = found.fit(X, y).cv_results_
        for k, (name, structure) in enumerate(mine):
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
    fitted = {ALONE: _alone(X, y, settings, seed, cv, options)} if ALONE in names else {}
    for name in (name for name in names if name != ALONE):
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
