"""``taskloom demo``."""

from __future__ import annotations

import click

from . import options


@click.command()
@click.option(
    "--data",
    type=click.Choice(["shops", "digits"]),
    default="shops",
    show_default=True,
    help="Sixty simulated shops of four hidden kinds, or scikit-learn's handwritten digits.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(),
    default="taskloom-demo.html",
    show_default=True,
    help="Where to write the report (HTML).",
)
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option(
    "--table", metavar="FILE", type=click.Path(), help="Also write the data as CSV, for taskloom fit, and stop there."
)
@click.option("--all-tasks", is_flag=True, help="Show every task, however many.")
@options.as_json
@options.quiet
@options.debug
def demo(data: str, report: str, no_report: bool, table: str | None, all_tasks: bool, as_json: bool, quiet: bool) -> int:
    """Single-task against multi-task learning on data that come with the package."""
    from .demonstrating import run_demo

    return run_demo(data, None if no_report else report, table, all_tasks, as_json, quiet)
