"""``taskloom fit``."""

from __future__ import annotations

from typing import Any

import click

from . import NOT_PROVED, options


@click.command()
@options.data
@click.option(
    "--structure",
    type=options.Names(),
    default=("trace", "shared_mean"),
    show_default="trace,shared_mean",
    help="Candidate structures, parameters after a colon: trace, unit_trace, clusters:4, shared_mean:5, ...",
)
@options.model
@click.option(
    "--fallback", flag_value="single", help="Tasks that score worse in the multi-task model keep their single-task model."
)
@click.option("--holdout", type=click.FloatRange(0, 0.5, min_open=True), help="Score on this share of the rows, held out.")
@options.file("--save", "save_to", help="Write the model, with its preprocessing.")
@options.file("--report", help="Write a report (HTML).")
@options.all_tasks
@options.printing
def fit(
    structure: tuple[str, ...],
    holdout: float | None,
    save_to: str | None,
    report: str | None,
    all_tasks: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Fit a multi-task model to TABLE (CSV or Parquet), and compare it with single-task models.

    Long tables have one row per observation: --target score --task school. Wide tables have one column per task:
    --targets a,b,c, with empty cells where a task was not observed. All other columns are inputs.
    """
    from sklearn.pipeline import Pipeline

    from ..estimators import save
    from ..persistence import check_apart, check_place
    from .gains_table import Study, score_holdout
    from .output import Output, ended_well, percent, print_gains, report_writer
    from .structure_names import parse, written
    from .table_roles import read_data

    output = Output(quiet, as_json)
    candidates = [parse(text) for text in structure]
    write_report = report_writer() if report is not None else None
    check_apart({"the model": save_to, "the report": report}, {"the table": given["table"]})
    for place in filter(None, (save_to, report)):
        check_place(place)
    of_table, settings = options.split(given)
    data = read_data(output, **of_table)
    held_out = None if holdout is None else score_holdout(output, data, candidates, settings, holdout)
    study = Study(output, data, settings)
    single, model = study.search_both(candidates)
    transfer = study.compare(single, model)
    model.transfer_ = transfer | {"model": model.transfer_["model"]} if data.layout != "classes" else transfer
    score = "recall" if data.layout == "classes" else data.score  # of the rows of a class
    columns = f"{len(study.preprocessor.numeric_)} numeric and {len(study.preprocessor.levels_)} categorical columns"
    output.say(f"{written(model.best_structure_)} at alpha = {model.alpha_:.3g} ({columns}; score: {score})")
    output.say(model.certificate_.message, "")
    biased = "optimistically biased: alpha was chosen on the same folds; see --holdout"
    output.say(
        f"{score} on {100 * holdout:.0f} % of the rows, held out from all model selection"
        if holdout is not None
        else f"Cross-validated {score}, {settings['cv']} folds ({biased})"
    )
    print_gains(output, held_out or transfer, all_tasks, score)
    if settings["fallback"]:
        output.say(f"tasks that keep their single-task model: {', '.join(map(str, model.fallback_tasks_)) or 'none'}")
    if save_to is not None:
        save(Pipeline([("table", study.preprocessor), ("model", model)]), save_to, training=False)
        output.say(f"model: {save_to}")
    if write_report is not None:
        title = f"taskloom fit {given['table']}"
        write_report(model, report, X=study.X, y=data.y, title=title, preprocessor=study.preprocessor)
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
            "held_out": held_out,
            "model": save_to,
            "report": report,
        }
    )
    if not ended_well(model.certificate_):
        output.note(f"the fit is not proved to be within --tol; its duality gap is {percent(model.certificate_.relative_gap)}")
        return NOT_PROVED
    return 0
