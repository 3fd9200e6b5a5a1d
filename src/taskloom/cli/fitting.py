"""What ``taskloom fit`` does once the heavy libraries are here."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from ..estimators import save
from ..persistence import check_apart, check_place
from . import NOT_PROVED
from .gains_table import Settings, alone_and_together, held_out
from .output import Output, ended_well, ledger, percent
from .reports import report_writer
from .structure_names import parse, written
from .table_roles import read_data

READING = ("table", "target", "task", "targets", "categorical", "drop", "classify", "delimiter", "encoding")
SETTINGS = ("kernel", "gamma", "loss", "alphas", "cv", "seed", "jobs", "tol", "max_iter")


def run_fit(
    structure: tuple[str, ...],
    fallback: bool,
    holdout: float | None,
    save_to: str | None,
    report: str | None,
    all_tasks: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    output = Output(quiet, as_json)
    candidates = [parse(text) for text in structure]
    write_report = report_writer() if report is not None else None
    check_apart({"the model": save_to, "the report": report}, {"the table": given["table"]})
    for place in (save_to, report):
        if place is not None:
            check_place(place)
    data = read_data(output, **{name: given[name] for name in READING})
    settings = Settings(**{name: given[name] for name in SETTINGS}, fallback=fallback)
    kept = None if holdout is None else held_out(output, data, candidates, settings, holdout)
    preprocessor, model, transfer = alone_and_together(output, data, candidates, settings)
    model.transfer_ = transfer | {"model": model.transfer_["model"]} if data.layout != "classes" else transfer
    score = ("recall" if data.layout == "classes" else "accuracy") if data.labelled else "R2"  # of the rows of a class
    words = f"{len(preprocessor.numeric_)} columns of numbers, {len(preprocessor.levels_)} of words"
    output.say(f"{written(model.best_structure_)} at alpha = {model.alpha_:.3g} ({words}; score: {score})")
    output.say(model.certificate_.message)
    output.say()
    if kept is None:
        output.say(
            f"{score} of rows left out, {settings.cv} folds (chosen on the same folds: a little flattered; see --holdout)"
        )
    else:
        output.say(f"{score} of {100 * holdout:.0f} % of the rows, which had no part in choosing anything")  # type: ignore[operator]
    ledger(output, transfer if kept is None else kept, all_tasks, score)
    if fallback:
        names = ", ".join(map(str, model.fallback_tasks_)) or "none"
        output.say(f"tasks that keep a model of their own: {names}")
    pipeline = Pipeline([("table", preprocessor), ("model", model)])
    if save_to is not None:
        save(pipeline, save_to, training=False)
        output.say(f"model: {save_to}")
    if write_report is not None:
        inputs, title = preprocessor.transform(data.inputs), f"taskloom fit {given['table']}"
        write_report(model, report, X=inputs, y=data.y, title=title, preprocessor=preprocessor)
        output.say(f"report: {report}")
    output.result(
        {
            "table": given["table"],
            "tasks": len(data.tasks),
            "observations": int(data.row.size),
            "score": score,
            "structure": repr(model.best_structure_),
            "alpha": model.alpha_,
            "certificate": vars(model.certificate_),
            "transfer": transfer,
            "held_out": kept,
            "model": save_to,
            "report": report,
        }
    )
    if not ended_well(model.certificate_):
        output.note(f"the fit is not proved to be within --tol; its gap is {percent(model.certificate_.relative_gap)}")
        return NOT_PROVED
    return 0
