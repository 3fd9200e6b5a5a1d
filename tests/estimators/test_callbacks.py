"""scikit-learn's callbacks: what they are told, how they stop a fit, and the fallback for scikit-learn before 1.9."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from taskloom import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV, metrics

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 4))
Y = 2 * X @ rng.normal(size=(4, 1)) @ np.array([[1.0, -1.5, 2.0]]) + 0.2 * rng.normal(size=(40, 3)) + 1.0
LABELS = np.where(np.median(Y, axis=0) < Y, "yes", "no")
QUICK = [
    MultiTaskRegressor(),
    MultiTaskRegressor("frobenius", kernel="rbf"),
    MultiTaskRegressor("robust"),
    MultiTaskRegressorCV(alphas=3, cv=3, kernels=None),
    MultiTaskClassifier(),
    MultiTaskClassifierCV(alphas=[0.1, 0.01], cv=3, kernels=None),
]
EACH = pytest.mark.parametrize("model", QUICK, ids=lambda model: type(model).__name__ + "-" + str(model.kernel))


def targets(model):
    return LABELS if "Classifier" in type(model).__name__ else Y


class Recorder:
    """Writes down what it is told; asks to stop at the given number of ends."""

    def __init__(self, stop_at=np.inf):
        self.events, self.stop_at = [], stop_at

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        self.events.append(f"end {context.task_name}")
        return self.events.count("end iteration") >= self.stop_at


FALLBACK = """
import sys
import sklearn.compose, sklearn.model_selection, sklearn.multioutput, sklearn.utils.estimator_checks  # use callbacks themselves
sys.modules["sklearn.callback"] = None  # for us it is as in scikit-learn before 1.9
import numpy as np
from taskloom import MultiTaskRegressor, MultiTaskRegressorCV
from taskloom.estimators import callbacks
assert callbacks.CallbackSupportMixin.__module__ == "taskloom.estimators.callbacks"
from test_callbacks import Recorder, X, Y

watch = Recorder()
model = MultiTaskRegressor(tol=1e-6).set_callbacks(watch).fit(X, Y)
assert watch.events[:2] == ["setup", "begin fit"] and watch.events[-2:] == ["end fit", "teardown"], watch.events
assert watch.events.count("end iteration") == model.n_iter_
stopped = MultiTaskRegressor(tol=1e-12, solver="proximal").set_callbacks(Recorder(stop_at=2)).fit(X, Y)
assert (stopped.n_iter_, stopped.certificate_.status) == (2, "callback")
folds = Recorder()
MultiTaskRegressorCV(alphas=2, cv=3, kernels=None).set_callbacks(folds).fit(X, Y)
assert folds.events.count("end fold") == 3

class OneHook:
    seen = 0
    def on_fit_task_end(self, estimator, context):
        self.seen += 1

hook = OneHook()
model.set_callbacks(hook).fit(X, Y)
assert hook.seen == model.n_iter_ + 1  # the iterations, and the fit
model.set_callbacks().fit(X, Y)
assert hook.seen == model.n_iter_ + 1  # the iterations, and the fit
try:
    model.set_callbacks(OneHook)
except TypeError as error:
    assert "FitCallback" in str(error)
else:
    raise AssertionError("a class is not a callback")
try:
    model.set_callbacks(watch).fit(X, np.full(Y.shape, np.nan))
except ValueError:
    assert watch.events[-1] == "teardown"
print("all well")
"""


def test_a_callback_sees_every_iteration():
    """scikit-learn's protocol: set up, begin and end of the fit and of each iteration, tear down, also when a fit fails."""
    watch = Recorder()
    model = MultiTaskRegressor(tol=1e-6).set_callbacks(watch)
    expected = MultiTaskRegressor(tol=1e-6).fit(X, Y)
    assert np.array_equal(model.fit(X, Y).coef_, expected.coef_)
    assert watch.events[:2] == ["setup", "begin fit"]
    assert watch.events[-2:] == ["end fit", "teardown"]
    assert watch.events.count("begin iteration") == watch.events.count("end iteration")
    assert watch.events.count("end iteration") == expected.n_iter_
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, np.full(Y.shape, np.nan))
    assert watch.events[-1] == "teardown"
    assert len(model.set_callbacks().fit(X, Y).history_["gap"]) == expected.n_iter_
    with pytest.raises(TypeError, match="FitCallback"):
        model.set_callbacks(Recorder)


@pytest.mark.parametrize(
    "model",
    [
        MultiTaskRegressor(tol=1e-12),
        MultiTaskClassifier(tol=1e-12),
        MultiTaskRegressorCV(alphas=2, cv=2, tol=1e-8, kernels=None),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_callback_stops_the_fit(model):
    """A callback that answers True: the best certified iterate is kept, without a warning, and the certificate says why."""
    model = clone(model).set_params(solver="proximal").set_callbacks(Recorder(stop_at=2))
    model.fit(X, targets(model))
    assert model.n_iter_ == 2
    assert model.certificate_.status == "callback"
    assert "Stopped by a callback after 2 iterations" in model.certificate_.message
    assert model.certificate_.relative_gap > model.tol
    assert model.score(X, targets(model)) > 0.5


def test_a_cross_validated_fit_reports_its_folds():
    """Folds, then the iterations of the fit on all data."""
    watch = Recorder()
    model = MultiTaskRegressorCV(alphas=2, cv=3, common=None, kernels=None).set_callbacks(watch).fit(X, Y)
    assert watch.events.count("end fold") == 3
    assert watch.events.count("end iteration") == model.n_iter_
    parts = [event for event in watch.events if event.split()[-1] not in ("iteration", "fold")]
    assert parts == [
        "setup",
        "begin fit",
        "begin cross-validation",
        "end cross-validation",
        "begin refit",
        "end refit",
        "end fit",
        "teardown",
    ]


@EACH
def test_scikit_learns_scoring_monitor(model):
    """``ScoringMonitor`` scores the model of every iteration; the last is the fitted one."""
    from sklearn.callback import ScoringMonitor

    wide = targets(model)
    score = {"mine": metrics.scorer(metrics.macro_accuracy if wide is LABELS else metrics.macro_r2)}
    monitor = ScoringMonitor(scoring=score)
    fitted = clone(model).set_params(tol=1e-8).set_callbacks(monitor).fit(X, wide)
    log = monitor.get_logs().data_as_pandas
    assert log.loc[log["task_name"] == "iteration", "mine"].notna().sum() == fitted.n_iter_
    assert np.isclose(log.loc[log["task_name"] == "fit", "mine"].item(), fitted.score(X, wide))


def test_a_monitor_inside_a_search():
    """Callbacks are kept by ``clone`` inside ``GridSearchCV``: one run for each fit."""
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="r2")
    GridSearchCV(MultiTaskRegressor().set_callbacks(monitor), {"alpha": [0.1, 1.0]}, cv=2).fit(X, Y)
    log = monitor.get_logs().data_as_pandas
    assert (log["task_name"] == "fit").sum() == 5


@EACH
def test_scikit_learns_progress_bar(model, capsys):
    """``ProgressBar`` draws a bar for the fit."""
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    clone(model).set_callbacks(ProgressBar()).fit(X, targets(model))
    assert f"{type(model).__name__} - fit" in capsys.readouterr().out


def test_callbacks_where_scikit_learn_has_none():
    """The fallback for scikit-learn before 1.9 does the same in small."""
    code = FALLBACK.replace(
        "from test_callbacks import", f"sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_callbacks import"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("all well\n"), done.stderr
