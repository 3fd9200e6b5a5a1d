"""The campaign judges: a dozen instances come out well, and a planted lie, a planted crash and a killed run are noticed."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import taskloom.features.kernels
from taskloom import MultiTaskRegressor
from taskloom.solvers.reformulations import subspaces

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from attack import growing, ledger, shrink, summary
from attack.check import GOOD, OPTIMAL, REFUSED, TOO_SLOW, check
from attack.draw import FAULTS, KERNELS, RARE_KERNELS, SOLVERS
from attack.kinds import draw

PLAIN = shrink.PLAIN | {"seed": 0, "k": 0, "parameter": 0.5, "gamma": 1.0, "n": 12, "d": 3, "T": 3, "fit_intercept": True}
PLAIN |= {"drop": {"tasks": [], "rows": [], "columns": []}}


@pytest.mark.parametrize("k", [2, 19, 25, 34, 48, 53, 98, 101, 112, 125, 208, 299])
def test_a_dozen_instances(k):
    entry = check(draw(0, k))
    assert entry["outcome"] in GOOD, entry


MENDED = """72 525 704 739 758 815 1618 1951 1994 2467 2468 2518 2674 2925 4056 4336 5530 7696 7983 8072 8424 8650
9190 9193 9287 9492 9598 9687 9781 9856 9883"""


@pytest.mark.parametrize("k", [int(k) for k in MENDED.split()])
def test_instances_that_once_failed_come_out_well(k):
    """docs/robustness.md says what each of them was about."""
    entry = check(draw(0, k) | {"second": "", "invariances": []})
    assert entry["outcome"] == OPTIMAL, entry


@pytest.mark.parametrize("k", [3156, 4815, 8443])
def test_what_was_judged_wrongly_comes_out_well(k):
    """CVXPY off by 1e-11 of nothing, CVXPY whose point does not have its value, a kernel whose last digit moves the minimum."""
    pytest.importorskip("cvxpy")
    entry = check(draw(0, k))
    assert entry["outcome"] == OPTIMAL, entry


def test_an_instance_depends_on_its_numbers_alone():
    assert draw(3, 17) == draw(3, 17) != draw(3, 18)
    assert json.loads(json.dumps(draw(3, 17))) == draw(3, 17)


def planted(monkeypatch, change):
    """Fits whose certificate was tampered with."""
    fit = MultiTaskRegressor.fit

    def tampered(self, *arguments, **settings):
        fit(self, *arguments, **settings)
        change(self)
        return self

    monkeypatch.setattr(MultiTaskRegressor, "fit", tampered)


@pytest.mark.parametrize("structure", ["trace", "log_det", "clusters", "sparse", "feature_selection", "dirty", "fixed"])
def test_a_primal_that_the_model_does_not_attain_is_noticed(monkeypatch, structure):
    assert check(PLAIN | {"structure": structure})["outcome"] == OPTIMAL

    def better(model):
        said, lie = model.certificate_, 0.99 * model.certificate_.primal
        model.certificate_ = replace(said, primal=lie, gap=lie - said.dual)

    planted(monkeypatch, better)
    assert "certificate" in check(PLAIN | {"structure": structure})["outcome"]


@pytest.mark.parametrize("second", ["solver", "cvxpy"])
def test_a_bound_above_the_minimum_is_noticed(monkeypatch, second):
    """The weights are a little worse than the best, the bound says that they are the best."""

    def spoil(model):
        if model.tol < 1e-5:
            return  # the other solver's word stays as it is
        model.coef_ = model.coef_ * 1.05
        said, true = model.certificate_, spoiled_objective(model)
        model.certificate_ = replace(said, primal=true, dual=true * (1 - 1e-9), gap=true * 1e-9, relative_gap=1e-9)

    def spoiled_objective(model):
        from attack import build, values

        return values.objective(build.build(about), model).total

    about = PLAIN | {"structure": "independent", "second": second}
    planted(monkeypatch, spoil)
    assert check(about)["outcome"] == "FAILURE(false certificate)"


def test_a_crash_is_noticed_and_a_refusal_is_not_one(monkeypatch):
    def crash(model):
        raise np.linalg.LinAlgError("SVD did not converge")

    planted(monkeypatch, crash)
    assert check(PLAIN)["outcome"] == "FAILURE(crash LinAlgError)"
    monkeypatch.undo()
    planted(monkeypatch, lambda model: np.zeros(0).max())
    assert check(PLAIN)["outcome"] == "FAILURE(crash ValueError)"
    monkeypatch.undo()
    assert check(PLAIN | {"structure": "low_rank", "solver": "block"})["outcome"] == REFUSED


def test_an_instance_that_takes_too_long_is_told(monkeypatch):
    def spin(model):
        while True:
            pass

    planted(monkeypatch, spin)
    assert check(PLAIN, limit=0.2)["outcome"] == TOO_SLOW


def test_small_problems_go_the_ways_of_large_ones_where_that_is_asked_for(monkeypatch):
    for module, names in (
        (taskloom.features.kernels, ("LARGE", "GROWING", "PER_TASK")),
        (subspaces, ("GROWING", "PER_TASK", "TUNING")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))  # to be put back
    made, grow = [], subspaces._enlarged
    monkeypatch.setattr(subspaces, "_enlarged", lambda *given: made.append(grow(*given)) or made[-1])
    assert ledger.judge(0, 112, 60.0)["outcome"] == OPTIMAL
    assert not made
    monkeypatch.setenv(growing.ASKED, "1")
    assert ledger.judge(0, 112, 60.0)["outcome"] == OPTIMAL
    assert made


def test_a_killed_run_goes_on(tmp_path, monkeypatch):
    path, judge = tmp_path / "ledger.jsonl", ledger.judge
    monkeypatch.setattr(ledger, "judge", lambda seed, k, limit: judge(seed, 112, limit) | {"k": k})  # a quick one
    first = ledger.run(path, 0, 2, 1, 60.0)
    with path.open("a") as file:
        file.write('{"k": 2, "se')  # the write that the kill cut short
    again = ledger.run(path, 0, 3, 1, 60.0)
    assert sorted(again) == [0, 1, 2]
    assert [again[k] for k in (0, 1)] == [first[k] for k in (0, 1)]
    assert ledger.read(path, 0) == again
    text = summary.write(again.values(), tmp_path)
    assert text.startswith("3 instances")
    assert json.loads((tmp_path / "campaign.json").read_text())["total"]["instances"] == 3


def test_a_worker_that_dies_is_a_line_of_the_ledger(tmp_path, monkeypatch):
    def judge(seed, k, limit):
        if k == 1:
            os._exit(9)
        return {"k": k, "seed": seed, "outcome": OPTIMAL, "detail": ""}

    monkeypatch.setattr(ledger, "judge", judge)
    found = ledger.run(tmp_path / "ledger.jsonl", 0, 4, 1, 60.0, show=lambda words: None)
    assert [found[k]["outcome"] for k in range(4)] == [OPTIMAL, "FAILURE(crash of the process)", OPTIMAL, OPTIMAL]


def test_the_table_of_coverage_shows_what_was_drawn():
    entries = [{"k": k, "seed": 0, "outcome": OPTIMAL, "seconds": 0.0} for k in range(1200)]
    drawn = summary.coverage(entries)
    assert set(drawn["solver"]) == {"auto", *SOLVERS}
    assert set(drawn["kernel"]) == {*KERNELS, *RARE_KERNELS}
    assert set(drawn["layout"]) == {"wide", "missing", "long", "sparse"}
    assert {*FAULTS, "a task with a single row"} <= set(drawn["fault"])
    assert set(drawn["tasks"]) == {"1", "2 to 6", "7 to 15", "16 to 60"}
    assert sum(cells["instances"] for cells in drawn["precision"].values()) == 1200


def test_a_failure_is_made_small(tmp_path):
    """Whatever fails needs two tasks and the rbf kernel here; all else goes."""

    def judge(about, limit):
        left = about["T"] - len(about["drop"]["tasks"])
        return "FAILURE(crash)" if left >= 2 and about["kernel"] == "rbf" else OPTIMAL

    about = draw(0, 3) | {"kernel": "rbf", "T": 9}
    small = shrink.shrink(about, judge=judge)
    assert small["T"] - len(small["drop"]["tasks"]) == 2
    assert small["n"] - len(small["drop"]["rows"]) == 1
    assert {name: small[name] for name in shrink.PLAIN if name != "kernel"} == {
        name: plain for name, plain in shrink.PLAIN.items() if name != "kernel"
    }
    path = shrink.write_test(small, "FAILURE(crash)", tmp_path)
    compile(path.read_text(), str(path), "exec")
