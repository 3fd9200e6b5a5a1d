"""Parts of models in model files: certificates, scales, feature maps, and fitted steps of scikit-learn, which are numbers only.

A file may say anything: what is read is checked, and only classes of these lists are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from ...features.approximate import BLOCK, Landmarks, mapped
from ...features.kernels import entries
from ...persistence import Decoder, Encoder, ModelFileError
from ...persistence.decode import check_threads
from ...persistence.refusal import check
from ...problem.solution import Certificate
from ...structures.factored_matrix import FactoredStructure
from ...tables.preprocessing import TablePreprocessor
from ..target_encoding import TargetScale
from .array_checks import are_names
from .stored_terms import TERM_PARTS

# What transforming needs; how many rows were seen, which only ``partial_fit`` asks for, stays behind.
SCALERS: dict[type, tuple[str, ...]] = {
    MaxAbsScaler: ("scale_", "max_abs_"),
    MinMaxScaler: ("min_", "scale_", "data_min_", "data_max_", "data_range_"),
    RobustScaler: ("center_", "scale_"),
    StandardScaler: ("mean_", "var_", "scale_"),
}
PRIVATE = ("_gamma", "_n_features_out")  # what a fit of theirs leaves besides names that end in an underscore


def encoded(values: dict[str, Any], encoder: Encoder, of: str = "") -> dict[str, Any]:
    """Values by name as JSON; errors name what they belong to."""
    return {name: encoder.encode(value, f"{name}{of}") for name, value in values.items()}


# --- values that are made of named parts ----------------------------------------------------------------------------------


def _certificate(**values: Any) -> Certificate:
    for name, value in values.items():
        good = isinstance(value, str if name in ("status", "message") else float)
        check(
            good or (value is None and name not in ("primal", "dual", "gap", "relative_gap")), f"the certificate has no {name}"
        )
    return Certificate(**values)


def _factored(L: Any, own: Any) -> FactoredStructure:
    numbers = all(isinstance(part, np.ndarray) and part.dtype.kind == "f" and np.isfinite(part).all() for part in (L, own))
    check(numbers and L.ndim == 2 and own.shape == L.shape[:1] and L.dtype == own.dtype, "a factored structure is not readable")
    return FactoredStructure(L, own)


def _dtype(name: Any) -> np.dtype:
    check(name in ("float32", "float64"), "the model is of an unknown precision")
    return np.dtype(name)


def _landmarks(points: Any, root: Any, kernel: Any, parameters: Any) -> Landmarks:
    whole = all(getattr(part, "ndim", 0) == 2 and np.isfinite(entries(part)).all() for part in (points, root))
    check(whole and points.shape[0] == root.shape[0], "the landmarks are not readable")
    check(isinstance(parameters, dict), "the landmarks have no kernel")
    made: Any = object.__new__(Landmarks)  # its parts are here: decomposing again would cost, and move last bits
    vars(made).update(points=points, root=root, kernel=kernel, parameters=parameters)
    return made


# Of each kind: the classes, the parts by their names in a file and in the object, and how to make it of them.
PARTS: dict[str, tuple[tuple[type, ...], dict[str, str], Callable[..., Any]]] = {
    "certificate": ((Certificate,), {column.name: column.name for column in fields(Certificate)}, _certificate),
    "scale": ((TargetScale,), {"mean": "mean", "spread": "std"}, TargetScale),
    "factored": ((FactoredStructure,), {"L": "L", "own": "own"}, _factored),
    "dtype": ((type(np.dtype("f4")), type(np.dtype("f8"))), {"name": "name"}, _dtype),
    "landmarks": ((Landmarks,), {name: name for name in ("points", "root", "kernel", "parameters")}, _landmarks),
    **TERM_PARTS,
}


def _part_writer(kind: str, names: dict[str, str]) -> Callable[[Any, Encoder], Any]:
    return lambda value, encoder: {"@": kind} | encoded({key: getattr(value, own) for key, own in names.items()}, encoder)


def _part_reader(names: dict[str, str], make: Callable[..., Any]) -> Callable[[dict, Decoder], Any]:
    return lambda node, decoder: make(**{own: decoder.decode(node.get(key)) for key, own in names.items()})


# --- fitted steps: parameters, and what a fit left ------------------------------------------------------------------------


def _transformers() -> dict[str, type]:
    from sklearn import kernel_approximation  # slow: only for files

    return {name: getattr(kernel_approximation, name) for name in _MAP_SHAPES}


def step_node(kind: str, step: Any, encoder: Encoder) -> dict[str, Any]:
    """A scaler, a preprocessor or a transformer as JSON; a transformer may also be an unfitted parameter."""
    name, params = type(step).__name__, step.get_params(deep=False)
    if kind == "scaler" and getattr(step, "_sklearn_output_config", None):
        raise ModelFileError(f"a model file does not hold set_output of {name}; pickle the pipeline")
    kept = (*SCALERS[type(step)], "n_features_in_", "feature_names_in_") if kind == "scaler" else vars(step).keys() - params
    fitted = {key: value for key, value in vars(step).items() if key in kept}
    node = {"params": encoded(params, encoder, f" of this {name}"), "fitted": encoded(fitted, encoder, f" of this {name}")}
    return {"@": kind, "class": name} | node


def _read_step(classes: Any, check_fitted: Callable[[Any, dict[str, Any]], None]) -> Callable[[dict, Decoder], Any]:
    """A reader of steps of these classes (a function that gives them, where they are slow to import)."""

    def read(node: dict, decoder: Decoder) -> Any:
        name = str(node.get("class", TablePreprocessor.__name__))
        cls = classes().get(name)
        check(cls is not None, f"there is no step or map {name[:40]!r} that a model file may name")
        made, fitted = cls(**decoder.decode_items(node.get("params"))), decoder.decode_items(node.get("fitted"))
        check_fitted(made, fitted)
        vars(made).update(fitted)
        return made

    return read


def _check_scaler(step: Any, fitted: dict[str, Any]) -> None:
    step._validate_params()
    name, width = type(step).__name__, fitted.get("n_features_in_")
    kept = fitted.keys() - {"n_features_in_", "feature_names_in_"}
    check(type(width) is int and width > 0 and kept == set(SCALERS[type(step)]), f"the {name} is not readable")
    for key in kept:
        value = fitted[key]
        numbers = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == (width,)
        check(value is None or (numbers and bool(np.isfinite(value).all())), f"{key} of the {name} is not readable")
    if "feature_names_in_" in fitted:
        check(are_names(fitted["feature_names_in_"], width), f"the columns of the {name} have no names")


def _check_transformer(made: Any, fitted: dict[str, Any]) -> None:
    for name in fitted:  # data beside the class, never in place of what it defines
        own = name in PRIVATE or (name.endswith("_") and not name.startswith("_"))
        check(own and not hasattr(type(made), name) and name not in vars(made), f"{name[:40]!r} is nothing that a fit leaves")


def _check_preprocessor(step: Any, fitted: dict[str, Any]) -> None:
    """Names of columns, scales of numeric columns, levels of categorical ones."""
    check(sorted(fitted) == ["feature_names_in_", "levels_", "n_features_in_", "numeric_"], "the preprocessing is not readable")
    names, numeric, levels = fitted["feature_names_in_"], fitted["numeric_"], fitted["levels_"]
    check(are_names(names, fitted["n_features_in_"]), "columns have no names")
    check(isinstance(numeric, dict) and isinstance(levels, dict), "the columns of the preprocessing are not readable")
    check(len(names) == len(set(names.tolist())), "two columns have one name")
    check(isinstance(step.groupings, list | tuple), "the groupings of the preprocessing are not readable")
    known = [*numeric, *levels, *step.labels]
    check(all(isinstance(name, str) for name in known), "the columns of the preprocessing have no names")
    check(sorted(known) == sorted(names), "the columns of the preprocessing do not agree with their names")
    for name, scale in numeric.items():
        good = isinstance(scale, tuple) and len(scale) == 3 and all(type(x) is float and np.isfinite(x) for x in scale)
        check(good and scale[2] > 0, f"the scale of column {name!r} is not readable")
    for name, own in levels.items():
        good = isinstance(own, list) and len(own) > 0 and all(level is None or isinstance(level, str) for level in own)
        check(good and len(set(own)) == len(own), f"the levels of column {name!r} are not readable")


def map_width(feature_map: Any, n_columns: int) -> int:
    """How many features a map gives of rows with so many columns, by the shapes of its arrays."""
    shapes = {Landmarks: _landmarks_shape, **{cls: _MAP_SHAPES[name] for name, cls in _transformers().items()}}
    check(type(feature_map) in shapes, "the map of the model is not readable")
    columns, width = shapes[type(feature_map)](feature_map)
    check(columns == n_columns, f"the map of the model takes {columns} columns, not {n_columns}")
    return width


def try_map(feature_map: Any, n_columns: int, width: int) -> None:
    """A row of zeros, sparse where the map has sparse rows of the fit."""
    rows = getattr(feature_map, "points", getattr(feature_map, "components_", None))
    zeros = csr_array((1, n_columns)) if issparse(rows) else np.zeros((1, n_columns))
    shape = mapped(feature_map, zeros).shape
    check(shape == (1, width), f"the map of the model gives the shape {shape}, not {(1, width)}")


def _landmarks_shape(made: Any) -> tuple[int, int]:
    return made.points.shape[1], made.root.shape[1]


def _fourier_shape(made: Any) -> tuple[int, int]:
    weights, offset, n = made.random_weights_, made.random_offset_, made.n_components
    check(weights.ndim == 2 and offset.shape == weights.shape[1:] == (n,), "the random weights of a map have the wrong shape")
    return weights.shape


def _nystroem_shape(made: Any) -> tuple[int, int]:
    rows, root = made.components_, made.normalization_
    check(rows.ndim == root.ndim == 2 and root.shape[1] == rows.shape[0], "the components of a map have the wrong shape")
    check_threads({"n_jobs": made.n_jobs})
    check_threads(made.kernel_params)
    return rows.shape[1], root.shape[0]


def _sketch_shape(made: Any) -> tuple[int, int]:
    index, bit, n, degree = made.indexHash_, made.bitHash_, made.n_components, made.degree
    good = index.ndim == 2 and index.shape == bit.shape and len(index) == degree and index.dtype.kind == "i"
    check(good and type(n) is int and 0 < n * degree <= BLOCK, "the hashes of a map have the wrong shape")
    check(index.size > 0 and index.min() >= 0 and index.max() < n, "the hashes of a map are out of range")
    return index.shape[1] - (made.coef0 != 0), n


_MAP_SHAPES = {  # of the columns that a map takes, and of the features that it gives
    "Nystroem": _nystroem_shape,
    "PolynomialCountSketch": _sketch_shape,
    "RBFSampler": _fourier_shape,
    "SkewedChi2Sampler": _fourier_shape,
}


def writers() -> dict[type, Callable[[Any, Encoder], Any]]:
    """How to write each class of parts."""
    parts = {cls: _part_writer(kind, names) for kind, (classes, names, _) in PARTS.items() for cls in classes}
    return parts | dict.fromkeys(_transformers().values(), lambda step, encoder: step_node("map", step, encoder))


READERS: dict[str, Callable[[dict, Decoder], Any]] = {
    **{kind: _part_reader(names, make) for kind, (_, names, make) in PARTS.items()},
    "preprocessor": _read_step(lambda: {TablePreprocessor.__name__: TablePreprocessor}, _check_preprocessor),
    "scaler": _read_step(lambda: {cls.__name__: cls for cls in SCALERS}, _check_scaler),
    "map": _read_step(_transformers, _check_transformer),
}
