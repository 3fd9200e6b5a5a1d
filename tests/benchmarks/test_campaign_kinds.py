"""The second family of the campaign: each kind comes out well where it should, and a fault of each kind is noticed."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV
from taskloom.estimators import partial_fit

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from attack import build, shrink, summary, users, values
from attack.check import GOOD, OPTIMAL, REFUSED, STOPPED, check
from attack.draw import LABELS, draw_problem
from attack.kinds import KINDS, SECOND, draw

PLAIN = shrink.PLAIN | {"seed": 0, "k": 0, "parameter": 0.5, "gamma": 1.0, "n": 12, "d": 3, "T": 3, "fit_intercept": True}
PLAIN |= {"drop": {"tasks": [], "rows": [], "columns": []}}
FAR = PLAIN | {"kind": "far from zero", "dtype": "float32", "offset_x": 100.0, "offset_y": 10.0}
CONSTRAINTS = PLAIN | {"kind": "constraints", "structure": "constrained", "constraint": "forbidden entries"}
WRONG = PLAIN | {"kind": "wrong component", "loss": "log_cosh"}
SEARCH = PLAIN | {"kind": "search", "n": 18, "strength": -3.0}
BLOCKS = PLAIN | {"kind": "partial_fit", "blocks": 3, "sample_weight": "some"}
NEW_TASK = PLAIN | {"kind": "add_task", "new rows": 6}
UNITS = PLAIN | {"kind": "units", "alpha": 0.1}


def after(monkeypatch, change, method="fit", cls=MultiTaskRegressor):
    """Models that were tampered with once a method of theirs is done."""
    made = getattr(cls, method)

    def tampered(self, *arguments, **settings):
        made(self, *arguments, **settings)
        change(self)
        return self

    monkeypatch.setattr(cls, method, tampered)


def scaled(name, factor):
    def change(model):
        setattr(model, name, getattr(model, name) * factor)

    return change


# --- what is drawn -----------------------------------------------------------------------------------------------------------


def test_the_first_family_is_what_it_was_and_the_second_depends_on_its_numbers_alone():
    assert all(draw(0, k) == draw_problem(0, k) for k in range(50))
    assert "kind" not in draw(SECOND - 1, 3)
    assert draw(SECOND, 17) == draw(SECOND, 17) != draw(SECOND, 17 + len(KINDS))
    assert json.loads(json.dumps(draw(SECOND, 17))) == draw(SECOND, 17)
    assert [draw(SECOND, k)["kind"] for k in range(8)] == list(KINDS)


def test_every_promise_is_tried():
    drawn = {kind: [draw(SECOND, k) for k in range(at, 1600, len(KINDS))] for at, kind in enumerate(KINDS)}
    assert {about["constraint"] for about in drawn["constraints"]} == set(users.CONSTRAINTS)
    assert min(about["scale_y"] for about in drawn["constraints"]) < -6.5
    wrong = [
        about.get("wrong loss", about.get("wrong structure")) | {"loss": about["loss"]} for about in drawn["wrong component"]
    ]
    assert {(each["loss"], each["fault"]) for each in wrong if "base" not in each} == {
        (loss, fault) for loss, faults in users.LOSS_FAULTS.items() for fault in faults
    }
    assert {each["fault"] for each in wrong if "base" in each} == set(users.STRUCTURE_FAULTS)
    assert {about["loss"] for about in drawn["units"]} > set(LABELS)
    assert max(about["offset_x"] for about in drawn["far from zero"]) > 5e7
    entries = [{"k": k, "seed": SECOND, "outcome": OPTIMAL, "seconds": 0.0} for k in range(16)]
    assert set(summary.coverage(entries)["kind"]) == set(KINDS)


def test_inputs_far_from_zero_differ_by_about_one():
    instance = build.build(FAR | {"offset_x": 1e7})
    assert instance.X.dtype == np.float32
    assert np.abs(instance.X - 1e7).max() < 10
    assert np.ptp(instance.X) > 1


@pytest.mark.parametrize("k", [16, 41, 154, 11, 12, 13, 14, 15])
def test_one_instance_of_each_kind_comes_out_well(k):
    pytest.importorskip("cvxpy")
    entry = check(draw(SECOND, k))
    assert entry["kind"] == KINDS[k % 8]
    assert entry["outcome"] in GOOD, entry
    assert entry["outcome"] == OPTIMAL or entry["kind"] == "wrong component", entry


# Weights that were rounded after the certificate; constraints that were violated, or failed; wrong components that passed; fits
# in mixed units that stopped short, divided by zero, or had a primal value below the loss.
MENDED = "8 24 32 | 81 137 217 249 297 465 | 146 162 250 602 618 | 255 263 887 1527 1999 2327"


@pytest.mark.parametrize("k", [int(k) for k in MENDED.replace("|", "").split()])
def test_instances_that_once_failed_come_out_well(k):
    pytest.importorskip("cvxpy")
    entry = check(draw(SECOND, k) | {"second": "", "invariances": []})
    labelled = entry["kind"] == "wrong component" and entry["outcome"] == STOPPED
    assert entry["outcome"] == OPTIMAL or labelled, entry


# --- single precision ----------------------------------------------------------------------------------------------------


def test_weights_that_were_rounded_after_their_certificate_are_noticed(monkeypatch):
    assert check(FAR)["outcome"] == OPTIMAL

    def rounded(model):
        model.coef_ = model.coef_.astype(np.float16).astype(np.float32)

    after(monkeypatch, rounded)
    assert check(FAR)["outcome"] == "FAILURE(false certificate)"


# --- constraints -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", users.CONSTRAINTS)
def test_a_structure_that_violates_its_constraint_is_noticed(monkeypatch, what):
    pytest.importorskip("cvxpy")
    about = CONSTRAINTS | {"constraint": what, "parameter": 0.1}
    assert check(about)["outcome"] == OPTIMAL

    def loosened(model):
        A, T = np.asarray(model.structure_), len(model.tasks_)
        model.structure_ = 1.01 * A + 1e-2 * np.abs(A).max() * (np.eye(T)[::-1] * (-1 if "negative" in what else 1))

    after(monkeypatch, loosened)
    assert check(about)["outcome"] == "FAILURE(infeasible)"


@pytest.mark.parametrize("scale", [0.0, 3.0])
def test_a_bound_above_the_minimum_under_constraints_is_noticed(monkeypatch, scale):
    """The judge knows the minimum from the same problem in good units."""
    pytest.importorskip("cvxpy")
    about = CONSTRAINTS | {"scale_x": -scale, "scale_y": scale}
    instance = build.build(about)

    def spoiled(model):
        model.coef_ = 1.05 * model.coef_
        worse = values.objective(instance, model).total
        model.certificate_ = replace(model.certificate_, primal=worse, dual=worse, gap=0.0, relative_gap=0.0, status="optimal")

    after(monkeypatch, spoiled)
    entry = check(about)
    assert entry["outcome"] == "FAILURE(false certificate)"
    assert "CVXPY" in entry["detail"]


def test_a_refusal_of_constraints_that_have_a_solution_is_noticed():
    assert check(CONSTRAINTS | {"solver": "projected"})["outcome"] == "FAILURE(refused)"


# --- wrong components ------------------------------------------------------------------------------------------------------


FAULTS = [*({"loss": loss, "wrong loss": {"fault": f}} for loss, faults in users.LOSS_FAULTS.items() for f in faults)]
FAULTS += [
    {"structure": "custom", "loss": "squared", "wrong structure": {"base": "trace", "fault": f}} for f in users.STRUCTURE_FAULTS
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_factor_of_one_makes_no_component_wrong(fault):
    """But for values that are too small whatever the factor: the formulas of the users' components are right."""
    pytest.importorskip("cvxpy")
    key = "wrong loss" if "wrong loss" in fault else "wrong structure"
    outcome = check(WRONG | fault | {key: fault[key] | {"factor": 1.0}})["outcome"]
    assert outcome == OPTIMAL or (fault[key]["fault"] == "conjugate values" and outcome != OPTIMAL)


