"""Many rows: a fit from blocks with Nystroem features, its peak memory, and that it is the fit of all rows.

    python benchmarks/many_rows.py [--rows 2000000] [--features 1000] [--threads 1] [--quick]

21 inputs, 7 tasks that share what they learn (the shape of SARCOS), made block by block: smooth functions of the inputs, with
noise. ``MultiTaskRegressor("trace", kernel="rbf", approximation="nystroem").fit_blocks`` runs in a process of its own, whose
peak memory is read when the fit ends. Then

- at 50 000 rows (``--memory``) the fit from blocks is compared with the fit in memory;
- at full size one more pass over the rows compares the objective, the gradient of the loss at the fitted weights, and the Gram
  matrix along random directions with what the statistics say.

Writes benchmarks/results/many_rows.json and many_rows.md; ``--quick`` is 20 000 rows, 100 features, and writes nothing.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
D, T, BLOCK, ALPHA, GAMMA = 21, 7, 50_000, 1e-5, 0.02


def blocks(n_rows: int) -> Iterator[tuple[Any, Any]]:
    """The same rows every time, a block at a time."""
    import numpy as np

    rng = np.random.default_rng(0)
    inner, outer = rng.normal(size=(D, 12)) / np.sqrt(D), rng.normal(size=(12, T))
    for first in range(0, n_rows, BLOCK):
        own = np.random.default_rng([1, first])
        X = own.normal(size=(min(BLOCK, n_rows - first), D))
        yield X, np.sin(X @ inner) @ outer + 0.3 * own.normal(size=(len(X), T)) + 5.0


def model(features: int) -> Any:
    from taskloom import MultiTaskRegressor

    return MultiTaskRegressor(
        "trace", kernel="rbf", gamma=GAMMA, alpha=ALPHA, approximation="nystroem", n_components=features, random_state=0
    )


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def from_blocks(n_rows: int, features: int) -> dict[str, Any]:
    """One fit from blocks in this process, and the pass that checks it."""
    before, cpu, wall = peak(), time.process_time(), time.perf_counter()
    fitted = model(features).fit_blocks(lambda: blocks(n_rows))
    row = {
        "rows": n_rows,
        "features": features,
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "peak": peak(),
        "before": before,
        "whole": n_rows * features * 8 / 2**30,
        "n_iter": fitted.n_iter_,
        "relative_gap": fitted.certificate_.relative_gap,
        "status": fitted.certificate_.status,
    }
    return row | check(fitted, n_rows)


def check(fitted: Any, n_rows: int) -> dict[str, float]:
    """What the rows themselves say, beside what the statistics say."""
    import numpy as np

    W, b, statistics = fitted.coef_.T, fitted.intercept_, fitted._state.statistics.shared
    V = np.random.default_rng(2).normal(size=(len(W), 3)) / np.sqrt(len(W))
    loss, gradient, along, total, spread = 0.0, np.zeros_like(W), np.zeros_like(V), 0.0, 0.0
    for X, Y in blocks(n_rows):
        for rows in np.array_split(np.arange(len(X)), 10):
            phi = fitted.feature_map_.transform(X[rows]) - statistics.x_mean
            left = phi @ W + b + statistics.x_mean @ W - Y[rows]
            loss += float(np.vdot(left, left))
            gradient += phi.T @ left
            along += phi.T @ (phi @ V)
            spread += float(np.sum((Y[rows] - statistics.y_mean) ** 2))
            total += len(rows)
    A = fitted.structure_
    a, U = np.linalg.eigh(A)
    keep = a > 1e-10 * a[-1]
    penalty = fitted.alpha * float(np.sum((W @ U[:, keep]) ** 2 / a[keep])) + float(np.trace(A))
    primal = fitted.certificate_.primal
    expected = statistics.gram @ W - statistics.cross
    return {
        "r2": 1 - loss / spread,
        "objective_off": abs(loss / total + penalty - primal) / primal,
        "slope_off": float(np.abs(gradient - expected).max() / np.abs(statistics.cross).max()),
        "gram_off": float(np.abs(along - statistics.gram @ V).max() / np.abs(along).max()),
    }


def in_memory(n_rows: int, features: int) -> dict[str, Any]:
    """The same rows at once, and from blocks."""
    import numpy as np

    X, Y = (np.concatenate(part) for part in zip(*blocks(n_rows), strict=True))
    whole = model(features).fit(X, Y)
    cut = model(features).fit_blocks(lambda: zip(np.array_split(X, 7), np.array_split(Y, 7), strict=True))
    test = X[:10_000]
    return {
        "rows": n_rows,
        "coef_off": float(np.abs(whole.coef_ - cut.coef_).max() / np.abs(whole.coef_).max()),
        "predictions_off": float(np.abs(whole.predict(test) - cut.predict(test)).max() / np.abs(Y).max()),
        "objective_off": abs(whole.certificate_.primal - cut.certificate_.primal) / whole.certificate_.primal,
        "peak": peak(),
    }


def in_a_process(what: str, n_rows: int, features: int, threads: int) -> dict[str, Any]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--one", what, "--rows", str(n_rows), "--features", str(features)]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)


def page(fit: dict[str, Any], both: dict[str, Any], machine: str) -> str:
    return f"""# Many rows

{machine}.

{fit["rows"]} rows x {D} inputs, {T} tasks, {fit["features"]} Nystroem features, from blocks of {BLOCK} rows:

| CPU s | wall s | peak memory (GiB) | all features at once (GiB) | iterations | relative gap | R2 |
|---|---|---|---|---|---|---|
| {fit["cpu"]:.0f} | {fit["wall"]:.0f} | {fit["peak"]:.2f} | {fit["whole"]:.1f} | {fit["n_iter"]} | \
{fit["relative_gap"]:.1e} | {fit["r2"]:.3f} |

One more pass over the rows agrees with the statistics to (relative)

| objective | gradient of the loss | Gram along random directions |
|---|---|---|
| {fit["objective_off"]:.1e} | {fit["slope_off"]:.1e} | {fit["gram_off"]:.1e} |

At {both["rows"]} rows the fit from blocks and the fit in memory (peak {both["peak"]:.2f} GiB) agree to (relative)

| weights | predictions | objective |
|---|---|---|
| {both["coef_off"]:.1e} | {both["predictions_off"]:.1e} | {both["objective_off"]:.1e} |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--memory", type=int, default=50_000, help="rows of the comparison with the fit in memory")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", choices=["blocks", "memory"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run = from_blocks if options.one == "blocks" else in_memory
        sys.stdout.write(json.dumps(run(options.rows, options.features)))
        return
    if options.quick:
        options.rows, options.features, options.memory = 20_000, 100, 5_000
    both = in_a_process("memory", options.memory, options.features, options.threads)
    print(json.dumps(both), flush=True)
    fit = in_a_process("blocks", options.rows, options.features, options.threads)
    print(json.dumps(fit), flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} BLAS thread(s)"
    machine += f", Python {platform.python_version()}"
    machine += f"; load of the machine at the end {os.getloadavg()[0]:.1f} (others ran on it: CPU seconds count)"
    text = page(fit, both, machine)
    print(text)
    if options.quick:
        return
    (RESULTS / "many_rows.json").write_text(json.dumps({"machine": machine, "blocks": fit, "memory": both}, indent=1))
    (RESULTS / "many_rows.md").write_text(text)


if __name__ == "__main__":
    main()
