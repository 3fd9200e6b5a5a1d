"""What ``taskloom reproduce`` does once the experiments are here."""

from __future__ import annotations

from importlib import import_module

from .output import Output


def run_reproduce(
    name: str | None, data: str | None, to: str | None, quick: bool, repetitions: int | None, jobs: int | None, quiet: bool
) -> int:
    output = Output(quiet)
    try:
        experiments = import_module("taskloom.experiments")
    except ImportError as error:
        if error.name == "taskloom.experiments":
            raise ImportError("this version of taskloom has no experiments to reproduce") from None
        raise ImportError(f"the experiments need {error.name}: python -m pip install {error.name}") from None
    if name is None:
        for each, experiment in experiments.EXPERIMENTS.items():
            output.say(f"{each:<12}{experiment.TITLE}")
        return 0
    experiments.reproduce(name, data=data, output=to, quick=quick, repetitions=repetitions, n_jobs=jobs, verbose=not quiet)
    return 0
