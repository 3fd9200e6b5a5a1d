"""Strength and structure chosen by cross-validation, for little more than one fit.

In each fold the data pass the door once, the features are decomposed once, and the strengths are walked downward with warm
starts; the candidates share all of that. The rest is bookkeeping in scikit-learn's terms.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import LeaveOneOut
from sklearn.utils import indexable
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed

from .._component import require
from ..features import LinearFeatures
from ..leave_one_out import leave_one_out
from ..metrics import mean_score
from ..problem import Problem
from ..solution import Solution
from ..solvers import path, strength_grid
from ..solvers.reduced import Reduced
from ..structures import Independent, Structure, as_structure
from ..tables import as_table
from .base import MultiTaskEstimator, Prepared
from .callbacks import Watch, with_callbacks
from .folds import Split, check_folds, check_left, make_folds

Array = np.ndarray
ALONE = 10  # strengths of single-task learning that the ledger tries, over the same decades


def searched(plain: type[MultiTaskEstimator]) -> dict[str, list]:
    """The parameter constraints of a plain estimator, with those of the search in place of what is searched."""
    kept = {name: rule for name, rule in plain._parameter_constraints.items() if name not in ("alpha", "warm_start")}
    return kept | {
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "structures": ["array-like", str, Structure, None],
        "scoring": [str, callable, None],
        "fallback": [StrOptions({"single"}), None],
        "n_jobs": [Integral, None],
    }


@dataclass(frozen=True, eq=False)
class FoldResult:
    """What one fold says about one candidate; every list has one entry for each strength."""

    scores: Array
    by_task: list[dict[Any, float]]
    seconds: Array
    solutions: list[Solution]


@dataclass(eq=False)
class Candidate:
    """A structure with its strengths, largest first, and what cross-validation says about each."""

    structure: Structure
    alphas: Array
    folds: list[FoldResult] = field(default_factory=list)

    @property
    def scores(self) -> Array:
        """``n_folds x n_alphas``."""
        return np.array([fold.scores for fold in self.folds])

    @property
    def mean(self) -> Array:
        return self.scores.mean(axis=0)

    @property
    def best(self) -> int:
        """The strength with the best mean score; of equals the largest."""
        mean = self.mean
        require(not np.isnan(mean).all(), "every score is NaN: the test parts are too small for this score; lower cv")
        return int(np.nanargmax(mean))

    def task_scores(self, k: int, tasks: list[Any]) -> Array:
        """``n_folds x n_tasks`` at strength ``k``; NaN where a fold does not test a task."""
        return np.array([[fold.by_task[k].get(name, np.nan) for name in tasks] for fold in self.folds])

    def over_folds(self, read: Callable[[Solution], Any]) -> Array:
        """Something about every solution (``n_folds x n_alphas x ...``); leave-one-out in closed form has none."""
        return np.array([[read(solution) for solution in fold.solutions] for fold in self.folds if fold.solutions])


@dataclass(eq=False)
class Trial:
    """The data of one cross-validation, and how to judge a fitted model on a part of them."""

    estimator: MultiTaskEstimator  # unfitted, with the right kernel, loss, ...
    X: Any
    y: Any
    sample_weight: Array | None
    scoring: Any

    def part(self, rows: Array, train: Array | None = None) -> tuple[Any, Any, Array | None]:
        """Inputs, targets and weights of some rows; a kernel matrix keeps the columns of ``train`` (or of the rows)."""
        weight = None if self.sample_weight is None else np.asarray(self.sample_weight)[rows]
        return *_safe_split(self.estimator, self.X, self.y, rows, train), weight

    def judge(self, model: MultiTaskEstimator, X: Any, y: Any, weight: Array | None) -> Judge:
        """How to score the predictions of a model on these data, many times."""
        return Judge(self.scoring, model, X, y, weight)


class Judge:
    """Scores a model on the same data at one strength after the other."""

    def __init__(self, scoring: Any, model: MultiTaskEstimator, X: Any, y: Any, weight: Array | None):
        self.X, self.y, self.weight = X, y, weight
        self.scorer = None if scoring is None else check_scoring(model, scoring)
        self.quick = None
        if not getattr(model, "_one_vs_rest", False):
            self.quick = model._task_scores(X, y, weight)
            self.seen = ~np.isnan(model._coded(as_table(y), model._tasks_of_rows(X)))

    def __call__(self, model: MultiTaskEstimator, values: Array) -> tuple[float, dict[Any, float]]:
        """The score, and the score of each task; ``values`` are the model's decision values here."""
        if self.quick is not None:
            by_task = self.quick(values[self.seen])
        else:
            by_task = model.score_per_task(self.X, self.y, self.weight)
        if self.scorer is None:
            return mean_score(by_task), by_task
        options = {} if self.weight is None else {"sample_weight": self.weight}
        return float(self.scorer(model, self.X, self.y, **options)), by_task


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
    short = [solution.certificate for solution in solutions if not solution.certificate.optimal]
    if short:
        worst = max(short, key=lambda certificate: certificate.relative_gap)
        warnings.warn(
            f"{len(short)} of {len(solutions)} strengths did not reach tol; the worst: {worst.message}",
            ConvergenceWarning,
            stacklevel=2,
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
        self.reduced = Reduced.of(self.data.problem)
        self.phi = phi if self.reduced is None else self.reduced.features(phi)

    def under(self, structure: Structure) -> Problem:
        """The training problem under a structure, reduced where that is possible."""
        problem = self.data.problem if self.reduced is None else self.reduced.problem
        return problem.with_structure(self.model._coded_structure(structure))

    def at(self, solution: Solution) -> tuple[MultiTaskEstimator, Array]:
        """The model with this solution of ``under``, which can predict the test part, and its decision values there."""
        scale = self.data.scale
        b = solution.b if self.reduced is None else self.reduced.inputs.y_mean
        values = _pick(np.asarray(self.phi @ solution.W + b) * scale.spread + scale.mean, self.task)
        self.model.intercept_ = solution.b  # a fitted model has one
        self.model._values = partial(_constant, values)  # type: ignore[method-assign]
        return self.model, values


def _constant(values: Array, *_: Any) -> Array:
    """Predictions that are already made."""
    return values


def _pick(values: Array, task: Array | None) -> Array:
    """The value of each row's own task; -1 is the mean of the tasks."""
    if task is None:
        return values
    own = values[np.arange(len(values)), task]
    return np.where(task < 0, values.mean(axis=1), own)


def grid_for(model: MultiTaskEstimator, data: Prepared, structure: Structure, size: int) -> Array:
    """Strengths to try for a structure on these data."""
    return strength_grid(data.problem.with_structure(model._coded_structure(structure)), size)


def cross_validate(
    trial: Trial,
    data: Prepared,
    candidates: list[Candidate],
    cv: Any,
    groups: Any,
    n_jobs: int | None,
    random_state: Any,
    report: Callable[[int, int, float], None] | None = None,
) -> int:
    """Fill in the candidates' scores; the number of folds."""
    model = trial.estimator
    seen, n_rows, labelled = data.problem.observations, data.problem.features.shape[0], model._labelled()
    folds = make_folds(cv, trial.X, trial.y, groups, seen, n_rows, labelled, random_state)
    if model.unseen == "raise" or model.task_column is None:
        check_folds(folds, seen, n_rows, model.tasks_, labelled)
    runs = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(_run_fold)(trial, candidates, split) for split in folds
    )
    for k, results in enumerate(runs, start=1):
        for candidate, result in zip(candidates, results, strict=True):
            candidate.folds.append(result)
        if report is not None:
            report(k, len(folds), float(np.fmax.reduce(np.concatenate([result.scores for result in results]))))
    return len(folds)


