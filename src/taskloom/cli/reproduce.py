"""``taskloom reproduce``."""

from __future__ import annotations

import click

from . import options


@click.command()
@click.argument("name", required=False)
@click.option("--data", metavar="FOLDER", type=click.Path(), help="Where the data sets are.")
@click.option("--output", "-o", metavar="FOLDER", type=click.Path(), help="Where to write results; default: reproduced/NAME.")
@click.option("--quick", is_flag=True, help="A small version, in two minutes at most.")
@click.option("--repetitions", type=click.IntRange(min=1), help="Another number of repetitions.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.")
@options.quiet
@options.debug
def reproduce(
    name: str | None, data: str | None, output: str | None, quick: bool, repetitions: int | None, jobs: int | None, quiet: bool
) -> int:
    """Repeat the experiment NAME of the paper; without a name, list the experiments."""
    from .reproducing import run_reproduce

    return run_reproduce(name, data, output, quick, repetitions, jobs, quiet)
