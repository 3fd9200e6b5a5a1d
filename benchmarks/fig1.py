"""The paper's Figure 1 grid: CPU seconds to a relative 1e-3 and 1e-6, for us, for careful numpy code and for the originals.

    python benchmarks/fig1.py [--quick] [--repeats 2] [--threads 1] [--limit 1] [--only 10x10 5x100]

x ~ N(0, I_d), w_t ~ N(0, I), 30 examples a task with inputs of its own, noise 0.1; T = 100 with d from 5 to 150, and d = 100
with T from 5 to 150; trace norm and clusters, squared loss, 0.1 and 0.01 of the strength at which the trace norm leaves
nothing; new data each repeat. Ours stop at a certified gap. FISTA and L-BFGS (benchmarks/fig1_peers.py) run twice: "told" the
optimum by an oracle, and "certifying" their own accuracy. The targets are about time to a *certified* 1e-6, that is about
the latter. The original algorithms (taskloom.experiments.baselines) run twice, too, and get ``--limit`` seconds each time. CPU
seconds of the process, all methods in one run (with two threads, ours still holds BLAS to one). Writes fig1.json, fig1.md and
fig1.png under benchmarks/results (with ``--threads 2``, fig1_threads2.*; with ``--quick``, fig1_quick.*; with ``--only``, which
takes single cells as d x T, nothing).
"""

from __future__ import annotations

import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "2" if "--threads 2" in " ".join(sys.argv).replace("=", " ") else "1"
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"]

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from fig1_peers import by_cvxpy, fista, lbfgs, proof
from fig1_table import draw, table

import taskloom
from taskloom import Problem, alpha_max, solve
from taskloom.experiments import baselines as originals
from taskloom.experiments.fig1 import CLUSTERS, make
from taskloom.structures import Clusters, Trace

RESULTS = Path(__file__).parent / "results"
SIZES, FIXED, QUICK, SMALL = (5, 25, 50, 75, 100, 125, 150), 100, (25, 100), 10
SHARES, LEVELS = (0.1, 0.01), (1e-3, 1e-6)
EXPLICIT = {
    "trace": ("factored", "proximal", "alternating", "block"),
    "clusters": ("smooth", "proximal", "alternating", "block"),
}


def cells(quick: bool) -> list[tuple[int, int]]:
    """Pairs of ``d`` and ``T``; the last one is small enough for CVXPY."""
    sizes = QUICK if quick else SIZES
    pairs = [(d, FIXED) for d in sizes] + [(FIXED, T) for T in sizes]
    return [*dict.fromkeys(pairs), (SMALL, SMALL)]


def repeated(work: Callable[[], Any], brief: float = 0.3) -> list[tuple[float, Any]]:
    """CPU seconds and results, of three runs where that takes no time: what others do to the caches only ever adds."""
    runs: list[tuple[float, Any]] = []
    while len(runs) < (1 if runs and runs[0][0] > brief else 3):
        began = time.process_time()
        result = work()
        runs.append((time.process_time() - began, result))
    return runs


def soonest(seconds: list[float | None]) -> float | None:
    return min((s for s in seconds if s is not None), default=None)


def objective(problem: Problem, W: np.ndarray) -> float:
    """The one function that judges everybody: ``J`` at weights ``T x d``, with the best structure for them."""
    return problem.best_primal(W.T, np.zeros(problem.n_tasks))[0]


