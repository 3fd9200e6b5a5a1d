"""Fits with ``terms=`` and ``common=`` on many groups: CPU seconds, one thread, beside a grouped sum over the same rows.

    python benchmarks/groups.py [--only a b c d e f] [--imdb imdb.npz] [--repeats 3] [--quick]

a: 125 066 levels with intercept and slope, 500 000 rows, an unpenalised common slope; every structure, ``terms=`` and
   ``common=``. Beside them, where they are installed, twelve lines of EM in NumPy, statsmodels and lme4.
b: 2000 levels of 10 rows, 20 inputs, common and own linear functions, to gaps of 1e-4 and 1e-6.
c: 5000 levels of 30 rows, 50 inputs, a common Gaussian kernel with 400 landmarks, own linear functions.
d: the films of ``--imdb`` (two crossed groupings, 38 190 directors, 1712 types; words of the plot).
e: 20 000 levels of 4 rows under other losses.
f: one more strength and one more set of weights on the data of a, as a search asks for them.

The grouped sums are ``np.bincount(codes, weights=y)`` with codes at hand, and ``table.groupby("g").sum()`` of pandas from
integer and from text labels. Every case runs in a process of its own. Writes benchmarks/results/groups.json and groups.md;
``--quick`` is a tenth of the size and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from output import RESULTS, cpu, table

Row = dict[str, Any]
LEARNED = ("trace", "frobenius", "unit_trace", "log_det")


# --- data ----------------------------------------------------------------------------------------------------------------


def slopes(scale: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    """Every level has an intercept and a slope; the rows are in random order."""
    import pandas as pd

    levels, n = int(125_066 * scale), int(500_000 * scale)
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.concatenate([np.arange(levels), rng.integers(0, levels, n - levels)]))
    x, own = rng.normal(size=n), rng.multivariate_normal([0, 0], [[1, 0.3], [0.3, 0.5]], size=levels)
    return pd.DataFrame({"x": x, "g": g}), 1 + 0.5 * x + own[g, 0] + own[g, 1] * x + rng.normal(size=n)


def many_inputs(levels: int, rows: int, inputs: int, seed: int = 0) -> tuple[Any, Any]:
    """Own functions near a subspace of three directions, own intercepts, a common function."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    g, x = rng.permutation(np.repeat(np.arange(levels), rows)), rng.normal(size=(levels * rows, inputs))
    own = 0.3 * rng.normal(size=(levels, 3)) @ rng.normal(size=(3, inputs))
    y = x @ rng.normal(size=inputs) + np.einsum("ij,ij->i", x, own[g]) + rng.normal(size=levels)[g] + rng.normal(size=len(g))
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(inputs)]).assign(g=g), y


# --- fits ----------------------------------------------------------------------------------------------------------------


def fit(what: str, model: Any, X: Any, y: Any, repeats: int = 1) -> Row:
    seconds = min(cpu(lambda: model.fit(X, y))[0] for _ in range(repeats))
    found = model.certificate_
    return {"fit": what, "seconds": seconds, "iterations": model.n_iter_, "gap": found.relative_gap, "status": found.status}


def grouped_sums(X: Any, y: Any) -> Iterator[Row]:
    codes, whole = X.g.to_numpy(), X.assign(y=y)
    text = whole.assign(g=whole.g.astype(str).astype(object))
    sums: dict[str, Callable[[], Any]] = {
        "np.bincount(codes, weights=y)": lambda: np.bincount(codes, weights=y),
        'table.groupby("g").sum(), integers': lambda: whole.groupby("g").sum(),
        'table.groupby("g").sum(), text': lambda: text.groupby("g").sum(),
    }
    for what, work in sums.items():
        yield {"fit": what, "seconds": min(cpu(work)[0] for _ in range(5))}


def case_a(options: Any) -> Iterator[Row]:
    from taskloom import MultiTaskRegressor, Term

    X, y = slopes(0.1 if options.quick else 1.0)
    n = len(y)
    sums = list(grouped_sums(X, y))
    yield from sums

    def beside(row: Row) -> Row:
        return row | {"over bincount": row["seconds"] / sums[0]["seconds"], "over groupby": row["seconds"] / sums[1]["seconds"]}

    for structure in ("independent", *LEARNED):
        own = Term("linear", by="g", columns=["x"], intercept=True, structure=structure)
        model = MultiTaskRegressor(terms=[Term("linear", weight=np.inf), own], alpha=1 / n)
        yield beside(fit(f"terms=, {structure}", model, X, y, options.repeats))
    text = X.assign(g=X.g.astype(str).astype(object))
    yield beside(fit(f"terms=, {structure}, text labels", model, text, y, options.repeats))
    levels = X.g.nunique()
    for structure, strength in (("independent", levels), ("trace", levels**2)):  # the strengths of the same models
        model = MultiTaskRegressor(structure, common=True, task_column="g", task_weight="size", alpha=strength / n)
        yield beside(fit(f"common=True, {structure}", model, X, y, options.repeats))
    yield beside(em(X, y))
    if find_spec("statsmodels") and options.quick:
        yield beside(with_statsmodels(X, y))
    if shutil.which("Rscript"):
        yield beside(with_lme4(X, y))


