"""Encoding of targets: labels as -1 and +1, and standardization of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from ..design import Observations
from ..losses import Loss
from ..metrics import observed
from ..tables.layout import rows_by_task

Array = np.ndarray


def places(labels: Array | None, tasks: Array) -> list[tuple]:
    """Where the targets of each task are: in a column of its own, or in some rows of the only one (long tables)."""
    if labels is None:
        return [(slice(None), t) for t in range(len(tasks))]
    return [(rows, 0) for rows in rows_by_task(labels, tasks)]


def objects(names: list) -> Array:
    """An array of objects; NumPy would take tuples for rows."""
    out = np.empty(len(names), dtype=object)
    out[:] = names
    return out


def distinct(labels: Array) -> Array:
    """The distinct labels, sorted; columns of objects are converted to the type of their values."""
    labels = np.array(labels.tolist()) if labels.dtype.kind == "O" else labels
    check_classification_targets(labels)
    return np.unique(labels)


def two_classes(labels: Array, whose: str) -> tuple[Array, Array]:
    """The two classes of a task, and its labels as -1/+1 with NaN where unobserved; errors name the task, ``whose``."""
    seen = observed(labels)
    if not seen.any():
        raise ValueError(f"{whose} has no observation: its labels are all missing (NaN)")
    classes = distinct(labels[seen])
    if classes.size != 2:
        raise ValueError(
            f"{whose} needs exactly 2 classes, got {classes.size} class{'es' if classes.size > 1 else ''}: "
            f"{classes[:5].tolist()}"
        )
    signs = np.full(len(labels), np.nan)
    signs[seen] = np.where(labels[seen] == classes[1], 1.0, -1.0)
    return classes, signs


def signs_of(labels: Array, classes: Array) -> Array:
    """Labels of a fitted task as -1/+1, NaN where unobserved, 0 where the label is none of its classes."""
    seen = observed(labels)
    known, signs = labels[seen], np.full(len(labels), np.nan)  # missing values may not support ==
    signs[seen] = np.select([known == classes[0], known == classes[1]], [-1.0, 1.0], 0.0)
    check_label_type(signs[seen] != 0, labels, classes)
    return signs


def check_label_type(known: Array, labels: Array, classes: Array) -> None:
    """Refuse labels of which none is known, and which are strings where the classes are numbers, or the other way round."""
    given = np.asarray(labels).ravel()
    first = next((label for label in given.tolist() if isinstance(label, (str, int, float)) and label == label), None)
    strings = isinstance(classes.tolist()[0], str)
    if not (known.size == 0 or bool(known.any()) or first is None or isinstance(first, str) == strings):
        raise ValueError(
            f"none of the labels in y is a class of the model: y holds {given[:3].tolist()}, the classes are "
            f"{classes[:5].tolist()}"
        )


@dataclass(frozen=True, eq=False)
class TargetScale:
    """Mean and standard deviation of each task's targets; 1 in place of a standard deviation of 0."""

    mean: Array
    std: Array

    @classmethod
    def none(cls, n_tasks: int) -> TargetScale:
        return cls(np.zeros(n_tasks), np.ones(n_tasks))

    @classmethod
    def of(cls, seen: Observations, losses: Sequence[Loss]) -> TargetScale:
        """From the weighted observations; tasks with labels are not scaled, and losses of counts are refused."""
        wrong = next((loss for loss in losses if loss.targets == "numbers" and not loss.of_differences), None)
        if wrong is not None:
            hint = "set of_differences=True if it is one"
            raise ValueError(f"standardize_targets=True needs losses of differences y - z, got {wrong!r}; {hint}")
        numeric = np.array([loss.of_differences for loss in losses])
        mean = seen.task_means(seen.y)
        std = np.sqrt(seen.task_means((seen.y - mean[seen.task]) ** 2))
        std = np.where(std > 1e-12 * np.maximum(np.abs(mean), np.finfo(float).tiny), std, 1.0)
        return cls(np.where(numeric, mean, 0.0), np.where(numeric, std, 1.0))

    def apply(self, seen: Observations) -> Observations:
        """Standardized observations."""
        return replace(seen, y=(seen.y - self.mean[seen.task]) / self.std[seen.task])
