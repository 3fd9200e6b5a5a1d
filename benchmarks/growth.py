"""Growth: CPU seconds of a certified fit against the number of tasks, of examples a task and of features, one at a time.

    python benchmarks/growth.py [--quick] [--threads 1] [--most 100000]

TaskList: the table of many_tasks.py (30 examples of its own each, d = 50, relative gap 1e-4), from 10 tasks on, every size in a
process of its own; under two minutes in all, and 3.3 GiB at 100 000 tasks. Examples (30 to 1000 a task) and features (10 to
300): 100 tasks, trace penalty, squared loss, 1e-6, the quickest of three fits. A gradient is that of a straight line through
the logarithms; below a tenth of a second what does not grow weighs in.
"""

from __future__ import annotations

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"]  # before numpy is imported

import argparse
from dataclasses import replace
from typing import Any

import many_tasks
import numpy as np
from output import cpu, write

from taskloom import Problem, alpha_max, solve
from taskloom.design import Observations

THREADS = int(os.environ["OMP_NUM_THREADS"])
TASKS = (10, 31, 100, 316, 1_000, 3_162, 10_000, 31_623, 100_000)
EXAMPLES, FEATURES = (30, 100, 300, 1000), (10, 30, 100, 300)


def own_inputs(n: int, d: int, n_tasks: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(n_tasks * n, d)), np.repeat(np.arange(n_tasks), n)
    W = rng.normal(size=(d, 5)) @ rng.normal(size=(5, n_tasks)) / np.sqrt(5 * d)
    y = np.einsum("ij,ji->i", X, W[:, task]) + 0.3 * rng.normal(size=len(X))
    problem = Problem(X, Observations.build(np.arange(len(X)), task, y, n_tasks), "squared", "trace", 1.0)
    problem = Problem(X, problem.observations, "squared", "trace", 0.1 * alpha_max(problem))
    fresh = [replace(problem) for _ in range(3)]  # they know nothing of each other; what others do only ever adds
    runs = [cpu(lambda: solve(fresh.pop(), tol=1e-6)) for _ in range(3)]
    seconds, found = min(runs, key=lambda run: run[0])
    return {
        "CPU s": seconds,
        "iterations": found.n_iter,
        "relative gap": found.certificate.relative_gap,
        "solver": found.solver,
    }


def gradient(rows: list[dict[str, Any]]) -> float:
    return float(np.polyfit(np.log([row["size"] for row in rows]), np.log([row["CPU s"] for row in rows]), 1)[0])


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    for axes, what in zip(figure.subplots(1, 3, sharey=True), ("tasks", "examples", "features"), strict=True):
        mine = [row for row in rows if row["grows"] == what]
        axes.loglog([row["size"] for row in mine], [row["CPU s"] for row in mine], "o-")
        axes.set_xlabel(f"{what}: gradient {gradient(mine):.2f}")
        axes.set_ylabel("CPU seconds" if what == "tasks" else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--most", type=int, default=TASKS[-1], help="tasks")
    parser.add_argument("--quick", action="store_true", help="two sizes of each; nothing is written")
    options = parser.parse_args()
    sizes = {
        "tasks": (100, 300) if options.quick else [size for size in TASKS if size <= options.most],
        "examples": EXAMPLES[:2] if options.quick else EXAMPLES,
        "features": FEATURES[:2] if options.quick else FEATURES,
    }
    rows: list[dict[str, Any]] = []
    for size in sizes["tasks"]:
        one = many_tasks.in_a_process(size, THREADS)
        row = {"grows": "tasks", "size": size, "CPU s": one["cpu"], "iterations": one["n_iter"]}
        rows.append(row | {"relative gap": one["relative_gap"], "peak GiB": one["peak"]})
        print(rows[-1], flush=True)
    for what, fit in (("examples", lambda size: own_inputs(size, 50)), ("features", lambda size: own_inputs(30, size))):
        for size in sizes[what]:
            rows.append({"grows": what, "size": size} | fit(size))
            print(rows[-1], flush=True)
    notes = [f"Gradient in {what}: {gradient([row for row in rows if row['grows'] == what]):.2f}." for what in sizes]
    many = [row for row in rows if row["grows"] == "tasks" and row["size"] >= 1000]
    if len(many) > 1:
        notes.append(f"Gradient in tasks from 1 000 on: {gradient(many):.2f}.")
    name = "growth" if THREADS == 1 else f"growth_{THREADS}"
    write(name, f"Growth, {THREADS} BLAS thread(s)", rows, notes, lambda figure: draw(figure, rows), options.quick)


if __name__ == "__main__":
    main()
