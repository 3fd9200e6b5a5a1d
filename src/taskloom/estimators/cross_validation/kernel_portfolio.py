"""``kernels="auto"``: linear, and the Gaussian kernel on standardised inputs, of a width that a small search finds.

Widths are compared on few rows, few values of alpha and three folds; the best one takes part in the search, on all rows.
Tables with many rows have landmarks in place of the kernel matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing

from ...features.kernel_width import median_squared_distance
from ...losses import RowLoss, as_loss
from ...tables.layout import as_table
from ..validation import training_inputs
from .kernel_candidates import KernelCandidate
from .plain_models import PlainModels
from .results import Candidate

Array = np.ndarray
WIDTHS = (0.02, 0.1, 0.5, 2.0, 8.0)  # gamma times the median squared distance of standardised inputs
MAX_ROWS = 600  # on which widths are compared
ROWS_OF_TASK = 30  # of a long table, at most: rather more of few tasks than few of each
N_ALPHAS, N_FOLDS = 12, 3  # there
MAX_EXACT = {"wide": 2500, "long": 1000}  # rows; with more of them there are landmarks
N_LANDMARKS = 400
MOST_ROWS = 10_000  # that a Gaussian kernel is tried on unless it was asked for
WORSE = 0.05  # a Gaussian kernel that scores so much less than the linear one on few rows is not tried on all
LINEAR = KernelCandidate("linear")


def kernel_portfolio(search: Any, structures: list[Any], settings: tuple) -> tuple[list[KernelCandidate], str]:
    """The kernels to compare, linear and a Gaussian one where that may help; and why there is no Gaussian one.

    ``settings`` are those of ``CVData``.
    """
    X, y, weight, *rest = settings
    inputs, labels, _ = training_inputs(search._plain(), X)
    if issparse(inputs) or not _may_curve(search, structures, inputs):
        return [LINEAR], ""
    if inputs.shape[0] > MOST_ROWS:
        return [LINEAR], f"{inputs.shape[0]} rows are many; kernels= compares all the same"
    std = inputs.std(axis=0, dtype=np.float64)
    scaled = np.divide(inputs, std, out=np.zeros(inputs.shape), where=std > 0)
    median = median_squared_distance(scaled)
    if not median > 0:
        return [LINEAR], ""
    many = inputs.shape[0] > MAX_EXACT["wide" if labels is None else "long"]
    found = [_gaussian(width, median, std, many) for width in WIDTHS]
    rows = _some_rows(inputs.shape[0], labels)
    weight = as_table(weight)
    part = [None if each is None else _safe_indexing(each, rows) for each in (X, y, weight)]
    scores = [_score(search, kernel, structures, (*part, *_few_folds(rest))) for kernel in [LINEAR, *found]]
    best = int(np.nanargmax([-np.inf if np.isnan(score) else score for score in scores[1:]]))
    if scores[1 + best] > scores[0] - WORSE:
        return [LINEAR, found[best]], ""
    return [
        LINEAR
    ], f"on {len(rows)} rows the best of {len(WIDTHS)} widths scores {scores[1 + best]:.3g}, linear {scores[0]:.3g}"


def _may_curve(search: Any, structures: list[Any], inputs: Array) -> bool:
    """Whether a kernel is possible, and not too dear to try."""
    several = any(isinstance(each, list) or each.keeps_columns or not each.convex for each in structures)
    one_loss = not isinstance(search.loss, dict) and not isinstance(as_loss(search.loss), RowLoss)
    return not several and one_loss and search.approximation is None and inputs.shape[1] <= 1000


def _gaussian(width: float, median: float, std: Array, many: bool) -> KernelCandidate:
    """A Gaussian kernel on standardised inputs; constant columns do not matter."""
    from sklearn.gaussian_process.kernels import RBF  # slow to import

    length = float(np.sqrt(median / (2 * width)))
    kernel = RBF(length * np.where(std > 0, std, 1.0))
    text = f"Gaussian kernel on standardised inputs, gamma = {width / median:.3g}"
    landmarks = {"approximation": "nystroem", "n_components": N_LANDMARKS} if many else {}
    return KernelCandidate(kernel, text=text + (f", {N_LANDMARKS} landmarks" if many else ""), options=landmarks)


def _some_rows(n: int, labels: Array | None) -> Array:
    """All rows, or some spread evenly over the table; of a long one, enough rows of as many tasks as there is room for."""
    if n <= MAX_ROWS:
        return np.arange(n)
    if labels is None:
        return np.linspace(0, n - 1, MAX_ROWS).astype(int)
    tasks, task, counts = np.unique(labels, return_inverse=True, return_counts=True)
    most = max(ROWS_OF_TASK, MAX_ROWS // len(tasks))
    n_tasks = min(len(tasks), max(2, int(MAX_ROWS / np.minimum(counts, most).mean())))
    by_task = np.split(np.argsort(task, kind="stable"), np.cumsum(counts)[:-1])
    kept = [by_task[t] for t in np.linspace(0, len(tasks) - 1, n_tasks).astype(int)]
    return np.sort(np.concatenate([rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)] for rows in kept]))


def _few_folds(rest: list[Any]) -> tuple[Any, ...]:
    """Scoring as in the search; three folds, of its splitter's kind where it has groups."""
    scoring, _, _, n_jobs, random_state = rest
    return scoring, N_FOLDS, None, n_jobs, random_state


def _score(search: Any, kernel: KernelCandidate, structures: list[Any], settings: tuple) -> float:
    """The best score of a kernel under the first structure; NaN where folds of so few rows have no minimiser."""
    twin = search._with_kernel(replace(kernel, options={}))
    twin.alphas, twin.fallback = N_ALPHAS, None
    try:
        plain = PlainModels.of(twin, structures[:1], settings)
        plain.candidates[:] = plain.candidates[:1]
        candidate: Candidate = plain.candidates[0]
        candidate.continues = True  # warnings about alphas that nobody asked for would be noise
        plain = replace(plain, single_task=candidate)
        done = plain.cross_validate()
    except ValueError:
        return np.nan
    if done[0] < done[1] or plain.interrupted:
        raise KeyboardInterrupt  # nothing is complete yet
    return float(candidate.mean[candidate.best]) if candidate.folds else np.nan
