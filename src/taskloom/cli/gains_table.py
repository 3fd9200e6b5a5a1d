"""Single-task against multi-task learning: two searches on the same folds, compared on out-of-fold predictions.

The score of a task pools its observations over the folds. A task of ten rows has two in each fold: its R2 there is noise, and
so is the mean of R2 over folds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..estimators import MultiTaskClassifierCV, MultiTaskRegressorCV
from ..metrics import observed
from ..structures import Independent, Structure
from ..tables.layout import rows_by_task
from ..tables.preprocessing import task_names
from ..tables.stratified_folds import task_folds
from .output import FoldProgress, Output
from .parts import Parts
from .table_roles import TableRoles

Array = np.ndarray


class Study:
    """A table made ready: its inputs preprocessed, its rows assigned to folds, the same for all models.

    ``settings`` are parameters of the searches; ``cv`` is the number of folds, and ``random_state`` shuffles the rows.
    ``by_task`` says whether the score of the searches is that of each task, or over all rows. ``plain`` is the study of models
    without groupings, to which these are categorical inputs.
    """

    def __init__(
        self,
        output: Output,
        data: TableRoles,
        settings: dict[str, Any],
        by_task: bool = True,
        folds: list[tuple[Array, Array]] | None = None,
    ):
        self.output, self.data, self.settings = output, data, settings
        self.preprocessor = data.preprocessor().fit(data.inputs)
        self.X = self.preprocessor.transform(data.inputs)
        self.folds = assign_folds(data, settings["cv"], settings["random_state"]) if folds is None else folds
        variance = variances(data)
        self.scorer = PooledR2(data, variance if by_task or data.layout == "wide" else np.full_like(variance, spread(data)))
        self.plain = Study(output, data.with_categories(), settings, by_task, self.folds) if data.by else self

    def search(self, structures: list[Structure], title: str) -> Any:
        """A fitted search over values of alpha and structures, without a common part."""
        return self._search(Parts(structures), title)

    def search_both(self, parts: Parts, where: str = "") -> tuple[Any, Any]:
        """Fitted searches: single-task (``None`` where there can be none beside a common part), and multi-task."""
        try:
            single = self.plain._search(Parts([Independent()]), f"{where}single-task")
        except ValueError as error:  # such as a task of one class
            if parts.plain:
                raise
            single = None
            self.output.note(f"no comparison with single-task models: {error}")
        return single, self._search(parts, f"{where}multi-task")

    def _search(self, parts: Parts, title: str) -> Any:
        data, kept = self.data, {name: self.settings[name] for name in ("cv", "random_state")}
        options = {name: value for name, value in self.settings.items() if value is not None and name not in kept}
        options |= {"task_column": data.task_column, "standardize_targets": data.layout == "wide" and not parts.common}
        options |= parts.parameters(options.pop("kernel", "linear"))
        if parts.by:
            del options["task_column"]
        if data.labelled:
            del options["standardize_targets"]
        else:  # the columns of a wide table may be in different units
            options["scoring"] = self.scorer
        model = (MultiTaskClassifierCV if data.labelled else MultiTaskRegressorCV)(cv=self.folds, **options)
        with self.output.progress(title, len(self.folds)) as bar:
            if bar.live.is_started:  # a watched fit takes longer
                model.set_callbacks(FoldProgress(bar))
            model.fit(self.X, data.y)
        return model.set_callbacks().set_params(**kept, scoring=None)  # what a file can hold

    def predict(self, model: Any, new: TableRoles) -> Array:
        """The predictions of new observations."""
        return pick(model.predict(self.preprocessor.transform(new.inputs)), new)

    def compare(self, single: Any, model: Any) -> Comparison:
        """Single-task against multi-task learning on out-of-fold predictions."""
        alone = None if single is None else self.plain._out_of_fold(single)
        return Comparison.of(self.data, (alone, self._out_of_fold(model)), self.data)

    def _out_of_fold(self, model: Any) -> Array:
        """Out-of-fold predictions of all observations; ``None`` (of numbers: NaN) where no fold leaves an observation out."""
        missing, kind = (None, object) if self.data.labelled else (np.nan, float)
        predicted = np.full(self.data.row.size, missing, dtype=kind)
        with self.output.progress("out-of-fold predictions", len(self.folds)) as bar:
            for train, test in self.folds:
                fitted = model._chosen().fit(self.X.iloc[train], self.data.part(train).y)
                left_out = self.data.part(test)
                predicted[np.isin(self.data.row, test)] = pick(fitted.predict(self.X.iloc[test]), left_out)
                bar.advance(bar.task_ids[-1])
        return predicted


@dataclass(frozen=True, eq=False)
class Comparison:
    """Single-task against multi-task learning: for each task, and over all rows; NaN where there is no single-task model."""

    by_task: dict[str, Any]
    over_rows: dict[str, Any]

    @classmethod
    def of(cls, scored: TableRoles, predictions: tuple[Array | None, Array], whole: TableRoles) -> Comparison:
        """Predictions of the observations ``scored``; errors are measured against the variance in the ``whole`` table."""
        one, other = predictions
        pair = (other if one is None else one, other)
        rows = replace(scored, tasks=["all rows"], task=np.zeros_like(scored.task))
        by_task = compare_tasks(scored, pair, variances(whole))
        over_rows = compare_tasks(rows, pair, np.array([spread(whole)]))
        if one is None:
            for table in (by_task, over_rows):
                table.update({name: np.full(len(table["task"]), np.nan) for name in ("alone", "gain", "standard_error")})
        return cls(by_task, {name: values[0] for name, values in over_rows.items() if name != "task"})


def assign_folds(data: TableRoles, n_splits: int, seed: int | None) -> list[tuple[Array, Array]]:
    """Folds stratified by task (without tasks by the largest grouping), and by class where targets are labels."""
    stratum = data.task
    if data.layout == "rows":
        levels = [np.unique(task_names(data.inputs[name]), return_inverse=True)[1] for name in data.by]
        stratum = max(levels, key=lambda codes: int(codes.max()))
    if data.labelled and data.layout != "classes":
        second = np.array([max(data.seen[data.task == t].tolist()) for t in range(len(data.tasks))], dtype=object)
        stratum = stratum * 2 + (data.seen == second[data.task])
    return task_folds(len(data.inputs), data.row, stratum, n_splits, seed)


class PooledR2:
    """A scorer: one minus the mean over observations of the squared error divided by the variance of the task.

    The variance is that of a column of a wide table, or of a row of a long one, which is known by its label in the index.
    """

    def __init__(self, data: TableRoles, variance: Array):
        self.variance, self.by_row = np.maximum(variance, 1e-300), data.task_column is not None
        if self.by_row:
            labels = data.inputs.index.to_numpy()[data.row]
            of_task, self.variance = self.variance, np.full(int(labels.max()) + 1, np.nan)
            self.variance[labels] = of_task[data.task]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        error = (np.asarray(y, dtype=float) - estimator.predict(X)) ** 2
        return 1 - float(np.nanmean(error / (self.variance[X.index.to_numpy()] if self.by_row else self.variance)))


def pick(predictions: Array, data: TableRoles) -> Array:
    """The predictions of observations, from those of rows (long) or of rows and tasks (wide)."""
    return predictions[data.row, data.task] if predictions.ndim == 2 else predictions[data.row]


def variances(data: TableRoles) -> Array:
    """The variance of the targets of each task; 1 where they are labels."""
    if data.labelled:
        return np.ones(len(data.tasks))
    values = data.seen.astype(float)
    with np.errstate(over="ignore", invalid="ignore"):  # a fit says what is wrong with targets of 1e308
        return np.array([np.var(values[mine]) for mine in rows_by_task(data.task, np.arange(len(data.tasks)))])


def spread(data: TableRoles) -> float:
    """The variance of all targets, whatever their task; 1 where they are labels."""
    if data.labelled:
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.var(data.seen.astype(float)))


def compare_tasks(data: TableRoles, predictions: tuple[Array, Array], variance: Array) -> dict[str, Any]:
    """Single-task and multi-task score of each task on the same observations, the gain, and its standard error.

    The score is the accuracy, or one minus the mean squared error divided by ``variance``. This is the variance of all targets
    of the task: that of a few held-out targets may be small by chance.
    """
    there = observed(predictions[0]) & observed(predictions[1])
    seen, rows = data.seen, []
    for t, mine in enumerate(rows_by_task(data.task, np.arange(len(data.tasks)))):
        mine = mine[there[mine]]
        one, other = (_scores(data.labelled, seen[mine], z[mine], float(variance[t])) for z in predictions)
        n, gain = one.size, other - one
        error = gain.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        rows.append((one.mean(), other.mean(), gain.mean(), error) if n else (np.nan,) * 4)
    scores = dict(zip(("alone", "together", "gain", "standard_error"), np.array(rows, dtype=float).T, strict=True))
    return {"task": np.array(data.tasks, dtype=object), **scores}


def _scores(labelled: bool, truth: Array, predicted: Array, variance: float) -> Array:
    """The score of each observation; their mean is the score of the task."""
    if labelled:
        return (np.asarray(predicted) == truth).astype(float)
    if variance == 0:
        return np.full(truth.size, np.nan)
    return 1 - (predicted.astype(float) - truth.astype(float)) ** 2 / variance


def score_holdout(output: Output, data: TableRoles, parts: Parts, settings: dict[str, Any], share: float) -> Comparison:
    """The comparison with single-task learning on rows that are held out from all model selection."""
    train, test = assign_folds(data, max(round(1 / share), 2), settings["random_state"])[0]
    rest, kept = Study(output, data.part(train), settings, parts.plain), data.part(test)
    single, model = rest.search_both(parts, "held out: ")
    alone = None if single is None else rest.plain.predict(single, kept)
    return Comparison.of(kept, (alone, rest.predict(model, kept)), data)
