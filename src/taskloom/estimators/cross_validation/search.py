"""Alpha and structure chosen by cross-validation.

Each fold validates its data once, decomposes its features once, and fits the path of each candidate with warm starts. Results
have the names of ``GridSearchCV``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import indexable
from sklearn.utils._param_validation import Interval, StrOptions

from ..._component import warn
from ...problem import Problem
from ...solvers import solve, strength_grid
from ...structures import Structure
from ...tables.layout import as_table, shown
from ..base import MultiTaskEstimator
from ..callbacks import Watch, with_callbacks
from ..decision import cross_kernel
from ..fitted import FittedState, Prepared, show_fields
from ..state_of_fit import fitted_state
from ..target_encoding import objects
from ..terms.fit_sum import refuse_sum
from ..validation import as_structures, names_its_class
from .folds_fit import CVData, cross_validate, single_task_candidate
from .results import Candidate, SearchResult, path_table, results_table, transfer_table

Array = np.ndarray


def searched(plain: type[MultiTaskEstimator]) -> dict[str, list]:
    """The parameter constraints of a plain estimator, with those of the search in place of alpha."""
    kept = {name: rule for name, rule in plain._parameter_constraints.items() if name not in ("alpha", "warm_start", "device")}
    return kept | {
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "structures": ["array-like", str, Structure, None],
        "scoring": [str, callable, None],
        "fallback": [StrOptions({"single"}), None],
        "n_jobs": [Integral, None],
    }


class CrossValidated(MultiTaskEstimator):
    """``fit`` of the cross-validated estimators; the other methods are those of the plain ones."""

    _plain_class: ClassVar[type[MultiTaskEstimator]]
    _search: SearchResult

    @names_its_class
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: ArrayLike | None = None) -> Self:
        """Choose alpha and structure by cross-validation, and fit with them on all data.

        Ctrl-C ends the search: the complete folds decide, and the message of the certificate says so. If no fold is complete,
        a ``KeyboardInterrupt`` leaves the estimator unchanged.

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
        refuse_sum(self, f"{type(self).__name__} (search with GridSearchCV over the plain estimator)")
        if self.task_column is not None and self.kernel == "precomputed":
            raise ValueError(
                'a kernel matrix with a task column cannot be split by rows and columns: pass the kernel itself (kernel="rbf" '
                "or a function of X), or y as one column for each task, with NaN, and no task_column"
            )
        X, y = indexable(as_table(X), as_table(y))
        structures = self._candidates()
        # the candidate that decides how features are made: one on the features needs the columns of X unchanged
        first = next((each for each in structures if getattr(each, "keeps_columns", False)), structures[0])
        model = self._plain(first)
        cv_data = CVData(model, X, y, sample_weight, self.scoring, self.cv, groups, self.n_jobs, self.random_state)
        if self.fallback is not None and cv_data.leaves_one_out:
            raise ValueError(
                'fallback="single" needs folds, from which the standard errors of gains come; cv="loo" has none: pass cv=5'
            )
        data = model._prepare(X, y, sample_weight)
        candidates = [Candidate(structure, self._alphas(model._under(structure, data))) for structure in structures]
        single_task = single_task_candidate(model, data)
        watch = Watch.over(self, X, y, 2) if getattr(self, "_skl_callbacks", None) else None
        n_splits, n_folds = self._cross_validate(cv_data, data, [*candidates, single_task], watch)
        chosen = max(candidates, key=lambda candidate: candidate.mean[candidate.best])
        refit = watch and watch.part("refit", self.max_iter)
        state = _refitted(model, data, chosen, refit)
        if n_splits < n_folds:
            note = f"The search was interrupted after {n_splits} of {n_folds} folds, and chose by these."
            state = _noted(state, note)
            warn(note, ConvergenceWarning)
        tasks = [0] if data.targets.one_vs_rest else data.targets.tasks_.tolist()
        search = SearchResult(
            alpha_=float(chosen.alphas[chosen.best]),
            best_structure_=chosen.structure,
            best_score_=float(chosen.mean[chosen.best]),
            n_splits_=n_splits,
            cv_results_=results_table(candidates),
            path_=path_table(chosen),
            transfer_=transfer_table(single_task, chosen, tasks) | {"model": objects(["together"] * len(tasks))},
        )
        if self.fallback == "single":
            state, search = _with_fallback(model, data, single_task, state, search)
        self.__dict__.update(_state=state, _search=search)  # at once: an interrupt or another thread must not part them
        for part in (refit, watch):
            if part is not None:
                part.end(dict)
        return self

    @property
    def best_index_(self) -> int:
        """The index of the chosen setting in ``cv_results_``, as in ``GridSearchCV``."""
        return int(np.argmin(self.cv_results_["rank_test_score"]))

    @property
    def best_params_(self) -> dict[str, Any]:
        """The chosen structure and alpha, as in ``GridSearchCV``."""
        return {"structure": self.best_structure_, "alpha": self.alpha_}

    def _cross_validate(self, cv_data, data, candidates, watch) -> tuple[int, int]:
        """Score every candidate; returns the number of complete folds, and of all folds."""
        folds = watch and watch.part("cross-validation", None)

        def report(fold: int, n_folds: int, best: float) -> None:
            if self.verbose:
                sys.stdout.write(f"fold {fold} of {n_folds}: best score {best:.4g}\n")
            if folds is not None:
                folds.part("fold").end()

        done = cross_validate(cv_data, data, candidates, report)
        if folds is not None:
            folds.end()
        return done

    # --- candidates ------------------------------------------------------------------------------------------

    def _candidates(self) -> list[Structure]:
        if self.structures is not None and self.structure is not None:
            raise ValueError("give structure= (one) or structures= (several candidates), not both")
        given = [self.structure] if self.structures is None else self.structures
        given = [given] if isinstance(given, (str, Structure)) else list(given)
        if len(given) == 0:
            raise ValueError("structures is empty: give at least one candidate")
        return [as_structures(structure, self.kernel) for structure in given]

    def _alphas(self, problem: Problem) -> Array:
        """The values of alpha of a candidate, largest first: given, or a grid computed from the data."""
        if isinstance(self.alphas, Integral):
            return strength_grid(problem, int(self.alphas))
        alphas: Array = np.unique(np.asarray(self.alphas, dtype=np.float64))[::-1]
        if not (alphas.size > 0 and bool(np.isfinite(alphas).all()) and bool((alphas > 0).all())):
            raise ValueError(f"alphas must be a whole number or positive numbers, got {self.alphas!r}")
        return alphas

    def _plain(self, structure: Structure, **chosen: Any) -> MultiTaskEstimator:
        """The estimator without cross-validation."""
        mine = self.get_params(deep=False)
        names = self._plain_class._get_param_names()
        options = {name: mine[name] for name in names if name in mine and name not in ("structure", "verbose")}
        return clone(self._plain_class(clone(structure, safe=False), **options, **chosen))

    def _chosen(self) -> MultiTaskEstimator:
        """... with the chosen alpha and structure."""
        return self._plain(self._search.best_structure_, alpha=self._search.alpha_)