def _template(structures: list[Structure]) -> Structure:
    """The candidate that asks most of the features: one that sits on them needs the columns as they are."""
    return next((structure for structure in structures if structure.on_features), structures[0])


class CrossValidated(MultiTaskEstimator):
    """``fit`` of the cross-validated estimators; the rest they have from the plain ones."""

    _plain_class: ClassVar[type[MultiTaskEstimator]]
    structures: Any
    alphas: Any
    cv: Any
    scoring: Any
    fallback: Any
    n_jobs: Any
    coef_: Any
    dual_coef_: Any
    intercept_: Any

    @with_callbacks
    def fit(self, X, y, sample_weight=None, groups=None):
        """Choose strength and structure by cross-validation, and fit with them on all data.

        Parameters
        ----------
        X, y, sample_weight
            As in the plain estimator.
        groups : array of shape (n_samples,), optional
            For splitters that keep groups together, such as ``GroupKFold``.

        Returns
        -------
        self
        """
        self._validate_params()
        X, y = indexable(as_table(X), as_table(y))
        structures = self._candidates()
        trial = Trial(self._plain(_template(structures)), X, y, sample_weight, self.scoring)
        data = trial.estimator._prepare(X, y, sample_weight)
        candidates = [Candidate(structure, self._strengths(data, trial, structure)) for structure in structures]
        alone = Candidate(Independent(), grid_for(trial.estimator, data, Independent(), ALONE))
        self._adopt(trial.estimator)
        watch = Watch.over(self, X, y, 2)
        self._cross_validate(trial, data, [*candidates, alone], groups, watch and watch.part("cross-validation", None))
        chosen = max(candidates, key=lambda candidate: candidate.mean[candidate.best])
        model = trial.estimator
        self.alpha_ = float(chosen.alphas[chosen.best])
        problem = data.problem.with_structure(model._coded_structure(chosen.structure)).at(self.alpha_)
        own = replace(data, problem=problem)
        refit = watch and watch.part("refit", self.max_iter)
        model._store(own, model._solve(own, refit))
        self._adopt(model)
        self.best_structure_ = chosen.structure
        self.best_score_ = float(chosen.mean[chosen.best])
        self.cv_results_ = _table(candidates)
        self.path_ = _path(chosen)
        self.transfer_ = ledger(alone, chosen, self.tasks_.tolist() if self._by_name() else [0])
        if self.fallback == "single":
            self._fall_back(trial, data, alone)
        for part in (refit, watch):
            if part is not None:
                part.end(dict)
        return self

    # --- what is tried ------------------------------------------------------------------------------------------

    def _candidates(self) -> list[Structure]:
        require(
            self.structures is None or self.structure is None,
            "give structure= (one) or structures= (several candidates), not both",
        )
        if self.structures is None:
            return [as_structure(self.structure)]
        given = [self.structures] if isinstance(self.structures, (str, Structure)) else list(self.structures)
        require(len(given) > 0, "structures is empty: give at least one candidate")
        return [as_structure(structure) for structure in given]

    def _strengths(self, data: Prepared, trial: Trial, structure: Structure) -> Array:
        """The strengths of a candidate, largest first: given, or a grid from the data."""
        if isinstance(self.alphas, Integral):
            return grid_for(trial.estimator, data, structure, int(self.alphas))
        alphas: Array = np.unique(np.asarray(self.alphas, dtype=np.float64))[::-1]
        require(
            alphas.size > 0 and bool(np.isfinite(alphas).all()) and bool((alphas > 0).all()),
            f"alphas must be a whole number or positive strengths, got {self.alphas!r}",
        )
        return alphas

    def _plain(self, structure: Structure) -> MultiTaskEstimator:
        """The estimator without cross-validation."""
        mine = self.get_params(deep=False)
        names = self._plain_class._get_param_names()
        options = {name: mine[name] for name in names if name in mine and name not in ("structure", "verbose")}
        return clone(self._plain_class(clone(structure, safe=False), **options))

    def _by_name(self) -> bool:
        return not getattr(self, "_one_vs_rest", False)

    # --- folds --------------------------------------------------------------------------------------------------

    def _cross_validate(
        self, trial: Trial, data: Prepared, candidates: list[Candidate], groups: Any, watch: Watch | None
    ) -> None:
        if isinstance(self.cv, LeaveOneOut) or (isinstance(self.cv, str) and self.cv == "loo"):
            self.n_splits_ = data.problem.features.shape[0]
            self._leave_one_out(trial, data, candidates)
        else:

            def report(fold: int, n_folds: int, best: float) -> None:
                if self.verbose:
                    sys.stdout.write(f"fold {fold} of {n_folds}: best score {best:.4g}\n")
                if watch is not None:
                    watch.part("fold").end()

            self.n_splits_ = cross_validate(trial, data, candidates, self.cv, groups, self.n_jobs, self.random_state, report)
        if watch is not None:
            watch.end()

    def _leave_one_out(self, trial: Trial, data: Prepared, candidates: list[Candidate]) -> None:
        """One row at a time; predictions are scored together, because one observation has no score of its own."""
        seen, n_rows = data.problem.observations, data.problem.features.shape[0]
        wide = trial.estimator.task_column is None
        check_left(seen, trial.estimator.tasks_, trial.estimator._labelled())
        for candidate in candidates:
            began = time.perf_counter()
            problem = data.problem.with_structure(trial.estimator._coded_structure(candidate.structure))
            size = isinstance(self.task_weight, str) and self.task_weight == "size"
            plain = not self.standardize_targets if hasattr(self, "standardize_targets") else True
            quick = leave_one_out(problem, list(candidate.alphas), rows=wide, by_size=size) if plain else None
            if quick is None:
                quick = self._leave_out_slowly(trial, data, candidate)
            model = copy.copy(trial.estimator)
            model.intercept_ = np.zeros(problem.n_tasks)  # a fitted model has one
            judge = trial.judge(model, trial.X, trial.y, trial.sample_weight)
            scores, by_task = [], []
            for values in quick:
                held = seen.scatter(values, n_rows) if wide else np.bincount(seen.row, weights=values, minlength=n_rows)
                model._values = partial(_constant, held)  # type: ignore[method-assign]
                score, tasks = judge(model, held)
                scores.append(score)
                by_task.append(tasks)
            seconds = np.full(len(scores), (time.perf_counter() - began) / len(scores))
            candidate.folds = [FoldResult(np.array(scores), by_task, seconds, [])]

    def _leave_out_slowly(self, trial: Trial, data: Prepared, candidate: Candidate) -> Array:
        """By as many fits as there are rows."""
        seen, n_rows = data.problem.observations, data.problem.features.shape[0]
        out = np.zeros((len(candidate.alphas), seen.y.size))
        order = np.argsort(seen.row, kind="stable")
        ends = np.searchsorted(seen.row[order], np.arange(n_rows + 1))
        for i in range(n_rows):
            others = np.delete(np.arange(n_rows), i)
            alone = trial.part(np.array([i]), others)[0]
            fold = Fold(copy.deepcopy(trial.estimator), *trial.part(others), alone)
            mine = order[ends[i] : ends[i + 1]]
            for k, solution in enumerate(walk(fold.model, fold.under(candidate.structure), candidate.alphas)):
                values = fold.at(solution)[1]
                out[k, mine] = values[0, seen.task[mine]] if values.ndim == 2 else values[0]
        return out

    # --- what is kept -------------------------------------------------------------------------------------------

    def _adopt(self, model: MultiTaskEstimator) -> None:
        """The fitted attributes of the plain estimator become ours, in place of those of the last fit."""
        parameters = set(self.get_params(deep=False)) | set(model.get_params(deep=False))
        searched = {"alpha_", "n_splits_"}  # ours alone, from this fit
        for stale in [name for name in vars(self) if name.endswith("_") and name not in searched]:
            delattr(self, stale)
        self.__dict__.pop("_posterior", None)
        self.__dict__.update({name: value for name, value in vars(model).items() if name not in parameters})

    def _fall_back(self, trial: Trial, data: Prepared, alone: Candidate) -> None:
        """Tasks that joint learning hurts, by more than one standard error, keep a model of their own."""
        require(self._by_name(), "fallback is for tasks; here the tasks are the classes of one target")
        gain, error = self.transfer_["gain"], np.nan_to_num(self.transfer_["standard_error"])
        hurt = np.flatnonzero(gain < -error)
        self.fallback_tasks_ = self.tasks_[hurt]
        if hurt.size == 0:
            return
        single = replace(data, problem=data.problem.with_structure(Independent()).at(float(alone.alphas[alone.best])))
        model = copy.copy(trial.estimator)
        model._store(single, model._solve(single))
        self.intercept_[hurt] = model.intercept_[hurt]
        if hasattr(self, "coef_"):
            self.coef_[hurt] = model.coef_[hurt]
        else:
            self.dual_coef_[:, hurt] = model.dual_coef_[:, hurt]
            C = self.dual_coef_.astype(float) / data.scale.spread
            self._inner_products = C.T @ self._cross(self.X_fit_) @ C
        self.transfer_["model"][hurt] = "alone"
        self._training = None  # the posterior of the joint model says nothing about these tasks


