"""
Are my tasks related?
=====================

Learning tasks together helps where they have something in common. Where they have nothing in common it cannot help, and
it may hurt. You do not have to know beforehand: the *transfer ledger* of a search compares every task learned together
with the same task learned alone, on data that neither saw.

Here are two tables of the same shape. In the first, thirty-two shops of four hidden kinds react alike within their
kind. In the second, every shop goes its own way.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressorCV

rng = np.random.default_rng(1)
n_shops, weeks, d = 32, 40, 20
kind = np.arange(n_shops) % 4
task = np.repeat(np.arange(n_shops), weeks)
X = rng.normal(size=(n_shops * weeks, d))
by_kind = rng.normal(size=(4, d))[kind] + 0.2 * rng.normal(size=(n_shops, d))  # weights that shops of a kind nearly share
own_way = rng.normal(size=(n_shops, d))  # weights that no two shops share
noise = 2.5 * rng.normal(size=len(X))
y = np.einsum("ij,ij->i", X, by_kind[task]) + noise
y_unrelated = np.einsum("ij,ij->i", X, own_way[task]) + noise

# %%
# One search for each table. The task of each row travels in the last column of ``X``. ``MultiTaskRegressorCV`` chooses
# the strength ``alpha`` by cross-validation.

table = np.column_stack([X, task])
search = MultiTaskRegressorCV("trace", alphas=10, cv=4, task_column=-1, random_state=0).fit(table, y)
control = MultiTaskRegressorCV("trace", alphas=10, cv=4, task_column=-1, random_state=0).fit(table, y_unrelated)
related, unrelated = search.transfer_, control.transfer_

for name, ledger in (("related", related), ("unrelated", unrelated)):
    alone, together, gain = (ledger[column] for column in ("alone", "together", "gain"))
    error = gain.std(ddof=1) / np.sqrt(n_shops)
    print(
        f"{name:9s}  mean R2 alone {alone.mean():.2f}, together {together.mean():.2f}; gain {gain.mean():+.2f} +- {error:.2f}"
    )

# %%
# Each dot is a shop, with one standard error over the folds to either side; the line is the mean of all shops. Related
# shops gain. Unrelated ones scatter around zero, which is the answer "no, they are not related, or not in a way that this
# structure can express". Single shops are noisy: four folds do not say much about one of them. Trust the mean first.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
titles = "Shops of four hidden kinds", "Shops with nothing in common"
for ax, ledger, title in zip(axes, (related, unrelated), titles, strict=True):
    order = np.argsort(ledger["gain"])
    gain, error = ledger["gain"][order], ledger["standard_error"][order]
    colour = np.where(gain > 0, "tab:blue", "tab:red")
    ax.axhline(0, color="0.4", linewidth=1)
    ax.axhline(gain.mean(), color="tab:green", linestyle="--", label=f"mean {gain.mean():+.2f}")
    ax.vlines(np.arange(n_shops), gain - error, gain + error, color=colour, alpha=0.4)
    ax.scatter(np.arange(n_shops), gain, c=colour, s=18)
    ax.set(title=title, xlabel="shops, sorted by gain", xticks=[])
    ax.legend(loc="upper left")
axes[0].set_ylabel("gain in R2 by learning together")
plt.show()

# %%
# Who is related to whom is in ``structure_``; as correlations in ``task_correlation()``. Sorted by the groups that
# ``task_clusters`` finds, the four hidden kinds stand together (nobody told the model that there are four).

groups = search.task_clusters(4)
order = np.argsort(groups, kind="stable")
figure, ax = plt.subplots(figsize=(5, 4.2), layout="constrained")
image = ax.imshow(search.task_correlation()[np.ix_(order, order)], cmap="RdBu", vmin=-1, vmax=1)
figure.colorbar(image, label="learned correlation")
ax.set(title="Who is related to whom", xlabel="shops, sorted by group", ylabel="shops, sorted by group", xticks=[], yticks=[])
plt.show()

found = [np.bincount(kind[groups == g], minlength=4).max() for g in range(4)]
print(f"{sum(found)} of {n_shops} shops are in the group of their hidden kind")
