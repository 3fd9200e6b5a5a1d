"""
How sure is it?
===============

Three kinds of uncertainty: that of a *prediction*, that of the *correlation* of two tasks, and the distance of the fit from
the *optimum*.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor, stability

# %%
# **Predictions.** ``predict(X, return_std=True)`` gives the standard deviation of a Gaussian-process posterior whose mean
# is the fit. Here one task has forty observations, and a related task has six, all of them on the left.

rng = np.random.default_rng(2)
x = rng.random((60, 1)) * 6


def curve(x):
    return np.sin(x[:, 0]) + 0.3 * x[:, 0]


Y = np.column_stack([curve(x), curve(x) + 0.5, -curve(x)]) + 0.25 * rng.normal(size=(60, 3))
Y[rng.random(60) < 0.3, 0] = np.nan
left = np.flatnonzero(x[:, 0] < 3)[:6]
Y[np.setdiff1d(np.arange(60), left), 1] = np.nan

multi_task = MultiTaskRegressor("frobenius", kernel="rbf", gamma=0.5, alpha=1e-4, task_weight="size").fit(x, Y)
single_task = MultiTaskRegressor("independent", kernel="rbf", gamma=0.5, alpha=0.003, task_weight="size").fit(x, Y)

grid = np.linspace(0, 6, 200)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, model, title in zip(axes, (single_task, multi_task), ("single-task", "multi-task"), strict=True):
    mean, std = model.predict(grid, return_std=True)
    band = 1.96 * np.sqrt(std[:, 1] ** 2 + model.noise_[1] ** 2)
    ax.fill_between(grid[:, 0], mean[:, 1] - band, mean[:, 1] + band, alpha=0.2, label="95 % for a new observation")
    ax.plot(grid, mean[:, 1], label="prediction")
    ax.plot(grid, curve(grid) + 0.5, color="0.5", linestyle="--", label="truth")
    ax.scatter(x[left], Y[left, 1], color="0.2", s=24, zorder=3, label="the six observations")
    ax.set(title=f"The task with six observations, {title}", xlabel="x")
axes[0].legend(fontsize=8)
plt.show()

# %%
# The posterior treats the structure and ``alpha`` as known, so the interval is slightly too narrow with few data.
#
# **Correlations.** ``stability`` refits the model to bootstrap samples, and returns an interval for each pair of tasks. Here
# two tasks are identical, one has the opposite sign, and one is unrelated.

n = 100
X = rng.normal(size=(n, 5))
w, other = rng.normal(size=(2, 5))
Z = np.column_stack([X @ w, X @ w, -X @ w, X @ (other - w * (w @ other) / (w @ w))]) + 1.5 * rng.normal(size=(n, 4))
found = stability(MultiTaskRegressor("frobenius", alpha=0.02), X, Z, n_resamples=60, level=0.98)

pairs = [
    (0, 1, "identical"),
    (0, 2, "opposite"),
    (1, 2, "opposite"),
    (0, 3, "unrelated"),
    (1, 3, "unrelated"),
    (2, 3, "unrelated"),
]
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for row, (t, s, _) in enumerate(pairs):
    sure = found.certain[t, s]
    colour = "tab:blue" if sure else "0.6"
    ax.plot([found.lower[t, s], found.upper[t, s]], [row, row], color=colour, linewidth=3)
    ax.plot(found.median[t, s], row, "o", color=colour)
ax.axvline(0, color="0.4", linewidth=1)
ax.set_yticks(range(6), [f"tasks {t} and {s} ({truth})" for t, s, truth in pairs])
ax.set(
    xlabel="learned correlation: median and 98 % bootstrap interval",
    xlim=(-1.05, 1.05),
    title="Blue: the interval does not contain zero",
)
ax.invert_yaxis()
plt.show()

# %%
# **The optimum.** The duality gap bounds the distance of the objective from the minimum; see :doc:`/certificates`.

print(multi_task.certificate_.message)
