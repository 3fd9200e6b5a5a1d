"""Three fits on a card: an exact kernel, many tasks, many rows; each with its share of the roofline and the ratio to two cores.

    python benchmarks/gpu.py [--quick] [--device cuda] [--only kernel tasks rows]

All with the trace penalty and the squared loss, to a relative gap of 1e-4. The share of the roofline is a floor over the time:

- kernel: n x 20 inputs, the exact rbf kernel, 100 tasks that share them. Floor: the n x n matrix is written once, and read for
  each product with it (two for each block of directions, two for a certificate), or multiplied where that takes longer.
- tasks: 30 examples of 50 inputs for each task (benchmarks/many_tasks.py). Floor: the passes over the inputs X, their image
  P = XQ and the inverse roots R of the systems: 2X + 3P + 2R an evaluation, 2X + 2P + 2R a product with the Hessian, 2X a
  certificate, 3X to begin.
- rows: n x 1000 random Fourier features, 20 tasks that share them. Floor: 2 n d (d + T) operations at the rate of a product.

The rates are measured in the same run: a product of two 8192 x 8192 matrices, and a copy of 2 GiB (read and written). Data lie
on the card as tensors before the clock starts; "from the host" is the same fit from NumPy arrays with ``device="cuda"``. The
CPU column is the ordinary solver (``device=None``) in a process of its own with two BLAS threads on two cores; where a size is
beyond it, a smaller one runs and is scaled, and the table says so: rows by n, a kernel (of which it takes no ``eigh``) by the
power of n by which its time grew from half that size.
Agreement is with the ordinary solver on a small problem, both to 1e-12. Writes gpu.json and gpu.md to $OUT, or to
benchmarks/results; ``--quick`` is the agreement for every library, small sizes and the time of single operations, and writes
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import many_tasks
import numpy as np

from taskloom import MultiTaskRegressor
from taskloom._array_api import inverse_roots, namespace, times, times_transposed
from taskloom.solvers.device import KernelInputs, accelerated_kernel
from taskloom.solvers.factor.newton import Point

TOL = 1e-4
SIZES = {"kernel": 20_000, "tasks": 100_000, "rows": 1_000_000}
SMALL = {"kernel": 1_500, "tasks": 400, "rows": 4_000}  # for agreement
QUICK = {"kernel": 3_000, "tasks": 10_000, "rows": 100_000}
HOST = {"kernel": 6_000, "tasks": 100_000, "rows": 100_000}  # what two cores can do in a minute
TASKS = {"kernel": 100, "rows": 20}
LARGER, WEAK = 60_000, 1e-7  # rows of a kernel that is not decomposed, and a strength that asks for many of its directions


# --- data -----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def data(what: str, size: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Inputs, targets and the settings of the estimator; of ``rows`` the inputs before ``lifted``."""
    if what == "tasks":
        X, y, most = many_tasks.long_table(size)
        return X, y, {"alpha": 0.1 * most, "task_column": -1}
    rng, T = np.random.default_rng(0), TASKS[what]
    X = rng.normal(size=(size, 20))
    hidden = np.tanh(X @ rng.normal(size=(20, 8)) / np.sqrt(20))
    Y = hidden @ rng.normal(size=(8, T)) + 0.5 * rng.normal(size=(size, T))
    return X, Y / Y.std(), {"alpha": 2e-3, "kernel": "rbf"} if what == "kernel" else {"alpha": 1e-2}


def lifted(X: Any, features: int = 1000) -> Any:
    """Random Fourier features of a Gaussian kernel, computed where ``X`` lies."""
    rng, xp = np.random.default_rng(1), namespace(X)
    omega = xp.asarray(rng.normal(size=(20, features)) / np.sqrt(20), dtype=X.dtype, device=X.device)
    phase = xp.asarray(rng.uniform(0, 2 * np.pi, size=features), dtype=X.dtype, device=X.device)
    phi = X @ omega
    phi += phase
    return xp.cos(phi) * float(np.sqrt(2 / features))


class Bench:
    """Arrays of one library on one device."""

    def __init__(self, library: str, device: str):
        self.library, self.device = import_module(library), device
        self.name = library

    def array(self, values: np.ndarray, dtype: str) -> Any:
        values = np.ascontiguousarray(values, dtype=dtype)
        return self.library.as_tensor(values, device=self.device) if self.name == "torch" else self.library.asarray(values)

    def clock(self, work: Callable[[], Any]) -> tuple[float, Any]:
        self.wait()
        began = time.perf_counter()
        result = work()
        self.wait()
        return time.perf_counter() - began, result

    def wait(self) -> None:
        if self.name == "torch" and self.device != "cpu":
            self.library.cuda.synchronize()
        elif self.name == "cupy":
            self.library.cuda.Device().synchronize()

    def best(self, work: Callable[[], Any], repeats: int = 3) -> float:
        work()
        return min(self.clock(work)[0] for _ in range(repeats))


