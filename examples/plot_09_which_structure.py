"""
Which structure fits?
=====================

Seven structures in six simulated scenarios with different relations between tasks. Every structure gets the best ``alpha``
of its regularisation path, chosen on held-out rows; its test error is compared with that of single-task learning.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import Problem, path
from taskloom.solvers import strength_grid
from taskloom.structures import Clusters, Robust, SharedMean, TaskGraph

T, d = 20, 10


def scenarios(rng):
    """Name -> true coefficients (d x T)."""
    centre = rng.normal(size=(d, 4))
    near_mean = rng.normal(size=(d, 1)) + 0.4 * rng.normal(size=(d, T))
    walk = np.cumsum(0.5 * rng.normal(size=(d, T)), axis=1)
    columns = np.zeros((d, T))
    columns[:3] = 1.6 * rng.normal(size=(3, T))
    return {
        "common mean": near_mean,
        "four clusters": centre[:, np.arange(T) % 4] + 0.2 * rng.normal(size=(d, T)),
        "rank two": rng.normal(size=(d, 2)) @ rng.normal(size=(2, T)) * 0.8,
        "a chain in time": walk,
        "the same three inputs": columns,
        "unrelated": rng.normal(size=(d, T)),
    }


candidates = {
    "SharedMean": SharedMean(5.0),
    "Clusters(4)": Clusters(4, mean=1.0, within=30.0),
    "Trace": "trace",
    "Frobenius": "frobenius",
    "TaskGraph.chain": TaskGraph.chain(T, gamma=0.2),
    "FeatureSelection": "feature_selection",
    "Robust": Robust(0.8),
}

# %%
# Fourteen rows and ten inputs, too few for good single-task models. Errors are relative to single-task learning, the mean
# of two draws: below 1, multi-task learning helps.


def error(structure, X, Y, held_out, fresh):
    """The test error, at the alpha with the least error on the held-out rows."""
    problem = Problem(X, Y, structure=structure)
    tried = [
        (np.mean((held_out[0] @ s.W + s.b - held_out[1]) ** 2), s)
        for s in path(problem, strength_grid(problem, 10, 4.5), tol=1e-3)
    ]
    best = min(tried, key=lambda pair: pair[0])[1]
    return np.mean((fresh[0] @ best.W + best.b - fresh[1]) ** 2)


draws = 2
ratio = np.zeros((6, len(candidates)))
for draw in range(draws):
    rng = np.random.default_rng(draw)
    for i, W in enumerate(scenarios(rng).values()):
        X, X_held, X_fresh = (rng.normal(size=(rows, d)) for rows in (14, 30, 500))
        Y, Y_held = (inputs @ W + 1.5 * rng.normal(size=(len(inputs), T)) for inputs in (X, X_held))
        data = X, Y, (X_held, Y_held), (X_fresh, X_fresh @ W)
        single = error("independent", *data)
        ratio[i] += [error(structure, *data) / single / draws for structure in candidates.values()]

# %%
# Bold is the best structure of a scenario. The structure that matches the scenario is the best, or as good as the best, and
# lowers the error by a fifth to more than a half. In the last row, where tasks are unrelated, learned structures lose little,
# because ``alpha`` can be small. So a learned structure is a good first choice; use a known one only where it is known.

names = list(scenarios(np.random.default_rng(0)))
figure, ax = plt.subplots(figsize=(9.5, 4.6), layout="constrained")
image = ax.imshow(np.log2(ratio), cmap="RdBu_r", vmin=-1.6, vmax=1.6, aspect="auto")
for i in range(len(names)):
    best = np.argmin(ratio[i])
    for j in range(len(candidates)):
        ax.text(
            j,
            i,
            f"{ratio[i, j]:.2f}",
            ha="center",
            va="center",
            weight="bold" if j == best else "normal",
            color="white" if abs(np.log2(ratio[i, j])) > 1 else "black",
        )
ax.set_xticks(range(len(candidates)), list(candidates), rotation=20, ha="right")
ax.set_yticks(range(len(names)), names)
ax.set(
    title="Test error relative to single-task learning (below 1: multi-task learning helps)",
    xlabel="structure",
    ylabel="scenario",
)
plt.show()

# %%
# ``MultiTaskRegressorCV(structures=[...])`` makes this comparison on your own data; :doc:`/choosing` helps to choose the
# candidates.
