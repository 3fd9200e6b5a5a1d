"""Conic problems in units of their own numbers.

Clarabel, like every conic solver, is right to an absolute number. Its own equilibration does not help: it stops by residuals
of the data as given. So the data are divided by their units first. CVXPY puts variables of its own between a matrix and an
atom, such as ``t >= |1e-14 B|``. These follow from the variables whose size is known, here ``t = 1e-14 t'``, row by row.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from ..base import Array

TOLERANCES = (1e-10, 1e-8)
SOLVED = ("optimal", "optimal_inaccurate")
LEAST_CONSTANT = 1e-8  # constants below this share of the largest coefficient do not count as units


def solve_conic(cp: Any, problem: Any, known: list[Any]) -> str:
    """Solve a problem whose ``known`` variables are of size 1; returns the status, or why there is none."""
    failure = "unknown"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about accuracy, which the certificate measures
        for tol in TOLERANCES:
            try:
                _solve(cp, problem, known, tol)
            except cp.error.SolverError as error:
                failure = str(error)
                continue
            except BaseException as error:
                if type(error).__name__ != "PanicException":  # raised by Clarabel where an eigenvalue solver fails
                    raise
                failure = str(error)
                continue
            failure = problem.status
            if problem.status != "optimal_inaccurate":
                break
    return failure


def _solve(cp: Any, problem: Any, known: list[Any], tol: float) -> None:
    data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts={})
    A, b, c = sparse.csc_array(data["A"]), data["b"], data["c"]
    cone = _cones(data["dims"])
    columns = _column_units(A, cone, _places(data["param_prob"], known))
    rows = _row_units(A, b, columns, cone)
    scaled = {**data, "A": sparse.csc_array(A.multiply(columns).multiply(1 / rows[:, None])), "b": b / rows, "c": c * columns}
    if data.get("P") is not None:
        scaled["P"] = sparse.csc_array(sparse.csc_array(data["P"]).multiply(columns).multiply(columns[:, None]))
    options = {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol, "max_iter": 200, "max_threads": 1}
    found = chain.solve_via_data(problem, scaled, warm_start=False, verbose=False, solver_opts=options)
    result = SimpleNamespace(
        status=found.status,
        x=columns * np.asarray(found.x),
        z=np.asarray(found.z) / rows,
        obj_val=found.obj_val,
        solve_time=found.solve_time,
        iterations=found.iterations,
    )
    problem.unpack_results(result, chain, inverse)


def _places(compiled: Any, known: list[Any]) -> Array:
    """The columns of these variables; CVXPY keeps the upper triangle of a symmetric matrix under the same id."""
    ids, start = {variable.id for variable in known}, compiled.var_id_to_col
    return np.concatenate([start[v.id] + np.arange(v.size) for v in compiled.variables if v.id in ids])


def _column_units(A: Any, cone: Array, known: Array) -> Array:
    """The units of all variables: a new one is as large as the known ones beside it in a cone."""
    A = abs(A)
    units, unknown = np.ones(A.shape[1]), np.ones(A.shape[1], dtype=bool)
    unknown[known] = False
    while unknown.any():
        sizes = _largest_in_cone(A[:, ~unknown].multiply(units[~unknown]), cone)
        entries = sparse.coo_array(A[:, unknown])
        used = (sizes[entries.row] > 0) & (entries.data > 0)
        found = np.zeros(int(unknown.sum()))
        np.maximum.at(found, entries.col[used], sizes[entries.row[used]] / entries.data[used])
        place = np.nonzero(unknown)[0][found > 0]
        if not place.size:
            break
        units[place], unknown[place] = found[found > 0], False
    return units


def _row_units(A: Any, b: Array, columns: Array, cone: Array) -> Array:
    """The units of all rows, one for each cone: its constant, or its largest coefficient where it has none."""
    reach, constant = _largest_in_cone(abs(A).multiply(columns), cone), _largest_in_cone(np.abs(b)[:, None], cone)
    units = np.where(constant > 0, np.maximum(constant, LEAST_CONSTANT * reach), reach)
    return np.where(units > 0, units, 1.0)


def _largest_in_cone(entries: Any, cone: Array) -> Array:
    """For each row, the largest entry of the rows of its cone."""
    by_row = entries.max(axis=1)
    by_row = by_row.toarray().ravel() if sparse.issparse(by_row) else by_row
    largest = np.zeros(int(cone.max(initial=-1)) + 1)
    np.maximum.at(largest, cone, by_row)
    return largest[cone]


def _cones(dims: Any) -> Array:
    """The number of the cone of each row; equations and inequalities stand alone."""
    triangles = [n * (n + 1) // 2 for n in dims.psd]
    powers = [len(alpha) + 1 for alpha in dims.pnd]
    sizes = [*[1] * (dims.zero + dims.nonneg), *dims.soc, *triangles, *[3] * (dims.exp + len(dims.p3d)), *powers]
    return np.repeat(np.arange(len(sizes)), np.asarray(sizes, dtype=int))
