"""Many inputs: selection among 2000 of them, and sparse text that must stay sparse."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, MultiTaskLasso, Ridge
from sklearn.svm import LinearSVC

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, alpha_max

from .row import Measured, Row, cpu

Array = np.ndarray
MAX_MEMORY = 10  # peak above the data, as a multiple of matrix, targets and weights
TIME_LIMIT = 120.0  # seconds of a fit that does not end


# --- selection of features ------------------------------------------------------------------------------------------


def selected(n_inputs: int, n_rows: int = 300, n_tasks: int = 10, shared: int = 20, private: int = 3) -> tuple[Array, Array]:
    """Inputs of which all tasks use some, and each task a few more."""
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(n_rows, n_inputs)), np.zeros((n_inputs, n_tasks))
    W[:shared] = rng.normal(size=(shared, n_tasks))
    for t in range(n_tasks):
        W[shared + private * t : shared + private * (t + 1), t] = rng.normal(size=private)
    signal = X @ W
    return X, signal + 0.5 * signal.std() * rng.normal(size=signal.shape)


def strength(X: Any, Y: Array, structure: str, share: float, loss: str = "squared") -> float:
    """A share of the strength at which all weights vanish."""
    return share * alpha_max(Problem(X, Y, loss, structure))


def feature_selection(tol: float, share: float) -> Measured:
    """``sqrt(alpha)`` is scikit-learn's ``alpha``; half our objective is its objective."""
    X, Y = selected(2000)
    alpha = strength(X, Y, "feature_selection", share)
    model = MultiTaskRegressor("feature_selection", alpha=alpha, tol=tol)
    seconds, fitted = cpu(lambda: model.fit(X, Y), repeats=3)
    gap, centred = fitted.certificate_.gap / 2, float(np.square(Y - Y.mean(axis=0)).sum())
    lasso = MultiTaskLasso(np.sqrt(alpha), tol=max(gap, 1e-9) * len(X) / centred, max_iter=100_000)
    other, peer = cpu(lambda: lasso.fit(X, Y), repeats=3)
    while peer.dual_gap_ > 1.05 * gap:  # its last check may stop above
        lasso.tol /= 2
        other, peer = cpu(lambda: lasso.fit(X, Y), repeats=3)
    rows = int(np.count_nonzero(fitted.coef_.any(axis=0)))
    apart = np.abs(fitted.coef_ - peer.coef_).max() / np.abs(peer.coef_).max()
    note = f"{rows} inputs selected; gaps {gap:.1e}, MultiTaskLasso {peer.dual_gap_:.1e}; weights apart by {apart:.0e}"
    return Measured(seconds, other, 10, note, fitted.certificate_.converged)


def dirty(share: float) -> Measured:
    """The same strength, relative to that at which the weights vanish, with 2000 and with 200 inputs."""

    def fit(n_inputs: int) -> tuple[float, MultiTaskRegressor]:
        X, Y = selected(n_inputs)
        alpha = strength(X, Y, "dirty", share)
        return cpu(lambda: MultiTaskRegressor("dirty", alpha=alpha).fit(X, Y), repeats=2)

    fit(100)
    (seconds, wide), (other, narrow) = fit(2000), fit(200)
    weights = (int(np.count_nonzero(model.coef_)) for model in (wide, narrow))
    note = "200 inputs; {} and {} weights that are not zero".format(*weights)
    return Measured(seconds, other, 12, note, wide.certificate_.converged and narrow.certificate_.converged)


# --- sparse text ----------------------------------------------------------------------------------------------------


def text(n_rows: int, n_words: int, length: int, n_tasks: int) -> tuple[csr_array, Array]:
    """Word counts by Zipf's law, weighted by rarity and of length 1; scores of the tasks from a few topics, and noise."""
    rng = np.random.default_rng(0)
    frequency = 1 / (10 + np.arange(n_words))
    word = rng.choice(n_words, size=n_rows * length, p=frequency / frequency.sum())
    counts = csr_array((np.ones(word.size), (np.repeat(np.arange(n_rows), length), word)), shape=(n_rows, n_words))
    counts.sum_duplicates()
    counts.indices, counts.indptr = counts.indices.astype(np.int32), counts.indptr.astype(np.int32)  # for scikit-learn
    rarity = np.log((1 + n_rows) / (1 + np.bincount(counts.indices, minlength=n_words))) + 1
    counts.data *= rarity[counts.indices]
    size = np.sqrt(np.bincount(np.repeat(np.arange(n_rows), np.diff(counts.indptr)), counts.data**2, minlength=n_rows))
    counts.data /= np.repeat(size, np.diff(counts.indptr))
    topics = rng.normal(size=(n_words, 5)) @ rng.normal(size=(5, n_tasks))
    scores = counts @ topics
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    return counts, scores + 0.5 * rng.normal(size=scores.shape)


