"""Models with ``terms=`` or ``common=`` in model files: maps, levels, weights and rows of terms. What is read is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from ...design.term_inputs import TermData
from ...losses import Loss
from ...persistence.refusal import check
from ..fitted import FittedState
from ..terms.common_part import CommonPart
from ..terms.fitted_terms import FittedTerm
from ..terms.rows_of_fit import RowsOfFit
from ..terms.term import Term
from ..terms.term_features import DescriptorMap, InputMap, KernelMap
from .array_checks import are_labels, check_matrix, check_numbers, check_positions

Array = np.ndarray
FLOAT = np.dtype(float)
KERNEL_PARAMETERS = {"gamma", "degree", "coef0"}


# --- parts of a term, each by itself ------------------------------------------------------------------------------------------


def _kernel_map(kernel: Any, points: Any, root: Any, exact: Any, parameters: Any) -> KernelMap:
    check_matrix("the point set of a term's kernel", points)
    check_matrix("the root of a term's kernel", root)
    check(points.shape[0] == root.shape[0] > 0, "the kernel of a term has points and a root of other sizes")
    known = isinstance(parameters, dict) and parameters.keys() <= KERNEL_PARAMETERS
    check(known and type(exact) is bool, "the kernel of a term is not readable")
    made = KernelMap(kernel, points, root, exact, parameters)
    with np.errstate(all="ignore"):
        row = made(points[:1])  # a kernel gives finite numbers, one for each point
    check(row.shape == (1, root.shape[1]) and bool(np.isfinite(row).all()), "the kernel of a term gives no numbers")
    return made


def _input_map(columns: Any, mean: Any, kernel: Any, constant: Any) -> InputMap:
    check(_are_columns(columns), "the columns of a term are not readable")
    check(isinstance(constant, float) and 0 <= constant < np.inf, "the constant of a term is not readable")
    check(mean is None or kernel is None, "a term has a kernel and a mean")
    if mean is not None:
        check_numbers("the mean of a term's inputs", mean, (len(columns),), FLOAT)
    check(kernel is None or _acts_on(kernel, len(columns)), "the kernel of a term takes other columns")
    made = InputMap(columns, mean, kernel, constant)
    check(made.width > 0, "a term has no features")
    return made


def _descriptor_map(columns: Any, categories: Any, kernel: Any) -> DescriptorMap:
    check(_are_columns(columns), "the descriptors of a term are not readable")
    listed = isinstance(categories, tuple) and len(categories) == len(columns) > 0
    check(
        listed and all(known is None or _are_ordered(known) for known in categories),
        "the categories of a term are not readable",
    )
    made = DescriptorMap(columns, categories, kernel)
    check(kernel is None or _acts_on(kernel, made.n_encoded), "the kernel of a term takes other descriptors")
    return made


def _fitted_term(
    term: Any, inputs: Any, by: Any, levels: Any, descriptors: Any, weights: Any, structure: Any, on_features: Any, n_added: Any
) -> FittedTerm:
    check(type(term) is Term and type(inputs) is InputMap and type(on_features) is bool, "a term is not readable")
    check(inputs.kernel is None or not term.free, "a term with a kernel has no finite weight")
    p = 1
    if term.by is None:
        check(by is None and levels is None, "a term of all rows has levels")
    else:
        check(type(by) is int and by >= 0, "the grouping of a term is no column")
        p = np.size(levels)
        check(p > 0 and are_labels(levels, p), "the levels of a term are not readable")
    if term.described_by is None:
        check(descriptors is None, "a term without described_by has descriptors")
    else:
        check(type(descriptors) is DescriptorMap, "the descriptors of a term are missing")
        p = descriptors.width
    check_numbers("the weight matrix of a term", weights, (inputs.width, p), FLOAT)
    check(type(n_added) is int and 0 <= n_added < max(np.size(levels), 1), "a term has more added levels than levels")
    _check_structure("the structure of a term", structure, inputs.width if on_features else p, n_added)
    return FittedTerm(term, inputs, by, levels, descriptors, weights, structure, on_features, n_added)


def _check_structure(what: str, structure: Any, size: int, n_added: int) -> None:
    """A square matrix, perhaps without the levels that were added; empty where there is none to learn."""
    check(isinstance(structure, np.ndarray), f"{what} is missing")
    if structure.shape != (0,):
        smaller = structure.shape == (size - n_added,) * 2
        check_numbers(what, structure, structure.shape if smaller else (size, size), FLOAT)


def _common_part(
    common: Any, own: Any, weight: Any, common_weights: Any, own_weights: Any, intercept: Any, structure: Any, on_features: Any
) -> CommonPart:
    check(type(common) is type(own) is InputMap, "the common part is not readable")
    check(isinstance(weight, float) and weight > 0, "the common part has no weight")
    check(common.kernel is None or weight < np.inf, "a common part with a kernel has no finite weight")
    check(isinstance(intercept, float) and bool(np.isfinite(intercept)), "the common part has no intercept")
    check_numbers("the weight vector of the common part", common_weights, (common.width,), FLOAT)
    check_matrix("the weight matrix of the own parts", own_weights)
    check(len(own_weights) == own.width, "the own parts have weights of other features")
    check(type(on_features) is bool and isinstance(structure, np.ndarray), "the own parts have no structure")
    size = own.width if on_features else len(structure)  # tasks may have been added
    check(len(structure) <= max(own_weights.shape), "the own parts have a structure of other tasks")
    _check_structure("the structure of the own parts", structure, size, 0)
    return CommonPart(common, own, weight, common_weights, own_weights, intercept, structure, on_features)


def _term_data(phi: Any, codes: Any, n_levels: Any, descriptors: Any, free: Any) -> TermData:
    check_matrix("the feature matrix of a term", phi)
    check(type(n_levels) is int and n_levels > 0 and isinstance(free, (bool, np.bool_)), "the rows of a term are not readable")
    if codes is not None:
        check_positions("the level of a row", codes, len(phi), n_levels)
    if descriptors is not None:
        check_matrix("the descriptor matrix of the levels", descriptors)
        check(len(descriptors) == n_levels and codes is not None, "there are descriptors of other levels")
    return TermData(phi, codes, n_levels, descriptors, bool(free))


def _rows_of_fit(terms: Any, y: Any, sample_weight: Any, weight: Any, loss: Any, fit_intercept: Any) -> RowsOfFit:
    n = np.size(y)
    check_numbers("the target vector", y, (n,), FLOAT)
    check_numbers("the weight vector of the rows", sample_weight, (n,), FLOAT)
    check_numbers("the weight vector of the objective", weight, (n,), FLOAT)
    check(n > 0 and bool((sample_weight > 0).all()) and bool((weight > 0).all()), "a row has no weight")
    check(isinstance(loss, Loss) and type(fit_intercept) is bool, "the problem of the rows is not readable")
    listed = isinstance(terms, tuple) and all(type(data) is TermData and len(data.phi) == n for data in terms)
    check(listed, "a term has other rows than the targets")
    return RowsOfFit(terms, y, sample_weight, weight, loss, fit_intercept)


def _are_columns(columns: Any) -> bool:
    return isinstance(columns, tuple) and all(type(column) is int and column >= 0 for column in columns)


def _are_ordered(known: Any) -> bool:
    texts = isinstance(known, tuple) and len(known) > 0 and all(type(text) is str for text in known)
    return texts and all(one < other for one, other in pairwise(known))


def _acts_on(kernel: Any, width: int) -> bool:
    return type(kernel) is KernelMap and kernel.points.shape[1] == width


# Of each kind the class, and how to make it of its fields; a new field of a class needs a check here.
KINDS: dict[str, tuple[type, Callable[..., Any]]] = {
    "kernel_map": (KernelMap, _kernel_map),
    "input_map": (InputMap, _input_map),
    "descriptor_map": (DescriptorMap, _descriptor_map),
    "fitted_term": (FittedTerm, _fitted_term),
    "common_part": (CommonPart, _common_part),
    "term_data": (TermData, _term_data),
    "rows_of_fit": (RowsOfFit, _rows_of_fit),
}
TERM_PARTS = {kind: ((cls,), {each.name: each.name for each in fields(cls)}, make) for kind, (cls, make) in KINDS.items()}


# --- the parts belong together ------------------------------------------------------------------------------------------------


def check_terms(model: Any, found: dict[str, Any]) -> None:
    """The terms of ``terms=``: as many as the parameter has, on columns of the table."""
    given, terms = model.terms, found["fitted_terms"]
    same = isinstance(given, (list, tuple)) and all(type(term) is Term for term in given) and _no_common(model.common)
    listed = isinstance(terms, tuple) and all(type(term) is FittedTerm for term in terms)
    check(same and listed and len(given) == len(terms) > 0, "the terms that were fitted are not those of the parameter")
    check(len(found["tasks_"]) == 1 and model.task_column is None, "a model with terms has tasks")
    for term in terms:
        columns = [*term.inputs.columns, *([] if term.by is None else [term.by])]
        columns += [] if term.descriptors is None else term.descriptors.columns
        check(
            max(columns, default=0) < found["n_features_in_"],
            f"a term has column {max(columns, default=0)}, which is not there",
        )


def check_common(model: Any, found: dict[str, Any]) -> None:
    """The common and the own part of ``common=``, on all inputs."""
    part, T = found["common_part"], len(found["tasks_"])
    d = found["n_features_in_"] - (model.task_column is not None)
    asked = not _no_common(model.common) or model.common == "auto"
    check(type(part) is CommonPart and asked and model.terms is None, "the common part does not go with common=")
    check(part.common.columns == part.own.columns == tuple(range(d)), "the common part has other columns than the table")
    check(part.own_weights.shape[1] == T, f"there are own parts of {part.own_weights.shape[1]} tasks, not {T}")
    if part.coef() is None:
        check("coef_" not in found, "coef_ does not go with this kernel")
    else:
        check_numbers("coef_", found.get("coef_"), (T, d), FLOAT)


def _no_common(common: Any) -> bool:
    """Whether an estimator need not have a common part: a search that was told ``"auto"`` may have chosen one."""
    return common is None or common is False or (isinstance(common, str) and common == "auto")


def check_rows(state: FittedState, rows: Any) -> None:
    """The rows of a fit belong to its terms: ``summary`` reads them."""
    check(type(rows) is RowsOfFit, "the rows of the fit are not readable")
    expected: list[tuple[int, int, int | None]]
    if state.common_part is not None:
        part = state.common_part
        n_fitted = state.n_tasks - len(state.added_tasks_ or [])
        expected = [(part.common.width, 1, None), (part.own.width, n_fitted, None)]
    else:
        check(state.fitted_terms is not None, "a model without terms has rows of them")
        expected = [_sizes(term) for term in state.fitted_terms]
    sizes = [(data.r, data.n_levels, None if data.descriptors is None else data.p) for data in rows.terms]
    check(sizes == expected, "the rows of the fit are those of other terms")


def _sizes(term: FittedTerm) -> tuple[int, int, int | None]:
    levels = 1 if term.levels is None else len(term.levels)
    return term.inputs.width, levels, None if term.descriptors is None else term.descriptors.width
