"""Small pictures of the structures, for the page docs/choosing.md.

python docs/pictures.py FOLDER   writes them; the build of the pages calls it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

from taskloom import MultiTaskRegressor
from taskloom.structures import (
    Clusters,
    Dirty,
    FeatureSelection,
    Frobenius,
    Independent,
    Robust,
    SharedMean,
    Sparse,
    TaskGraph,
    Trace,
)

T, D, N = 12, 10, 60


def _noisy(rng, W):
    """Inputs and targets of tasks with these weights (``D x T``)."""
    X = rng.normal(size=(N, len(W)))
    return X, X @ W + 0.3 * rng.normal(size=(N, W.shape[1]))


def _relations(structure, W, alpha):
    X, Y = _noisy(np.random.default_rng(0), W)
    return MultiTaskRegressor(structure, alpha=alpha).fit(X, Y).task_correlation()


def _weights(structure, W, alpha, part="coef_"):
    X, Y = _noisy(np.random.default_rng(0), W)
    shown = getattr(MultiTaskRegressor(structure, alpha=alpha).fit(X, Y), part)
    return shown.T / np.abs(shown).max()


def matrices():
    """Name -> what to draw: relations of twelve tasks, or their weights (a row for each input, a column for each task)."""
    rng = np.random.default_rng(1)
    kinds = np.repeat(np.arange(3), 4)
    groups = rng.normal(size=(D, 3))[:, kinds] + 0.2 * rng.normal(size=(D, T))
    angle = np.linspace(0, np.pi, T)
    plane = np.linalg.qr(rng.normal(size=(D, 2)))[0] @ np.array([np.cos(angle), np.sin(angle)]) * 2
    pairs = rng.normal(size=(D, T))
    pairs[:, 1], pairs[:, 6], pairs[:, 9] = pairs[:, 0], -pairs[:, 3], pairs[:, 8]
    columns = np.zeros((D, T))
    columns[[1, 4, 7]] = rng.normal(size=(3, T)) + 0.5
    private = columns.copy()
    private[9, 2] = private[5, 8] = private[0, 10] = 2.0
    odd = plane.copy()
    odd[:, [3, 9]] = rng.normal(size=(D, 2)) * 1.5
    tree = {t: f"{'ab'[t // 6]}/{t // 3}" for t in range(T)}
    return {
        "independent": Independent().matrix(T),
        "shared_mean": _scaled(SharedMean(5.0).matrix(T)),
        "chain": _scaled(TaskGraph.chain(T, gamma=0.3).matrix(T)),
        "tree": _scaled(TaskGraph.from_tree(tree, gamma=1.5).matrix(T)),
        "clusters": _relations(Clusters(3, mean=1.0), groups, 0.1),
        "trace": _relations(Trace(), plane, 0.02),
        "frobenius": _relations(Frobenius(), plane, 0.02),
        "sparse": _relations(Sparse(0.3), pairs, 0.05),
        "feature_selection": _weights(FeatureSelection(), columns, 0.02),
        "robust": _weights(Robust(), odd, 0.1, "own_coef_"),
        "dirty": _weights(Dirty(), private, 0.02),
    }


def _scaled(A):
    return A / np.sqrt(np.outer(np.diag(A), np.diag(A)))


def draw(folder: Path) -> None:
    """One SVG for each structure, written anew only where something changed."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "taskloom"}):
        for name, values in matrices().items():
            figure = plt.figure(figsize=(1.6, 1.6))
            axes = figure.add_axes((0, 0, 1, 1))
            axes.pcolormesh(values[::-1], cmap="RdBu", vmin=-1, vmax=1, edgecolors="#d9dde0", linewidth=0.4)
            axes.set_axis_off()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
