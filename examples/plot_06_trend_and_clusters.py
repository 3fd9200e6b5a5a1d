"""
Trend plus clusters
===================

Many predictors are sums: something that all tasks share, plus something that is shared inside groups only. A list of
kernels says so. Each kernel has a structure of its own, and all of it is still one convex problem with one certificate.

Twelve stations record a quantity through the year. All of them drift upward alike; half peak in the morning of the
year, half in its evening.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor
from taskloom.structures import Clusters, SharedMean

rng = np.random.default_rng(0)
T = 12
kind = np.arange(T) % 2
time = np.linspace(0, 4, 200)[:, None]  # in quarters of a year


def truth(t, x):
    wave = np.where(kind[t] == 0, np.exp(-(((x - 1) / 0.4) ** 2)), np.exp(-(((x - 3) / 0.4) ** 2)))
    return 0.6 * x + 1.5 * wave


# %%
# Each station has fourteen readings, at times of its own: a long table, the station in the second column.

station = np.repeat(np.arange(T), 14)
when = 4 * rng.random(station.size)
reading = truth(station, when) + 0.3 * rng.normal(size=station.size)
table = np.column_stack([when, station])

# %%
# A linear kernel under ``SharedMean`` with a large ``gamma`` (nearly one trend for all), and a Gaussian kernel under
# ``Clusters(2)`` (two kinds of bump). ``mean=10`` makes it expensive for the bumps to have a common part: what all share
# belongs to the trend.

both = MultiTaskRegressor(
    [SharedMean(100.0), Clusters(2, mean=10.0)], kernel=["linear", "rbf"], gamma=2.0, alpha=0.003, task_column=-1
).fit(table, reading)
one = MultiTaskRegressor("independent", kernel="rbf", gamma=2.0, alpha=0.003, task_column=-1).fit(table, reading)
print(both.certificate_.message)

# %%
# The addends, for one station of each kind. Dots are all that is known about a station.

figure, axes = plt.subplots(2, 2, figsize=(10, 6.4), layout="constrained", sharex=True)
for row, t in enumerate((0, 1)):
    grid = np.column_stack([time, np.full(200, float(t))])
    trend, smooth = both.predict_addends(grid)
    left, right = axes[row]
    left.scatter(when[station == t], reading[station == t], color="0.3", s=22, zorder=3, label="readings")
    left.plot(time, truth(t, time[:, 0]), color="0.6", linestyle="--", label="truth")
    left.plot(time, both.predict(grid), color="tab:blue", label="together")
    left.plot(time, one.predict(grid), color="tab:orange", linewidth=1, label="alone")
    left.set(title=f"Station {t}", ylabel="reading")
    right.plot(time, trend, color="tab:green", label="trend, shared by all")
    right.plot(time, smooth, color="tab:purple", label="smooth part, shared by its kind")
    right.set_title("its two addends")
axes[0, 0].legend(fontsize=8)
axes[0, 1].legend(fontsize=8)
for ax in axes[1]:
    ax.set_xlabel("time, in quarters of a year")
plt.show()

# %%
# ``structure_`` is a list, one matrix for each kernel. The second holds the two kinds.

smooth_relations = both.structure_[1]
same = kind[:, None] == kind[None, :]
off = ~np.eye(T, dtype=bool)
alike, apart = smooth_relations[same & off].mean(), smooth_relations[~same].mean()
print(f"relation of stations of one kind {alike:.2f}, of different kinds {apart:.2f}")

grids = np.column_stack([np.tile(time[:, 0], T), np.repeat(np.arange(T), 200)])
target = truth(grids[:, 1].astype(int), grids[:, 0])
for name, model in (("alone", one), ("trend plus clusters", both)):
    print(f"{name:20s} root mean squared error {np.sqrt(np.mean((model.predict(grids) - target) ** 2)):.3f}")
