"""
Which inputs matter?
====================

Ten clinics measure the same forty things about their patients, and each predicts an outcome of its own. If the same few
things matter everywhere, clinics can find them together, although none has enough patients to find them alone.
``FeatureSelection`` keeps an input for all tasks or drops it for all. It is scikit-learn's ``MultiTaskLasso``, except that
tasks may have rows of their own, gaps, weights and any loss.
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
Xs = [rng.normal(size=(rows, d)) for _ in range(T)]  # every clinic has patients of its own
ys = [X @ w + 1.2 * rng.normal(size=rows) for X, w in zip(Xs, W.T, strict=True)]

# %%
# Together, with the strength by cross-validation; and each clinic alone, with scikit-learn's ``LassoCV``.

table, y = stack(Xs, ys)
together = MultiTaskRegressorCV(structures.FeatureSelection(), alphas=12, cv=3, task_column=-1, random_state=0).fit(table, y)
alone = np.array([LassoCV(cv=3).fit(X, target).coef_ for X, target in zip(Xs, ys, strict=True)])

figure, axes = plt.subplots(1, 3, figsize=(11, 4.6), layout="constrained", sharey=True)
for ax, weights, title in zip(axes, (W, together.coef_.T, alone.T), ("planted", "together", "each alone"), strict=True):
    ax.imshow(weights, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    ax.set(title=title, xlabel="clinic", xticks=range(0, T, 3))
axes[0].set_ylabel("input")
plt.show()

# %%
# An input matters when its row is not zero. Cross-validation chooses the strength for prediction, not for selection, so it
# keeps some inputs too many; their rows are faint. Ranked by the length of their rows, the planted ones come first.

size = np.linalg.norm(together.coef_, axis=0)
kept = np.flatnonzero(size)
print(f"kept {kept.size} of {d} inputs; the five largest: {sorted(np.argsort(-size)[:5].tolist())}; planted: {matter}")
print(
    f"squared error of the weights: together {np.sum((together.coef_.T - W) ** 2):.1f}, alone {np.sum((alone.T - W) ** 2):.1f}"
)

colour = ["tab:blue" if j in matter else "0.7" for j in range(d)]
figure, ax = plt.subplots(figsize=(9, 3), layout="constrained")
ax.bar(range(d), size, color=colour)
ax.set(xlabel="input", ylabel="length of its row", title="Blue: the inputs that were planted")
plt.show()
