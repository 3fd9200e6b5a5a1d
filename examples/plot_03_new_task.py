"""
A new task arrived
==================

A model of many shops is in use, and one more shop opens. With two weeks of its own sales it cannot be learned alone.
``add_task`` learns it against what the others have taught, without a refit: a small convex problem that takes
milliseconds.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor, stack

rng = np.random.default_rng(0)
d, n_old, n_new = 12, 50, 10
W = rng.normal(size=(n_old + n_new, 2)) @ rng.normal(size=(2, d))  # shops differ along two directions


def weeks_of(shop, count):
    X = rng.normal(size=(count, d))
    return X, X @ W[shop] + 1.5 * rng.normal(size=count)


Xs, ys = zip(*[weeks_of(shop, 20) for shop in range(n_old)], strict=True)
table, y = stack(list(Xs), list(ys))
model = MultiTaskRegressor("trace", alpha=1.0, task_column=-1).fit(table, y)

# %%
# Each of ten new shops comes with 2, 4, ... 40 weeks. Three ways to learn it: alone, as the mean of the old shops (for a
# shop without any data, ``unseen="mean"`` does that), and added to the model.

weeks = [2, 4, 6, 10, 20, 40]
error = {"alone": [], "mean of the old shops": [], "added with add_task": []}
seconds = []
for count in weeks:
    missed = {name: [] for name in error}
    for shop in range(n_old, n_old + n_new):
        X, y = weeks_of(shop, count)
        alone = MultiTaskRegressor("independent", alpha=0.3).fit(X, y).coef_[0]
        began = time.perf_counter()
        model.add_task(X, y, name=1000 * count + shop)  # it becomes the last task; earlier additions do not matter to it
        seconds.append(time.perf_counter() - began)
        for name, w in zip(error, (alone, model.coef_[:n_old].mean(axis=0), model.coef_[-1]), strict=True):
            missed[name].append(np.sum((w - W[shop]) ** 2))
    for name in error:
        error[name].append(np.mean(missed[name]))

# %%
# The gain is largest where the new shop has least. With more weeks of its own, it needs the others less.

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, values), colour in zip(error.items(), ("0.5", "tab:orange", "tab:blue"), strict=True):
    ax.plot(weeks, values, marker="o", label=name, color=colour)
ax.set(xlabel="weeks of data of the new shop", ylabel="squared error of its weights", xscale="log", ylim=(0, None))
ax.set_xticks(weeks, [str(w) for w in weeks])
ax.minorticks_off()
ax.set_title("Ten new shops, added to a model of fifty")
ax.legend()
plt.show()

print(f"add_task took {1000 * np.median(seconds):.1f} ms (median of {len(seconds)})")

# %%
# If you know how the new task relates to the old ones, say so with ``relation=``. And the structure is there to read: row
# ``-1`` of ``task_correlation()`` tells which old shops the newcomer resembles.