def test_a_false_bound_of_a_wrong_component_is_noticed_and_a_label_is_not_one(monkeypatch):
    pytest.importorskip("cvxpy")
    about = WRONG | {"wrong loss": {"fault": "gradient", "factor": 2.0}}
    label = {"status": "optimal", "message": "fine"}

    def claimed(model):
        said = model.certificate_
        model.certificate_ = replace(said, dual=1.01 * said.primal, gap=0.0, relative_gap=0.0, **label)

    after(monkeypatch, claimed)
    assert check(about)["outcome"] == "FAILURE(false certificate)"
    label["message"] = "The minimum is not certified: the gradient is not that of the value."
    assert check(about)["outcome"] == STOPPED
    label |= {"status": "stalled", "message": "stopped"}
    assert check(about)["outcome"] == STOPPED


def test_a_wrong_component_that_is_refused_is_caught(monkeypatch):
    monkeypatch.setattr(users.WrongLoss, "value", None)
    assert check(WRONG | {"wrong loss": {"fault": "gradient", "factor": 2.0}})["outcome"] == REFUSED


# --- other doors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [scaled("coef_", 1.2), scaled("alpha_", 1.0001), scaled("best_score_", 0.9)])
def test_a_search_that_is_not_the_plain_fit_is_noticed(monkeypatch, change):
    assert check(SEARCH)["outcome"] == OPTIMAL
    after(monkeypatch, change, cls=MultiTaskRegressorCV)
    assert check(SEARCH)["outcome"].startswith("FAILURE")


