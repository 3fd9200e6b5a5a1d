"""``taskloom predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import options

UNSUPPORTED = (".xlsx", ".xls", ".xlsm", ".ods", ".json", ".jsonl", ".feather", ".arrow", ".dta", ".sav")
CELLS = 2_000_000  # read and written at a time, however many columns and tasks there are


@click.command()
@click.argument("model", type=click.Path())
@click.argument("table", type=click.Path())
@options.file("--output", "-o", help="CSV, or Parquet by its ending; default: standard output.")
@click.option(
    "--unseen", type=click.Choice(["raise", "mean"]), help="A task not seen in training: raise an error, or predict the mean."
)
@click.option("--keep-inputs", is_flag=True, help="Keep the inputs beside the predictions.")
@options.drop
@click.option(
    "--escape-formulas",
    is_flag=True,
    help="In CSV, put ' before texts that a spreadsheet would run (= + - @); without it cells stay as they are.",
)
@click.option("--rows", type=click.IntRange(min=1), default=20_000, help="Rows in memory at a time.")
@options.reading
@options.quiet
@options.debug
def predict(
    model: str,
    table: str,
    output: str | None,
    unseen: str | None,
    keep_inputs: bool,
    drop: tuple[str, ...],
    escape_formulas: bool,
    rows: int,
    delimiter: str | None,
    encoding: str,
    quiet: bool,
) -> int:
    """Predict the rows of TABLE (CSV or Parquet) with a model that fit --save wrote, or save() after a fit to a data frame.

    Writes every column that is not an input (the task, identifiers), but those of --drop, which are not read, and `prediction`;
    for classifiers also probabilities. Files may be larger than memory.
    """
    from ..estimators import load
    from ..persistence import check_apart
    from .model_inputs import ModelInputs
    from .output import Output
    from .table_files import TableFile, TableWriter
    from .table_roles import check_known

    check_apart({"the predictions": output}, {"the model": model, "the table": table})
    ending = Path(output).suffix.lower() if output is not None else ""
    if ending in UNSUPPORTED:
        raise ValueError(f"{output} ends in {ending}, and such files are not written; end it in .csv or .parquet")
    table_model = ModelInputs.of(load(model), model)
    estimator = table_model.estimator
    if unseen is None and estimator.unseen == "auto" and not estimator._state.is_sum:
        unseen = "raise"  # the mean of the tasks is for those who ask
    if unseen is not None:
        estimator.set_params(unseen=unseen)
    source = TableFile(table, delimiter, encoding)
    for name in drop:
        check_known(name, source)
        if name in table_model.columns:
            raise click.UsageError(f"Column {name!r} cannot be dropped: the model was fitted with it.")
    kept = [name for name in source.columns if name not in drop and (keep_inputs or name not in table_model.inputs)]
    n_outputs = len(estimator.tasks_) if estimator.task_column is None else 1
    rows = max(1, min(rows, CELLS // (len(source.columns) + n_outputs)))
    numbers = table_model.numbers - set(kept)  # columns that are kept are written as they were
    done, notes = 0, Output(quiet)
    with TableWriter(output, source.arrow_types(), escape_formulas) as writer:
        for piece in source.pieces(rows, numbers, without=set(drop)):
            found = _predictions(estimator, table_model.encode(piece))
            clash = [name for name in found if name in kept]
            if clash:
                raise ValueError(f"{table} has a column {clash[0]!r} already; rename it")
            writer.write({name: _cells(piece[name]) for name in kept} | found)
            done += len(piece)
        if done == 0:
            raise ValueError(f"{table} has a header but no rows")
    if output is not None:
        notes.note(f"{done} rows: {output}")
    if writer.formulas and not escape_formulas:
        notes.note(
            f"{writer.formulas} texts begin like a formula, which a spreadsheet would run; they are written as they are "
            "(--escape-formulas changes them)"
        )
    return 0


def _cells(column: Any) -> list:
    """The values of a column, ``None`` where they are missing."""
    from ..tables.layout import missing_cells

    cells = column.tolist()
    for k in missing_cells(cells).nonzero()[0]:
        cells[k] = None
    return cells


def _predictions(model: Any, X: Any) -> dict[str, list]:
    """The output columns: one prediction, or one for each task; probabilities where the model has them."""
    values = model.predict(X)
    tasks = model.tasks_.tolist()
    one = values.ndim == 1
    columns = {"prediction": values} if one else {f"prediction {name}": values[:, t] for t, name in enumerate(tasks)}
    if hasattr(model, "predict_proba"):
        odds, classes = model.predict_proba(X), model.classes_
        pairs = classes if isinstance(classes, list) else [classes] * len(tasks)
        names = classes.tolist() if one else [f"{name} {pair[1]}" for name, pair in zip(tasks, pairs, strict=True)]
        columns |= {f"probability {name}": odds[:, k] for k, name in enumerate(names)}
    return {name: column.tolist() for name, column in columns.items()}
