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

from taskloom import MultiTaskRegressor
from taskloom.datasets import load_shops

shops = load_shops()
table = np.column_stack([shops.X, shops.task])
old = shops.task < 52  # fifty-two shops are known; eight arrive later
model = MultiTaskRegressor("trace", alpha=0.3, task_column=-1).fit(table[old], shops.y[old])

# %%
# Each new shop comes with 2, 3, ... 11 weeks. Three ways to predict its next forty weeks: learned alone, as the mean of
# the old shops (for a shop without any data, ``unseen="mean"`` does that), and added to the model.

weeks = [2, 3, 4, 6, 8, 11]
error = {"alone": [], "mean of the old shops": [], "added with add_task": []}
seconds = []


def mean_squared(w, b, shop):
    mine = shops.task_test == shop
    return np.mean((shops.X_test[mine] @ w + b - shops.y_test[mine]) ** 2)


for count in weeks:
    rows = {name: [] for name in error}
    for shop in range(52, 60):
        X, y = shops.X[shops.task == shop][:count], shops.y[shops.task == shop][:count]
        alone = MultiTaskRegressor("independent", alpha=0.3).fit(X, y)
        rows["alone"].append(mean_squared(alone.coef_[0], alone.intercept_[0], shop))
        mean = model.coef_[:52].mean(axis=0)
        rows["mean of the old shops"].append(mean_squared(mean, np.mean(y - X @ mean), shop))
        began = time.perf_counter()
        model.add_task(X, y, name=1000 * count + shop)  # it becomes the last task; earlier additions do not influence it
        seconds.append(time.perf_counter() - began)
        rows["added with add_task"].append(mean_squared(model.coef_[-1], model.intercept_[-1], shop))
    for name in error:
        error[name].append(np.mean(rows[name]))

# %%
# The gain is largest where the new shop has least. With more weeks of its own, it needs the others less.

figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, values), colour in zip(error.items(), ("0.5", "tab:orange", "tab:blue"), strict=True):
    ax.plot(weeks, values, marker="o", label=name, color=colour)
ax.axhline(1.5**2, color="0.3", linestyle=":", label="noise: nobody can do better")
ax.set(xlabel="weeks of data of the new shop", ylabel="squared error on its next 40 weeks", xticks=weeks, ylim=(0, None))
ax.set_title("Eight new shops, added to a model of fifty-two")
ax.legend()
plt.show()

print(f"add_task took {1000 * np.median(seconds):.1f} ms (median of {len(seconds)})")

# %%
# If you know how the new task relates to the old ones, say so with ``relation=``. And the structure is there to read: row
# ``-1`` of ``task_correlation()`` tells which old shops the newcomer resembles.
