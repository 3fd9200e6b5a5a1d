"""The problems whose solutions are frozen: the zoo's losses and structures in three layouts, by the solvers.

Every case has a key such as ``own/Hinge/Trace/auto``. Components are named by their class (the second one of a class has
``-2`` after it), so that a key does not depend on names or defaults of parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import zoo

from taskloom import Problem, solve

LAYOUTS = ("shared", "own", "missing")
SOLVERS = ("alternating", "block", "proximal", "factored")
ALPHA, TOL, PRECISE, RIDGE, STEPS = 0.03, 1e-6, 1e-9, 0.01, 300


def labels(components: Iterable[Any]) -> dict[str, Any]:
    """Components by the name of their class, numbered from the second one of a class on."""
    found: dict[str, Any] = {}
    for component in components:
        name = type(component).__name__
        count = sum(key.split("-")[0] == name for key in found)
        found[f"{name}-{count + 1}" if count else name] = component
    return found


LOSSES, ROW_LOSSES = labels(zoo.LOSSES), labels(zoo.ROW_LOSSES)
STRUCTURES, SUMS, ON_FEATURES, NON_CONVEX = map(labels, (zoo.STRUCTURES, zoo.SUMS, zoo.ON_FEATURES, zoo.NON_CONVEX))
EVERY_LOSS, EVERY_STRUCTURE = LOSSES | ROW_LOSSES, STRUCTURES | SUMS | ON_FEATURES | NON_CONVEX
FULL_RANK = ("Frobenius", "Clusters", "LogDet", "SharedMean", "Independent", "Schatten-2")  # easy for every solver


@dataclass(frozen=True)
class Case:
    """One problem and how it is solved; ``option`` is empty or one of ``ridge``, ``no intercept`` and ``precise``.

    Of a slow one only the bracket is frozen, not the weights.
    """

    layout: str
    loss: str
    structure: str
    solver: str = "auto"
    option: str = ""
    slow: bool = False

    @property
    def key(self) -> str:
        return "/".join(filter(None, (self.layout, self.loss, self.structure, self.solver, self.option)))

    @property
    def convex(self) -> bool:
        return self.structure not in NON_CONVEX

    @property
    def tol(self) -> float:
        return PRECISE if self.option == "precise" else TOL

    @property
    def ridge(self) -> float:
        return RIDGE if self.option == "ridge" else 0.0

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """``X`` and the wide table ``Y``, NaN where a task was not observed."""
        if self.loss in ROW_LOSSES:
            X, _, Y = zoo.classes()
            return X, Y
        return zoo.data(LOSSES[self.loss], self.layout)

    def solved(self) -> Any:
        """The solution by the taskloom that is imported."""
        loss, structure = EVERY_LOSS[self.loss], EVERY_STRUCTURE[self.structure]
        intercept = self.option != "no intercept"
        problem = Problem(*self.data(), loss=loss, structure=structure, alpha=ALPHA, ridge=self.ridge, fit_intercept=intercept)
        steps = 1000 if self.solver == "auto" else STEPS
        return solve(problem, self.solver, tol=self.tol, max_iter=steps)


def _by_auto() -> Iterator[Case]:
    """All losses x structures x layouts."""
    for structure in STRUCTURES:
        for layout in LAYOUTS:
            for loss in LOSSES:
                yield Case(layout, loss, structure)


def _by_named_solvers() -> Iterator[Case]:
    """A few pairs in every layout; slow: all pairs in one layout, but for the sum whose every step is a long search."""
    for solver in SOLVERS:
        some = ("Trace", "Frobenius", "Schatten" if solver == "factored" else "Clusters", "LogDet")
        pairs = [(loss, structure) for loss in ("Squared", "Logistic") for structure in some]
        for layout in LAYOUTS:
            yield from (Case(layout, *pair, solver) for pair in pairs)
        rest = [(loss, structure) for loss in LOSSES for structure in STRUCTURES if structure != "Sum"]
        yield from (Case("missing", *pair, solver, slow=True) for pair in rest if pair not in pairs)


def _sums_and_features() -> Iterator[Case]:
    for structure in (*SUMS, *ON_FEATURES):
        for layout in LAYOUTS:
            for loss in LOSSES:
                yield Case(layout, loss, structure, slow=loss not in ("Squared", "Logistic", "Absolute"))


def _losses_of_rows() -> Iterator[Case]:
    for loss in ROW_LOSSES:
        for structure in (*STRUCTURES, *ON_FEATURES):
            yield Case("shared", loss, structure, slow=structure not in (*FULL_RANK, "Trace", "FeatureSelection"))


def _not_convex() -> Iterator[Case]:
    """Smooth losses: with kinks there is no stationary point to arrive at, only a place to give up."""
    for structure in NON_CONVEX:
        for layout in LAYOUTS:
            for loss in ("Squared", "Logistic", "Huber", "SquaredHinge", "CustomLoss"):
                yield Case(layout, loss, structure, slow=loss not in ("Squared", "Logistic"))


def _with_options() -> Iterator[Case]:
    for option in ("ridge", "no intercept"):
        for layout in LAYOUTS:
            for loss in ("Squared", "Logistic", "Hinge"):
                for structure in ("Trace", "Frobenius", "SharedMean", "Clusters"):
                    yield Case(layout, loss, structure, option=option)
    for layout in LAYOUTS:
        for structure in (*FULL_RANK, "Trace"):
            yield Case(layout, "Squared", structure, option="precise")


def every_case() -> list[Case]:
    parts = (_by_auto, _by_named_solvers, _sums_and_features, _losses_of_rows, _not_convex, _with_options)
    return [case for part in parts for case in part()]
