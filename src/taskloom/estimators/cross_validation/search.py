"""Strength and structure chosen by cross-validation, for little more than one fit.

In each fold the data pass the door once, the features are decomposed once, and the strengths are walked downward with warm
starts; the candidates share all of that. The rest is bookkeeping in scikit-learn's terms.
"""

from __future__ import annotations

import copy
import sys
import time
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import LeaveOneOut
from sklearn.utils import indexable
from sklearn.utils._param_validation import Interval, StrOptions

from ..._component import warn
from ...structures import Independent, Structure
from ...tables import as_table, shown
from ...uncertainty.leave_one_out import leave_one_out
from ..base import MultiTaskEstimator, Prepared
from ..callbacks import Watch, with_callbacks
from ..rollback import all_or_nothing
from ..sums import as_structures
from .folds_fit import ALONE, Fold, Trial, constant, cross_validate, grid_for, walk
from .results import Candidate, FoldResult, ledger, path_table, results_table
from .splitters import check_left

Array = np.ndarray


def searched(plain: type[MultiTaskEstimator]) -> dict[str, list]:
    """The parameter constraints of a plain estimator, with those of the search in place of what is searched."""
    kept = {name: rule for name, rule in plain._parameter_constraints.items() if name not in ("alpha", "warm_start", "device")}
    return kept | {
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "structures": ["array-like", str, Structure, None],
        "scoring": [str, callable, None],
        "fallback": [StrOptions({"single"}), None],
        "n_jobs": [Integral, None],
    }


