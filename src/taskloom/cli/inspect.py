"""``taskloom inspect``."""

from __future__ import annotations

import os
from typing import Any

import click

from . import options


@click.command()
@click.argument("model", type=click.Path())
@options.all_tasks
@options.printing
def inspect(model: str, all_tasks: bool, as_json: bool, quiet: bool) -> int:
    """Show the contents of the file MODEL: tasks or terms, settings, and the certificate with its duality gap."""
    from sklearn.pipeline import Pipeline

    from ..estimators import load
    from ..estimators.inspection.model_facts import chosen_alpha, chosen_structure
    from ..persistence import read
    from ..report.settings import changed_parameters
    from ..tables.preprocessing import TablePreprocessor
    from .output import Output, percent, plain

    output = Output(quiet, as_json)
    whole = load(model)
    metadata = read(model)[2]
    *before, estimator = [step for _, step in whole.steps] if isinstance(whole, Pipeline) else [whole]
    preprocessor = next((step for step in before if isinstance(step, TablePreprocessor)), None)
    tasks, certificate = estimator.tasks_.tolist(), estimator.certificate_
    changed = {name: repr(value) for name, value in changed_parameters(estimator).items()}
    shown = tasks if all_tasks else tasks[:20]
    more = f", ... {len(tasks) - 20} more (--all-tasks)" if len(shown) < len(tasks) else ""
    names = ", ".join(map(plain, shown)) + more
    summary = estimator.summary() if estimator._state.is_sum else None
    only_terms = estimator._state.fitted_terms is not None
    structure, alpha = None if only_terms else repr(chosen_structure(estimator)), chosen_alpha(estimator)
    classes: Any = getattr(estimator, "classes_", None)
    rows = [
        ("file", f"{model}, {os.path.getsize(model)} bytes, format {metadata['version']}, written by {metadata['written_by']}"),
        ("model", type(estimator).__name__),
        *([] if structure is None else [("tasks", f"{len(tasks)}: {names}"), ("structure", structure)]),
        ("alpha", f"{alpha:.6g}"),
        ("inputs", _inputs(before, preprocessor, estimator)),
        *([("classes", ", ".join(map(plain, classes)))] if hasattr(classes, "shape") else []),
        *([("selection", estimator.selection_)] if hasattr(estimator, "selection_") else []),
        ("settings", ", ".join(f"{name}={value}" for name, value in changed.items()) or "all defaults"),
        ("certificate", certificate.message),
        ("", f"primal {certificate.primal:.10g}, dual {certificate.dual:.10g}, duality gap {certificate.gap:.3g}"),
        ("", f"relative gap {certificate.relative_gap:.3g} ({percent(certificate.relative_gap)})"),
    ]
    width = max(len(name) for name, _ in rows) + 2
    for name, text in rows:
        output.say(f"{name:<{width}}{plain(text)}")
    if summary is not None:
        output.say("", *str(summary).splitlines())
    output.result(
        {
            "file": model,
            "format": metadata["version"],
            "written_by": metadata["written_by"],
            "model": type(estimator).__name__,
            "tasks": None if only_terms else tasks,
            "structure": structure,
            "alpha": alpha,
            "settings": changed,
            "selection": getattr(estimator, "selection_", None),
            "weights": getattr(estimator, "best_weights_", None),
            "certificate": vars(certificate),
            "numeric": None if preprocessor is None else list(preprocessor.numeric_),
            "categorical": None if preprocessor is None else list(preprocessor.levels_),
            "groupings": None if preprocessor is None else _groupings(preprocessor, estimator),
            "transfer": getattr(estimator, "transfer_", None),
            "summary": None if summary is None else _as_values(summary),
        }
    )
    return 0


def _as_values(summary: Any) -> dict[str, Any]:
    """The summary for programs; a weight of infinity is null, and its structure "unpenalised"."""
    columns = {"term": summary.terms, "structure": summary.structures, "weight": summary.weights, "levels": summary.levels}
    return {
        "terms": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "groups": summary.groups,
        "observations": summary.n_observations,
        "variance_components": [each._asdict() for each in summary.variance_components],
        "residual_variance": summary.residual_variance,
        "log_likelihood": summary.log_likelihood,
        "coefficients": [each._asdict() for each in summary.coefficients],
        "notes": summary.notes,
    }


def _groupings(preprocessor: Any, model: Any) -> list[str]:
    """The columns by which terms are grouped."""
    return [name for name in preprocessor.labels if name != model.task_column]


def _inputs(before: list[Any], preprocessor: Any, model: Any) -> str:
    if preprocessor is None:
        steps = ", ".join(type(step).__name__ for step in before) or "no preprocessing"
        return f"{model.n_features_in_ - (model.task_column is not None)} columns, {steps}"
    categorical = [f"{name} ({len(levels)} levels)" for name, levels in preprocessor.levels_.items()]
    columns = {"numeric": preprocessor.numeric_, "categorical": categorical, "grouped by": _groupings(preprocessor, model)}
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in columns.items() if names)
