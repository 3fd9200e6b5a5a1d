"""``taskloom predict``."""

from __future__ import annotations

import click

from . import options


@click.command()
@click.argument("model", type=click.Path())
@click.argument("table", type=click.Path())
@click.option(
    "--output", "-o", metavar="FILE", type=click.Path(), help="CSV, or Parquet by its ending; default: standard output."
)
@click.option(
    "--unseen", type=click.Choice(["raise", "mean"]), help="A task that the model does not know: refuse it, or the mean."
)
@click.option("--keep-inputs", is_flag=True, help="Keep the inputs beside the predictions.")
@click.option(
    "--escape-formulas",
    is_flag=True,
    help="In CSV, put ' before texts that a spreadsheet would run (= + - @); without it cells stay as they are.",
)
@click.option("--rows", type=click.IntRange(min=1), default=20_000, show_default=True, help="Rows in memory at a time.")
@options.reading
@options.quiet
@options.debug
def predict(
    model: str,
    table: str,
    output: str | None,
    unseen: str | None,
    keep_inputs: bool,
    escape_formulas: bool,
    rows: int,
    delimiter: str | None,
    encoding: str,
    quiet: bool,
) -> int:
    """Predict the rows of TABLE (CSV or Parquet) with a model that fit --save wrote.

    Writes every column that is not an input (the task, identifiers) and `prediction`; for classifiers also probabilities. Files
    may be larger than memory.
    """
    from .predicting import run_predict

    return run_predict(model, table, output, unseen, keep_inputs, escape_formulas, rows, delimiter, encoding, quiet)
