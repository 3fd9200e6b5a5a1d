"""``taskloom fit``."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command()
@options.data
@click.option(
    "--structure",
    type=options.Names(),
    default=("trace", "shared_mean"),
    show_default="trace,shared_mean",
    help="Candidates, with their numbers after a colon: trace, unit_trace, clusters:4, shared_mean:5, ...",
)
@options.model
@click.option("--fallback", is_flag=True, help="A task that the others hurt keeps a model of its own.")
@click.option("--holdout", type=click.FloatRange(0, 0.5, min_open=True), help="Measure on this share of the rows, kept out.")
@click.option("--save", "save_to", metavar="FILE", type=click.Path(), help="Write the model, with its preprocessing.")
@click.option("--report", metavar="FILE", type=click.Path(), help="Write a report (HTML).")
@click.option("--all-tasks", is_flag=True, help="Show every task, however many.")
@options.as_json
@options.quiet
@options.debug
def fit(**given: Any) -> int:
    """Learn the tasks of TABLE (CSV or Parquet), alone and together.

    Long tables have one row an observation: --target score --task school. Wide tables have a column a task: --targets a,b,c,
    with empty cells where a task was not observed. All other columns are inputs.
    """
    from .fitting import run_fit

    return run_fit(**given)