def fit(
    bench: Bench, what: str, size: int, dtype: str, tol: float = TOL, features: int = 1000, **other: float
) -> tuple[float, Any, Any]:
    """Seconds of the fit, the model and its inputs."""
    X, y, settings = data(what, size)
    settings = {**settings, **other}
    X, y = bench.array(X, dtype), bench.array(y, "float64")
    X = lifted(X, features) if what == "rows" else X
    model = MultiTaskRegressor("trace", tol=tol, device="cpu" if bench.device == "cpu" else None, **settings)
    seconds, _ = bench.clock(lambda: model.fit(X, y))
    return seconds, model, X


# --- what the card can do ---------------------------------------------------------------------------------------------------


def rates(bench: Bench) -> dict[str, float]:
    """Operations a second of a matrix product, and bytes a second of a copy."""
    n, out = (8192 if bench.device != "cpu" else 1024), {}
    for dtype in ("float64", "float32"):
        A = bench.array(np.random.default_rng(0).normal(size=(n, n)), dtype)
        out[dtype] = 2 * n**3 / bench.best(lambda A=A: A @ A)
    x = bench.array(np.ones((1 << 28) if bench.device != "cpu" else 1 << 22), "float64")
    out["bytes"] = 2 * 8 * x.shape[0] / bench.best(lambda: x + 0.0)
    return out


def floor(what: str, size: int, dtype: str, rate: dict[str, float], counts: Counter) -> float:
    """Seconds below which no fit of this kind can go, by the model in the head of this file."""
    item = np.dtype(dtype).itemsize
    if what == "kernel":
        seconds = 8 * size**2 / rate["bytes"]
        for (kind, width), count in counts.items():
            if kind in ("block", "certificate"):
                held, kept = (item, dtype) if kind == "block" else (8, "float64")
                seconds += 2 * count * max(held * size**2 / rate["bytes"], 2 * size**2 * width / rate[kept])
        return seconds
    if what == "rows":
        return 2 * size * 1000 * (1000 + TASKS["rows"]) / rate["float64"]
    m, d = many_tasks.N, many_tasks.D
    numbers = 3 * m * d + 3 * 2 * m * d * 8 / item  # to begin, and three certificates in double precision
    for (kind, q), count in counts.items():
        system = min(q, m) ** 2
        numbers += count * (2 * m * d + (3 if kind == "point" else 2) * m * q + 2 * system)
    return item * size * numbers / rate["bytes"]


def counted(work: Callable[[], Any]) -> tuple[Counter, Any]:
    """How often the walk evaluates and how often it multiplies with the Hessian, by the number of columns of ``Q``; and how
    often a kernel is multiplied with a block of directions, and for a certificate, by the number of columns."""
    counts: Counter = Counter()
    begin, product = Point.__init__, Point.hessian
    outside, evidence = KernelInputs._outside, KernelInputs.evidence

    def evaluate(self: Point, data: Any, Q: Any, *rest: Any, **named: Any) -> None:
        counts["point", Q.shape[1]] += 1
        begin(self, data, Q, *rest, **named)

    def multiply(self: Point, dQ: Any) -> Any:
        counts["product", dQ.shape[1]] += 1
        return product(self, dQ)

    def take(self: KernelInputs, block: Any, *rest: Any) -> Any:
        counts["block", block.shape[1]] += 1
        return outside(self, block, *rest)

    def prove(self: KernelInputs, point: Any, tol: float = 0.0) -> Any:
        counts["certificate", self.Y.shape[1]] += 1
        return evidence(self, point, tol)

    Point.__init__, Point.hessian = evaluate, multiply  # type: ignore[method-assign]
    KernelInputs._outside, KernelInputs.evidence = take, prove  # type: ignore[method-assign]
    try:
        return counts, work()
    finally:
        Point.__init__, Point.hessian = begin, product  # type: ignore[method-assign]
        KernelInputs._outside, KernelInputs.evidence = outside, evidence  # type: ignore[method-assign]


def eigh_alone(bench: Bench, size: int, dtype: str) -> float:
    """Seconds of one decomposition of a kernel matrix of this size."""
    X = bench.array(data("kernel", size)[0], dtype)
    K = accelerated_kernel("rbf", None, 3, 1)(X, X)
    return bench.clock(lambda: namespace(K).linalg.eigh(K))[0]


