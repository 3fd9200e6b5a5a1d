"""Cross-validation: each fold validates its data once, fits the path of every candidate, and scores each alpha."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed

from ..._component import warn
from ...design import Observations
from ...features.kernels import LinearFeatures
from ...losses import RowLoss, as_loss
from ...metrics import FLAT, mean_score
from ...problem import Problem
from ...problem.solution import Solution
from ...solvers import path, strength_grid
from ...solvers.reformulations.subspaces import EigenbasisForm
from ...structures import Independent, Structure
from ...tables.layout import as_table
from ...uncertainty.leave_one_out import leave_one_out
from ..base import MultiTaskEstimator
from ..decision import own_task
from ..fitted import FittedState, Prepared, with_state
from ..terms.prepared_sum import PreparedSum
from ..validation import described, new_rows
from .explained_loss import ExplainedLoss
from .results import Candidate, FoldResult
from .splitters import Split, check_folds, check_left, make_folds

Array = np.ndarray
WORTH_A_WARNING = 0.01  # relative gap of a fit at an alpha that nobody asked for: more than that moves scores
LEAST_VARIANCE = 1e-3  # of a task, relative to the variance within all tasks
N_SINGLE_TASK_ALPHAS = 10  # values of alpha tried for single-task models, over the same decades


@dataclass(eq=False)
class CVData:
    """The data and the scoring of a cross-validation."""

    estimator: MultiTaskEstimator  # not fitted
    X: Any
    y: Any
    sample_weight: Array | None = None
    scoring: Any = None
    cv: Any = None
    groups: Any = None
    n_jobs: int | None = None
    random_state: Any = None
    variance: dict[Any, float] | None = None  # of each task's targets, over all data and in their units
    explained: ExplainedLoss | None = None  # the score by default
    folds: list[Split] | None = None  # made before, for several kinds of candidates

    @property
    def leaves_one_out(self) -> bool:
        if self.cv is None or isinstance(self.cv, (str, int, list)):
            return isinstance(self.cv, str) and self.cv == "loo"
        from sklearn.model_selection import LeaveOneOut  # slow to import

        return isinstance(self.cv, LeaveOneOut)

    def part(self, rows: Array, train: Array | None = None) -> tuple[Any, Any, Array | None]:
        """Inputs, targets and weights of some rows; a kernel matrix keeps the columns of ``train`` (or of the rows)."""
        weight = as_table(self.sample_weight)
        if weight is not None:  # names of its columns are those of the tasks
            weight = _safe_indexing(weight if hasattr(weight, "columns") else np.asarray(weight), rows)
        return *_safe_split(self.estimator, self.X, self.y, rows, train), weight


class FoldScorer:
    """Scores decision values of the same rows, for one alpha after the other."""

    def __init__(self, cv_data: CVData, data: Prepared | PreparedSum, X: Any, y: Any, weight: Array | None):
        self.model, self.scoring = cv_data.estimator, cv_data.scoring
        self.variance: Array | None = None
        self.explained = None if self.scoring is not None else cv_data.explained
        self.data, self.X, self.y, self.weight = data, X, y, weight
        own = self.scoring is None or (isinstance(self.scoring, str) and self.scoring == "steady")
        self.scorer = None if own else _checked_scorer(self.model, self.scoring)
        self.quick = None
        if not data.targets.one_vs_rest:
            self.quick, self.seen = self.model._task_scores(data.targets, X, y, weight)
            if cv_data.variance is not None:
                self.variance = np.array([cv_data.variance.get(name, np.nan) for name in self.quick.names])
        self.tasks = [0] if self.quick is None else self.quick.names

    def __call__(self, values: Array) -> tuple[float, Array]:
        """The score, and that of each task relative to the variance of its targets over all data."""
        if self.quick is not None:
            by_task = self.quick.of(values[self.seen])
            steady = by_task if self.variance is None else self.quick.of(values[self.seen], self.variance)
        else:
            by_task = steady = np.array(list(self._with_values(values).score_per_task(self.X, self.y, self.weight).values()))
        if self.explained is not None and self.quick is not None:
            return self.explained(self.quick, values[self.seen]), steady
        if self.scorer is None:
            return mean_score(by_task if self.scoring is None else steady), steady
        options = {} if self.weight is None else {"sample_weight": self.weight}
        try:
            return float(self.scorer(self._with_values(values), self.X, self.y, **options)), steady
        except ValueError as error:
            if "NaN" not in str(error):
                raise
            raise ValueError(
                f'scoring={self.scoring!r} cannot read missing targets ({error}); use scoring=None or scoring="steady", or a '
                "scorer that knows tasks, as of taskloom.metrics"
            ) from None

    def _with_values(self, values: Array) -> MultiTaskEstimator:
        """An estimator with these decision values, for scorers that take an estimator."""
        known, scale, kernel = described(self.data.columns, self.data.targets), self.data.scale, self.data.kernel
        b = np.zeros(len(scale.mean))
        state = FittedState(**known, scale=scale, kernel=kernel, dtype=values.dtype, intercept_=b, decision_values=values)
        return with_state(self.model, state)


def _checked_scorer(model: MultiTaskEstimator, scoring: Any) -> Any:
    from sklearn.metrics import check_scoring  # slow to import

    return check_scoring(model, scoring)


def solve_path(estimator: MultiTaskEstimator, problem: Problem, alphas: Array, worth_a_warning: float = 0.0) -> list[Solution]:
    """A certified solution for each alpha, with warm starts, and one warning for all that did not converge.

    Gaps up to ``worth_a_warning`` are none.
    """
    limits = {"tol": estimator.tol, "max_iter": estimator.max_iter, "time_limit": estimator.time_limit}
    solutions = path(problem, alphas, estimator.solver, **limits)
    short = [solution.certificate for solution in solutions if not solution.certificate.converged]
    short = [each for each in short if each.stationarity is not None or each.relative_gap > worth_a_warning]
    if short:
        worst = max(short, key=lambda certificate: certificate.stationarity or certificate.relative_gap).message
        warn(f"{len(short)} of {len(solutions)} values of alpha did not reach tol; the worst: {worst}", ConvergenceWarning)
    return solutions


def _run_fold(cv_data: CVData, candidates: list[Candidate], split: Split) -> list[FoldResult]:
    """Every candidate at every alpha in one fold."""
    X_test, y_test, test_weight = cv_data.part(split[1], split[0])
    fold = Fold(cv_data.estimator, *cv_data.part(split[0]), X_test)
    scorer = FoldScorer(cv_data, fold.data, X_test, y_test, test_weight)
    results = []
    for candidate in candidates:
        began = time.perf_counter()
        least = WORTH_A_WARNING if candidate.continues else 0.0
        solutions = solve_path(cv_data.estimator, fold.under(candidate.structure), candidate.alphas, least)
        seconds = time.perf_counter() - began
        results.append(FoldResult.of(map(scorer, map(fold.values, solutions)), scorer.tasks, seconds, solutions))
    return results


class Fold:
    """The prepared training rows and the features of the test rows, for all values of alpha."""

    def __init__(self, model: MultiTaskEstimator, X: Any, y: Any, weight: Array | None, X_test: Any):
        model = copy.deepcopy(model)  # folds run in threads, and components may have caches
        self.model, self.data = model, model._prepare(X, y, weight)
        inputs, self.task = new_rows(with_state(model, self.data.columns), self.data.targets, X_test)
        features = self.data.features
        phi = features.project(inputs if isinstance(features, LinearFeatures) else self.data.kernel(inputs, self.data.inputs))
        self.form = EigenbasisForm.of(self.data.problem)
        self.phi = phi if self.form is None else self.form.basis.features(phi)

    def under(self, structure: Structure) -> Problem:
        """The training problem under a structure, in the eigenbasis of the features if possible."""
        problem = self.model._under(structure, self.data)
        return problem if self.form is None else self.form.apply(problem)

    def values(self, solution: Solution) -> Array:
        """The decision values of the test rows, for a solution of ``under``."""
        scale, task = self.data.scale, self.task
        b = np.asarray(solution.b if self.form is None else self.form.basis.inputs.y_mean)
        if task is None or (task < 0).any() or issparse(self.phi):
            return own_task(np.asarray(self.phi @ solution.W + b) * scale.std + scale.mean, task)
        own = np.einsum("ij,ij->i", self.phi, solution.W.T[task]) + b[task]  # never every task at every row
        return own * scale.std[task] + scale.mean[task]


def single_task_candidate(model: MultiTaskEstimator, data: Prepared) -> Candidate:
    """Single-task models, to compare with."""
    alphas = strength_grid(model._under(Independent(), data), N_SINGLE_TASK_ALPHAS)
    return Candidate(Independent(), alphas, may_extend=True, may_strengthen=True)


def variance_by_task(seen: Observations, tasks: Array, std: Array, wide: bool) -> dict[Any, float]:
    """The variance of all targets of each task, in their units; NaN where it is rounding.

    Tasks of a long table are in one unit: a variance that is tiny by chance counts as a share of that within all tasks.
    """
    centre = seen.task_means(seen.y)
    variance = seen.task_means((seen.y - centre[seen.task]) ** 2)
    flat = variance <= FLAT * centre**2
    if not wide:
        variance = np.maximum(variance, LEAST_VARIANCE * np.average(variance, weights=seen.counts))
    return dict(zip(tasks.tolist(), np.where(flat, np.nan, variance * std**2).tolist(), strict=True))


def explained_loss(cv_data: CVData, data: Prepared) -> ExplainedLoss | None:
    """The score by default; ``None`` for losses of whole rows, several losses, and the classes of one target."""
    model = cv_data.estimator
    if isinstance(model.loss, dict) or data.targets.one_vs_rest or isinstance(as_loss(model.loss), RowLoss):
        return None
    scored, _ = model._task_scores(data.targets, cv_data.X, cv_data.y, as_table(cv_data.sample_weight))
    return ExplainedLoss.of_scored(as_loss(model.loss), scored, data.targets.wide)


def in_threads(n_jobs: int | None, function: Callable, calls: Iterable[tuple]) -> Iterable[Any]:
    """The results of calls in their order, as they come; one at a time in this thread where there is one job.

    That way threads of the caller's own do not meet in the warning filters that scikit-learn's ``Parallel`` sets.
    """
    if effective_n_jobs(n_jobs) == 1:
        return (function(*call) for call in calls)
    return Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(delayed(function)(*call) for call in calls)


def cross_validate(
    cv_data: CVData, data: Prepared, candidates: list[Candidate], report: Callable[[int, int, float], None] | None = None
) -> tuple[int, int]:
    """Score the candidates; returns the number of complete folds, and of all folds. Ctrl-C keeps the complete ones."""
    model, seen, n_rows, tasks = cv_data.estimator, data.problem.observations, data.problem.n_rows, data.targets.tasks_
    if cv_data.scoring is None and cv_data.explained is None:
        cv_data.explained = explained_loss(cv_data, data)
    if cv_data.leaves_one_out:
        _leave_one_out(cv_data, data, candidates)
        return n_rows, n_rows
    cv_data.variance = variance_by_task(seen, tasks, data.scale.std, data.targets.wide)
    labelled = model._labelled(data.targets)
    folds = cv_data.folds = make_folds(cv_data, seen, n_rows, labelled) if cv_data.folds is None else cv_data.folds
    if model.unseen != "mean" or model.task_column is None:
        check_folds(folds, seen, n_rows, tasks, labelled)
    runs = in_threads(cv_data.n_jobs, _run_fold, [(cv_data, candidates, split) for split in folds])
    done: list[list[FoldResult]] = []
    try:
        for results in runs:
            done.append(results)
            if report is not None:
                report(len(done), len(folds), float(np.fmax.reduce(np.concatenate([result.scores for result in results]))))
    except KeyboardInterrupt:
        if not done:  # no fold is complete
            raise
    for results in done:
        for candidate, result in zip(candidates, results, strict=True):
            candidate.folds.append(result)
    return len(done), len(folds)


def _leave_one_out(cv_data: CVData, data: Prepared, candidates: list[Candidate]) -> None:
    """Leave out one row at a time, and score all predictions together; in closed form where there is one."""
    model, seen, n_rows = cv_data.estimator, data.problem.observations, data.problem.n_rows
    check_left(seen, data.targets.tasks_, model._labelled(data.targets))
    wide, by_size = model.task_column is None, isinstance(model.task_weight, str) and model.task_weight == "size"
    scorer = FoldScorer(cv_data, data, cv_data.X, cv_data.y, cv_data.sample_weight)
    for candidate in candidates:
        began, found = time.perf_counter(), None
        if not getattr(model, "standardize_targets", False):
            found = leave_one_out(model._under(candidate.structure, data), list(candidate.alphas), rows=wide, by_size=by_size)
        if found is None:
            found = _leave_one_out_by_refitting(cv_data, data, candidate)
        by_row = [seen.scatter(z, n_rows) if wide else np.bincount(seen.row, z, n_rows) for z in found]
        candidate.folds = [FoldResult.of(map(scorer, by_row), scorer.tasks, time.perf_counter() - began)]


def _leave_one_out_by_refitting(cv_data: CVData, data: Prepared, candidate: Candidate) -> Array:
    """The predictions of each row by a fit of the others."""
    seen, n_rows = data.problem.observations, data.problem.n_rows
    out = np.zeros((len(candidate.alphas), seen.y.size))
    for i in range(n_rows):
        others, mine = np.delete(np.arange(n_rows), i), np.flatnonzero(seen.row == i)
        fold = Fold(cv_data.estimator, *cv_data.part(others), cv_data.part(np.array([i]), others)[0])
        for k, solution in enumerate(solve_path(fold.model, fold.under(candidate.structure), candidate.alphas)):
            values = fold.values(solution)
            out[k, mine] = values[0, seen.task[mine]] if values.ndim == 2 else values[0]
    return out
