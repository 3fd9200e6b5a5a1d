"""Fit an instance through the public estimators, and judge what comes back."""

from __future__ import annotations

import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from . import bounds, values
from . import build as building
from .build import Instance
from .draw import NOT_CONVEX, SOLVERS, Description

TOL = 1e-4  # the default of the estimators
COMPARING = 4.0  # CPU seconds after which an instance is not told in yet other words
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


def check(about: Description, limit: float = 20.0) -> dict[str, Any]:
    """The entry of the ledger for one description: ``outcome`` is one of ``GOOD``, or ``FAILURE(kind)``."""
    began = time.process_time()
    entry: dict[str, Any] = {"k": about["k"], "seed": about["seed"], "loss": about["loss"], "structure": about["structure"]}
    try:
        with limited(limit), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", message=".*Solution may be inaccurate.*")
            _judge(about, entry)
    except TooSlow:
        if "outcome" in entry:  # the fit itself was judged; what went on was a comparison
            entry["unfinished"] = True
        else:
            entry |= {"outcome": TOO_SLOW, "detail": f"{limit:g} CPU seconds"}
    except WrongError as wrong:
        entry |= {"outcome": f"FAILURE({wrong.kind})", "detail": wrong.detail}
    return entry | {"seconds": round(time.process_time() - began, 3)}


def _judge(about: Description, entry: dict[str, Any]) -> None:
    """Fill in the entry, the fit first: comparisons that follow may run out of time, or find it wrong."""
    instance = building.build(about)
    began = time.process_time()
    model = _fit(instance)
    entry["fit_seconds"] = round(time.process_time() - began, 3)
    if isinstance(model, str):
        entry |= {"outcome": REFUSED, "detail": model}
        return
    certificate = model.certificate_
    _predictions(instance, model)
    convex = about["structure"] not in NOT_CONVEX
    _claims(instance, model, convex)
    outcome = OPTIMAL if certificate.converged else STOPPED
    entry |= {
        "outcome": outcome,
        "detail": "" if certificate.converged else certificate.message,
        "gap": certificate.relative_gap,
        "ran": _solver_of(certificate.message),
    }
    if about["second"] and convex:
        _another_way(about, instance, model)
    elif convex and about["kernel"] == "linear" and about["loss"] != "mixed" and instance.ridge == 0:
        _bound(instance)
    for invariance in about["invariances"]:
        if time.process_time() - began > COMPARING:
            entry["unfinished"] = True
            return
        _invariant(about, instance, model, invariance)


def _fit(instance: Instance, **settings: Any) -> Any:
    """A fitted model, or the sentence with which it was refused."""
    try:
        return instance.fit(**settings)
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


def _predictions(instance: Instance, model: Any) -> None:
    found = (
        model.decision_function(instance.inputs()) if hasattr(model, "decision_function") else model.predict(instance.inputs())
    )
    if not np.isfinite(found).all():
        raise WrongError("predictions", f"{int((~np.isfinite(found)).sum())} of {found.size} are not finite")
    for name in ("intercept_", "coef_", "structure_"):
        held = getattr(model, name, None)
        if isinstance(held, np.ndarray) and not np.isfinite(held).all():
            raise WrongError("predictions", f"{name} is not finite")


def _claims(instance: Instance, model: Any, convex: bool) -> None:
    """The certificate agrees with itself, and its primal value is that of the model."""
    said = model.certificate_
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


def _solver_of(message: str) -> str:
    """The solver that a certificate names, whoever picked it."""
    return next((name for name in SOLVERS if f"solver {name.capitalize()}(" in message), "")


def _below(lower: float, upper: float, slack: float, what: str) -> None:
    if np.isfinite(lower) and np.isfinite(upper) and lower > upper + slack:
        raise WrongError("false certificate", f"dual {lower!r} above {upper!r}, {what}")


def _another_way(about: Description, instance: Instance, model: Any) -> None:
    """No feasible point may lie below the dual bound: one from another solver, or from CVXPY."""
    said = model.certificate_
    room = 1e-9 * (abs(said.primal) + abs(said.dual))
    if about["second"] == "cvxpy":
        if (truth := _oracle(instance)) is None:
            return
        room = 2e-6 * (abs(truth) + abs(said.primal)) + 1e-9 * values.loss_of_nothing(instance)
        _below(said.dual, truth, room, "which CVXPY attains")
        if truth > said.primal + room:
            raise WrongError("false certificate", f"primal {said.primal!r} below CVXPY's minimum {truth!r}")
        return
    used = _solver_of(said.message)
    order = [name for name in ("proximal", "alternating", "factored", "block") if name != used]
    order = order[about["k"] % 3 :] + order[: about["k"] % 3]
    for solver in order:
        other = _fit(instance, solver=solver, tol=1e-6, max_iter=300, time_limit=1)
        if isinstance(other, str):
            continue
        value = values.objective(instance, other)
        if value is not None and other.intercept_.dtype == np.float64:
            _below(
                said.dual,
                value.total,
                value.rounding_floor + 1e-8 * abs(value.total) + room,
                f"which solver={solver!r} attains",
            )
        _below(other.certificate_.dual, said.primal, room, f"the primal of solver={about['solver']!r}; it is of {solver!r}")
        return


