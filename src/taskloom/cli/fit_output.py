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
        _say_over_rows(output, compared.over_rows, study, score)


def _say_over_rows(output: Output, over_rows: dict[str, Any], study: Study, score: str) -> None:
    """One score over all rows, and what the models that stand beside see of the groupings."""
    alone, together, gain, error = (float(over_rows[name]) for name in ("alone", "together", "gain", "standard_error"))
    other, mine = ("one model", "with groups") if study.data.layout == "rows" else ("single-task", "multi-task")
    if np.isnan(alone):
        output.say(f"over all rows: {score} {number(together)} {mine}")
        return
    scores = f"{number(alone)} {other}, {number(together)} {mine}"
    output.say(f"over all rows: {score} {scores}, gain {gain:+.3f} (standard error {error:.3f})")
    if by := study.data.by:
        among = [name for name in by if name in study.plain.data.categorical]
        out = [name for name in by if name not in among]
        has = [f"{' and '.join(among)} as categorical input"] if among else []
        lacks = [f"{' and '.join(out)} left out, more than {MOST_CATEGORIES} levels"] if out else []
        output.say(f"({other}: {'; '.join(has + lacks)})")


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
