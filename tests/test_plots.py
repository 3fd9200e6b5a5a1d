"""The displays: they draw what the model holds, at 5 tasks and at 150, and names never meet."""

import subprocess
import sys

import numpy as np
import pytest

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, Problem, compare_to_single_task, path, solve, structures
from taskloom.plots import ConvergenceDisplay, PathDisplay, TaskGraphDisplay, TaskStructureDisplay, TransferDisplay

plt = pytest.importorskip("matplotlib.pyplot")

DISPLAYS = [ConvergenceDisplay, PathDisplay, TaskGraphDisplay, TaskStructureDisplay, TransferDisplay]


def fitted(n_tasks, names=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 5))
    centres = rng.normal(size=(3, 5))
    Y = X @ centres[np.arange(n_tasks) % 3].T + 0.5 * rng.normal(size=(24, n_tasks))
    if names is not None:
        import pandas as pd

        Y = pd.DataFrame(Y, columns=names)
    return MultiTaskRegressorCV("frobenius", alphas=3, cv=3, common=None, kernels=None).fit(X, Y), X, Y


@pytest.fixture(scope="module", params=[5, 150])
def model(request):
    return fitted(request.param, [f"{'shop of ' * (t % 2)}${t}_$" for t in range(request.param)])[0]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def overlaps(texts, figure):
    """How many pairs of upright texts share ink."""
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text() and text.get_visible()]
    return sum(one.shrunk(0.98, 0.9).overlaps(other.shrunk(0.98, 0.9)) for k, one in enumerate(boxes) for other in boxes[:k])


@pytest.mark.parametrize("display_class", DISPLAYS)
def test_a_figure_of_its_own_or_in_given_axes(model, display_class):
    display = display_class.from_estimator(model)
    assert display.ax_.figure is display.figure_
    display.figure_.draw_without_rendering()
    known = plt.get_fignums()
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    again = display_class.from_estimator(model, ax=axes[1])
    assert again.figure_ is figure
    assert len(plt.get_fignums()) == len(known) + 1  # ours, and none that nobody asked for
    figure.draw_without_rendering()
    assert again.plot() is again  # a display can be drawn again, elsewhere


def test_the_map_shows_the_correlations_in_groups(model):
    display = TaskStructureDisplay.from_estimator(model)
    T = len(model.tasks_)
    C = model.task_correlation()
    assert np.allclose(display.image_.get_array(), C[np.ix_(display.order_, display.order_)])
    assert display.image_.get_clim() == (-1, 1)
    groups = model.task_clusters()[display.order_]
    assert (np.diff(groups) != 0).sum() == len(np.unique(groups)) - 1  # every group in one piece
    names = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert names == [str(model.tasks_[t]) for t in display.order_]  # all names, dollars and all
    display.figure_.draw_without_rendering()
    assert overlaps(display.ax_.get_yticklabels(), display.figure_) == 0
    assert min(text.get_fontsize() for text in display.ax_.get_yticklabels()) >= 4.5
    merges = display.dendrogram_ax_.collections[0].get_segments()
    assert len(merges) == T - 1
    covariance = TaskStructureDisplay.from_estimator(model, kind="covariance", dendrogram=False)
    assert np.allclose(covariance.image_.get_array(), model.structure_[np.ix_(display.order_, display.order_)])
    low, high = covariance.image_.get_clim()
    assert low == -high


def test_a_small_map_names_the_groups():
    ax = plt.subplots(figsize=(4, 4))[1]
    display = TaskStructureDisplay.from_estimator(fitted(150)[0], ax=ax)
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert 0 < len(labels) < 30
    assert all(label.startswith("cluster ") for label in labels)


def test_a_matrix_and_a_single_task():
    display = TaskStructureDisplay.from_matrix([[4.0, 2.0], [2.0, 4.0]], ["a", "b"])
    assert np.allclose(display.image_.get_array(), [[1, 0.5], [0.5, 1]])
    one = MultiTaskRegressor().fit(np.arange(6.0)[:, None], np.arange(6.0))
    assert TaskStructureDisplay.from_estimator(one).dendrogram_ax_ is None
    assert TaskGraphDisplay.from_estimator(one).n_edges_ == 0
    with pytest.raises(ValueError, match="square matrix"):
        TaskStructureDisplay.from_matrix(np.ones((2, 3)))
    with pytest.raises(ValueError, match="3 names for 2 tasks"):
        TaskStructureDisplay.from_matrix(np.eye(2), "abc")
    with pytest.raises(ValueError, match="'both'"):
        TaskStructureDisplay.from_matrix(np.eye(2), kind="both")