def test_scores_that_are_not_those_of_the_folds_are_noticed(monkeypatch):
    def generous(model):
        model.cv_results_ = model.cv_results_ | {"mean_test_score": model.cv_results_["mean_test_score"] + 0.01}
        model.best_score_ = model.best_score_ + 0.01

    after(monkeypatch, generous, cls=MultiTaskRegressorCV)
    assert check(SEARCH)["outcome"] == "FAILURE(search)"


@pytest.mark.parametrize("kind", ["partial_fit", "fit_blocks"])
def test_blocks_that_are_not_all_counted_are_noticed(monkeypatch, kind):
    about = BLOCKS | {"kind": kind}
    assert check(about)["outcome"] == OPTIMAL
    add = partial_fit.Statistics.add_wide
    monkeypatch.setattr(
        partial_fit.Statistics, "add_wide", lambda self, X, names, Y, S: add(self, X, names, Y, np.ones_like(S))
    )
    assert "certificate" in check(about)["outcome"]


def test_blocks_that_are_refused_where_the_rows_together_are_not_are_noticed(monkeypatch):
    def refuse(*_):
        return partial_fit._read([None])

    monkeypatch.setattr(partial_fit, "_solved", lambda *given: next(refuse(*given)))
    assert check(BLOCKS)["outcome"] == "FAILURE(blocks)"


@pytest.mark.parametrize("structure", ["trace", "frobenius", "independent", "shared_mean", "clusters"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_new_task_that_is_not_minimal_is_noticed(monkeypatch, structure, loss):
    pytest.importorskip("cvxpy")
    about = NEW_TASK | {"structure": structure, "loss": loss}
    assert check(about)["outcome"] == OPTIMAL
    cls = type(build.build(about).estimator())

    def off(model):
        model.coef_ = model.coef_ * np.append(np.ones(3), 1.3)[:, None]

    after(monkeypatch, off, "add_task", cls)
    assert check(about)["outcome"] == "FAILURE(new task)"


def test_a_new_task_that_changes_the_others_is_noticed(monkeypatch):
    after(monkeypatch, scaled("coef_", 1 + 1e-12), "add_task")
    assert check(NEW_TASK)["outcome"] == "FAILURE(new task)"


# --- units -------------------------------------------------------------------------------------------------------------------


def test_a_fit_in_mixed_units_that_does_not_arrive_is_a_failure(monkeypatch):
    assert check(UNITS)["outcome"] == OPTIMAL
    assert check(UNITS | {"loss": "absolute"}, limit=1e-3)["outcome"] == "FAILURE(short of its tolerance)"

    def short(model):
        model.certificate_ = replace(model.certificate_, status="stalled", message="stopped")

    after(monkeypatch, short)
    assert check(UNITS)["outcome"] == "FAILURE(short of its tolerance)"


def test_shrinking_keeps_what_a_kind_is_about(monkeypatch):
    about = draw(SECOND, 1)

    def judge(about, limit):
        return "FAILURE(infeasible)" if about["T"] - len(about["drop"]["tasks"]) >= 3 else OPTIMAL

    small = shrink.shrink(about, judge=judge)
    assert small["T"] - len(small["drop"]["tasks"]) == 3
    assert {name: small[name] for name in about["fixed"]} == {name: about[name] for name in about["fixed"]}