def _template(structures: list[Structure]) -> Structure:
    """The candidate that asks most of the features: one that sits on them needs the columns as they are."""
    return next((structure for structure in structures if getattr(structure, "keeps_columns", False)), structures[0])


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
    certificate_: Any
    _inner_products: Any
    _training: Any

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: ArrayLike | None = None) -> Self:
        """Choose strength and structure by cross-validation, and fit with them on all data.

        Ctrl-C ends the search: the folds that are complete decide, and the certificate says so; before the first is, a
        ``KeyboardInterrupt`` leaves the estimator as it was.

        Parameters
        ----------
        X, y, sample_weight
            As in the plain estimator.
        groups : array-like of shape (n_samples,), default=None
            For splitters that keep groups together, such as ``GroupKFold``.

        Returns
        -------
        self
            The model with the best setting, fitted to all data.
        """
        self._validate_params()
        if self.fallback is not None and self._leaves_one_out():
            raise ValueError(
                'fallback="single" needs folds, from which the standard errors of gains come; cv="loo" has none: pass cv=5'
            )
        if self.task_column is not None and self.kernel == "precomputed":
            raise ValueError(
                'a kernel matrix with a task column cannot be split by rows and columns: pass the kernel itself (kernel="rbf" '
                "or a function of X), or y as one column for each task, with NaN, and no task_column"
            )
        X, y = indexable(as_table(X), as_table(y))
        structures = self._candidates()
        trial = Trial(self._plain(_template(structures)), X, y, sample_weight, self.scoring)
        data = trial.estimator._prepare(X, y, sample_weight)
        candidates = [Candidate(structure, self._strengths(data, trial, structure)) for structure in structures]
        alone = Candidate(Independent(), grid_for(trial.estimator, data, Independent(), ALONE))
        self._adopt(trial.estimator)
        watch = Watch.over(self, X, y, 2)
        n_folds = self._cross_validate(
            trial, data, [*candidates, alone], groups, watch and watch.part("cross-validation", None)
        )
        chosen = max(candidates, key=lambda candidate: candidate.mean[candidate.best])
        model = trial.estimator
        self.alpha_ = float(chosen.alphas[chosen.best])
        problem = data.problem.with_structure(model._posed(chosen.structure, data.features)).at(self.alpha_)
        own = replace(data, problem=problem)
        refit = watch and watch.part("refit", self.max_iter)
        model._store(own, model._solve(own, refit))
        self._adopt(model)
        if self.n_splits_ < n_folds:
            note = f"The search was interrupted after {self.n_splits_} of {n_folds} folds, and chose by these."
            self.certificate_ = replace(self.certificate_, message=f"{self.certificate_.message} {note}")
            warn(note, ConvergenceWarning)
        self.best_structure_ = chosen.structure
        self.best_score_ = float(chosen.mean[chosen.best])
        self.cv_results_ = results_table(candidates)
        self.path_ = path_table(chosen)
        self.transfer_ = ledger(alone, chosen, self.tasks_.tolist() if self._by_name() else [0])
        if self.fallback == "single":
            self._fall_back(trial, data, alone)
        for part in (refit, watch):
            if part is not None:
                part.end(dict)
        return self

    @property
    def best_index_(self) -> int:
        """Where the chosen setting stands in ``cv_results_``, as in ``GridSearchCV``."""
        return int(np.argmin(self.cv_results_["rank_test_score"]))

    @property
    def best_params_(self) -> dict[str, Any]:
        """The chosen structure and strength, as in ``GridSearchCV``."""
        return {"structure": self.best_structure_, "alpha": self.alpha_}

    # --- what is tried ------------------------------------------------------------------------------------------

    def _candidates(self) -> list[Structure]:
        if self.structures is not None and self.structure is not None:
            raise ValueError("give structure= (one) or structures= (several candidates), not both")
        if self.structures is None:
            return [as_structures(self.structure, self.kernel)]
        given = [self.structures] if isinstance(self.structures, (str, Structure)) else list(self.structures)
        if len(given) == 0:
            raise ValueError("structures is empty: give at least one candidate")
        return [as_structures(structure, self.kernel) for structure in given]

    def _strengths(self, data: Prepared, trial: Trial, structure: Structure) -> Array:
        """The strengths of a candidate, largest first: given, or a grid from the data."""
        if isinstance(self.alphas, Integral):
            return grid_for(trial.estimator, data, structure, int(self.alphas))
        alphas: Array = np.unique(np.asarray(self.alphas, dtype=np.float64))[::-1]
        if not (alphas.size > 0 and bool(np.isfinite(alphas).all()) and bool((alphas > 0).all())):
            raise ValueError(f"alphas must be a whole number or positive strengths, got {self.alphas!r}")
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
    ) -> int:
        """Score every candidate; the number of folds there should have been."""
        if self._leaves_one_out():
            n_folds = self.n_splits_ = data.problem.features.shape[0]
            self._leave_one_out(trial, data, candidates)
        else:

            def report(fold: int, n_folds: int, best: float) -> None:
                if self.verbose:
                    sys.stdout.write(f"fold {fold} of {n_folds}: best score {best:.4g}\n")
                if watch is not None:
                    watch.part("fold").end()

            self.n_splits_, n_folds = cross_validate(
                trial, data, candidates, self.cv, groups, self.n_jobs, self.random_state, report
            )
        if watch is not None:
            watch.end()
        return n_folds

    def _leaves_one_out(self) -> bool:
        return isinstance(self.cv, LeaveOneOut) or (isinstance(self.cv, str) and self.cv == "loo")

    def _leave_one_out(self, trial: Trial, data: Prepared, candidates: list[Candidate]) -> None:
        """One row at a time; predictions are scored together, because one observation has no score of its own."""
        seen, n_rows = data.problem.observations, data.problem.features.shape[0]
        wide = trial.estimator.task_column is None
        check_left(seen, trial.estimator.tasks_, trial.estimator._labelled())
        for candidate in candidates:
            began = time.perf_counter()
            problem = data.problem.with_structure(trial.estimator._posed(candidate.structure, data.features))
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
                model._values = partial(constant, held)  # type: ignore[method-assign]
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
        if not self._by_name():
            raise ValueError("fallback is for tasks; here the tasks are the classes of one target")
        if isinstance(self.kernel, (list, tuple)):
            raise ValueError("fallback needs one kernel, got a list")
        hurt = np.flatnonzero(self.transfer_["gain"] < -self.transfer_["standard_error"])  # unknown errors tell nothing
        self.fallback_tasks_ = self.tasks_[hurt]
        if hurt.size == 0:
            return
        model = copy.copy(trial.estimator)
        problem = data.problem.with_structure(model._posed(Independent(), data.features))
        single = replace(data, problem=problem.at(float(alone.alphas[alone.best])))
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
        named = ", ".join(map(shown, self.fallback_tasks_[:5])) + (", ..." if hurt.size > 5 else "")
        note = f"This is the joint fit; {hurt.size} of {len(self.tasks_)} tasks fell back to a model of their own ({named})."
        self.certificate_ = replace(self.certificate_, message=f"{self.certificate_.message} {note}")