def test_the_graph_has_the_edges_of_the_model(model):
    display = TaskGraphDisplay.from_estimator(model, threshold=0.6)
    edges = model.task_graph(0.6)
    assert display.n_edges_ == len(edges)
    assert np.allclose(np.sort(display.lines_.get_array()), np.sort([value for *_, value in edges]))
    few = TaskGraphDisplay.from_estimator(model, threshold=0.6, max_edges=2)
    assert (few.n_edges_, few.n_hidden_) == (2, len(edges) - 2)
    assert TaskGraphDisplay.from_estimator(model).n_edges_ <= 3 * len(model.tasks_)
    with pytest.raises(ValueError, match="between 0 and 1"):
        display.plot(threshold=2)


def test_convergence_shows_the_history(model):
    display = ConvergenceDisplay.from_estimator(model)
    assert display.axes_.shape == (2, 2)
    objective, dual = display.axes_[0, 1].get_lines()[:2]
    assert np.array_equal(objective.get_xdata(), model.history_["seconds"])
    assert np.array_equal(objective.get_ydata(), model.history_["objective"])
    assert np.all(objective.get_ydata() >= dual.get_ydata())
    assert display.axes_[1, 0].get_yscale() == "log"
    assert ConvergenceDisplay.from_estimator(model, against="iteration").axes_.shape == (2, 1)
    with pytest.raises(ValueError, match="'hours'"):
        display.plot(against="hours")


def test_solutions_can_be_drawn_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4))
    problem = Problem(X, X @ rng.normal(size=(4, 3)) + rng.normal(size=(20, 3)), structure="trace", alpha=0.1)
    ConvergenceDisplay.from_solution(solve(problem))
    alphas = [1.0, 0.1, 0.01]
    display = PathDisplay.from_solutions(alphas, list(path(problem, alphas)))
    assert len(display.axes_) == 1
    with pytest.raises(ValueError, match="2 values of alpha for 3"):
        PathDisplay.from_solutions(alphas[:2], list(path(problem, alphas)))


def test_the_path_shows_scores_and_spectrum(model):
    display = PathDisplay.from_estimator(model)
    score, spectrum = display.axes_
    assert np.array_equal(score.get_lines()[0].get_ydata(), model.path_["score"])
    assert np.array_equal(spectrum.get_lines()[-2].get_ydata(), model.path_["spectrum"][:, 0])  # the largest is on top
    with pytest.raises(ValueError, match="cross-validated model"):
        PathDisplay.from_estimator(MultiTaskRegressor())


def test_transfer_shows_the_gains(model):
    display = TransferDisplay.from_estimator(model)
    gain = model.transfer_["gain"][display.order_]
    assert np.all(np.diff(gain) >= 0)
    drawn = np.concatenate([dots.get_offsets()[:, 0] for dots in display.ax_.collections if len(dots.get_offsets()) > 0])
    assert set(np.round(gain, 9)) <= set(np.round(drawn, 9))
    display.figure_.draw_without_rendering()
    labels = display.ax_.get_yticklabels()
    assert [text.get_text() for text in labels] == [str(model.tasks_[t]) for t in display.order_]
    assert overlaps(labels, display.figure_) == 0


def test_transfer_of_a_plain_model_and_of_tasks_without_a_score():
    _, X, Y = fitted(5)
    plain = MultiTaskRegressor(structures.Clusters(2), alpha=0.1)
    with pytest.raises(ValueError, match="compare_to_single_task"):
        TransferDisplay.from_estimator(plain.fit(X, Y))
    transfer = compare_to_single_task(plain, X, Y, cv=3)
    transfer["gain"][2] = np.nan
    assert sorted(TransferDisplay.from_transfer(transfer).order_) == [0, 1, 3, 4]
    with pytest.raises(ValueError, match="no task has a score"):
        TransferDisplay.from_transfer({**transfer, "gain": np.full(5, np.nan)})


def test_matplotlib_is_imported_when_a_figure_is_drawn_and_missed_in_one_sentence():
    code = """
import sys
import taskloom
taskloom.plots, taskloom.write_report
assert not {"matplotlib", "jinja2"} & set(sys.modules)
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = None
try:
    taskloom.plots.TaskStructureDisplay.from_matrix([[1.0]])
except ImportError as error:
    assert str(error) == "TaskStructureDisplay needs matplotlib; install it with: pip install 'taskloom[plot]'"
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
