"""Options that commands share, and how their values are parsed."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import click

# names of the options in the group ``data`` below
DATA = ("table", "target", "task", "targets", "by", "categorical", "drop", "classify", "delimiter", "encoding")


def split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options for the table, and the parameters of the search."""
    return {name: given[name] for name in DATA if name in given}, {name: given[name] for name in given if name not in DATA}


class Names(click.ParamType):
    """Comma-separated names; a name that contains a comma is put in double quotes."""

    name = "name,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in next(csv.reader([value], skipinitialspace=True)))
        if not all(names):
            self.fail(f"{value!r} has an empty name in it", param, ctx)
        twice = [name for k, name in enumerate(names) if name in names[:k]]
        if twice:
            self.fail(f"{twice[0]!r} is named twice", param, ctx)
        return names


class Alphas(click.ParamType):
    """How many values of alpha to try, or which."""

    name = "count|number,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | list[float]:
        if isinstance(value, (int, list)):
            return value
        with suppress(ValueError):
            if value.strip().isdigit() and int(value) >= 1:
                return int(value)
            numbers = [float(part) for part in value.split(",")]
            if all(0 < number < float("inf") for number in numbers):
                return numbers
        return self.fail(f"{value!r} is neither a count (20) nor positive numbers (0.1,0.01)", param, ctx)


class Kernel(click.ParamType):
    """The kernel of the common part; ``True``, without a value, is that of the own parts."""

    name = "kernel"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | bool:
        from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS  # slow to import

        if value is True or value in PAIRWISE_KERNEL_FUNCTIONS:
            return value
        close = get_close_matches(value, PAIRWISE_KERNEL_FUNCTIONS, 1)
        hint = f"did you mean {close[0]!r}?" if close else "the name of a table goes before it, or --common=linear"
        return self.fail(f"{value!r} is no kernel ({', '.join(sorted(PAIRWISE_KERNEL_FUNCTIONS))}); {hint}", param, ctx)


def combined(*options: Callable) -> Callable:
    """One decorator for several options, in their order."""

    def decorate(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def file(*names: str, **more: Any) -> Callable:
    """An option that names a file."""
    return click.option(*names, metavar="FILE", type=click.Path(), **more)


debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
all_tasks = click.option("--all-tasks", is_flag=True, help="Show every task, however many.")
quiet = click.option("--quiet", "-q", is_flag=True, help="No progress and no notes.")
printing = combined(click.option("--json", "as_json", is_flag=True, help="Write the result as JSON."), quiet, debug)
reading = combined(
    click.option("--delimiter", metavar="CHAR", help="Delimiter of a CSV file; default: detected."),
    click.option("--encoding", default="utf-8", help="Encoding of a CSV file, such as latin-1."),
)
drop = click.option("--drop", type=Names(), default=(), help='Columns to leave out, such as identifiers; "a, b" is one name.')
data = combined(
    click.argument("table", type=click.Path()),
    click.option("--target", metavar="COLUMN", help="Column to predict, in a long table (one row per observation)."),
    click.option("--task", metavar="COLUMN", help="Column that names the task of each row, in a long table."),
    click.option("--targets", type=Names(), help="Columns to predict, in a wide table: one per task, empty where unobserved."),
    click.option("--categorical", type=Names(), default=(), help="Numeric columns to treat as categorical."),
    drop,
    click.option(
        "--classify/--regress", default=None, help="Classification or regression; default: by the type of the targets."
    ),
    reading,
)
beside = combined(
    click.option(
        "--common",
        type=Kernel(),
        is_flag=False,
        flag_value=True,
        metavar="[KERNEL]",
        help="A common part beside the own parts of the tasks: of the same kernel, or of KERNEL.",
    ),
    click.option(
        "--by",
        metavar="COLUMN",
        multiple=True,
        help="Another grouping of a long table, crossed or nested: an intercept for each level. Once for each grouping.",
    ),
)


def _refuse(_: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        raise click.UsageError(f"{param.opts[0]} is for fit: compare ranks structures of the own parts alone. Leave it out.")


not_beside = combined(  # a misspelt option is met with one of a similar name, which these have not
    click.option("--common", is_flag=False, flag_value=True, expose_value=False, hidden=True, callback=_refuse),
    click.option("--by", multiple=True, expose_value=False, hidden=True, callback=_refuse),
)
model = combined(
    click.option("--kernel", default="linear", help="linear, rbf, poly, laplacian, ..."),
    click.option("--gamma", type=click.FloatRange(min=0), help="Kernel coefficient; default: 1 / number of columns."),
    click.option("--loss", help="squared, huber, absolute, ... (regression), logistic, hinge, ... (classification)."),
    click.option("--alphas", type=Alphas(), default=20, help="Regularisation strengths: how many, or which."),
    click.option("--cv", type=click.IntRange(min=2), default=5, help="Number of cross-validation folds."),
    click.option("--seed", "random_state", type=int, help="Shuffle the rows before they are assigned to folds."),
    click.option("--jobs", "n_jobs", type=int, default=1, help="Folds that run in parallel."),
    click.option("--tol", type=click.FloatRange(min=0, min_open=True), default=1e-4, help="Relative duality gap."),
    click.option("--max-iter", type=click.IntRange(min=1), default=1000, help="Iterations."),
)
