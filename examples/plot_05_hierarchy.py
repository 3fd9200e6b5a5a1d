"""
A hierarchy is known
====================

Shops are in cities, cities in countries. Species, products, diagnoses and job titles form trees, too. With a known tree,
``TaskGraph.from_tree`` relates two tasks by the share of their branches that they have in common. The structure need not be
learned, so this works with very few data.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from taskloom import MultiTaskRegressorCV
from taskloom.structures import TaskGraph

rng = np.random.default_rng(0)
cities = {"france": ["lyon", "nantes", "lille"], "italy": ["turin", "bari", "parma"], "spain": ["vigo", "murcia", "bilbao"]}
tree = {f"{city} {k}": f"{country}/{city}" for country, towns in cities.items() for city in towns for k in (1, 2, 3)}
shops = list(tree)

# %%
# Simulate coefficients that follow the tree: each country has a random deviation, each city deviates from its country, and
# each shop from its city.

d = 8
step = {}
for shop, branch in tree.items():
    country, _ = branch.split("/")
    step.setdefault(country, rng.normal(size=d))
    step.setdefault(branch, 0.6 * rng.normal(size=d))
    step[shop] = step[country] + step[branch] + 0.2 * rng.normal(size=d)
W = np.array([step[shop] for shop in shops])


def sample(rows):
    X = pd.DataFrame(rng.normal(size=(rows * len(shops), d)), columns=[f"x{j}" for j in range(d)])
    task = np.repeat(np.arange(len(shops)), rows)
    y = np.einsum("ij,ij->i", X.to_numpy(), W[task]) + 1.5 * rng.normal(size=len(X))
    return X.assign(shop=np.array(shops)[task]), y


X_test, y_test = sample(100)

# %%
# Fit with 3, 5, 8, ... rows per shop: single-task, shrinkage to the mean, and with the tree. ``alpha`` is chosen by
# cross-validation on the squared error (R2 would need more test rows per shop).

sizes = [3, 5, 8, 12, 20]
candidates = {
    "single-task": "independent",
    "shrinkage to the mean": "shared_mean",
    "with the tree": TaskGraph.from_tree(tree, gamma=2.0),
}
scores = {name: [] for name in candidates}
for rows in sizes:
    X, y = sample(rows)
    for name, structure in candidates.items():
        search = MultiTaskRegressorCV(
            structure, alphas=6, cv=3, task_column="shop", scoring="neg_mean_squared_error", random_state=0, kernel="linear"
        )
        scores[name].append(search.fit(X, y).score(X_test, y_test))

# %%
# On the left the correlations that the tree implies, on the right the test scores.

A = TaskGraph.from_tree(tree, gamma=2.0)
A = A.bind(shops).matrix(len(shops))
figure, axes = plt.subplots(1, 2, figsize=(11, 4.3), layout="constrained")
size = np.sqrt(np.diag(A))
image = axes[0].imshow(A / np.outer(size, size), cmap="RdBu", vmin=-1, vmax=1)
axes[0].set(title="Structure from the tree", xticks=[], yticks=range(1, 27, 3))
axes[0].set_yticklabels([branch.replace("/", ", ") for branch in dict.fromkeys(tree.values())])
figure.colorbar(image, ax=axes[0], label="correlation")
for (name, values), colour in zip(scores.items(), ("0.5", "tab:orange", "tab:blue"), strict=True):
    axes[1].plot(sizes, values, marker="o", label=name, color=colour)
axes[1].set(title="Test score", xlabel="rows per shop", ylabel="mean R2 over shops", xscale="log", xticks=sizes)
axes[1].set_xticks(sizes, [str(s) for s in sizes])
axes[1].minorticks_off()
axes[1].legend()
axes[1].grid(alpha=0.3)
plt.show()

for name, values in scores.items():
    print(f"{name:21s}", "  ".join(f"{rows} rows: {score:.2f}" for rows, score in zip(sizes, values, strict=True)))
