"""Estimators to files and back: what a fit keeps, as data; nothing of it can run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from taskloom import __version__

from ...features.approximate import MappedFeatures
from ...features.kernels import KernelFeatures, LinearFeatures
from ...persistence import Decoder, Encoder, ModelFileError, read, write
from ...persistence.decode import check
from ...problem.solution import Certificate
from ...structures.factored_matrix import FactoredStructure
from ...tables.preprocessing import TablePreprocessor
from ..cross_validation.results import SearchResult
from ..fitted import FittedState, Kernel, Training, saved_fields
from ..target_encoding import TargetScale
from .checks import check_fitted, check_preprocessor, check_training
from .kernel_maps import map_writers, read_landmarks, read_transformer
from .scalers import SCALERS, read_scaler, scaler_node

CERTIFICATE = tuple(column.name for column in fields(Certificate))
OBSERVATIONS = ("row", "task", "y", "weight")


def save(model: Any, path: str | os.PathLike, *, training: bool = True) -> None:
    """Write a fitted estimator, or a pipeline of one after a :class:`TablePreprocessor` or scikit-learn's scalers, to a file.

    Parameters
    ----------
    model : fitted estimator or Pipeline
        What to write.
    path : str or path
        Where the file is to be.
    training : bool, default=True
        As in the estimators' ``save``.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import taskloom
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> model = taskloom.MultiTaskRegressor().fit(X, X[:, :2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "m.taskloom"))
    ...     again = taskloom.load(os.path.join(folder, "m.taskloom"))
    >>> bool(np.array_equal(again.predict(X), model.predict(X)))
    True
    """
    ours: dict[type, Any] = {Certificate: _certificate, TargetScale: _scale, FactoredStructure: _factored}
    encoder = Encoder(ours | map_writers() | {type(np.dtype(t)): _dtype for t in ("f4", "f8")})
    if isinstance(model, Pipeline):
        kept = [(name, step) for name, step in model.steps if step not in (None, "passthrough")]
        *first, last = (step for _, step in kept)
        if not (first and all(type(step) in (TablePreprocessor, *SCALERS.values()) for step in first)):
            raise ModelFileError(
                "a model file holds an estimator, or a pipeline of an estimator after a TablePreprocessor or scalers "
                f"({', '.join(SCALERS)}); got the steps {[type(step).__name__ for _, step in kept]}. Save the last step alone, "
                "or pickle the pipeline"
            )
        nodes = [
            _preprocessor(step, encoder) if type(step) is TablePreprocessor else scaler_node(step, encoder) for step in first
        ]
        tree = {"@": "pipeline", "names": [name for name, _ in kept], "steps": [*nodes, _estimator(last, encoder, training)]}
    else:
        tree = _estimator(model, encoder, training)
    write(path, tree, encoder.arrays, f"taskloom {__version__}")


def load(path: str | os.PathLike) -> Any:
    """Read a model from a file that ``save`` wrote; its predictions are the same to the last bit.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    estimator or Pipeline
        The model, fitted.

    Raises
    ------
    ModelFileError
        A ``ValueError`` that says in one sentence what is wrong with the file.
    """
    tree, arrays, _ = read(path)
    try:
        check(isinstance(tree, dict) and tree.get("@") in ("estimator", "pipeline"), "it holds no model")
        return Decoder(arrays, READERS).decode(tree)
    except (ImportError, MemoryError):
        raise
    except ModelFileError as error:
        raise ModelFileError(f"{path} is not usable: {error}") from None
    except Exception as error:  # whatever a wrong description makes a constructor do
        reason = (str(error).splitlines() or [""])[0][:300]
        if not isinstance(error, ValueError):  # a refusal is a sentence already
            reason = f"its parts do not fit together ({type(error).__name__}: {reason})"
        raise ModelFileError(f"{path} is not usable: {reason}") from error


def _estimators() -> dict[str, type]:
    from .. import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV

    return {cls.__name__: cls for cls in (MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV)}


# --- to JSON ------------------------------------------------------------------------------------------------------------


def _estimator(model: Any, encoder: Encoder, training: bool) -> dict[str, Any]:
    cls = type(model)
    if _estimators().get(cls.__name__) is not cls:
        raise ModelFileError(f"a model file holds an estimator of taskloom, not one of type {cls.__name__}; pickle it")
    check_is_fitted(model)
    state, search = model._state, vars(model).get("_search")
    found = {name: getattr(part, each.name) for part in (state, search) if part for name, each in saved_fields(part)}
    found = {name: value for name, value in found.items() if value is not None} | {"_pulls": state.contributions}
    params = model.get_params(deep=False)
    node: dict[str, Any] = {
        "@": "estimator",
        "class": cls.__name__,
        "params": {name: encoder.encode(value, f"{name} of this {cls.__name__}") for name, value in params.items()},
        "fitted": {name: encoder.encode(value, f"{name} of this {cls.__name__}") for name, value in found.items()},
    }
    kept = None if state.added_tasks_ else state.training
    if kept is None and not state.training_left_out:
        node["training"] = None
    elif kept is not None and training and isinstance(kept.features, (LinearFeatures, KernelFeatures)):
        node["training"] = _training(kept, state.scale, encoder)
    return node


def _preprocessor(step: TablePreprocessor, encoder: Encoder) -> dict[str, Any]:
    check_is_fitted(step, "numeric_")
    params = step.get_params()
    fitted = {name: value for name, value in vars(step).items() if name not in params}
    return {
        "@": "preprocessor",
        "params": {name: encoder.encode(value, name) for name, value in params.items()},
        "fitted": {name: encoder.encode(value, name) for name, value in fitted.items()},
    }


def _certificate(value: Certificate, encoder: Encoder) -> dict[str, Any]:
    return {"@": "certificate"} | {name: encoder.encode(getattr(value, name), name) for name in CERTIFICATE}


def _scale(value: TargetScale, encoder: Encoder) -> dict[str, Any]:
    return {"@": "scale", "mean": encoder.encode(value.mean, "mean"), "spread": encoder.encode(value.std, "spread")}


def _factored(value: FactoredStructure, encoder: Encoder) -> dict[str, Any]:
    return {"@": "factored", "L": encoder.encode(value.L, "L"), "own": encoder.encode(value.own, "own")}


def _dtype(value: np.dtype, _: Encoder) -> dict[str, Any]:
    return {"@": "dtype", "name": value.name}


def _training(training: Training, scale: TargetScale, encoder: Encoder) -> dict[str, Any]:
    """What ``return_std`` needs: the problem, its features and its solution."""

    def node(values: dict[str, Any]) -> dict[str, Any]:
        return {name: encoder.encode(value, f"{name} of the training data") for name, value in values.items()}

    seen = training.observations
    return {
        "inputs": encoder.encode(training.inputs, "training inputs"),
        "features": _features(training.features, node),
        "observations": node({name: getattr(seen, name) for name in OBSERVATIONS}),
        "problem": node(training.settings),
        "scale": encoder.encode(scale, "scale"),
        "solution": node({"W": training.W, "b": training.b, "A": training.A}),
    }


def _features(features: Any, node: Any) -> dict[str, Any]:
    if isinstance(features, KernelFeatures):
        return {"kind": "kernel"} | node({"U": features.U, "phi": features.phi, "inverse_root": features.inverse_root})
    kernel = None if features.kernel is None else _features(features.kernel, node)
    return {"kind": "linear", "kernel": kernel} | node({"X": features.X, "phi": features.phi, "basis": features.basis})


# --- and back -------------------------------------------------------------------------------------------------------------


def _read_estimator(node: dict, decoder: Decoder) -> Any:
    cls = _estimators().get(str(node.get("class")))
    check(cls is not None, f"there is no estimator {str(node.get('class'))[:40]!r} that a model file may name")
    model = cls(**decoder.decode_items(node.get("params")))  # type: ignore[misc]
    model._validate_params()
    state, search = _read_fitted(model, decoder.decode_items(node.get("fitted")))
    if node.get("training") is not None:
        training, scale = _read_training(node["training"], decoder, state.feature_map_)
        check_training(model, state, training, scale)
        state = replace(state, training=training)
    model._state = replace(state, training_left_out="training" not in node)
    if search is not None:
        model._search = search
    return model


def _read_fitted(model: Any, found: dict[str, Any]) -> tuple[FittedState, SearchResult | None]:
    """What a fit left, checked: the names must be those of fields, and their values fit together."""
    searched = "alphas" in model.get_params(deep=False)
    own: dict[str, dict[str, Any]] = {"state": {}, "search": {}}
    names = {name: ("state", each.name) for name, each in saved_fields(FittedState)}
    names |= {name: ("search", each.name) for name, each in saved_fields(SearchResult)} if searched else {}
    for name, value in found.items():
        check(name in names, f"{name[:40]!r} is nothing that a fit leaves")
        holder, key = names[name]
        own[holder][key] = value
    kernel = Kernel(model.kernel, model.gamma, model.degree, model.coef0)
    alpha = own["search"].get("alpha_") if searched else model.alpha
    check_fitted(model, kernel, own["state"], own["search"] if searched else None)
    state = FittedState(**own["state"], kernel=kernel, alpha=float(alpha), ridge=float(model.ridge))  # type: ignore[arg-type]
    return state, SearchResult(**own["search"]) if searched else None


def _read_training(node: Any, decoder: Decoder, feature_map: Any) -> tuple[Training, Any]:
    check(isinstance(node, dict), "the training data are not readable")
    inputs = decoder.decode(node.get("inputs"))
    features = _read_features(node.get("features"), decoder, feature_map)
    solution = decoder.decode_items(node.get("solution"))
    seen = decoder.decode_items(node.get("observations"))
    check(sorted(seen) == sorted(OBSERVATIONS), "the observations are not readable")
    check({"W", "b", "A"} <= solution.keys(), "the training data have no solution")
    training = Training(
        inputs=inputs,
        features=features,
        **seen,
        settings=decoder.decode_items(node.get("problem")),
        **{name: solution[name] for name in ("W", "b", "A")},
    )
    return training, decoder.decode(node.get("scale"))


def _read_features(node: Any, decoder: Decoder, feature_map: Any = None) -> Any:
    check(isinstance(node, dict), "the features are not readable")
    parts = decoder.decode_items({name: value for name, value in node.items() if name not in ("kind", "kernel")})
    if node.get("kind") == "kernel":
        features: Any = object.__new__(KernelFeatures)  # its parts are here: decomposing again would cost, and move last bits
        features.U, features.phi, features.inverse_root = parts["U"], parts["phi"], parts["inverse_root"]
        features.n_inputs = features.U.shape[0]
        return features
    check(node.get("kind") == "linear", "the features are of an unknown kind")
    features = object.__new__(LinearFeatures if feature_map is None else MappedFeatures)
    if feature_map is not None:
        features.map, features.error = feature_map, None
    features.X, features.phi, features.basis = parts["X"], parts["phi"], parts["basis"]
    features.kernel = None if node.get("kernel") is None else _read_features(node["kernel"], decoder)
    features.n_inputs = features.X.shape[1]
    return features


def _read_certificate(node: dict, decoder: Decoder) -> Certificate:
    values = {name: decoder.decode(node.get(name)) for name in CERTIFICATE}
    for name, value in values.items():
        kind = str if name in ("status", "message") else float
        good = isinstance(value, kind) or (value is None and name not in ("primal", "dual", "gap", "relative_gap"))
        check(good, f"the certificate has no {name}")
    return Certificate(**values)


def _read_scale(node: dict, decoder: Decoder) -> TargetScale:
    return TargetScale(decoder.decode(node.get("mean")), decoder.decode(node.get("spread")))


def _read_factored(node: dict, decoder: Decoder) -> FactoredStructure:
    L, own = decoder.decode(node.get("L")), decoder.decode(node.get("own"))
    numbers = all(isinstance(part, np.ndarray) and part.dtype.kind == "f" and np.isfinite(part).all() for part in (L, own))
    check(numbers and L.ndim == 2 and own.shape == L.shape[:1] and L.dtype == own.dtype, "a factored structure is not readable")
    return FactoredStructure(L, own)


def _read_dtype(node: dict, _: Decoder) -> np.dtype:
    check(node.get("name") in ("float32", "float64"), "the model is of an unknown precision")
    return np.dtype(node["name"])


def _read_preprocessor(node: dict, decoder: Decoder) -> TablePreprocessor:
    step = TablePreprocessor(**decoder.decode_items(node.get("params")))
    fitted = decoder.decode_items(node.get("fitted"))
    check(sorted(fitted) == ["feature_names_in_", "levels_", "n_features_in_", "numeric_"], "the preprocessing is not readable")
    for name, value in fitted.items():
        setattr(step, name, value)
    check_preprocessor(step)
    return step


def _read_pipeline(node: dict, decoder: Decoder) -> Pipeline:
    names, nodes = node.get("names"), node.get("steps")
    check(isinstance(names, list) and isinstance(nodes, list) and len(names) == len(nodes) > 1, "the pipeline is not readable")
    check(all(isinstance(name, str) for name in names), "the steps of the pipeline have no names")  # type: ignore[union-attr]
    kinds = [step.get("@") if isinstance(step, dict) else None for step in nodes]  # type: ignore[union-attr]
    right = all(kind in ("preprocessor", "scaler") for kind in kinds[:-1]) and kinds[-1] == "estimator"
    check(right, "the pipeline has the wrong steps")
    steps = [decoder.decode(step) for step in nodes]  # type: ignore[union-attr]
    for first, then in pairwise(steps):
        check(_passes_on(first, then), "the columns that a step of the pipeline gives are not those that the next one takes")
    return Pipeline(list(zip(names, steps, strict=True)))  # type: ignore[arg-type]


def _passes_on(first: Any, then: Any) -> bool:
    """Whether one step takes what the other gives: columns by name of a preprocessor, as many of a scaler."""
    if isinstance(first, TablePreprocessor):
        return first.get_feature_names_out().tolist() == getattr(then, "feature_names_in_", np.zeros(0)).tolist()
    return first.n_features_in_ == then.n_features_in_


READERS: dict[str, Callable[[dict, Decoder], Any]] = {
    "estimator": _read_estimator,
    "pipeline": _read_pipeline,
    "preprocessor": _read_preprocessor,
    "scaler": read_scaler,
    "certificate": _read_certificate,
    "scale": _read_scale,
    "factored": _read_factored,
    "dtype": _read_dtype,
    "landmarks": read_landmarks,
    "map": read_transformer,
}