def operations(bench: Bench, tasks: int) -> None:
    """The single operations behind many tasks, in milliseconds."""
    X = bench.array(np.random.default_rng(0).normal(size=(tasks, 30, 50)), "float64")
    xp, w, u = namespace(X), X[:, 0, :] + 0.0, X[:, :, 0] + 0.0
    Q = X[0, :, :].T + 0.0
    K = X @ xp.matrix_transpose(X) + 50 * xp.eye(30, dtype=X.dtype, device=X.device)
    work = {
        "X Q": lambda: xp.reshape(X, (-1, 50)) @ Q,
        "X X'": lambda: X @ xp.matrix_transpose(X),
        "X w": lambda: times(X, w),
        "X'u": lambda: times_transposed(X, u),
        "sum(X w)": lambda: xp.sum(X * w[:, None, :], axis=2),
        "cholesky": lambda: xp.linalg.cholesky(K),
        "inverse roots": lambda: inverse_roots(K, 1.0),
        "inverse": lambda: xp.linalg.inv(K),
        "copy of X": lambda: X + 0.0,
    }
    for name, each in work.items():
        print(f"  {bench.name} {name} ({tasks} x 30 x 50): {1e3 * bench.best(each):.2f} ms", flush=True)


# --- against the CPU --------------------------------------------------------------------------------------------------------


def agreement(bench: Bench, what: str) -> dict[str, float]:
    """Objective and predictions of a small problem against the ordinary solver."""
    X, y, settings = data(what, SMALL[what])
    _, there, _ = fit(bench, what, SMALL[what], "float64", 1e-12, 100)
    X = lifted(X, 100) if what == "rows" else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last digits may be out of reach: the difference says what counts
        here = MultiTaskRegressor("trace", tol=1e-12, max_iter=5000, **settings).fit(X, y)
    objective = abs(there.certificate_.primal / here.certificate_.primal - 1)
    difference = np.abs(there.predict(X) - here.predict(X)).max() / y.std()
    return {"objective": float(objective), "predictions": float(difference)}


