"""Ctrl-C, kills, full disks and folders that cannot be written: what was there stays, and one sentence says what happened."""

import csv
import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import LONG, QUICK, environment, taskloom_
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, Problem, cli, compare_to_single_task, structures
from taskloom.experiments.process_pool import end_with_parent
from taskloom.experiments.runner import _as_csv
from taskloom.persistence import atomic_path, atomic_write
from taskloom.solvers import path
from taskloom.solvers.record import Record

pytest.importorskip("safetensors")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and locks are those of POSIX")

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
Y = X @ rng.normal(size=(4, 3)) + 0.1 * rng.normal(size=(30, 3))

# --- Ctrl-C in a fit --------------------------------------------------------------------------------------------------------

FITS = {
    "alternating": structures.Trace(),
    "block": structures.Trace(),
    "factored": structures.Trace(),
    "proximal": structures.Trace(),
    "auto, on weights": structures.Clusters(2),
    "auto, sum": structures.Dirty(),
    "auto, on features": structures.FeatureSelection(),
    "auto, searched": structures.Sparse(0.3),
    "auto, not convex": structures.LowRank(2),
}


def interrupted_at(monkeypatch, step):
    """Ctrl-C while the given iterate is certified."""
    original, seen = Problem.evidence, []

    def evidence(self, point, tol):
        seen.append(point)
        if len(seen) == step + 1:
            raise KeyboardInterrupt
        return original(self, point, tol)

    monkeypatch.setattr(Problem, "evidence", evidence)


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("name", FITS)
def test_every_solver_keeps_its_best_iterate(name, after, monkeypatch):
    model = MultiTaskRegressor(FITS[name], solver=name.split(",")[0], alpha=0.05, tol=0.0, max_iter=20)  # out of reach
    interrupted_at(monkeypatch, after)
    if "not convex" in name and after == 0:  # no iterate, and no bound that needs no work
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
        return
    with pytest.warns(ConvergenceWarning, match="Interrupted after .* best iterate so far"):
        model.fit(X, Y)
    proof = model.certificate_
    assert proof.status == "interrupted"
    assert np.isfinite(proof.primal)
    assert proof.dual <= proof.primal * (1 + 1e-14)
    assert np.isfinite(model.predict(X)).all()


def test_ctrl_c_in_a_callback(monkeypatch):
    original, seen = Record.update, []

    def record(self, point):
        gap = original(self, point)
        if len(self.history) == 2 and not seen:
            seen.append(point)
            raise KeyboardInterrupt
        return gap

    monkeypatch.setattr(Record, "update", record)
    with pytest.warns(ConvergenceWarning, match="Interrupted after 2 iterations"):
        model = MultiTaskRegressor(solver="proximal", tol=1e-15).fit(X, Y)
    assert len(model.history_["gap"]) == 2


def test_ctrl_c_ends_a_walk_and_a_search(monkeypatch):
    """It was meant for all of it, not for the one strength that was being solved."""
    interrupted_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        path(MultiTaskRegressor()._prepare(X, Y, None).problem, [0.1, 0.01, 0.001], tol=1e-15)
    interrupted_at(monkeypatch, 3)
    model = MultiTaskRegressorCV(alphas=4, cv=3, kernels=None)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert not hasattr(model, "certificate_")
    interrupted_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        compare_to_single_task(MultiTaskRegressor(), X, Y, cv=3)


def test_the_folds_that_are_complete_decide(monkeypatch):
    from taskloom.estimators.cross_validation import folds_fit as trial

    original, runs = trial._run_fold, []

    def run_fold(*args):
        runs.append(args)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(trial, "_run_fold", run_fold)
    with pytest.warns(ConvergenceWarning, match="interrupted after 2 of 5 folds"):
        model = MultiTaskRegressorCV(alphas=4, cv=5, kernels=None).fit(X, Y)
    assert model.n_splits_ == 2
    assert "split1_test_score" in model.cv_results_
    assert "split2_test_score" not in model.cv_results_
    assert "interrupted after 2 of 5 folds" in model.certificate_.message
    assert model.predict(X).shape == Y.shape


@posix
def test_a_real_ctrl_c_in_a_script():
    """SIGINT, as a notebook sends it: the fit ends with its best iterate, and the script goes on."""
    code = """
    import os, signal, threading, warnings
    import numpy as np
    from taskloom import MultiTaskRegressor, structures
    import importlib
    loop = importlib.import_module("taskloom.solvers.solve")
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(400, 20)), rng.normal(size=(400, 100))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background inherit that it is ignored
    begin = loop.iterate
    def iterate(*given):  # on a busy machine what comes before may take longer than any timer
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        return begin(*given)
    loop.iterate = iterate
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MultiTaskRegressor(structures.Sparse(0.3), loss="absolute", alpha=1e-4, tol=1e-15, max_iter=10**6).fit(X, Y)
    print(model.certificate_.status, len(caught), np.isfinite(model.coef_).all())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["interrupted", "1", "True"], done.stderr


# --- kills ------------------------------------------------------------------------------------------------------------------


@posix
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    target = tmp_path / "m"
    target.write_bytes(b"before")
    code = f"""
    import os, signal
    from taskloom.persistence import atomic_path
    with atomic_path({str(target)!r}) as place:
        place.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment(), check=False)
        assert done.returncode == -signal.SIGKILL
        assert target.read_bytes() == b"before"
        assert len(list(tmp_path.iterdir())) == 2  # they do not pile up
    atomic_write(target, b"after")
    assert target.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [target]


