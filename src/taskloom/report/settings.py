"""Code, parameters and versions that fit the same model again."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from .. import losses, solvers, structures
from .._component import Component
from ..estimators.inspection.model_facts import one_target
from ..estimators.terms.term import Term
from .facts import Facts


def reproduce(facts: Facts, preprocessor: Any = None) -> str:
    """Code that fits the model again, and for a search, code that fits its result without the search."""
    model = facts.model
    changed = changed_parameters(model)
    parts = [_code(type(model).__name__, changed, _fit(model))]
    if hasattr(model, "alpha_"):
        plain, chosen = type(model)._plain_class, model.best_params_
        allowed = plain._get_param_names()
        shared = {name: value for name, value in changed.items() if name in allowed and name not in chosen}
        settings = {**chosen, **shared}
        parts.append("# the chosen model, without the search\n" + _code(plain.__name__, settings, _fit(model)))
    body = "\n\n".join(parts)
    names = sorted({type(model).__name__, getattr(type(model), "_plain_class", type(model)).__name__})
    if "Term(" in body:
        names.append(Term.__name__)
    if preprocessor is not None:
        names.append(type(preprocessor).__name__)
        body = f"X = {_value(preprocessor)}.fit_transform(X)  # encode the columns of the table\n\n{body}"
    imports = [f"from taskloom import {', '.join(names)}"]
    used = sorted({type(value).__name__ for value in _components(facts)})
    for module in (losses, solvers, structures):
        names = [name for name in used if name in module.__all__ and f"{name}(" in body]
        if names:
            imports.append(f"from {module.__name__} import {', '.join(names)}")
    return "\n".join(imports) + "\n\n" + body


def parameters(model: Any) -> list[tuple[str, str, bool]]:
    """Every parameter, its value as code, and whether it differs from the default."""
    changed = changed_parameters(model)
    return [(name, _value(value), name in changed) for name, value in model.get_params(deep=False).items()]


def changed_parameters(model: Any) -> dict[str, Any]:
    """The parameters that differ from their defaults."""
    defaults = {name: p.default for name, p in inspect.signature(type(model).__init__).parameters.items()}
    given = model.get_params(deep=False)
    return {name: value for name, value in given.items() if repr(value) != repr(defaults.get(name))}


def _code(name: str, settings: dict[str, Any], fit: str) -> str:
    lines = [f"    {key}={_value(value)}," for key, value in settings.items()]
    made = f"model = {name}(\n" + "\n".join(lines) + "\n)" if lines else f"model = {name}()"
    return f"{made}\n{fit}"


def _fit(model: Any) -> str:
    if one_target(model):
        return "model.fit(X, y)  # one row per sample; y holds its class"
    if model._state.fitted_terms is not None:
        return "model.fit(X, y)  # one row per observation; groupings are columns of X"
    if model.task_column is not None:
        return "model.fit(X, y)  # one row per observation; the task is in the task column of X"
    return "model.fit(X, y)  # one row per sample" + (", one column of y per task" if len(model.tasks_) > 1 else "")


def _value(value: Any) -> str:
    """A value as code; large arrays are only named."""
    if isinstance(value, Term):
        return _term(value)
    if isinstance(value, list | tuple) and value and all(isinstance(each, Term) for each in value):
        return "[\n" + "".join(f"        {_term(each)},\n" for each in value) + "    ]"
    if isinstance(value, float) and value == np.inf:
        return 'float("inf")'
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.size <= 50 else f"<array of shape {value.shape}>"
    if isinstance(value, np.generic):
        value = value.item()
    text = value if isinstance(value, str) and value.startswith("<array") else repr(value)
    return text if len(text) <= 400 else f"{text[:397]}..."


def _term(term: Term) -> str:
    given = {name: value for name, value in term.get_params().items() if name != "kernel"}
    changed = [f"{name}={_value(value)}" for name, value in given.items() if repr(value) != repr(getattr(Term, name))]
    return f"Term({', '.join([_value(term.kernel), *changed])})"


def _components(facts: Facts) -> list[Any]:
    """The losses, structures and solvers among the settings."""
    found = list(facts.structures)
    for value in facts.model.get_params(deep=False).values():
        several = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        found.extend(one for one in several if isinstance(one, Component) or type(one).__module__.startswith("taskloom."))
    return found
