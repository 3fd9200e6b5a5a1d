"""One cross-validation: every fold prepares its data once, walks the strengths of every candidate, and scores each step."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed

from ..._component import warn
from ...features import LinearFeatures
from ...metrics import mean_score
from ...problem import Problem
from ...problem.solution import Solution
from ...solvers import path, strength_grid
from ...solvers.reformulations.eigenbasis import EigenbasisForm
from ...structures import Structure
from ...tables import as_table
from ..base import MultiTaskEstimator, Prepared
from .results import Candidate, FoldResult
from .splitters import Split, check_folds, make_folds

Array = np.ndarray
ALONE = 10  # strengths of single-task learning that the ledger tries, over the same decades


@dataclass(eq=False)
class Trial:
    """The data of one cross-validation, and how to judge a fitted model on a part of them."""

    estimator: MultiTaskEstimator  # unfitted, with the right kernel, loss, ...
    X: Any
    y: Any
    sample_weight: Array | None
    scoring: Any
    variance: dict[Any, float] | None = None  # of each task's targets, over all the data

    def part(self, rows: Array, train: Array | None = None) -> tuple[Any, Any, Array | None]:
        """Inputs, targets and weights of some rows; a kernel matrix keeps the columns of ``train`` (or of the rows)."""
        weight = None if self.sample_weight is None else np.asarray(self.sample_weight)[rows]
        return *_safe_split(self.estimator, self.X, self.y, rows, train), weight

    def judge(self, model: MultiTaskEstimator, X: Any, y: Any, weight: Array | None) -> Judge:
        """How to score the predictions of a model on these data, many times."""
        return Judge(self.scoring, model, X, y, weight, self.variance)


class Judge:
    """Scores a model on the same data at one strength after the other."""

    def __init__(
        self, scoring: Any, model: MultiTaskEstimator, X: Any, y: Any, weight: Array | None, variance: dict[Any, float] | None
    ):
        self.scoring, self.X, self.y, self.weight, self.variance = scoring, X, y, weight, variance
        self.steadily = isinstance(scoring, str) and scoring == "steady"
        self.scorer = None if scoring is None or self.steadily else check_scoring(model, scoring)
        self.quick = None
        if not getattr(model, "_one_vs_rest", False):
            self.quick = model._task_scores(X, y, weight)
            self.seen = ~np.isnan(model._coded(as_table(y), model._tasks_of_rows(X)))

    def __call__(self, model: MultiTaskEstimator, values: Array) -> tuple[float, dict[Any, float]]:
        """The score, and for the ledger that of each task, against the task's variance over all the data.

        ``values`` are the model's decision values here.
        """
        if self.quick is not None:
            by_task = self.quick(values[self.seen])
            steady = by_task if self.variance is None else self.quick(values[self.seen], self.variance)
        else:
            by_task = steady = model.score_per_task(self.X, self.y, self.weight)
        if self.scorer is None:
            return mean_score(steady if self.steadily else by_task), steady
        options = {} if self.weight is None else {"sample_weight": self.weight}
        try:
            return float(self.scorer(model, self.X, self.y, **options)), steady
        except ValueError as error:
            if "NaN" not in str(error):
                raise
            raise ValueError(
                f'scoring={self.scoring!r} cannot read missing targets ({error}); use scoring=None or scoring="steady", or a '
                "scorer that knows tasks, as of taskloom.metrics"
            ) from None


def walk(estimator: MultiTaskEstimator, problem: Problem, alphas: Array) -> list[Solution]:
    """A certified solution at each strength, each from the one before; fits that fall short warn once, together."""
    solutions = path(
        problem,
        alphas,
        estimator.solver,
        tol=estimator.tol,
        max_iter=estimator.max_iter,
        time_limit=estimator.time_limit,
    )
    short = [solution.certificate for solution in solutions if not solution.certificate.converged]
    if short:
        worst = max(short, key=lambda certificate: certificate.stationarity or certificate.relative_gap)
        warn(
            f"{len(short)} of {len(solutions)} strengths did not reach tol; the worst: {worst.message}",
            ConvergenceWarning,
        )
    return solutions


def _run_fold(trial: Trial, candidates: list[Candidate], split: Split) -> list[FoldResult]:
    """Every candidate at every strength in one fold."""
    X_test, y_test, test_weight = trial.part(split[1], split[0])
    fold = Fold(copy.deepcopy(trial.estimator), *trial.part(split[0]), X_test)
    judge = trial.judge(fold.model, X_test, y_test, test_weight)
    results = []
    for candidate in candidates:
        began = time.perf_counter()
        solutions = walk(fold.model, fold.under(candidate.structure), candidate.alphas)
        seconds = np.full(len(solutions), (time.perf_counter() - began) / len(solutions))
        judged = [judge(*fold.at(solution)) for solution in solutions]
        scores, by_task = zip(*judged, strict=True)
        results.append(FoldResult(np.array(scores), list(by_task), seconds, [slim(solution) for solution in solutions]))
    return results


def slim(solution: Solution) -> Solution:
    """A solution without what is as large as the data."""
    nothing = np.zeros(0)
    return replace(solution, W=nothing, G=nothing)


class Fold:
    """A model that was given the training part and answers for the test part: everything but the strength is done once."""

    def __init__(self, model: MultiTaskEstimator, X: Any, y: Any, weight: Array | None, X_test: Any):
        self.model, self.data = model, model._prepare(X, y, weight)
        inputs, labels = model._inputs(X_test, reset=False)
        self.task = None if labels is None else model._known_tasks(labels)
        features = self.data.features
        phi = features.project(inputs if isinstance(features, LinearFeatures) else model._kernel(inputs, self.data.inputs))
        self.form = EigenbasisForm.of(self.data.problem)
        self.phi = phi if self.form is None else self.form.basis.features(phi)

    def under(self, structure: Structure) -> Problem:
        """The training problem under a structure, along eigenvectors where that is possible."""
        problem = self.data.problem.with_structure(self.model._posed(structure, self.data.features))
        return problem if self.form is None else self.form.apply(problem)

    def at(self, solution: Solution) -> tuple[MultiTaskEstimator, Array]:
        """The model with this solution of ``under``, which can predict the test part, and its decision values there."""
        scale = self.data.scale
        b = solution.b if self.form is None else self.form.basis.inputs.y_mean
        values = _pick(np.asarray(self.phi @ solution.W + b) * scale.spread + scale.mean, self.task)
        self.model.intercept_ = solution.b  # a fitted model has one
        self.model._values = partial(constant, values)  # type: ignore[method-assign]
        return self.model, values


def constant(values: Array, *_: Any) -> Array:
    """Predictions that are already made."""
    return values


def _pick(values: Array, task: Array | None) -> Array:
    """The value of each row's own task; -1 is the mean of the tasks."""
    if task is None:
        return values
    own = values[np.arange(len(values)), task]
    return np.where(task < 0, values.mean(axis=1), own)


