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


def test_heavy_files_take_three_seconds_and_a_gibibyte_at_most(fuzzing, tmp_path_factory):
    """One of each kind of file that asks for more work or memory than its size, in a process of its own."""
    heavy = fuzzing.heavy_files
    fuzzer = fuzzing.Fuzzer(tmp_path_factory.mktemp("heavy"), 1, tmp_path_factory.mktemp("failures"), largest=2 << 20)
    tally = fuzzing.Tally()
    for _ in heavy.KINDS:
        fuzzer.judge_next("heavy model files", tally)
    assert tally.failures == []
    assert set(tally.outcomes) == set(heavy.KINDS)


@pytest.mark.parametrize("kind", ["Parquet: one long text in every row", "a file with a hole", "a long name among short ones"])
def test_heavy_tables_take_a_gibibyte_at_most(kind, fuzzing, fuzzer, tmp_path):
    kinds = list(fuzzing.heavy_tables.KINDS)
    for k in (kinds.index(kind), kinds.index(kind) + len(kinds)):
        _, argv = fuzzing.heavy_tables.draw(0, k, tmp_path / "t.csv", fuzzer.model, tmp_path / "o.csv")
        outcome, detail = fuzzing.apart(lambda argv=argv: fuzzing.judge_heavy_command(argv))
        assert outcome in ("used", "refused"), detail


def test_a_process_that_dies_or_grows_is_a_failure(fuzzing, tmp_path, fuzzer, monkeypatch):
    import os

    assert fuzzing.apart(lambda: os.kill(os.getpid(), 9))[0] == "FAILURE(died)"
    path = tmp_path / "m"
    path.write_bytes(fuzzer.seeds[0])

    def grow(_):
        kept.append(b"x" * (300 << 20))
        raise ModelFileError("a sentence")

    kept = []
    monkeypatch.setattr(taskloom, "load", grow)
    monkeypatch.setattr(fuzzing, "LOAD_ROOM", 1 << 28)
    assert fuzzing.apart(lambda: fuzzing.judge_model(path, tmp_path / "mark"))[0] == "FAILURE(memory)"


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
