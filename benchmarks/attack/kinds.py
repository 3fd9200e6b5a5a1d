"""The second family of instances: promises of the certificate that a random problem alone does not try.

Seeds from ``SECOND`` on are its own, so that every instance of the first family stays what it was. Instance ``k`` is of kind
``KINDS[k % len(KINDS)]``; all else is a description as in ``draw.py``, with a few more entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .draw import LABELS, ROWS, Description, draw_problem
from .users import CONSTRAINTS, LOSS_FAULTS, STRUCTURE_FAULTS

SECOND = 1000
KINDS = ("far from zero", "constraints", "wrong component", "search", "partial_fit", "fit_blocks", "add_task", "units")
NUMBERS = ("squared", "huber", "absolute", "epsilon_insensitive", "quantile")
LEARNED = ("trace", "frobenius", "schatten", "schatten_norm", "unit_trace", "log_det", "feature_selection")
REGULAR = ("independent", "shared_mean", "task_graph", "output_metric")  # known, and of full rank
OTHER = ("clusters", "sparse", "robust", "dirty", "fixed", "output_code", "sum")
FACTORS = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
PLAINLY: Description = {
    "faults": [],
    "dtype": "float64",
    "scale_x": 0.0,
    "scale_y": 0.0,
    "kernel": "linear",
    "sparse": False,
    "single row": False,
    "solver": "auto",
    "second": "",
    "invariances": [],
}


def draw(seed: int, k: int) -> Description:
    """Instance ``k``; nothing but the two numbers decides it."""
    first = draw_problem(seed, k)
    return first if seed < SECOND else vary(first)


def vary(first: Description) -> Description:
    """A description of the first family's draw as one of the second, by its number."""
    rng, kind = np.random.default_rng([first["seed"], first["k"], 3]), KINDS[first["k"] % len(KINDS)]
    loss = first["loss"] if first["loss"] not in (*ROWS, "mixed") else "squared"
    layout = "missing" if loss != first["loss"] and first["layout"] == "wide" else first["layout"]
    about = first | PLAINLY | {"kind": kind, "loss": loss, "layout": layout, "T": min(first["T"], 8), "d": min(first["d"], 12)}
    about["strength"] = round(float(rng.uniform(-4, 0.5)), 3)
    about |= VARIATIONS[kind](rng, about)
    if about["layout"] == "long":
        about["n"] = about["T"] * max(2, first["n"] // first["T"])
    return about | {"fixed": ["kind", "loss", "structure", "dtype", "scale_x", "scale_y", "layout", "second"]}


def _choice(rng: np.random.Generator, given: Any) -> str:
    return str(rng.choice(list(given)))


def _exponent(rng: np.random.Generator, largest: float) -> float:
    return round(float(rng.uniform(-largest, largest)), 2)


def _far(rng: np.random.Generator, about: Description) -> Description:
    """Single precision, inputs about 1e5 to 1e8 with differences of about 1."""
    kernel = "rbf" if rng.random() < 0.15 else "linear"
    return {
        "dtype": "float32",
        "kernel": kernel,
        "structure": _choice(rng, (*LEARNED[:-1], *REGULAR) if kernel == "rbf" else (*LEARNED, *REGULAR)),
        "offset_x": float(10 ** rng.uniform(5, 5.5 if kernel == "rbf" else 8)),
        "offset_y": 0.0 if about["loss"] in LABELS or rng.random() < 0.4 else float(10 ** rng.uniform(2, 6)),
        "fit_intercept": bool(rng.random() < 0.85),
        "ridge": 0.0,
    }


def _constraints(rng: np.random.Generator, _: Description) -> Description:
    """A structure of a user with constraints, in any units."""
    return {
        "structure": "constrained",
        "constraint": _choice(rng, CONSTRAINTS),
        "loss": str(rng.choice(["squared", "huber", "absolute"], p=[0.7, 0.15, 0.15])),
        "T": int(rng.integers(3, 6)),
        "n": int(rng.integers(8, 25)),
        "d": int(rng.integers(1, 5)),
        "layout": str(rng.choice(["wide", "missing"])),
        "sample_weight": "none",
        "strength": round(float(rng.uniform(-2.5, -0.3)), 3),
        "scale_x": _exponent(rng, 7),
        "scale_y": _exponent(rng, 7),
        "ridge": 0.0,
    }


def _wrong(rng: np.random.Generator, _: Description) -> Description:
    """A loss or a structure with one wrong method."""
    size = {"T": int(rng.integers(2, 5)), "n": int(rng.integers(10, 31)), "d": int(rng.integers(1, 5)), "layout": "wide"}
    size |= {"ridge": 0.0, "sample_weight": "none", "strength": round(float(rng.uniform(-2.5, -0.3)), 3)}
    if rng.random() < 0.7:
        loss = _choice(rng, LOSS_FAULTS)
        wrong = {"fault": _choice(rng, LOSS_FAULTS[loss]), "factor": float(rng.choice(FACTORS))}
        units = {"scale_x": _exponent(rng, 2), "scale_y": _exponent(rng, 2)}
        return size | {"loss": loss, "structure": "trace", "wrong loss": wrong, **units}
    wrong = {"base": _choice(rng, ("trace", "trace and size")), "fault": _choice(rng, STRUCTURE_FAULTS)}
    return size | {"loss": "squared", "structure": "custom", "wrong structure": wrong | {"factor": float(rng.choice(FACTORS))}}


def _search(rng: np.random.Generator, about: Description) -> Description:
    return {
        "structure": _choice(rng, (*LEARNED, *REGULAR)),
        "kernel": "linear",
        "n": max(about["n"], 15),
        "layout": "wide" if about["layout"] == "missing" else about["layout"],
        "T": min(about["T"], 5),
    }


def _blocks(rng: np.random.Generator, _: Description) -> Description:
    return {
        "structure": _choice(rng, (*LEARNED, *REGULAR, *OTHER)),
        "loss": "squared",
        "scale_x": _exponent(rng, 3),
        "scale_y": _exponent(rng, 3),
        "blocks": int(rng.integers(1, 6)),
    }


def _add_task(rng: np.random.Generator, about: Description) -> Description:
    return {
        "structure": _choice(rng, ("trace", "frobenius", *REGULAR, "clusters", "log_det")),
        "loss": _choice(rng, ("squared", "huber", "absolute", "quantile", "logistic", "squared_hinge")),
        "layout": "wide",
        "n": max(about["n"], 8),
        "T": max(2, min(about["T"], 5)),
        "sample_weight": "none",
        "task_weight": "equal",
        "strength": round(float(rng.uniform(-3, -0.5)), 3),
        "new rows": int(rng.integers(3, 13)),
    }


def _units(rng: np.random.Generator, about: Description) -> Description:
    """Plain problems in mixed units: all of them must arrive."""
    return {
        "structure": _choice(rng, (*LEARNED, *REGULAR, *OTHER)),
        "scale_x": _exponent(rng, 6),
        "scale_y": 0.0 if about["loss"] in LABELS else _exponent(rng, 6),
        "alpha": float(10 ** rng.uniform(-8, 2)),
        "ridge": 0.0,
        "second": _choice(rng, ("", "solver")),
    }


VARIATIONS = {
    "far from zero": _far,
    "constraints": _constraints,
    "wrong component": _wrong,
    "search": _search,
    "partial_fit": _blocks,
    "fit_blocks": _blocks,
    "add_task": _add_task,
    "units": _units,
}