def on_two_cores(what: str, size: int) -> dict[str, float]:
    """Wall seconds of the ordinary solver in a process that has two cores, and what they make of the full size."""
    environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "2")

    def seconds(size: int) -> float:
        command = [sys.executable, __file__, "--host", what, str(size)]
        return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)

    measured = seconds(size)
    power = np.log2(measured / seconds(size // 2)) if what == "kernel" else 1.0
    return {"size": size, "measured": measured, "power": power, "seconds": (SIZES[what] / size) ** power * measured}


def host_fit(what: str, size: int) -> float:
    """Seconds of a fit."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    X, y, settings = data(what, size)
    X = lifted(X) if what == "rows" else X
    began = time.perf_counter()
    MultiTaskRegressor("trace", tol=TOL, **settings).fit(X, y)
    return time.perf_counter() - began


# --- the report ---------------------------------------------------------------------------------------------------------------


def measure(bench: Bench, what: str, size: int, rate: dict[str, float]) -> list[dict[str, Any]]:
    rows = []
    for dtype in ("float64", "float32"):
        counts, _ = counted(lambda dtype=dtype: fit(bench, what, QUICK[what], dtype))  # warms up; the counts hardly change
        if what == "tasks":
            counts, _ = counted(lambda dtype=dtype: fit(bench, what, size, dtype))
        seconds, model, X = fit(bench, what, size, dtype)
        row = {"workload": what, "size": size, "precision": dtype, "seconds": seconds, "gap": model.certificate_.relative_gap}
        row |= {"solve": float(model.history_["seconds"][-1]), "status": model.certificate_.status, "n_iter": model.n_iter_}
        row["floor"] = floor(what, size, dtype, rate, counts)
        row["counts"] = {f"{kind} {q}": count for (kind, q), count in counts.items()}
        del model, X
        if what == "kernel":
            row["eigh"] = eigh_alone(bench, size, dtype)
            if size == SIZES[what] and dtype == "float64":
                row["larger"] = [larger(bench, alpha) for alpha in (data(what, size)[2]["alpha"], WEAK)]
        if what == "tasks" and dtype == "float64" and bench.device != "cpu":
            table, y, settings = data(what, size)
            whole = MultiTaskRegressor("trace", tol=TOL, device=bench.device, **settings)
            row["from the host"] = bench.clock(lambda w=whole, X=table, y=y: w.fit(X, y))[0]
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def larger(bench: Bench, alpha: float) -> dict[str, float]:
    """Seconds and gap of a kernel that is beyond any ``eigh``."""
    seconds, model, _ = fit(bench, "kernel", LARGER, "float64", alpha=alpha)
    return {"size": LARGER, "alpha": alpha, "seconds": seconds, "gap": model.certificate_.relative_gap}


def table(rows: list[dict[str, Any]], host: dict[str, dict[str, float]]) -> str:
    head = ["workload", "size", "precision", "fit (s)", "of it solving (s)", "relative gap", "share of the roofline"]
    head += ["two cores (s)", "ratio"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cpu = host.get(row["workload"])
        scaled = "" if cpu is None or cpu["size"] == row["size"] else f", scaled from {cpu['size']:,.0f}"
        cells = [row["workload"], f"{row['size']:,}", row["precision"], f"{row['seconds']:.3g}", f"{row['solve']:.3g}"]
        cells += [f"{row['gap']:.1e}", f"{row['floor'] / row['seconds']:.0%}"]
        cells += ["", ""] if cpu is None else [f"{cpu['seconds']:.3g}{scaled}", f"{cpu['seconds'] / row['seconds']:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def notes(rows: list[dict[str, Any]], agreed: dict[str, Any], rate: dict[str, float]) -> str:
    lines = [f"- Rates: {rate['float64'] / 1e12:.3g} (float64) and {rate['float32'] / 1e12:.3g} (float32) Tflop/s in a matrix "]
    lines[0] += f"product, {rate['bytes'] / 1e12:.3g} TB/s in a copy."
    for row in rows:
        if "eigh" in row:
            ratio = row["seconds"] / row["eigh"]
            lines.append(
                f"- kernel, {row['precision']}: `eigh` alone {row['eigh']:.3g} s; the fit takes {ratio:.2f} times that."
            )
        lines += [
            f"- kernel, float64, {more['size']:,} rows, alpha = {more['alpha']:g}: {more['seconds']:.3g} s, "
            f"relative gap {more['gap']:.1e}."
            for more in row.get("larger", [])
        ]
        if "from the host" in row:
            lines.append(
                f"- {row['workload']}, {row['precision']}, from the host (NumPy arrays): {row['from the host']:.3g} s."
            )
    for name, found in agreed.items():
        lines.append(
            f"- Agreement with the CPU, {name}: objective {found['objective']:.0e} (relative), predictions "
            f"{found['predictions']:.0e} (in standard deviations of y)."
        )
    return "\n".join(lines)


def libraries(device: str) -> list[str]:
    """PyTorch, and CuPy where there is a card for it."""
    found = []
    for name in ("torch", "cupy"):
        try:
            import_module(name)
        except ImportError:
            continue
        if device != "cpu" or name == "torch":
            found.append(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--host", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        print(host_fit(options.host[0], int(options.host[1])))
        return
    benches = [Bench(name, options.device) for name in libraries(options.device)]
    agreed = {}
    for bench in benches:
        for what in options.only:
            agreed[f"{bench.name}, {what}"] = found = agreement(bench, what)
            print(
                f"{bench.name} {what}: objective {found['objective']:.1e}, predictions {found['predictions']:.1e}", flush=True
            )
    first = benches[0]
    rate = rates(first)
    print(json.dumps(rate), flush=True)
    if options.quick:
        for bench in benches:
            operations(bench, QUICK["tasks"] if options.device == "cpu" else SIZES["tasks"])
    sizes = QUICK if options.quick else SIZES
    rows = [row for what in options.only for row in measure(first, what, sizes[what], rate)]
    host = {}
    for what in [] if options.quick else options.only:
        host[what] = on_two_cores(what, HOST[what])
        print(json.dumps({what: host[what]}), flush=True)
    text, more = table(rows, host), notes(rows, agreed, rate)
    print(f"{text}\n\n{more}")
    if options.quick:
        return
    card = first.library.cuda.get_device_name() if first.name == "torch" and options.device != "cpu" else options.device
    machine = f"{card}; {first.name} {first.library.__version__}, Python {platform.python_version()}"
    folder = Path(os.environ.get("OUT") or Path(__file__).parent / "results")
    result = {"machine": machine, "rates": rate, "agreement": agreed, "rows": rows, "host": host}
    (folder / "gpu.json").write_text(json.dumps(result, indent=1))
    (folder / "gpu.md").write_text(
        f"# On a card\n\n{machine}. `python benchmarks/gpu.py`, whose head has the model.\n\n{text}\n\n{more}\n"
    )


if __name__ == "__main__":
    main()
