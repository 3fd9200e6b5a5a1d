"""What model selection and a new task cost, in units of one cold fit measured in the same run.

    python benchmarks/selection.py [--repeats 3]

(a) shared inputs, n = 1000, T = 20, rbf kernel; (b) 60 tasks with 40 examples of their own, d = 50, linear. A 5-fold, 30-alpha
``MultiTaskRegressorCV`` with the trace structure (its comparison with single tasks and its refit included, no common part)
against one cold
``MultiTaskRegressor`` at the chosen alpha, and against the same search done fit by fit. (c) ``add_task`` against a refit with
one more task, 200 tasks with 30 examples of their own, d = 50. BLAS is pinned to one thread; times are CPU seconds, medians
of several runs where a run is short, and of the repeats. Writes benchmarks/results/selection.json and selection.md.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import copy
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import taskloom
from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, stack

RESULTS = Path(__file__).parent / "results"
GOALS = {"shared inputs": 12.0, "own inputs": 40.0, "add_task": 0.01}


def shared_inputs(seed: int) -> tuple[Any, Any, dict]:
    rng = np.random.default_rng(seed)
    n, n_tasks, d = 1000, 20, 5
    X = rng.normal(size=(n, d))
    Y = np.sin(X @ rng.normal(size=(d, 4))) @ rng.normal(size=(4, n_tasks)) + 0.5 * rng.normal(size=(n, n_tasks))
    return X, Y, {"kernel": "rbf"}


def own_inputs(seed: int, n_tasks: int = 60, n: int = 40, d: int = 50) -> tuple[Any, Any, dict]:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 5)) @ rng.normal(size=(5, n_tasks))
    Xs = [rng.normal(size=(n, d)) for _ in range(n_tasks)]
    ys = [X @ W[:, t] + 2 * rng.normal(size=n) for t, X in enumerate(Xs)]
    return *stack(Xs, ys), {"task_column": -1}


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


def measure_search(make: Callable[[int], tuple[Any, Any, dict]], seed: int, one_by_one: bool) -> dict[str, float]:
    X, y, options = make(seed)
    searching, search = seconds(lambda: MultiTaskRegressorCV("trace", **options, common=None, kernels=None).fit(X, y))
    cold = [seconds(lambda: MultiTaskRegressor("trace", alpha=search.alpha_, **options).fit(X, y)) for _ in range(5)]
    fitting, fit = float(np.median([spent for spent, _ in cold])), cold[0][1]
    row = {
        "search": searching,
        "cold fit": fitting,
        "ratio": searching / fitting,
        "iterations of the cold fit": fit.n_iter_,
        "chosen alpha / largest": search.alpha_ / search.path_["alphas"][0],
        "score": search.best_score_,
        "largest relative gap": float(search.cv_results_["max_relative_gap"].max()),
    }
    if one_by_one:
        task = X[:, -1].astype(int) if "task_column" in options else np.zeros(len(X), int)
        folds = list(StratifiedKFold(5).split(X, task))
        grid = GridSearchCV(MultiTaskRegressor("trace", **options), {"alpha": search.path_["alphas"].tolist()}, cv=folds)
        row["150 fits and a refit"] = seconds(lambda: grid.fit(X, y))[0]
        row["speed-up"] = row["150 fits and a refit"] / searching
    return row


def measure_adding(seed: int) -> dict[str, float]:
    X, y, options = own_inputs(seed, n_tasks=201, n=30)
    old = X[:, -1] < 200
    model = MultiTaskRegressor("trace", alpha=0.1, **options).fit(X[old], y[old])
    refits = [seconds(lambda: MultiTaskRegressor("trace", alpha=0.1, **options).fit(X, y))[0] for _ in range(3)]
    refitting = float(np.median(refits))
    times = []
    for _ in range(15):
        fresh = copy.deepcopy(model)
        times.append(seconds(lambda fresh=fresh: fresh.add_task(X[~old], y[~old], name=200.0))[0])
    return {"add_task": float(np.median(times)), "refit": refitting, "ratio": float(np.median(times)) / refitting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in GOALS}
    for seed in range(repeats):
        rows["shared inputs"].append(measure_search(shared_inputs, seed, one_by_one=seed == 0))
        rows["own inputs"].append(measure_search(own_inputs, seed, one_by_one=seed == 0))
        rows["add_task"].append(measure_adding(seed))
        print({name: round(runs[-1]["ratio"], 4) for name, runs in rows.items()}, flush=True)
    record = {
        "command": f"python benchmarks/selection.py --repeats {repeats}",
        "versions": {"taskloom": taskloom.__version__, "numpy": np.__version__, "python": platform.python_version()},
        "goals": GOALS,
        "runs": rows,
    }
    lines = [
        "# Model selection and new tasks, in units of a cold fit",
        "",
        f"`{record['command']}`, CPU seconds, one thread.",
        "",
    ]
    lines += ["| workload | seconds | cold fit or refit | ratio (median) | goal | fit by fit |", "|---|---|---|---|---|---|"]
    for name, runs in rows.items():
        first = "add_task" if name == "add_task" else "search"
        second = "refit" if name == "add_task" else "cold fit"
        cost, base, ratio = (float(np.median([run[key] for run in runs])) for key in (first, second, "ratio"))
        slow = f"{runs[0]['speed-up']:.1f} times slower" if "speed-up" in runs[0] else ""
        lines.append(f"| {name} | {cost:.3g} | {base:.3g} | {ratio:.3g} | at most {GOALS[name]:g} | {slow} |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "selection.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "selection.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
