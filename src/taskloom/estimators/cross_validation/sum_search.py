"""Alpha and the weights of terms, chosen together: every setting is scored on all folds before the next one is tried.

With known structures, and with learned ones whose penalty is homogeneous, ``alpha`` over a weight is all that counts. So one
weight stays as it is, and the search is over alpha and the others.
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
from sklearn.utils.parallel import Parallel, delayed

from ..._component import warn
from ...design.term_inputs import Scale, scaled_rows
from ...problem.solution import Solution, Start
from ...solvers import solve
from ...structures.term_stack import TermStack, stacked
from ..fitted import with_state
from ..terms.fit_sum import prepared_sum
from ..terms.prepared_sum import PreparedSum
from .compass_search import CompassSearch, Point, rounded
from .folds_fit import WORTH_A_WARNING, CVData, FoldScorer
from .results import Candidate, FoldResult, slim
from .splitters import Split

Array = np.ndarray
MOST_SETTINGS = 8  # for each value of alpha that was asked for


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
class Scored:
    """One setting in one fold."""

    score: float
    by_task: Array
    seconds: float
    solution: Solution  # without weights
    parts: list[Array]  # the weights of each term in the units of its data, for a warm start

    @classmethod
    def of(cls, fold: SumFold, alpha: float, weights: dict[str, float], near: Scored | None) -> Scored:
        """From the fit of a similar setting, where a structure is to be learned."""
        began = time.perf_counter()
        model, data = fold.data.model, fold.data.with_weights(weights)
        problem, scales = data.problem(alpha), [one.scale for one in data.posed]
        stack: TermStack = problem.structure  # type: ignore[assignment]
        learned = stack.convex and not stack.known
        start = near.start(scales) if learned and near is not None else None
        limits = {name: getattr(model, name) for name in ("tol", "max_iter", "time_limit")}
        solution = solve(problem, model.solver, start=start, **limits)
        if solution.certificate.status == "interrupted":
            raise KeyboardInterrupt
        score, by_task = fold.scorer(data.values(problem, solution, fold.rows))
        parts = stack.features_of(solution.W) if learned else []
        parts = [scaled_rows(part, scale) for part, scale in zip(parts, scales, strict=bool(parts))]
        slimmed = replace(slim(solution), structure=np.zeros(0), terms=None)
        return cls(score, by_task, time.perf_counter() - began, slimmed, parts)

    def start(self, scales: list[Scale]) -> Start:
        """The same functions as a warm start under other weights."""
        W = [scaled_rows(part, 1 / scale) for part, scale in zip(self.parts, scales, strict=True)]
        return Start(stacked(W), self.solution.b, self.solution.length)


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
        self.compass = CompassSearch(self._scores, MOST_SETTINGS * n_alphas)
        self.found: dict[Point, list[Scored]] = {}
        self.nearby: dict[Point, list[Scored]] = {}  # the best setting and the last one, with their weights

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
            self.compass.try_points([(self._first_alpha(), *origin)])
            self.compass.run([0])  # alpha first: it is what most depends on
            self.compass.run([0, *axes] if self.names else [])
            return
        self.compass.try_points([(alpha, *origin) for alpha in self.alphas])
        if self.names:  # weights at the best alpha, then every alpha at the best weights
            self.compass.budget -= len(self.alphas)
            self.compass.run(axes)
            self.compass.budget += len(self.alphas)
            self.compass.try_points([(alpha, *self.compass.best[1:]) for alpha in self.alphas])

    def _first_alpha(self) -> float:
        """Where the penalty is of the size of the curvature of a squared loss, for the term with the most weights."""
        data = self.candidate.data
        assert data is not None
        sizes = [0 if term.data.free else term.data.r * term.data.p for term in data.posed]
        term = data.posed[int(np.argmax(sizes))]
        squares = float(data.seen.weight @ np.einsum("ij,ij->i", term.data.phi, term.data.phi))
        side = 1.0 if term.data.descriptors is None else float(np.mean(term.data.descriptors**2)) * term.data.p
        return float(np.log10(max(squares * side / max(sizes), 1e-300)))

    def setting(self, point: Point) -> tuple[float, dict[str, float]]:
        """Alpha and the weights of a point."""
        searched = {name: self.start[name] * 10.0**log for name, log in zip(self.names, point[1:], strict=True)}
        return 10.0 ** point[0], self.start | searched

    def _scores(self, points: Sequence[Point]) -> list[float]:
        """Mean scores over the folds."""
        means = []
        for point in points:
            alpha, weights = self.setting(point)
            run, near = Parallel(n_jobs=self.n_jobs, prefer="threads"), self._nearest(point)
            each = zip(self.folds, near, strict=True)
            scored = list(run(delayed(Scored.of)(fold, alpha, weights, last) for fold, last in each))
            means.append(self._keep_near(rounded(point), scored))
            self.after_setting()
            if self.verbose:
                sys.stdout.write(f"setting {len(self.found)}: alpha {alpha:.3g}, weights {shown(weights)}: {means[-1]:.4g}\n")
        return means

    def _nearest(self, point: Point) -> Sequence[Scored | None]:
        """The fits of the folds from which to start."""
        if not self.nearby:
            return [None] * len(self.folds)
        return self.nearby[min(self.nearby, key=lambda other: float(np.linalg.norm(np.subtract(other, point))))]

    def _keep_near(self, point: Point, scored: list[Scored]) -> float:
        """The mean score; weights are kept of the best setting and of this one."""
        self.found[point] = [replace(one, parts=[]) for one in scored]
        self.nearby[point] = scored
        means = {other: float(np.mean([one.score for one in fits])) for other, fits in self.nearby.items()}
        best = max(means, key=lambda other: np.nan_to_num(means[other], nan=-np.inf))
        self.nearby = {other: fits for other, fits in self.nearby.items() if other in (best, point)}
        return means[point]

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