def _variances(data: Prepared, tasks: list[Any]) -> dict[Any, float]:
    """Of the targets of each task, in their own units."""
    seen = data.problem.observations
    total = seen.sum_by_task(seen.weight)
    mean = seen.sum_by_task(seen.weight * seen.y) / total
    spread = seen.sum_by_task(seen.weight * (seen.y - mean[seen.task]) ** 2) / total * data.scale.spread**2
    return dict(zip(tasks, spread.tolist(), strict=True))


def grid_for(model: MultiTaskEstimator, data: Prepared, structure: Structure, size: int) -> Array:
    """Strengths to try for a structure on these data."""
    return strength_grid(data.problem.with_structure(model._posed(structure, data.features)), size)


def cross_validate(
    trial: Trial,
    data: Prepared,
    candidates: list[Candidate],
    cv: Any,
    groups: Any,
    n_jobs: int | None,
    random_state: Any,
    report: Callable[[int, int, float], None] | None = None,
) -> tuple[int, int]:
    """Fill in the candidates' scores; how many folds were done, of how many: Ctrl-C leaves those that are complete."""
    model = trial.estimator
    trial.variance = _variances(data, model.tasks_.tolist())
    seen, n_rows, labelled = data.problem.observations, data.problem.features.shape[0], model._labelled()
    folds = make_folds(cv, trial.X, trial.y, groups, seen, n_rows, labelled, random_state)
    if model.unseen == "raise" or model.task_column is None:
        check_folds(folds, seen, n_rows, model.tasks_, labelled)
    runs = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(_run_fold)(trial, candidates, split) for split in folds
    )
    done: list[list[FoldResult]] = []
    try:
        for results in runs:
            done.append(results)
            if report is not None:
                report(len(done), len(folds), float(np.fmax.reduce(np.concatenate([result.scores for result in results]))))
    except KeyboardInterrupt:
        if not done:  # nothing was compared
            raise
    for results in done:
        for candidate, result in zip(candidates, results, strict=True):
            candidate.folds.append(result)
    return len(done), len(folds)
