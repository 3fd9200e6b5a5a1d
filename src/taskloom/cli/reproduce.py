"""``taskloom reproduce``."""

from __future__ import annotations

import click

from . import options


@click.command()
@click.argument("name", required=False)
@click.option("--data", metavar="FOLDER", type=click.Path(), help="Folder of the data sets.")
@click.option("--output", "-o", metavar="FOLDER", type=click.Path(), help="Folder of the results; default: reproduced/NAME.")
@click.option("--quick", is_flag=True, help="A small version, in two minutes at most.")
@click.option("--repetitions", type=click.IntRange(min=1), help="Number of repetitions.")
@click.option("--jobs", type=click.IntRange(min=1), help="Number of processes.")
@options.quiet
@options.debug
def reproduce(
    name: str | None, data: str | None, output: str | None, quick: bool, repetitions: int | None, jobs: int | None, quiet: bool
) -> int:
    """Repeat the experiment NAME of the paper; without a name, list the experiments."""
    try:
        from .. import experiments
    except ImportError as error:
        raise ImportError(f"the experiments need {error.name}: python -m pip install {error.name}") from None
    if name is None:
        for each, experiment in experiments.EXPERIMENTS.items():
            click.echo(f"{each:<12}{experiment.TITLE}")
        return 0
    experiments.reproduce(name, data=data, output=output, quick=quick, repetitions=repetitions, n_jobs=jobs, verbose=not quiet)
    return 0
