"""Maps of approximate kernels in model files: ours, and those of scikit-learn's transformers that are nothing but numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...features.approximate import Landmarks, mapped
from ...features.kernels import entries
from ...persistence import Decoder, Encoder
from ...persistence.decode import check

TRANSFORMERS = ("Nystroem", "PolynomialCountSketch", "RBFSampler", "SkewedChi2Sampler")
PRIVATE = ("_gamma", "_n_features_out")  # what a fit of theirs leaves besides names that end in an underscore


def _transformers() -> dict[str, type]:
    from sklearn import kernel_approximation  # slow: only for files

    return {name: getattr(kernel_approximation, name) for name in TRANSFORMERS}


def map_writers() -> dict[type, Callable[[Any, Encoder], Any]]:
    """How to write each kind of map; a transformer may also be an unfitted parameter."""
    return {Landmarks: _landmarks} | dict.fromkeys(_transformers().values(), _transformer)


def _landmarks(value: Landmarks, encoder: Encoder) -> dict[str, Any]:
    names = ("points", "root", "kernel", "parameters")
    return {"@": "landmarks"} | {name: encoder.encode(getattr(value, name), f"{name} of the landmarks") for name in names}


def _transformer(value: Any, encoder: Encoder) -> dict[str, Any]:
    name, params = type(value).__name__, value.get_params(deep=False)
    fitted = {key: entry for key, entry in vars(value).items() if key not in params}
    parts = {"params": params, "fitted": fitted}
    return {"@": "map", "class": name} | {
        part: {key: encoder.encode(entry, f"{key} of {name}") for key, entry in values.items()}
        for part, values in parts.items()
    }


def read_landmarks(node: dict, decoder: Decoder) -> Landmarks:
    made: Any = object.__new__(Landmarks)  # its parts are here: decomposing again would cost, and move last bits
    made.points, made.root = decoder.decode(node.get("points")), decoder.decode(node.get("root"))
    made.kernel, made.parameters = decoder.decode(node.get("kernel")), decoder.decode(node.get("parameters"))
    whole = all(getattr(part, "ndim", 0) == 2 and np.isfinite(entries(part)).all() for part in (made.points, made.root))
    check(whole and made.points.shape[0] == made.root.shape[0], "the landmarks are not readable")
    check(isinstance(made.parameters, dict), "the landmarks have no kernel")
    return made


def read_transformer(node: dict, decoder: Decoder) -> Any:
    cls = _transformers().get(str(node.get("class")))
    check(cls is not None, f"there is no map {str(node.get('class'))[:40]!r} that a model file may name")
    made = cls(**decoder.decode_items(node.get("params")))  # type: ignore[misc]
    fitted = decoder.decode_items(node.get("fitted"))
    for name in fitted:  # data beside the class, never in place of what it defines
        own = name in PRIVATE or (name.endswith("_") and not name.startswith("_"))
        check(own and not hasattr(cls, name) and name not in vars(made), f"{name[:40]!r} is nothing that a fit leaves")
    for name, value in fitted.items():
        setattr(made, name, value)
    return made


def map_width(feature_map: Any, n_columns: int) -> int:
    """How many features a map gives, tried on a row of zeros."""
    check(isinstance(feature_map, (Landmarks, *_transformers().values())), "the map of the model is not readable")
    return mapped(feature_map, np.zeros((1, n_columns))).shape[1]