def em(X: Any, y: Any, steps: int = 20) -> Row:
    """Maximum likelihood by EM, as one would write it by hand."""
    x, g, n = X.x.to_numpy(), X.g.to_numpy(), len(y)

    def work() -> None:
        levels = int(g.max()) + 1
        Z, F, beta = np.column_stack([np.ones(n), x]), np.column_stack([np.ones(n), x]), np.zeros(2)
        D, sigma2, u = np.eye(2), 1.0, np.zeros((levels, 2))
        G = np.stack([np.bincount(g, Z[:, j] * Z[:, k]) for j in range(2) for k in range(2)], 1).reshape(-1, 2, 2)
        for _ in range(steps):
            beta = np.linalg.solve(F.T @ F, F.T @ (y - np.einsum("ij,ij->i", Z, u[g])))
            rest = y - F @ beta
            V = np.linalg.inv(G / sigma2 + np.linalg.inv(D))
            u = np.einsum("ljk,lk->lj", V, np.stack([np.bincount(g, Z[:, j] * rest) for j in range(2)], 1)) / sigma2
            D = (u.T @ u + V.sum(axis=0)) / levels
            sigma2 = (np.sum((rest - np.einsum("ij,ij->i", Z, u[g])) ** 2) + np.einsum("ljk,lkj->", G, V)) / n

    return {"fit": f"EM in NumPy, {steps} steps", "seconds": cpu(work)[0]}


def with_statsmodels(X: Any, y: Any) -> Row:
    from statsmodels.regression.mixed_linear_model import MixedLM

    Z = np.column_stack([np.ones(len(y)), X.x])
    return {"fit": "statsmodels MixedLM", "seconds": cpu(lambda: MixedLM(y, Z, groups=X.g, exog_re=Z).fit())[0]}


