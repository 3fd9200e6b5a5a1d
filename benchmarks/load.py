"""How `taskloom predict` carries five million rows, and how quickly a model of ten thousand tasks predicts one.

    python benchmarks/load.py                 # writes benchmarks/results/load.json and load.md
    python benchmarks/load.py --rows 200000   # a small one

The table (a task column and eight numbers) is written to a temporary folder. Each reading is a process of its own; its
memory is the largest resident size that the system counted for it (``ru_maxrss``; it has no children), its time CPU seconds,
beside which wall seconds say how busy the machine was. `pandas` reads the same file in pieces of as many rows and does nothing
with them; `pandas, reading and writing` also writes what predict writes: the task column and a column of numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor, TablePreprocessor

RESULTS = Path(__file__).parent / "results"
PIECE = 20_000  # rows, as taskloom predict has them
TASKS, FEATURES = 200, 8
MANY_TASKS, MANY_FEATURES = 10_000, 20
READ = "import sys, pandas as pd\nfor piece in pd.read_csv(sys.argv[1], chunksize=20_000): pass"
COPY = """import sys, pandas as pd
with open(sys.argv[2], "w") as file:
    for piece in pd.read_csv(sys.argv[1], chunksize=20_000): piece[["task", "x0"]].to_csv(file, index=False)"""

MEASURE = """import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
os.write(int(sys.argv[1]), f"{used.ru_utime + used.ru_stime} {used.ru_maxrss}".encode())
sys.exit(os.waitstatus_to_exitcode(status))"""


def write_table(path: Path, rows: int, seed: int = 0) -> None:
    """Piece by piece, so that this process stays small, too."""
    rng = np.random.default_rng(seed)
    for done in range(0, rows, 100_000):
        n = min(100_000, rows - done)
        frame = pd.DataFrame(rng.normal(size=(n, FEATURES)).round(6), columns=[f"x{k}" for k in range(FEATURES)])
        frame.insert(0, "task", np.char.add("task ", rng.integers(TASKS, size=n).astype(str)))
        frame.to_csv(path, mode="a", index=False, header=done == 0)


def save_model(path: Path) -> None:
    """A model of 200 tasks with its preprocessing, as `taskloom fit --save` writes it."""
    rng = np.random.default_rng(1)
    n = 20 * TASKS
    frame = pd.DataFrame(rng.normal(size=(n, FEATURES)), columns=[f"x{k}" for k in range(FEATURES)])
    task = np.arange(n) % TASKS
    W = rng.normal(size=(FEATURES, 3)) @ rng.normal(size=(3, TASKS))
    y = np.einsum("ij,ji->i", frame.to_numpy(), W[:, task]) + rng.normal(size=n)
    frame.insert(0, "task", [f"task {t}" for t in task])
    model = make_pipeline(TablePreprocessor(task_column="task"), MultiTaskRegressor("trace", alpha=0.1, task_column="task"))
    taskloom.estimators.save(model.fit(frame, y), path, training=False)


def measured(command: list, **options) -> dict[str, float]:
    """CPU seconds, wall seconds and the largest resident size of a command.

    A small process starts it: the system counts the memory of whoever forked as the child's, too.
    """
    began = time.perf_counter()
    told, tell = os.pipe()
    run = [sys.executable, "-I", "-S", "-c", MEASURE, str(tell), sys.executable, *map(str, command)]
    subprocess.run(run, check=True, pass_fds=[tell], **options)
    os.close(tell)
    with open(told) as file:
        cpu, peak = map(float, file.read().split())
    return {"cpu_s": cpu, "wall_s": time.perf_counter() - began, "peak_mb": peak * 1024 / 1e6}


def many_rows(rows: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        table, model, out = Path(folder, "table.csv"), Path(folder, "model.taskloom"), Path(folder, "out.csv")
        write_table(table, rows)
        save_model(model)
        predict = ["-m", "taskloom", "predict", model, table]
        found = {"rows": rows, "file_mb": table.stat().st_size / 1e6, "runs": {}}
        runs = found["runs"]
        runs["pandas, reading"] = measured(["-c", READ, table])
        runs["pandas, reading and writing"] = measured(["-c", COPY, table, out])
        runs["taskloom predict, to a file"] = measured([*predict, "-o", out, "-q"])
        with open(out, encoding="utf-8") as file:
            lines = sum(1 for _ in file)
        assert lines == rows + 1, f"{lines} lines came out"
        with open(Path(folder, "piped.csv"), "wb") as piped:
            runs["taskloom predict, to standard output"] = measured([*predict, "-q"], stdout=piped)
        assert Path(folder, "piped.csv").read_bytes() == out.read_bytes(), "the two outputs differ"
        runs["importing taskloom.cli.table_files and pandas"] = measured(["-c", "import pandas, taskloom.cli.table_files"])
    base = runs["pandas, reading"]["cpu_s"]
    for run in runs.values():
        run["times_pandas"] = run["cpu_s"] / base
    return found


def median_ms(function, repeats: int = 300) -> float:
    """CPU time of a call, so that other work on the machine does not count."""
    function()
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        seconds.append(time.process_time() - began)
    return 1e3 * float(np.median(seconds))


def many_tasks() -> dict:
    """One row of a model of 10 000 tasks: median CPU time of 300 calls of ``predict``, and of reading the model's file."""
    rng = np.random.default_rng(2)
    T, d = MANY_TASKS, MANY_FEATURES
    W = rng.normal(size=(d, 3)) @ rng.normal(size=(3, T))
    task = np.arange(3 * T) % T
    X = rng.normal(size=(3 * T, d))
    y = np.einsum("ij,ji->i", X, W[:, task]) + 0.1 * rng.normal(size=3 * T)
    table = np.column_stack([X, task])
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(d)]).assign(task=[f"task {t}" for t in task])
    settings = {"alpha": 0.1, "tol": 1e-2}
    labels = np.where(np.arange(3 * T) // T == 1, -1, 1)  # both in every task
    wide = rng.normal(size=(60, d))
    models = {
        "array, the task a number": (MultiTaskRegressor(task_column=-1, **settings).fit(table, y), table[:1]),
        "data frame, the task a name": (MultiTaskRegressor(task_column="task", **settings).fit(frame, y), frame.iloc[:1]),
        "array, all 10 000 tasks (wide)": (MultiTaskRegressor(**settings).fit(wide, wide @ W), wide[:1]),
        "array, labels": (MultiTaskClassifier(task_column=-1, alpha=0.1, tol=0.1).fit(table, labels), table[:1]),
        "array, all 10 000 tasks, rbf kernel": (MultiTaskRegressor(kernel="rbf", **settings).fit(wide, wide @ W), wide[:1]),
    }
    found = {name: {"predict_ms": median_ms(lambda m=model, r=row: m.predict(r))} for name, (model, row) in models.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, _) in models.items():
            path = Path(folder, "model")
            model.save(path, training=False)
            found[name] |= {"load_ms": median_ms(lambda p=path: taskloom.load(p), 5), "file_mb": path.stat().st_size / 1e6}
    return {"tasks": T, "features": d, "models": found}


def as_text(found: dict) -> str:
    rows = found["many_rows"]
    lines = [
        "# Load",
        "",
        "`python benchmarks/load.py` wrote this.",
        "",
        f"A CSV file of {rows['rows']} rows, {rows['file_mb']:.0f} MB:",
        "",
        "| | CPU s | wall s | peak MB | times pandas' reading |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {run['cpu_s']:.1f} | {run['wall_s']:.1f} | {run['peak_mb']:.0f} | {run['times_pandas']:.1f} |"
        for name, run in rows["runs"].items()
    ]
    tasks = found["many_tasks"]
    lines += [
        "",
        f"One row of a model of {tasks['tasks']} tasks with {tasks['features']} features:",
        "",
        "| | predict, CPU ms | load, CPU ms | file, MB |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {each['predict_ms']:.2f} | {each['load_ms']:.0f} | {each['file_mb']:.1f} |"
        for name, each in tasks["models"].items()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for load.json and load.md")
    arguments = parser.parse_args()
    found = {"many_rows": many_rows(arguments.rows), "many_tasks": many_tasks()}
    text = as_text(found)
    (arguments.output / "load.json").write_text(json.dumps(found, indent=1) + "\n")
    (arguments.output / "load.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
