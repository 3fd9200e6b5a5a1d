"""
New tasks, from what is known of them
=====================================

A chain opens shops in new places. A new shop has no sales yet, so that nothing of its own can be learned; but its size, its
distance to the station and its kind of place are known. ``described_by=`` makes such descriptors a term: they say what the
function of a shop looks like, also for a shop without any data.

How good that is can be measured: ``TaskKFold(leave="tasks")`` leaves out whole shops.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_score

from taskloom import MultiTaskRegressor, TaskKFold, Term

rng = np.random.default_rng(0)
n_shops, weeks = 60, 15
size, distance = rng.normal(size=(2, n_shops))
place = rng.choice(["centre", "mall", "village"], n_shops)
level = (
    size - 0.5 * distance + np.select([place == "centre", place == "mall"], [0.8, 0.0], -0.8) + 0.4 * rng.normal(size=n_shops)
)
slope = -1.0 + 0.6 * distance + 0.2 * rng.normal(size=n_shops)  # far from the station people mind the price less


def sales(shop, price):
    return 10 + level[shop] + slope[shop] * price


shop = np.repeat(np.arange(n_shops), weeks)
price = rng.normal(size=shop.size)
y = sales(shop, price) + rng.normal(size=shop.size)
X = pd.DataFrame({"price": price, "shop": shop, "size": size[shop], "distance": distance[shop], "place": place[shop]})

# %%
# Four models. A function of each shop is shrunk towards what is common to all; the third has the descriptors as inputs, so that
# they change the level of sales; in the last they describe the shop, so that they change its level and its slope. Categories
# enter one-hot.

common = Term("linear", columns=["price"], weight=np.inf)
own = Term("linear", by="shop", columns=["price"], intercept=True)
facts = ["size", "distance", "place"]
described = Term("linear", by="shop", columns=["price"], intercept=True, described_by=facts, weight=10.0)
candidates = {
    "common": [common],
    "common + own": [common, own],
    "common + own + inputs": [common, own, Term("linear", columns=["size", "distance"]), Term("constant", by="place")],
    "common + own + described": [common, own, described],
}

# %%
# Two questions, and two ways to leave out: *rows* of shops that were seen, or *shops*. For new weeks of old shops their own
# data say it all; for new shops the descriptors do.

score = {}
for leave in ("rows", "tasks"):
    folds = TaskKFold(5, leave=leave, task_column="shop")
    for name, terms in candidates.items():
        model = MultiTaskRegressor(terms=terms, alpha=1.0 / len(y))
        score[name, leave] = cross_val_score(model, X, y, cv=folds, scoring="r2")
        print(f"{name:25s} R2 of new {leave:5s} {score[name, leave].mean():.2f}")

# %%
# Right: four shops that the model has not seen. Lines are predictions from descriptors alone, dots are their sales.

held = shop >= n_shops - 4
model = MultiTaskRegressor(terms=candidates["common + own + described"], alpha=1.0 / held.size).fit(X[~held], y[~held])
blind = MultiTaskRegressor(terms=candidates["common + own"], alpha=1.0 / held.size).fit(X[~held], y[~held])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=[1, 1.2])
place_of = np.arange(len(candidates))
for shift, (leave, title) in zip((0.2, -0.2), {"rows": "new weeks of old shops", "tasks": "new shops"}.items(), strict=True):
    means = [score[name, leave].mean() for name in candidates]
    deviations = [score[name, leave].std(ddof=1) / np.sqrt(5) for name in candidates]
    left.barh(place_of - shift, means, height=0.38, xerr=deviations, label=title)
left.set_yticks(place_of, candidates)
left.invert_yaxis()
left.set(xlabel="R2 by cross-validation, with its standard error", xlim=(0, 1))
left.legend(fontsize=8, loc="upper right")

grid = np.linspace(-2.5, 2.5, 20)
for k, colour in zip(range(n_shops - 4, n_shops), plt.cm.tab10.colors, strict=False):
    new = X[shop == k].iloc[:1]
    new = new.loc[new.index.repeat(len(grid))].assign(price=grid)
    right.plot(grid, model.predict(new), color=colour, label=f"{place[k]}, size {size[k]:+.1f}, distance {distance[k]:+.1f}")
    right.scatter(price[shop == k], y[shop == k], color=colour, s=16, alpha=0.7)
right.plot(grid, blind.predict(new), color="0.3", linestyle="--", label="any new shop, without descriptors")
right.set(title="Four new shops, before they open", xlabel="price", ylabel="sales", ylim=(3, 18))
right.legend(fontsize=8)
plt.show()

# %%
# ``coef_frame()`` has the function of each shop that its descriptors say; ``predict_terms`` splits a prediction.

print(model.certificate_.message)
