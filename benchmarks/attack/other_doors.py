"""Kinds of the second family about other ways to a model: searches, blocks of rows, and tasks that are added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from taskloom import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressorCV

from . import build, conic, values
from .build import Instance
from .draw import LABELS, Description
from .fitting import OPTIMAL, REFUSED, TOL, WrongError, attempt, check_below, check_claims, check_predictions, fit, settled

NOT_SEARCHED = ("alpha", "warm_start", "device")
SCORES = 1e-3  # how far the scores of two fits to 1e-7 may be apart


def _refused(found: Any, entry: dict[str, Any]) -> bool:
    if isinstance(found, str):
        entry |= {"outcome": REFUSED, "detail": found}
    return isinstance(found, str)


# --- searches -----------------------------------------------------------------------------------------------------


def own_score(model: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """As ``GridSearchCV`` scores; a search by default takes the explained loss."""
    return float(model.score(X, y, sample_weight))


def judge_search(about: Description, entry: dict[str, Any]) -> None:
    """A search is the plain fit at the strength that it chose, and its scores are those of plain fits on the folds."""
    instance = build.build(about)
    X, y, weight = instance.table()
    plain = instance.estimator(tol=1e-7)
    settings = {name: given for name, given in plain.get_params(deep=False).items() if name not in NOT_SEARCHED}
    folds = list(KFold(3, shuffle=True, random_state=about["k"]).split(X))
    alphas = instance.alpha * np.array([10.0, 1.0, 0.1])
    kind = MultiTaskClassifierCV if isinstance(plain, MultiTaskClassifier) else MultiTaskRegressorCV
    model = attempt(lambda: kind(**settings, alphas=alphas, cv=folds, scoring=own_score).fit(X, y, sample_weight=weight))
    if _refused(model, entry):
        return
    chosen = replace(instance, alpha=float(model.alpha_))
    check_predictions(chosen, model)
    check_claims(chosen, model, True)
    settled(entry, model.certificate_)
    scores = model.cv_results_["mean_test_score"]
    if model.alpha_ not in alphas or model.best_score_ != np.nanmax(scores):
        raise WrongError("search", f"alpha_={model.alpha_!r} of {alphas.tolist()}, best_score_={model.best_score_!r}")
    other = fit(chosen, tol=1e-7)
    if isinstance(other, str):
        raise WrongError("search", f"the plain fit was refused: {other}")
    _one_problem(model.certificate_, other.certificate_, "the plain fit")
    if about["loss"] == "squared" and model.certificate_.converged:
        _same_scores(model, chosen.estimator(tol=1e-7), (X, y, weight), folds)


def _same_scores(model: Any, plain: Any, data: tuple, folds: list) -> None:
    X, y, weight = data
    found = []
    for train, test in folds:
        own = [None if weight is None else weight[rows] for rows in (train, test)]
        found.append(plain.fit(X[train], y[train], own[0]).score(X[test], y[test], own[1]))
    mean = float(np.mean(found))
    if not abs(mean - model.best_score_) <= SCORES * (1 + abs(mean)) and np.isfinite(mean):
        raise WrongError("search", f"best_score_={model.best_score_!r}, of plain fits on the folds {mean!r}")


def _one_problem(one: Any, other: Any, whose: str) -> None:
    """Two certificates of one minimum."""
    room = 1e-9 * (abs(one.primal) + abs(one.dual)) + 1e-12 * abs(other.primal)
    check_below(one.dual, other.primal, room, f"the primal of {whose}")
    check_below(other.dual, one.primal, room, f"the primal; the dual is that of {whose}")


# --- blocks -------------------------------------------------------------------------------------------------------


def judge_blocks(about: Description, entry: dict[str, Any]) -> None:
    """Rows in blocks give the model of all rows together: its objective on them, and a bound of the same minimum."""
    instance = build.build(about)
    model = attempt(lambda: _in_blocks(instance, about))
    if _refused(model, entry):
        if _first_tasks(instance, about) < instance.Y.shape[1] or isinstance(fit(instance), str):
            return  # settings that name every task, and not every task was there; or all rows together are refused, too
        raise WrongError("blocks", f"refused, all rows together are not: {model}")
    check_predictions(instance, model)
    check_claims(instance, model, True)
    settled(entry, model.certificate_)
    other = fit(instance)
    if isinstance(other, str):
        raise WrongError("blocks", f"fitted in blocks, refused together: {other}")
    _one_problem(model.certificate_, other.certificate_, "the fit to all rows")
    if model.certificate_.converged and not other.certificate_.converged:
        entry["plain stopped"] = True


def _in_blocks(instance: Instance, about: Description) -> Any:
    X, y, weight = instance.table()

    def blocks() -> Iterator[tuple]:
        for rows in _rows(about, len(y)):
            yield (X[rows], y[rows]) if weight is None else (X[rows], y[rows], weight[rows])

    model = instance.estimator()
    if about["kind"] == "fit_blocks":
        return model.fit_blocks(blocks)
    for block in blocks():
        model.partial_fit(*block)
    return model


def _rows(about: Description, n: int) -> list[np.ndarray]:
    """The rows of each block."""
    order = np.random.default_rng([about["seed"], about["k"], 4]).permutation(n)
    return np.array_split(order, min(about["blocks"], n))


def _first_tasks(instance: Instance, about: Description) -> int:
    """How many tasks a model knows when it is first solved."""
    whole = instance.by_observation() if instance.long else instance
    first = _rows(about, len(whole.Y))[0] if about["kind"] == "partial_fit" else slice(None)
    return int((values.observation_weights(whole)[first] > 0).any(axis=0).sum())


# --- new tasks ----------------------------------------------------------------------------------------------------


def judge_new_task(about: Description, entry: dict[str, Any]) -> None:
    """The fitted tasks stay, and the new one minimises the objective of docs/estimators.md, whose prior is computed here."""
    instance = build.build(about)
    model = fit(instance)
    if _refused(model, entry):
        return
    W, A, b = model.coef_.T.copy(), np.asarray(model.structure_).copy(), model.intercept_.copy()
    X, y = _new_rows(instance, about)
    found = attempt(lambda: model.add_task(X, y, "new"))
    if _refused(found, entry):
        return
    entry |= {"outcome": OPTIMAL, "detail": ""}
    T = W.shape[1]
    same = np.array_equal(model.coef_[:T], W.T) and np.array_equal(model.intercept_[:T], b)
    if not (same and np.array_equal(model.structure_[:T, :T], A)):
        raise WrongError("new task", "the fitted tasks changed")
    answer = getattr(model, "decision_function", model.predict)(X)
    if answer.shape != (len(X), T + 1) or not np.isfinite(answer).all():
        raise WrongError("predictions", f"of shape {answer.shape}, or not finite")
    mean, root = _prior(instance, W, A)
    _minimal(instance, (X, y), (mean, root), model.coef_[T], float(model.intercept_[T]))


def _new_rows(instance: Instance, about: Description) -> tuple[Any, Any]:
    rng = np.random.default_rng([about["seed"], about["k"], 5])
    X = rng.normal(size=(max(about["new rows"], 3), instance.X.shape[1]))
    y = X @ rng.normal(size=X.shape[1]) + rng.normal(size=len(X)) + 0.5
    if about["loss"] in LABELS:
        y = np.where(y > np.median(y), 1.0, -1.0)
    return X, y


def _prior(instance: Instance, W: Any, A: Any) -> tuple[Any, Any]:
    """``f0`` and ``R`` with ``D = RR'``."""
    name, (d, T), alpha = instance.structure["name"], W.shape, instance.alpha
    if name in ("trace", "frobenius"):
        U, s, _ = np.linalg.svd(W, full_matrices=False)
        keep = s > 1e-6 * max(s.max(initial=0.0), 1e-300)
        a = np.sqrt(alpha) * s if name == "trace" else np.cbrt(alpha * s**2 / 2)
        return np.zeros(d), (U * np.sqrt(a))[:, keep]
    if name == "independent":
        return np.zeros(d), np.eye(d)
    if name == "shared_mean":
        gamma = instance.structure["gamma"]
        whole = np.linalg.inv(np.eye(T + 1) + gamma * (np.eye(T + 1) - 1 / (T + 1)))
        beta = np.linalg.solve(whole[:T, :T], whole[:T, T])
        return W @ beta, np.sqrt(whole[T, T] - whole[T, :T] @ beta) * np.eye(d)
    a, V = np.linalg.eigh(A)
    keep = a > 1e-10 * a[-1]
    B = W @ (V[:, keep] / np.sqrt(a[keep]))
    shared = B * np.sqrt(np.trace(A) / max(float((B**2).sum()), 1e-300))
    own = float(np.mean(1 / np.diag(np.linalg.inv(A)))) if keep.all() else 0.0
    return np.zeros(d), np.column_stack([shared, np.sqrt(own) * np.eye(d)])


