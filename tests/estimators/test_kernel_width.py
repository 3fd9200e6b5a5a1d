"""``gamma="scale"`` and ``gamma="median"``: the width of a kernel from the inputs of the fit."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import pdist
from sklearn.svm import SVR

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor
from taskloom.features.kernel_width import MAX_ROWS, resolved_gamma

WORDS = ["scale", "median"]
SETTINGS = {"exact": {}, "common": {"common": True}, "landmarks": {"approximation": "nystroem", "n_components": 20}}


def problem(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) * [1, 5, 2] + [0, 3, 0]
    return X, np.sin(X) @ rng.normal(size=(3, 4))


def test_scale_is_that_of_support_vector_machines():
    X, Y = problem()
    assert np.isclose(resolved_gamma("scale", X), SVR(gamma="scale").fit(X, Y[:, 0])._gamma)
    assert np.isclose(resolved_gamma("scale", csr_matrix(X)), resolved_gamma("scale", X))


def test_median_is_that_of_all_pairs():
    X, _ = problem()
    assert np.isclose(resolved_gamma("median", X), 1 / (2 * np.median(pdist(X, "sqeuclidean"))))
    assert np.isclose(resolved_gamma("median", csr_matrix(X)), resolved_gamma("median", X))


def test_rows_that_are_left_out_hardly_matter_and_their_order_does_not():
    X, _ = problem(3 * MAX_ROWS)
    exact = 1 / (2 * np.median(pdist(X, "sqeuclidean")))
    assert np.isclose(resolved_gamma("median", X), exact, rtol=0.1)
    order = np.random.default_rng(1).permutation(len(X))
    assert np.isclose(resolved_gamma("median", X[order]), resolved_gamma("median", X), rtol=1e-12)


@pytest.mark.parametrize("word", WORDS)
def test_inputs_without_spread_have_the_width_of_scikit_learn(word):
    assert resolved_gamma(word, np.ones((5, 4))) == 1 / 4


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_word_is_its_number_also_from_a_file(word, setting, tmp_path):
    X, Y = problem()
    model = MultiTaskRegressor(kernel="rbf", gamma=word, **SETTINGS[setting]).fit(X, Y)
    number = MultiTaskRegressor(kernel="rbf", gamma=model.gamma_, **SETTINGS[setting]).fit(X, Y)
    assert np.array_equal(model.predict(X), number.predict(X))
    assert not hasattr(number, "gamma_")
    model.save(tmp_path / "m.taskloom")
    again = taskloom.load(tmp_path / "m.taskloom")
    assert again.gamma_ == model.gamma_
    assert np.array_equal(again.predict(X), model.predict(X))


def test_rows_without_an_observation_do_not_count():
    X, Y = problem()
    far, none = np.vstack([X, 1e3 * np.ones((5, 3))]), np.vstack([Y, np.full((5, 4), np.nan)])
    models = [MultiTaskRegressor(kernel="rbf", gamma="median").fit(*data) for data in ((X, Y), (far, none))]
    assert models[0].gamma_ == models[1].gamma_


def test_labels():
    X, Y = problem()
    model = MultiTaskClassifier(kernel="rbf", gamma="median").fit(X, np.where(Y > 0, "yes", "no"))
    assert model.gamma_ == resolved_gamma("median", X)


def test_blocks_of_rows_need_a_number():
    X, Y = problem()
    model = MultiTaskRegressor(kernel="rbf", gamma="median", approximation="nystroem")
    with pytest.raises(AttributeError) as error:
        model.partial_fit(X, Y)
    assert "give rows in blocks a number" in str(error.value.__cause__ or error.value)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="'median'"):
        MultiTaskRegressor(kernel="rbf", gamma="auto").fit(*problem())
