"""
Crossed groups
==============

Films have a director and a genre, and the two cross: a director works in several genres, a genre has many directors. Each
grouping explains a part of the ratings. A model that ignores one of them takes its part for that of the other: whoever directs
documentaries looks good, if documentaries are rated well.

``terms=`` adds up one term for each grouping, beside what is common to all films. In lme4 this is
``rating ~ budget + length + (1 | director) + (1 + budget + length | genre)``.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV

from taskloom import MultiTaskRegressor, Term

rng = np.random.default_rng(0)
n, directors, genres = 2000, 300, 8
favourite = rng.integers(0, genres, directors)  # most films of a director are of one genre
skill, level = 0.5 * rng.normal(size=directors), rng.permutation(np.linspace(-1, 1, genres))
slope = np.outer(rng.normal(size=genres), [0.4, -0.3])  # genres that like large budgets dislike long films

director = rng.integers(0, directors, n)
genre = np.where(rng.random(n) < 0.8, favourite[director], rng.integers(0, genres, n))
budget, length = rng.normal(size=(2, n))
rating = 6 + 0.2 * budget + skill[director] + level[genre] + slope[genre, 0] * budget + slope[genre, 1] * length
rating += 0.7 * rng.normal(size=n)

names = np.array(["action", "comedy", "crime", "documentary", "drama", "horror", "musical", "romance"])
films = pd.DataFrame({"budget": budget, "length": length, "director": director, "genre": names[genre]})
train = np.arange(n) < 1200

# %%
# The common part has no penalty (``weight=np.inf``): fixed effects. Directors have an intercept, genres an intercept and two
# slopes, whose covariance is learned. ``alpha`` is the strength of all penalties, by cross-validation.

common = Term("linear", columns=["budget", "length"], weight=np.inf)
by_director = Term("constant", by="director")
by_genre = Term("linear", by="genre", columns=["budget", "length"], intercept=True, structure="trace")

models, errors = {}, {}
for name, terms in {
    "common": [common],
    "and directors": [common, by_director],
    "and genres": [common, by_genre],
    "and both": [common, by_director, by_genre],
}.items():
    search = GridSearchCV(MultiTaskRegressor(terms=terms), {"alpha": [3e-4, 1e-3, 3e-3, 1e-2]}, cv=3)
    models[name] = search.fit(films[train], rating[train]).best_estimator_
    errors[name] = np.mean((models[name].predict(films[~train]) - rating[~train]) ** 2)
    print(f"{name:14s} mean squared error of new films {errors[name]:.2f}")

# %%
# ``summary()`` reads as that of a mixed model. Variance components are from the restricted likelihood, whatever ``alpha`` is:
# the truth is 0.25 for directors, and 0.49 for the noise.

both = models["and both"]
print(both.summary())

# %%
# Left: directors, true and estimated. Where genres are ignored, the estimates are off by the genre that a director favours
# (the colour is the true level of that genre). Right: a prediction is a sum, ``predict_terms`` has what each term adds.


def effect_of_directors(model):
    frame = model.coef_frame()
    found = frame[frame["by"] == "director"].set_index("level")["coefficient"]
    return found.reindex(range(directors))


figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", width_ratios=[1, 1, 1.1])
for ax, name, title in zip(axes, ("and directors", "and both"), ("genres ignored", "both groupings"), strict=False):
    found = effect_of_directors(models[name])
    kept = found.notna()
    points = ax.scatter(
        skill[kept],
        found[kept],
        c=level[favourite][kept],
        cmap="RdBu",
        vmin=-1.2,
        vmax=1.2,
        s=18,
        edgecolor="0.5",
        linewidth=0.3,
    )
    ax.axline((0, 0), slope=1, color="0.6", linewidth=1)
    correlation = np.corrcoef(skill[kept], found[kept])[0, 1]
    ax.set(title=f"{title}: correlation {correlation:.2f}", xlabel="true effect of a director", ylabel="estimated effect")
    ax.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7))
figure.colorbar(points, ax=axes[1], label="level of the favourite genre")

shown = films[~train].head(8)
ends = np.zeros((2, len(shown)))  # of the bars to the left and to the right of zero
for part, label in zip(both.predict_terms(shown), ("common", "director", "genre"), strict=True):
    side = (part > 0).astype(int), np.arange(len(shown))
    axes[2].barh(np.arange(len(shown)), part, left=ends[side], label=label)
    ends[side] += part
axes[2].axvline(0, color="0.4", linewidth=1)
axes[2].set_yticks(np.arange(len(shown)), shown["genre"])
axes[2].set(title="Eight films: what each term adds", xlabel="rating, relative to the intercept")
axes[2].invert_yaxis()
axes[2].legend(fontsize=8)
plt.show()

# %%
# ``relations_frame()`` has the learned matrix of each grouping: among genres, the slopes of budget and length are opposed.

relations = both.relations_frame()
print(relations["(1 + budget + length | genre)"].round(3))