def _bound(instance: Instance) -> None:
    """The dual value below the estimators is that of its ``G``, by the definition."""
    solution = bounds.solved(instance, instance.solver)
    said = solution.certificate
    own = bounds.dual(instance, solution.G, said.dual)
    if own is None:
        return
    value, rounding_floor = own
    slack = rounding_floor + 1e-9 * (abs(said.dual) + abs(said.primal))
    if np.isfinite(said.dual) and said.dual > value + slack:
        raise WrongError("false certificate", f"dual={said.dual!r}, but that of its G is {value!r} (primal {said.primal!r})")


def _oracle(instance: Instance) -> float | None:
    """CVXPY's minimum, for instances that it can be trusted with."""
    n, T = instance.Y.shape
    sizes = np.abs(instance.X).max(), np.nanmax(np.abs(instance.Y))
    small = n * T <= 200 and T <= 5 and instance.X.shape[1] <= 12 and all(1e-2 <= s <= 1e2 for s in sizes)
    plain = isinstance(instance.kernel, str) and instance.structure["name"] not in ("robust", "dirty", "custom")
    single = len({str(loss) for loss in instance.losses}) == 1 and isinstance(instance.task_weight, str | np.ndarray)
    if not (small and plain and single and 1e-5 <= instance.alpha <= 1e3):
        return None
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    try:
        import oracle
    except ImportError:
        return None
    finally:
        sys.path.pop()
    K = values.kernel_matrices(instance)[0].astype(float)
    k, U = np.linalg.eigh(K)
    phi = instance.X.astype(float) if instance.kernel == "linear" else U * np.sqrt(np.maximum(k, 0))
    if instance.kernel == "linear" and instance.X.shape[1] > n and instance.structure["name"] != "feature_selection":
        phi = U * np.sqrt(np.maximum(k, 0))
    seen = ~np.isnan(instance.Y)
    s = np.ones(seen.shape) if instance.weight is None else np.asarray(instance.weight)
    s = np.where(seen, s[:, None] if s.ndim == 1 else s, 0.0)
    c = instance.task_weight
    if isinstance(c, str):
        c = np.ones(T) if c == "equal" else T * s.sum(axis=0) / s.sum()
    Y = np.where(s > 0, instance.Y, np.nan)
    loss, structure = building.a_loss(instance.losses[0]), building.a_structure(instance.structure)
    try:
        found = oracle.optimum(
            phi, Y, loss, structure, instance.alpha, ridge=instance.ridge, fit_intercept=instance.fit_intercept,
            sample_weight=np.where(s > 0, s, 0.0), task_weight=c,
        )  # fmt: skip
        attained = values.objective_at(instance, phi, found.W, found.b)
        sure = attained is None or abs(attained - found.value) <= 1e-5 * (abs(attained) + values.loss_of_nothing(instance))
        return found.value if sure else None
    except (RuntimeError, NotImplementedError, Warning):
        return None  # an oracle that is not sure does not speak
    except Exception as error:
        if type(error).__name__ in ("SolverError", "DCPError", "ArpackError", "ArpackNoConvergence"):
            return None
        raise


def _invariant(about: Description, instance: Instance, model: Any, how: str) -> None:
    """The same problem in other words has the same objective, within the two gaps."""
    rng = np.random.default_rng([about["seed"], about["k"], 2])
    n, T = instance.Y.shape
    said = model.certificate_
    if how in ("twice", "two threads"):
        with threadpool_limits(2 if how == "two threads" else 1):
            again = _fit(instance)
        if isinstance(again, str):
            raise WrongError("not the same twice", f"fitted, then refused: {again}")
        if how == "twice" and not _alike(model, again):
            raise WrongError("not the same twice", f"primal {said.primal!r}, then {again.certificate_.primal!r}")
        other = again.certificate_
    else:
        if about["structure"] in NOT_CONVEX:
            return  # another order may lead to another stationary point
        if how == "tasks permuted":
            twin = instance if instance.whole_rows else instance.with_tasks(rng.permutation(T))
        elif how == "rows shuffled":
            twin = instance.with_rows(rng.permutation(n))
        elif instance.kernel == "precomputed" or instance.whole_rows or about["loss"] == "mixed":
            return
        else:
            twin = building.replace(instance, long=not instance.long)
        found = _fit(twin)
        if isinstance(found, str):
            raise WrongError("not invariant", f"{how}: refused, {found}")
        other = found.certificate_
    if not (np.isfinite(said.dual) and np.isfinite(other.dual)):
        return
    room = 1e-9 * (abs(said.primal) + abs(said.dual)) + 1e-12 * abs(other.primal)
    if hasattr(model, "dual_coef_") and (value := values.objective(instance, model)) is not None:
        # Where the last digit of a kernel moves the minimum, another order is another problem, by as much as ours is off.
        room += value.rounding_floor + 3 * abs(float(value.total) - said.primal)
    if instance.X.dtype == np.float32:
        room *= 10
    _below(said.dual, other.primal, room, f"the primal with {how}")
    _below(other.dual, said.primal, room, f"the primal; the dual is the one with {how}")


def _alike(one: Any, other: Any) -> bool:
    """Bit for bit, or to twelve digits."""
    names = [name for name in ("coef_", "dual_coef_", "intercept_") if hasattr(one, name)]
    for name in names:
        mine, theirs = getattr(one, name), getattr(other, name)
        for a, b in zip(*((x if isinstance(x, list) else [x]) for x in (mine, theirs)), strict=True):
            if not np.allclose(a, b, rtol=1e-12, atol=1e-12 * float(np.abs(a).max(initial=0.0))):
                return False
    return True