class Cell:
    """One problem, its certified optimum, and how the methods do on it."""

    def __init__(self, problem: Problem, tasks: originals.TaskList, limit: float):
        self.problem, self.tasks, self.limit = problem, tasks, limit
        self.best = solve(replace(problem), tol=1e-9, max_iter=5000)
        self.targets = [self.best.certificate.dual + level * problem.scale for level in LEVELS]
        self.results: dict[str, dict[str, Any]] = {}

    def excess(self, value: float) -> float:
        """How far above the certified optimum, at most."""
        return (value - self.best.certificate.dual) / self.problem.scale

    def note(self, name: str, seconds: list[float | None], W: np.ndarray | None, **more: Any) -> None:
        final = None if W is None else self.excess(objective(self.problem, W))
        if seconds[-1] is not None and final is not None and final > 1.01 * LEVELS[-1]:
            raise AssertionError(f"{name} claims {LEVELS[-1]:g} and is {final:.1e} above")
        self.results[name] = {"seconds": seconds, "excess": final, **more}

    def ours(self, name: str, solver: str) -> None:
        limit = self.limit if solver == "block" else 2 * self.limit
        seconds: list[float | None] = []
        for level in LEVELS:
            fresh = [replace(self.problem) for _ in range(3)]  # they know nothing of what was computed before
            runs = repeated(
                lambda level=level, fresh=fresh: solve(fresh.pop(), solver, tol=level, max_iter=100_000, time_limit=limit)
            )
            solution = runs[-1][1]
            seconds.append(min(s for s, _ in runs) if solution.certificate.optimal else None)
        gap = solution.certificate.relative_gap
        self.note(name, seconds, solution.W.T, gap=gap, solver=solution.solver)

    def peer(self, name: str, run: Callable[..., Any]) -> None:
        """Told the optimum, and once more without."""
        for how, target in (("told", self.targets[-1]), ("certifying", None)):
            trips = [trip for _, trip in repeated(lambda target=target: run(self.problem, target=target))]
            passed = [self._first(trip.trace, target is not None) for trip in trips]
            seconds = [soonest([p[k] for p in passed]) for k in range(len(LEVELS))]
            self.note(f"{name}, {how}", seconds, trips[-1].W, iterations=len(trips[-1].trace))

    def _first(self, trace: list[tuple[float, float, float]], told: bool) -> list[float | None]:
        """When each level was reached: by the objective, or by the gap that the method knew of."""
        passed = []
        for target, level in zip(self.targets, LEVELS, strict=True):
            hits = (
                s for s, value, bound in trace if (value <= target if told else value - bound <= level * self.problem.scale)
            )
            passed.append(next(hits, None))
        return passed

    def original(self, name: str, run: Callable[..., tuple[np.ndarray, originals.Trace]], shift: float = 0.0) -> None:
        """Told the optimum, in its own objective, which may be ours up to a constant ``shift`` at the minimum.

        And once more without, proving its own accuracy as the peers do.
        """
        proves = proof(self.problem)
        W, trace = run(-np.inf, self.limit, proves)
        proved = trace[-1][0] if proves(W) else None
        self.note(f"{name}, certifying", [None, proved], W.T, iterations=len(trace))
        W, trace = run(self.targets[-1] + shift, self.limit)
        seconds = [next((s for s, value in trace if value <= target + shift), None) for target in self.targets]
        values = [value - shift for _, value in trace]
        steps = [v for k, v in enumerate(values) if k == 0 or v != values[k - 1]]  # a line search may note a value twice
        calm = (v for last, v in pairwise(steps) if abs(v - last) <= 1e-5 * abs(v))
        content = next(calm, None)  # where a rule that watches the change would stop
        stops = None if content is None else self.excess(content)
        self.note(name, seconds, W.T, stops=stops, at_end=self.excess(min(values)), iterations=len(values))

    def cvxpy(self, solver: str) -> None:
        taken, W = repeated(lambda: by_cvxpy(self.problem, solver), 0.0)[0]
        final = None if W is None else self.excess(objective(self.problem, W))
        seconds = [taken if final is not None and final <= level else None for level in LEVELS]
        self.note(f"CVXPY {solver}", seconds, W)


def measure(d: int, n_tasks: int, share: float, seed: int, limit: float) -> list[dict[str, Any]]:
    tasks, problem = make(n_tasks, d, seed)
    alpha = share * alpha_max(problem)
    groups = {**CLUSTERS, "n_clusters": min(CLUSTERS["n_clusters"], n_tasks // 2)}  # as many as tasks would be none
    records = []
    for kind, structure in (("trace", Trace()), ("clusters", Clusters(**groups))):
        cell = Cell(problem.with_structure(structure).at(alpha), tasks, limit)
        cell.ours("auto", "auto")
        cell.peer(*(("FISTA", fista) if kind == "trace" else ("L-BFGS", lbfgs)))
        if seed == 0:
            slow_ones(cell, kind, groups)
        records.append({"d": d, "T": n_tasks, "share": share, "seed": seed, "structure": kind, "methods": cell.results})
    return records


def slow_ones(cell: Cell, kind: str, groups: dict[str, Any]) -> None:
    """Once for each size and strength: the other solvers of ours, the originals, and CVXPY where it can."""
    tasks, alpha = cell.tasks, cell.problem.alpha
    for solver in EXPLICIT[kind]:
        cell.ours(f"ours, {solver}", solver)
    if kind == "trace":
        size = originals.nuclear(cell.best.W)
        gamma = np.sqrt(alpha) / max(size, 1e-12)
        shift = gamma * size**2 - 2 * np.sqrt(alpha) * size  # the squared norm has the same minimiser
        cell.original("Argyriou's alternation", lambda *stop: originals.argyriou_alternation(tasks, gamma, *stop), shift)
    else:
        clusters = originals.ClusterSet(**groups)
        cell.original("Jacob's gradient", lambda *stop: originals.jacob_gradient(tasks, alpha, clusters, *stop))
    if max(cell.problem.n_features, cell.problem.n_tasks) <= SMALL:
        for solver in ("CLARABEL", "SCS"):
            cell.cvxpy(solver)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few cells")
    parser.add_argument("--repeats", type=int, default=2, help="new data each time; tables show medians")
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2), help="BLAS threads of every method")
    parser.add_argument("--limit", type=float, default=1.0, help="CPU seconds for each original algorithm on each problem")
    parser.add_argument("--only", nargs="+", metavar="DxT", help="single cells, of which nothing is written")
    options = parser.parse_args()
    records = []
    chosen = [tuple(map(int, cell.split("x"))) for cell in options.only or ()]
    for d, n_tasks in chosen or cells(options.quick):
        for share in SHARES:
            for seed in range(options.repeats):
                records += measure(d, n_tasks, share, seed, options.limit)
        print(f"d = {d}, T = {n_tasks}: done", flush=True)
    command = f"python benchmarks/fig1.py --repeats {options.repeats} --threads {options.threads} --limit {options.limit:g}"
    command += " --quick" if options.quick else ""
    versions = {"taskloom": taskloom.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    record = {"command": command, "versions": {**versions, "python": platform.python_version()}, "records": records}
    name = "fig1" + ("_quick" if options.quick else "") + ("_threads2" if options.threads == 2 else "")
    text = table(record)
    print(text)
    if options.only:
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1))
    (RESULTS / f"{name}.md").write_text(text + "\n")
    draw(record, RESULTS / f"{name}.png")


if __name__ == "__main__":
    main()
