"""Labels of any type, some of them missing, and the numbers that stand for them."""

import numpy as np
import pandas as pd
import pytest

from taskloom import MultiTaskClassifier, MultiTaskClassifierCV

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("pqr"))


@pytest.mark.parametrize("kind", ["string", "Int64 columns"])
def test_missing_labels_of_pandas_are_missing_in_scores_and_searches(kind):
    if kind == "string":
        y = pd.Series(["yes", "no", pd.NA, "no"] * 10, dtype="string")
    else:
        whole, truth = pd.array([0, 1, None, 1] * 10, dtype="Int64"), pd.array([True, False, None, True] * 10, dtype="boolean")
        y = pd.DataFrame({"a": whole, "b": truth})
    model = MultiTaskClassifier().fit(X, y)
    assert 0.4 <= model.score(X, y) <= 1
    assert MultiTaskClassifierCV(alphas=2, cv=2, kernels=None).fit(X, y).alpha_ > 0


def test_scores_of_labels_of_another_type_are_refused():
    y = (X.p > 0).astype(int)
    for targets in (y, pd.DataFrame({"u": y, "v": 1 - y}), (X.p > 0).astype(int) + (X.q > 0)):
        model = MultiTaskClassifier().fit(X, targets)
        with pytest.raises(ValueError, match="none of the labels in y is a class of the model"):
            model.score(X, targets.astype(str))


def test_nullable_labels():
    Y = X.to_numpy() + 1
    labels = pd.DataFrame({"a": pd.array((Y[:, 0] > 1).astype(int), dtype="Int64"), "b": (Y[:, 1] > 1).astype(int)})
    labels.loc[0, "a"] = pd.NA
    assert MultiTaskClassifier().fit(X, labels).predict(X).shape == (40, 2)
