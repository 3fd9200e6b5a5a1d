"""scikit-learn's scalers in model files: what each column was shifted and divided by."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from ...persistence import Decoder, Encoder, ModelFileError
from ...persistence.decode import check

SCALERS: dict[str, type] = {cls.__name__: cls for cls in (MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler)}
# What transforming needs; how many rows were seen, which only ``partial_fit`` asks for, stays behind.
FITTED = {
    "MaxAbsScaler": ("scale_", "max_abs_"),
    "MinMaxScaler": ("min_", "scale_", "data_min_", "data_max_", "data_range_"),
    "RobustScaler": ("center_", "scale_"),
    "StandardScaler": ("mean_", "var_", "scale_"),
}


def scaler_node(step: Any, encoder: Encoder) -> dict[str, Any]:
    """A fitted scaler as JSON."""
    check_is_fitted(step)
    name = type(step).__name__
    if getattr(step, "_sklearn_output_config", None):
        raise ModelFileError(f"a model file does not hold set_output of {name}; pickle the pipeline")
    fitted: dict[str, Any] = {key: getattr(step, key) for key in FITTED[name]} | {"n_features_in_": step.n_features_in_}
    if hasattr(step, "feature_names_in_"):
        fitted["feature_names_in_"] = step.feature_names_in_
    return {
        "@": "scaler",
        "class": name,
        "params": {key: encoder.encode(value, f"{key} of this {name}") for key, value in step.get_params().items()},
        "fitted": {key: encoder.encode(value, f"{key} of this {name}") for key, value in fitted.items()},
    }


def read_scaler(node: dict, decoder: Decoder) -> Any:
    """The scaler of a node, checked: a file may say anything."""
    name = node.get("class")
    check(isinstance(name, str) and name in SCALERS, "a step of the pipeline is of an unknown class")
    step = SCALERS[str(name)](**decoder.decode_items(node.get("params")))
    step._validate_params()
    fitted = decoder.decode_items(node.get("fitted"))
    width, names = fitted.pop("n_features_in_", None), fitted.pop("feature_names_in_", None)
    check(type(width) is int and width > 0 and set(fitted) == set(FITTED[str(name)]), f"the {name} is not readable")
    for key, value in fitted.items():
        numbers = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == (width,)
        check(value is None or (numbers and bool(np.isfinite(value).all())), f"{key} of the {name} is not readable")
    if names is not None:
        strings = isinstance(names, np.ndarray) and names.shape == (width,) and all(isinstance(each, str) for each in names)
        check(strings, f"the columns of the {name} have no names")
        fitted["feature_names_in_"] = names
    for key, value in (fitted | {"n_features_in_": width}).items():
        setattr(step, key, value)
    return step
