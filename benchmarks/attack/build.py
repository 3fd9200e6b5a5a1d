"""From a description to data and an estimator, and the same instance told in other words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from taskloom import MultiTaskClassifier, MultiTaskRegressor, losses, structures

from . import users
from .draw import LABELS, ROWS, Description

Array = np.ndarray
GIVEN_SIZE = ("independent", "fixed", "shared_mean", "task_graph", "output_metric", "output_code", "clusters", "unit_trace",
              "learned_graph", "sparse_precision")  # fmt: skip


class LogCosh:
    """``log cosh((z - y) / width)`` as a user would write it."""

    of_differences = True

    def __init__(self, width):
        self.width, self.max_curvature = width, 1 / width**2

    def value(self, y, z):
        r = (z - y) / self.width
        return np.logaddexp(r, -r) - np.log(2)

    def gradient(self, y, z):
        return np.tanh((z - y) / self.width) / self.width


def quadratic_kernel(X, Z, gamma):
    """``(gamma x'z + 1)^2`` as a user would write it."""
    return (gamma * (X @ Z.T) + 1) ** 2


class TraceAndSize:
    """``tr A + ||A||^2 / 2`` as a user would write it."""

    def value(self, A):
        return float(np.trace(A) + np.vdot(A, A) / 2)

    def prox(self, A, step):
        a, V = np.linalg.eigh(A)
        return (V * np.maximum((a - step) / (1 + step), 0.0)) @ V.T


@dataclass(frozen=True, eq=False)
class Instance:
    """Data in the units of the description, and what to do with them. ``Y`` is ``n x T``, NaN where unobserved."""

    X: Array
    Y: Array
    weight: Array | None  # n x T, or n for losses of whole rows
    task_weight: Any  # a name, or one number for each task
    losses: list[dict[str, Any]]  # of each task
    structure: dict[str, Any]
    kernel: Any
    gamma: float
    alpha: float
    ridge: float
    fit_intercept: bool
    solver: str
    long: bool
    sparse: bool = False

    # --- the same in other words --------------------------------------------------------------------------------

    def with_tasks(self, order: Array) -> Instance:
        """Tasks in another order, or some of them."""
        weight = self.weight if self.weight is None or self.weight.ndim == 1 else self.weight[:, order]
        c = self.task_weight if isinstance(self.task_weight, str) else self.task_weight[order]
        structure = dict(self.structure)
        for name in ("A", "adjacency", "theta"):
            if name in structure:
                structure[name] = structure[name][np.ix_(order, order)]
        if "L" in structure:
            structure["L"] = structure["L"][:, order]
        return replace(
            self, Y=self.Y[:, order], weight=weight, task_weight=c, structure=structure, losses=[self.losses[t] for t in order]
        )

    def with_rows(self, order: Array) -> Instance:
        """Rows in another order, or some of them."""
        X = self.X[np.ix_(order, order)] if self.kernel == "precomputed" else self.X[order]
        return replace(self, X=X, Y=self.Y[order], weight=None if self.weight is None else self.weight[order])

    def by_observation(self) -> Instance:
        """With a row for each observation, as a long table has."""
        row, task = self.seen
        one = task[:, None] == np.arange(self.Y.shape[1])
        weight = None if self.weight is None else self.weight[row]
        return replace(self, X=self.X[row], Y=np.where(one, self.Y[row], np.nan), weight=weight)

    # --- estimators ---------------------------------------------------------------------------------------------

    @property
    def seen(self) -> tuple[Array, Array]:
        """Row and task of each observation, row by row."""
        return np.nonzero(~np.isnan(self.Y))

    @property
    def whole_rows(self) -> bool:
        return self.losses[0]["name"] in ROWS

    def estimator(self, **settings: Any) -> Any:
        names = {loss["name"] for loss in self.losses}
        kind = MultiTaskClassifier if names <= {*LABELS, *ROWS} else MultiTaskRegressor
        loss = a_loss(self.losses[0])
        if len({str(loss) for loss in self.losses}) > 1:
            loss = {t: a_loss(loss) for t, loss in enumerate(self.losses)}
        return kind(
            a_structure(self.structure),
            loss=loss,
            kernel=partial(quadratic_kernel, gamma=self.gamma) if self.kernel == "callable" else self.kernel,
            gamma=self.gamma,
            alpha=self.alpha,
            ridge=self.ridge,
            fit_intercept=self.fit_intercept,
            task_weight=self.task_weight,
            task_column=-1 if self.long else None,
            **{"solver": self.solver, **settings},
        )

    def inputs(self) -> Array:
        """What ``predict`` takes: with the task as the last column in a long table."""
        if not self.long:
            return csr_array(self.X) if self.sparse else self.X
        row, task = self.seen
        return np.column_stack([self.X[row], task.astype(self.X.dtype)])

    def table(self) -> tuple[Array, Array, Array | None]:
        """What ``fit`` takes: inputs, targets and weights, with a row for each observation in a long table."""
        row, task = self.seen
        if self.whole_rows:
            return self.inputs(), np.argmax(self.Y, axis=1), self.weight
        if self.long:
            return self.inputs(), self.Y[row, task], None if self.weight is None else self.weight[row, task]
        if self.Y.shape[1] == 1:  # a column in place of a vector is worth a warning to scikit-learn
            return self.inputs(), self.Y[:, 0], None if self.weight is None else self.weight[:, 0]
        return self.inputs(), self.Y, self.weight

    def fit(self, **settings: Any) -> Any:
        X, y, weight = self.table()
        return self.estimator(**settings).fit(X, y, sample_weight=weight)


def a_loss(spec: dict[str, Any]) -> Any:
    parameters = {name: value for name, value in spec.items() if name != "name"}
    if "fault" in spec:
        return losses.CustomLoss(users.WrongLoss(**spec))
    if spec["name"] == "log_cosh":
        return losses.CustomLoss(LogCosh(**parameters))
    return losses.as_loss(_named(losses, spec["name"], parameters))


def a_structure(spec: dict[str, Any]) -> Any:
    parameters = {name: value for name, value in spec.items() if name != "name"}
    if spec["name"] == "custom":
        return structures.CustomStructure(users.WrongStructure(**spec) if "fault" in spec else TraceAndSize())
    if spec["name"] == "constrained":
        return structures.CustomStructure(partial(users.constrained, what=spec["what"], bound=spec["bound"]))
    if spec["name"] == "sum":
        return structures.Frobenius() + parameters["weight"] * structures.Sparse(parameters["l1"])
    name = {"sparse_log_det": "log_det"}.get(spec["name"], spec["name"])
    return _named(structures, name, parameters)


def _named(module: Any, name: str, parameters: dict[str, Any]) -> Any:
    return getattr(module, "".join(word.capitalize() for word in name.split("_")))(**parameters)


# --- the data ---------------------------------------------------------------------------------------------------


def build(about: Description) -> Instance:
    """The instance that a description stands for."""
    rng = np.random.default_rng([about["seed"], about["k"], 1])
    n, d, T = about["n"], about["d"], about["T"]
    X = rng.normal(size=(n, d))
    Y = (
        X @ rng.normal(size=(d, 2)) @ rng.normal(size=(2, T)) / np.sqrt(d)
        + rng.normal(size=(n, T)) * rng.choice([0.1, 1.0])
        + 0.5
    )
    X, Y = _with_faults(about, rng, X, Y)
    specs = [_loss_spec(about, t) for t in range(T)]
    Y = _labels(about, specs, Y)
    Y = _with_holes(about, rng, specs, Y)
    weight = _weights(about, rng, Y)
    c: Any = about["task_weight"]
    c = rng.uniform(0.3, 3, size=T) if c == "given" else c
    X = (X * 10.0 ** about["scale_x"]).astype(about["dtype"])
    Y = Y * 10.0 ** about["scale_y"]
    kernel: Any = about["kernel"]
    kernel = ["linear", "rbf"] if kernel == "linear+rbf" else kernel
    if kernel == "precomputed":
        X = X @ X.T
    if kernel in ("chi2", "additive_chi2"):
        X = np.abs(X)
    units = (1 if kernel == "chi2" else 2) * about["scale_x"]
    gamma = float(np.clip(about["gamma"] / d / 10.0**units, 1e-290, 1e290))
    structure = _structure_spec(about, rng, T)
    instance = Instance(
        X, Y, weight, c, specs, structure, kernel, gamma, 1.0, 0.0, about["fit_intercept"], about["solver"], False,
        about.get("sparse", False),
    )  # fmt: skip
    instance = _dropped(instance, about["drop"])
    size = np.longdouble(10) ** about["strength"] * _reference(instance)
    alpha = about.get("alpha") or float(np.clip(size, 1e-300, 1e300))
    ridge = float(np.clip(np.longdouble(about["ridge"]) * size, 0, 1e300))
    instance = replace(instance, alpha=alpha, ridge=ridge, long=about["layout"] == "long")
    return _moved(instance, about["offset_x"], about["offset_y"]) if "offset_x" in about else instance


def _moved(instance: Instance, x: float, y: float) -> Instance:
    """The same far from zero; inputs keep their type, in which their differences are a few units."""
    return replace(instance, X=(instance.X.astype(float) + x).astype(instance.X.dtype), Y=instance.Y + y)


def _with_faults(about: Description, rng: np.random.Generator, X: Array, Y: Array) -> tuple[Array, Array]:
    n, d, T = about["n"], about["d"], about["T"]
    for fault in about["faults"]:
        i, j, t = int(rng.integers(n)), int(rng.integers(d)), int(rng.integers(T))
        if fault == "repeated rows":
            X[: n // 2] = X[i]
        elif fault == "constant column":
            X[:, j] = 3.0
        elif fault == "zero column":
            X[:, j] = 0.0
        elif fault == "collinear":
            X[:, j] = 2 * X[:, 0]
        elif fault == "nearly collinear":
            X[:, j] = X[:, 0] + 1e-9 * X[:, j]
        elif fault == "inputs far from zero":
            X = X + 1e4
        elif fault == "targets far from zero":
            Y = Y + 1e4
        elif fault == "constant task":
            Y[:, t] = 7.0
        elif fault == "twin tasks":
            Y[:, t] = Y[:, 0]
        elif fault == "zero targets":
            Y = 0 * Y
        elif fault == "outlier":
            Y[i, t] = 1e6
        elif fault == "columns of other sizes":
            X = X * 10.0 ** rng.integers(-5, 6, size=d)
    return X, Y


def _loss_spec(about: Description, t: int) -> dict[str, Any]:
    name, u = about["loss"], about["parameter"]
    if name == "mixed":
        name = ("squared", "logistic", "absolute")[t % 3]
    size = 10.0 ** about["scale_y"]
    if wrong := about.get("wrong loss"):
        widths = {"log_cosh": {"width": size}, "huber": {"width": size}, "quantile": {"q": 0.3}}
        return {"name": name, **widths.get(name, {}), **wrong, "size": size}
    if name == "huber":
        return {"name": name, "width": (0.05 + 2 * u) * size}
    if name == "epsilon_insensitive":
        return {"name": name, "epsilon": u * size}
    if name == "log_cosh":
        return {"name": name, "width": size}
    return {"name": name, "q": min(max(u, 0.02), 0.98)} if name == "quantile" else {"name": name}


def _labels(about: Description, specs: list[dict[str, Any]], Y: Array) -> Array:
    if about["loss"] in ROWS:
        label = np.argmax(Y, axis=1)
        label[: Y.shape[1]] = np.arange(Y.shape[1])[: len(label)]  # every class occurs, where there are rows enough
        return np.where(label[:, None] == np.arange(Y.shape[1]), 1.0, -1.0)
    for t, spec in enumerate(specs):
        if spec["name"] in LABELS:
            Y[:, t] = np.where(np.median(Y[:, t]) < Y[:, t], 1.0, -1.0)
    return Y


def _with_holes(about: Description, rng: np.random.Generator, specs: list[dict[str, Any]], Y: Array) -> Array:
    n, T = Y.shape
    seen = np.ones((n, T), bool)
    if about["layout"] == "missing":
        seen = rng.random((n, T)) < 0.6
    if about["layout"] == "long":
        seen = np.arange(n)[:, None] % T == np.arange(T)
    if about["single row"] and about["layout"] != "wide":
        first = int(np.argmax(seen[:, 0]))
        seen[:, 0] = np.arange(n) == first
    for t, spec in enumerate(specs):
        if not seen[:, t].any():
            seen[int(rng.integers(n)), t] = True
        if spec["name"] in LABELS:  # both classes must be seen; two more rows where they are not
            rows = np.flatnonzero(seen[:, t])
            rows = rows if rows.size > 1 else np.array([rows[0], (rows[0] + 1) % n])
            seen[rows, t] = True
            Y[rows[0], t], Y[rows[-1], t] = 1.0, -1.0
    return np.where(seen, Y, np.nan)


def _weights(about: Description, rng: np.random.Generator, Y: Array) -> Array | None:
    if about["sample_weight"] == "none":
        return None
    shape = len(Y) if about["loss"] in ROWS else Y.shape
    weight = rng.uniform(0.1, 3, size=shape)
    if about["sample_weight"] == "zeros" and about["loss"] not in (*LABELS, *ROWS, "mixed"):
        weight = np.where(rng.random(shape) < 0.2, 0.0, weight)
        for t in range(Y.shape[1]):
            weight[int(np.argmax(~np.isnan(Y[:, t]))), t] = 1.0
    return weight


def _structure_spec(about: Description, rng: np.random.Generator, T: int) -> dict[str, Any]:
    name, u = about["structure"], about["parameter"]
    B = rng.normal(size=(T, T))
    parameters: dict[str, Any] = {
        "schatten": {"p": [1, 1.2, 1.5, 2, 3, 6][int(6 * u) % 6]},
        "schatten_norm": {"p": [1, 1.2, 1.5, 2, 3, 6][int(6 * u) % 6]},
        "fixed": {"A": (B[:, : max(1, round(T * u))] @ B[:, : max(1, round(T * u))].T) * 10 ** (4 * u - 2)},
        "shared_mean": {"gamma": 10 ** (6 * u - 3)},
        "task_graph": {"adjacency": np.triu(np.abs(B) * (rng.random((T, T)) < 0.4), 1), "gamma": 10 ** (4 * u - 2)},
        "output_metric": {"theta": B @ B.T + 0.1 * np.eye(T)},
        "output_code": {"L": B[: max(1, T // 2)]},
        "clusters": {"n_clusters": 1 + int(u * min(T, 5)) % T, "mean": 0.1, "between": 1.0, "within": 10 ** (2 * u)},
        "log_det": {"mu": 10 ** (3 * u - 2)},
        "sparse": {"l1": 2 * u},
        "sparse_log_det": {"mu": 0.3, "l1": u},
        "sum": {"weight": 0.1 + u, "l1": u},
        "robust": {"outliers": 0.3 + u},
        "dirty": {"private": 0.2 + u},
        "low_rank": {"rank": 1 + int(3 * u), "specific": bool(u < 0.5)},
        "learned_graph": {"gamma": 10 ** (2 * u), "sparsity": 0.0},
        "constrained": {"what": about.get("constraint"), "bound": 10 ** (2 * u - 1.5) * structure_unit(about)},
        "custom": about.get("wrong structure", {}),
    }.get(name, {})
    if name == "task_graph":
        parameters["adjacency"] = parameters["adjacency"] + parameters["adjacency"].T
    return {"name": name, **parameters}


def structure_unit(about: Description) -> float:
    """What a structure under a linear penalty is multiplied by where targets are: the unit of the loss."""
    return 10.0 ** (about["scale_y"] * (1 if about["loss"] in ("absolute", "quantile", "epsilon_insensitive") else 2))


def _dropped(instance: Instance, drop: dict[str, list[int]]) -> Instance:
    """Without the tasks, rows and columns that shrinking found to be idle."""
    n, T = instance.Y.shape
    if drop["columns"]:
        instance = replace(instance, X=np.delete(instance.X, drop["columns"], axis=1))
    if drop["rows"]:
        instance = instance.with_rows(np.setdiff1d(np.arange(n), drop["rows"]))
    return instance.with_tasks(np.setdiff1d(np.arange(T), drop["tasks"])) if drop["tasks"] else instance


def _reference(instance: Instance) -> np.longdouble:
    """About the strength at which little is left to learn, in numbers that cannot overflow.

    With ``Z`` the correlations of the inputs with the gradients at a constant, that is ``Z'Z/4`` under a trace penalty;
    structures of a given size, and those that grow with a power of it, compare it with the loss.
    """
    from .values import kernel_matrices, loss_term, observation_weights

    v = observation_weights(instance)
    Y = np.nan_to_num(instance.Y).astype(np.longdouble)
    mean = (v * Y).sum(axis=0) / v.sum(axis=0) if instance.fit_intercept else np.zeros(Y.shape[1])
    gradients = np.column_stack([_slopes(spec, Y[:, t] - mean[t]) for t, spec in enumerate(instance.losses)])
    E = v * gradients
    size = sum(np.trace(E.T @ K @ E) for K in kernel_matrices(instance)) / 4
    loss = loss_term(instance, np.broadcast_to(mean, Y.shape).astype(np.longdouble))
    name, p = instance.structure["name"], {"frobenius": 2, "sum": 2, "custom": 2}.get(instance.structure["name"], 0)
    p = 0 if instance.structure.get("base") == "trace" else p
    p = instance.structure["p"] if name == "schatten" else p
    power = 1 - 1 / np.longdouble(p) if p else np.longdouble(name in GIVEN_SIZE)
    size = size / loss**power if loss > 0 else size
    return size if size > 0 else np.longdouble(1)


def _slopes(spec: dict[str, Any], away: Array) -> Array:
    """The gradients of a loss where predictions are off by so much; labels are wrong by about a half."""
    match spec["name"]:
        case "squared" | "squared_hinge":
            return 2 * away
        case "huber":
            return 2 * np.clip(away, -spec["width"], spec["width"])
        case "logistic" | "hinge" | "softmax" | "multiclass_hinge":
            return away / 2
        case "log_cosh":
            return np.tanh(away / spec["width"]) / spec["width"]
        case _:
            return np.sign(away)
