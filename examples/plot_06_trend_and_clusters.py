"""
Trend plus clusters
===================

Some predictors are sums of terms: one that is common to all tasks, and one that is shared within clusters. This is a list of
kernels, each with its own structure. It is still one convex problem with one certificate.

Twelve stations record a quantity through the year. All have the same linear trend; half have a peak early in the year,
half late.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor
from taskloom.structures import Clusters, SharedMean

rng = np.random.default_rng(0)
T = 12
cluster = np.arange(T) % 2
time = np.linspace(0, 4, 200)[:, None]  # in quarters of a year


def truth(t, x):
    wave = np.where(cluster[t] == 0, np.exp(-(((x - 1) / 0.4) ** 2)), np.exp(-(((x - 3) / 0.4) ** 2)))
    return 0.6 * x + 1.5 * wave


# %%
# Each station has fourteen observations at its own times: a long table, with the station in the second column.

station = np.repeat(np.arange(T), 14)
when = 4 * rng.random(station.size)
observed = truth(station, when) + 0.3 * rng.normal(size=station.size)
table = np.column_stack([when, station])

# %%
# A linear kernel under ``SharedMean`` with a large ``gamma`` (almost one trend for all), and a Gaussian kernel under
# ``Clusters(2)`` (two clusters of peaks). ``mean=10`` penalises the mean of the peaks, so that what is common to all tasks is
# in the trend.

both = MultiTaskRegressor(
    [SharedMean(100.0), Clusters(2, mean=10.0)], kernel=["linear", "rbf"], gamma=2.0, alpha=0.003, task_column=-1
).fit(table, observed)
one = MultiTaskRegressor("independent", kernel="rbf", gamma=2.0, alpha=0.003, task_column=-1).fit(table, observed)
print(both.certificate_.message)

# %%
# The two terms, for one station of each cluster. Dots are the observations of the station.

figure, axes = plt.subplots(2, 2, figsize=(10, 6.4), layout="constrained", sharex=True)
for row, t in enumerate((0, 1)):
    grid = np.column_stack([time, np.full(200, float(t))])
    trend, smooth = both.predict_terms(grid)
    left, right = axes[row]
    left.scatter(when[station == t], observed[station == t], color="0.3", s=22, zorder=3, label="observations")
    left.plot(time, truth(t, time[:, 0]), color="0.6", linestyle="--", label="truth")
    left.plot(time, both.predict(grid), color="tab:blue", label="multi-task")
    left.plot(time, one.predict(grid), color="tab:orange", linewidth=1, label="single-task")
    left.set(title=f"Station {t}", ylabel="observed")
    right.plot(time, trend, color="tab:green", label="trend, shared by all")
    right.plot(time, smooth, color="tab:purple", label="smooth term, shared in its cluster")
    right.set_title("its two terms")
axes[0, 0].legend(fontsize=8)
axes[0, 1].legend(fontsize=8)
for ax in axes[1]:
    ax.set_xlabel("time, in quarters of a year")
plt.show()

# %%
# ``structure_`` is a list, one matrix per kernel. The second has the two clusters.

covariance = both.structure_[1]
same = cluster[:, None] == cluster[None, :]
off = ~np.eye(T, dtype=bool)
within, between = covariance[same & off].mean(), covariance[~same].mean()
print(f"mean covariance {within:.2f} within clusters, {between:.2f} between them")

grids = np.column_stack([np.tile(time[:, 0], T), np.repeat(np.arange(T), 200)])
target = truth(grids[:, 1].astype(int), grids[:, 0])
for name, model in (("single-task", one), ("trend plus clusters", both)):
    print(f"{name:20s} root mean squared error {np.sqrt(np.mean((model.predict(grids) - target) ** 2)):.3f}")