def ledger(alone: Candidate, together: Candidate, tasks: list[Any]) -> dict[str, Array]:
    """For each task its cross-validated score alone and with the others, the gain, and the standard error of the gain."""
    one = alone.task_scores(alone.best, tasks)
    other = together.task_scores(together.best, tasks)
    difference = other - one
    n = np.sum(~np.isnan(difference), axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a task that no fold could score has NaN everywhere
        names = np.empty(len(tasks), dtype=object)
        names[:] = tasks
        spread = np.nanstd(difference, axis=0, ddof=1) if len(difference) > 1 else np.full(len(tasks), np.nan)
        return {
            "task": names,
            "alone": np.nanmean(one, axis=0),
            "together": np.nanmean(other, axis=0),
            "gain": np.nanmean(difference, axis=0),
            "standard_error": spread / np.sqrt(np.maximum(n, 1)),
            "model": np.array(["together"] * len(tasks), dtype=object),
        }


def _table(candidates: list[Candidate]) -> dict[str, Any]:
    """``cv_results_`` in the columns of ``GridSearchCV``."""
    scores = np.concatenate([candidate.scores for candidate in candidates], axis=1)  # folds x settings
    params = [{"structure": c.structure, "alpha": float(alpha)} for c in candidates for alpha in c.alphas]
    mean = scores.mean(axis=0)
    order = np.where(np.isnan(mean), -np.inf, mean)
    structures = np.empty(len(params), dtype=object)
    structures[:] = [setting["structure"] for setting in params]
    return {
        "params": params,
        "param_structure": structures,
        "param_alpha": np.array([setting["alpha"] for setting in params]),
        **{f"split{k}_test_score": row for k, row in enumerate(scores)},
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=0),
        "rank_test_score": (1 + np.sum(order[None, :] > order[:, None], axis=1)).astype(np.int32),
        "mean_fit_time": np.concatenate([np.mean([fold.seconds for fold in c.folds], axis=0) for c in candidates]),
        "max_relative_gap": np.concatenate([_worst_gap(c) for c in candidates]),
    }


