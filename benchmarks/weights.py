"""How to choose alpha and the weights of terms: cross-validation of alpha alone, of both, or the restricted likelihood.

    python benchmarks/weights.py [--data FOLDER] [--only school parkinsons au_imports imdb]

Real panels (``../shared/data``, skipped where they are not): errors on rows that were held out, CPU seconds (one thread), and
the number of settings. Methods, all with a linear common part, independent own parts and shrunk intercepts:

- ``alpha``: alpha by 5 folds, every weight 1;
- ``alpha and weights``: what the cross-validated estimators do, alpha and the weights by a compass search on the same folds;
- ``restricted likelihood``: one variance for each term by restricted maximum likelihood on all training rows, then one fit;
- ``own trace``: the second with ``structure="trace"`` (a learned covariance of slopes), which a likelihood does not know;
- ``default``: ``MultiTaskRegressorCV()`` as it is, which also compares with no common part (``terms=`` has no such choice).

Writes benchmarks/results/weights.json and weights.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

import numpy as np  # noqa: E402

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, Term  # noqa: E402
from taskloom.estimators.terms.fit_sum import prepared_sum  # noqa: E402
from taskloom.estimators.terms.variance_components import (  # noqa: E402
    CovarianceShape,
    RandomEffects,
    variance_components,
)

Array = np.ndarray
RESULTS = Path(__file__).parent / "results"
ALPHAS = 30


class Panel(NamedTuple):
    """A table with its groupings in the last columns, targets, and which rows are for training."""

    X: Array
    y: Array
    train: Array
    groups: list[int]


def standardized(X: Array, train: Array) -> Array:
    spread = X[train].std(axis=0)
    return (X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def school(folder: Path) -> Panel:
    data = np.load(folder / "school.npz")
    train = data["train_split"][0]
    return Panel(
        np.column_stack([standardized(data["X"][:, :27].astype(float), train), data["task"]]), data["y"] * 1.0, train, [27]
    )


def parkinsons(folder: Path) -> Panel:
    """Twenty rows of each patient for training."""
    data = np.load(folder / "parkinsons.npz")
    rng, task = np.random.default_rng(0), data["task"].astype(int)
    train = np.zeros(len(task), bool)
    train[np.concatenate([rng.choice(np.flatnonzero(task == t), 20, replace=False) for t in np.unique(task)])] = True
    return Panel(np.column_stack([standardized(data["X"], train), task]), data["Y"][:, 1], train, [data["X"].shape[1]])


def au_imports(folder: Path) -> Panel:
    data = np.load(folder / "au_imports.npz")
    train = data["fold"] != 0
    return Panel(np.column_stack([standardized(data["X"], train), data["task"]]), data["y"], train, [data["X"].shape[1]])


def imdb(folder: Path) -> Panel:
    """Two crossed groupings."""
    data = np.load(folder / "imdb.npz")
    train = data["fold"] != 0
    inputs = standardized(np.hstack([data["X"], data["words"]]).astype(float), train)
    d = inputs.shape[1]
    return Panel(np.column_stack([inputs, data["director"], data["type"]]), data["y"].astype(float), train, [d, d + 1])


PANELS = {each.__name__: each for each in (school, parkinsons, au_imports, imdb)}


def settings(panel: Panel, structure: str) -> dict[str, Any]:
    """One grouping is ``common=True``; two are terms with an intercept for each level."""
    if len(panel.groups) == 1:
        return {"common": True, "task_column": panel.groups[0], "structure": structure}
    return {"terms": [Term("linear"), *(Term("constant", by=j) for j in panel.groups)]}


def by_likelihood(panel: Panel) -> MultiTaskRegressor:
    """A fit at the variances that maximise the restricted likelihood of its own problem."""
    given = settings(panel, "independent")
    terms = [Term("linear"), Term("linear", by=panel.groups[0]), *(Term("constant", by=j) for j in panel.groups)]
    terms = terms if "common" in given else given["terms"]
    X, y = panel.X[panel.train], panel.y[panel.train]
    data = prepared_sum(MultiTaskRegressor(terms=terms), X, y, None)
    effects = [
        RandomEffects(
            term.data.phi,
            np.zeros(len(y), int) if term.data.codes is None else np.asarray(term.data.codes),
            term.data.n_levels,
            (CovarianceShape(term.data.r, "scale"),),
        )
        for term in data.posed
    ]
    by_grouping = {id(each): each for each in effects}
    if len(panel.groups) == 1:  # slopes and intercepts of the same levels are one block
        slopes, constant = effects[1], effects[2]
        both = RandomEffects(
            np.hstack([slopes.phi, constant.phi]), slopes.codes, slopes.n_levels, (slopes.shapes[0], constant.shapes[0])
        )
        by_grouping = {0: effects[0], 1: both}
    found = variance_components(np.ones((len(y), 1)), y, np.ones(len(y)), list(by_grouping.values()))
    D = [np.diag(C) for C in found.covariances]
    sizes = [D[0][0], D[1][0], D[1][-1]] if len(panel.groups) == 1 else [each[0] for each in D]
    alpha = found.sigma2 / (len(y) * sizes[1])
    weighted = [Term(**{**term.get_params(), "weight": float(s / sizes[1])}) for term, s in zip(terms, sizes, strict=True)]
    return MultiTaskRegressor(terms=weighted, alpha=float(alpha)).fit(X, y)


def methods(panel: Panel) -> dict[str, Any]:
    X, y = panel.X[panel.train], panel.y[panel.train]
    independent = settings(panel, "independent")
    ones = [1.0] * 3
    found = {
        "alpha": lambda: MultiTaskRegressorCV(alphas=ALPHAS, weights=ones, **independent).fit(X, y),
        "alpha and weights": lambda: MultiTaskRegressorCV(alphas=ALPHAS, **independent).fit(X, y),
        "restricted likelihood": lambda: by_likelihood(panel),
    }
    if len(panel.groups) == 1:
        found["own trace"] = lambda: MultiTaskRegressorCV(alphas=ALPHAS, **settings(panel, "trace")).fit(X, y)
        found["default"] = lambda: MultiTaskRegressorCV(task_column=panel.groups[0]).fit(X, y)
    return found


def measure(name: str, panel: Panel) -> list[dict[str, Any]]:
    rows = []
    for method, fit in methods(panel).items():
        began = time.process_time()
        model = fit()
        seconds = time.process_time() - began
        error = float(np.mean((model.predict(panel.X[~panel.train]) - panel.y[~panel.train]) ** 2))
        tried = len(model.cv_results_["params"]) if hasattr(model, "cv_results_") else 1
        rows.append({"data": name, "method": method, "error": error, "seconds": seconds, "settings": tried})
        rows[-1]["chosen"] = getattr(model, "selection_", "")
        print(f"{name:12s} {method:22s} error {error:8.4f}   {seconds:7.1f} s   {tried} settings", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--only", nargs="+", choices=list(PANELS), default=list(PANELS))
    options = parser.parse_args()
    rows = []
    for name in options.only:
        if (options.data / f"{name}.npz").exists():
            rows += measure(name, PANELS[name](options.data))
    table = ["| data | method | mean squared error, held out | CPU s | settings |", "|---|---|---|---|---|"]
    table += [f"| {r['data']} | {r['method']} | {r['error']:.4f} | {r['seconds']:.1f} | {r['settings']} |" for r in rows]
    RESULTS.mkdir(exist_ok=True)
    head = ["# Alpha and the weights of terms", "", "    python benchmarks/weights.py", ""]
    (RESULTS / "weights.md").write_text("\n".join([*head, *table, ""]))
    (RESULTS / "weights.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
