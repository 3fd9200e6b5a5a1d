"""Options that commands share, and how their texts are read."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import click


class Names(click.ParamType):
    """Names with commas between them; one that holds a comma stands in double quotes."""

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


class Strengths(click.ParamType):
    """How many strengths to try, or which."""

    name = "count|number,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | list[float]:
        if isinstance(value, (int, list)):
            return value
        try:
            if "," not in value and value.strip().isdigit():
                count = int(value)
                if count >= 1:
                    return count
            else:
                numbers = [float(part) for part in value.split(",")]
                if all(0 < number < float("inf") for number in numbers):
                    return numbers
        except ValueError:
            pass
        return self.fail(f"{value!r} is neither a count (20) nor positive numbers (0.1,0.01)", param, ctx)


def together(*options: Callable) -> Callable:
    """One decorator for several options, in their order."""

    def decorate(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
quiet = click.option("--quiet", "-q", is_flag=True, help="No progress and no notes.")
as_json = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON.")
reading = together(
    click.option("--delimiter", metavar="CHAR", help="What stands between cells of a CSV file; guessed by default."),
    click.option("--encoding", default="utf-8", show_default=True, help="Encoding of a CSV file, such as latin-1."),
)
data = together(
    click.argument("table", type=click.Path()),
    click.option("--target", metavar="COLUMN", help="What to predict, in a long table (one row an observation)."),
    click.option("--task", metavar="COLUMN", help="Which task each row of a long table belongs to."),
    click.option("--targets", type=Names(), help="What to predict, in a wide table: a column a task, empty where unobserved."),
    click.option("--categorical", type=Names(), default=(), help="Columns of numbers to be read as words."),
    click.option("--drop", type=Names(), default=(), help='Columns to leave out, such as identifiers; "a, b" is one name.'),
    click.option("--classify/--regress", default=None, help="Labels or numbers; decided from the targets by default."),
    reading,
)
model = together(
    click.option("--kernel", default="linear", show_default=True, help="linear, rbf, poly, laplacian, ..."),
    click.option("--gamma", type=click.FloatRange(min=0), help="Parameter of the kernel; 1 / columns by default."),
    click.option("--loss", help="squared, huber, absolute, ... (numbers), logistic, hinge, squared_hinge (labels)."),
    click.option("--alphas", type=Strengths(), default=20, show_default=True, help="Strengths to try: how many, or which."),
    click.option("--cv", type=click.IntRange(min=2), default=5, show_default=True, help="Folds of the cross-validation."),
    click.option("--seed", type=int, help="Shuffle the folds; without it rows are dealt out in their order."),
    click.option("--jobs", type=int, default=1, show_default=True, help="Folds that run at the same time."),
    click.option("--tol", type=click.FloatRange(min=0, min_open=True), default=1e-4, show_default=True, help="Relative gap."),
    click.option("--max-iter", type=click.IntRange(min=1), default=1000, show_default=True),
)
