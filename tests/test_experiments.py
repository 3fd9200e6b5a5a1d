"""Experiments on small stand-in data: they run, stop, resume, write what they should, and test on nothing they trained on."""

import json

import numpy as np
import pytest
from sklearn.model_selection import KFold

from taskloom import MultiTaskRegressor, solve
from taskloom.experiments import compared_methods as learn
from taskloom.experiments import errata as corrections
from taskloom.experiments import fig1, reproduce, sarcos, sarcos_variants, scenes, school
from taskloom.experiments.baselines import (
    ClusterSet,
    accelerated_proximal_gradient,
    argyriou_alternation,
    jacob_gradient,
    nuclear,
    paper_alternation,
)
from taskloom.structures import Clusters, UnitTrace


@pytest.fixture
def folder(tmp_path):
    """A SARCOS, a School and a 15-Scenes of a few hundred rows, in the format of the archives."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 21))
    Y = X @ rng.normal(size=(21, 2)) @ rng.normal(size=(2, 7)) + rng.normal(size=(900, 7))
    Y[::3, 1:6] = np.nan
    np.savez(tmp_path / "sarcos.npz", X=X, Y=Y, complete=~np.isnan(Y).any(axis=1), test_rows=np.arange(0, 900, 10))
    task = np.repeat(np.arange(6), 30)
    inputs = rng.integers(0, 2, size=(180, 28))
    score = 20 + 5 * inputs[:, 0] + rng.normal(size=180)
    split = rng.random((10, 180)) < 0.75
    np.savez(tmp_path / "school.npz", X=inputs, y=score, task=task, train_split=split)
    label = np.repeat(np.arange(3), 40)
    features = (np.eye(3)[label] @ rng.normal(size=(3, 10)) + 0.7 * rng.normal(size=(120, 10))).astype(np.float16)
    twin = np.full(120, -1)
    twin[5] = 3
    np.savez(tmp_path / "scene15_llc.npz", X=features, label=label, class_names=np.array(["a", "b", "c"]), duplicate_of=twin)
    return tmp_path


def small(module, **changes):
    """The quick settings of an experiment, made smaller still."""
    return lambda _, repetitions: ORIGINAL[module](True, repetitions) | changes


ORIGINAL = {module: module.settings for module in (sarcos, scenes, school, fig1)}
TINY = {
    sarcos: {"methods": ["STL", "MTRL"], "sizes": [15, 25], "repetitions": 1, "repetitions_blocks": 1, "n_alphas": 3}
    | {"n_test": 200, "margin": 20, "second_parameters": True},
    scenes: {"methods": ["STL", "OKL"], "sizes": [5, 10], "repetitions": 2, "n_alphas": 3} | {"repetitions_squared_error": 1},
    school: {"methods": ["STL", "MTCL"], "repetitions": 2, "n_alphas": 3},
    fig1: {"fixed": 4, "values": [3, 4], "shares_of_alpha_max": [0.1], "time_limit": 0.2},
}


@pytest.fixture
def tiny(monkeypatch):
    for module, changes in TINY.items():
        monkeypatch.setattr(module, "settings", small(module, **changes))


SCORES = {"sarcos": ("nmse", "nI"), "scenes": ("accuracy", "gain"), "school": ("explained_variance", "gain")}


@pytest.mark.parametrize("name", SCORES)
def test_an_experiment_from_end_to_end(name, folder, tmp_path, tiny, capsys):
    output = tmp_path / "out"
    record = reproduce(name, folder, output, quick=True, n_jobs=1)
    kept = json.loads((output / f"{name}.json").read_text())
    assert kept == json.loads(json.dumps(record))
    score, measure = SCORES[name]
    for method, entry in kept["results"].items():
        assert len(entry["sizes"]) == len(entry[score]) == len(entry[measure])
        repeats = np.array([repetition[score] for repetition in entry["repetitions"]])
        np.testing.assert_allclose(repeats.mean(axis=0), entry[score])
        gains = np.array([repetition[measure] for repetition in entry["repetitions"]])
        np.testing.assert_allclose(gains.mean(axis=0), entry[measure], atol=1e-12)
        assert method in (output / f"{name}.md").read_text()
    assert kept["certificates"]["all_within_tolerance"]
    assert set(kept["versions"]) >= {"taskloom", "numpy", "python"}
    assert len((output / f"{name}.csv").read_text().splitlines()) > len(kept["results"])
    assert "± standard" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert (output / f"{name}.png").stat().st_size > 1000
    assert (output / f"{name}.svg").read_text().startswith("<?xml")


def test_times_are_measured(tmp_path, tiny):
    record = reproduce("fig1", output=tmp_path, quick=True, verbose=False)
    assert list(record["results"]) == list(fig1.PANELS)
    for algorithms in record["results"].values():
        ours = algorithms["taskloom (auto, certified)"]
        assert ours["at_limit"] == [0, 0]
        assert min(ours["seconds"]) > 0
        assert len(algorithms) >= 3


def test_a_stopped_run_goes_on_where_it_was(folder, tmp_path, tiny, monkeypatch):
    class StopError(Exception):
        pass

    def stop(done, total, text):
        if done == 3:
            raise StopError

    with pytest.raises(StopError):
        reproduce("scenes", folder, tmp_path / "a", quick=True, n_jobs=1, progress=stop, verbose=False)
    measured, honest = [], scenes.measure

    def counting(unit, settings, home):
        measured.append(unit)
        return honest(unit, settings, home)

    monkeypatch.setattr(scenes, "measure", counting)
    resumed = reproduce("scenes", folder, tmp_path / "a", quick=True, n_jobs=1, verbose=False)
    assert len(measured) == 6 - 3
    whole = reproduce("scenes", folder, tmp_path / "b", quick=True, n_jobs=1, verbose=False)
    assert resumed["results"] == whole["results"]
    measured.clear()
    monkeypatch.setattr(scenes, "settings", small(scenes, **TINY[scenes] | {"n_alphas": 4}))
    reproduce("scenes", folder, tmp_path / "a", quick=True, n_jobs=1, verbose=False)
    assert len(measured) == 6, "other settings start anew"


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no experiment 'fig7'"):
        reproduce("fig7")
    with pytest.raises(ValueError, match="repetitions must be at least 1, got 0"):
        reproduce("school", repetitions=0)


@pytest.mark.parametrize("protocol", ["random", "blocks"])
def test_nothing_is_tested_that_was_trained_on(folder, protocol):
    from taskloom.datasets import fetch_sarcos

    data, settings = fetch_sarcos(data_home=folder), sarcos.settings(True, None) | {"margin": 30, "n_test": 300}
    for repetition in range(5):
        unit = {"protocol": protocol, "size": 20, "repetition": repetition}
        train, test = sarcos.draw_rows(data, unit, settings)
        larger, same = sarcos.draw_rows(data, unit | {"size": 40}, settings)
        np.testing.assert_array_equal(test, same)
        assert not np.isnan(data.Y[test]).any()
        for t, rows in enumerate(train):
            assert len(set(rows)) == 20
            assert set(rows) <= set(larger[t])
            assert not set(rows) & set(test)
            assert not np.isnan(data.Y[rows, t]).any()
            if protocol == "blocks":
                assert np.all((rows < test.min() - 20) | (rows > test.max() + 20))


def test_twins_of_training_images_are_not_tested():
    y = np.repeat([0, 1], 10)
    twin = np.full(20, -1)
    twin[[1, 2]] = 0
    for seed in range(10):
        train, test = scenes.draw_rows(y, twin, 4, seed)
        assert np.bincount(y[train]).tolist() == [4, 4]
        assert not set(train) & set(test)
        if {0, 1, 2} & set(train):
            assert not {0, 1, 2} & set(test)


def test_every_method_is_chosen_among_its_candidates():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60, 4)), np.arange(60) % 4])
    settings = {"methods": learn.NAMES, "n_alphas": 3, "second_parameters": True}
    fitted = learn.choose(X, X[:, 0] + rng.normal(size=60), settings, 0, task_column=-1)
    assert list(fitted) == ["STL", "STL, one strength", "MTFL", "MTRL", "OKL", "MTCL", "LogDet"]
    for name, candidates in learn.METHODS.items():
        report = fitted[name]["report"]
        assert any(report["setting"].startswith(repr(structure)) for structure, _ in candidates)
        assert 0 <= report["relative_gap"] <= 1e-4


@pytest.mark.parametrize("long", [True, False])
def test_single_task_learning_shares_nothing(long):
    """Each task's weights and strength are those of a search that never saw the other tasks."""
    rng = np.random.default_rng(1)
    X, task = rng.normal(size=(60, 4)), np.arange(60) % 3
    Y = X[:, :1] * [1, 2, 3] + rng.normal(size=(60, 3)) * [0.1, 3, 30]
    settings, folds = {"methods": ["STL"], "n_alphas": 6, "second_parameters": False}, KFold(4)
    data = (np.column_stack([X, task]), Y[np.arange(60), task]) if long else (X, Y)
    options = {"task_column": -1, "tol": 1e-10} if long else {"tol": 1e-10}
    found = learn.choose(*data, settings, 0, cv=folds, **options)["STL"]
    grid = np.unique(found["report"]["alphas"])
    assert grid.size > 1
    for t, alpha in enumerate(found["report"]["alphas"]):
        rows = np.flatnonzero(task == t) if long else np.arange(60)
        single = MultiTaskRegressor("independent", alpha=alpha, tol=1e-10).fit(X[rows], Y[rows, t])
        assert np.allclose(single.coef_, found["model"].coef_[t], atol=1e-6)

        def errors(strength, t=t, rows=rows):
            parts = [(np.intersect1d(a, rows), np.intersect1d(b, rows)) for a, b in folds.split(X)]
            fits = [(MultiTaskRegressor("independent", alpha=strength, tol=1e-10).fit(X[a], Y[a, t]), b) for a, b in parts]
            return sum(float(((Y[b, t] - model.predict(X[b])) ** 2).sum()) for model, b in fits)

        assert errors(alpha) <= min(errors(other) for other in grid) * (1 + 1e-9)


