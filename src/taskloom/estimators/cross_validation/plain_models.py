"""The candidates without a common part: structures over paths of alpha, beside single-task models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from ...solvers import solve
from ...structures import Independent
from ...tables.layout import shown
from ..base import MultiTaskEstimator
from ..callbacks import Watch
from ..decision import cross_kernel
from ..fitted import FittedState, Prepared
from ..state_of_fit import fitted_state
from ..target_encoding import objects
from .folds_fit import N_SINGLE_TASK_ALPHAS, CVData, cross_validate, single_task_candidate
from .results import Candidate, SearchResult, transfer_table

Array = np.ndarray
EXTENSIONS = 3  # of a grid, each by half its length


@dataclass(eq=False)
class PlainModels:
    """The prepared data, the candidates, and single-task models to compare with."""

    model: MultiTaskEstimator
    cv_data: CVData
    data: Prepared
    candidates: list[Candidate]
    single_task: Candidate  # one of the candidates, if these have independent tasks
    interrupted: bool = False  # beyond the ends of the grids

    @classmethod
    def of(cls, search: Any, structures: list[Any], settings: tuple) -> PlainModels:
        """Of a cross-validated estimator; ``settings`` are those of ``CVData``."""
        # the candidate that decides how features are made: one on the features needs the columns of X unchanged
        first = next((each for each in structures if getattr(each, "keeps_columns", False)), structures[0])
        model = search._plain(structure=first)
        cv_data = CVData(model, *settings)
        if search.fallback is not None and cv_data.leaves_one_out:
            raise ValueError(
                'fallback="single" needs folds, from which the standard errors of gains come; cv="loo" has none: pass cv=5'
            )
        data = model._prepare(cv_data.X, cv_data.y, cv_data.sample_weight)
        ours = isinstance(search.alphas, Integral)
        candidates = [
            Candidate(
                structure, search._alphas(model._under(structure, data)), may_extend=ours, may_strengthen=known(structure)
            )
            for structure in structures
        ]
        fine = ours and int(search.alphas) >= N_SINGLE_TASK_ALPHAS
        alone = [each for each in candidates if fine and isinstance(each.structure, Independent)]
        return cls(model, cv_data, data, candidates, alone[0] if alone else single_task_candidate(model, data))

    @property
    def all_candidates(self) -> list[Candidate]:
        """With the single-task models, which may be among the candidates."""
        return list(dict.fromkeys([*self.candidates, self.single_task]))

    def cross_validate(self, report: Callable[[int, int, float], None] | None = None) -> tuple[int, int]:
        """Score all candidates, and go on with the grids of alpha at whose end the best one is.

        Returns the number of complete folds, and of all folds.
        """
        done = cross_validate(self.cv_data, self.data, self.all_candidates, report)
        for _ in range(EXTENSIONS if done[0] == done[1] else 0):
            pairs = [(each, more) for each in self.all_candidates if (more := each.beyond()) is not None]
            if not pairs:
                break
            try:
                further = cross_validate(self.cv_data, self.data, [more for _, more in pairs])
            except KeyboardInterrupt:  # the grids so far are complete
                further = (0, 1)
            if further[0] < further[1]:
                self.interrupted = True
                break
            for candidate, more in pairs:
                candidate.absorb(more)
        return done

    def only_to_compare(self) -> PlainModels:
        """The single-task models alone."""
        return replace(self, candidates=[], single_task=single_task_candidate(self.model, self.data))

    @property
    def tasks(self) -> list[Any]:
        return [0] if self.data.targets.one_vs_rest else self.data.targets.tasks_.tolist()

    def comparison(self, chosen: Candidate) -> dict[str, Array]:
        """``transfer_``: the chosen model beside single-task models."""
        return transfer_table(self.single_task, chosen, self.tasks) | {"model": objects(["together"] * len(self.tasks))}

    def refitted(self, chosen: Candidate, watch: Watch | None = None) -> FittedState:
        """The fit of all data with a candidate at its best alpha."""
        problem = self.model._under(chosen.structure, self.data).at(float(chosen.alphas[chosen.best]))
        data = replace(self.data, problem=problem)
        return fitted_state(data, solve(problem, self.model.solver, **self.model._settings(data, watch)), self.model.tol)

    def with_fallback(self, state: FittedState, search: SearchResult) -> tuple[FittedState, SearchResult]:
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
        single = self.refitted(self.single_task)
        mine = np.isin(np.arange(state.n_tasks), hurt)
        found: dict[str, Any] = {"intercept_": np.where(mine, single.intercept_, state.intercept_).astype(state.dtype)}
        if state.coef_ is not None:
            found["coef_"] = np.where(mine[:, None], np.asarray(single.coef_), state.coef_).astype(state.dtype)
        else:
            found["dual_coef_"] = np.where(mine, single.dual_coef_, state.dual_coef_).astype(state.dtype)
            C = found["dual_coef_"].astype(float) / self.data.scale.std
            found["inner_products"] = C.T @ cross_kernel(state, state.X_fit_) @ C
        named = ", ".join(map(shown, state.tasks_[hurt][:5])) + (", ..." if hurt.size > 5 else "")
        note = f"This is the joint fit; {hurt.size} of {state.n_tasks} tasks fell back to a model of their own ({named})."
        # contributions are those of the joint weights; the joint posterior does not describe these tasks
        state = replace(noted(state, note), stored_contributions=state.contributions, training=None, **found)
        return state, replace(search, transfer_=transfer | {"model": np.where(mine, "alone", "together").astype(object)})


def known(structure: Any) -> bool:
    """Whether no structure is learned, so that weights vanish at no alpha."""
    return all(each.known for each in structure) if isinstance(structure, list) else structure.known


def noted(state: FittedState, note: str) -> FittedState:
    """The state with a note in the message of the certificate."""
    return replace(state, certificate_=replace(state.certificate_, message=f"{state.certificate_.message} {note}"))
