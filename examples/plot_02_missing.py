"""
Some targets are missing
========================

Targets are often missing for some rows. Mark them by ``NaN``: they are left out of the loss, and not imputed. A row with a
missing target still contributes to the other tasks, and through the structure to the task that it misses.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor
from taskloom.metrics import macro_r2

rng = np.random.default_rng(0)
n, d, T = 80, 12, 10
W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, T))  # ten tasks, coefficients of rank two
X, X_test = rng.normal(size=(n, d)), rng.normal(size=(500, d))
Y = X @ W + 2 * rng.normal(size=(n, T))
Y_test = X_test @ W + 2 * rng.normal(size=(500, T))

# %%
# Remove more and more targets at random, and fit a multi-task model (the trace structure) and single-task models.

shares = [0.0, 0.2, 0.4, 0.6, 0.7, 0.8]
luck = rng.random(Y.shape)
scores = {"multi-task": [], "single-task": []}
for share in shares:
    seen = np.where(luck < share, np.nan, Y)
    for name, structure, alpha in (("multi-task", "trace", 0.4), ("single-task", "independent", 0.05)):
        model = MultiTaskRegressor(structure, alpha=alpha).fit(X, seen)
        scores[name].append(macro_r2(Y_test, model.predict(X_test)))

# %%
# On the left, the observed targets with 70 % missing. On the right, the score on test rows. The multi-task score falls
# later.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=[1, 2])
axes[0].imshow(np.where(luck < 0.7, np.nan, 1), aspect="auto", cmap="Blues", vmin=0, vmax=1.4, interpolation="none")
axes[0].set(title="Observed targets (70 % missing)", xlabel="task", ylabel="row", xticks=range(T))
for name, colour in (("multi-task", "tab:blue"), ("single-task", "0.5")):
    axes[1].plot(shares, scores[name], marker="o", color=colour, label=name)
axes[1].set(title="Test score", xlabel="share of missing targets", ylabel="mean R2 over tasks")
axes[1].legend()
axes[1].grid(alpha=0.3)
plt.show()

for share, one, other in zip(shares, scores["single-task"], scores["multi-task"], strict=True):
    print(f"{share:4.0%} missing: single-task {one:.2f}, multi-task {other:.2f}")

# %%
# Scores ignore ``NaN`` as well: ``model.score(X, Y)`` and the functions of :mod:`taskloom.metrics` use the observed
# targets. If targets are missing *because of* their value (a meter that fails in the cold), the estimates are biased.
