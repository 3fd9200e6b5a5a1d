"""Whether the components that a user wrote contradict themselves at the fitted point.

A bound is as true as the conjugates behind it, and these are as true as the methods they were computed from. The library's own
components are tested by laws; a user's are tried here, once, where a certificate is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..losses import Loss, RowLoss
from ..losses import fenchel_young as of_losses
from ..losses.mixed import Mixed
from ..structures import Structure
from ..structures import fenchel_young as of_structures
from ..structures.term_sum import TermSum

if TYPE_CHECKING:
    from .evidence import DualPoint, Iterate
    from .problem import Problem

Array = np.ndarray

MAX_SIZE = 500  # of structures: beyond that a user's methods would be tried for longer than a fit takes
GRADIENT = "{name}.gradient is not the derivative of {name}.value at the fitted point"
PROX = "{name}.prox does not minimise step * value(y, u) + (u - z)^2 / 2 around the fitted point"
CONJUGATE = "the conjugate of {name} is too small at the fitted point, or its value is not convex"
DOMAIN = "the conjugate of {name} is finite outside of the gradients of {name}.value: gradient_bounds is too wide"
STRUCTURE_PROX = "{name}.prox does not minimise step * value(B) + ||B - A||^2 / 2 over positive semidefinite B"
STRUCTURE_CONJUGATE = "the conjugate of {name} is too small at the fitted structure, or its value is not convex"


def component_error(problem: Problem, point: Iterate, dual: DualPoint | None, room: float) -> str:
    """The first contradiction between methods of a user's component that changes the objective by more than ``room``.

    Parameters
    ----------
    point : Iterate
        The best point of a fit.
    dual : DualPoint or None
        The dual candidate behind its bound.
    room : float
        The error of the bound that is within rounding and tolerance.

    Returns
    -------
    str
        A sentence without a full stop; empty if nothing was found.
    """
    found: Iterator[str] = iter(())
    with np.errstate(all="ignore"):
        if problem.loss.user_written and not isinstance(problem.loss, RowLoss):
            found = _loss_errors(problem, point, dual, room)
        error = next(found, "")
        if not error and dual is not None and problem.structure.user_written and problem.structure.convex:
            error = next(_structure_errors(problem, point, dual, room), "")
    return error


def _name(component: Any) -> str:
    """The name of the class that the user wrote."""
    return type(getattr(component, "loss", getattr(component, "penalty", component))).__name__


def _loss_errors(problem: Problem, point: Iterate, dual: DualPoint | None, room: float) -> Iterator[str]:
    obs = problem.observations
    bounded = dual is not None and problem.structure.convex
    s = -dual.scale * dual.G / obs.weight if bounded and dual is not None else point.gradients
    pieces: Any = problem.loss.pieces if isinstance(problem.loss, Mixed) else [((np.arange(obs.y.size),), problem.loss)]
    for (indices,), loss in pieces:
        if loss.user_written:
            which = of_losses.sample(obs.y[indices])
            chosen, v = indices[which], obs.weight[indices]
            weight = v[which] * (v.sum() / v[which].sum())
            yield from _errors_of_loss(loss.pick(which), obs.y[chosen], point.z[chosen], s[chosen], weight, room, bounded)


def _errors_of_loss(loss: Loss, y: Array, z: Array, s: Array, weight: Array, room: float, bounded: bool) -> Iterator[str]:
    name, length = _name(loss), of_losses.typical_length(loss, y, z, s)
    if loss.smooth:
        if weight @ of_losses.gradient_excess(loss, y, z, length) > room:
            yield GRADIENT.format(name=name)
    elif weight @ of_losses.prox_excess(loss, y, z, s, length) > room:
        yield PROX.format(name=name)
    if bounded and weight @ of_losses.conjugate_excess(loss, y, s, z, length) > room:
        yield CONJUGATE.format(name=name)
    if bounded and not loss.proof and weight @ of_losses.domain_excess(loss, y, z, s, length) > room:
        yield DOMAIN.format(name=name)


def _structure_errors(problem: Problem, point: Iterate, dual: DualPoint, room: float) -> Iterator[str]:
    held, W = point.structure(problem), np.zeros(()) if dual.iterate is None else dual.iterate.W
    root = problem.seen_by_structure(dual.scale * (dual.Z - 2 * problem.ridge * W)) / (2 * np.sqrt(problem.alpha))
    if not isinstance(held, np.ndarray) or max(held.shape) > MAX_SIZE:
        return
    for structure, part, A in _parts(problem.structure, root, held):
        S = part.T @ part
        if not np.any(S):
            continue
        size = max(float(np.trace(A)), problem.scale / float(np.trace(S)))  # of structures that the objective can pay for
        for weight, member in structure.summands:
            if member.user_written and not member.known:
                if weight * of_structures.prox_excess(member, S / weight, A, size) > room:
                    yield STRUCTURE_PROX.format(name=_name(member))
                if weight * of_structures.conjugate_excess(member, S / weight, A, size) > room:
                    yield STRUCTURE_CONJUGATE.format(name=_name(member))


def _parts(structure: Structure, root: Array, A: Array) -> list[tuple[Structure, Array, Array]]:
    """The structures of all terms, each with its root and its variable; only matrices are tried."""
    if not isinstance(structure, TermSum):
        return [(structure, root, A)]
    pairs = zip(structure.by_root(root), structure.split(A), strict=True)
    return [(F, part, a) for (F, part), a in pairs if F.user_written]
