"""Alpha and structure chosen by cross-validation.

Each fold validates its data once, decomposes its features once, and fits the path of each candidate with warm starts. Results
have the names of ``GridSearchCV``.
"""

from __future__ import annotations

import copy
import sys
from itertools import pairwise
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
from ...solvers import strength_grid
from ...structures import Structure
from ...tables.layout import as_table
from ..base import MultiTaskEstimator
from ..callbacks import Watch, with_callbacks
from ..fitted import show_fields
from ..validation import as_structures, names_its_class
from .kernel_candidates import KernelCandidate, kernel_candidates
from .kernel_portfolio import kernel_portfolio
from .models_of_kernel import ModelsOfKernel
from .plain_models import PlainModels, noted
from .results import LEAST_TO_EXTEND, Candidate, SearchResult, path_table, results_table
from .sum_models import SumModels, sentence, sum_models
from .sum_search import SumCandidate

Array = np.ndarray


def searched(plain: type[MultiTaskEstimator]) -> dict[str, list]:
    """The parameter constraints of a plain estimator, with those of the search in place of alpha."""
    kept = {name: rule for name, rule in plain._parameter_constraints.items() if name not in ("alpha", "warm_start", "device")}
    return kept | {
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "structures": ["array-like", str, Structure, None],
        "kernels": ["array-like", str, callable, None],
        "scoring": [str, callable, None],
        "fallback": [StrOptions({"single"}), None],
        "n_jobs": [Integral, None],
    }


