"""Kinds of the second family about the certificate: single precision far from zero, constraints, wrong components."""

from __future__ import annotations

from typing import Any

from . import build, conic, users, values
from .draw import Description
from .fitting import OPTIMAL, REFUSED, STOPPED, TOL, WrongError, check_below, check_predictions, check_words, fit, settled

FEASIBLE = 1e-5  # of a structure's largest entry, or of the bound: how far out a structure that is handed back may be
HELD = 0.1 * TOL  # of the loss of constants: the objective of the model that is held may differ by this from the certified one


def judge_far(about: Description, entry: dict[str, Any]) -> None:
    """The certificate is that of the weights that were handed back, in the precision in which they were."""
    instance = build.build(about)
    model = fit(instance)
    if isinstance(model, str):
        entry |= {"outcome": REFUSED, "detail": model}
        return
    check_predictions(instance, model)
    said, nothing = model.certificate_, values.loss_of_nothing(instance)
    check_words(said)
    settled(entry, said)
    held = values.held_objective(instance, model)
    room = HELD * nothing + 1e-9 * abs(said.primal) + held.rounding_floor
    if abs(held.total - said.primal) > room:
        kind = "false certificate" if held.total > said.primal else "certificate"
        gaps = f"relative gap {said.relative_gap:.1e}, of the model {(held.total - said.dual) / nothing:.1e}"
        raise WrongError(kind, f"primal={said.primal!r}, but the model's is {held.total!r} ({gaps})")


def judge_constraints(about: Description, entry: dict[str, Any]) -> None:
    """The structure is feasible in relative units, and the bracket holds the minimum of the same problem in good units."""
    instance = build.build(about)
    model = fit(instance)
    if isinstance(model, str):
        entry |= {"outcome": REFUSED, "detail": model}
        raise WrongError("refused", model)  # every one of these problems has a solution
    check_predictions(instance, model)
    said, spec, unit = model.certificate_, instance.structure, build.structure_unit(about)
    check_words(said)
    settled(entry, said)
    out = users.violation(model.structure_, spec["what"], spec["bound"])
    if out > FEASIBLE:
        raise WrongError("infeasible", f"{spec['what']}: the structure violates it by {out:.1e} ({said.status})")
    nothing = values.loss_of_nothing(instance)
    own = values.objective(instance, model)
    if own is not None and not abs(own.total - said.primal) <= 0.1 * TOL * nothing + 1e-5 * abs(own.total):
        raise WrongError("false certificate", f"primal={said.primal!r}, but the model's is {own.total!r}")
    truth = conic.minimum(build.build(about | {"scale_x": 0.0, "scale_y": 0.0}))
    if truth is None:
        entry["unjudged"] = True
        return
    _bracket(said, truth * unit, nothing)


def judge_wrong(about: Description, entry: dict[str, Any]) -> None:
    """A wrong component is refused, or the certificate claims nothing, or what it claims is true all the same."""
    instance = build.build(about)
    model = fit(instance)
    if isinstance(model, str):
        entry |= {"outcome": REFUSED, "detail": model}
        return
    said = model.certificate_
    if not said.optimal or "not certified" in said.message:
        entry |= {"outcome": STOPPED, "detail": said.message, "gap": said.relative_gap}
        return
    entry |= {"outcome": OPTIMAL, "detail": "", "gap": said.relative_gap}
    truth = conic.minimum(instance)
    if truth is None:
        entry["unjudged"] = True
        return
    _bracket(said, truth, values.loss_of_nothing(instance))
    own = values.objective(instance, model)
    if own is not None and own.total > said.primal + own.rounding_floor + 0.1 * TOL * values.loss_of_nothing(instance):
        raise WrongError("false certificate", f"primal={said.primal!r}, but the model's is {own.total!r}")


def _bracket(said: Any, truth: float, nothing: float) -> None:
    """The minimum lies between the two bounds, and no further from an optimal one than it claims."""
    room = conic.ACCURACY * (abs(truth) + nothing)
    check_below(said.dual, truth, room, "which CVXPY attains")
    if said.primal < truth - room:
        raise WrongError("false certificate", f"primal {said.primal!r} below CVXPY's minimum {truth!r}")
    if said.optimal and said.primal > truth + TOL * nothing + room:
        raise WrongError("false certificate", f"optimal at {said.primal!r}, CVXPY's minimum is {truth!r}")
