"""What ``taskloom fit`` says: what was chosen, and how it compares with single-task models."""

from __future__ import annotations

from typing import Any

import numpy as np

from .gains_table import Comparison, Study
from .output import Output, number, print_gains
from .parts import Parts
from .structure_names import written
from .table_roles import MOST_CATEGORIES, TableRoles


def score_of(data: TableRoles) -> str:
    """The name of the score of a task; of the rows of a class it is the recall."""
    return "recall" if data.layout == "classes" else data.score


def say_chosen(output: Output, model: Any, study: Study) -> None:
    """The chosen structure, alpha and weights, and the certificate."""
    data, preprocessor = study.data, study.preprocessor
    columns = f"{len(preprocessor.numeric_)} numeric and {len(preprocessor.levels_)} categorical columns"
    if not hasattr(model, "best_weights_"):
        output.say(f"{written(model.best_structure_)} at alpha = {model.alpha_:.3g} ({columns}; score: {score_of(data)})")
    else:
        score = "share of the loss that is explained" if data.labelled else "R2"
        output.say(f"chosen: {model.selection_}", f"({columns}; score: {score})")
    output.say(model.certificate_.message, "")


def say_comparison(
    output: Output, compared: Comparison, study: Study, parts: Parts, holdout: float | None, all_tasks: bool
) -> None:
    """Scores of single-task and multi-task models: of each task, and for sums over all rows of a long table."""
    data, score = study.data, score_of(study.data)
    output.say(
        f"{score} on {100 * holdout:.0f} % of the rows, held out from all model selection"
        if holdout is not None
        else f"Cross-validated {score}, {len(study.folds)} folds (optimistically biased: alpha was chosen on the same folds; "
        "see --holdout)"
    )
    if data.layout != "rows":
        print_gains(output, compared.by_task, all_tasks, score)
    if not parts.plain and data.layout != "wide":
        _say_over_rows(output, compared.over_rows, score, "one model" if data.layout == "rows" else "single-task")
    if parts.by and not np.isnan(compared.over_rows["alone"]):
        left_out = [name for name in parts.by if name not in study.plain.data.categorical]
        among = [name for name in parts.by if name not in left_out]
        takes = f"takes {' and '.join(among)} as categorical inputs" if among else ""
        lacks = f"does not see {' and '.join(left_out)} (more than {MOST_CATEGORIES} levels)" if left_out else ""
        what = "one model" if data.layout == "rows" else "a single-task model"
        output.say(f"({what} {' and '.join(filter(None, (takes, lacks)))})")


def _say_over_rows(output: Output, over_rows: dict[str, Any], score: str, other: str) -> None:
    alone, together, gain, error = (float(over_rows[name]) for name in ("alone", "together", "gain", "standard_error"))
    mine = f"{number(together)} {'with groups' if other != 'single-task' else 'multi-task'}"
    if np.isnan(alone):
        output.say(f"over all rows: {score} {mine}")
    else:
        output.say(f"over all rows: {score} {number(alone)} {other}, {mine}, gain {gain:+.3f} (standard error {error:.3f})")


def fit_result(model: Any, data: TableRoles, compared: Comparison, held_out: Comparison | None) -> dict[str, Any]:
    """The result for programs."""
    return {
        "tasks": 0 if data.layout == "rows" else len(data.tasks),
        "observations": int(data.row.size),
        "score": score_of(data),
        "structure": repr(model.best_structure_) if hasattr(model, "best_structure_") else None,
        "alpha": model.alpha_,
        "weights": getattr(model, "best_weights_", None),
        "selection": model.selection_,
        "certificate": vars(model.certificate_),
        "transfer": None if data.layout == "rows" else compared.by_task,
        "over_rows": None if data.layout == "wide" else compared.over_rows,
        "held_out": None if held_out is None else held_out.over_rows if data.layout == "rows" else held_out.by_task,
    }
