"""Tables of many tasks: wide, long, or one data set per task; preprocessing; CSV and Parquet files."""

from .layout import (
    Table,
    TaskPositions,
    align_targets,
    as_table,
    code_labels,
    column_names,
    column_of_words,
    column_position,
    is_missing,
    missing_cells,
    rows_by_task,
    shown,
    sorted_labels,
    split_table,
    stack,
    unstack,
)

__all__ = [
    "Table",
    "TaskPositions",
    "align_targets",
    "as_table",
    "code_labels",
    "column_names",
    "column_of_words",
    "column_position",
    "is_missing",
    "missing_cells",
    "rows_by_task",
    "shown",
    "sorted_labels",
    "split_table",
    "stack",
    "unstack",
]
