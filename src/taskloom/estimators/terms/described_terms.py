"""The terms of a fitted model in words: formula-like text, names of features and levels, and weights in the units of inputs.

``terms=``, ``common=`` and plain estimators (one own term) look alike to frames and summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._component import snake_case
from ...structures import as_structure
from ...tables.layout import shown
from ..fitted import FittedState
from ..validation import InputColumns
from .fitted_terms import FittedTerm
from .term_features import InputMap

Array = np.ndarray
SHOWN_INPUTS = 6
LONGEST = 30  # text of a structure
INTERCEPT = "intercept"


@dataclass(frozen=True, eq=False)
class DescribedTerm:
    """One term: what it is called, its grouping, and the names of its features."""

    text: str
    by: str | None
    levels: Array | None
    features: list[str] | None  # of linear and constant terms; the intercept is the last
    structure: str
    weight: float = 1.0
    weights: Array | None = None  # r x p
    inputs: InputMap | None = None
    described: bool = False

    @property
    def free(self) -> bool:
        return self.weight == np.inf


def input_names(state: InputColumns) -> list[str]:
    """The names of all columns of X; ``x0``, ``x1``, ... where they have none."""
    names = state.feature_names_in_
    return [f"x{j}" for j in range(state.n_features_in_)] if names is None else [str(name) for name in names]


def names_of_inputs(model: Any, state: FittedState) -> list[str]:
    """The names of the columns of X without the task column."""
    names, task_column = input_names(state), model.task_column
    if task_column is not None:
        del names[names.index(task_column) if isinstance(task_column, str) else int(task_column)]
    return names


def grouping_of(model: Any, state: FittedState) -> str:
    """What the tasks of a plain model, or of a common part, are called."""
    column = model.task_column
    return "task" if column is None else str(column) if isinstance(column, str) else input_names(state)[int(column)]


def described_terms(model: Any, state: FittedState) -> list[DescribedTerm]:
    """All terms of a fitted model; the text of each is unique."""
    if state.fitted_terms is not None:
        return described(state.fitted_terms, state)
    return _with_unique_texts(_of_tasks(model, state))


def described(terms: Sequence[FittedTerm], columns: InputColumns) -> list[DescribedTerm]:
    """Terms of ``terms=``, before or after a fit; the text of each is unique."""
    return _with_unique_texts([_of_term(term, input_names(columns)) for term in terms])


def _with_unique_texts(terms: list[DescribedTerm]) -> list[DescribedTerm]:
    seen: dict[str, int] = {}
    unique = []
    for term in terms:
        seen[term.text] = count = seen.get(term.text, 0) + 1
        unique.append(term if count == 1 else DescribedTerm(**{**vars(term), "text": f"{term.text} #{count}"}))
    return unique


def _of_term(fitted: FittedTerm, names: list[str]) -> DescribedTerm:
    term, columns = fitted.term, [names[j] for j in fitted.inputs.columns]
    by = None if fitted.by is None else names[fitted.by]
    text = _text(term.kernel, columns, bool(fitted.inputs.constant), by)
    if fitted.descriptors is not None:
        text = f"{text[:-1]} described by {_listed([names[j] for j in fitted.descriptors.columns], ', ')})"
    return DescribedTerm(
        text,
        by,
        fitted.levels,
        _features(fitted.inputs, columns),
        "unpenalised" if term.free else _name("independent" if term.structure is None else term.structure),
        float(term.weight),
        fitted.weights,
        fitted.inputs,
        fitted.descriptors is not None,
    )


def _of_tasks(model: Any, state: FittedState) -> list[DescribedTerm]:
    """The own term of a plain model, after the common one where there is one."""
    names, by, part = names_of_inputs(model, state), grouping_of(model, state), state.common_part
    structure = _name(getattr(model, "best_structure_", None) or model.structure)
    kernel = state.kernel.kernel
    if part is None:
        text = _text(kernel, names, model.fit_intercept, by)
        features = None if state.coef_ is None else [*names, INTERCEPT]
        return [DescribedTerm(text, by, state.tasks_, features, structure)]
    common, free = part.parameters["common"].kernel, part.weight == np.inf
    own = DescribedTerm(
        _text(kernel, names, part.own.constant, by), by, state.tasks_, _features(part.own, names), structure, 1.0,
        part.own_weights, part.own,
    )  # fmt: skip
    W = part.common_weights[:, None]
    shared = DescribedTerm(
        _text(common, names, False, None), None, None, _features(part.common, names),
        "unpenalised" if free else "independent", float(part.weight), W, part.common,
    )  # fmt: skip
    return [shared, own]


def _features(inputs: InputMap, columns: list[str]) -> list[str] | None:
    if inputs.kernel is not None:
        return None
    return [*(columns if inputs.mean is not None else []), *([INTERCEPT] if inputs.constant else [])]


def _name(structure: Any) -> str:
    if isinstance(structure, (list, tuple)):
        return ", ".join(map(_name, structure))
    return in_words(as_structure(structure))


def in_words(component: Any) -> str:
    """A structure or a loss in a few words: its name where that says it all, and no matrices."""
    text = repr(component)
    short = text.endswith("()") or len(text) > LONGEST or "\n" in text
    return snake_case(type(component).__name__).replace("_", " ") if short else text


def _listed(names: list[str], separator: str = " + ") -> str:
    if len(names) <= SHOWN_INPUTS:
        return separator.join(names)
    return separator.join([*names[:2], "...", names[-1]]) + f" [{len(names)} inputs]"


def _text(kernel: Any, columns: list[str], constant: bool, by: str | None) -> str:
    """As in a formula: ``x1 + x2``, ``rbf(x1, x2)``, ``(1 + x1 | shop)``."""
    if isinstance(kernel, (list, tuple)):
        inputs = " + ".join(_text(each, columns, False, None) for each in kernel)
    elif isinstance(kernel, str) and kernel in ("linear", "constant"):
        inputs = _listed(columns) if kernel == "linear" else ""
    else:
        inputs = f"{kernel if isinstance(kernel, str) else getattr(kernel, '__name__', repr(kernel))}({_listed(columns, ', ')})"
    if by is None:
        return inputs
    whole = " + ".join(filter(None, ["1" if constant else "0" if not inputs.startswith("1") else "", inputs]))
    return f"({whole} | {by})"


def level_names(levels: Array) -> list[str]:
    """Levels as text."""
    return [str(level) if isinstance(level, str) else shown(level) for level in levels.tolist()]
