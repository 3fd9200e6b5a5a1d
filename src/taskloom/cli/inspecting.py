"""What ``taskloom inspect`` does once the heavy libraries are here."""

from __future__ import annotations

import os
from typing import Any

from sklearn.pipeline import Pipeline

from ..estimators import load
from ..estimators.inspect_model import chosen_alpha, chosen_structure
from ..persistence import read
from ..tables.preprocessing import TablePreprocessor
from .output import Output, percent, plain


def run_inspect(path: str, all_tasks: bool, as_json: bool, quiet: bool) -> int:
    output = Output(quiet, as_json)
    whole = load(path)
    metadata = read(path)[2]
    *before, model = [step for _, step in whole.steps] if isinstance(whole, Pipeline) else [whole]
    preprocessor = next((step for step in before if isinstance(step, TablePreprocessor)), None)
    tasks, certificate = model.tasks_.tolist(), model.certificate_
    defaults = type(model)().get_params(deep=False)
    changed = {name: value for name, value in model.get_params(deep=False).items() if repr(value) != repr(defaults[name])}
    shown = tasks if all_tasks or len(tasks) <= 20 else tasks[:20]
    names = ", ".join(map(plain, shown)) + ("" if len(shown) == len(tasks) else f", ... {len(tasks) - 20} more (--all-tasks)")
    rows = [
        ("file", f"{path}, {os.path.getsize(path)} bytes, format {metadata['version']}, written by {metadata['written_by']}"),
        ("model", type(model).__name__),
        ("tasks", f"{len(tasks)}: {names}"),
        ("structure", repr(chosen_structure(model))),
        ("strength", f"alpha = {chosen_alpha(model):.6g}"),
        ("inputs", _inputs(before, preprocessor, model)),
        *([("classes", ", ".join(map(plain, model.classes_)))] if _one_set_of_classes(model) else []),
        ("settings", ", ".join(f"{name}={value!r}" for name, value in changed.items()) or "all defaults"),
        ("certificate", certificate.message),
        ("", f"primal {certificate.primal:.10g}, dual {certificate.dual:.10g}, gap {certificate.gap:.3g}"),
        ("", f"relative gap {certificate.relative_gap:.3g} ({percent(certificate.relative_gap)})"),
    ]
    width = max(len(name) for name, _ in rows) + 2
    for name, text in rows:
        output.say(f"{name:<{width}}{plain(text)}")
    output.result(
        {
            "file": path,
            "format": metadata["version"],
            "written_by": metadata["written_by"],
            "model": type(model).__name__,
            "tasks": tasks,
            "structure": repr(chosen_structure(model)),
            "alpha": chosen_alpha(model),
            "settings": {name: repr(value) for name, value in changed.items()},
            "certificate": vars(certificate),
            "numeric": None if preprocessor is None else list(preprocessor.numeric_),
            "categorical": None if preprocessor is None else list(preprocessor.levels_),
            "transfer": getattr(model, "transfer_", None),
        }
    )
    return 0


def _inputs(before: list[Any], preprocessor: TablePreprocessor | None, model: Any) -> str:
    if preprocessor is None:
        steps = ", ".join(type(step).__name__ for step in before) or "no preprocessing"
        return f"{model.n_features_in_ - (model.task_column is not None)} columns, {steps}"
    words = [f"{name} ({len(levels)} levels)" for name, levels in preprocessor.levels_.items()]
    parts = [*(["numbers: " + ", ".join(preprocessor.numeric_)] if preprocessor.numeric_ else [])]
    return "; ".join([*parts, *(["words: " + ", ".join(words)] if words else [])])


def _one_set_of_classes(model: Any) -> bool:
    return hasattr(model, "classes_") and hasattr(model.classes_, "shape")
