"""Growth tables: tasks on one machine, and tasks on a Dask cluster of one and two worker processes.

    python benchmarks/scale.py [--most 16000] [--quick]

The data are like those of benchmarks/many_tasks.py: 30 examples a task, d = 50, a tenth of the strength at which nothing is
learned, to a certified relative gap of 1e-4. The first table is that of many_tasks.py, every size in a process of its own. In
the second every partition of 500 tasks is made on the worker that uses it. For an evaluation of the objective, *out* is the
factor that is broadcast and *back* the sums that reach the client (the messages themselves were measured); *sent* is what all
workers sent, to each other and to the client, by their own counters. *moved once* is the same before the first iteration: names
and sizes, and whatever Dask moves to keep its workers busy. *peak* is how far the memory of any worker rose above what it held
before the fit, beside the data that it read. CPU seconds are those of the whole fit, the making of the data included. Writes
benchmarks/results/scale.json and scale.md; ``--quick`` is one size and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import many_tasks

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 4_000, 16_000)
PART = 500  # tasks in a partition
COLUMNS = {
    "workers": "workers",
    "tasks": "tasks",
    "megabytes": "table (MB)",
    "n_iter": "iterations",
    "evaluations": "evaluations",
    "rank": "columns of Q at the end",
    "out": "out (bytes)",
    "back": "back (bytes)",
    "sent": "sent (bytes)",
    "once": "moved once (bytes)",
    "cpu": "CPU s of the workers",
    "wall": "wall s",
    "data": "data of a worker (MB)",
    "peak": "peak of a worker (MB)",
    "difference": "objective, relative to the local fit",
}


def partition(place: int) -> Any:
    """The tasks of one partition: inputs, the task, and the target as the last column; directions are common to all."""
    import numpy as np

    n, d = many_tasks.N, many_tasks.D
    basis = np.random.default_rng(0).normal(size=(d, 5)) / np.sqrt(5)
    rng = np.random.default_rng([1, place])
    x = rng.normal(size=(PART, n, d))
    W = rng.normal(size=(PART, 5)) @ basis.T + 0.3 * rng.normal(size=(PART, d))
    y = np.einsum("tij,tj->ti", x, W) + rng.normal(size=(PART, n))
    task = np.repeat(np.arange(PART) + place * PART, n)
    return np.column_stack([x.reshape(-1, d), task, y.ravel() / 8])


def strength(n_tasks: int) -> float:
    """A share of the strength at which nothing is learned, which grows with the number of tasks."""
    import numpy as np

    rows = partition(0).reshape(PART, many_tasks.N, -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    Z = 2 / many_tasks.N * np.einsum("tij,ti->tj", rows[:, :, :-2], rows[:, :, -1])
    return many_tasks.SHARE * float(np.linalg.eigvalsh(Z.T @ Z)[-1]) / 4 * n_tasks / PART


def lazily(n_tasks: int) -> tuple[Any, Any]:
    import dask.array as da
    from dask import delayed

    rows, width = PART * many_tasks.N, many_tasks.D + 2
    blocks = [da.from_delayed(delayed(partition)(i), (rows, width), float) for i in range(n_tasks // PART)]
    return da.concatenate(blocks), -1  # the last column holds the targets


class Traffic:
    """Counts evaluations and the bytes of their messages, as they pass."""

    def __init__(self) -> None:
        from taskloom.distributed.cluster import TaskList

        self.out: list[int] = []
        self.back: list[int] = []
        inner = TaskList.sums

        def sums(tasks: Any, Q: Any, *arguments: Any) -> Any:
            found = inner(tasks, Q, *arguments)
            self.out.append(Q.nbytes)
            self.back.append(found.nbytes)
            return found

        TaskList.sums = sums  # type: ignore[method-assign]
        self.close = lambda: setattr(TaskList, "sums", inner)


def moved(client: Any) -> int:
    """Bytes that workers have sent to each other."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def memory(client: Any) -> dict[str, float]:
    """What every worker holds now, in MB; its peak is counted from here (Linux)."""

    def begin() -> float:
        import pathlib

        import psutil

        pathlib.Path("/proc/self/clear_refs").write_text("5")
        return psutil.Process().memory_info().rss / 2**20

    return client.run(begin)


def peak(client: Any) -> dict[str, float]:
    """The most that every worker held since, in MB."""

    def highest() -> float:
        import pathlib

        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10

    return client.run(highest)


