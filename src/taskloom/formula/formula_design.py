"""What a formula makes of a data frame: design columns, groupings, the target, and the terms of the predictor."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

import numpy as np

from ..estimators.terms.term import Term
from .data_columns import as_frame, check_columns, check_complete, levels
from .parsing import ParsedFormula, RandomPart, column_name, parse_formula

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class FormulaDesign:
    """A formula with what it learned from the data of the fit: categories, centres, knots. Made by :meth:`build`.

    Parameters
    ----------
    parsed : ParsedFormula
        The parts of the formula.
    terms : list of Term
        The terms of the predictor, for ``MultiTaskRegressor(terms=...)``; their columns are those of :meth:`transform`.
    fit_intercept : bool
        Whether the fixed part has its intercept; ``False`` for ``0 + x`` and ``x - 1``.
    specs : dict of formulaic.ModelSpec
        How the design columns are made, by the text of each part.
    target_spec : formulaic.ModelSpec or None
        How the target is made; ``None`` if it is a column.

    Examples
    --------
    >>> import pandas as pd
    >>> from taskloom.formula import FormulaDesign
    >>> data = pd.DataFrame({"y": [1.0, 3.0, 2.0], "x": [1.0, 2.0, 6.0], "shop": ["a", "b", "a"]})
    >>> design = FormulaDesign.build("y ~ center(x) + (1 + x | shop)", data)
    >>> for term in design.terms:
    ...     print(term)
    Term('linear', columns=['center(x)'], weight=inf)
    Term('linear', by='shop', structure='trace', columns=['x'], intercept=True)
    >>> design.transform(data.head(1)).to_dict("list")
    {'center(x)': [-2.0], 'x': [1.0], 'shop': ['a']}
    """

    parsed: ParsedFormula
    terms: list[Term]
    fit_intercept: bool
    specs: dict[str, Any]
    target_spec: Any

    @classmethod
    def build(cls, formula: str, data: Any, *, structure: Any = None, penalize_fixed: bool = False) -> Self:
        """Read the categories and the state of transformations from data.

        Parameters
        ----------
        formula : str
            As in lme4, ``"y ~ x1 + x2 + (1 + x1 | shop) + (1 | region)"``.
        data : data frame
            With the columns that the formula names.
        structure : Structure or str, default=None
            The structure of random parts with several columns; ``None`` is ``"trace"``, which learns their covariance.
        penalize_fixed : bool, default=False
            Whether the fixed part is penalised, with weight 1.

        Returns
        -------
        FormulaDesign
        """
        parsed, frame = parse_formula(formula), as_frame(data)
        others = _without_role(parsed, frame)
        formulas = {text: _formula(text, others) for text in (parsed.fixed, *(part.inputs for part in parsed.random))}
        variables = sorted(set().union(*map(_variables, formulas.values())))
        _check_roles(parsed, variables)
        check_columns(frame, [*variables, *(name for part in parsed.random for name in part.by)])
        check_complete(frame, variables, "input")
        specs = {text: _evaluate(each, frame).model_spec for text, each in formulas.items()}
        _check_names(parsed, specs)
        columns, fit_intercept = _columns_of(specs[parsed.fixed])
        fixed = [name for names in columns for name in names]
        terms = [Term("linear", columns=fixed, weight=1.0 if penalize_fixed else np.inf)] if fixed else []
        terms += [term for part in parsed.random for term in _random_terms(part, specs[part.inputs], structure)]
        if not terms:
            raise ValueError(f"the formula {formula!r} has nothing but an intercept: add an input or a random part")
        return cls(parsed, terms, fit_intercept, specs, _target_spec(parsed.target, frame))

    def transform(self, data: Any) -> Any:
        """The table that an estimator with these terms takes.

        Parameters
        ----------
        data : data frame
            With the columns that the formula names; the target is not needed.

        Returns
        -------
        pandas.DataFrame
            Design columns, then groupings, one row for each row of the data.
        """
        frame = as_frame(data)
        variables = sorted(set().union(*(_variables(spec.formula) for spec in self.specs.values())))
        groupings = {part.grouping: part.by for part in self.parsed.random}
        by = sorted({name for names in groupings.values() for name in names})
        check_columns(frame, [*variables, *by])
        check_complete(frame, variables, "input")
        check_complete(frame, by, "grouping")
        columns: dict[str, Any] = {}
        for spec in self.specs.values():
            matrix = _evaluate(spec, frame)
            columns |= {name: np.asarray(matrix[name], float) for names in _columns_of(spec)[0] for name in names}
        for name, values in columns.items():
            if not np.isfinite(values).all():
                row = frame.index[int(np.argmin(np.isfinite(values)))]
                raise ValueError(f"{name} is not a finite number in row {row}")
        columns |= {grouping: levels(frame, names) for grouping, names in groupings.items()}
        return import_module("pandas").DataFrame(columns, index=frame.index)

    def target(self, data: Any) -> Any:
        """The target of each row.

        Parameters
        ----------
        data : data frame
            With the target.

        Returns
        -------
        pandas.Series
        """
        frame = as_frame(data)
        if self.target_spec is not None:
            check_columns(frame, sorted(_variables(self.target_spec.formula)))
            return _evaluate(self.target_spec, frame).iloc[:, 0]
        name = column_name(self.parsed.target)
        check_columns(frame, [str(name)])
        return frame[name]


def _random_terms(part: RandomPart, spec: Any, structure: Any) -> list[Term]:
    """One term, or one for each input of a part whose coefficients are independent."""
    by = part.grouping
    columns, intercept = _columns_of(spec)
    constant = [Term("constant", by=by)] if intercept else []
    if not columns and not intercept:
        raise ValueError(f"nothing varies by {by!r} in {part}: write (1 | {by}) for intercepts")
    if not columns or not part.correlated:
        return constant + [Term("linear", by=by, columns=names) for names in columns]
    names = [name for each in columns for name in each]
    learned = ("trace" if structure is None else structure) if len(names) + intercept > 1 else None
    return [Term("linear", by=by, structure=learned, columns=names, intercept=intercept)]


def _columns_of(spec: Any) -> tuple[list[list[str]], bool]:
    """The names of the design columns, a list for each input, and whether an intercept is there."""
    places = {str(term): [spec.column_names[k] for k in indices] for term, indices in spec.term_indices.items()}
    return [names for term, names in places.items() if term != "1"], "1" in places


def _without_role(parsed: ParsedFormula, frame: Any) -> list[str]:
    """What a dot stands for: the columns that are neither target nor part of a grouping."""
    name = column_name(parsed.target)
    taken = {name} if name is not None else _variables(_formula(f"0 + {parsed.target}"))
    taken = taken.union(*(part.by for part in parsed.random))
    return [name for name in frame.columns if isinstance(name, str) and name not in taken]


def _check_roles(parsed: ParsedFormula, variables: list[str]) -> None:
    """Raise for a column that is input, grouping or target at once."""
    target, groupings = column_name(parsed.target), {part.grouping for part in parsed.random}
    for name in variables:
        if name in groupings:
            raise ValueError(f"column {name!r} is an input and a grouping: copy it under another name for one of the two")
    if target in {*variables, *groupings}:
        raise ValueError(f"column {target!r} is the target, and stands right of ~ too: leave it out there")


def _check_names(parsed: ParsedFormula, specs: dict[str, Any]) -> None:
    """Raise for an interaction of inputs, ``a:b``, that is a grouping too: a table has one column of a name."""
    names = {name for spec in specs.values() for each in _columns_of(spec)[0] for name in each}
    for part in parsed.random:
        if part.grouping in names:
            raise ValueError(
                f"{part.grouping!r} is an input and a grouping: copy its columns under other names for one of the two"
            )


def _target_spec(target: str, frame: Any) -> Any:
    name = column_name(target)
    if name is not None:
        check_columns(frame, [name])
        return None
    formula = _formula(f"0 + {target}")
    check_columns(frame, sorted(_variables(formula)))
    matrix = _evaluate(formula, frame)
    if matrix.shape[1] != 1:
        raise ValueError(f"the target must be one column, got {target!r}, which makes {list(matrix.columns)}")
    return matrix.model_spec


def _variables(formula: Any) -> set[str]:
    """The columns that a formula of formulaic reads (its own list of them leaves out some, of splines for example)."""
    known = {*import_module("formulaic.transforms").TRANSFORMS, *dir(builtins)}
    found = set()
    for factor in (factor for term in formula for factor in term.factors):
        if factor.eval_method.value == "lookup":
            found.add(factor.expr)
        elif factor.eval_method.value == "python":
            nodes = list(ast.walk(ast.parse(re.sub("`[^`]+`", "None", factor.expr))))
            functions = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            found |= {*re.findall("`([^`]+)`", factor.expr), *(names - functions - known)}
    return found


def _formula(text: str, available: list[str] | None = None) -> Any:
    """The formula of formulaic; a dot in it stands for the available columns."""
    try:
        formulaic = import_module("formulaic")
    except ImportError:
        raise ImportError('formulas need formulaic: python -m pip install "taskloom[formula]"') from None
    with _errors_in_a_sentence(text):
        return formulaic.Formula(text, _context={"__formulaic_variables_available__": available or []})


def _evaluate(formula: Any, frame: Any) -> Any:
    """The design of a formula, or of a spec, which has the categories and the state of the fit."""
    with _errors_in_a_sentence(str(getattr(formula, "formula", formula))):
        return formula.get_model_matrix(frame, context={}, na_action="ignore", output="pandas")


@contextmanager
def _errors_in_a_sentence(text: str) -> Iterator[None]:
    errors = import_module("formulaic.errors")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", errors.DataMismatchWarning)  # a new category would count as the first one
            yield
    except errors.DataMismatchWarning as warning:
        new = re.findall(r"\{.*\}", str(warning))
        raise ValueError(
            f"{text!r} has categories that the data of the fit has not: {', '.join(new)}; their effect is not known: leave out "
            "these rows, or make the column a grouping, (1 | column)"
        ) from None
    except (errors.FormulaicError, SyntaxError) as error:
        quote = "; names with spaces or signs stand in backticks: `a (b)`" if isinstance(error, SyntaxError) else ""
        raise ValueError(f"{text!r} cannot be read as a formula: {str(error).splitlines()[0]}{quote}") from None
