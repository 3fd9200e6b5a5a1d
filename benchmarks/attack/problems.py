"""The first family: one problem of any kind, judged by its definition, by another way to solve it and in other words."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from . import bounds, values
from . import build as building
from .build import Instance
from .draw import NOT_CONVEX, Description
from .fitting import (
    REFUSED,
    WrongError,
    check_below,
    check_claims,
    check_predictions,
    fit,
    settled,
    solver_of,
)

COMPARING = 4.0  # CPU seconds after which an instance is not told in yet other words


def judge(about: Description, entry: dict[str, Any]) -> None:
    """Fill in the entry, the fit first: comparisons that follow may run out of time, or find it wrong."""
    instance = building.build(about)
    began = time.process_time()
    model = fit(instance)
    entry["fit_seconds"] = round(time.process_time() - began, 3)
    if isinstance(model, str):
        entry |= {"outcome": REFUSED, "detail": model}
        return
    certificate = model.certificate_
    check_predictions(instance, model)
    convex = about["structure"] not in NOT_CONVEX
    check_claims(instance, model, convex)
    settled(entry, certificate)
    if about["second"] and convex:
        _another_way(about, instance, model)
    elif convex and about["kernel"] == "linear" and about["loss"] != "mixed" and instance.ridge == 0:
        _bound(instance)
    for invariance in about["invariances"]:
        if time.process_time() - began > COMPARING:
            entry["unfinished"] = True
            return
        _invariant(about, instance, model, invariance)


def _another_way(about: Description, instance: Instance, model: Any) -> None:
    """No feasible point may lie below the dual bound: one from another solver, or from CVXPY."""
    said = model.certificate_
    room = 1e-9 * (abs(said.primal) + abs(said.dual))
    if about["second"] == "cvxpy":
        if (truth := _oracle(instance)) is None:
            return
        room = 2e-6 * (abs(truth) + abs(said.primal)) + 1e-9 * values.loss_of_nothing(instance)
        check_below(said.dual, truth, room, "which CVXPY attains")
        if truth > said.primal + room:
            raise WrongError("false certificate", f"primal {said.primal!r} below CVXPY's minimum {truth!r}")
        return
    used = solver_of(said.message)
    order = [name for name in ("proximal", "alternating", "factored", "block") if name != used]
    order = order[about["k"] % 3 :] + order[: about["k"] % 3]
    for solver in order:
        other = fit(instance, solver=solver, tol=1e-6, max_iter=300, time_limit=1)
        if isinstance(other, str):
            continue
        value = values.objective(instance, other)
        if value is not None and other.intercept_.dtype == np.float64:
            check_below(
                said.dual,
                value.total,
                value.rounding_floor + 1e-8 * abs(value.total) + room,
                f"which solver={solver!r} attains",
            )
        check_below(
            other.certificate_.dual, said.primal, room, f"the primal of solver={about['solver']!r}; it is of {solver!r}"
        )
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
            again = fit(instance)
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
        found = fit(twin)
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
    check_below(said.dual, other.primal, room, f"the primal with {how}")
    check_below(other.dual, said.primal, room, f"the primal; the dual is the one with {how}")


def _alike(one: Any, other: Any) -> bool:
    """Bit for bit, or to twelve digits."""
    names = [name for name in ("coef_", "dual_coef_", "intercept_") if hasattr(one, name)]
    for name in names:
        mine, theirs = getattr(one, name), getattr(other, name)
        for a, b in zip(*((x if isinstance(x, list) else [x]) for x in (mine, theirs)), strict=True):
            if not np.allclose(a, b, rtol=1e-12, atol=1e-12 * float(np.abs(a).max(initial=0.0))):
                return False
    return True
