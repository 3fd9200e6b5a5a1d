"""The learned correlations of sixty shops, their single-task and multi-task errors, and the duality gap by iteration.

python examples/shops.py            shows the figure of the README
python examples/shops.py FILE.png   writes it
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor
from taskloom.datasets import load_shops
from taskloom.structures import Clusters, Independent


def correlation(A: np.ndarray) -> np.ndarray:
    return A / np.sqrt(np.outer(np.diag(A), np.diag(A)))


def main() -> None:
    shops = load_shops()
    train, test = np.column_stack([shops.X, shops.task]), np.column_stack([shops.X_test, shops.task_test])
    multi_task = MultiTaskRegressor(Clusters(4), alpha=0.1, task_column=-1, tol=1e-7).fit(train, shops.y)
    single_task = MultiTaskRegressor(Independent(), alpha=0.1, task_column=-1).fit(train, shops.y)

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    order = np.argsort(shops.kind, kind="stable")
    relation = correlation(multi_task.structure_)[np.ix_(order, order)]
    np.fill_diagonal(relation, np.nan)  # always 1
    image = axes[0].imshow(relation, cmap="viridis")
    figure.colorbar(image, ax=axes[0], label="learned correlation")
    label = "60 shops, sorted by their true cluster"
    axes[0].set(title="Correlations of tasks", xlabel=label, ylabel=label, xticks=[], yticks=[])

    def errors(model):
        squares = (model.predict(test) - shops.y_test) ** 2
        return np.array([squares[shops.task_test == s].mean() for s in range(60)])

    one, other = errors(single_task), errors(multi_task)
    top = 1.05 * max(one.max(), other.max())
    axes[1].plot([0, top], [0, top], color="0.6", linewidth=1)
    axes[1].scatter(one, other, c=shops.kind, cmap="tab10", s=18)
    better = int((other < one).sum())
    axes[1].set(
        title=f"{better} of 60 shops are predicted better",
        xlabel="squared error, single-task",
        ylabel="squared error, multi-task",
        xlim=(0, top),
        ylim=(0, top),
    )

    history = multi_task.history_
    axes[2].semilogy(history["iteration"], history["gap"] / history["objective"][-1], marker="o")
    axes[2].set(title="Convergence", xlabel="iteration", ylabel="duality gap / objective")
    axes[2].grid(alpha=0.3)
    if len(sys.argv) > 1:
        figure.savefig(sys.argv[1], dpi=110)
    else:
        plt.show()


if __name__ == "__main__":
    main()
