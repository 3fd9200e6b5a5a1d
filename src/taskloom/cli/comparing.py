"""What ``taskloom compare`` does once the heavy libraries are here."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from . import NOT_PROVED
from .fitting import READING, SETTINGS
from .gains_table import Folds, Settings, folds_of, search
from .output import Output, ended_well, number, percent
from .structure_names import SLOW, every, parse, written
from .table_roles import TableRoles, read_data


def run_compare(structure: tuple[str, ...] | None, as_json: bool, quiet: bool, **given: Any) -> int:
    output = Output(quiet, as_json)
    chosen = None if structure is None else [parse(text) for text in structure]
    data = read_data(output, **{name: given[name] for name in READING})
    settings = Settings(**{name: given[name] for name in SETTINGS})
    if chosen is None:
        chosen = every(len(data.tasks), settings.kernel == "linear")
        left = [name for name, most in SLOW.items() if len(data.tasks) > most]
        if left:
            output.note(f"left out, slow with {len(data.tasks)} tasks: {', '.join(left)} (name it in --structure to have it)")
    X = data.preprocessor().fit_transform(data.inputs)
    folds = folds_of(data, settings.cv, settings.seed)
    rows = []
    for candidate in chosen:
        try:
            rows.append(_one(output, data, X, candidate, settings, folds))
        except ValueError as error:
            if structure is not None or candidate is chosen[0]:
                raise
            output.note(f"left out: {written(candidate)} ({error})")
    rows.sort(key=lambda row: -row["score"])
    best = rows[0]
    for row in rows:
        behind = np.asarray(best["folds"]) - np.asarray(row["folds"])
        row["behind"] = float(behind.mean())
        row["behind_error"] = _error(behind)
    score = "accuracy" if data.labelled else "R2"
    output.table(
        ("structure", "alpha", score, "s.e.", "behind", "s.e.", "proved within", "seconds"),
        [
            (
                row["structure"],
                f"{row['alpha']:.3g}",
                number(row["score"]),
                number(row["standard_error"]),
                "" if row is best else number(row["behind"]),
                "" if row is best else number(row["behind_error"]),
                percent(row["relative_gap"]),
                f"{row['seconds']:.1f}",
            )
            for row in rows
        ],
    )
    output.say(f"{settings.cv} folds, the same for all; s.e. are standard errors over them; within two of the best is as good")
    output.result({"table": given["table"], "score": score, "ranking": rows})
    return 0 if all(row["ended_well"] for row in rows) else NOT_PROVED


def _one(output: Output, data: TableRoles, X: Any, candidate: Any, settings: Settings, folds: Folds) -> dict[str, Any]:
    began = time.perf_counter()
    model = search(output, data, X, [candidate], settings, folds, written(candidate))
    results = model.cv_results_
    best = int(np.nanargmax(results["mean_test_score"]))
    folds_scores = np.array([results[f"split{k}_test_score"][best] for k in range(model.n_splits_)])
    return {
        "structure": written(candidate),
        "alpha": model.alpha_,
        "score": model.best_score_,
        "standard_error": _error(folds_scores),
        "folds": folds_scores,
        "relative_gap": float(max(model.certificate_.relative_gap, results["max_relative_gap"].max())),
        "ended_well": ended_well(model.certificate_),
        "seconds": time.perf_counter() - began,
    }


def _error(values: Any) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))
