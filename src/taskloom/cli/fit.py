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
    help="Candidate structures, parameters after a colon: trace, unit_trace, clusters:4, shared_mean:5, ... Default: "
    "trace,shared_mean; trace,independent with --common; trace with --by.",
)
@options.beside
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
    structure: tuple[str, ...] | None,
    common: Any,
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

    With --common and --by the model is a sum, whose weights are chosen with alpha: a common part, own parts of the tasks,
    intercepts of other groupings (--by region).
    """
    from sklearn.pipeline import Pipeline

    from ..estimators import save
    from ..persistence import check_apart, check_place
    from .fit_output import fit_result, say_chosen, say_comparison
    from .gains_table import Study, score_holdout
    from .output import Output, ended_well, percent, report_writer
    from .parts import Parts
    from .table_roles import read_data

    output = Output(quiet, as_json)
    parts = Parts.of(structure, common, given["by"], given)
    write_report = report_writer() if report is not None else None
    check_apart({"the model": save_to, "the report": report}, {"the table": given["table"]})
    for place in filter(None, (save_to, report)):
        check_place(place)
    of_table, settings = options.split(given)
    data = read_data(output, **of_table)
    parts.check_table(output, data)
    held_out = None if holdout is None else score_holdout(output, data, parts, settings, holdout)
    study = Study(output, data, settings, parts.plain)
    single, model = study.search_both(parts)
    compared = study.compare(single, model)
    if single is not None and hasattr(model, "transfer_"):  # models with terms have none
        known = {} if data.layout == "classes" else {"model": model.transfer_["model"]}
        model.transfer_ = compared.by_task | known
    say_chosen(output, model, study)
    say_comparison(output, held_out or compared, study, parts, holdout, all_tasks)
    if settings["fallback"]:
        output.say(f"tasks that keep their single-task model: {', '.join(map(str, model.fallback_tasks_)) or 'none'}")
    if save_to is not None:
        save(Pipeline([("table", study.preprocessor), ("model", model)]), save_to, training=False)
        output.say(f"model: {save_to}")
    if write_report is not None:
        title = f"taskloom fit {given['table']}"
        write_report(model, report, X=study.X, y=data.y, title=title, preprocessor=study.preprocessor)
        output.say(f"report: {report}")
    files = {"table": given["table"], "model": save_to, "report": report}
    output.result(fit_result(model, data, compared, held_out) | files)
    if not ended_well(model.certificate_):
        output.note(f"the fit is not proved to be within --tol; its duality gap is {percent(model.certificate_.relative_gap)}")
        return NOT_PROVED
    return 0
