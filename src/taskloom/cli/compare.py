"""``taskloom compare``."""

from __future__ import annotations

import time
from typing import Any

import click

from . import NOT_PROVED, options


@click.command()
@options.data
@options.not_beside
@click.option("--structure", type=options.Names(), help="Structures to compare; default: all that need no parameters.")
@options.model
@options.printing
def compare(structure: tuple[str, ...] | None, as_json: bool, quiet: bool, **given: Any) -> int:
    """Compare structures on TABLE by cross-validation on the same folds, with standard errors and duality gaps.

    The options for the table are those of fit.
    """
    from .gains_table import Study
    from .output import Output, number, percent
    from .structure_names import SLOW, every, parse, written
    from .table_roles import read_data

    output = Output(quiet, as_json)
    chosen = None if structure is None else [parse(text) for text in structure]
    of_table, settings = options.split(given)
    data = read_data(output, **of_table)
    if chosen is None:
        chosen = every(len(data.tasks), settings["kernel"] == "linear")
        slow = [name for name, most in SLOW.items() if len(data.tasks) > most]
        if slow:
            output.note(f"left out, slow with {len(data.tasks)} tasks: {', '.join(slow)} (--structure includes it)")
    study, rows = Study(output, data, settings), []
    for candidate in chosen:
        try:
            rows.append(_cross_validate(study, candidate, written(candidate)))
        except ValueError as error:
            if structure is not None or candidate is chosen[0]:
                raise
            output.note(f"left out: {written(candidate)} ({error})")
    rows.sort(key=lambda row: -row["score"])
    for row in rows:
        difference = rows[0]["folds"] - row["folds"]
        row["behind"], row["behind_error"] = float(difference.mean()), _standard_error(difference)
    cells = []
    for k, row in enumerate(rows):
        scores = number(row["score"]), number(row["standard_error"])
        behind = (number(row["behind"]), number(row["behind_error"])) if k else ("", "")
        gap, seconds = percent(row["relative_gap"]), f"{row['seconds']:.1f}"
        cells.append((row["structure"], f"{row['alpha']:.3g}", *scores, *behind, gap, seconds))
    output.table(("structure", "alpha", data.score, "s.e.", "below best", "s.e.", "duality gap", "seconds"), cells)
    output.say(f"{settings['cv']} folds, the same for all structures; s.e.: standard error over folds")
    output.say("structures within two standard errors of the best are not clearly worse")
    output.result({"table": given["table"], "score": data.score, "ranking": rows})
    return 0 if all(row["ended_well"] for row in rows) else NOT_PROVED


def _cross_validate(study: Any, candidate: Any, name: str) -> dict[str, Any]:
    import numpy as np

    from .output import ended_well

    began = time.perf_counter()
    model = study.search([candidate], name)
    results = model.cv_results_
    best = int(np.nanargmax(results["mean_test_score"]))
    scores = np.array([results[f"split{k}_test_score"][best] for k in range(model.n_splits_)])
    return {
        "structure": name,
        "alpha": model.alpha_,
        "score": model.best_score_,
        "standard_error": _standard_error(scores),
        "folds": scores,
        "relative_gap": float(max(model.certificate_.relative_gap, results["max_relative_gap"].max())),
        "ended_well": ended_well(model.certificate_),
        "seconds": time.perf_counter() - began,
    }


def _standard_error(values: Any) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)
