"""
Some targets are missing
========================

Rarely is every target measured for every row. Put ``NaN`` where nobody looked: a missing target drops out of the sum,
and nothing is imputed. A row that one task lacks still teaches the others, and through the structure it teaches the
task that lacks it.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressor
from taskloom.metrics import macro_r2

rng = np.random.default_rng(0)
n, d, T = 80, 12, 10
W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, T))  # ten tasks, two directions in common
X, X_test = rng.normal(size=(n, d)), rng.normal(size=(500, d))
Y = X @ W + 2 * rng.normal(size=(n, T))
Y_test = X_test @ W + 2 * rng.normal(size=(500, T))

# %%
# Knock out more and more targets at random, and learn from what is left: together (the trace structure) and alone.

shares = [0.0, 0.2, 0.4, 0.6, 0.7, 0.8]
luck = rng.random(Y.shape)
scores = {"together": [], "alone": []}
for share in shares:
    seen = np.where(luck < share, np.nan, Y)
    for name, structure, alpha in (("together", "trace", 0.4), ("alone", "independent", 0.05)):
        model = MultiTaskRegressor(structure, alpha=alpha).fit(X, seen)
        scores[name].append(macro_r2(Y_test, model.predict(X_test)))

# %%
# On the left, what the model sees when seven targets of ten are gone. On the right, the quality on fresh rows. The curve
# of the tasks learned together falls later.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=[1, 2])
axes[0].imshow(np.where(luck < 0.7, np.nan, 1), aspect="auto", cmap="Blues", vmin=0, vmax=1.4, interpolation="none")
axes[0].set(title="What was observed (70 % missing)", xlabel="task", ylabel="row", xticks=range(T))
for name, colour in (("together", "tab:blue"), ("alone", "0.5")):
    axes[1].plot(shares, scores[name], marker="o", color=colour, label=name)
axes[1].set(title="Quality on fresh rows", xlabel="share of targets that is missing", ylabel="mean R2 over tasks")
axes[1].legend()
axes[1].grid(alpha=0.3)
plt.show()

for share, one, other in zip(shares, scores["alone"], scores["together"], strict=True):
    print(f"{share:4.0%} missing: alone {one:.2f}, together {other:.2f}")

# %%
# Scores leave ``NaN`` out as well: ``model.score(X, Y)`` and everything in :mod:`taskloom.metrics` use the targets that
# are there. If a target is missing *because of* its value (a meter that fails in the cold), no method of this kind can
# know; the certificate is about the optimum of the objective, not about how the data came to be.
