"""How a model reads a table: which columns it needs, which of them hold numbers, and what it makes of a piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..tables.layout import missing_cells
from ..tables.preprocessing import TablePreprocessor, as_numbers


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """An estimator, and the columns of a table that it was fitted with."""

    estimator: Any
    columns: list[str]
    inputs: set[str]  # without the task and the groupings
    numbers: set[str]
    encode: Callable[[Any], Any]  # a piece of the table as the estimator takes it

    @classmethod
    def of(cls, model: Any, path: str) -> ModelInputs:
        """Of a pipeline after a ``TablePreprocessor``, or of an estimator that was fitted to a data frame."""
        from sklearn.pipeline import Pipeline

        if isinstance(model, Pipeline) and isinstance(model[0], TablePreprocessor):
            first = model[0]
            columns, numbers = first.feature_names_in_.tolist(), set(first.numeric_)
            return cls(model[-1], columns, {*numbers, *first.levels_}, numbers, first.transform)
        names = None if isinstance(model, Pipeline) else model._state.feature_names_in_
        if names is None:
            raise ValueError(
                f"{path} holds a model without the preprocessing of a table, and without the names of its columns; use "
                "taskloom.load in Python, or taskloom fit"
            )
        return cls._of_frame(model, names.tolist())

    @classmethod
    def _of_frame(cls, model: Any, names: list[str]) -> ModelInputs:
        numbers, texts, groupings = _roles(model, names)
        numeric = numbers | {name for name, labels in groupings.items() if labels.dtype.kind in "biuf"}

        def encode(piece: Any) -> Any:
            missing = [name for name in names if name not in piece.columns]
            if missing:
                raise ValueError(f"the table has no column {missing[0]!r}, which the model was fitted with")
            frame = piece[names].copy()
            for name in numeric:
                frame[name] = as_numbers(frame[name], name)
            for name in numeric | groupings.keys():
                _check_filled(frame[name], name)
            return frame

        return cls(model, names, numbers | texts, numeric, encode)


def _check_filled(column: Any, name: str) -> None:
    """Raise for a missing number, level or task, with its row in the file; ``NA`` is a name like any other."""
    empty = missing_cells(column.tolist()) | (column == "").to_numpy(dtype=bool)
    if empty.any():
        raise ValueError(
            f"column {name!r} is empty in row {column.index[int(empty.argmax())]}; fill the cell, or leave out the row (a "
            "TablePreprocessor before the model imputes numbers)"
        )


def _roles(model: Any, names: list[str]) -> tuple[set[str], set[str], dict[str, Any]]:
    """The columns of numbers, those of categories, and the groupings with their levels."""
    state, task = model._state, model.task_column
    if state.fitted_terms is None:
        groupings = {} if task is None else {task if isinstance(task, str) else names[task]: state.tasks_}
        return set(names) - groupings.keys(), set(), groupings
    terms = state.fitted_terms
    groupings = {names[term.by]: term.levels for term in terms if term.by is not None}
    described = [
        (names[column], known)
        for term in terms
        if term.descriptors is not None
        for column, known in zip(term.descriptors.columns, term.descriptors.categories, strict=True)
    ]
    texts = {name for name, known in described if known is not None} - groupings.keys()
    numbers = {names[column] for term in terms for column in term.inputs.columns} | {name for name, _ in described}
    return numbers - texts - groupings.keys(), texts, groupings
