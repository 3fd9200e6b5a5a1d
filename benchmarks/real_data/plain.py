"""Plain alternatives from scikit-learn and a few lines of NumPy, each tuned on the training rows."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegressionCV, MultiTaskElasticNetCV, RidgeCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from .loaders import DataSet, Part, scaled
from .method import EVERY, Method, answers, each_task, numbers

Array = np.ndarray
STRENGTHS = np.logspace(-4, 5, 19)
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # gamma, in units of one over the median squared distance


def on_scaled(data: DataSet, train: Part, new: Part) -> tuple[Part, Part]:
    """Scaled inputs, targets as numbers."""
    X, X_new = scaled(train, new)
    return Part(X, numbers(data, train.y), train.task), Part(X_new, numbers(data, new.y), new.task)


# --- ridge and kernel ridge ----------------------------------------------------------------------------------------------


def ridge_each(data: DataSet, train: Part, new: Part) -> Array:
    """Ridge with a strength of its own for each task, by leave-one-out."""
    train, new = on_scaled(data, train, new)
    if train.task is None:
        model = RidgeCV(STRENGTHS, alpha_per_target=train.y.ndim > 1).fit(train.X, train.y)
        return answers(data, model.predict(new.X))
    return each_task(train, new, lambda X, y, X_new: RidgeCV(STRENGTHS).fit(X, y).predict(X_new), fewest=3)


def kernel_ridge(X: Array, Y: Array, X_new: Array) -> Array:
    """Gaussian kernel ridge; width and strength of each column of ``Y`` by leave-one-out in closed form."""
    Y = Y.reshape(len(Y), -1)
    squares, squares_new = cdist(X, X, "sqeuclidean"), cdist(X_new, X, "sqeuclidean")
    far = squares[squares > 0]
    unit = float(np.median(far)) if far.size else 1.0
    mean = Y.mean(axis=0)
    best, guess = np.full(Y.shape[1], np.inf), np.tile(mean, (len(X_new), 1))
    for width in WIDTHS:
        K = np.exp(-width / unit * squares)
        values, U = np.linalg.eigh(K)
        values, UY = np.maximum(values, 0), U.T @ (Y - mean)
        K_new = np.exp(-width / unit * squares_new) @ U
        for strength in np.logspace(-6, 2, 17):
            shrunk = values / (values + strength)
            left = 1 - np.minimum((U**2) @ shrunk + 1 / len(X), 1 - 1e-10)
            errors = np.mean(((Y - mean - U @ (shrunk[:, None] * UY)) / left[:, None]) ** 2, axis=0)
            better = errors < best
            if better.any():
                best[better] = errors[better]
                guess[:, better] = (mean + K_new @ (UY / (values + strength)[:, None]))[:, better]
    return guess


def kernel_ridge_each(data: DataSet, train: Part, new: Part) -> Array:
    train, new = on_scaled(data, train, new)
    if train.task is None:
        return answers(data, kernel_ridge(train.X, train.y, new.X))
    return each_task(train, new, lambda X, y, X_new: kernel_ridge(X, y, X_new)[:, 0], fewest=3)


# --- one ridge for all ---------------------------------------------------------------------------------------------------


class ShrunkIntercepts:
    """``min sum (y - x'w - u_task)^2 + slope |w|^2 + level |u|^2`` with an unpenalised constant; tasks are eliminated."""

    def __init__(self, X: Array, y: Array, task: Array):
        X = np.column_stack([X, np.ones(len(X))])
        self.tasks, code = np.unique(task, return_inverse=True)
        self.counts = np.bincount(code)
        order = np.argsort(code, kind="stable")
        self.sums = np.add.reduceat(X[order], np.cumsum(self.counts) - self.counts)
        self.totals = np.bincount(code, y)
        self.gram, self.right, self.ones = X.T @ X, X.T @ y, X

    def solve(self, level: float) -> list[tuple[Array, Array]]:
        """Weights and shrunk intercepts at every strength of the slopes."""
        pull = self.counts + level
        H = self.gram - (self.sums / pull[:, None]).T @ self.sums
        right = self.right - self.sums.T @ (self.totals / pull)
        penalty = np.ones(len(H))
        penalty[-1] = 0
        found = []
        for strength in STRENGTHS:
            w = np.linalg.solve(H + np.diag(strength * penalty + 1e-9), right)
            found.append((w, (self.totals - self.sums @ w) / pull))
        return found

    def predict(self, X: Array, task: Array, w: Array, u: Array) -> Array:
        place = np.minimum(np.searchsorted(self.tasks, task), len(self.tasks) - 1)
        return X @ w[:-1] + w[-1] + np.where(self.tasks[place] == task, u[place], 0.0)


def one_ridge(data: DataSet, train: Part, new: Part) -> Array:
    """One ridge for all tasks with shrunk intercepts; both strengths by five folds."""
    train, new = on_scaled(data, train, new)
    assert train.task is not None
    assert new.task is not None
    levels = np.logspace(-3, 5, 9)
    fold = np.random.default_rng(0).permutation(len(train.y)) % 5
    errors = np.zeros((len(levels), len(STRENGTHS)))
    for k in range(5):
        inside = fold != k
        part = ShrunkIntercepts(train.X[inside], train.y[inside], train.task[inside])
        for i, level in enumerate(levels):
            for j, (w, u) in enumerate(part.solve(level)):
                guess = part.predict(train.X[~inside], train.task[~inside], w, u)
                errors[i, j] += np.sum((train.y[~inside] - guess) ** 2)
    i, j = np.unravel_index(errors.argmin(), errors.shape)
    whole = ShrunkIntercepts(train.X, train.y, train.task)
    return whole.predict(new.X, new.task, *whole.solve(levels[i])[j])


def elastic_net(_data: DataSet, train: Part, new: Part) -> Array:
    """``MultiTaskElasticNetCV`` on scaled targets."""
    X, X_new = scaled(train, new)
    std = train.y.std(axis=0)
    model = MultiTaskElasticNetCV(l1_ratio=[0.5, 1.0], alphas=30, cv=5, max_iter=2000).fit(X, train.y / std)
    return model.predict(X_new) * std


# --- classifiers ---------------------------------------------------------------------------------------------------------


def logistic(X: Array, y: Array, X_new: Array) -> Array:
    """Probabilities of the second class; the strength by folds where both classes allow it."""
    least = int(np.bincount(y, minlength=2).min())
    folds = StratifiedKFold(min(5, least)) if least > 1 else None
    if folds is None:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression().fit(X, y).predict_proba(X_new)[:, 1]
    options = {"Cs": 10, "cv": folds, "scoring": "neg_log_loss", "use_legacy_attributes": False, "l1_ratios": (0,)}
    return LogisticRegressionCV(**options).fit(X, y).predict_proba(X_new)[:, 1]


def logistic_each(_data: DataSet, train: Part, new: Part) -> Array:
    X, X_new = scaled(train, new)
    return each_task(Part(X, train.y, train.task), Part(X_new, new.y, new.task), logistic, fewest=3)


def logistic_all(_data: DataSet, train: Part, new: Part) -> Array:
    """One logistic regression; for tasks of a long table with a column of indicators each."""
    X, X_new = scaled(train, new)
    if train.task is not None and new.task is not None:
        tasks = np.unique(train.task)
        X, X_new = np.hstack([X, train.task[:, None] == tasks]), np.hstack([X_new, new.task[:, None] == tasks])
        return logistic(X, train.y, X_new)
    options = {"Cs": 10, "cv": 5, "scoring": "neg_log_loss", "use_legacy_attributes": False, "l1_ratios": (0,)}
    return LogisticRegressionCV(**options).fit(X, train.y).predict(X_new)


def support_vectors(_data: DataSet, train: Part, new: Part) -> Array:
    X, X_new = scaled(train, new)
    grid = {"C": [1.0, 10.0, 100.0], "gamma": [each / X.shape[1] for each in (0.1, 0.3, 1.0, 3.0)]}
    return GridSearchCV(SVC(), grid, cv=5).fit(X, train.y).predict(X_new)


def random_forest(data: DataSet, train: Part, new: Part) -> Array:
    """200 trees; leaves and inputs a split by the rows out of the bag."""
    X, X_new = train.table(), new.table()
    kind = RandomForestRegressor if data.form in ("long", "wide") else RandomForestClassifier
    settings = [{"min_samples_leaf": leaf, "max_features": share} for leaf in (1, 5) for share in (0.33, 1.0)]
    settings = settings if X.size < 300_000 else settings[2:3]
    models = [kind(200, oob_score=True, random_state=0, **each).fit(X, train.y) for each in settings]
    best = max(models, key=lambda model: model.oob_score_)
    return best.predict_proba(X_new)[:, 1] if data.form == "binary" else best.predict(X_new)


PLAIN = [
    Method("ridge, each task", "plain", EVERY, ridge_each),
    Method("kernel ridge, each task", "plain", EVERY, kernel_ridge_each),
    Method("one ridge, shrunk intercepts", "plain", ("long", "binary"), one_ridge),
    Method("MultiTaskElasticNetCV", "plain", ("wide",), elastic_net, limit=60),
    Method("logistic, each task", "plain", ("binary",), logistic_each),
    Method("logistic, all", "plain", ("binary", "labels"), logistic_all),
    Method("SVC, rbf", "plain", ("labels",), support_vectors),
    Method("random forest", "trees", EVERY, random_forest),
]
