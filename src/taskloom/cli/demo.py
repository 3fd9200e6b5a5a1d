"""``taskloom demo``."""

from __future__ import annotations

from typing import Any

import click

from . import NOT_PROVED, options

SETTINGS = {"alphas": 12, "loss": "squared", "cv": 5, "random_state": None, "n_jobs": 1}


@click.command()
@click.option(
    "--data",
    type=click.Choice(["shops", "digits"]),
    default="shops",
    help="Sixty simulated shops in four clusters, or scikit-learn's handwritten digits.",
)
@options.file("--report", default="taskloom-demo.html", help="Where to write the report (HTML).")
@click.option("--no-report", is_flag=True, help="Write no report.")
@options.file("--table", help="Only write the data as CSV, for taskloom fit.")
@options.all_tasks
@options.printing
def demo(data: str, report: str, no_report: bool, table: str | None, all_tasks: bool, as_json: bool, quiet: bool) -> int:
    """Compare single-task and multi-task learning on data that come with the package."""
    from ..structures import Independent, Trace, UnitTrace
    from .gains_table import Study, compare_tasks, variances
    from .output import Output, ended_well, number, percent, print_gains
    from .structure_names import written
    from .table_files import TableWriter

    output = Output(quiet, as_json)
    title, train, test, cluster = _shops() if data == "shops" else _digits()
    if table is not None:
        with TableWriter(table) as writer:
            writer.write(train.inputs.to_dict("list") | {"sales" if data == "shops" else "digit": train.y.tolist()})
        output.say(f"{len(train.y)} rows: {table}")
        return 0
    output.say(title, "")
    study = Study(output, train, SETTINGS)
    models = [study.search([each], written(each)) for each in (Independent(), Trace(), UnitTrace())]
    score, rows, entries = train.score, [], []
    for model in models:
        predicted = study.predict(model, test)
        new = float(compare_tasks(test, (predicted, predicted), variances(test))["alone"].mean())
        name = "single-task" if model is models[0] else f"multi-task, {written(model.best_structure_)}"
        gap = percent(model.certificate_.relative_gap)
        rows.append((name, f"{model.alpha_:.3g}", number(model.best_score_), number(new), gap))
        entries.append(
            {
                "structure": repr(model.best_structure_),
                "alpha": model.alpha_,
                "cross_validated": model.best_score_,
                "new_rows": new,
                "certificate": vars(model.certificate_),
            }
        )
    output.table(("model", "alpha", f"{score}, CV", f"{score}, test", "duality gap"), rows)
    output.say("")
    model = max(models[1:], key=lambda each: each.best_score_)
    transfer = study.compare(models[0], model).by_task
    model.transfer_ = transfer | {"model": ["together"] * len(train.tasks)}
    output.say(f"Gain of each task under {written(model.best_structure_)}: cross-validated {score}, 5 folds")
    print_gains(output, transfer, all_tasks, score)
    output.say("")
    found = _closest_pairs(output, model) if cluster is None else _compare_clusters(output, model, cluster)
    output.say(model.certificate_.message)
    place = None if no_report else _report(output, model, report, study, title)
    result = {"data": data, "score": score, "models": entries, "transfer": transfer, "report": place}
    output.result(result | found)
    return 0 if all(ended_well(each.certificate_) for each in models) else NOT_PROVED


def _report(output: Any, model: Any, path: str, study: Any, title: str) -> str | None:
    """Write the report; where a package is missing, say so and go on."""
    from .output import report_writer

    try:
        report_writer()(model, path, X=study.X, y=study.data.y, title=title)
    except ImportError as error:
        output.say(f"no report: {error}")
        return None
    output.say(f"report: {path}")
    return path


def _closest_pairs(output: Any, model: Any) -> dict[str, Any]:
    pairs = model.task_graph(0.0)[:3]
    output.say("Most correlated tasks in the learned structure: " + ", ".join(f"{a} and {b} ({c:+.2f})" for a, b, c in pairs))
    return {"pairs": pairs}


def _compare_clusters(output: Any, model: Any, cluster: Any) -> dict[str, Any]:
    """The learned clusters of tasks against those of the simulation."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    labels = range(int(cluster.max()) + 1)
    learned, correlation = model.task_clusters(len(labels)), model.task_correlation()
    count = np.array([[int(((learned == g) & (cluster == k)).sum()) for k in labels] for g in labels])
    rows, columns = linear_sum_assignment(-count)
    right = int(count[rows, columns].sum())
    same, other = cluster[:, None] == cluster[None, :], ~np.eye(cluster.size, dtype=bool)
    within, between = float(correlation[same & other].mean()), float(correlation[~same].mean())
    output.say("Learned clusters against the simulated ground truth, which the fit does not see:")
    output.table(
        ("", *(f"true cluster {k + 1}" for k in columns)),
        [(f"learned cluster {g + 1}", *(str(count[g, k]) for k in columns)) for g in rows],
    )
    output.say(
        f"{right} of {cluster.size} tasks are in the right cluster; mean correlation {within:.2f} within clusters, "
        f"{between:.2f} between them"
    )
    return {"in_the_right_group": right, "correlation_within": within, "correlation_between": between}


def _shops() -> tuple[str, Any, Any, Any]:
    """Title, training rows, test rows, true clusters: sixty shops, eleven weeks each."""
    import numpy as np
    import pandas  # type: ignore[import-untyped]

    from .. import datasets
    from .table_roles import TableRoles

    bunch = datasets.load_shops()
    names = np.array(bunch.task_names)

    def rows(X: Any, y: Any, task: Any) -> TableRoles:
        frame = pandas.DataFrame(X, columns=bunch.feature_names).assign(shop=names[task])
        return TableRoles(frame, y, False, "shop", (), list(names), np.arange(y.size), task, "long")

    title = "Sixty simulated shops in four clusters: eleven weeks of sales each for training, forty for testing, six inputs"
    train, test = rows(bunch.X, bunch.y, bunch.task), rows(bunch.X_test, bunch.y_test, bunch.task_test)
    return title, train, test, bunch.kind


def _digits() -> tuple[str, Any, Any, Any]:
    """Title, training rows, test rows: five training images of each digit; each digit against the rest is a task."""
    import numpy as np
    import pandas
    from sklearn.datasets import load_digits

    from .table_roles import TableRoles

    X, y = load_digits(return_X_y=True)
    names = [f"pixel {j // 8} {j % 8}" for j in range(X.shape[1])]
    rng = np.random.default_rng(0)  # neighbours in the file were written by one person
    train = np.sort(np.concatenate([rng.choice(np.flatnonzero(y == k), 5, replace=False) for k in range(10)]))
    test = np.setdiff1d(np.arange(y.size), train)

    def rows(which: Any) -> TableRoles:
        frame, labels = pandas.DataFrame(X[which], columns=names), y[which].astype(str)
        tasks = [str(k) for k in range(10)]
        return TableRoles(frame, labels, True, None, (), tasks, np.arange(which.size), y[which], "classes")

    title = f"Handwritten digits: {train.size} training images, {test.size} test images; each digit against the rest is a task"
    return title, rows(train), rows(test), None
