"""Alpha and the weights of terms, chosen together: every setting is scored on all folds before the next one is tried.

With known structures, and with learned ones whose penalty is homogeneous, ``alpha`` over a weight is all that counts. So one
weight stays as it is, and the search is over alpha and the others. It scans alpha coarsely (``sum_start``), and climbs from the
best. Fits for a score need fewer digits than the last one, and start from those at the best setting so far.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..._component import warn
from ...design.term_inputs import TermInputs, scaled_rows
from ...problem import Problem
from ...problem.solution import Solution, Start
from ...solvers import solve
from ...structures.term_stack import stacked
from ..fitted import with_state
from ..terms.fit_sum import prepared_sum
from ..terms.prepared_sum import PreparedSum
from .compass_search import CompassSearch, Point, rounded
from .folds_fit import WORTH_A_WARNING, CVData, FoldScorer, in_threads
from .results import Candidate, FoldResult, slim
from .splitters import Split
from .sum_start import first_alpha

Array = np.ndarray
MOST_SETTINGS = 8  # for each value of alpha that was asked for
SCAN = (0.0, -2.0, -4.0, -6.0)  # decades from the first alpha
NOISE = 0.1  # of the standard error of a score over the folds: a gain that is not worth more settings
LOOSER = 10.0  # tolerance of fits that are only scored


@dataclass(frozen=True, eq=False)
class SumFold:
    """The prepared training rows of a fold, its test rows as the terms see them, and their scorer."""

    data: PreparedSum
    rows: Any
    scorer: FoldScorer

    @classmethod
    def of(cls, cv_data: CVData, split: Split) -> SumFold:
        X, y, weight = cv_data.part(split[0])
        X_test, y_test, test_weight = cv_data.part(split[1], split[0])
        model = copy.deepcopy(cv_data.estimator)  # folds run in threads, and components may have caches
        data = prepared_sum(model, X, y, weight)
        rows = data.new_rows(with_state(model, data.columns), X_test)
        return cls(data, rows, FoldScorer(cv_data, data, X_test, y_test, test_weight))

    def under(self, structure: Any) -> SumFold:
        return replace(self, data=self.data.under(structure))


@dataclass(frozen=True, eq=False)
class Fitted:
    """The weights of a fold at a setting, in the units of its features, to start from at others."""

    parts: list[Array]
    b: Array
    length: float | None

    @classmethod
    def of(cls, problem: Problem, solution: Solution) -> Fitted:
        inputs: TermInputs = problem.design.inputs  # type: ignore[assignment]
        parts = zip(inputs.split(solution.W), inputs.scales, strict=True)
        return cls([scaled_rows(part, scale) for part, scale in parts], solution.b, solution.length)

    def start(self, problem: Problem) -> Start:
        inputs: TermInputs = problem.design.inputs  # type: ignore[assignment]
        parts = zip(self.parts, inputs.scales, strict=True)
        return Start(stacked([scaled_rows(part, 1 / scale) for part, scale in parts]), self.b, self.length)


@dataclass(frozen=True, eq=False)
class Scored:
    """One setting in one fold."""

    score: float
    by_task: Array
    seconds: float
    solution: Solution

    @classmethod
    def of(
        cls, fold: SumFold, alpha: float, weights: dict[str, float], near: Fitted | None = None
    ) -> tuple[Scored, Fitted | None]:
        """With the weights to start from elsewhere, where a structure is learned: at known ones a fit is a single step."""
        began = time.perf_counter()
        model, data = fold.data.model, fold.data.with_weights(weights)
        problem = data.problem(alpha)
        limits = {"max_iter": model.max_iter, "time_limit": model.time_limit}
        start = None if near is None else near.start(problem)
        solution = solve(problem, model.solver, tol=LOOSER * model.tol, start=start, **limits)
        if solution.certificate.status == "interrupted":
            raise KeyboardInterrupt
        score, by_task = fold.scorer(data.values(problem, solution, fold.rows))
        found = None if problem.structure.known else Fitted.of(problem, solution)
        slender = replace(slim(solution), structure=np.zeros(0), terms=None)
        return cls(score, by_task, time.perf_counter() - began, slender), found


@dataclass(eq=False)
class SumCandidate(Candidate):
    """A sum of terms under a structure of the own parts (``None`` for ``terms=``), with the settings that were tried."""

    alphas: Array = field(default_factory=lambda: np.zeros(0))
    data: PreparedSum | None = None  # all rows
    weights: list[dict[str, float]] = field(default_factory=list)  # of each setting

    def params(self, k: int) -> dict[str, Any]:
        assert self.data is not None
        own = {} if self.structure is None else {"structure": self.structure}
        return own | {"alpha": float(self.alphas[k])} | self.kernel_params | self.data.parameters(self.weights[k])

    @property
    def path_settings(self) -> Array:
        """Those with the chosen weights."""
        mine = [k for k, weights in enumerate(self.weights) if weights == self.weights[self.best]]
        return np.array(sorted(mine, key=lambda k: -self.alphas[k]))


class SumSearch:
    """The search of one candidate.

    Parameters
    ----------
    candidate : SumCandidate
        The prepared data and the structure.
    folds : list of SumFold
        Prepared folds.
    alphas : int or array
        How fine, or the values.
    weights : dict
        The weights that were given, which stay.
    n_jobs : int or None
        Folds at the same time.
    verbose : bool
        Whether to print each setting.
    after_setting : callable
        Called after each setting.
    """

    def __init__(
        self,
        candidate: SumCandidate,
        folds: list[SumFold],
        alphas: Any,
        weights: dict[str, float],
        n_jobs: Any,
        verbose: bool,
        after_setting: Callable[[], Any],
    ):
        assert candidate.data is not None
        self.candidate, self.n_jobs, self.verbose, self.after_setting = candidate, n_jobs, verbose, after_setting
        self.folds = [fold.under(candidate.structure) for fold in folds]
        self.start = candidate.data.weights | weights
        self.names = [name for name in candidate.data.searched if name not in weights]
        self.alphas = None if isinstance(alphas, Integral) else np.log10(alphas)
        n_alphas = int(alphas) if isinstance(alphas, Integral) else len(alphas)
        self.compass = CompassSearch(self._scores, MOST_SETTINGS * n_alphas, self._noise)
        self.found: dict[Point, list[Scored]] = {}
        self.best = -np.inf
        self.near: list[Fitted | None] = [None] * len(folds)  # at the best setting so far

    def run(self) -> bool:
        """Try settings; Ctrl-C ends the search, and those that were tried on all folds decide. True if that happened."""
        interrupted = False
        try:
            self._run()
        except KeyboardInterrupt:
            if not self.found:
                raise
            interrupted = True
        self._keep()
        return interrupted

    def _run(self) -> None:
        origin = (0.0,) * len(self.names)
        axes = range(1, 1 + len(self.names))
        if self.alphas is None:
            assert self.candidate.data is not None
            first = np.log10(first_alpha(self.candidate.data.with_weights(self.start)))
            self.compass.try_points([(first + decades, *origin) for decades in SCAN])
            self.compass.run([0, *axes])
            return
        self.compass.try_points([(alpha, *origin) for alpha in self.alphas])
        if self.names:  # weights at the best alpha, then every alpha at the best weights
            self.compass.budget -= len(self.alphas)
            self.compass.run(axes)
            self.compass.budget += len(self.alphas)
            self.compass.try_points([(alpha, *self.compass.best[1:]) for alpha in self.alphas])

    def _noise(self, point: Point) -> float:
        """The gain of a score that is not worth more settings."""
        scores = [each.score for each in self.found[point]]
        return NOISE * float(np.std(scores, ddof=1)) / len(scores) ** 0.5 if len(scores) > 1 else 0.0

    def setting(self, point: Point) -> tuple[float, dict[str, float]]:
        """Alpha and the weights of a point."""
        searched = {name: self.start[name] * 10.0**log for name, log in zip(self.names, point[1:], strict=True)}
        return 10.0 ** point[0], self.start | searched

    def _scores(self, points: Sequence[Point]) -> list[float]:
        """Mean scores over the folds."""
        means = []
        for point in points:
            alpha, weights = self.setting(point)
            each_fold = zip(self.folds, self.near, strict=True)
            scored = list(in_threads(self.n_jobs, Scored.of, [(fold, alpha, weights, near) for fold, near in each_fold]))
            self.found[rounded(point)] = [each for each, _ in scored]
            means.append(float(np.mean([each.score for each, _ in scored])))
            if means[-1] > self.best:
                self.best, self.near = means[-1], [fitted for _, fitted in scored]
            self.after_setting()
            if self.verbose:
                sys.stdout.write(f"setting {len(self.found)}: alpha {alpha:.3g}, weights {shown(weights)}: {means[-1]:.4g}\n")
        return means

    def _keep(self) -> None:
        """The settings and their results as those of the candidate."""
        candidate = self.candidate
        points = sorted(self.found, key=lambda point: -point[0])
        settings = [self.setting(point) for point in points]
        candidate.alphas, candidate.weights = np.array([alpha for alpha, _ in settings]), [weights for _, weights in settings]
        for fold, one in zip(self.folds, zip(*(self.found[point] for point in points), strict=True), strict=True):
            scores, seconds = np.array([each.score for each in one]), np.array([each.seconds for each in one])
            by_task, solutions = np.array([each.by_task for each in one]), [each.solution for each in one]
            candidate.folds.append(FoldResult(scores, by_task, fold.scorer.tasks, seconds, solutions))
        short = [each.solution.certificate for tried in self.found.values() for each in tried]
        short = [certificate for certificate in short if certificate.relative_gap > WORTH_A_WARNING]
        if short:
            worst = max(short, key=lambda certificate: certificate.relative_gap).message
            warn(f"{len(short)} fits of {candidate.structure!r} did not reach tol; the worst: {worst}", ConvergenceWarning)


def shown(weights: dict[str, float]) -> str:
    """Weights by name, in a few digits."""
    return ", ".join(f"{name} {weight:.3g}" for name, weight in weights.items())


def largest_grouping(data: PreparedSum) -> Array:
    """The level of each observation in the grouping with the most levels, over which folds are stratified."""
    grouped = [term.data for term in data.posed if term.data.codes is not None]
    largest = max(grouped, key=lambda each: each.n_levels, default=None)
    return np.zeros(len(data.seen.y), dtype=int) if largest is None else np.asarray(largest.codes)