def _worst_gap(candidate: Candidate) -> Array:
    """The largest relative duality gap over the folds; 0 for leave-one-out in closed form."""
    return (
        candidate.over_folds(lambda solution: solution.certificate.relative_gap).max(axis=0, initial=0.0) + 0 * candidate.alphas
    )


def _path(candidate: Candidate) -> dict[str, Array]:
    """The chosen structure along the strengths: scores over the folds, and what was learned on average."""
    scores = candidate.scores
    path = {
        "alphas": candidate.alphas,
        "score": scores.mean(axis=0),
        "standard_error": scores.std(axis=0, ddof=1) / np.sqrt(len(scores))
        if len(scores) > 1
        else np.full(scores.shape[1], np.nan),
        "relative_gap": _worst_gap(candidate),
    }
    widest = max((len(solution.A) for fold in candidate.folds for solution in fold.solutions), default=0)
    spectra = candidate.over_folds(lambda solution: _spectrum(solution.A, widest))
    if spectra.size:
        path["spectrum"] = np.nanmean(spectra, axis=0)
        path["n_iter"] = candidate.over_folds(lambda solution: solution.n_iter).mean(axis=0)
    return path


def _spectrum(A: Array, size: int) -> Array:
    """The eigenvalues, largest first; NaN in place of those of tasks that a fold did without."""
    return np.pad(np.linalg.eigvalsh(A)[::-1], (0, size - len(A)), constant_values=np.nan)
