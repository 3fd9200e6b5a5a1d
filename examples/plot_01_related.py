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
n_shops, weeks, d = 32, 24, 12
kind = np.arange(n_shops) % 4
task = np.repeat(np.arange(n_shops), weeks)
X = rng.normal(size=(n_shops * weeks, d))
by_kind = rng.normal(size=(4, d))[kind] + 0.2 * rng.normal(size=(n_shops, d))  # weights that shops of a kind nearly share
own_way = rng.normal(size=(n_shops, d))  # weights that no two shops share
noise = 1.8 * rng.normal(size=len(X))
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
    alone, together = (np.mean(ledger[column]) for column in ("alone", "together"))
    clear = int(np.sum(ledger["gain"] > 2 * ledger["standard_error"]))
    hurt = int(np.sum(ledger["gain"] < -2 * ledger["standard_error"]))
    print(f"{name:9s}  mean R2 alone {alone:.2f}, together {together:.2f}; {clear} tasks gain clearly, {hurt} lose clearly")

# %%
# Each dot is a shop, with two standard errors to either side. Related shops gain; unrelated ones scatter around zero,
# which is the answer "no, they are not related (or not in a way that this structure can express)".

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
for ax, ledger, title in zip(
    axes, (related, unrelated), ("Shops of four hidden kinds", "Shops with nothing in common"), strict=True
):
    order = np.argsort(ledger["gain"])
    gain, error = ledger["gain"][order], ledger["standard_error"][order]
    colour = np.where(gain > 2 * error, "tab:blue", np.where(gain < -2 * error, "tab:red", "0.55"))
    ax.axhline(0, color="0.4", linewidth=1)
    ax.vlines(np.arange(n_shops), gain - 2 * error, gain + 2 * error, color=colour, alpha=0.5)
    ax.scatter(np.arange(n_shops), gain, c=colour, s=18)
    ax.set(title=title, xlabel="shops, sorted by gain", xticks=[])
axes[0].set(ylabel="gain in R2 by learning together")
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
