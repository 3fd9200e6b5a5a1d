"""
How sure is it?
===============

Three questions in one. How sure is a *prediction*? How sure is a *relation* between two tasks? And how sure is it that
the *optimum* was found? Each has an answer of its own.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor, stability

# %%
# **Predictions.** ``predict(X, return_std=True)`` gives the standard deviation of a Gaussian-process posterior whose mean
# is the fit. Here one task has forty readings, and its sibling has six, all of them on the left.

rng = np.random.default_rng(2)
x = rng.random((60, 1)) * 6


def curve(x):
    return np.sin(x[:, 0]) + 0.3 * x[:, 0]


Y = np.column_stack([curve(x), curve(x) + 0.5, -curve(x)]) + 0.25 * rng.normal(size=(60, 3))
Y[rng.random(60) < 0.3, 0] = np.nan
left = np.flatnonzero(x[:, 0] < 3)[:6]
Y[np.setdiff1d(np.arange(60), left), 1] = np.nan

together = MultiTaskRegressor("frobenius", kernel="rbf", gamma=0.5, alpha=1e-4, task_weight="size").fit(x, Y)
alone = MultiTaskRegressor("independent", kernel="rbf", gamma=0.5, alpha=0.003, task_weight="size").fit(x, Y)

grid = np.linspace(0, 6, 200)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, model, title in zip(axes, (alone, together), ("learned alone", "learned with its siblings"), strict=True):
    mean, std = model.predict(grid, return_std=True)
    band = 1.96 * np.sqrt(std[:, 1] ** 2 + model.noise_[1] ** 2)
    ax.fill_between(grid[:, 0], mean[:, 1] - band, mean[:, 1] + band, alpha=0.2, label="95 % for a new reading")
    ax.plot(grid, mean[:, 1], label="prediction")
    ax.plot(grid, curve(grid) + 0.5, color="0.5", linestyle="--", label="truth")
    ax.scatter(x[left], Y[left, 1], color="0.2", s=24, zorder=3, label="the six readings")
    ax.set(title=f"The task with six readings, {title}", xlabel="x")
axes[0].legend(fontsize=8)
plt.show()

# %%
# The posterior takes the structure and the strength as known, so the band is a little too narrow when data are few.
#
# **Relations.** ``stability`` fits again and again to rows drawn with replacement, and gives an interval for each pair of
# tasks. Here two tasks are alike, one is their opposite, and one has nothing to do with them.

n = 100
X = rng.normal(size=(n, 5))
w, other = rng.normal(size=(2, 5))
Z = np.column_stack([X @ w, X @ w, -X @ w, X @ (other - w * (w @ other) / (w @ w))]) + 1.5 * rng.normal(size=(n, 4))
found = stability(MultiTaskRegressor("frobenius", alpha=0.02), X, Z, n_resamples=60, level=0.98)

pairs = [(0, 1, "alike"), (0, 2, "opposed"), (1, 2, "opposed"), (0, 3, "unrelated"), (1, 3, "unrelated"), (2, 3, "unrelated")]
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for row, (t, s, _) in enumerate(pairs):
    sure = found.certain[t, s]
    colour = "tab:blue" if sure else "0.6"
    ax.plot([found.lower[t, s], found.upper[t, s]], [row, row], color=colour, linewidth=3)
    ax.plot(found.median[t, s], row, "o", color=colour)
ax.axvline(0, color="0.4", linewidth=1)
ax.set_yticks(range(6), [f"tasks {t} and {s} ({planted})" for t, s, planted in pairs])
ax.set(
    xlabel="learned correlation: median and 98 % of the resamples",
    xlim=(-1.05, 1.05),
    title="Blue: the interval does not hold zero",
)
ax.invert_yaxis()
plt.show()

# %%
# **The optimum.** Every fit says how far, at most, its objective is from the minimum. That is a proof, not an estimate;
# see :doc:`/certificates`.

print(together.certificate_.message)
