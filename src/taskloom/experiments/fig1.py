"""Figure 1 of the paper: CPU seconds to the minimum, for taskloom, Algorithm 1 as printed and the original algorithms.

The paper's data: inputs and weights from a normal distribution, 30 examples for each task, noise 0.1. Time stops when the
objective is within ``tolerance`` (relative to the loss of the zero predictor) of the minimum, which our solver brackets first.
MTFL is ``loss + 2 sqrt(alpha) ||W||_*``; Argyriou's form squares the norm; ``gamma = sqrt(alpha)/||W*||_*`` has the same
minimiser.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from ..design import Observations
from ..losses import Squared
from ..problem import Problem
from ..problem.solution import Solution
from ..solvers import alpha_max, solve
from ..structures import Clusters, Trace
from . import baselines
from .baselines import ClusterSet, TaskList, nuclear
from .summary_tables import markdown

TITLE = "Computational times (Figure 1)"
N_EXAMPLES, NOISE = 30, 0.1
CLUSTERS = {"n_clusters": 5, "mean": 0.1, "between": 1.0, "within": 10.0}
PANELS = {f"{method}, {axis} varies": (method, axis) for axis in "dT" for method in ("MTCL", "MTFL")}


def settings(quick: bool, repetitions: int | None) -> dict[str, Any]:
    return {
        "fixed": 40 if quick else 100,
        "values": [5, 15, 40] if quick else [5, 25, 50, 100, 150],
        "shares_of_alpha_max": [0.1, 0.01],
        "repetitions": repetitions or (1 if quick else 2),
        "tolerance": 1e-3,
        "time_limit": 1.0 if quick else 10.0,
        "seeds": "the number of the repetition",
    }


def units(settings: dict[str, Any]) -> list[dict[str, Any]]:
    couples = [(settings["fixed"], d) for d in settings["values"]] + [(T, settings["fixed"]) for T in settings["values"]]
    return [
        {"T": T, "d": d, "repetition": repetition}
        for T, d in dict.fromkeys(couples)
        for repetition in range(settings["repetitions"])
    ]


def make(T: int, d: int, seed: int) -> tuple[TaskList, Problem]:
    rng = np.random.default_rng([seed, T, d])
    W = rng.normal(size=(d, T))
    Xs = [rng.normal(size=(N_EXAMPLES, d)) for _ in range(T)]
    ys = [X @ w + NOISE * rng.normal(size=N_EXAMPLES) for X, w in zip(Xs, W.T, strict=True)]
    task = np.repeat(np.arange(T), N_EXAMPLES)
    seen = Observations.build(np.arange(task.size), task, np.concatenate(ys), T)
    return TaskList(Xs, ys), Problem(np.concatenate(Xs), seen, Squared(), Trace(), 1.0, fit_intercept=False)


def measure(unit: dict[str, Any], settings: dict[str, Any], folder: Path) -> dict[str, Any]:  # noqa: ARG001 (needs no data)
    """Seconds of each algorithm; ``None`` where the time limit was reached. Each alpha has its own data."""
    T, d, limit, tolerance = unit["T"], unit["d"], settings["time_limit"], settings["tolerance"]
    result: dict[str, Any] = {"MTFL": {}, "MTCL": {}}
    for k, share in enumerate(settings["shares_of_alpha_max"]):
        seed = 100 * unit["repetition"] + k
        tasks, problem = make(T, d, seed)
        alpha, clusters = share * alpha_max(problem), {**CLUSTERS, "n_clusters": min(5, T)}
        for method, structure, groups in (("MTFL", Trace(), None), ("MTCL", Clusters(**clusters), ClusterSet(**clusters))):
            best = solve(problem.with_structure(structure).at(alpha), tol=1e-6, max_iter=5000, time_limit=60 * limit)
            fresh = make(T, d, seed)[1].with_structure(structure).at(alpha)  # no cached results
            began = time.process_time()
            ours = solve(fresh, tol=tolerance, max_iter=5000, time_limit=60 * limit)
            spent = time.process_time() - began
            runs = _others(tasks, alpha, groups, best, tolerance * problem.scale, limit)
            entries = {
                "taskloom (auto, certified)": spent if ours.certificate.optimal and spent <= limit else None,
                **{name: _seconds_to(goal, trace) for name, (goal, (_, trace)) in runs.items()},
                "relative_gap": float(best.certificate.relative_gap),
            }
            for name, value in entries.items():
                result[method].setdefault(name, []).append(value)
    return result


def _others(
    tasks: TaskList, alpha: float, groups: ClusterSet | None, best: Solution, near: float, limit: float
) -> dict[str, tuple[float, tuple[Any, baselines.Trace]]]:
    """The other algorithms, for MTCL where there are clusters: the objective to reach, weights and trace."""
    target = best.certificate.dual + near
    runs = {"paper's alternation": (target, baselines.paper_alternation(tasks, alpha, target, limit, groups))}
    if groups is not None:
        return runs | {"Jacob's gradient": (target, baselines.jacob_gradient(tasks, alpha, groups, target, limit))}
    gamma = np.sqrt(alpha) / max(nuclear(best.W), 1e-12)
    squared = tasks.loss(best.W) + gamma * nuclear(best.W) ** 2 + near
    return runs | {
        "Argyriou's alternation": (squared, baselines.argyriou_alternation(tasks, gamma, squared, limit)),
        "FISTA": (target, baselines.accelerated_proximal_gradient(tasks, 2 * np.sqrt(alpha), target, limit)),
    }


def _seconds_to(goal: float, trace: baselines.Trace) -> float | None:
    return next((second for second, objective in trace if objective <= goal), None)


def summarise(settings: dict[str, Any], done: list[tuple[dict, dict]]) -> dict[str, Any]:
    """Median seconds by panel and algorithm; a run that met the time limit counts as that limit (``at_limit`` counts them)."""
    results: dict[str, Any] = {panel: {} for panel in PANELS}
    for panel, (method, axis) in PANELS.items():
        other = "T" if axis == "d" else "d"
        for algorithm in [name for name in done[0][1][method] if name != "relative_gap"]:
            runs = [
                [s for unit, r in done if (unit[axis], unit[other]) == (size, settings["fixed"]) for s in r[method][algorithm]]
                for size in settings["values"]
            ]
            filled = [[settings["time_limit"] if s is None else s for s in of_size] for of_size in runs]
            results[panel][algorithm] = {
                "sizes": settings["values"],
                "seconds": [float(np.median(of_size)) for of_size in filled],
                "at_limit": [of_size.count(None) for of_size in runs],
                "repetitions": filled,
            }
    gaps = [gap for _, r in done for method in r.values() for gap in method["relative_gap"]]
    return {"printed": {}, "results": results, "certificates": {"relative_gap": max(gaps)}}


def table(record: dict[str, Any]) -> tuple[str, list[list[Any]]]:
    settings = record["settings"]
    limit, sizes = settings["time_limit"], settings["values"]
    lines, rows = [], [["panel", "algorithm", "size", "median_seconds", "at_limit"]]
    for panel, algorithms in record["results"].items():
        cells: dict[str, list[str]] = {}
        for name, entry in algorithms.items():
            pairs = list(zip(entry["seconds"], entry["at_limit"], strict=True))
            late = [f" ({n} at the limit)" if n else "" for _, n in pairs]
            cells[name] = [f"> {limit:g}" if s >= limit else f"{s:.3f}{more}" for (s, _), more in zip(pairs, late, strict=True)]
            rows += [[panel, name, size, *pair] for size, pair in zip(sizes, pairs, strict=True)]
        title = f"## {panel} (the other is {settings['fixed']}): median CPU seconds"
        lines += [title, "", *markdown("algorithm", sizes, cells), ""]
    lines.append(
        f"CPU seconds until the objective is within {settings['tolerance']:g} (relative) of the minimum, one thread; "
        f"ours includes the proof. The minimum was bracketed to {record['certificates']['relative_gap']:.0e} at worst. "
        "The paper prints curves, no numbers."
    )
    return "\n".join(lines), rows


def draw(record: dict[str, Any], figure: Any) -> None:
    panels = figure.subplots(1, 4, sharey=True)
    for panel, (title, algorithms) in zip(panels, record["results"].items(), strict=True):
        for name, entry in algorithms.items():
            panel.plot(entry["sizes"], entry["seconds"], marker=".", label=name)
        panel.set(title=title, xlabel=title.split(", ")[1][0], yscale="log")
        panel.legend(fontsize="xx-small")
    panels[0].set_ylabel("CPU seconds")
