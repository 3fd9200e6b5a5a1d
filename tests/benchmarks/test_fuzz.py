"""A short run of benchmarks/fuzz.py, and a judge that notices what it should."""

import sys
from pathlib import Path

import pytest

import taskloom
from taskloom import ModelFileError

pytest.importorskip("safetensors")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def fuzzing():
    """The attackers, which live beside the benchmarks."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield pytest.importorskip("attack.fuzzing")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def fuzzer(fuzzing, tmp_path_factory):
    return fuzzing.Fuzzer(tmp_path_factory.mktemp("fuzz"), 1, tmp_path_factory.mktemp("failures"))


@pytest.mark.parametrize(("what", "count"), [("model files", 300), ("tables", 60)])
def test_files_are_used_or_refused_in_one_sentence(what, count, fuzzing, fuzzer):
    tally = fuzzing.Tally()
    for _ in range(count):
        fuzzer.judge_next(what, tally)
    assert tally.failures == []
    assert tally.done == count
    assert fuzzing.Tally(tally.as_json()).rows() == tally.rows()


def test_the_judge_notices(fuzzing, fuzzer, tmp_path, monkeypatch):
    """A canary that ran, another exception, a sentence that is none: each is a failure."""
    path, mark = tmp_path / "m", tmp_path / "mark"
    path.write_bytes(fuzzer.seeds[0])
    assert fuzzing.judge_model(path, mark)[0] == "used"
    for error, outcome in ((ZeroDivisionError("x"), "ZeroDivisionError"), (ModelFileError(""), "no sentence")):

        def fail(_, error=error):
            raise error

        monkeypatch.setattr(taskloom, "load", fail)
        assert outcome in fuzzing.judge_model(path, mark)[0]
    mark.touch()
    assert fuzzing.judge_model(path, mark)[0] == "FAILURE(it ran)"
