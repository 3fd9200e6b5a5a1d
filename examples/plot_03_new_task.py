"""
A new task arrived
==================

A model of many shops is in use, and one more shop opens. Two weeks of sales are not enough for a single-task model.
``add_task`` fits the new task given the learned structure, without a refit: a small convex problem that takes
milliseconds.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor, stack

rng = np.random.default_rng(0)
d, n_old, n_new = 12, 50, 10
W = rng.normal(size=(n_old + n_new, 2)) @ rng.normal(size=(2, d))  # coefficients of rank two


def weeks_of(shop, count):
    X = rng.normal(size=(count, d))
    return X, X @ W[shop] + 1.5 * rng.normal(size=count)


Xs, ys = zip(*[weeks_of(shop, 20) for shop in range(n_old)], strict=True)
table, y = stack(list(Xs), list(ys))
model = MultiTaskRegressor("trace", alpha=1.0, task_column=-1).fit(table, y)

# %%
# Each of ten new shops has 2, 4, ... 40 weeks of data. Three models: single-task, the mean of the old shops (which
# ``unseen="mean"`` predicts for a shop without data), and ``add_task``.

weeks = [2, 4, 6, 10, 20, 40]
error = {"single-task": [], "mean of the old shops": [], "add_task": []}
seconds = []
for count in weeks:
    errors = {name: [] for name in error}
    for shop in range(n_old, n_old + n_new):
        X, y = weeks_of(shop, count)
        single = MultiTaskRegressor("independent", alpha=0.3).fit(X, y).coef_[0]
        began = time.perf_counter()
        model.add_task(X, y, name=1000 * count + shop)  # it becomes the last task, independent of earlier additions
        seconds.append(time.perf_counter() - began)
        for name, w in zip(error, (single, model.coef_[:n_old].mean(axis=0), model.coef_[-1]), strict=True):
            errors[name].append(np.sum((w - W[shop]) ** 2))
    for name in error:
        error[name].append(np.mean(errors[name]))

# %%
# The gain is largest where the new shop has few weeks of data.

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, values), colour in zip(error.items(), ("0.5", "tab:orange", "tab:blue"), strict=True):
    ax.plot(weeks, values, marker="o", label=name, color=colour)
ax.set(xlabel="weeks of data of the new shop", ylabel="squared error of its coefficients", xscale="log", ylim=(0, None))
ax.set_xticks(weeks, [str(w) for w in weeks])
ax.minorticks_off()
ax.set_title("Ten new shops, added to a model of fifty")
ax.legend()
plt.show()

print(f"add_task took {1000 * np.median(seconds):.1f} ms (median of {len(seconds)})")

# %%
# Known covariances with the old tasks can be passed as ``relation=``. Row ``-1`` of ``task_correlation()`` has the
# correlations of the new task with the old ones.
