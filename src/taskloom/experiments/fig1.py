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
from ..solvers import alpha_max, solve
from ..structures import Clusters, Trace
from .baselines import (
    ClusterSet,
    TaskList,
    accelerated_proximal_gradient,
    argyriou_alternation,
    jacob_gradient,
    nuclear,
    paper_alternation,
)

TITLE = "Computational times (Figure 1)"
N_EXAMPLES, NOISE = 30, 0.1
CLUSTERS = {"n_clusters": 5, "mean": 0.1, "between": 1.0, "within": 10.0}
PANELS = {
    "MTCL, d varies": ("MTCL", "d"),
    "MTFL, d varies": ("MTFL", "d"),
    "MTCL, T varies": ("MTCL", "T"),
    "MTFL, T varies": ("MTFL", "T"),
}


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
        tasks, problem = make(T, d, 100 * unit["repetition"] + k)
        alpha = share * alpha_max(problem)
        clusters = {**CLUSTERS, "n_clusters": min(5, T)}
        for method, structure in (("MTFL", Trace()), ("MTCL", Clusters(**clusters))):
            original = problem.with_structure(structure).at(alpha)
            best = solve(original, tol=1e-6, max_iter=5000, time_limit=60 * limit)
            target = best.certificate.dual + tolerance * problem.scale
            fresh = make(T, d, 100 * unit["repetition"] + k)[1].with_structure(structure).at(alpha)  # no cached results
            began = time.process_time()
            ours = solve(fresh, tol=tolerance, max_iter=5000, time_limit=60 * limit)
            spent = time.process_time() - began
            seconds: dict[str, float | None] = {
                "taskloom (auto, certified)": spent if ours.certificate.optimal and spent <= limit else None
            }
            if method == "MTFL":
                gamma = np.sqrt(alpha) / max(nuclear(best.W), 1e-12)
                squared = tasks.loss(best.W) + gamma * nuclear(best.W) ** 2 + tolerance * problem.scale
                runs = {
                    "paper's alternation": paper_alternation(tasks, alpha, target, limit),
                    "Argyriou's alternation": argyriou_alternation(tasks, gamma, squared, limit),
                    "FISTA": accelerated_proximal_gradient(tasks, 2 * np.sqrt(alpha), target, limit),
                }
                goals = {name: squared if name.startswith("Argyriou") else target for name in runs}
            else:
                groups = ClusterSet(**clusters)
                runs = {
                    "paper's alternation": paper_alternation(tasks, alpha, target, limit, groups),
                    "Jacob's gradient": jacob_gradient(tasks, alpha, groups, target, limit),
                }
                goals = dict.fromkeys(runs, target)
            for name, (_, trace) in runs.items():
                hit = [second for second, objective in trace if objective <= goals[name]]
                seconds[name] = hit[0] if hit else None
            for name, value in seconds.items():
                result[method].setdefault(name, []).append(value)
            result[method].setdefault("relative_gap", []).append(float(best.certificate.relative_gap))
    return result


def summarise(settings: dict[str, Any], done: list[tuple[dict, dict]]) -> dict[str, Any]:
    """Median seconds by panel and algorithm; a run that met the time limit counts as that limit (``at_limit`` counts them)."""
    results: dict[str, Any] = {}
    for panel, (method, axis) in PANELS.items():
        other = "T" if axis == "d" else "d"
        results[panel] = {}
        for algorithm in done[0][1][method]:
            if algorithm == "relative_gap":
                continue
            medians, late, repeats = [], [], []
            for value in settings["values"]:
                here = [r for unit, r in done if unit[axis] == value and unit[other] == settings["fixed"]]
                runs = [s for r in here for s in r[method][algorithm]]
                filled = [settings["time_limit"] if s is None else s for s in runs]
                medians.append(float(np.median(filled)))
                late.append(sum(s is None for s in runs))
                repeats.append(filled)
            results[panel][algorithm] = {
                "sizes": settings["values"],
                "seconds": medians,
                "at_limit": late,
                "repetitions": repeats,
            }
    gaps = [gap for _, r in done for method in r.values() for gap in method["relative_gap"]]
    return {"printed": {}, "results": results, "certificates": {"relative_gap": max(gaps)}}


def table(record: dict[str, Any]) -> tuple[str, list[list[Any]]]:
    limit, lines, rows = record["settings"]["time_limit"], [], [["panel", "algorithm", "size", "median_seconds", "at_limit"]]
    for panel, algorithms in record["results"].items():
        sizes = record["settings"]["values"]
        lines += [f"## {panel} (the other is {record['settings']['fixed']}): median CPU seconds", ""]
        lines += ["| algorithm | " + " | ".join(map(str, sizes)) + " |", "|---" * (1 + len(sizes)) + "|"]
        for name, entry in algorithms.items():
            pairs = list(zip(entry["seconds"], entry["at_limit"], strict=True))
            cells = [
                f"> {limit:g}" if s >= limit else f"{s:.3f}" + (f" ({late} at the limit)" if late else "") for s, late in pairs
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
            rows += [[panel, name, size, s, late] for size, (s, late) in zip(sizes, pairs, strict=True)]
        lines.append("")
    lines.append(
        f"CPU seconds until the objective is within {record['settings']['tolerance']:g} (relative) of the minimum, one thread; "
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
