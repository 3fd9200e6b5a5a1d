"""The compared methods; each chooses its regularisation strength by 5-fold cross-validation over its own grid.

The scale of ``alpha`` depends on the structure (it multiplies the squared norm for STL, and is half the square of the threshold
for the trace norm), so each grid starts where the coefficients (almost) vanish on these data and goes down five decades.
MTRL has a second parameter (``ridge``), as have MTCL (number of clusters) and LogDet (``mu``), chosen by the same folds.

Single-task learning (``STL``) chooses a regularisation strength for each task by the folds of that task. ``STL, one strength``
uses one strength for all tasks.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .. import methods
from ..estimators import MultiTaskRegressor, MultiTaskRegressorCV
from ..structures import Fixed, LogDet

Array = np.ndarray
SINGLE = "STL"
METHODS: dict[str, list[tuple[Any, float]]] = {  # the candidates of cross-validation beside alpha: structure and ridge
    "STL, one strength": [(methods.STL().structure, 0.0)],
    "MTFL": [(methods.MTFL().structure, 0.0)],
    "MTRL": [(methods.MTRL().structure, ridge) for ridge in (0.0, 0.01)],
    "OKL": [(methods.OKL().structure, 0.0)],
    "MTCL": [(methods.MTCL(n_clusters=n, mean=1.0).structure, 0.0) for n in (2, 4)],
    "LogDet": [(LogDet(mu), 0.0) for mu in (0.01, 0.1)],
}
NAMES = [SINGLE, *METHODS]


class TaskErrors:
    """A scorer that records the squared errors of every task, for each fold and ``alpha``."""

    def __init__(self, long: bool):
        self.long, self.seen = long, list[Array]()

    def __call__(self, model: Any, X: Array, y: Array) -> float:
        errors = (y - model.predict(X)) ** 2
        self.seen.append(np.bincount(X[:, -1].astype(int), errors) if self.long else errors.sum(axis=0))
        return -float(errors.mean())


def _single_task(X: Array, y: Array, search: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Every task at the ``alpha`` with the least squared error in its own folds: ``A = diag(alpha / alpha_t)``."""
    began, errors = time.perf_counter(), TaskErrors("task_column" in options)
    found = MultiTaskRegressorCV(
        methods.STL().structure, common=None, **search | {"scoring": errors}, **options, kernels=None
    ).fit(X, y)
    alphas = found.cv_results_["param_alpha"].astype(float)
    folds = np.reshape(errors.seen, (found.n_splits_, -1, errors.seen[0].size))  # later scores belong to the search itself
    place = np.argmin(folds[:, : alphas.size].sum(axis=0), axis=0)
    best = alphas[place]
    alpha = float(np.exp(np.log(best).mean()))
    model = MultiTaskRegressor(Fixed(np.diag(alpha / best)), alpha=alpha, **options)
    gap, seconds = float(found.cv_results_["max_relative_gap"].max()), time.perf_counter() - began
    setting = "Independent(), one alpha per task"
    return _fitted(model, X, y, setting, place.tolist(), gap, seconds, alphas=best.tolist())


def _fitted(
    model: Any, X: Any, y: Any, setting: str, place: Any, gap_in_folds: float, seconds: float, **more: Any
) -> dict[str, Any]:
    """The model, fitted, and what the record says about it; the seconds are those of its search."""
    began = time.perf_counter()
    model.fit(X, y)
    report = {
        "setting": setting,
        "alpha": model.alpha,
        "place_in_grid": place,
        "relative_gap": float(model.certificate_.relative_gap),
        "relative_gap_in_folds": gap_in_folds,
        "seconds": seconds + time.perf_counter() - began,
    }
    return {"model": model, "report": report | more}


def choose(
    X: Any, y: Any, settings: dict[str, Any], seed: int, *, cv: Any = 5, scoring: Any = None, **options: Any
) -> dict[str, Any]:
    """Choose and fit every method: its model, its setting, its certificates and its time.

    ``cv`` and ``scoring`` are those of :class:`MultiTaskRegressorCV`, ``options`` go to every model. Of the settings it reads
    ``methods``, ``n_alphas`` and ``second_parameters`` (whether to choose these too; otherwise the first value is taken).
    """
    names, most = settings["methods"], None if settings["second_parameters"] else 1
    search = {"alphas": settings["n_alphas"], "random_state": seed, "cv": cv, "scoring": scoring}
    fitted = {SINGLE: _single_task(X, y, search, options)} if SINGLE in names else {}
    candidates = [(name, *each) for name in METHODS if name in names for each in METHODS[name][:most]]
    scored: dict[str, list[dict[str, Any]]] = {name: [] for name in names if name != SINGLE}
    for ridge in sorted({ridge for *_, ridge in candidates}):
        group = [(name, structure) for name, structure, its_own in candidates if its_own == ridge]  # these share their folds
        found = MultiTaskRegressorCV(
            structures=[structure for _, structure in group], common=None, ridge=ridge, **search, **options, kernels=None
        )
        results = found.fit(X, y).cv_results_
        for k, (name, structure) in enumerate(group):
            part = slice(k * settings["n_alphas"], (k + 1) * settings["n_alphas"])
            place = int(np.argmax(results["mean_test_score"][part]))
            alpha = float(results["param_alpha"][part][place])
            scored[name].append(
                {
                    "score": float(results["mean_test_score"][part][place]),
                    "model": MultiTaskRegressor(structure, alpha=alpha, ridge=ridge, **options),
                    "setting": f"{structure!r}{f', ridge {ridge:g}' if ridge else ''}",
                    "place": place,
                    "gap": float(results["max_relative_gap"][part].max()),
                    "seconds": float(results["mean_fit_time"][part].sum()) * found.n_splits_,
                }
            )
    for name, tried in scored.items():
        best = max(tried, key=lambda candidate: candidate["score"])
        gap, seconds = max(candidate["gap"] for candidate in tried), sum(candidate["seconds"] for candidate in tried)
        fitted[name] = _fitted(best["model"], X, y, best["setting"], best["place"], gap, seconds)
    return fitted
