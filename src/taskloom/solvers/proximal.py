"""Variable projection without a factor: tasks eliminated exactly, proximal steps on the structure itself.

    min_A h(A) + F(A),   h(A) = min over the tasks,   grad h(A) = -Z1'Z1 / (4 alpha)

``h`` is convex, and smooth also at singular ``A``, so a rank-deficient optimum is no special case. A structure needs only
``value``, ``prox`` and ``conjugate``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._linalg import symmetric
from .._time_limit import check_time
from ..design.shared_inputs import DiagonalInputs
from ..problem import Problem
from ..problem.evidence import Iterate
from ..problem.solution import Start
from ..structures.term_sum import TermSum
from .base import Run, Solver, needs_convex
from .supervised import choose_side
from .supervised.moment_step import MomentFit
from .supervised.sides import Side, Supervised, TaskSide

Array = np.ndarray


@dataclass(frozen=True)
class ProximalTuning:
    """Constants of proximal steps."""

    certificate_interval: int = 16  # proximal steps after which a certificate is computed, whatever the estimate of the gap
    iterative_certificate_interval: int = 4  # the same where the conjugate has no closed form, and so the gap no cheap estimate
    fit_gap_share: float = 1e-6  # how far above their minimum the tasks may stay under the squared loss, as a share of the gap
    newton_gap_share: float = 1e-7  # the same where a fit takes Newton steps
    halvings_before_refining: int = 4  # halvings of a step length after which the tasks are fitted more accurately
    steps_before_iterative_alternation: int = 64  # proximal steps before the first alternating one, if that has no closed form
    iterative_alternation_factor: int = 4  # how much rarer such alternating steps are
    min_trace_share: float = 1e-3  # of the objective; structures with a smaller trace take steps as if they had this one
    certificate_gap_share: float = 0.5  # share of the tolerance at which the estimated gap is worth a certificate
    max_relative_length: float = 1e4  # of the step of one term of a sum, and its inverse the smallest
    relative_rounding: float = 1e-14  # eigenvalues below this share of the largest are set to zero


TUNING = ProximalTuning()


@dataclass(eq=False, repr=False)
class Proximal(Solver):
    """Proximal gradient steps on ``A`` with Barzilai and Borwein's length (SpaRSA), and now and then an alternating step.

    Proximal steps find the rank and are slow where the eigenvalues of ``A`` differ in size by much; alternation, which
    multiplies them, is the other way round. Together they take about half the supervised steps of either.

    Parameters
    ----------
    look_back : int, default=5
        The objective must fall below its largest value over this many past steps.
    alternate : int, default=4
        After how many proximal steps an alternating one follows.
    """

    look_back: int = 5
    alternate: int = 4
    ranges: ClassVar[dict[str, str]] = {"look_back": ">= 1", "alternate": ">= 1"}

    def accepts(self, problem: Problem) -> str | None:
        return None if problem.structure.convex else needs_convex(self.name, problem)

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return _ProximalRun(self, problem, start, tol)


@dataclass(frozen=True, eq=False)
class _Point:
    """A structure, the objective with the tasks eliminated, the gradient of ``h``, and the fit or the dual candidate."""

    A: Array
    value: float
    gradient: Array
    fit: Supervised | MomentFit | None = None
    candidate: tuple[Array, Array] | None = None  # the factors of the dual candidate, without a fit


class TermLengths:
    """Step lengths of the terms of a sum relative to the common one: Barzilai and Borwein's for each, averaged over the steps.

    Terms differ in the size and the curvature of their structures, and one length for all would be that of the shortest.
    """

    def __init__(self, sizes: list[int]):
        self.sizes, self.relative = sizes, np.ones(len(sizes))

    @property
    def of_entries(self) -> Array:
        return np.repeat(self.relative, self.sizes)

    def step(self, problem: Problem, here: _Point, length: float) -> Array:
        return problem.structure.prox(here.A - length * self.of_entries * here.gradient, length * self.relative)  # type: ignore[arg-type]

    def update(self, move: Array, change: Array) -> None:
        """From a step and the change of the gradient; the geometric mean stays."""
        ends = np.cumsum(self.sizes)[:-1]
        squares, curvatures = (
            np.array([float(m @ x) for m, x in zip(np.split(move, ends), np.split(other, ends), strict=True)])
            for other in (move, change)
        )
        seen = (squares > 0) & (curvatures > 0)
        if np.count_nonzero(seen) < 2:
            return
        logs, best = np.log(self.relative[seen]), np.log(squares[seen] / curvatures[seen])
        averaged = (logs - logs.mean() + best - best.mean()) / 2
        limit = np.log(TUNING.max_relative_length)
        self.relative[seen] = np.exp(np.clip(averaged + logs.mean(), -limit, limit))


class OneLength:
    """The step length of a problem with one structure."""

    of_entries = 1.0

    def step(self, problem: Problem, here: _Point, length: float) -> Array:
        return problem.structure.proximal_step(here.A, here.gradient, length)

    def update(self, move: Array, change: Array) -> None:
        pass


class _ProximalRun(Run):
    def __init__(self, settings: Proximal, problem: Problem, start: Start | None, tol: float):
        self.settings, self.problem = settings, problem
        self.side = choose_side(problem)
        self.eliminated = Eliminated.of(problem, self.side)
        self.certificate_interval = TUNING.certificate_interval if self.eliminated or self.side.estimates else 1
        if problem.structure.iterative and not self.side.estimates:
            self.certificate_interval = TUNING.iterative_certificate_interval
        self.exact = TUNING.fit_gap_share if problem.loss.quadratic else TUNING.newton_gap_share
        self.side.tolerance = 1e-4 * problem.scale
        if start is not None:
            W = start[0]
        elif problem.structure.is_singleton(problem.n_tasks):
            W = np.zeros((problem.n_features, problem.n_tasks))  # the structure does not depend on the weights
        else:
            W = self.side.supervise(self.side.plain_root()).W
        root = np.sqrt(problem.alpha) * self.side.moment_root(W)
        length = None if start is None else start.length
        # Directions outside the span of the weights get a share of the squared norm: less along a path, none from the same fit.
        share = 1e-2 if start is None else 1e-5 if length else 0.0
        floor = share * float(np.vdot(root, root)) / self.side.dim
        A = problem.structure.first_structure(root, floor)
        self.here = self._at(A)
        gradient_norm = float(np.linalg.norm(self.here.gradient))
        self.length = length or (float(np.linalg.norm(A)) / gradient_norm if gradient_norm > 0 and np.any(A) else 1.0)
        self.relative = TermLengths(problem.structure.sizes) if isinstance(problem.structure, TermSum) else OneLength()
        self.values = [self.here.value]
        self.first_step = not length  # certify the starting point, except on a path
        self.moves = 0

    def _at(self, A: Array) -> _Point:
        problem = self.problem
        if self.eliminated is not None:
            value, gradient, P, shrunk = self.eliminated.at(A)
            return _Point(A, value + problem.structure.value(A), gradient, candidate=(P, shrunk))
        fit = self.side.supervise(problem.structure.metric(A))
        root = self.side.moment_root(fit.Z - 2 * problem.ridge * fit.W if problem.ridge else fit.Z)
        value = fit.loss_term(problem) + fit.norm + problem.structure.value(A)
        return _Point(A, value, -problem.structure.moments(root) / (4 * problem.alpha), fit)

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = problem
        self.here = self._at(self.here.A)
        self.values = [self.here.value]
        self.finished = None

    def step(self, gap: float | None) -> None:
        if gap is not None and np.isfinite(gap):
            self.side.tolerance = self.exact * gap
        if not self.first_step and not self.problem.structure.known:
            self._move()
            self.moves += 1
            if self._alternation_is_due():
                self._alternate()
        self.first_step = False
        if self.problem.structure.known:
            self.finished = "stalled"

    def point(self) -> Iterate:
        A, fit = self.here.A, self.here.fit or self.side.supervise(self.problem.structure.metric(self.here.A))
        fit = fit.on_rows(self.problem)
        penalty = fit.norm + self.problem.structure.value(A)
        return Iterate(fit.W, fit.b, fit.z, fit.gradients, A if self.side.bounds_near_structure else None, penalty, fit.Z)

    def estimated_gap(self) -> float:
        """With the weights eliminated, an estimate costs less than the weights; else a certificate is at hand."""
        here = self.here
        if self.eliminated is None or here.candidate is None:
            if self.problem.structure.iterative and not self.side.estimates:
                return np.inf  # a bound on the conjugate costs as much as the step
            return 0.0 if here.fit is None else here.fit.gap(self.problem, here.A)
        return self.eliminated.gap(here.A, here.gradient, *here.candidate) / TUNING.certificate_gap_share

    def _alternation_is_due(self) -> bool:
        """Every ``alternate`` steps; less often, and later, if the best structure has no closed form."""
        first, factor = 1, 1
        if self.problem.structure.iterative:
            first, factor = TUNING.steps_before_iterative_alternation, TUNING.iterative_alternation_factor
        return self.moves >= first and self.moves % (factor * self.settings.alternate) == 0

    def _alternate(self) -> None:
        """The best structure for the current weights ``W = ZA / (2 alpha)``, if it lowers the objective."""
        structure, here = self.problem.structure, self.here
        if here.fit is None:
            there = self._at(structure.best_structure(-here.A @ here.gradient @ here.A))
        else:
            root = np.sqrt(self.problem.alpha) * self.side.moment_root(here.fit.W)
            there = self._at(structure.best_of_root(root)[0])
        if there.value < here.value:
            self.here = there
            self.values.append(there.value)

    def _refine(self) -> bool:
        """Fit the tasks more accurately from now on; False if they already are."""
        if self.eliminated is not None or self.exact <= TUNING.newton_gap_share:
            return False
        self.side.tolerance, self.exact = self.side.tolerance * TUNING.newton_gap_share / self.exact, TUNING.newton_gap_share
        self.here = self._at(self.here.A)
        self.values = [self.here.value]
        return True

    def _move(self) -> None:
        here, worst = self.here, max(self.values[-self.settings.look_back :])
        for k in range(60):
            check_time()
            if k == TUNING.halvings_before_refining and self._refine():
                here, worst = self.here, self.here.value
            # A structure close to zero must be able to grow: steps are bounded relative to the objective.
            longest = self.problem.structure.longest_step(here.A, TUNING.min_trace_share * abs(here.value))
            self.length = min(self.length, longest)
            if not self.length > 0:
                self.finished = "stalled"
                return
            move = (A := self.relative.step(self.problem, here, self.length)) - here.A
            there = self._at(A)
            change = there.gradient - here.gradient
            size, curvature = float(np.vdot(move, move / self.relative.of_entries)), float(np.vdot(move, change))
            if there.value <= worst - 1e-4 * size / (2 * self.length):
                break
            # Where rounding hides the decrease, the gradients tell whether the quadratic bound holds along the step.
            if there.value <= worst + 1e-11 * abs(worst) and curvature <= size / self.length:
                break
            self.length /= 2
        else:
            self.finished = "stalled"
            return
        best = size / curvature if curvature > 0 else 2 * self.length
        self.length = min(max(best, 1e-2 * self.length), 1e2 * self.length)
        self.relative.update(move, change)
        self.here = there
        self.values.append(there.value)


class Eliminated:
    """Shared inputs along their eigenvectors, with the weights eliminated: ``h`` as a function of the structure alone.

    With ``y_i`` the rows of the targets in the eigenbasis, ``k_i`` the eigenvalues and no ridge,

        h(A) = sum_i alpha y_i' (k_i A + alpha I)^-1 y_i,     grad h(A) = -Z'Z / (4 alpha),     W = ZA / (2 alpha),

    so a step on the structure needs one product with the targets and one of their Gram matrices. Weights, predictions and dual
    candidates are computed on demand. With ``S = -grad h(A)`` the duality gap is ``F(A) + F*(S) - <A, S>``.
    """

    def __init__(self, problem: Problem, inputs: DiagonalInputs):
        self.problem, self.inputs = problem, inputs
        self.root_c = np.sqrt(inputs.c)

    @staticmethod
    def of(problem: Problem, side: Side) -> Eliminated | None:
        """For a problem in the eigenbasis whose structure is on the tasks; else ``None``."""
        if not isinstance(side, TaskSide) or not isinstance(side.shared, DiagonalInputs):
            return None
        structure = problem.structure
        return None if problem.ridge or structure.known or structure.iterative else Eliminated(problem, side.shared)

    def at(self, A: Array) -> tuple[float, Array, Array, Array]:
        """``h(A)``, its gradient, and the dual candidate ``G' / (2 alpha)`` as a product of two matrices."""
        inputs, alpha = self.inputs, self.problem.alpha
        a, P = np.linalg.eigh(symmetric(self.root_c[:, None] * A * self.root_c))
        a = np.where(a > TUNING.relative_rounding * a[-1], a, 0.0)
        rotated = P.T @ inputs.rows  # T x r: contiguous rows
        shrunk = np.multiply.outer(a, inputs.k)
        shrunk += alpha
        np.divide(rotated, shrunk, out=shrunk)
        value = alpha * float(np.vdot(rotated, shrunk))
        np.multiply(shrunk, inputs.d, out=rotated)
        P *= self.root_c[:, None]
        return value, -alpha * (P @ (rotated @ rotated.T) @ P.T), P, shrunk

    def gap(self, A: Array, gradient: Array, P: Array, shrunk: Array) -> float:
        """The duality gap at ``A``; under a trace penalty that of the projected dual candidate, to second order."""
        structure, S = self.problem.structure, -gradient
        if structure.whitened(S) is not S:
            max_scale, conjugate = structure.ray(S)
            share = min(max_scale, 1.0)
            return abs(structure.value(A) + conjugate(share) - share * float(np.vdot(A, S)))
        s, V = np.linalg.eigh(S)
        complementary = float(np.trace(A)) - float(np.einsum("ij,ij->j", V, A @ V) @ np.minimum(s, 1.0))
        s, V = s[s > 1], V[:, s > 1]
        squared_norm = np.square((V.T @ P) @ shrunk).sum(axis=1) * (1 / self.inputs.c @ V**2)
        return abs(complementary) + self.problem.alpha**2 * float((1 - 1 / np.sqrt(s)) ** 2 @ squared_norm)
