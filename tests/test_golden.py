"""What an earlier commit computed: brackets that must overlap, and model files that must predict the same.

The numbers are in tests/golden/ and come from tests/golden/freeze.py, run with the code of the commit that they name.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zoo
from golden import cases, models
from scipy.special import logsumexp

import taskloom

HERE = Path(__file__).parent / "golden"
ROUNDING = 1e-11  # of objectives, in units of 1 + |value|; weights are frozen to as many digits
STATIONARY = 1e-4  # of the loss of zero predictions: how far values at stationary points found twice may lie apart
FROZEN = json.loads((HERE / "brackets.json").read_text())["cases"]
MODELS = json.loads((HERE / "models" / "expected.json").read_text())["models"]
CASES = {case.key: case for case in cases.every_case()}


def loss_term(case: cases.Case, W: np.ndarray, b: np.ndarray) -> float:
    """The mean loss of each task, added up, and the ridge: written out here, since it judges the code."""
    X, Y = case.data()
    Z = X @ W + b
    ridge = case.ridge * float(np.vdot(W, W))
    if case.loss in cases.ROW_LOSSES:
        own = np.argmax(Y, axis=1)[:, None]
        margin = np.where(np.arange(zoo.T) == own, 0.0, float(case.loss == "MulticlassHinge"))
        whole = np.max(Z + margin, axis=1) if margin.any() else logsumexp(Z, axis=1)
        return float(np.mean(whole - np.take_along_axis(Z, own, axis=1)[:, 0])) + ridge
    seen = np.isfinite(Y)
    loss = cases.LOSSES[case.loss]
    return ridge + sum(float(np.mean(loss.value(Y[s, t], Z[s, t]))) for t, s in enumerate(seen.T))


def bend(case: cases.Case, one: tuple, other: tuple) -> float:
    """How far the loss term midway between two points lies below its mean at both: 0 where they predict the same."""
    midway = tuple((a + c) / 2 for a, c in zip(one, other, strict=True))
    return (loss_term(case, *one) + loss_term(case, *other)) / 2 - loss_term(case, *midway)


def weakest_direction(case: cases.Case) -> float:
    """The least of what a unit step in weights and intercept of a task adds to its mean of squares."""
    X, Y = case.data()
    designs = [np.column_stack([X[s], np.ones(s.sum())]) / np.sqrt(s.sum()) for s in np.isfinite(Y).T]
    return min(float(np.linalg.svd(design, compute_uv=False)[-1]) ** 2 for design in designs)


def assert_brackets_overlap(old: dict, certificate) -> None:
    slack = ROUNDING * (1 + abs(old["primal"]))
    assert certificate.dual <= certificate.primal + slack
    assert certificate.dual <= old["primal"] + slack, "the new lower bound lies above a value that was attained"
    assert old["dual"] <= certificate.primal + slack, "the new value lies below what was proved to be a lower bound"


def assert_same_predictions(case: cases.Case, old: dict, new) -> None:
    """The penalty is convex: the loss term cannot bend between two points by more than their gaps leave room for."""
    points = (np.array(old["W"]), np.array(old["b"])), (new.W, new.b)
    room = (old["primal"] + new.certificate.primal) / 2 - max(old["dual"], new.certificate.dual)
    room = max(room, 0.0) + ROUNDING * (1 + abs(old["primal"]))
    assert bend(case, *points) <= room
    if case.loss == "Squared":
        apart = sum(float(np.sum((a - c) ** 2)) for a, c in zip(*points, strict=True))
        assert apart <= 4 * room / weakest_direction(case), "weights are further apart than the gaps allow"


def parameters(slow: bool) -> list:
    return [key for key in FROZEN if key in CASES and CASES[key].slow is slow]


def check(key: str) -> None:
    case, old = CASES[key], FROZEN[key]
    new = case.solved()
    certificate = new.certificate
    if old["status"] in ("optimal", "stationary"):
        assert certificate.status == old["status"], certificate.message
    if not case.convex:
        scale = loss_term(case, np.zeros_like(new.W), np.zeros_like(new.b))
        assert abs(certificate.primal - old["primal"]) <= STATIONARY * scale
        return
    assert_brackets_overlap(old, certificate)
    if old["status"] == "optimal":
        assert certificate.relative_gap <= case.tol
    if "W" in old:
        assert_same_predictions(case, old, new)


def test_every_frozen_case_is_still_posed():
    assert not set(FROZEN) - set(CASES), "the zoo lost a loss or a structure, or they changed their order"


@pytest.mark.parametrize("key", parameters(slow=False))
def test_brackets_overlap(key):
    check(key)


@pytest.mark.slow
@pytest.mark.parametrize("key", parameters(slow=True))
def test_brackets_overlap_in_the_wider_product(key):
    check(key)


def assert_close(found, expected) -> None:
    """Numbers to 1e-12 of the largest of them, everything else exactly."""
    found, expected = np.array(found), np.array(expected)
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        assert np.nanmax(np.abs(found - expected)) <= 1e-12 * max(1.0, np.nanmax(np.abs(expected)))
    else:
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("name", MODELS)
def test_old_model_files_predict_the_same(name):
    pytest.importorskip("safetensors")
    rows, expected = models.from_columns(MODELS[name]["rows"]), MODELS[name]["answers"]
    found = models.answers(taskloom.load(HERE / "models" / f"{name}.taskloom"), rows)
    assert set(expected) <= set(found)
    for ask, answer in expected.items():
        assert_close(found[ask], answer)