@pytest.mark.parametrize(("T", "d"), [(6, 4), (5, 9)])
def test_the_originals_reach_the_certified_minimum(T, d):
    """An independent check of both sides: other people's algorithms end where our certificate says that the minimum is."""
    tasks, problem = fig1.make(T, d, 0)
    alpha, near = 0.05, 1e-4
    best = solve(problem.at(alpha), tol=1e-9, max_iter=5000)
    target = best.certificate.primal + near * problem.scale
    assert accelerated_proximal_gradient(tasks, 2 * np.sqrt(alpha), target, 1.0)[1][-1][1] <= target
    assert paper_alternation(tasks, alpha, target, 1.0)[1][-1][1] <= target + 1e-3 * problem.scale
    squared = solve(problem.with_structure(UnitTrace()).at(alpha), tol=1e-9, max_iter=5000)
    reach = squared.certificate.primal + near * problem.scale
    W, trace = argyriou_alternation(tasks, alpha, reach, 1.0)
    assert trace[-1][1] == pytest.approx(tasks.loss(W) + alpha * nuclear(W) ** 2)
    assert squared.certificate.dual - 1e-9 <= trace[-1][1] <= reach + 1e-2 * problem.scale
    options = {"n_clusters": 3, "mean": 0.1, "between": 1.0, "within": 10.0}
    grouped = solve(problem.with_structure(Clusters(**options)).at(alpha), tol=1e-9, max_iter=5000)
    goal = grouped.certificate.primal + near * problem.scale
    for trace in (
        jacob_gradient(tasks, alpha, ClusterSet(**options), goal, 2.0)[1],
        paper_alternation(tasks, alpha, goal, 2.0, ClusterSet(**options))[1],
    ):
        assert grouped.certificate.dual - 1e-9 <= trace[-1][1] <= goal


@pytest.mark.parametrize("correction", corrections.CORRECTIONS, ids=lambda correction: correction.__name__)
def test_corrections_have_their_evidence(correction):
    for name, value in correction().items():
        if name.endswith("ours"):
            assert value < 1e-6
        elif name.endswith("printed"):
            assert value > 0.01
    assert correction.__doc__[0].isdigit()


def test_corrections_are_printed(capsys):
    corrections.show()
    assert capsys.readouterr().out.count("\n    ") >= 16


def test_variants_of_the_baseline(folder, capsys, monkeypatch):
    monkeypatch.setattr(sarcos_variants, "settings", small(sarcos, n_test=300))
    sarcos_variants.show(folder, 2)
    assert capsys.readouterr().out.count("±") == 4 * len(sarcos_variants.VARIANTS)
