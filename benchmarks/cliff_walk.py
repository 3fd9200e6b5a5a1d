"""A walk around ordinary problems: one thing changed at a time, and the steepest steps of what a fit costs.

A step is judged by how many times longer the changed problem takes than the problem it came from, over how many times larger
its table is (rows x inputs x tasks of a wide table, rows x inputs of a long one, rows squared for a kernel; a search is 41
fits). A change of loss, structure or strength should cost little, a larger table what it is larger. Every place is a process of
its own, with a limit.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from output import RESULTS, cpu, table
from workloads import signs

from taskloom import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV, stack

LIMIT = 20  # CPU seconds for a fit or a search, after which the process is stopped and the limit counts as its time
PATIENCE = 10 * LIMIT  # wall seconds, on a machine that others use
FITS = 8 * 5 + 1  # of a search: that many times a fit is no cliff
FAST = 0.02  # CPU seconds below which a fit is as fast as anybody asks: steps from there to there are no cliffs


@dataclass(frozen=True)
class Place:
    """A problem: its table, its model, its strength."""

    tasks: int = 50
    rows: int = 200  # of a wide table; of each task in a long one a tenth of them
    inputs: int = 20
    missing: float = 0.0  # of a wide table
    layout: str = "wide"
    loss: str = "squared"
    structure: str = "trace"
    kernel: str = "linear"
    alpha: float = 0.1
    common: bool = False
    intercept: bool = True
    search: bool = False

    @property
    def size(self) -> float:
        rows = self.rows if self.layout == "wide" else self.tasks * max(self.rows // 10, 2)
        width = self.inputs if self.kernel == "linear" else rows
        return float(rows * width * (self.tasks if self.layout == "wide" else 1))

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights of rank four, noise of half the signal; the task is the last column of a long table."""
        rng = np.random.default_rng(0)
        W = rng.normal(size=(self.inputs, 4)) @ rng.normal(size=(4, self.tasks)) / np.sqrt(4 * self.inputs)
        if self.layout == "wide":
            X = rng.normal(size=(self.rows, self.inputs))
            Y = X @ W + 0.5 * rng.normal(size=(self.rows, self.tasks))
            Y[rng.random(Y.shape) < self.missing] = np.nan
            return X, Y
        Xs = rng.normal(size=(self.tasks, max(self.rows // 10, 2), self.inputs))
        ys = np.einsum("tij,jt->ti", Xs, W)
        return stack(list(Xs), list(ys + 0.5 * rng.normal(size=ys.shape)))

    def estimator(self) -> Any:
        labels = self.loss in LABELS
        settings: dict[str, Any] = {"kernel": self.kernel, "loss": self.loss, "fit_intercept": self.intercept}
        settings |= {"task_column": -1} if self.layout == "long" else {}
        settings |= {"common": True} if self.common else {}
        if self.search:
            return (MultiTaskClassifierCV if labels else MultiTaskRegressorCV)(
                structures=[self.structure], alphas=8, **settings
            )
        made = MultiTaskClassifier if labels else MultiTaskRegressor
        return made(self.structure, alpha=self.alpha, **settings)


LABELS = ("logistic", "hinge", "squared_hinge")
AXES: dict[str, tuple] = {
    "tasks": (1, 2, 10, 200, 1000, 4000),
    "rows": (20, 50, 1000, 5000),
    "inputs": (1, 2, 100, 500, 2000),
    "missing": (0.01, 0.5, 0.9),
    "layout": ("wide", "long"),
    "loss": ("squared", "huber", "absolute", "quantile", "epsilon_insensitive", *LABELS),
    "structure": (
        *("independent", "shared_mean", "trace", "frobenius", "unit_trace", "clusters", "log_det", "sparse"),
        *("feature_selection", "robust", "dirty"),
    ),
    "kernel": ("linear", "rbf", "laplacian"),
    "alpha": (1e-6, 1e-4, 1e-2, 1.0),
    "common": (False, True),
    "intercept": (True, False),
    "search": (False, True),
}
STARTS = (
    Place(),
    Place(layout="long", tasks=100, rows=300, inputs=20),
    Place(layout="long", tasks=2000, rows=50, inputs=3),
    Place(tasks=10, rows=500, kernel="rbf", inputs=5),
    Place(loss="logistic", tasks=20),
    Place(tasks=1000, rows=100),
)


def steps(start: Place) -> list[tuple[str, Place]]:
    """All places that differ from the start in one thing."""
    found = []
    for axis, values in AXES.items():
        if axis == "missing" and start.layout == "long":
            continue
        found += [(axis, replace(start, **{axis: value})) for value in values if value != getattr(start, axis)]
    return found


def seconds_at(place: Place) -> dict[str, Any]:
    """CPU seconds and status at a place, in a forked process that is stopped at the limit."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=lambda: theirs.send(limited(place)), daemon=True)
    child.start()
    theirs.close()
    found = {"seconds": float(LIMIT), "status": f"stopped after {LIMIT} s"}
    if ours.poll(PATIENCE):
        with suppress(EOFError):  # it was stopped
            found = ours.recv()
    child.kill()
    child.join()
    return found


def limited(place: Place) -> dict[str, Any]:
    """The measurement, in a process that the system stops at the limit."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
    return measured(place)


def measured(place: Place) -> dict[str, Any]:
    """CPU seconds of a fit (the lesser of two where one is quick), and how it ended."""
    X, y = place.data()
    if place.loss in LABELS:
        y = signs(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = place.estimator()
            seconds, _ = cpu(lambda: model.fit(X, y))
            if seconds < 1:
                seconds = min(seconds, cpu(lambda: model.fit(X, y))[0])
        except Exception as error:  # a refusal is a sentence, and belongs in the table
            return {"seconds": None, "status": f"{type(error).__name__}: {error}"[:100]}
    return {"seconds": seconds, "status": model.certificate_.status}


def walk(steepest: int, limit: float) -> None:
    """Print the steepest steps and keep all of them in ``results/cliff_walk.json``."""
    began, found = time.monotonic(), []
    for start in STARTS:
        here = seconds_at(start)
        for axis, place in steps(start):
            if time.monotonic() - began > limit:
                break
            there = seconds_at(place)
            found.append(step_row(start, here, axis, place, there))
    found.sort(key=lambda row: -(row["steepness"] or 0.0))
    print(table(found[:steepest]))
    refused = [row for row in found if row["there"] is None]
    print(f"\n{len(found)} steps, {len(refused)} refused")
    for row in refused:
        print("-", row["from"], row["step"], row["status"])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cliff_walk.json").write_text(json.dumps(found, indent=1))


def step_row(start: Place, here: dict, axis: str, place: Place, there: dict) -> dict[str, Any]:
    default = asdict(Place())
    changed = {name: value for name, value in asdict(start).items() if value != default[name]}
    row = {
        "from": ", ".join(f"{name}={value}" for name, value in changed.items()) or "default",
        "step": f"{axis}={getattr(place, axis)}",
        "here": here["seconds"],
        "there": there["seconds"],
    }
    if here["seconds"] is None or there["seconds"] is None:
        return row | {"steepness": None, "status": there["status"]}
    larger = max(place.size / start.size, 1.0) * (FITS if place.search and not start.search else 1)
    steepness = max(there["seconds"], FAST) / max(here["seconds"], FAST) / larger
    return row | {"steepness": steepness, "status": there["status"]}
