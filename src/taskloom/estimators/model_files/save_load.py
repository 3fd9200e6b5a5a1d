"""Estimators to files and back: what a fit keeps, as data; nothing of it can run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from taskloom import __version__

from ...features.approximate import MappedFeatures
from ...features.kernels import KernelFeatures, LinearFeatures
from ...persistence import Decoder, Encoder, ModelFileError, limits, read, write
from ...persistence.refusal import check
from ...tables.preprocessing import TablePreprocessor
from ..cross_validation.results import SearchResult
from ..fitted import FittedState, Training, saved_fields
from ..target_encoding import TargetScale
from .checks import check_fitted, check_training
from .stored_parts import READERS as PART_READERS
from .stored_parts import SCALERS, encoded, step_node, writers
from .stored_terms import check_rows

OBSERVATIONS, SOLUTION = ("row", "task", "y", "weight"), ("W", "b", "A")
KERNEL, LINEAR = ("U", "phi", "inverse_root"), ("X", "phi", "basis")  # parts of features


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
    encoder = Encoder(writers())
    if isinstance(model, Pipeline):
        kept = [(name, step) for name, step in model.steps if step not in (None, "passthrough")]
        *first, last = (step for _, step in kept)
        if not (first and all(type(step) in (TablePreprocessor, *SCALERS) for step in first)):
            raise ModelFileError(
                "a model file holds an estimator, or a pipeline of an estimator after a TablePreprocessor or scalers "
                f"({', '.join(cls.__name__ for cls in SCALERS)}); got the steps {[type(step).__name__ for _, step in kept]}. "
                "Save the last step alone, or pickle the pipeline"
            )
        nodes = []
        for step in first:
            check_is_fitted(step)
            nodes.append(step_node("preprocessor" if type(step) is TablePreprocessor else "scaler", step, encoder))
        tree = {"@": "pipeline", "names": [name for name, _ in kept], "steps": [*nodes, _estimator(last, encoder, training)]}
    else:
        tree = _estimator(model, encoder, training)
    try:
        limits.check_saved(tree, encoder.arrays)
    except ModelFileError as error:
        raise ModelFileError(f"this model is too much for a model file: {error}; pickle it") from None
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
    for labels in (state.tasks_, *(term.levels for term in state.fitted_terms or () if term.levels is not None)):
        limits.check_keys(labels.tolist())
    found = {name: getattr(part, each.name) for part in (state, search) if part for name, each in saved_fields(part)}
    found = {name: value for name, value in found.items() if value is not None} | {"_pulls": state.contributions}
    of = f" of this {cls.__name__}"
    node: dict[str, Any] = {"@": "estimator", "class": cls.__name__}
    node |= {"params": encoded(model.get_params(deep=False), encoder, of), "fitted": encoded(found, encoder, of)}
    kept = None if state.added_tasks_ else state.training
    if kept is None and not state.training_left_out:
        node["training"] = None
    elif kept is not None and training and isinstance(kept.features, (LinearFeatures, KernelFeatures)):
        node["training"] = _training(kept, state.scale, encoder)
    if training and state.term_rows is not None:
        node["rows"] = encoder.encode(state.term_rows, "rows of the fit")
    return node


def _training(training: Training, scale: TargetScale, encoder: Encoder) -> dict[str, Any]:
    """What ``return_std`` needs: the problem, its features and its solution."""

    def node(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
        return encoded({name: getattr(value, name) for name in names}, encoder, " of the training data")

    def features(value: Any) -> dict[str, Any]:
        if isinstance(value, KernelFeatures):
            return {"kind": "kernel"} | node(value, KERNEL)
        return {"kind": "linear", "kernel": None if value.kernel is None else features(value.kernel)} | node(value, LINEAR)

    return {
        "inputs": encoder.encode(training.inputs, "training inputs"),
        "features": features(training.features),
        "observations": node(training.observations, OBSERVATIONS),
        "problem": encoded(training.settings, encoder, " of the training data"),
        "scale": encoder.encode(scale, "scale"),
        "solution": node(training, SOLUTION),
    }


# --- and back -------------------------------------------------------------------------------------------------------------


def _read_estimator(node: dict, decoder: Decoder) -> Any:
    cls = _estimators().get(str(node.get("class")))
    check(cls is not None, f"there is no estimator {str(node.get('class'))[:40]!r} that a model file may name")
    model = cls(**decoder.decode_items(node.get("params")))  # type: ignore[misc]
    model._validate_params()
    found = decoder.decode_items(node.get("fitted"))  # the names must be those of fields, and their values fit together
    kinds: tuple[type, ...] = (FittedState, SearchResult) if "alphas" in model.get_params(deep=False) else (FittedState,)
    own = [{each.name: found.pop(name) for name, each in saved_fields(kind) if name in found} for kind in kinds]
    check(not found, f"{next(iter(found), '')[:40]!r} is nothing that a fit leaves")
    fitted, search = own[0], own[1] if len(own) > 1 else None
    kernel = model._kernel()
    if search is not None and search.get("best_kernel_") is not None:
        kernel = replace(kernel, kernel=search["best_kernel_"], gamma=search.get("best_gamma_", kernel.gamma))
    if "gamma_" in fitted:
        kernel = replace(kernel, gamma=fitted["gamma_"], gamma_from_inputs=True)
    check_fitted(model, kernel, fitted, search)
    alpha = model.alpha if search is None else search["alpha_"]
    state = FittedState(**fitted, kernel=kernel, alpha=float(alpha), ridge=float(model.ridge))
    if node.get("training") is not None:
        training, scale = _read_training(node["training"], decoder, state.feature_map_)
        check_training(model, state, training, scale)
        state = replace(state, training=training)
    if node.get("rows") is not None:
        state = replace(state, term_rows=decoder.decode(node["rows"]))
        check_rows(state, state.term_rows)
    model._state = replace(state, training_left_out="training" not in node)
    if search is not None:
        model._search = SearchResult(**{"best_structure_": None} | search)  # terms have structures of their own
    return model


def _read_training(node: Any, decoder: Decoder, feature_map: Any) -> tuple[Training, Any]:
    check(isinstance(node, dict), "the training data are not readable")
    seen, solution = decoder.decode_items(node.get("observations")), decoder.decode_items(node.get("solution"))
    check(sorted(seen) == sorted(OBSERVATIONS), "the observations are not readable")
    check(set(SOLUTION) <= solution.keys(), "the training data have no solution")
    training = Training(
        inputs=decoder.decode(node.get("inputs")),
        features=_read_features(node.get("features"), decoder, feature_map),
        settings=decoder.decode_items(node.get("problem")),
        **seen,
        **{name: solution[name] for name in SOLUTION},
    )
    return training, decoder.decode(node.get("scale"))


def _read_features(node: Any, decoder: Decoder, feature_map: Any = None) -> Any:
    """Features of their parts, which are here: decomposing again would cost, and move last bits."""
    check(isinstance(node, dict) and node.get("kind") in ("kernel", "linear"), "the features are of an unknown kind")
    parts = decoder.decode_items({name: value for name, value in node.items() if name not in ("kind", "kernel")})
    if node["kind"] == "kernel":
        features: Any = object.__new__(KernelFeatures)
        vars(features).update({name: parts[name] for name in KERNEL}, n_inputs=parts["U"].shape[0])
        return features
    features = object.__new__(LinearFeatures if feature_map is None else MappedFeatures)
    kernel = None if node.get("kernel") is None else _read_features(node["kernel"], decoder)
    more = {} if feature_map is None else {"map": feature_map, "error": None}
    vars(features).update({name: parts[name] for name in LINEAR}, n_inputs=parts["X"].shape[1], kernel=kernel, **more)
    return features


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
    if isinstance(first, TablePreprocessor):  # name by name: a long one times many levels is more than the file
        taken = getattr(then, "feature_names_in_", np.zeros(0)).tolist()
        return all(gives == takes for gives, takes in zip_longest(first.names_out(), taken))
    return first.n_features_in_ == then.n_features_in_


READERS: dict[str, Callable[[dict, Decoder], Any]] = {"estimator": _read_estimator, "pipeline": _read_pipeline, **PART_READERS}