class CrossValidated(MultiTaskEstimator):
    """``fit`` of the cross-validated estimators; the other methods are those of the plain ones."""

    _plain_class: ClassVar[type[MultiTaskEstimator]]
    _search: SearchResult
    means_for_unseen: ClassVar[bool] = True  # under unseen="auto", without a common part

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
        if self.task_column is not None and isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                'a kernel matrix with a task column cannot be split by rows and columns: pass the kernel itself (kernel="rbf" '
                "or a function of X), or y as one column for each task, with NaN, and no task_column"
            )
        X, y = indexable(as_table(X), as_table(y))
        settings = (X, y, sample_weight, self.scoring, self.cv, groups, self.n_jobs, self.random_state)
        kernels, why_linear = self._kernels(settings)
        every = [self._models(kernel, settings) for kernel in kernels]
        watch = Watch.over(self, X, y, 2) if getattr(self, "_skl_callbacks", None) else None
        done, complete = self._cross_validate(every, watch and watch.part("cross-validation", None))
        most = max(len(candidate.folds) for each in every for candidate in each.candidates)
        every = [each.finished(most) for each in every]
        candidates = [candidate for each in every for candidate in each.candidates]
        chosen = max(candidates, key=lambda candidate: candidate.mean[candidate.best])
        models = next(each for each in every if any(candidate is chosen for candidate in each.candidates))
        plain, sums = models.plain, models.sums
        refit = watch and watch.part("refit", self.max_iter)
        owner: Any = sums if isinstance(chosen, SumCandidate) else plain
        state = owner.refitted(chosen, refit)
        for note, kind in ((_interrupted(done, complete, every), ConvergenceWarning), (self._at_an_edge(chosen), UserWarning)):
            if note:
                state = noted(state, note)
                warn(note, kind)
        why_none = every[0].why_no_sum
        search = SearchResult(
            alpha_=float(chosen.alphas[chosen.best]),
            best_structure_=chosen.structure,
            best_kernel_=None if self.terms is not None else models.kernel.kernel,
            best_gamma_=None if self.kernels is None else models.kernel.gamma,
            kernel_options=models.kernel.options or None,
            best_score_=float(chosen.mean[chosen.best]),
            n_splits_=done[0],
            cv_results_=results_table(candidates),
            path_=path_table(chosen),
            transfer_=plain.comparison(chosen) if plain and plain.single_task.folds else None,
            best_weights_=chosen.weights[chosen.best] if isinstance(chosen, SumCandidate) else None,
            selection_=sentence(chosen, candidates, done[0], why_none, why_linear),
        )
        if self.fallback == "single" and plain is not None:
            state, search = plain.with_fallback(state, search)
        self.__dict__.update(_state=state, _search=search)  # at once: an interrupt or another thread must not part them
        for each in (refit, watch):
            if each is not None:
                each.end(dict)
        return self

    @property
    def best_index_(self) -> int:
        """The index of the chosen setting in ``cv_results_``, as in ``GridSearchCV``."""
        return int(np.argmin(self.cv_results_["rank_test_score"]))

    @property
    def best_params_(self) -> dict[str, Any]:
        """The chosen parameters of the plain estimator, as in ``GridSearchCV``."""
        state, search = self._fitted(), self._search
        if state.fitted_terms is not None:
            return {"alpha": search.alpha_, "terms": [fitted.term for fitted in state.fitted_terms]}
        chosen = {"structure": search.best_structure_, "alpha": search.alpha_}
        if self.kernels is not None and search.best_kernel_ is not None:
            chosen |= {"kernel": search.best_kernel_, "gamma": search.best_gamma_} | (search.kernel_options or {})
        return chosen | ({} if state.common_part is None else state.common_part.parameters)

    def _plain_models(self, structures: list, settings: tuple, sums: SumModels | None) -> PlainModels | None:
        """The candidates without a common part; with one that was asked for, single-task models to compare with."""
        if self.terms is not None:
            return None
        try:
            plain = PlainModels.of(self, structures, settings)
        except ValueError:  # such as tasks of one class: with a common part there is a minimiser all the same
            if sums is None:
                raise
            return None
        if not (sums is None or (isinstance(self.common, str) and self.common == "auto")):
            return plain.only_to_compare()
        return plain

    def _models(self, kernel: KernelCandidate, settings: tuple) -> ModelsOfKernel:
        """The candidates with one kernel."""
        twin = self._with_kernel(kernel)
        structures = twin._candidates()
        if kernel.text and isinstance(self.common, str) and self.common == "auto":
            sums, why_none = None, ""  # of the portfolio: a common part is compared under the linear kernel
        else:
            sums, why_none = sum_models(twin, structures, settings)
        models = ModelsOfKernel(kernel, twin._plain_models(structures, settings, sums), sums, why_none)
        if self.kernels is not None:
            for candidate in models.candidates:
                candidate.kernel = kernel
        return models

    def _cross_validate(self, every: list[ModelsOfKernel], watch: Watch | None) -> tuple[tuple[int, int], bool]:
        """Score every candidate on the same folds.

        Returns the numbers of complete folds and of all folds for the first kernel, and whether all kernels were tried on all.
        """

        def report(fold: int, n_folds: int, best: float) -> None:
            if self.verbose:
                sys.stdout.write(f"fold {fold} of {n_folds}: best score {best:.4g}\n")
            if watch is not None:
                watch.part("fold").end()

        def after_setting() -> None:
            if watch is not None:
                watch.part("setting").end()

        first = every[0].cross_validate(None, report, after_setting)
        complete = first[0] == first[1]
        for last, models in pairwise(every):
            if not complete or last.interrupted:
                break
            try:
                done = models.cross_validate(every[0].folds, report, after_setting)
            except KeyboardInterrupt:  # the kernels before are complete
                done = (0, 1)
            complete = done[0] == done[1]
        if watch is not None:
            watch.end()
        return first, complete

    # --- candidates ------------------------------------------------------------------------------------------

    def _candidates(self) -> list[Structure]:
        if self.structures is not None and self.structure is not None:
            raise ValueError("give structure= (one) or structures= (several candidates), not both")
        given = [self.structure] if self.structures is None else self.structures
        given = [given] if isinstance(given, (str, Structure)) else list(given)
        if len(given) == 0:
            raise ValueError("structures is empty: give at least one candidate")
        kernel = "linear" if self.kernel is None else self.kernel
        return [as_structures(structure, kernel) for structure in given]

    def _with_kernel(self, kernel: KernelCandidate) -> Self:
        """A copy with one kernel."""
        twin = copy.copy(self)
        for name, value in ({"kernels": None} | kernel.parameters).items():
            setattr(twin, name, value)
        return twin

    def _kernels(self, settings: tuple) -> tuple[list[KernelCandidate], str]:
        """The kernels to compare, and why there is no Gaussian one among them where that was left to the search."""
        auto = isinstance(self.kernels, str) and self.kernels == "auto"
        if auto and self.kernel is None and self.terms is None and self.common in (None, False, "auto"):
            return kernel_portfolio(self, self._candidates(), settings)
        if self.kernels is None or auto:
            return [KernelCandidate("linear" if self.kernel is None else self.kernel, self.gamma)], ""
        if self.kernel is not None:
            raise ValueError("give kernel= (one) or kernels= (several candidates), not both")
        if self.terms is not None:
            raise ValueError("terms= have kernels of their own; leave kernels=None")
        return kernel_candidates(self.kernels, self.gamma), ""

    def _at_an_edge(self, chosen: Candidate) -> str:
        """A sentence where the best alpha is the first or the last of those that were given."""
        if isinstance(self.alphas, Integral) or len(given := self._given_alphas()) < LEAST_TO_EXTEND:
            return ""
        best = chosen.alphas[chosen.best]
        if given[-1] < best < given[0]:
            return ""
        side = "largest" if best >= given[0] else "smallest"
        return f"alpha = {best:.3g} scores best, the {side} that was given: the best may lie beyond."

    def _alphas(self, problem: Problem) -> Array:
        """The values of alpha of a candidate, largest first: given, or a grid computed from the data."""
        return strength_grid(problem, int(self.alphas)) if isinstance(self.alphas, Integral) else self._given_alphas()

    def _given_alphas(self) -> Array:
        alphas: Array = np.unique(np.asarray(self.alphas, dtype=np.float64))[::-1]
        if not (alphas.size > 0 and bool(np.isfinite(alphas).all()) and bool((alphas > 0).all())):
            raise ValueError(f"alphas must be a whole number or positive numbers, got {self.alphas!r}")
        return alphas

    def _plain(self, **chosen: Any) -> MultiTaskEstimator:
        """The estimator without cross-validation; as a plain one with a task column predicts tasks that were not seen."""
        mine = self.get_params(deep=False)
        names = self._plain_class._get_param_names()
        options = {name: mine[name] for name in names if name in mine and name != "verbose"} | {"common": None} | chosen
        if options["kernel"] is None:
            options["kernel"] = "linear"
        if self.unseen == "auto" and self.task_column is not None:
            options["unseen"] = "mean"
        return clone(self._plain_class(**{name: clone(value, safe=False) for name, value in options.items()}))

    def _chosen(self) -> MultiTaskEstimator:
        """... with what the search chose."""
        return self._plain(**self.best_params_)


def _interrupted(done: tuple[int, int], complete: bool, every: list[ModelsOfKernel]) -> str:
    """What an interrupted search chose by; empty if it was not."""
    if done[0] < done[1]:
        return f"The search was interrupted after {done[0]} of {done[1]} folds, and chose by these."
    if not complete:
        return "The search was interrupted, and chose among the kernels that were tried on all folds."
    if any(models.interrupted for models in every):
        return "The search was interrupted, and chose by the settings that were tried on all folds."
    return ""


show_fields(CrossValidated, SearchResult, "_search")
