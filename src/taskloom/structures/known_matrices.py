"""Known structures that are given by a matrix, or by a graph of the tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from inspect import signature
from itertools import combinations, pairwise
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from .._component import Component
from .._linalg import psd_root, symmetric
from .base import Array, Structure
from .graphs import adjacency_of, branches, edges_of, is_matrix, nodes_of, shared_branch
from .known import KnownStructure

_signature = cache(signature)  # a file may hold a structure for each of many candidates


def _square(M: Any, who: str, name: str) -> Array:
    """A finite, symmetric, square float matrix, or a ``ValueError``."""
    A = np.asarray(M, dtype=float)
    if not (A.ndim == 2 and A.shape[0] == A.shape[1]):
        raise ValueError(f"{who} needs a square matrix {name}, got shape {A.shape}")
    if not np.isfinite(A).all():
        raise ValueError(f"{who} needs finite entries in {name}, got NaN or infinity")
    size = max(float(np.abs(A).max(initial=0.0)), np.finfo(float).tiny)
    asymmetry = float(np.abs(A - A.T).max(initial=0.0)) / size
    if not asymmetry <= 1e-8:
        differ = f"{name} and its transpose differ by {asymmetry:.1e} of its largest entry"
        raise ValueError(f"{who} needs a symmetric {name}; {differ}: pass ({name} + {name}.T) / 2")
    return symmetric(A)


def _cleaned(A: Array) -> Array:
    """``A`` with eigenvalues below 1e-12 of the largest set to zero, so that its range is well defined."""
    root = psd_root(A, rtol=1e-12)
    return root @ root.T


def _by_name(given: Any, order: list[Any], side: str, who: str, name: str, rows_too: bool) -> Any:
    """A data frame with names of tasks (or features) as a matrix in their order; anything else unchanged."""
    if not (hasattr(given, "columns") and hasattr(given, "iloc")):
        return given
    columns, rows = list(given.columns), list(given.index)
    positions = list(range(len(columns)))
    if columns == positions and (not rows_too or rows == positions):
        return given
    for labels in (columns, rows) if rows_too else (columns,):
        if Counter(labels) != Counter(order):
            raise ValueError(
                f"{who} got a frame {name} with the labels {labels[:5]}, but the {side} are {order[:5]}: name the same ones, "
                f"once each, or pass {name}.to_numpy() to go by position"
            )
    values = np.asarray(given)[:, [columns.index(each) for each in order]]
    return values[[rows.index(each) for each in order]] if rows_too else values


class _MatrixOfTasks(KnownStructure):
    """A known structure with a parameter that has one row or column per task (per feature, where it sits on these)."""

    described_by: ClassVar[str]  # the parameter with a row and a column, or just a column, for each task
    rows_too: ClassVar[bool] = True

    def _given(self) -> Array:
        """``A``: the parameter itself, positive semidefinite, unless a subclass computes it."""
        who, name = type(self).__name__, self.described_by
        A = _square(getattr(self, name), who, name)
        a = np.linalg.eigvalsh(A) if len(A) else np.zeros(1)
        if not (a[0] >= -1e-8 * max(a[-1], 0.0) and a[-1] >= 0):
            remedy = f"add {max(-a[0], 0):.3g} to its diagonal, or set its negative eigenvalues to zero"
            raise ValueError(f"{who} needs a positive semidefinite {name}; its smallest eigenvalue is {a[0]:.3g}: {remedy}")
        return _cleaned(A)

    @property
    def _described(self) -> str:
        """What the rows and columns stand for."""
        return "features" if self.on_features else "tasks"

    def bind(self, tasks: Any) -> Structure:
        """Reorder a data frame by the names of the tasks."""
        return self if self.on_features else self._in_order(list(tasks))

    def bind_features(self, names: Any) -> Structure:
        """Reorder a data frame by the names of the features."""
        return self._in_order(list(names)) if self.on_features else self

    def _in_order(self, names: list[Any]) -> Structure:
        given = getattr(self, self.described_by)
        ordered = _by_name(given, names, self._described, type(self).__name__, self.described_by, self.rows_too)
        return self if ordered is given else type(self)(**{**self.get_params(), self.described_by: ordered})

    def check(self) -> None:
        self._given()

    @classmethod
    def restored(cls, **parameters: Any) -> Structure:
        """The structure of a file: shape and numbers are checked now, what takes the cube of the size in the next fit.

        Parameters
        ----------
        **parameters : object
            Those of the class.

        Returns
        -------
        Structure
            The structure.
        """
        given = _signature(cls).bind(**parameters)
        given.apply_defaults()
        made: Any = object.__new__(cls)
        vars(made).update(given.arguments)
        Component.check(made)
        made._check_entries()
        return made

    def _check_entries(self) -> None:
        """A matrix of finite numbers, square if it has a row for each task, too."""
        M = np.asarray(getattr(self, self.described_by))
        if not (M.ndim == 2 and M.dtype.kind in "biuf" and (M.shape[0] == M.shape[1] or not self.rows_too)):
            shown = f"shape {M.shape} and type {M.dtype}"
            raise ValueError(f"{type(self).__name__} needs a matrix {self.described_by} of numbers, got {shown}")
        if not np.isfinite(M).all():
            raise ValueError(f"{type(self).__name__} needs finite entries in {self.described_by}, got NaN or infinity")

    def _n_described(self, n_tasks: int) -> int:
        """For how many tasks the parameter has a column."""
        return np.shape(getattr(self, self.described_by))[-1]

    def check_tasks(self, n_tasks: int) -> None:
        super().check_tasks(n_tasks)
        given = self._n_described(n_tasks)
        if given != n_tasks:
            what = f"{type(self).__name__} describes {given} {self._described}, but the data have {n_tasks}"
            remedy = "; give a row for each input column, and a last one for the constant of a Term with intercept=True"
            raise ValueError(what + (remedy if self.on_features else ""))

    def matrix(self, n_tasks: int) -> Array:
        return self._given()


@dataclass(eq=False, repr=False)
class Fixed(_MatrixOfTasks):
    """A given positive semidefinite matrix ``A``, of the tasks or of the features; weights outside its range are zero.

    On the features it is the covariance of the slopes of a mixed model: the tasks are independent of each other given it, and
    the penalty is ``alpha tr(A^+ W W')``.

    Parameters
    ----------
    A : array-like or data frame of shape (n_tasks, n_tasks), or (n_features, n_features) with ``side="features"``
        Symmetric positive semidefinite. The rows and columns of a data frame are matched to the names of the tasks, or of the
        input columns. In a ``Term`` with ``intercept=True`` the constant is the last feature, and its name is ``"intercept"``.
    side : {"tasks", "features"}, default="tasks"
        What the rows and columns of ``A`` stand for.
    """

    A: Any
    side: str = "tasks"
    described_by: ClassVar[str] = "A"

    @property
    def on_features(self) -> bool:  # type: ignore[override]
        """Whether ``A`` is a matrix of the features."""
        return self.side == "features"

    @property
    def keeps_columns(self) -> bool:  # type: ignore[override]
        """As ``on_features``: the features are the columns of ``X``."""
        return self.on_features

    def check(self) -> None:
        self._check_side()
        super().check()

    def _check_entries(self) -> None:
        self._check_side()
        super()._check_entries()

    def _check_side(self) -> None:
        if not (isinstance(self.side, str) and self.side in ("tasks", "features")):
            raise ValueError(f'Fixed needs side="tasks" or side="features", got side={self.side!r}')


@dataclass(eq=False, repr=False)
class TaskGraph(_MatrixOfTasks):
    """``sum_ts W_ts ||f_t - f_s||^2 + gamma sum ||f_t||^2``, that is ``A^+ = 2 L + gamma I``: neighbours have similar weights.

    The sum runs over ordered pairs, so the Laplacian ``L`` of the adjacency matrix ``W`` counts twice.

    Parameters
    ----------
    adjacency : array-like of shape (n_tasks, n_tasks), sequence of edges or networkx graph
        A symmetric matrix in the order of the tasks; or a list of tuples, pairs or triples with a weight, of task names or of
        positions from 0. Tasks without an edge are independent.
    gamma : float, default=1.0
        Regularisation strength of the norm of each task, relative to that of the differences; greater than 0.
    """

    adjacency: Any
    gamma: float = 1.0
    ranges: ClassVar[dict[str, str]] = {"gamma": "> 0 (with gamma=0 the mean of a component is not penalised)"}
    described_by: ClassVar[str] = "adjacency"

    @classmethod
    def chain(cls, tasks: Any, gamma: float = 1.0, weight: float = 1.0) -> TaskGraph:
        """A chain of tasks, for example in order of time.

        Parameters
        ----------
        tasks : int or sequence
            The number of tasks, or their names in order.
        gamma : float, default=1.0
            Regularisation strength of the norm of each task.
        weight : float, default=1.0
            Weight of every edge.

        Returns
        -------
        TaskGraph
            A chain.
        """
        names = list(range(tasks)) if isinstance(tasks, int) else list(tasks)
        if len(names) < 2:
            raise ValueError(f"a chain needs at least 2 tasks, got {tasks!r}")
        return cls([(a, b, weight) for a, b in pairwise(names)], gamma)

    @classmethod
    def from_similarity(cls, similarity: Any, gamma: float = 1.0, neighbours: int | None = None) -> TaskGraph:
        """From similarities ``>= 0`` of all pairs; with ``neighbours``, only the largest ones of each task are used.

        Parameters
        ----------
        similarity : array-like of shape (n_tasks, n_tasks)
            Symmetric, not negative; the diagonal is ignored.
        gamma : float, default=1.0
            Regularisation strength of the norm of each task.
        neighbours : int, default=None
            The number of neighbours of each task; ``None`` for all pairs.

        Returns
        -------
        TaskGraph
            The graph whose edge weights are the similarities.
        """
        S = _square(similarity, "TaskGraph.from_similarity", "similarity").copy()
        np.fill_diagonal(S, 0.0)
        if neighbours is not None:
            if not (1 <= neighbours < len(S)):
                raise ValueError(f"neighbours must be between 1 and {len(S) - 1}, got {neighbours!r}")
            nearest = np.argsort(-S, axis=1, kind="stable")[:, :neighbours]
            keep = np.zeros(S.shape, bool)
            np.put_along_axis(keep, nearest, True, axis=1)
            S = np.where(keep | keep.T, S, 0.0)
        return cls(S, gamma)

    @classmethod
    def from_tree(cls, tree: Any, gamma: float = 1.0) -> TaskGraph:
        """From a hierarchy of classes (semantic label sharing, Fergus et al. 2010): the leaves are the tasks.

        ``tree`` holds parent links (``{"cat": "animal", "dog": "animal", "animal": None}``) or a path for each class
        (``{"cat": "animal/pet", "car": ("thing", "vehicle")}``). The similarity of two
        tasks is the length of their common path from the root, divided by that of the longer path.

        Parameters
        ----------
        tree : dict
            Parent links, or the path of each class.
        gamma : float, default=1.0
            Regularisation strength of the norm of each task.

        Returns
        -------
        TaskGraph
            The graph of the leaves.
        """
        paths = branches(tree)
        return cls([(a, b, w) for a, b in combinations(paths, 2) if (w := shared_branch(paths[a], paths[b])) > 0], gamma)

    def check(self) -> None:
        Component.check(self)
        if is_matrix(self.adjacency):
            self._given()
        else:
            edges_of(self.adjacency)

    def _check_entries(self) -> None:
        if is_matrix(self.adjacency):
            super()._check_entries()
        else:
            edges_of(self.adjacency)

    def _n_described(self, n_tasks: int) -> int:
        if is_matrix(self.adjacency):
            return super()._n_described(n_tasks)
        if not set(nodes_of(self.adjacency, edges_of(self.adjacency))) <= set(range(n_tasks)):
            self._known(n_tasks)  # names the node that is no task
        return n_tasks

    def bind(self, tasks: Any) -> Structure:
        """The adjacency matrix in the order of the tasks, from edges between names or positions."""
        tasks = list(tasks)
        if is_matrix(self.adjacency):
            return super().bind(tasks)
        nodes = nodes_of(self.adjacency, edges_of(self.adjacency))
        positions = all(isinstance(node, Integral) and 0 <= int(node) < len(tasks) for node in nodes)
        known = range(len(tasks)) if positions and not set(nodes) <= set(tasks) else tasks
        return TaskGraph(adjacency_of(self.adjacency, list(known)), self.gamma)

    def matrix(self, n_tasks: int) -> Array:
        return self._given() if is_matrix(self.adjacency) else self.bind(range(n_tasks))._given()  # type: ignore[attr-defined]

    def _given(self) -> Array:
        W = _square(self.adjacency, "TaskGraph", "adjacency")
        if not (W >= 0).all():
            raise ValueError(f"TaskGraph needs weights >= 0 in adjacency, got {W.min(initial=0.0):.3g}")
        laplacian = np.diag(W.sum(axis=0)) - W
        return symmetric(np.linalg.solve(2 * laplacian + self.gamma * np.eye(len(W)), np.eye(len(W))))


@dataclass(eq=False, repr=False)
class OutputMetric(_MatrixOfTasks):
    """``A = theta``: a metric on the outputs as the structure of the tasks.

    Parameters
    ----------
    theta : array-like or data frame of shape (n_tasks, n_tasks)
        Symmetric positive semidefinite. The rows and columns of a data frame are matched to task names.
    """

    theta: Any
    described_by: ClassVar[str] = "theta"


@dataclass(eq=False, repr=False)
class OutputCode(_MatrixOfTasks):
    """``A = L'L`` for a linear code ``L`` (``k x T``) of the outputs; exact for losses of the inner product.

    Parameters
    ----------
    L : array-like or data frame of shape (code_length, n_tasks)
        One column for each task. The columns of a data frame are matched to task names.
    """

    L: Any
    described_by: ClassVar[str] = "L"
    rows_too: ClassVar[bool] = False

    def _given(self) -> Array:
        L = np.asarray(self.L, dtype=float)
        if L.ndim != 2:
            raise ValueError(f"OutputCode needs a matrix L with one column for each task, got shape {L.shape}")
        if not np.isfinite(L).all():
            raise ValueError("OutputCode needs finite entries in L, got NaN or infinity")
        return _cleaned(L.T @ L)