# --- refit ---------------------------------------------------------------------------------------------------------


def _refitted(model: MultiTaskEstimator, data: Prepared, chosen: Candidate, watch: Watch | None = None) -> FittedState:
    """The fit of all data with a candidate at its best alpha."""
    data = replace(data, problem=model._under(chosen.structure, data).at(float(chosen.alphas[chosen.best])))
    solution = solve(data.problem, model.solver, **model._settings(data, watch))
    return fitted_state(data, solution, model.tol)


def _noted(state: FittedState, note: str) -> FittedState:
    """The state with a note in the message of the certificate."""
    return replace(state, certificate_=replace(state.certificate_, message=f"{state.certificate_.message} {note}"))


def _with_fallback(
    model: MultiTaskEstimator, data: Prepared, single_task: Candidate, state: FittedState, search: SearchResult
) -> tuple[FittedState, SearchResult]:
    """Give tasks whose gain is negative by more than one standard error their single-task models."""
    if state.one_vs_rest:
        raise ValueError("fallback is for tasks; here the tasks are the classes of one target")
    if state.kernel.several:
        raise ValueError("fallback needs one kernel, got a list")
    transfer = search.transfer_
    hurt = np.flatnonzero(transfer["gain"] < -transfer["standard_error"])  # NaN compares as False
    search = replace(search, fallback_tasks_=state.tasks_[hurt])
    if hurt.size == 0:
        return state, search
    single = _refitted(model, data, single_task)
    mine = np.isin(np.arange(state.n_tasks), hurt)
    found: dict[str, Any] = {"intercept_": np.where(mine, single.intercept_, state.intercept_).astype(state.dtype)}
    if state.coef_ is not None:
        found["coef_"] = np.where(mine[:, None], np.asarray(single.coef_), state.coef_).astype(state.dtype)
    else:
        found["dual_coef_"] = np.where(mine, single.dual_coef_, state.dual_coef_).astype(state.dtype)
        C = found["dual_coef_"].astype(float) / data.scale.std
        found["inner_products"] = C.T @ cross_kernel(state, state.X_fit_) @ C
    named = ", ".join(map(shown, state.tasks_[hurt][:5])) + (", ..." if hurt.size > 5 else "")
    note = f"This is the joint fit; {hurt.size} of {state.n_tasks} tasks fell back to a model of their own ({named})."
    # contributions are those of the joint weights; the joint posterior does not describe these tasks
    state = replace(_noted(state, note), stored_contributions=state.contributions, training=None, **found)
    return state, replace(search, transfer_=transfer | {"model": np.where(mine, "alone", "together").astype(object)})


show_fields(CrossValidated, SearchResult, "_search")
