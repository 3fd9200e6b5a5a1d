"""Fits through the public estimators, and what every fit must satisfy, whatever was drawn."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import values
from .build import Instance
from .draw import SOLVERS

TOL = 1e-4  # the default of the estimators
OPTIMAL, STOPPED, REFUSED, TOO_SLOW = "optimal", "stopped, says why", "refused, one sentence", "too slow"
GOOD = (OPTIMAL, STOPPED, REFUSED, TOO_SLOW)
# Where a refusal may be raised: a sentence from deep inside NumPy is not one that was meant for a user.
OUR_DOORS = ("taskloom", "sklearn/utils", "sklearn/base.py")


class TooSlow(BaseException):
    """The CPU seconds of an instance are spent."""


class WrongError(Exception):
    """A failure: its kind, and what was seen."""

    def __init__(self, kind: str, detail: str):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


@contextmanager
def limited(cpu_seconds: float) -> Iterator[None]:
    """Raise ``TooSlow`` after so many CPU seconds of this process; no limit where the platform has no such clock."""

    def ring(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fit(instance: Instance, **settings: Any) -> Any:
    """A fitted model, or the sentence with which it was refused."""
    return attempt(lambda: instance.fit(**settings))


def attempt(make: Callable[[], Any]) -> Any:
    """What it makes, or the sentence with which it was refused; anything else that is raised is a crash."""
    try:
        return make()
    except (TooSlow, KeyboardInterrupt):
        raise
    except Exception as error:
        words = str(error).strip()
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = Path(where.filename).as_posix()
        meant = type(error) in (ValueError, TypeError, NotImplementedError) and any(door in place for door in OUR_DOORS)
        if meant and words and len(words) <= 600:
            return words
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "taskloom/" in Path(frame.filename).as_posix()]
        at = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
        raise WrongError(f"crash {type(error).__name__}", f"{words[:200]}{at}") from error


def check_predictions(instance: Instance, model: Any) -> None:
    found = (
        model.decision_function(instance.inputs()) if hasattr(model, "decision_function") else model.predict(instance.inputs())
    )
    if not np.isfinite(found).all():
        raise WrongError("predictions", f"{int((~np.isfinite(found)).sum())} of {found.size} are not finite")
    for name in ("intercept_", "coef_", "structure_"):
        held = getattr(model, name, None)
        if isinstance(held, np.ndarray) and not np.isfinite(held).all():
            raise WrongError("predictions", f"{name} is not finite")


def check_words(said: Any, convex: bool = True) -> None:
    """The certificate agrees with itself."""
    if not np.isfinite(said.primal):
        raise WrongError("certificate", f"primal={said.primal}")
    if convex and not abs(said.gap - (said.primal - said.dual)) <= 1e-9 * (abs(said.primal) + abs(said.dual) + said.gap):
        if np.isfinite(said.dual) and said.dual > said.primal + 1e-9 * (abs(said.primal) + abs(said.dual)):
            raise WrongError("false certificate", f"dual {said.dual!r} above primal {said.primal!r}")
        if np.isfinite(said.dual):
            raise WrongError("certificate", f"gap={said.gap!r}, primal={said.primal!r}, dual={said.dual!r}")
    if said.optimal and not said.relative_gap <= TOL:
        raise WrongError("certificate", f"optimal with relative_gap={said.relative_gap!r}")
    if not said.message.strip():
        raise WrongError("certificate", f"status {said.status} without a sentence")


def check_claims(instance: Instance, model: Any, convex: bool) -> None:
    """The certificate agrees with itself, and its primal value is that of the model."""
    said = model.certificate_
    check_words(said, convex)
    own = values.objective(instance, model)
    nothing = values.loss_of_nothing(instance)
    if own is not None:
        slack = own.rounding_floor + 1e-7 * (abs(said.primal) + abs(own.total)) + 0.02 * TOL * nothing
        if model.intercept_.dtype == np.float32:
            slack += 1e-4 * (abs(said.primal) + nothing)
        if not abs(own.total - said.primal) <= slack:
            kind = "false certificate" if own.total > said.primal else "certificate"
            raise WrongError(
                kind, f"primal={said.primal!r}, but the model's is {own.total!r} (rounding {own.rounding_floor:.1e})"
            )
    far = 1e-6 * nothing + 1e-10 * (abs(said.primal) + abs(said.dual)) + values.rounding_of_the_targets(instance)
    if convex and np.isfinite(said.gap) and said.gap > far:
        ratio = said.relative_gap * nothing / said.gap
        if not 0.99 <= ratio <= 1.01:
            raise WrongError(
                "certificate", f"relative_gap={said.relative_gap!r}, gap={said.gap!r}, loss of nothing {nothing!r}"
            )


def solver_of(message: str) -> str:
    """The solver that a certificate names, whoever picked it."""
    return next((name for name in SOLVERS if f"solver {name.capitalize()}(" in message), "")


def check_below(lower: float, upper: float, slack: float, what: str) -> None:
    if np.isfinite(lower) and np.isfinite(upper) and lower > upper + slack:
        raise WrongError("false certificate", f"dual {lower!r} above {upper!r}, {what}")


def settled(entry: dict[str, Any], certificate: Any) -> None:
    """Write the outcome of a fit that was right so far; what follows may run out of time, or find it wrong."""
    entry |= {
        "outcome": OPTIMAL if certificate.converged else STOPPED,
        "detail": "" if certificate.converged else certificate.message,
        "gap": certificate.relative_gap,
        "ran": solver_of(certificate.message),
    }
