"""Time to a certified relative gap of 1e-4 for every convex structure, as a ratio to ``Trace`` measured in the same run.

    python benchmarks/structures.py [--repeats 3] [--quick]

100 tasks with 30 examples of their own, d = 50: five planted directions, some noise in the weights, noise in the targets, which
are scaled to unit variance. Every structure is solved at 0.1 and at 0.01 of the strength at which ``Trace`` learns nothing.
BLAS is pinned to one thread; times are CPU seconds. Each structure is measured right after a ``Trace`` of its own, and
the table has the medians of those ratios over runs and data sets. Writes benchmarks/results/structures.json and structures.md.
``--quick`` is 30 tasks, once, and writes nothing.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import scipy

import taskloom
from taskloom import Problem, alpha_max, solve, structures
from taskloom.design import Observations

RESULTS = Path(__file__).parent / "results"
TOL, GOAL, SHARES = 1e-4, 20.0, (0.1, 0.01)


def own_inputs(seed: int, n_tasks: int, n: int = 30, d: int = 50) -> Problem:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 5)) @ rng.normal(size=(5, n_tasks)) / np.sqrt(5) + 0.3 * rng.normal(size=(d, n_tasks))
    X, task = rng.normal(size=(n_tasks * n, d)), np.repeat(np.arange(n_tasks), n)
    y = np.einsum("ij,ji->i", X, W[:, task]) + rng.normal(size=n_tasks * n)
    return Problem(X, Observations.build(np.arange(len(X)), task, y / y.std(), n_tasks), "squared", "trace", 1.0)


def every_structure(n_tasks: int) -> list[structures.Structure]:
    """One of each exported class at least, those of the table that need arguments with the ones given here."""
    B = np.random.default_rng(0).normal(size=(n_tasks, n_tasks)) / np.sqrt(n_tasks)
    given = {
        "Fixed": [structures.Fixed(B @ B.T)],
        "OutputMetric": [structures.OutputMetric(B @ B.T + np.eye(n_tasks))],
        "OutputCode": [structures.OutputCode(B[: n_tasks // 5])],
        "TaskGraph": [structures.TaskGraph.chain(n_tasks)],
        "SharedMean": [structures.SharedMean(2.0)],
        "Schatten": [structures.Schatten(1.5), structures.Schatten(4)],
        "SchattenNorm": [structures.SchattenNorm(1.5), structures.SchattenNorm(2)],
        "Clusters": [structures.Clusters(5)],
        "LogDet": [structures.LogDet(0.3), structures.LogDet(0.3, l1=0.1)],
        "Sparse": [structures.Sparse(0.1), structures.Sparse(0.5)],
        "Sum": [structures.Trace() + structures.Frobenius(), structures.Frobenius() + 0.5 * structures.Sparse(0.1)],
    }
    found: list[structures.Structure] = []
    for name in structures.__all__:
        cls = getattr(structures, name)
        if name == "Structure" or not getattr(cls, "convex", True):
            continue
        try:
            found += given[name] if name in given else [cls()]
        except TypeError:
            print(f"{name} needs arguments that this file does not give: left out")
    return found


def seconds(problem: Problem, structure: structures.Structure, alpha: float, time_limit: float) -> dict:
    posed = Problem(problem.features, problem.observations, "squared", structure, alpha)  # nothing is kept from run to run
    began = time.process_time()
    solution = solve(posed, tol=TOL, max_iter=10_000, time_limit=time_limit)
    spent = time.process_time() - began
    certificate = solution.certificate
    return {
        "seconds": spent,
        "iterations": solution.n_iter,
        "relative_gap": certificate.relative_gap,
        "optimal": certificate.optimal,
        "solver": solution.solver,
    }


def measure(problem: Problem, structure: structures.Structure, alpha: float, runs: int, time_limit: float) -> dict:
    ratios, row = [], {}
    for _ in range(runs):
        base = seconds(problem, structures.Trace(), alpha, time_limit)
        row = seconds(problem, structure, alpha, time_limit)
        ratios.append(row["seconds"] / base["seconds"])
    return row | {"ratio": float(np.median(ratios)), "trace_seconds": base["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="new data each time")
    parser.add_argument("--runs", type=int, default=3, help="of each structure on the same data")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for each run")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    repeats, runs, n_tasks = (1, 1, 30) if options.quick else (options.repeats, options.runs, 100)
    records = []
    for seed in range(repeats):
        problem = own_inputs(seed, n_tasks)
        top = alpha_max(problem)
        for share in SHARES:
            for structure in every_structure(n_tasks):
                try:
                    row = measure(problem, structure, share * top, runs, options.time_limit)
                except ValueError as error:  # a structure that wants another kind of data says so
                    print(f"{structure!r} left out: {error}")
                    continue
                records.append({"structure": repr(structure), "seed": seed, "share_of_alpha_max": share, **row})
                print(f"{share} {structure!r}: {row['ratio']:.2f} times Trace, {row['iterations']} iterations", flush=True)
    text = table(records)
    print(text)
    if options.quick:
        return
    versions = {
        "taskloom": taskloom.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
    command = f"python benchmarks/structures.py --repeats {repeats} --runs {runs}"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "structures.json").write_text(
        json.dumps({"command": command, "versions": versions, "goal": GOAL, "records": records}, indent=1) + "\n"
    )
    header = f"# Structures, time to a certified relative gap of {TOL:g}\n\n`{command}`, CPU seconds, one thread, medians. "
    header += "100 tasks with 30 examples of their own, d = 50. "
    header += f"The goal is at most {GOAL:g} times the time of `Trace` in the same run.\n\n"
    (RESULTS / "structures.md").write_text(header + text + "\n")


def table(records: list[dict]) -> str:
    heads = " | ".join(f"{share} alpha_max: iterations, seconds, times `Trace`" for share in SHARES)
    lines = [f"| structure | {heads} |", "|---" * (1 + len(SHARES)) + "|"]
    for name in dict.fromkeys(record["structure"] for record in records):
        cells = []
        for share in SHARES:
            mine = [r for r in records if r["structure"] == name and r["share_of_alpha_max"] == share]
            n_iter, spent, ratio = (float(np.median([r[key] for r in mine])) for key in ("iterations", "seconds", "ratio"))
            reached = "" if all(r["optimal"] for r in mine) else ", not reached"
            cells.append(f"{n_iter:.0f}, {spent:.3f} s, {ratio:.2g}{reached}")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
