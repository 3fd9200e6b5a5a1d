"""Kernels among the candidates of a search, and grids of alpha that go on."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Matern

import taskloom
from taskloom import MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV
from taskloom.estimators.cross_validation import kernel_portfolio, plain_models

KERNELS = ["linear", ("rbf", ["median", 1.0])]


@pytest.fixture(scope="module")
def curved():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    return X, np.sin(2 * X) @ rng.normal(size=(3, 4)) + 0.1 * rng.normal(size=(80, 4))


@pytest.fixture(scope="module")
def search(curved):
    return MultiTaskRegressorCV(kernels=KERNELS, alphas=8, common=None).fit(*curved)


def test_the_best_kernel_is_that_of_searches_one_by_one(search, curved):
    alone = [
        MultiTaskRegressorCV(kernel=kernel, gamma=gamma, alphas=8, common=None).fit(*curved)
        for kernel, gamma in (("linear", None), ("rbf", "median"), ("rbf", 1.0))
    ]
    scores = [model.best_score_ for model in alone]
    assert search.best_score_ == max(scores)
    assert (search.best_kernel_, search.best_gamma_) == ("rbf", 1.0)
    assert np.array_equal(search.predict(curved[0]), alone[2].predict(curved[0]))
    assert np.array_equal(search.transfer_["alone"], alone[2].transfer_["alone"])


def test_results_have_every_kernel_and_the_best_parameters_make_the_model(search, curved):
    tried = {(setting["kernel"], setting["gamma"]) for setting in search.cv_results_["params"]}
    assert tried == {("linear", None), ("rbf", "median"), ("rbf", 1.0)}
    assert search.cv_results_["params"][search.best_index_] == search.best_params_
    plain = MultiTaskRegressor(**search.best_params_).fit(*curved)
    assert np.array_equal(plain.predict(curved[0]), search.predict(curved[0]))
    assert "rbf kernel with gamma = 1" in search.selection_
    assert "linear kernel" in search.selection_


def test_a_common_part_has_the_kernel_of_the_candidate(curved):
    model = MultiTaskRegressorCV(kernels=["linear", ("rbf", 1.0)], alphas=6, common=True).fit(*curved)
    assert model.best_kernel_ == "rbf"
    common, own = model.predict_terms(curved[0])
    assert np.allclose(common + own + model._state.common_part.intercept, model.predict(curved[0]))


@pytest.mark.parametrize("kernels", [KERNELS, ["linear", Matern(2.0)], [("rbf", "scale"), "linear"]])
def test_a_file_holds_the_chosen_kernel(curved, kernels, tmp_path):
    model = MultiTaskRegressorCV(kernels=kernels, alphas=6).fit(*curved)
    model.save(tmp_path / "m.taskloom")
    again = taskloom.load(tmp_path / "m.taskloom")
    assert repr(again.best_kernel_) == repr(model.best_kernel_)
    assert np.array_equal(again.predict(curved[0]), model.predict(curved[0]))


def test_labels(curved):
    model = MultiTaskClassifierCV(kernels=KERNELS, alphas=5, common=None).fit(curved[0], np.where(curved[1] > 0, "yes", "no"))
    assert model.best_kernel_ == "rbf"
    assert model.score(curved[0], np.where(curved[1] > 0, "yes", "no")) > 0.8


def test_one_kernel_is_reported_too(curved):
    assert MultiTaskRegressorCV(alphas=3, kernels=None).fit(*curved).best_kernel_ == "linear"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": []}, "kernels is empty"),
        ({"kernels": "rbf"}, "kernel='rbf'"),
        ({"kernels": ["rbf"], "kernel": "linear"}, "give kernel= .one. or kernels="),
        ({"kernels": [("rbf", [-1.0])]}, "at least 0"),
        ({"kernels": [("rbf", "width")]}, "'scale', 'median'"),
        ({"kernels": [("rbf",)]}, "a kernel with widths is"),
        ({"kernels": ["linear", "precomputed"]}, "one matrix: give it alone"),
        ({"kernels": [3]}, "takes names"),
    ],
)
def test_bad_kernels(curved, settings, message):
    with pytest.raises(ValueError, match=message):
        MultiTaskRegressorCV(**settings).fit(*curved)


def test_a_grid_goes_on_where_the_best_is_at_its_end(curved):
    """Without noise the weakest penalty of an rbf kernel is the best of any five decades."""
    X, Y = curved
    Y = np.sin(2 * X) @ np.ones((3, 2))
    model = MultiTaskRegressorCV(kernel="rbf", gamma=0.3, alphas=10, common=None, tol=1e-3).fit(X, Y)
    alphas = model.cv_results_["param_alpha"]
    assert len(alphas) > 10
    assert np.allclose(np.diff(np.log(alphas)), np.log(alphas[1] / alphas[0]))  # the same steps
    assert model.best_index_ > 0
    first = [score for score, alpha in zip(model.cv_results_["mean_test_score"], alphas, strict=True) if alpha >= alphas[9]]
    assert model.best_score_ > max(first)


def test_known_structures_go_on_to_stronger_penalties():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 5)), rng.normal(size=(60, 3))  # nothing to learn
    model = MultiTaskRegressorCV("independent", alphas=6, common=None, kernels=None).fit(X, Y)
    alphas = model.cv_results_["param_alpha"]
    assert np.all(np.diff(alphas) < 0)
    assert len(alphas) > 6


def test_values_that_were_given_stay_and_a_warning_says_where_the_best_is(curved):
    given = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3]
    with pytest.warns(UserWarning, match=r"alpha = 0.001 scores best, the smallest that was given"):
        model = MultiTaskRegressorCV(kernel="rbf", gamma=1.0, alphas=given, common=None).fit(*curved)
    assert sorted(model.cv_results_["param_alpha"]) == given
    assert "the best may lie beyond" in model.certificate_.message


# --- the portfolio ---------------------------------------------------------------------------------------------------------


def test_the_first_call_finds_a_curved_function(curved):
    X, Y = curved
    model = MultiTaskRegressorCV().fit(X * [1, 100, 0.01], Y)  # whatever the units of the inputs
    assert "Gaussian kernel on standardised inputs" in model.selection_
    assert "linear kernel" in model.selection_
    assert model.best_score_ > MultiTaskRegressorCV(kernels=None).fit(X, Y).best_score_ + 0.3


def test_a_linear_function_keeps_its_coefficients():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    Y = X @ rng.normal(size=(4, 3)) + 0.3 * rng.normal(size=(60, 3))
    model = MultiTaskRegressorCV().fit(X, Y)
    assert model.best_kernel_ == "linear"
    assert model.coef_.shape == (3, 4)


@pytest.mark.parametrize("n", [50, 700])
def test_the_portfolio_in_a_long_table(n, tmp_path):
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(n, 2)), rng.integers(5, size=n)
    y = np.sin(2 * X[:, 0]) + 0.3 * task + 0.1 * rng.normal(size=n)
    model = MultiTaskRegressorCV(task_column=-1, alphas=8).fit(np.column_stack([X, task]), y)
    assert model.best_kernel_ != "linear"
    model.save(tmp_path / "m.taskloom")
    again = taskloom.load(tmp_path / "m.taskloom")
    assert np.array_equal(again.predict(np.column_stack([X, task])), model.predict(np.column_stack([X, task])))


def test_many_rows_have_landmarks_and_the_certificate_says_so(monkeypatch, tmp_path, curved):
    monkeypatch.setitem(kernel_portfolio.MAX_EXACT, "wide", 50)
    monkeypatch.setattr(kernel_portfolio, "N_LANDMARKS", 30)
    X, Y = curved
    model = MultiTaskRegressorCV(alphas=8).fit(X, Y)
    assert "30 landmarks" in model.selection_
    assert "Nystroem" in model.certificate_.message
    assert model.best_params_["n_components"] == 30
    assert np.array_equal(MultiTaskRegressor(**model.best_params_).fit(X, Y).predict(X), model.predict(X))
    model.save(tmp_path / "m.taskloom")
    assert np.array_equal(taskloom.load(tmp_path / "m.taskloom").predict(X), model.predict(X))


def test_what_is_given_is_fixed(curved):
    X, Y = curved
    assert MultiTaskRegressorCV(kernel="linear", alphas=4).fit(X, Y).best_kernel_ == "linear"
    assert MultiTaskRegressorCV("feature_selection", alphas=4).fit(X, Y).best_kernel_ == "linear"
    assert MultiTaskRegressorCV(alphas=4).fit(csr_array(X), Y).best_kernel_ == "linear"


def test_rows_for_the_comparison_of_widths_are_many_of_few_tasks():
    labels = np.repeat(np.arange(200), 20)
    rows = kernel_portfolio._some_rows(len(labels), labels)
    assert len(rows) <= kernel_portfolio.MAX_ROWS
    assert np.all(np.bincount(labels[rows])[np.unique(labels[rows])] == 20)
    assert len(kernel_portfolio._some_rows(50, labels[:50])) == 50


def test_many_rows_keep_the_linear_kernel_and_the_selection_says_so(monkeypatch, curved):
    monkeypatch.setattr(kernel_portfolio, "MOST_ROWS", 50)
    model = MultiTaskRegressorCV(alphas=4).fit(*curved)
    assert model.best_kernel_ == "linear"
    assert "no Gaussian kernel was tried: 80 rows are many" in model.selection_


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------------


def stopping(monkeypatch, where, at):
    """Ctrl-C at a call of ``cross_validate`` of the plain models, counted from 0."""
    calls, real = [], plain_models.cross_validate

    def cross_validate(*given):
        calls.append(1)
        if len(calls) == at + 1:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(where, "cross_validate", cross_validate)
    return calls


def test_an_interrupted_comparison_of_widths_leaves_the_estimator_unchanged(monkeypatch, curved):
    calls = stopping(monkeypatch, plain_models, 2)
    model = MultiTaskRegressorCV(alphas=4, common=None)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*curved)
    assert len(calls) == 3
    assert not hasattr(model, "alpha_")


def test_an_interrupt_under_the_second_kernel_keeps_the_first(monkeypatch, curved):
    calls = stopping(monkeypatch, plain_models, 1)
    model = MultiTaskRegressorCV(kernels=KERNELS, alphas=4, common=None)
    with pytest.warns(ConvergenceWarning, match="chose among the kernels that were tried on all folds"):
        model.fit(*curved)
    assert model.best_kernel_ == "linear"
    assert len(calls) == 2


def test_an_interrupt_beyond_the_end_of_a_grid_keeps_the_grid(monkeypatch, curved):
    X, _ = curved
    Y = np.sin(2 * X) @ np.ones((3, 2))
    calls = stopping(monkeypatch, plain_models, 1)
    model = MultiTaskRegressorCV(kernels=[("rbf", [0.3, 1.0])], alphas=10, common=None, tol=1e-3)
    with pytest.warns(ConvergenceWarning, match="chose by the settings that were tried on all folds"):
        model.fit(X, Y)
    assert len(calls) == 2
    assert len(model.cv_results_["param_alpha"]) == 10
