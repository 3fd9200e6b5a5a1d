"""
Are my tasks related?
=====================

Multi-task learning helps where tasks are related. Where they are unrelated it cannot help, and it may hurt. You do not
have to know beforehand: ``transfer_`` of a search compares the multi-task and the single-task score of every task, by
cross-validation.

Here are two tables of the same shape. In the first, thirty-two shops form four clusters with similar coefficients. In the
second, the shops are unrelated.
"""

import matplotlib.pyplot as plt
import numpy as np

from taskloom import MultiTaskRegressorCV

rng = np.random.default_rng(1)
n_shops, weeks, d = 32, 40, 20
cluster = np.arange(n_shops) % 4
task = np.repeat(np.arange(n_shops), weeks)
X = rng.normal(size=(n_shops * weeks, d))
clustered = rng.normal(size=(4, d))[cluster] + 0.2 * rng.normal(size=(n_shops, d))  # similar coefficients within a cluster
independent = rng.normal(size=(n_shops, d))  # independent coefficients
noise = 2.5 * rng.normal(size=len(X))
y = np.einsum("ij,ij->i", X, clustered[task]) + noise
y_unrelated = np.einsum("ij,ij->i", X, independent[task]) + noise

# %%
# One search per table. The task of each row is the last column of ``X``. ``MultiTaskRegressorCV`` chooses the
# regularisation strength ``alpha`` by cross-validation.

table = np.column_stack([X, task])
search = MultiTaskRegressorCV("trace", alphas=10, cv=4, task_column=-1, random_state=0, kernel="linear").fit(table, y)
control = MultiTaskRegressorCV("trace", alphas=10, cv=4, task_column=-1, random_state=0, kernel="linear").fit(
    table, y_unrelated
)
related, unrelated = search.transfer_, control.transfer_

for name, transfer in (("related", related), ("unrelated", unrelated)):
    single, multi, gain = (transfer[column] for column in ("alone", "together", "gain"))
    error = gain.std(ddof=1) / np.sqrt(n_shops)
    print(
        f"{name:9s}  R2 single-task {single.mean():.2f}, multi-task {multi.mean():.2f}; gain {gain.mean():+.2f} +- {error:.2f}"
    )

# %%
# Each dot is a shop, plus and minus one standard error over the folds; the line is the mean of all shops. Related shops
# gain. Unrelated ones scatter around zero: they are not related, or not in a way that this structure can express. The
# gains of single shops are noisy with four folds; look at the mean first.

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
titles = "Shops in four clusters", "Unrelated shops"
for ax, transfer, title in zip(axes, (related, unrelated), titles, strict=True):
    order = np.argsort(transfer["gain"])
    gain, error = transfer["gain"][order], transfer["standard_error"][order]
    colour = np.where(gain > 0, "tab:blue", "tab:red")
    ax.axhline(0, color="0.4", linewidth=1)
    ax.axhline(gain.mean(), color="tab:green", linestyle="--", label=f"mean {gain.mean():+.2f}")
    ax.vlines(np.arange(n_shops), gain - error, gain + error, color=colour, alpha=0.4)
    ax.scatter(np.arange(n_shops), gain, c=colour, s=18)
    ax.set(title=title, xlabel="shops, sorted by gain", xticks=[])
    ax.legend(loc="upper left")
axes[0].set_ylabel("gain in R2 over single-task models")
plt.show()

# %%
# ``structure_`` is the learned covariance of the tasks, ``task_correlation()`` has the correlations. Sorted by
# ``task_clusters``, the four clusters appear as blocks.

groups = search.task_clusters(4)
order = np.argsort(groups, kind="stable")
figure, ax = plt.subplots(figsize=(5, 4.2), layout="constrained")
image = ax.imshow(search.task_correlation()[np.ix_(order, order)], cmap="RdBu", vmin=-1, vmax=1)
figure.colorbar(image, label="learned correlation")
ax.set(
    title="Correlations of tasks", xlabel="shops, sorted by cluster", ylabel="shops, sorted by cluster", xticks=[], yticks=[]
)
plt.show()

found = [np.bincount(cluster[groups == g], minlength=4).max() for g in range(4)]
print(f"{sum(found)} of {n_shops} shops are in the right cluster")