def on_cluster(n_tasks: int, workers: int, local: float) -> dict[str, Any]:
    """One fit on a cluster of its own."""
    from distributed import Client, LocalCluster

    from taskloom import MultiTaskRegressor, distributed

    options = {"n_workers": workers, "processes": True, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.run(lambda: __import__("taskloom.distributed.fit"))
        before, used = memory(client), sum(client.run(time.process_time).values())
        traffic, marks = Traffic(), []
        model = MultiTaskRegressor("trace", alpha=strength(n_tasks), task_column=-1, tol=many_tasks.TOL)
        began = time.perf_counter()

        def mark(_: Any) -> None:
            marks.append((moved(client), len(traffic.out)))

        distributed.fit(model, *lazily(n_tasks), client, progress=mark)
        wall, ((once, first), (last, then)) = time.perf_counter() - began, (marks[0], marks[-1])
        traffic.close()
        evaluations, megabytes = len(traffic.out), n_tasks * many_tasks.N * (many_tasks.D + 2) * 8 / 2**20
        return {
            "workers": workers,
            "tasks": n_tasks,
            "megabytes": megabytes,
            "n_iter": model.n_iter_,
            "relative_gap": model.certificate_.relative_gap,
            "evaluations": evaluations,
            "rank": traffic.out[-1] // (8 * many_tasks.D),
            "out": sum(traffic.out) / evaluations,
            "back": sum(traffic.back) / evaluations,
            "sent": (last - once) / (then - first),
            "once": once,
            "cpu": sum(client.run(time.process_time).values()) - used,
            "wall": wall,
            "data": megabytes / workers,
            "peak": max(after - before[worker] for worker, after in peak(client).items()),
            "difference": model.certificate_.primal / local - 1,
        }


def local_fit(n_tasks: int) -> float:
    """The objective of the same fit in this process."""
    import numpy as np

    from taskloom import MultiTaskRegressor

    whole = np.concatenate([partition(i) for i in range(n_tasks // PART)])
    model = MultiTaskRegressor("trace", alpha=strength(n_tasks), task_column=-1, tol=many_tasks.TOL)
    return model.fit(whole[:, :-1], whole[:, -1]).certificate_.primal


def estimate(row: dict[str, Any], n_tasks: int = 10**7, workers: int = 100, parts: int = 1000, overhead: float = 1e-3) -> str:
    """What a fit of more tasks would take, from what an evaluation took here; ``overhead`` is Dask's for each of its tasks."""
    d, share = many_tasks.D, n_tasks / workers
    compute = row["cpu"] / (row["tasks"] * row["evaluations"]) * share
    dask = overhead * parts * (1 + 1 / 8 + 1 / 64)
    whole, weights = n_tasks * many_tasks.N * (d + 2) * 8 / 2**30, n_tasks * d * 8 / 2**30
    lines = {
        "data": f"{whole:.0f} GiB, {whole / workers:.2f} GiB a worker, {parts} partitions of {whole / parts * 1024:.0f} MiB",
        "work of a worker, an evaluation": f"{compute:.2f} s for {share:,.0f} tasks",
        "Dask, an evaluation": f"{dask:.1f} s for {parts} tasks and their sums, at {overhead * 1e3:.0f} ms each",
        "sent, an evaluation": f"{row['out'] * workers / 1e6:.1f} MB of factors, {row['back'] * parts / 1e6:.1f} MB of sums",
        "reaching the client, an evaluation": f"{row['back'] / 1e3:.1f} kB",
        "fit": f"{row['evaluations']} evaluations, {row['evaluations'] * (compute + dask) / 60:.1f} minutes",
        "client at the end": f"{weights:.1f} GiB of weights, about {5 * weights:.0f} GiB with structure_ and for explain",
    }
    heading = f"| {n_tasks:.0e} tasks on {workers} workers | |\n|---|---|\n"
    return heading + "\n".join(f"| {what} | {value} |" for what, value in lines.items())


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = []
        for name in columns:
            value = row[name]
            small = isinstance(value, float) and abs(value) < 10
            cells.append(f"{value:.1e}" if name == "difference" else f"{value:.2g}" if small else f"{value:,.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sizes = SIZES[:1] if options.quick else [size for size in SIZES if size <= options.most]
    alone = [many_tasks.in_a_process(size, 1) for size in sizes]
    print(first := many_tasks.table(alone), flush=True)
    spread = []
    for size in sizes:
        local = local_fit(size)
        for workers in (1, 2):
            spread.append(on_cluster(size, workers, local))
            print(json.dumps(spread[-1]), flush=True)
    print(second := table(spread, COLUMNS))
    print(third := estimate(spread[-1]))
    if options.quick:
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, 1 BLAS thread, Python {platform.python_version()}"
    busy = (
        f"Load of the machine at the end: {os.getloadavg()[0]:.1f} (others ran on it: CPU seconds count, wall seconds do not)."
    )
    (RESULTS / "scale.json").write_text(json.dumps({"machine": machine, "alone": alone, "cluster": spread}, indent=1))
    text = (
        f"# Growth\n\n{machine}. {busy}\n\n## One process\n\n{first}\n\n## A Dask cluster of one and two worker processes\n\n"
    )
    (RESULTS / "scale.md").write_text(f"{text}{second}\n\n## An estimate from the last row\n\n{third}\n")


if __name__ == "__main__":
    main()
