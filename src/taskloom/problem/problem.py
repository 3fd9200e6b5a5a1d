"""The problem as a value: it evaluates itself, its dual and its gap (docs/notation.md has the letters).

J(W, b, A) = sum_i v_i loss(y_i, <phi_i, w_t> + b_t) + alpha tr(A^+ W'W) + ridge ||W||^2 + F(A)
D(G)       = - sum_i v_i loss*(y_i, -G_i / v_i) - F*(Z1'Z1 / (4 alpha)) - ||Z2||^2 / (4 ridge) <= min J
             with Z1 + Z2 = Phi'G, and the G of each task adding up to 0 when there is an intercept
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from .._component import is_number
from ..design import Design, Inputs, Observations
from ..design.observations import Value
from ..features.kernels import Matrix
from ..losses import Loss, as_loss
from ..structures import Structure, as_structure
from ..structures.base import Ray
from ..structures.factored_matrix import returned
from . import evidence as certify
from .component_errors import component_error
from .model import Model, Targets

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Problem(Value):
    """A convex problem as an immutable value: everything a solver may look at.

    It is made of layers, each a value that holds the one below: a ``Design`` (features, observations and their decompositions),
    ``Targets`` (a design and a loss), a ``Model`` (targets and a structure), and the strengths. Problems that differ in a layer
    share the layers below, and what was computed from them.

    Parameters
    ----------
    features : array or sparse matrix of shape (n, r)
        ``Phi``, with ``K = Phi Phi'``; ``X`` itself for a linear kernel. Sparse features are kept by rows and never made dense.
    observations : Observations, or array of shape (n, T)
        What was seen; an array is ``Y`` with NaN where a task was not observed.
    loss : Loss or str, default="squared"
        A loss or its name.
    structure : Structure or str, default=None
        A structure or its name; ``None`` is ``Trace()``.
    alpha : float, default=0.01
        Regularisation strength of the structured norm, positive.
    ridge : float, default=0.0
        Strength of the ridge penalty ``||W||^2``.
    fit_intercept : bool, default=True
        Whether every task has an unpenalised intercept.

    Attributes
    ----------
    model : Model
        Targets and a structure: the layers below the strengths.
    targets : Targets
        The design and the loss.
    design : Design
        Features, observations and what is computed from them.
    inputs : Inputs
        Layouts of the features by task, and the passes over them.
    n_rows, n_features, n_tasks : int
        ``n``, ``r`` and ``T``.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import Problem, solve
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> problem = Problem(X, X[:, :3] + 1.0, structure="frobenius", alpha=0.1)
    >>> solve(problem).certificate.optimal
    True
    >>> problem.at(0.2).design is problem.design  # what was computed from the data is shared
    True
    """

    features: Matrix
    observations: Observations
    loss: Loss
    structure: Structure
    alpha: float
    ridge: float
    fit_intercept: bool
    model: Model = field(init=False)
    targets: Targets = field(init=False)
    design: Design = field(init=False)
    inputs: Inputs = field(init=False)
    n_rows: int = field(init=False)
    n_features: int = field(init=False)
    n_tasks: int = field(init=False)

    def __init__(
        self,
        features: Matrix,
        observations: Observations | ArrayLike,
        loss: Loss | str = "squared",
        structure: Structure | str | None = None,
        alpha: float = 0.01,
        ridge: float = 0.0,
        fit_intercept: bool = True,
    ) -> None:
        obs = observations if isinstance(observations, Observations) else Observations.from_wide(np.asarray(observations))
        design = Design.build(features, obs, fit_intercept)
        self._hold(Model(Targets(design, as_loss(loss).fresh()), as_structure(structure)), alpha, ridge)

    def _hold(self, model: Model, alpha: float, ridge: float) -> None:
        """Check the strengths, and show what the layers hold as fields; the dataclass is frozen."""
        if not (is_number(alpha) and alpha > 0):
            raise ValueError(f"alpha must be a positive finite number, got alpha={alpha!r}")
        if not (is_number(ridge) and ridge >= 0):
            raise ValueError(f"ridge must be a finite number >= 0, got ridge={ridge!r}")
        targets, design = model.targets, model.targets.design
        self.__dict__.update(
            features=design.features,
            observations=design.observations,
            loss=targets.loss,
            structure=model.structure,
            alpha=float(alpha),
            ridge=float(ridge),
            fit_intercept=design.fit_intercept,
            model=model,
            targets=targets,
            design=design,
            inputs=design.inputs,
            n_rows=design.n_rows,
            n_features=design.n_features,
            n_tasks=design.n_tasks,
        )

    @classmethod
    def of(cls, model: Model, alpha: float, ridge: float = 0.0) -> Problem:
        """The problem of a model at a strength.

        Parameters
        ----------
        model : Model
            Targets and a structure.
        alpha : float
            Regularisation strength.
        ridge : float, default=0.0
            Strength of the ridge penalty.

        Returns
        -------
        Problem
            The problem; it holds the model.
        """
        problem = object.__new__(cls)
        problem._hold(model, alpha, ridge)
        return problem

    def __repr__(self) -> str:
        shape = f"{self.n_rows} rows, {self.n_features} features, {self.n_tasks} tasks"
        return f"Problem({shape}, {self.loss!r}, {self.structure!r}, alpha={self.alpha:g}, ridge={self.ridge:g})"

    # --- the layers, and problems that share them ---------------------------------------------------------------

    terms = property(
        attrgetter("model.terms"),
        doc="The terms of the predictor: one, unless the structure splits the weights or there are several kernels.",
    )

    def at(self, alpha: float) -> Problem:
        """The same problem at another strength.

        Parameters
        ----------
        alpha : float
            Regularisation strength.

        Returns
        -------
        Problem
            With the same model.
        """
        return Problem.of(self.model, alpha, self.ridge)

    def with_structure(self, structure: Structure) -> Problem:
        """The same data and loss under another structure.

        Parameters
        ----------
        structure : Structure
            The other structure.

        Returns
        -------
        Problem
            With the same targets.
        """
        return self if structure is self.structure else Problem.of(Model(self.targets, structure), self.alpha, self.ridge)

    def with_targets(self, targets: Targets) -> Problem:
        """Other targets under the same structure.

        Parameters
        ----------
        targets : Targets
            A design and a loss.

        Returns
        -------
        Problem
            With the same structure and strengths.
        """
        return self if targets is self.targets else Problem.of(Model(targets, self.structure), self.alpha, self.ridge)

    def with_loss(self, loss: Loss) -> Problem:
        """The same data under another loss.

        Parameters
        ----------
        loss : Loss
            The other loss.

        Returns
        -------
        Problem
            With the same design.
        """
        return self.with_targets(replace(self.targets, loss=loss, original=None))

    def with_features(self, features: Matrix) -> Problem:
        """The same observations of other features of the same rows.

        Parameters
        ----------
        features : array or sparse matrix of shape (n, r)
            The other features.

        Returns
        -------
        Problem
            With the same observations.
        """
        return self.with_targets(self.targets.with_features(features))

    def stacked(self) -> Problem:
        """Where several terms share their columns: the same problem with features and weights for each term.

        Returns
        -------
        Problem
            The problem itself, where its terms share no columns.
        """
        return self if self.model.stacked is None else Problem.of(self.model.stacked, self.alpha, self.ridge)

    # --- primal -------------------------------------------------------------------------------------------------

    def predict(self, W: Array, b: Array) -> Array:
        """Predict every observation.

        Parameters
        ----------
        W : ndarray of shape (r, T)
            Weights.
        b : ndarray of shape (T,)
            Intercepts.

        Returns
        -------
        ndarray of shape (n_observations,)
            ``z``, in the order of ``observations``.
        """
        return self.inputs.predict(W, b)

    def loss_term(self, z: Array) -> float:
        """The loss term of the objective, ``sum_i v_i loss(y_i, z_i)``.

        Parameters
        ----------
        z : ndarray of shape (n_observations,)
            Predictions.

        Returns
        -------
        float
            The weighted sum of the losses.
        """
        return self.targets.loss_term(z)

    def seen_by_structure(self, W: Array) -> Array:
        """``R`` with ``R'R`` what the structure sees: ``W'W``, or ``WW'`` if it sits on the features.

        Parameters
        ----------
        W : ndarray of shape (r, T)
            Weights.

        Returns
        -------
        ndarray
            ``W`` or its transpose.
        """
        return W.T if self.structure.on_features else W

    def primal(self, W: Array, b: Array, A: Array) -> float:
        """The objective ``J(W, b, A)`` from its definition.

        Parameters
        ----------
        W : ndarray of shape (r, T)
            Weights.
        b : ndarray of shape (T,)
            Intercepts.
        A : ndarray
            The structure, ``T x T`` (``r x r`` where it sits on the features).

        Returns
        -------
        float
            The objective; ``inf`` where ``W`` leaves the range of ``A``.
        """
        norm = self.alpha * self.structure.squared_norm(self.seen_by_structure(W), A) + self.ridge * float(np.vdot(W, W))
        return self.loss_term(self.predict(W, b)) + norm + self.structure.value(A)

    def best_primal(self, W: Array, b: Array) -> tuple[float, Array]:
        """``min_A J(W, b, A)`` and the structure that attains it.

        Parameters
        ----------
        W : ndarray of shape (r, T)
            Weights.
        b : ndarray of shape (T,)
            Intercepts.

        Returns
        -------
        tuple of (float, structure)
            The objective and ``A``.
        """
        penalty, A = self.best_penalty(W)
        return self.loss_term(self.predict(W, b)) + penalty, returned(A)

    def best_penalty(self, W: Array) -> tuple[float, Any]:
        """``min_A alpha tr(A^+ W'W) + ridge ||W||^2 + F(A)`` and the structure that attains it.

        Parameters
        ----------
        W : ndarray of shape (r, T)
            Weights.

        Returns
        -------
        tuple of (float, structure)
            The penalty and ``A``.
        """
        A, penalty = self.structure.final_structure(np.sqrt(self.alpha) * self.seen_by_structure(W))
        return penalty + self.ridge * float(np.vdot(W, W)), A

    # --- dual ---------------------------------------------------------------------------------------------------

    def correlate(self, G: Array) -> Array:
        """``Z = Phi'G``: column ``t`` adds up over the observations of task ``t``.

        Parameters
        ----------
        G : ndarray of shape (n_observations,)
            One number for each observation.

        Returns
        -------
        ndarray of shape (r, T)
            ``Z``.
        """
        return self.inputs.correlate(G)

    def dual_candidate(self, gradients: Array) -> Array:
        """``G = -v s`` from gradients of the loss, moved until the conjugate is finite and intercepts are balanced.

        Parameters
        ----------
        gradients : ndarray of shape (n_observations,)
            Gradients ``s`` of the loss, near which a candidate is wanted.

        Returns
        -------
        ndarray of shape (n_observations,)
            A dual candidate.
        """
        return self.targets.dual_candidate(gradients)

    def dual(self, G: Array, W: Array | None = None, near: Array | None = None, Z: Array | None = None) -> float:
        """The best ``D(c G)`` over ``0 <= c <= 1``: a lower bound on the minimum of ``J``.

        Parameters
        ----------
        G : ndarray of shape (n_observations,)
            A dual candidate.
        W : ndarray of shape (r, T), default=None
            The primal guess that says how a ridge splits ``Z``.
        near : ndarray, default=None
            The structure that goes with ``W``, near which a numerical conjugate is bounded.
        Z : ndarray of shape (r, T), default=None
            ``Phi'G``, where it is known.

        Returns
        -------
        float
            A lower bound on the minimum.
        """
        return self.best_on_line(G, W, near, self.correlate(G) if Z is None else Z)[0]

    def best_on_line(
        self, G: Array, W: Array | None, near: Array | None, Z: Array, origin: Array | float = 0.0
    ) -> tuple[float, float]:
        """The best ``D(origin + c (G - origin))`` over ``0 <= c <= 1``, and ``c``.

        Parameters
        ----------
        G : ndarray of shape (n_observations,)
            A dual candidate.
        W : ndarray of shape (r, T) or None
            The primal guess that says how a ridge splits ``Z``.
        near : ndarray or None
            The structure that goes with ``W``, near which a numerical conjugate is bounded.
        Z : ndarray of shape (r, T)
            ``Phi'(G - origin)``.
        origin : ndarray of shape (n_observations,), default=0
            A dual candidate with ``Phi'origin = 0``.

        Returns
        -------
        tuple of float
            The bound, and where on the line it is attained.
        """
        ridge_part = 0.0
        if self.ridge > 0 and W is not None:
            Z2 = 2 * self.ridge * W
            ridge_part = float(np.vdot(Z2, Z2)) / (4 * self.ridge)
            Z = Z - Z2
        feature_side = self.structure.on_features or (self.structure.either_side and self.n_features < self.n_tasks)
        root = (Z.T if feature_side else Z) / (2 * np.sqrt(self.alpha))
        max_scale, conjugate = self.structure.ray_of_root(root, None if feature_side else near)
        obs = self.observations
        if self.loss.quadratic and isinstance(origin, float) and origin == 0:
            return best_multiple(float(G @ obs.y), float(G @ (G / obs.weight)) / 4 + ridge_part, Ray(max_scale, conjugate))
        first, gradients = -origin / obs.weight, -(G - origin) / obs.weight

        def bound(c: float) -> float:
            conjugate_term = float(obs.weight @ self.loss.conjugate(obs.y, first + c * gradients))
            return -conjugate_term - conjugate(c * c) - c * c * ridge_part

        return best_scale(bound, max_scale)

    evidence = certify.evidence
    evidence_of_constants = certify.evidence_of_constants
    settled = certify.settled
    excess = certify.excess
    component_error = component_error

    # --- the gap, relative to the intercept-only model ----------------------------------------------------------

    best_constants = property(attrgetter("targets.best_constants"), doc=Targets.best_constants.__doc__)
    scale = property(attrgetter("targets.scale"), doc=Targets.scale.__doc__)
    rounding_floor = property(attrgetter("targets.rounding_floor"), doc=Targets.rounding_floor.__doc__)
    notes: ClassVar[tuple[str, ...]] = ()  # remarks for the message of a certificate, from engines elsewhere

    def relative(self, gap: float, size: float = 0.0) -> float:
        """A gap relative to the intercept-only model; 0 where both are 0 up to rounding.

        Parameters
        ----------
        gap : float
            A duality gap.
        size : float, default=0.0
            The size of the numbers whose difference the gap is, for its rounding.

        Returns
        -------
        float
            ``gap / scale``.
        """
        return relative_gap(gap, size, self.scale, self.rounding_floor)


def relative_gap(gap: float, size: float, scale: float, rounding_floor: float) -> float:
    """A gap over the loss of the intercept-only model, on every engine; 0 where both are 0 up to rounding."""
    if gap <= 0:
        return 0.0
    size = size if np.isfinite(size) else 0.0
    if scale <= rounding_floor and gap <= max(rounding_floor, 1e-12 * size):
        return 0.0
    return gap / scale if scale > 0 else np.inf


def scaled_bound(gain: float, cost: float, ray: Ray) -> float:
    """The best ``D(c G)`` under the squared loss, from ``sum G y``, ``sum G^2 / (4 v)`` (and a ridge), and ``c -> F*(c S)``."""
    return best_multiple(gain, cost, ray)[0]


def best_multiple(gain: float, cost: float, ray: Ray) -> tuple[float, float]:
    """The same, and ``c``."""
    return best_scale(lambda c: c * gain - c * c * cost - ray.conjugate(c * c), ray.max_scale)


def best_scale(bound: Callable[[float], float], max_scale: float) -> tuple[float, float]:
    """The maximum of the concave ``bound(c)`` over ``0 <= c <= 1`` with ``c^2 <= max_scale``, and where it is attained."""
    top, nudge = min(1.0, float(np.sqrt(max_scale))), 1e-15
    while not np.isfinite(best := bound(top)) and top > 1e-300:  # rounding at the boundary of the domain
        top, nudge = top * (1 - nudge), min(2 * nudge, 0.5)
    if bound(top * (1 - 1e-4)) > best:
        inner = minimize_scalar(lambda c: -bound(c), bounds=(0.0, top), method="bounded", options={"xatol": 1e-12 * top})
        if -inner.fun > best:
            return float(-inner.fun), float(inner.x)
    return best, top
