"""Growth in the number of tasks: fits of long tables from 1 000 to 100 000 tasks to a certified relative gap of 1e-4.

    python benchmarks/many_tasks.py [--most 100000] [--threads 1] [--quick]

Each task has 30 examples of its own, d = 50: five planted directions, some noise in the weights, noise in the targets, which
are scaled to unit variance. ``MultiTaskRegressor("trace", task_column=-1)`` at 0.1 of the strength at which nothing is learned.
Every size runs in a process of its own; memory is the peak of that process, the table included. The gradient is that of the
logarithm of the CPU seconds of ``fit``. Writes benchmarks/results/many_tasks.json and many_tasks.md; ``--quick`` is 300 and
1 000 tasks and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
N, D, SHARE, TOL = 30, 50, 0.1, 1e-4
SIZES = (1_000, 3_162, 10_000, 31_623, 100_000)
COLUMNS = {
    "tasks": "tasks",
    "gibibytes_of_data": "table (GiB)",
    "n_iter": "iterations",
    "relative_gap": "relative gap",
    "cpu": "fit, CPU s",
    "wall": "fit, wall s",
    "predict": "predict, CPU s",
    "peak": "peak memory (GiB)",
}


def long_table(n_tasks: int, seed: int = 0) -> tuple[Any, Any, float]:
    """Inputs with the task as the last column, targets, and the strength at which the trace penalty learns nothing.

    Made a thousand tasks at a time, so that the peak of memory is that of the fit.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(D, 5)) / np.sqrt(5)
    X, y = np.empty((n_tasks * N, D + 1)), np.empty(n_tasks * N)
    for first in range(0, n_tasks, 1000):
        tasks = np.arange(first, min(first + 1000, n_tasks))
        rows = slice(first * N, (tasks[-1] + 1) * N)
        x = rng.normal(size=(len(tasks), N, D))
        W = rng.normal(size=(len(tasks), 5)) @ basis.T + 0.3 * rng.normal(size=(len(tasks), D))
        X[rows, :-1], X[rows, -1] = x.reshape(-1, D), np.repeat(tasks, N)
        y[rows] = np.einsum("tij,tj->ti", x, W).ravel() + rng.normal(size=len(tasks) * N)
    y /= y.std()
    moments = np.zeros((D, D))  # ZZ' with Z the gradients at the best constants; its largest eigenvalue over 4 is alpha_max
    for first in range(0, n_tasks, 1000):
        rows = slice(first * N, min(first + 1000, n_tasks) * N)
        g = y[rows].reshape(-1, N)
        Z = np.einsum("tij,ti->tj", X[rows, :-1].reshape(-1, N, D), 2 / N * (g - g.mean(axis=1, keepdims=True)))
        moments += Z.T @ Z
    return X, y, float(np.linalg.eigvalsh(moments)[-1]) / 4


def measure(n_tasks: int) -> dict[str, Any]:
    """One fit in this process."""
    from taskloom import MultiTaskRegressor

    X, y, most = long_table(n_tasks)
    model = MultiTaskRegressor("trace", alpha=SHARE * most, task_column=-1, tol=TOL)
    cpu, wall = time.process_time(), time.perf_counter()
    model.fit(X, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    before = time.process_time()
    model.predict(X)
    return {
        "tasks": n_tasks,
        "gibibytes_of_data": X.nbytes / 2**30,
        "n_iter": model.n_iter_,
        "relative_gap": model.certificate_.relative_gap,
        "status": model.certificate_.status,
        "cpu": cpu,
        "wall": wall,
        "predict": time.process_time() - before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "structure": repr(model.structure_) if n_tasks > 2000 else "ndarray",
    }


def in_a_process(n_tasks: int, threads: int) -> dict[str, Any]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--one", str(n_tasks)]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def gradient(rows: list[dict[str, Any]], what: str) -> float:
    import numpy as np

    return float(np.polyfit(np.log([row["tasks"] for row in rows]), np.log([row[what] for row in rows]), 1)[0])


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = [
            f"{row[name]:.2g}" if isinstance(row[name], float) and row[name] < 10 else f"{row[name]:.0f}" for name in COLUMNS
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write(json.dumps(measure(options.one)))
        return
    rows = []
    for n_tasks in (300, 1000) if options.quick else [size for size in SIZES if size <= options.most]:
        rows.append(in_a_process(n_tasks, options.threads))
        print(json.dumps(rows[-1]), flush=True)
    text = table(rows)
    last = f"Gradient of the CPU seconds of a fit in the number of tasks: {gradient(rows, 'cpu'):.2f}."
    print(f"{text}\n\n{last}")
    if options.quick:
        return
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} BLAS thread(s), Python {platform.python_version()}"
    )
    busy = (
        f"Load of the machine at the end: {os.getloadavg()[0]:.1f} (others ran on it: CPU seconds count, wall seconds do not)."
    )
    (RESULTS / "many_tasks.json").write_text(
        json.dumps({"machine": machine, "gradient": gradient(rows, "cpu"), "rows": rows}, indent=1)
    )
    (RESULTS / "many_tasks.md").write_text(f"# Growth in the number of tasks\n\n{machine}. {busy}\n\n{text}\n\n{last}\n")


if __name__ == "__main__":
    main()
