"""What is drawn: a plain description of instance ``k``, small enough to print, from which everything else follows."""

from __future__ import annotations

from typing import Any

import numpy as np

Description = dict[str, Any]

LOSSES = {
    "squared": 30,
    "huber": 8,
    "absolute": 8,
    "epsilon_insensitive": 6,
    "quantile": 8,
    "logistic": 14,
    "hinge": 7,
    "squared_hinge": 7,
    "log_cosh": 3,
    "mixed": 3,
    "softmax": 4,
    "multiclass_hinge": 3,
}
LABELS = ("logistic", "hinge", "squared_hinge")
ROWS = ("softmax", "multiclass_hinge")
STRUCTURES = {
    "trace": 14,
    "frobenius": 6,
    "schatten": 6,
    "schatten_norm": 6,
    "unit_trace": 7,
    "independent": 5,
    "fixed": 5,
    "shared_mean": 5,
    "task_graph": 5,
    "output_metric": 3,
    "output_code": 4,
    "clusters": 7,
    "log_det": 6,
    "sparse": 5,
    "sparse_log_det": 3,
    "sum": 4,
    "custom": 2,
    "feature_selection": 5,
    "robust": 4,
    "dirty": 4,
    "low_rank": 3,
    "learned_graph": 2,
    "sparse_precision": 2,
}
NOT_CONVEX = ("low_rank", "learned_graph", "sparse_precision")
ON_COLUMNS = ("feature_selection", "dirty")
SUMS = ("robust", "dirty")
KERNELS = {"linear": 70, "rbf": 9, "poly": 4, "laplacian": 3, "cosine": 2, "precomputed": 5, "linear+rbf": 4}
RARE_KERNELS = ("sigmoid", "chi2", "additive_chi2", "callable")  # some of them never positive semidefinite, and refused
FAULTS = (
    "repeated rows",
    "constant column",
    "zero column",
    "collinear",
    "nearly collinear",
    "inputs far from zero",
    "targets far from zero",
    "constant task",
    "twin tasks",
    "zero targets",
    "outlier",
    "columns of other sizes",
)
SOLVERS = ("alternating", "block", "factored", "proximal", "projected", "reweighted", "smooth")
SUITED: dict[str, dict[str, Any]] = {  # most problems are refused by the solvers of a few: those get one that they take
    "projected": {"structure": "trace", "loss": "squared", "ridge": 0.0},
    "reweighted": {"structure": "trace", "ridge": 0.0},
    "smooth": {"structure": "clusters", "loss": "squared"},
}
INVARIANCES = ("twice", "tasks permuted", "rows shuffled", "other layout", "two threads")


def _pick(rng: np.random.Generator, shares: dict[str, float]) -> str:
    p = np.array(list(shares.values()), dtype=float)
    return str(rng.choice(list(shares), p=p / p.sum()))


def _exponent(rng: np.random.Generator) -> float:
    """Of a scale: mostly 1, sometimes other units, sometimes absurd."""
    kind = rng.random()
    if kind < 0.08:
        return round(float(rng.uniform(-100, 100)), 2)
    return round(float(rng.uniform(-6, 6)), 2) if kind < 0.28 else 0.0


def _n_tasks(rng: np.random.Generator) -> int:
    low, high = [(1, 1), (2, 6), (7, 15), (16, 60)][int(rng.choice(4, p=[0.08, 0.62, 0.23, 0.07]))]
    return int(rng.integers(low, high + 1))


def draw_problem(seed: int, k: int) -> Description:
    """Instance ``k`` of the first family."""
    rng = np.random.default_rng([seed, k])
    loss, structure, kernel = _pick(rng, LOSSES), _pick(rng, STRUCTURES), _pick(rng, KERNELS)
    T = _n_tasks(rng)
    long_rows, few = int(rng.integers(1, 13)), int(rng.integers(2, 41))
    layout = str(rng.choice(["wide", "missing", "long"], p=[0.35, 0.3, 0.35]))
    if loss in ROWS:
        T, layout, few = min(max(T, 2), 8), "wide", max(few, 8)
        structure = "trace" if structure in SUMS else structure
    if structure in ON_COLUMNS:
        kernel = "linear"
    if kernel == "linear+rbf" and (structure in NOT_CONVEX or loss in ROWS):
        kernel = "rbf"
    if kernel == "precomputed" and layout == "long":
        layout = "missing"
    n = T * long_rows if layout == "long" else few
    d = int(rng.integers(13, 61)) if rng.random() < 0.12 else int(rng.integers(1, 13))
    single = bool(rng.random() < 0.12)  # one task has a single row
    dtype = "float32" if rng.random() < 0.15 else "float64"
    scale_x, scale_y = _exponent(rng), _exponent(rng)
    if dtype == "float32":
        scale_x = float(np.clip(scale_x, -15, 15))
    if kernel == "cosine":  # scikit-learn's takes rows of norm below 2e-15 for zero
        scale_x = float(np.clip(scale_x, -6, 15))
    strength = rng.uniform(-8, 4) if rng.random() < 0.35 else rng.uniform(-4, 0.5)
    second = str(rng.choice(["", "solver", "cvxpy"], p=[0.55, 0.38, 0.07]))
    about = {
        "seed": seed,
        "k": k,
        "loss": loss,
        "structure": structure,
        "parameter": round(float(rng.uniform()), 3),  # of the loss and the structure, which make of it what they need
        "kernel": kernel,
        "gamma": round(float(10 ** rng.uniform(-2, 1)), 4),
        "layout": layout,
        "n": n,
        "d": d,
        "T": T,
        "single row": single and loss not in (*LABELS, *ROWS, "mixed"),
        "faults": sorted({str(f) for f in rng.choice(FAULTS, size=int(rng.choice(3, p=[0.6, 0.3, 0.1])))}),
        "scale_x": scale_x,
        "scale_y": 0.0 if loss in (*LABELS, *ROWS, "mixed") else scale_y,
        "dtype": dtype,
        "sample_weight": str(rng.choice(["none", "some", "zeros"], p=[0.7, 0.2, 0.1])),
        "task_weight": "equal" if loss in ROWS else str(rng.choice(["equal", "size", "given"], p=[0.7, 0.15, 0.15])),
        "fit_intercept": bool(rng.random() < 0.75),
        "ridge": round(float(10 ** rng.uniform(-6, 1)), 8) if rng.random() < 0.2 else 0.0,  # beside alpha
        "strength": round(float(strength), 3),  # logarithm of the share of the strength that leaves little to learn
        "solver": "auto" if rng.random() < 0.85 else str(rng.choice(SOLVERS)),
        "second": second,
        "invariances": sorted(str(i) for i in rng.choice(INVARIANCES, size=2, replace=False)),
        "drop": {"tasks": [], "rows": [], "columns": []},  # what shrinking leaves out
    }
    about |= SUITED.get(about["solver"], {}) if rng.random() < 0.8 else {}
    if kernel == "rbf" and rng.random() < 0.2:
        about["kernel"] = str(rng.choice(RARE_KERNELS))
    about["sparse"] = bool(kernel == "linear" and layout != "long" and rng.random() < 0.15)
    return about
