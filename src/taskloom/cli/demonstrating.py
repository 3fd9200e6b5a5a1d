"""What ``taskloom demo`` does once the heavy libraries are here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from .. import datasets
from ..structures import Independent, Structure, Trace, UnitTrace
from . import NOT_PROVED
from .gains_table import Settings, compare_tasks, folds_of, out_of_fold, pick, search, variances
from .output import Output, ended_well, ledger, number, percent
from .reports import report_writer
from .structure_names import written
from .table_files import TableWriter
from .table_roles import TableRoles

Array = np.ndarray
STRUCTURES: list[Structure] = [Independent(), Trace(), UnitTrace()]


class Demonstration:
    """TableRoles to learn from, more of the same to test on, and what is known about them."""

    def __init__(self, title: str, train: TableRoles, test: TableRoles, kind: Array | None):
        self.title, self.train, self.test, self.kind = title, train, test, kind


def run_demo(name: str, report: str | None, table: str | None, all_tasks: bool, as_json: bool, quiet: bool) -> int:
    output = Output(quiet, as_json)
    demonstration = shops() if name == "shops" else digits()
    train = demonstration.train
    if table is not None:
        with TableWriter(table) as writer:
            target = "sales" if name == "shops" else "digit"
            writer.write(
                {column: train.inputs[column].tolist() for column in train.inputs.columns} | {target: train.y.tolist()}
            )
        output.say(f"{len(train.y)} rows: {table}")
        return 0
    output.say(demonstration.title)
    output.say()
    preprocessor = train.preprocessor().fit(train.inputs)
    X, X_test = preprocessor.transform(train.inputs), preprocessor.transform(demonstration.test.inputs)
    settings = Settings(alphas=12, loss="squared")
    folds = folds_of(train, settings.cv, settings.seed)
    models = [search(output, train, X, [structure], settings, folds, written(structure)) for structure in STRUCTURES]
    tests = [pick(model.predict(X_test), demonstration.test.row, demonstration.test.task) for model in models]
    score = "accuracy" if train.labelled else "R2"
    spread = variances(demonstration.test)
    new = [float(np.mean(compare_tasks(demonstration.test, (guess, guess), spread)["alone"])) for guess in tests]
    output.table(
        ("structure", "alpha", f"{score}, folds", f"{score}, new", "proved within"),
        [
            (
                "each on its own" if k == 0 else f"together, {written(model.best_structure_)}",
                f"{model.alpha_:.3g}",
                number(model.best_score_),
                number(new[k]),
                percent(model.certificate_.relative_gap),
            )
            for k, model in enumerate(models)
        ],
    )
    output.say()
    best = max((1, 2), key=lambda k: models[k].best_score_)
    model = models[best]
    guesses = out_of_fold(output, models[0], train, X, folds), out_of_fold(output, model, train, X, folds)
    transfer = compare_tasks(train, guesses, variances(train))
    model.transfer_ = transfer | {"model": np.full(len(train.tasks), "together", dtype=object)}
    output.say(f"What each task gains under {written(model.best_structure_)}: {score} of rows left out, pooled over 5 folds")
    ledger(output, transfer, all_tasks, score)
    output.say()
    found = _found(output, model, demonstration.kind)
    output.say(model.certificate_.message)
    page = None if report is None else _report(output, model, report, X, train.y, demonstration.title)
    output.result(
        {
            "data": name,
            "score": score,
            "models": [
                {
                    "structure": repr(m.best_structure_),
                    "alpha": m.alpha_,
                    "cross_validated": m.best_score_,
                    "new_rows": n,
                    "certificate": vars(m.certificate_),
                }
                for m, n in zip(models, new, strict=True)
            ],
            "transfer": transfer,
            "report": page,
            **found,
        }
    )
    return 0 if all(ended_well(model.certificate_) for model in models) else NOT_PROVED


def _report(output: Output, model: Any, path: str, X: Any, y: Any, title: str) -> str | None:
    """The demonstration goes on without a report; it says why."""
    try:
        report_writer()(model, path, X=X, y=y, title=title)
    except ImportError as error:
        output.say(f"no report: {error}")
        return None
    output.say(f"report: {path}")
    return path


def _found(output: Output, model: Any, kind: Array | None) -> dict[str, Any]:
    """The learned structure against the planted one; without one, the closest pairs."""
    if kind is None:
        pairs = model.task_graph(0.0)[:3]
        output.say("Closest pairs in the learned structure: " + ", ".join(f"{a} and {b} ({c:+.2f})" for a, b, c in pairs))
        return {"pairs": pairs}
    n_kinds = int(kind.max()) + 1
    group, relation = model.task_clusters(n_kinds), model.task_correlation()
    count = np.array([[int(((group == g) & (kind == k)).sum()) for k in range(n_kinds)] for g in range(n_kinds)])
    rows, columns = linear_sum_assignment(-count)
    right = int(count[rows, columns].sum())
    alike, other = kind[:, None] == kind[None, :], ~np.eye(kind.size, dtype=bool)
    within, between = float(relation[alike & other].mean()), float(relation[~alike].mean())
    output.say("The learned structure against the planted one (which the fit was never told):")
    output.table(
        ("", *(f"planted kind {k + 1}" for k in columns)),
        [(f"learned group {g + 1}", *(str(count[g, k]) for k in columns)) for g in rows],
    )
    output.say(
        f"{right} of {kind.size} are in the group of their kind; mean correlation {within:.2f} in a kind, {between:.2f} across"
    )
    return {"in_the_right_group": right, "correlation_within": within, "correlation_between": between}


def shops() -> Demonstration:
    """Sixty shops, eleven weeks each, of four hidden kinds."""
    pandas = import_module("pandas")
    bunch = datasets.load_shops()
    names = np.array(bunch.task_names)

    def part(X: Array, y: Array, task: Array) -> TableRoles:
        frame = pandas.DataFrame(X, columns=bunch.feature_names).assign(shop=names[task])
        return TableRoles(frame, y, False, "shop", (), list(names), np.arange(y.size), task, "long")

    return Demonstration(
        "Sixty simulated shops of four hidden kinds: eleven weeks of sales each to learn from, forty to test on, six inputs",
        part(bunch.X, bunch.y, bunch.task),
        part(bunch.X_test, bunch.y_test, bunch.task_test),
        bunch.kind,
    )


def digits(per_class: int = 5) -> Demonstration:
    """Five images of each digit to learn from, the others to test on; every digit against the rest is a task."""
    pandas = import_module("pandas")
    X, y = import_module("sklearn.datasets").load_digits(return_X_y=True, as_frame=False)
    names = [f"pixel {j // 8} {j % 8}" for j in range(X.shape[1])]
    draw = np.random.default_rng(0)  # neighbours in the file were written by one hand
    first = np.sort(np.concatenate([draw.choice(np.flatnonzero(y == k), per_class, replace=False) for k in range(10)]))
    rest = np.setdiff1d(np.arange(y.size), first)

    def part(rows: Array) -> TableRoles:
        frame = pandas.DataFrame(X[rows], columns=names)
        labels = y[rows].astype(str)
        return TableRoles(frame, labels, True, None, (), [str(k) for k in range(10)], np.arange(rows.size), y[rows], "classes")

    return Demonstration(
        f"Handwritten digits: {first.size} images to learn from, {rest.size} to test on; each digit against the rest is a task",
        part(first),
        part(rest),
        None,
    )