def peak() -> float:
    """The largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def label_by_label(X: csr_array, Y: Array, make: Callable[[float], Any], loss: Callable, target: float) -> tuple[float, str]:
    """CPU seconds of scikit-learn's model for all labels, at the strength whose training loss is closest to ours.

    ``make`` takes a strength; more of it is a larger loss. Strengths are a factor of 2 apart.
    """

    def fit_all(strength: float) -> list:
        return [make(strength).fit(X, Y[:, t]) for t in range(Y.shape[1])]

    def scores(models: list) -> Array:
        return np.column_stack([getattr(model, "decision_function", model.predict)(X) for model in models])

    def distance(k: int) -> float:
        return abs(np.log(loss(Y, scores(fit_all(2.0**k))) / target))

    k, step = 0, 1 if loss(Y, scores(fit_all(1.0))) < target else -1
    while distance(k + step) < distance(k):
        k += step
    seconds, _ = cpu(lambda: fit_all(2.0**k), repeats=2)
    return seconds, f"{make(2.0**k)!r}".replace("\n", " ")


LOSSES: dict[str, Callable[[Array, Array], float]] = {
    "squared": lambda Y, Z: float(np.square(Y - Z).mean()),
    "logistic": lambda Y, Z: float(np.logaddexp(0, -Y * Z).mean()),
    "hinge": lambda Y, Z: float(np.maximum(1 - Y * Z, 0).mean()),
}
PEERS: dict[str, Callable[[float], Any]] = {
    "squared": lambda strength: Ridge(strength, solver="sparse_cg"),
    "logistic": lambda strength: LogisticRegression(C=1 / strength, max_iter=1000),
    "hinge": lambda strength: LinearSVC(C=1 / strength, loss="hinge", max_iter=100_000),
}


def sparse_text(shape: tuple[int, int, int, int], structure: str, loss: str, alpha: float) -> Measured:
    X, Y = text(*shape)
    small = text(200, 300, 20, 3)
    if loss == "squared":
        model, fit_small = MultiTaskRegressor(structure, alpha=alpha, time_limit=TIME_LIMIT), (small[0], small[1])
    else:
        Y = np.where(Y > 0.5, 1.0, -1.0)
        model = MultiTaskClassifier(structure, loss=loss, alpha=alpha, time_limit=TIME_LIMIT)
        fit_small = (small[0], np.where(small[1] > 0, 1.0, -1.0))
    model.fit(*fit_small)
    before = peak()
    seconds, fitted = cpu(lambda: model.fit(X, Y))
    memory = peak() - before
    scores = fitted.predict(X) if loss == "squared" else fitted.decision_function(X)
    reached = LOSSES[loss](Y, scores)
    other, peer = label_by_label(X, Y, PEERS[loss], LOSSES[loss], reached)
    matrix = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 2**20
    held = matrix + (Y.nbytes + fitted.coef_.nbytes) / 2**20
    said = fitted.certificate_
    note = (
        f"relative gap {said.relative_gap:.1e}; {peer} for each label; {memory:.0f} MB above the data, "
        f"matrix {matrix:.1f}, with targets and weights {held:.1f} MB"
    )
    return Measured(seconds, other, 6, note, said.converged and memory <= MAX_MEMORY * held)


WIDE, TALL = (5000, 20_000, 40, 20), (20_000, 5000, 5, 4)


def text_row(shape: tuple[int, int, int, int], structure: str, loss: str, alpha: float, before: str) -> Row:
    n, d, _, T = shape
    problem = f"sparse text, {n} x {d}, {T} labels: {structure}, {loss}"
    bar = "6 times scikit-learn label by label; memory of the order of matrix and weights"
    return Row(problem, before, bar, lambda: sparse_text(shape, structure, loss, alpha))


ROWS = [
    Row(
        "`FeatureSelection`, 2000 inputs, 300 rows, 10 tasks, tol 1e-4",
        "11.7 s",
        "10 times `MultiTaskLasso` at equal gap",
        lambda: feature_selection(1e-4, 0.01),
    ),
    Row(
        "`FeatureSelection`, 2000 inputs, 300 rows, 10 tasks, tol 1e-7",
        "11.7 s",
        "10 times `MultiTaskLasso` at equal gap",
        lambda: feature_selection(1e-7, 0.01),
    ),
    Row("`Dirty`, 2000 inputs", "37 s", "12 times 200 inputs", lambda: dirty(0.01)),
    text_row(WIDE, "trace", "squared", 1e-5, "23 to over 40 s"),
    text_row(WIDE, "trace", "logistic", 1e-5, "23 to over 40 s"),
    text_row(WIDE, "trace", "hinge", 1e-5, "23 to over 40 s"),
    text_row(WIDE, "frobenius", "squared", 1e-5, "23 to over 40 s"),
    text_row(TALL, "trace", "squared", 1e-5, "25 s, 600 MB"),
    text_row(TALL, "trace", "logistic", 1e-5, "25 s, 600 MB"),
]
