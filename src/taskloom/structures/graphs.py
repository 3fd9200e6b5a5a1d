"""Adjacency matrices from edge lists, networkx graphs and trees of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from .base import Array


def is_matrix(given: Any) -> bool:
    """Whether an adjacency was given as a square matrix, and not as edges (a list of tuples is always a list of edges)."""
    if hasattr(given, "edges") or (isinstance(given, list | tuple) and any(isinstance(edge, tuple) for edge in given)):
        return False
    shape = np.shape(given)
    return len(shape) != 2 or shape[0] == shape[1]


def edges_of(graph: Any) -> list[tuple[Any, Any, float]]:
    """``(node, node, weight)`` for every edge of a networkx graph or of a list of pairs or triples."""
    if hasattr(graph, "edges") and hasattr(graph, "nodes"):
        return [(u, v, float(weight)) for u, v, weight in graph.edges(data="weight", default=1.0)]
    out = []
    for edge in graph:
        if not (isinstance(edge, Sequence | np.ndarray) and not isinstance(edge, str) and len(edge) in (2, 3)):
            raise ValueError(f"an edge must be (task, task) or (task, task, weight), got {edge!r}")
        out.append((edge[0], edge[1], float(edge[2]) if len(edge) == 3 else 1.0))
    return out


def nodes_of(graph: Any, edges: list[tuple[Any, Any, float]]) -> list[Any]:
    """The nodes in order of appearance, including nodes of a networkx graph without an edge."""
    return list(dict.fromkeys([*getattr(graph, "nodes", []), *(node for u, v, _ in edges for node in (u, v))]))


def adjacency_of(graph: Any, tasks: Sequence[Any]) -> Array:
    """The symmetric matrix of a graph whose nodes are names of tasks; of edges given twice the last one counts."""
    edges = edges_of(graph)
    position = {task: t for t, task in enumerate(tasks)}
    unknown = [node for node in nodes_of(graph, edges) if node not in position]
    if unknown:
        raise ValueError(f"the graph has a node {unknown[0]!r}, which is not a task; the tasks are {list(tasks)[:10]}")
    W = np.zeros((len(position), len(position)))
    for u, v, weight in edges:
        if u == v:
            raise ValueError(f"the graph has an edge from task {u!r} to itself")
        W[position[u], position[v]] = W[position[v], position[u]] = weight
    return W


def branches(tree: Mapping[Any, Any]) -> dict[Any, tuple[Any, ...]]:
    """The path from the root to each leaf (included), from parent links or from a path for each class.

    Parent links name the parent of every node (``None``, or no entry, for a root); a path is a tuple, or a string with slashes,
    of the groups of a class, from the root.
    """
    if all(isinstance(value, tuple | list) or (isinstance(value, str) and "/" in value) for value in tree.values()):
        split = {leaf: value.strip("/").split("/") if isinstance(value, str) else list(value) for leaf, value in tree.items()}
        return {leaf: tuple(path if path and path[-1] == leaf else [*path, leaf]) for leaf, path in split.items()}
    leaves = [node for node in tree if node not in set(tree.values())]
    if len(leaves) == 0:
        raise ValueError("the tree has no leaf: every node is the parent of another")
    paths = {}
    for leaf in leaves:
        path = [leaf]
        while tree.get(path[0]) is not None:
            path.insert(0, tree[path[0]])
            if len(path) > len(tree) + 1:
                raise ValueError(f"the parent links of {leaf!r} form a cycle")
        paths[leaf] = tuple(path)
    return paths


def shared_branch(one: tuple[Any, ...], other: tuple[Any, ...]) -> float:
    """The length of the common path from the root over that of the longer path (Fergus et al. 2010)."""
    common = list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return len(common) / max(len(one), len(other))
