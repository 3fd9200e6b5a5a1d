"""Rows of size: a table of a million rows on the command line, the start of a command, 100 000 tasks, and those on a card.

Commands run as a user runs them, in processes of their own; their CPU seconds and their peak memory are those of the child.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cliff_rows.row import Measured, Row, cpu

ROWS_OF_TABLE, INPUTS, TASKS = 1_000_000, 8, 50
SMALL_TASKS = 4  # of the table on which commands are started
STARTS = 3  # of each command; the least counts
MOST_MEMORY = 3.5  # GiB, for 100 000 tasks of 30 rows and 50 inputs


def taskloom(*arguments: str) -> tuple[float, float]:
    """CPU seconds of one command, and the peak memory (GiB) of the largest child so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "taskloom", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 2**20


def long_table(n_rows: int, n_tasks: int) -> Any:
    """A frame with eight inputs, a task and a target of three planted directions; six decimals, as tables have."""
    import pandas as pd

    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(n_rows, INPUTS)), rng.integers(n_tasks, size=n_rows)
    W = rng.normal(size=(n_tasks, 3)) @ rng.normal(size=(3, INPUTS))
    y = np.einsum("ij,ij->i", X, W[task]) + 2 * rng.normal(size=n_rows)
    inputs = {f"x{j}": X[:, j].round(6) for j in range(INPUTS)}
    return pd.DataFrame({"task": [f"task {t:02d}" for t in task.tolist()], **inputs, "y": y.round(6)})


def write_csv(frame: Any, path: Path) -> str:
    import pyarrow as pa
    import pyarrow.csv

    pa.csv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), path)
    return str(path)


def ridge_by_task(path: str) -> None:
    """What a user writes instead: scikit-learn's ``RidgeCV`` for each task, 20 strengths."""
    import pandas as pd
    from sklearn.linear_model import RidgeCV

    for _, rows in pd.read_csv(path).groupby("task"):
        RidgeCV(np.logspace(-3, 3, 20)).fit(rows.drop(columns=["task", "y"]).to_numpy(), rows["y"].to_numpy())


def fit_a_million() -> Measured:
    with TemporaryDirectory() as folder:
        path = write_csv(long_table(ROWS_OF_TABLE, TASKS), Path(folder) / "table.csv")
        seconds, peak = taskloom("fit", path, "--target", "y", "--task", "task", "--save", str(Path(folder) / "m.taskloom"))
        ridge, _ = cpu(lambda: ridge_by_task(path))
    return Measured(seconds, 1.0, 60, f"RidgeCV for each task {ridge:.1f} s; peak memory {peak:.1f} GiB")


def starts() -> Measured:
    """The slowest of the commands, each with hardly anything to do; ``fit`` and ``compare`` also solve a few tiny problems."""
    with TemporaryDirectory() as folder:
        table, model = (
            write_csv(long_table(10 * SMALL_TASKS, SMALL_TASKS), Path(folder) / "t.csv"),
            str(Path(folder) / "m.taskloom"),
        )
        short = (table, "--target", "y", "--task", "task", "--cv", "2", "--alphas", "1", "--structure", "independent")
        commands = {
            "fit": ("fit", *short, "--save", model),
            "predict": ("predict", model, table, "-o", str(Path(folder) / "predicted.csv")),
            "inspect": ("inspect", model),
            "compare": ("compare", *short),
            "demo": ("demo", "--table", str(Path(folder) / "shops.csv")),
            "reproduce": ("reproduce",),
            "--help": ("--help",),
        }
        found = {name: min(taskloom(*command)[0] for _ in range(STARTS)) for name, command in commands.items()}
    listed = ", ".join(f"{name} {seconds:.2f}" for name, seconds in found.items())
    return Measured(max(found.values()), 1.0, 0.6, listed)


def many_tasks_fit() -> Measured:
    import many_tasks

    found = many_tasks.measure(100_000)
    table, peak = found["gibibytes_of_data"], found["peak"]
    note = (
        f"relative gap {found['relative_gap']:.1e}, {found['n_iter']} steps; peak {peak:.2f} GiB, of it the table {table:.2f}"
    )
    return Measured(found["cpu"], 1.0, 8, note, also=found["status"] == "optimal" and peak <= MOST_MEMORY)


def on_a_card(what: str, bar: float, from_host: float | None = None) -> Measured:
    """A fit on a card, its data there before the clock starts, and from arrays of NumPy; wall seconds, the best of three."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        return Measured(float("nan"), 1.0, bar, "not measured: no GPU")
    import gpu

    bench, size = gpu.Bench("torch", "cuda"), gpu.SIZES[what]
    gpu.fit(bench, what, size, "float64")
    seconds = min(gpu.fit(bench, what, size, "float64")[0] for _ in range(3))
    if from_host is None:
        return Measured(seconds, 1.0, bar, "wall seconds")
    from taskloom import MultiTaskRegressor

    X, y, settings = gpu.data(what, size)
    model = MultiTaskRegressor("trace", tol=gpu.TOL, device="cuda", **settings)
    host = min(bench.clock(lambda: model.fit(X, y))[0] for _ in range(3))
    return Measured(seconds, 1.0, bar, f"wall seconds; from the host {host:.2f}", also=host <= from_host)


ROWS = [
    Row(
        "`taskloom fit`, 1 000 000 rows x 8, 50 tasks",
        "262 s, 1.7 GB; `RidgeCV` for each task 18 s",
        "60 s",
        fit_a_million,
    ),
    Row("start of any command", "1.3 s; `--help` 0.05 s", "0.6 s", starts),
    Row(
        "100 000 tasks x 30, 50 inputs",
        "17 s (half of it system time), 5.4 GiB for a table of 1.1 GiB; naive FISTA 19.6 s",
        "8 s, 3.5 GiB",
        many_tasks_fit,
    ),
    Row(
        "100 000 tasks on an H200; from the host",
        "0.31 s, of it 0.05 solving, 3 % of the roofline; 1.1 s",
        "0.12 s; 0.6 s",
        lambda: on_a_card("tasks", 0.12, 0.6),
    ),
    Row(
        "exact kernel of 20 000 rows on an H200",
        "0.095 s, of it 0.03 solving",
        "0.05 s",
        lambda: on_a_card("kernel", 0.05),
    ),
]
