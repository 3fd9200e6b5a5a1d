"""The roles of the columns of a table: inputs, targets, tasks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

from ..metrics import observed
from ..tables.preprocessing import TablePreprocessor, read_targets, task_names
from .output import Output, plain
from .table_files import TableFile

Array = np.ndarray
MOST_CATEGORIES = 100  # levels of a grouping that is a categorical input of single-task models
NAMES = 1 << 30  # bytes of the names of all observations


@dataclass(eq=False)
class TableRoles:
    """Inputs as a frame (with the task column of a long table), targets, and one entry for each observation."""

    inputs: Any
    y: Any  # an array, or a frame with a column for each task
    labelled: bool
    task_column: str | None
    categorical: tuple[str, ...]
    tasks: list[str]
    row: Array  # of each observation
    task: Array  # its position among the tasks
    layout: str  # "long", "wide", "classes" (of one target), or "rows" (no tasks, other groupings only)
    by: tuple[str, ...] = ()  # groupings beside the tasks

    @property
    def seen(self) -> Array:
        """The target of each observation."""
        return np.asarray(self.y)[self.row, self.task] if self.layout == "wide" else np.asarray(self.y)[self.row]

    @property
    def score(self) -> str:
        """The name of the score."""
        return "accuracy" if self.labelled else "R2"

    def part(self, rows: Array) -> TableRoles:
        """Some of the rows; tasks keep their positions."""
        place = np.full(len(self.inputs), -1)
        place[rows] = np.arange(len(rows))
        keep = place[self.row] >= 0
        y = self.y.iloc[rows] if self.layout == "wide" else self.y[rows]
        return replace(self, inputs=self.inputs.iloc[rows], y=y, row=place[self.row[keep]], task=self.task[keep])

    def with_categories(self) -> TableRoles:
        """The groupings as categorical inputs, as in a model without them; those with many levels are left out."""
        few = tuple(name for name in self.by if len(set(task_names(self.inputs[name]))) <= MOST_CATEGORIES)
        inputs = self.inputs.drop(columns=[name for name in self.by if name not in few])
        return replace(self, inputs=inputs, categorical=(*self.categorical, *few), by=())

    def preprocessor(self) -> TablePreprocessor:
        return TablePreprocessor(task_column=self.task_column, groupings=self.by, categorical=self.categorical)


def read_data(
    output: Output,
    table: str,
    target: str | None,
    task: str | None,
    targets: tuple[str, ...] | None,
    categorical: tuple[str, ...],
    drop: tuple[str, ...],
    classify: bool | None,
    delimiter: str | None,
    encoding: str,
    by: tuple[str, ...] = (),
) -> TableRoles:
    """Read a table and assign its columns to roles; every decision is printed."""
    if (target is None) == (targets is None):
        raise click.UsageError("Give --target COLUMN (with --task COLUMN) for a long table, or --targets A,B,C for a wide one.")
    if targets is not None and task is not None:
        raise click.UsageError("--task is for long tables, with --target; a wide table (--targets) has one column per task.")
    if targets is not None and by:
        raise click.UsageError("--by is for long tables, with --target; a wide table (--targets) has one row for all tasks.")
    source = TableFile(table, delimiter, encoding)
    if source.delimiter != (delimiter or ","):
        output.note(f"{table}: delimiter {source.delimiter!r}")
    predicted = targets or (str(target),)
    for name in (*predicted, *filter(None, [task]), *by, *categorical, *drop):
        check_known(name, source)
    if task in predicted:
        raise click.UsageError(f"Column {task!r} cannot be both --target and --task.")
    _check_groupings(by, {"--task": [task], "--target": predicted, "--categorical": categorical})
    for name in drop:
        if name in (*predicted, task, *by):
            raise click.UsageError(f"Column {name!r} cannot be dropped: it is a target, the task or a grouping.")
    names = {*filter(None, [task]), *by, *categorical, *(predicted if classify else ())}  # 01 and 1 are two of them
    frame = source.read(without=set(drop), text=names)
    inputs = frame.drop(columns=[*predicted])
    data = _roles(output, inputs, frame[[*predicted]], targets is not None, task, categorical, classify, by)
    what = "class labels, so these are classification tasks" if data.labelled else "numeric, so these are regression tasks"
    why = "" if classify is None else " (as asked)"
    tasks = {
        "long": f"{len(data.tasks)} tasks in column {task!r}",
        "wide": f"{len(data.tasks)} tasks, one per column",
        "rows": "no tasks",
        "classes": f"the {len(data.tasks)} classes of {target!r} are the tasks, each against the rest",
    }
    counts = f"{len(data.inputs)} rows, {data.row.size} observations"
    groupings = "".join(f", {_count_levels(data.inputs[name])} levels in column {name!r}" for name in by)
    output.note(f"{table}: {counts}, {tasks[data.layout]}{groupings}; targets are {what}{why}")
    return data


def check_known(name: str, source: TableFile) -> None:
    if name in source.columns:
        return
    close = difflib.get_close_matches(name, source.columns, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if len(source.columns) == 1:
        hint = " Is it the right --delimiter?"
    columns = ", ".join(map(plain, source.columns[:20])) + (", ..." if len(source.columns) > 20 else "")
    raise ValueError(f"{source.path} has no column {name!r}; it has {columns}.{hint}")


def _roles(
    output: Output,
    inputs: Any,
    targets: Any,
    wide: bool,
    task: str | None,
    categorical: tuple[str, ...],
    classify: bool | None,
    by: tuple[str, ...],
) -> TableRoles:
    """The roles of a wide table, or of a long one with one column of targets."""
    columns = {name: read_targets(targets[name], classify) for name in targets}
    first = {labelled: name for name, (_, labelled) in reversed(columns.items())}  # of labels, of numbers
    if len(first) > 1:
        raise ValueError(
            f"target {first[True]!r} holds class labels and target {first[False]!r} is numeric; fit them separately, or pass "
            "--classify"
        )
    labelled, values = True in first, [values for values, _ in columns.values()]
    there = observed(np.column_stack(values))
    rows = there.any(axis=1)
    if not rows.any() and not wide:
        raise ValueError(f"column {first[labelled]!r} is empty: there is nothing to learn from")
    if not rows.all():
        output.note(f"{int((~rows).sum())} rows without {'any' if wide else 'a'} target are left out")
        inputs = inputs[rows]
    if wide:
        y = targets.assign(**dict(zip(columns, values, strict=True)))[rows]
        row, of_task = np.nonzero(there[rows])
        return TableRoles(inputs, y, labelled, None, categorical, list(columns), row, of_task, "wide")
    y = np.array(_checked_names(values[0][rows].tolist(), first[labelled])) if labelled else values[0][rows]
    if by and task is None:
        one = np.zeros(y.size, dtype=int)
        return TableRoles(inputs, y, labelled, None, categorical, ["all rows"], np.arange(y.size), one, "rows", by)
    tasks = y.tolist() if task is None else _checked_names(task_names(inputs[task]), task)
    distinct = sorted(set(tasks))
    if task is None:
        _check_classes(first[labelled], labelled, len(distinct))
    position, layout = {name: t for t, name in enumerate(distinct)}, "classes" if task is None else "long"
    code = np.fromiter(map(position.__getitem__, tasks), dtype=int, count=y.size)
    return TableRoles(inputs, y, labelled, task, categorical, distinct, np.arange(y.size), code, layout, by)


def _check_groupings(by: tuple[str, ...], taken: dict[str, Sequence[str | None]]) -> None:
    """Raise for a grouping that is named twice, or has another role."""
    for k, name in enumerate(by):
        option = next((option for option, names in taken.items() if name in names), "--by" if name in by[:k] else None)
        if option == "--by":
            raise click.UsageError(f"Column {name!r} is named twice in --by.")
        if option is not None:
            raise click.UsageError(f"Column {name!r} cannot be both {option} and --by.")


def _count_levels(column: Any) -> int:
    """The number of levels of a grouping; raises where it groups nothing."""
    n, rows = len(set(task_names(column, "the grouping column"))), len(column)
    if n == 1 or n == rows:
        what = "one level" if n == 1 else "another level in every row"
        raise ValueError(f"column {column.name!r} has {what}, so that --by {column.name} groups nothing; leave it out")
    return n


def _checked_names(names: list[str], column: str) -> list[str]:
    """The names, unless they are too long for an array, in which they all take the room of the longest."""
    longest = max(map(len, names), default=0)
    if 4 * longest * len(names) > NAMES:
        raise ValueError(f"column {column!r} holds a name of {longest} characters; shorten the names of tasks and classes")
    return names


def _check_classes(target: str, labelled: bool, n: int) -> None:
    """Whether the classes of a target can be the tasks."""
    if not labelled or n < 3:
        raise click.UsageError(
            "Give --task COLUMN: which task does each row belong to? (A target with three or more classes needs none; "
            f"{target!r} {f'has {n} classes' if labelled else 'is numeric'}.)"
        )
    if n > 100:
        raise ValueError(f"column {target!r} has {n} different labels; pass --regress if it is numeric, or --task COLUMN")
