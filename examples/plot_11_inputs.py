"""
Which inputs matter?
====================

Ten clinics measure the same forty variables of their patients, and each predicts its own outcome. If the same few variables
matter everywhere, they can be found from the data of all clinics, although no clinic has enough patients.
``FeatureSelection`` selects an input for all tasks or for none. It is scikit-learn's ``MultiTaskLasso``, with task-specific
inputs, missing targets, weights and any loss.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV

from taskloom import MultiTaskRegressorCV, stack, structures

rng = np.random.default_rng(0)
T, d, rows = 10, 40, 30
matter = [3, 11, 19, 27, 34]
W = np.zeros((d, T))
W[matter] = rng.choice([-1, 1], size=(5, T)) * rng.uniform(0.4, 1.0, size=(5, T))
Xs = [rng.normal(size=(rows, d)) for _ in range(T)]  # each clinic has its own patients
ys = [X @ w + 1.2 * rng.normal(size=rows) for X, w in zip(Xs, W.T, strict=True)]

# %%
# A multi-task model with ``alpha`` by cross-validation; and single-task models, with scikit-learn's ``LassoCV``.

table, y = stack(Xs, ys)
multi_task = MultiTaskRegressorCV(
    structures.FeatureSelection(), alphas=12, cv=3, task_column=-1, random_state=0, kernel="linear"
).fit(table, y)
single_task = np.array([LassoCV(cv=3).fit(X, target).coef_ for X, target in zip(Xs, ys, strict=True)])

figure, axes = plt.subplots(1, 3, figsize=(11, 4.6), layout="constrained", sharey=True)
for ax, weights, title in zip(
    axes, (W, multi_task.coef_.T, single_task.T), ("truth", "multi-task", "single-task"), strict=True
):
    ax.imshow(weights, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    ax.set(title=title, xlabel="clinic", xticks=range(0, T, 3))
axes[0].set_ylabel("input")
plt.show()

# %%
# An input is selected when its row is not zero. Cross-validation chooses ``alpha`` for prediction, not for selection, so it
# selects some inputs too many, with small coefficients. Ranked by the norm of their rows, the true ones come first.

size = np.linalg.norm(multi_task.coef_, axis=0)
kept = np.flatnonzero(size)
print(f"selected {kept.size} of {d} inputs; the five largest: {sorted(np.argsort(-size)[:5].tolist())}; true: {matter}")
print(
    f"squared error of the coefficients: multi-task {np.sum((multi_task.coef_.T - W) ** 2):.1f}, "
    f"single-task {np.sum((single_task.T - W) ** 2):.1f}"
)

colour = ["tab:blue" if j in matter else "0.7" for j in range(d)]
figure, ax = plt.subplots(figsize=(9, 3), layout="constrained")
ax.bar(range(d), size, color=colour)
ax.set(xlabel="input", ylabel="norm of its row", title="Blue: the true inputs")
plt.show()
