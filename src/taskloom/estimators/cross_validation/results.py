"""Results of cross-validation for each candidate, and tables of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...problem.solution import Solution
from ...structures.factored_matrix import FactoredStructure
from ..target_encoding import objects
from .kernel_candidates import KernelCandidate

Array = np.ndarray
LEAST_TO_EXTEND = 5  # values of alpha: a grid of fewer says what to compare, not where to begin


@dataclass(frozen=True, eq=False)
class FoldResult:
    """Results of one fold for one candidate; every list has one entry for each setting (an alpha, or alpha and weights)."""

    scores: Array
    by_task: Array  # n_settings x n_tasks; NaN where a task has none
    tasks: list[Any]
    seconds: Array
    solutions: list[Solution]

    @classmethod
    def of(
        cls, scored: Iterable[tuple[float, Array]], tasks: list[Any], seconds: float, solutions: Sequence[Solution] = ()
    ) -> FoldResult:
        """From the scores at each alpha; solutions are kept without weights and dual point, which are as large as the data."""
        scores, by_task = zip(*scored, strict=True)
        each = np.full(len(scores), seconds / len(scores))
        return cls(np.array(scores), np.array(by_task), tasks, each, list(map(slim, solutions)))

    def followed_by(self, other: FoldResult) -> FoldResult:
        """With the settings of another result of the same fold."""
        scores, by_task = np.concatenate([self.scores, other.scores]), np.concatenate([self.by_task, other.by_task])
        seconds = np.concatenate([self.seconds, other.seconds])
        return replace(self, scores=scores, by_task=by_task, seconds=seconds, solutions=self.solutions + other.solutions)

    def of_tasks(self, k: int, tasks: list[Any]) -> Array:
        """The scores of these tasks at a setting; NaN for tasks that the fold does not test."""
        if self.tasks == tasks:
            return self.by_task[k]
        held = dict(zip(self.tasks, self.by_task[k].tolist(), strict=True))
        return np.array([held.get(name, np.nan) for name in tasks])


def slim(solution: Solution) -> Solution:
    """A solution without weights and dual point, which are as large as the data."""
    return replace(solution, W=np.zeros(0), G=np.zeros(0), Z=None)


@dataclass(eq=False)
class Candidate:
    """A structure with its values of alpha, largest first, and the results of its folds."""

    structure: Any
    alphas: Array
    folds: list[FoldResult] = field(default_factory=list)
    kernel: KernelCandidate | None = None  # where several are compared
    may_extend: bool = False  # the grid of alpha is ours
    continues: bool = False  # beyond an end of such a grid
    may_strengthen: bool = False  # weights do not vanish at its first alpha

    @property
    def kernel_params(self) -> dict[str, Any]:
        return {} if self.kernel is None else self.kernel.parameters

    def params(self, k: int) -> dict[str, Any]:
        """The parameters of the plain estimator for a setting."""
        return {"structure": self.structure, "alpha": float(self.alphas[k])} | self.kernel_params

    def beyond(self) -> Candidate | None:
        """The same with a grid that goes on where the best alpha is at an end of it; ``None`` where it is not."""
        if not self.may_extend or len(self.alphas) < LEAST_TO_EXTEND or np.isnan(self.mean).all():
            return None
        ratio = float(self.alphas[1] / self.alphas[0])
        more = ratio ** np.arange(1, 1 + len(self.alphas) // 2)
        if self.best == len(self.alphas) - 1:
            return replace(self, alphas=self.alphas[-1] * more, folds=[], continues=True)
        if self.best == 0 and self.may_strengthen:
            return replace(self, alphas=self.alphas[0] / more[::-1], folds=[], continues=True)
        return None

    def absorb(self, other: Candidate) -> None:
        """Take the results at alphas beyond an end of the grid."""
        stronger = other.alphas[0] > self.alphas[0]
        first, then = (other, self) if stronger else (self, other)
        folds = [one.followed_by(more) for one, more in zip(first.folds, then.folds, strict=True)]
        self.alphas, self.folds = np.concatenate([first.alphas, then.alphas]), folds

    @property
    def path_settings(self) -> Array:
        """The settings of ``path_``, by falling alpha."""
        return np.arange(len(self.alphas))

    @property
    def scores(self) -> Array:
        """``n_folds x n_alphas``."""
        return np.array([fold.scores for fold in self.folds])

    @property
    def mean(self) -> Array:
        return self.scores.mean(axis=0)

    @property
    def best(self) -> int:
        """The index of the alpha with the best mean score; the largest alpha among equals."""
        mean = self.mean
        if np.isnan(mean).all():
            remedy = 'take scoring=None or scoring="steady", or lower cv'
            raise ValueError(f"every score is NaN: the test parts are too small for this score; {remedy}")
        return int(np.nanargmax(mean))

    def task_scores(self, k: int, tasks: list[Any]) -> Array:
        """``n_folds x n_tasks`` at alpha ``k``; NaN where a fold does not test a task."""
        return np.array([fold.of_tasks(k, tasks) for fold in self.folds])

    def over_folds(self, read: Callable[[Solution], Any]) -> Array:
        """A function of every solution (``n_folds x n_alphas x ...``); leave-one-out in closed form has none."""
        return np.array([[read(solution) for solution in fold.solutions] for fold in self.folds if fold.solutions])


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchResult:
    """The results of a search, besides the fitted model."""

    alpha_: float
    best_structure_: Any
    best_kernel_: Any = None
    best_gamma_: Any = None  # where kernels were compared
    kernel_options: dict[str, Any] | None = None  # further parameters that came with the kernel
    best_score_: float | None = None
    n_splits_: int | None = None
    cv_results_: dict[str, Any] | None = None
    path_: dict[str, Array] | None = None
    transfer_: Any = None
    fallback_tasks_: Array | None = None
    best_weights_: dict[str, float] | None = None  # of terms
    selection_: str | None = None


def transfer_table(single_task: Candidate, multi_task: Candidate, tasks: list[Any]) -> dict[str, Array]:
    """Comparison with single-task models: the score of each task under both, the gain and its standard error."""
    single = single_task.task_scores(single_task.best, tasks)
    multi = multi_task.task_scores(multi_task.best, tasks)
    difference = multi - single
    n = np.sum(~np.isnan(difference), axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a task without a score in any fold is NaN
        std = np.nanstd(difference, axis=0, ddof=1) if len(difference) > 1 else np.full(len(tasks), np.nan)
        return {
            "task": objects(tasks),
            "alone": np.nanmean(single, axis=0),
            "together": np.nanmean(multi, axis=0),
            "gain": np.nanmean(difference, axis=0),
            "standard_error": std / np.sqrt(np.maximum(n, 1)),
        }


def results_table(candidates: list[Candidate]) -> dict[str, Any]:
    """``cv_results_`` in the columns of ``GridSearchCV``; a parameter that a candidate does not have is ``None``."""
    scores = np.concatenate([candidate.scores for candidate in candidates], axis=1)  # folds x settings
    params = [candidate.params(k) for candidate in candidates for k in range(len(candidate.alphas))]
    names = dict.fromkeys(name for setting in params for name in setting)
    mean = scores.mean(axis=0)
    order = np.where(np.isnan(mean), -np.inf, mean)
    return {
        "params": params,
        **{f"param_{name}": objects([setting.get(name) for setting in params]) for name in names if name != "alpha"},
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
    gaps = candidate.over_folds(lambda solution: solution.certificate.relative_gap)
    return gaps.max(axis=0, initial=0.0) + 0 * candidate.alphas


def path_table(candidate: Candidate) -> dict[str, Array]:
    """The path of a candidate: scores over the folds, and the mean spectrum of the learned structures."""
    some = candidate.path_settings
    scores = candidate.scores[:, some]
    error = scores.std(axis=0, ddof=1) if len(scores) > 1 else np.full(scores.shape[1], np.nan)
    path = {
        "alphas": candidate.alphas[some],
        "score": scores.mean(axis=0),
        "standard_error": error / np.sqrt(len(scores)),
        "relative_gap": _worst_gap(candidate)[some],
    }
    if not any(fold.solutions for fold in candidate.folds):
        return path
    path["n_iter"] = candidate.over_folds(lambda solution: solution.n_iter).mean(axis=0)[some]
    A = candidate.folds[0].solutions[0].structure
    if isinstance(A, FactoredStructure) or A.ndim == 2:  # one structure, not those of a sum
        widest = max((len(solution.structure) for fold in candidate.folds for solution in fold.solutions), default=0)
        spectra = candidate.over_folds(lambda solution: _spectrum(solution.structure, widest))
        path["spectrum"] = np.nanmean(spectra, axis=0)
    return path


def _spectrum(A: Any, size: int) -> Array:
    """The eigenvalues, largest first, padded with NaN for tasks that a fold does not have."""
    values = A.spectrum() if isinstance(A, FactoredStructure) else np.linalg.eigvalsh(A)[::-1]
    return np.pad(values, (0, size - len(A)), constant_values=np.nan)
