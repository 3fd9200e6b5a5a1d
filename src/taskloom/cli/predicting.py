"""What ``taskloom predict`` does once the heavy libraries are here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..estimators import load
from ..persistence import check_apart
from ..tables import missing_cells
from ..tables.preprocessing import TablePreprocessor
from .output import Output
from .table_files import TableFile, TableWriter

UNWRITTEN = (".xlsx", ".xls", ".xlsm", ".ods", ".json", ".jsonl", ".feather", ".arrow", ".dta", ".sav")
CELLS = 2_000_000  # read and written at a time, however many columns and tasks there are


def run_predict(
    model_path: str,
    table: str,
    to: str | None,
    unseen: str | None,
    keep_inputs: bool,
    escape_formulas: bool,
    rows: int,
    delimiter: str | None,
    encoding: str,
    quiet: bool,
) -> int:
    output = Output(quiet)
    check_apart({"the predictions": to}, {"the model": model_path, "the table": table})
    ending = Path(to).suffix.lower() if to is not None else ""
    if ending in UNWRITTEN:
        raise ValueError(f"{to} ends in {ending}, and such files are not written; end it in .csv or .parquet")
    pipeline = load(model_path)
    if not (isinstance(pipeline, Pipeline) and isinstance(pipeline[0], TablePreprocessor)):
        raise ValueError(
            f"{model_path} holds a model without the preprocessing of a table; use taskloom.load in Python, or taskloom fit"
        )
    preprocessor, model = pipeline[0], pipeline[-1]
    if unseen is not None:
        model.set_params(unseen=unseen)
    source = TableFile(table, delimiter, encoding)
    inputs = {*preprocessor.numeric_, *preprocessor.levels_}
    kept = [name for name in source.columns if keep_inputs or name not in inputs]
    outputs = len(model.tasks_) if model.task_column is None else 1
    rows = max(1, min(rows, CELLS // (len(source.columns) + outputs)))
    numbers = set(preprocessor.numeric_) - set(kept)  # those that are kept are written as they were
    done = 0
    with TableWriter(to, source.arrow_types(), escape_formulas) as writer:
        for piece in source.pieces(rows, numbers):
            found = predictions(model, preprocessor.transform(piece))
            clash = [name for name in found if name in kept]
            if clash:
                raise ValueError(f"{table} has a column {clash[0]!r} already; rename it")
            writer.write({name: _cells(piece[name]) for name in kept} | found)
            done += len(piece)
        if done == 0:
            raise ValueError(f"{table} has a header but no rows")
    if to is not None:
        output.note(f"{done} rows: {to}")
    if writer.formulas and not escape_formulas:
        output.note(
            f"{writer.formulas} texts begin like a formula, which a spreadsheet would run; they are written as they are "
            "(--escape-formulas changes them)"
        )
    return 0


def _cells(column: Any) -> list:
    """As they were, and empty where they were missing."""
    cells = column.tolist()
    for k in np.flatnonzero(missing_cells(cells)):
        cells[k] = None
    return cells


def predictions(model: Any, X: Any) -> dict[str, list]:
    """The columns that predictions make: one, or one for each task; probabilities where the model has them."""
    values = model.predict(X)
    odds = model.predict_proba(X) if hasattr(model, "predict_proba") else None
    if values.ndim == 1:
        columns = {"prediction": values.tolist()}
        if odds is not None:
            classes = model.classes_.tolist()
            columns |= {f"probability {name}": odds[:, k].tolist() for k, name in enumerate(classes)}
        return columns
    tasks = model.tasks_.tolist()
    columns = {f"prediction {name}": values[:, t].tolist() for t, name in enumerate(tasks)}
    if odds is not None:
        own = model.classes_ if isinstance(model.classes_, list) else [model.classes_] * len(tasks)
        columns |= {f"probability {name} {own[t][1]}": np.asarray(odds)[:, t].tolist() for t, name in enumerate(tasks)}
    return columns
