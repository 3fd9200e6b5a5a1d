"""Time and iterations to a certified relative gap, for each solver, as ratios to baselines measured in the same run.

    python benchmarks/core.py [--repeats 3]

(a) 100 tasks with 30 examples of their own, d = 100, trace structure; (b) shared inputs, n = 1000, T = 50, rbf kernel, trace
structure. Baselines: accelerated proximal gradient for the trace norm (FISTA with restarts, in this file), and one ``eigh`` of
the kernel matrix. BLAS is pinned to one thread. Writes benchmarks/results/core.json and core.md.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy
from sklearn.metrics.pairwise import rbf_kernel

import taskloom
from taskloom import Problem, alpha_max, solve
from taskloom.design import Observations
from taskloom.features.kernels import KernelFeatures

RESULTS = Path(__file__).parent / "results"
LEVELS = (1e-3, 1e-6, 1e-8)
SOLVERS = ("auto", "factored", "proximal", "alternating", "block")


def own_inputs(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    n_tasks, n, d = 100, 30, 100
    X, W = rng.normal(size=(n_tasks * n, d)), rng.normal(size=(d, n_tasks))
    task = np.repeat(np.arange(n_tasks), n)
    y = np.einsum("ij,ji->i", X, W[:, task]) + 0.1 * rng.normal(size=n_tasks * n)
    return Problem(X, Observations.build(np.arange(len(X)), task, y, n_tasks), "squared", "trace", 1.0)


def shared_inputs(seed: int) -> tuple[Problem, float]:
    """The problem, and the seconds of one ``eigh`` of its kernel matrix."""
    rng = np.random.default_rng(seed)
    n, n_tasks = 1000, 50
    X = rng.normal(size=(n, 5))
    Y = np.sin(X @ rng.normal(size=(5, 4))) @ rng.normal(size=(4, n_tasks)) + 0.3 * rng.normal(size=(n, n_tasks))
    K = rbf_kernel(X, gamma=0.2)
    began = time.perf_counter()
    np.linalg.eigh(K)
    seconds = time.perf_counter() - began
    return Problem(KernelFeatures(K).phi, Y, "squared", "trace", 1.0), seconds


def accelerated_proximal_gradient(problem: Problem, target: list[float], time_limit: float) -> list[float | None]:
    """FISTA with restarts on ``W`` for the squared loss and the trace norm: seconds until the objective is below a target."""
    seen, tau = problem.observations, 2 * np.sqrt(problem.alpha)
    began = time.perf_counter()
    total = seen.sum_by_task(seen.weight)
    mean = problem.correlate(seen.weight) / total
    means_y = seen.sum_by_task(seen.weight * seen.y) / total
    lipschitz = 0.0
    for t in range(problem.n_tasks):
        part = slice(seen.starts[t], seen.starts[t + 1])
        root = np.sqrt(seen.weight[part])[:, None] * (problem.features[seen.row[part]] - mean[:, t])
        lipschitz = max(lipschitz, 2 * np.linalg.norm(root, 2) ** 2)

    def intercepts(W):
        return means_y - np.einsum("rt,rt->t", mean, W)

    W = V = np.zeros((problem.n_features, problem.n_tasks))
    momentum, last, reached = 1.0, np.inf, [None] * len(target)
    while time.perf_counter() - began < time_limit and reached[-1] is None:
        z = problem.predict(V, intercepts(V))
        gradient = problem.correlate(2 * seen.weight * (z - seen.y))  # centred already: the residuals of a task add up to zero
        U, s, Vt = np.linalg.svd(V - gradient / lipschitz, full_matrices=False)
        s = np.maximum(s - tau / lipschitz, 0.0)
        new = (U * s) @ Vt
        value = problem.loss_term(problem.predict(new, intercepts(new))) + tau * s.sum()
        for k, level in enumerate(target):
            if reached[k] is None and value <= level:
                reached[k] = time.perf_counter() - began
        if value > last:
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        V = new + (momentum - 1) / grown * (new - W)
        W, momentum, last = new, grown, value
    return reached


def measure(problem: Problem, solver: str, time_limit: float) -> dict:
    solution = solve(problem, solver, tol=LEVELS[-1], max_iter=20_000, time_limit=time_limit)
    gap = np.array(solution.history.gap) / problem.scale
    rows = {}
    for level in LEVELS:
        hit = np.flatnonzero(gap <= level)
        rows[f"{level:.0e}"] = (
            {"seconds": solution.history.seconds[hit[0]], "iterations": int(hit[0]) + 1} if hit.size else None
        )
    return {"reached": rows, "relative_gap": solution.certificate.relative_gap, "solver": solution.solver}


def run(repeats: int, time_limit: float) -> list[dict]:
    records = []
    for seed in range(repeats):
        shared, eigh = shared_inputs(seed)
        for name, problem, floor in (("own inputs", own_inputs(seed), None), ("shared inputs", shared, eigh)):
            top = alpha_max(problem)
            for share in (0.1, 0.01):
                instance = replace(problem, alpha=share * top)
                best = solve(instance, tol=1e-10, max_iter=5000, time_limit=120).certificate
                targets = [best.dual + level * instance.scale for level in LEVELS]
                baseline = accelerated_proximal_gradient(instance, targets, time_limit)
                record = {"workload": name, "seed": seed, "share_of_alpha_max": share, "eigh_seconds": floor}
                record["baseline_seconds"] = dict(zip([f"{x:.0e}" for x in LEVELS], baseline, strict=True))
                record["solvers"] = {
                    solver: measure(replace(instance), solver, time_limit) for solver in SOLVERS
                }  # nothing is kept
                records.append(record)
                print(f"{name}, {share} of alpha_max, seed {seed}: done", flush=True)
    return records


def median(values: list[float | None]) -> float | None:
    return float(np.median(values)) if all(v is not None for v in values) else None


def table(records: list[dict]) -> str:
    lines = []
    for name in ("own inputs", "shared inputs"):
        for share in (0.1, 0.01):
            mine = [r for r in records if r["workload"] == name and r["share_of_alpha_max"] == share]
            base = {level: median([r["baseline_seconds"][level] for r in mine]) for level in mine[0]["baseline_seconds"]}
            heads = " | ".join(f"to {level}: iterations, seconds, baseline / ours" for level in base)
            lines += [f"\n### {name}, alpha = {share} alpha_max\n", f"| solver | {heads} |", "|---" * (1 + len(base)) + "|"]
            lines.append(
                "| FISTA baseline | " + " | ".join("not reached" if b is None else f"{b:.2f} s" for b in base.values()) + " |"
            )
            for solver in SOLVERS:
                cells = []
                for level, b in base.items():
                    hits = [r["solvers"][solver]["reached"][level] for r in mine]
                    if any(h is None for h in hits):
                        cells.append("not reached")
                        continue
                    seconds = float(np.median([h["seconds"] for h in hits]))
                    ratio = f", {b / seconds:.1f}x" if b is not None else ""
                    floors = [r["eigh_seconds"] for r in mine if r["eigh_seconds"]]
                    eighs = f", {seconds / np.median(floors):.1f} eigh" if floors else ""
                    cells.append(f"{np.median([h['iterations'] for h in hits]):.0f}, {seconds:.2f} s{ratio}{eighs}")
                lines.append(f"| {solver} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="new data each time; the table shows medians")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for each solver on each instance")
    options = parser.parse_args()
    records = run(options.repeats, options.time_limit)
    text = table(records)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    versions = {
        "taskloom": taskloom.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
    command = f"python benchmarks/core.py --repeats {options.repeats} --time-limit {options.time_limit:g}"
    (RESULTS / "core.json").write_text(json.dumps({"command": command, "versions": versions, "records": records}, indent=1))
    header = f"# Core solvers, time to a certified relative gap\n\n`{command}`, one BLAS thread, medians over new data sets. "
    (RESULTS / "core.md").write_text(header + "Ratios are to the baseline in the same run.\n" + text + "\n")


if __name__ == "__main__":
    main()