def _minimal(instance: Instance, data: tuple, prior: tuple, w: Any, b: float) -> None:
    """No weights of the form ``f0 + Rc`` have a lower objective than those of the model, by more than the tolerance."""
    import cvxpy as cp

    (X, y), (mean, root), spec = data, prior, instance.losses[0]
    c, _, _, _ = np.linalg.lstsq(root, w - mean, rcond=1e-12)
    off = float(np.linalg.norm(root @ c + mean - w))
    if off > 1e-5 * float(np.linalg.norm(w)) + 1e-12:
        raise WrongError("new task", f"weights leave the span of the prior by {off:.1e} of {np.linalg.norm(w):.1e}")
    u, free = cp.Variable(root.shape[1]), cp.Variable() if instance.fit_intercept else 0.0
    z = X @ (mean + root @ u) + free
    cost = cp.sum(conic.loss_of(spec, y, z)) / len(y) + instance.alpha * cp.sum_squares(u)
    least = conic.solved(cp.Problem(cp.Minimize(cost + instance.ridge * cp.sum_squares(mean + root @ u))))
    if least is None:
        return
    loss = float(values.loss_values(spec, y, X @ w + b).mean())
    attained = loss + instance.alpha * float(c @ c) + instance.ridge * float(w @ w)
    scale = float(np.mean(values.loss_values(spec, y, np.median(y))))
    if attained > least + 2 * TOL * scale + 1e-6 * abs(least):
        raise WrongError("new task", f"its objective is {attained!r}, the least is {least!r}")