@posix
def test_a_writer_that_is_alive_keeps_its_temporary_file(tmp_path):
    with atomic_path(tmp_path / "m") as slow:
        slow.write_bytes(b"slow")
        atomic_write(tmp_path / "m", b"quick")
        assert slow.exists()
    assert (tmp_path / "m").read_bytes() == b"slow"
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


@posix
def test_workers_leave_with_their_parent(tmp_path):
    """A pool of two whose owner is killed: nobody is left after some seconds."""
    code = f"""
    import os, signal, time
    from concurrent.futures import ProcessPoolExecutor
    from pathlib import Path
    from taskloom.experiments.process_pool import end_with_parent
    def note(k):
        Path({str(tmp_path)!r}, str(os.getpid())).touch()
        time.sleep(0.2)
    if __name__ == "__main__":
        with ProcessPoolExecutor(2, initializer=end_with_parent, initargs=(os.getpid(), 0.1)) as pool:
            list(pool.map(note, range(2)))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment(), check=False)
    workers = [int(entry.name) for entry in tmp_path.iterdir()]
    assert workers
    end = time.monotonic() + 20
    while any(_alive(worker) for worker in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_alive(worker) for worker in workers)
    end_with_parent(os.getpid())  # not a worker: nothing happens


@posix
def test_a_worker_whose_parent_died_before_it_could_watch_leaves_at_once(monkeypatch):
    starter = type("Starter", (), {"pid": 2**22 + 1})()  # larger than any process
    monkeypatch.setattr("taskloom.experiments.process_pool.multiprocessing.parent_process", lambda: starter)
    left = threading.Event()
    monkeypatch.setattr("taskloom.experiments.process_pool.os._exit", lambda code: left.set())
    end_with_parent(starter.pid)
    assert left.wait(5)


def _alive(process):
    try:
        os.kill(process, 0)
    except OSError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


# --- disks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_devices_are_written_to_and_stay_devices(folder, saved, capfd):
    assert taskloom_("predict", saved, folder / "long.csv", "-o", "/dev/full") == cli.FAILED
    assert capfd.readouterr().err == "taskloom: No space left on device: /dev/full\n"
    assert taskloom_("predict", saved, folder / "long.csv", "-o", "/dev/null", "-q") == 0
    assert not os.path.isfile("/dev/full")
    assert not os.path.isfile("/dev/null")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_standard_output_that_is_full(folder, saved):
    argv = [sys.executable, "-m", "taskloom", "predict", str(saved), str(folder / "long.csv")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (cli.FAILED, "taskloom: No space left on device\n")


@posix
@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_file_that_cannot_grow(command, folder, saved, tmp_path, capsys, monkeypatch):
    """A limit on the size of files stands for a full disk; the old file stays, and nothing else."""
    out = tmp_path / "o.csv"
    out.write_bytes(b"before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))
        if command == "predict":
            code = taskloom_("predict", saved, folder / "long.csv", "-o", out, "-q")
        else:
            code = taskloom_("fit", folder / "long.csv", *LONG, "--drop", "pupil,passed", *QUICK, "-q", "--save", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert code == cli.FAILED
    assert capsys.readouterr().err == f"taskloom: File too large: {out}\n"
    assert out.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_errors_of_the_system_name_the_file(code, folder, saved, tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "o.csv"
    assert taskloom_("predict", saved, folder / "long.csv", "-o", out, "-q") == cli.FAILED
    assert capsys.readouterr().err == f"taskloom: {os.strerror(code)}: {out}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_noticed_before_the_fit(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("taskloom.cli.table_roles.read_data", lambda *_, **__: pytest.fail("the table was read first"))
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    for option in ("--save", "--report"):
        assert taskloom_("fit", folder / "long.csv", *LONG, option, tmp_path / "x") == cli.FAILED
        said = capsys.readouterr().err
        assert said == f"taskloom: the folder {tmp_path} cannot be written to; name another one for x\n"


def test_tables_of_the_experiments_quote_their_commas():
    rows = [["method", "error"], ["STL, one strength", 0.5]]
    assert list(csv.reader(_as_csv(rows).splitlines())) == [["method", "error"], ["STL, one strength", "0.5"]]