def with_lme4(X: Any, y: Any) -> Row:
    """The seconds that R reports for ``lmer``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        X.assign(y=y).to_csv(path, index=False)
        script = (
            f'library(lme4); d <- read.csv("{path}"); d$g <- factor(d$g); '
            't <- system.time(lmer(y ~ x + (1 + x | g), d, control=lmerControl(calc.derivs=FALSE))); cat(t[["user.self"]])'
        )
        out = subprocess.run(["Rscript", "-e", script], check=True, capture_output=True, text=True).stdout
    return {"fit": "lme4 lmer", "seconds": float(out.split()[-1])}


def case_b(options: Any) -> Iterator[Row]:
    from taskloom import MultiTaskRegressor, Term

    X, y = many_inputs(200 if options.quick else 2000, 10, 20)
    names = [name for name in X if name != "g"]
    for structure in LEARNED:
        for strength in (1, 10):
            for tol in (1e-4, 1e-6):
                own = Term("linear", by="g", columns=names, intercept=True, structure=structure)
                terms = [Term("linear", columns=names), own]
                model = MultiTaskRegressor(terms=terms, alpha=strength / len(y), tol=tol, time_limit=60)
                yield fit(f"{structure}, alpha {strength}/n, tol {tol:g}", model, X, y)


def case_c(options: Any) -> Iterator[Row]:
    from taskloom import MultiTaskRegressor

    X, y = many_inputs(500 if options.quick else 5000, 30, 50)
    levels = X.g.nunique()
    for structure, strength in (("independent", levels), ("trace", levels**2)):
        model = MultiTaskRegressor(structure, common="rbf", task_column="g", task_weight="size", alpha=strength / len(y))
        yield fit(f'common="rbf", {structure}', model, X, y)


def case_d(options: Any) -> Iterator[Row]:
    import pandas as pd

    from taskloom import MultiTaskClassifier, MultiTaskRegressor, Term

    if options.imdb is None:
        return
    films = np.load(options.imdb, allow_pickle=False)
    X = np.hstack([films["X"].astype(float), films["words"].astype(float)])
    names = [f"x{j}" for j in range(X.shape[1])]
    D, y = pd.DataFrame(X, columns=names).assign(director=films["director"], type=films["type"]), films["y"].astype(float)
    D, y = (D[:9000], y[:9000]) if options.quick else (D, y)
    common, crossed = Term("linear", columns=names), [Term("constant", by="director"), Term("constant", by="type")]
    by_director = Term("linear", by="director", columns=names[:3], intercept=True, structure="trace")
    yield fit("crossed intercepts", MultiTaskRegressor(terms=[common, *crossed], alpha=1 / len(y)), D, y)
    yield fit("slopes by director, trace", MultiTaskRegressor(terms=[common, by_director, crossed[1]], alpha=1 / len(y)), D, y)
    label = np.where(y > np.median(y), "high", "low")
    yield fit("crossed intercepts, logistic", MultiTaskClassifier(terms=[common, *crossed], alpha=1 / len(y)), D, label)


def case_e(options: Any) -> Iterator[Row]:
    from taskloom import MultiTaskClassifier, MultiTaskRegressor, Term

    X, y = many_inputs(2000 if options.quick else 20_000, 4, 3)
    names = [name for name in X if name != "g"]
    for structure in ("independent", "trace"):
        own = Term("linear", by="g", columns=names, intercept=True, structure=structure)
        terms = [Term("linear", columns=names), own]
        for loss in ("squared", "huber", "absolute"):
            model = MultiTaskRegressor(terms=terms, loss=loss, alpha=1 / len(y), time_limit=120)
            yield fit(f"{loss}, {structure}", model, X, y)
        model = MultiTaskClassifier(terms=terms, alpha=1 / len(y), time_limit=120)
        yield fit(f"logistic, {structure}", model, X, np.where(y > np.median(y), "high", "low"))


def case_f(options: Any) -> Iterator[Row]:
    from taskloom import MultiTaskRegressor, Term, solve
    from taskloom.estimators.terms.fit_sum import prepared_sum

    X, y = slopes(0.1 if options.quick else 1.0)
    n = len(y)
    for structure in ("independent", "trace"):
        own = Term("linear", by="g", columns=["x"], intercept=True, structure=structure)
        model = MultiTaskRegressor(terms=[Term("linear"), own], alpha=1 / n)
        cold = fit(f"cold, {structure}", model, X, y, options.repeats)
        yield cold
        data = prepared_sum(model, X, y, None)
        first = solve(data.problem(1 / n))
        start = (first.W, first.b)
        tried: dict[str, Callable[[], Any]] = {
            "another alpha": lambda: solve(data.problem(2 / n)),  # noqa: B023
            "another alpha, warm": lambda: solve(data.problem(2 / n), start=start),  # noqa: B023
            "other weights": lambda: solve(data.with_weights(dict.fromkeys(data.weights, 0.5)).problem(1 / n)),  # noqa: B023
        }
        for what, work in tried.items():
            seconds, found = min((cpu(work) for _ in range(options.repeats)), key=lambda pair: pair[0])
            gap = found.certificate.relative_gap
            row = {"fit": f"{what}, {structure}", "seconds": seconds, "iterations": found.n_iter, "gap": gap}
            yield row | {"status": found.certificate.status, "over a cold fit": seconds / cold["seconds"]}


CASES = {"a": case_a, "b": case_b, "c": case_c, "d": case_d, "e": case_e, "f": case_f}


def in_a_process(case: str) -> list[Row]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--one", case, *sys.argv[1:]]
    out = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--imdb", help="the films, as an archive of NumPy")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        for row in CASES[options.one](options):
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
        return
    found: dict[str, list[Row]] = {}
    for case in options.only:
        found[case] = in_a_process(case)
        print(f"\n{case}\n\n{table(found[case])}", flush=True)
    if options.quick:
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, one BLAS thread, Python {platform.python_version()}"
    shown = " ".join("imdb.npz" if word == options.imdb else word for word in sys.argv[1:])
    text = "\n\n".join(f"## {case}\n\n{table(rows)}" for case, rows in found.items())
    load = f"Load of the machine at the end: {os.getloadavg()[0]:.1f}; CPU seconds of the process, never wall seconds."
    command = f"python benchmarks/groups.py {shown}".rstrip()
    (RESULTS / "groups.json").write_text(json.dumps({"command": command, "machine": machine, "cases": found}, indent=1))
    (RESULTS / "groups.md").write_text(f"# Many groups\n\n`{command}` on {machine}. {load}\n\n{text}\n")


if __name__ == "__main__":
    main()
