"""The learned structure as a clustered heat map."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from ..estimators.inspection.relations import correlation
from ..estimators.inspection.task_order import every_pair, leaf_order, task_tree, whole_structure
from ..labels import display_names
from .canvas import DIVERGING, GROUP_COLOURS, one_axes, points_for_each

Array = np.ndarray
LEAST_POINTS = 4.5  # names that would be smaller are left out


@dataclass(eq=False, repr=False)
class TaskStructureDisplay:
    """A heat map of the correlations of tasks, in the order of a dendrogram.

    Make it with :meth:`from_estimator` or :meth:`from_matrix`.

    Parameters
    ----------
    matrix : ndarray of shape (n_tasks, n_tasks)
        Correlations or covariances of tasks.
    tasks : sequence of str
        Their names.
    tree : ndarray of shape (n_tasks - 1, 4) or None
        The linkage that sorts them; ``None`` keeps their order.
    groups : ndarray of shape (n_tasks,)
        The cluster of each task.
    kind : {"correlation", "covariance"}, default="correlation"
        The content of ``matrix``.

    Attributes
    ----------
    ax_, figure_, image_, colorbar_
        The axes, the figure, the image and its colour bar.
    dendrogram_ax_ : Axes or None
    order_ : ndarray
        The tasks from top to bottom, as positions in ``tasks``.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom.plots import TaskStructureDisplay
    >>> display = TaskStructureDisplay.from_matrix(np.eye(3), ["bath", "cork", "dijon"])  # doctest: +SKIP
    """

    matrix: Array
    tasks: Any
    tree: Array | None
    groups: Array
    kind: str = "correlation"

    def __post_init__(self) -> None:
        if self.kind not in ("correlation", "covariance"):
            raise ValueError(f'kind must be "correlation" or "covariance", got {self.kind!r}')

    @classmethod
    def from_estimator(
        cls, model: Any, *, kind: str = "correlation", n_clusters: int | None = None, ax: Any = None, **options: Any
    ) -> Self:
        """Draw the structure of a fitted model.

        Parameters
        ----------
        model : fitted estimator
            A multi-task estimator of taskloom.
        kind : {"correlation", "covariance"}, default="correlation"
            The matrix to draw.
        n_clusters : int, default=None
            Number of clusters to mark; ``None`` is that of ``task_clusters``.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        TaskStructureDisplay
            The display, drawn.
        """
        C = every_pair(model)
        matrix = C if kind == "correlation" else whole_structure(model)
        groups = model.task_clusters(n_clusters)
        return cls(matrix, display_names(model.tasks_, 28), task_tree(C, groups), groups, kind).plot(ax, **options)

    @classmethod
    def from_matrix(cls, A: Any, tasks: Any = None, *, kind: str = "correlation", ax: Any = None, **options: Any) -> Self:
        """Draw a positive semidefinite matrix, such as the ``A`` of a solution.

        Parameters
        ----------
        A : array-like of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.
        tasks : sequence, default=None
            Names of the tasks; ``None`` numbers them.
        kind : {"correlation", "covariance"}, default="correlation"
            Whether to scale the diagonal to 1, or to draw ``A`` as it is.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        TaskStructureDisplay
            The display, drawn.
        """
        A = np.asarray(A, dtype=float)
        if not (A.ndim == 2 and A.shape[0] == A.shape[1]):
            raise ValueError(f"A must be a square matrix, got shape {A.shape}")
        names = display_names(range(len(A)) if tasks is None else tasks, 28)
        if len(names) != len(A):
            raise ValueError(f"there are {len(names)} names for {len(A)} tasks")
        C = correlation(A)
        display = cls(C if kind == "correlation" else A, names, task_tree(C), np.zeros(len(A), int), kind)
        return display.plot(ax, **options)

    def plot(self, ax: Any = None, *, dendrogram: bool = True, colorbar: bool = True, cmap: Any = DIVERGING) -> Self:
        """Draw the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; ``None`` makes a new figure, large enough for all names.
        dendrogram : bool, default=True
            Whether to draw the tree of merges above the heat map.
        colorbar : bool, default=True
            Whether to draw the scale of the colours.
        cmap : str or Colormap, default="RdBu"
            A diverging one: it is centred at 0.

        Returns
        -------
        self
            The display, drawn.
        """
        T = len(self.matrix)
        side = min(max(3.0, 0.3 * T), max(6.0, 0.097 * T), 30.0)
        self.figure_, self.ax_ = one_axes(type(self).__name__, ax, side + 2.6, side + (1.6 if dendrogram else 0.9))
        self.order_ = np.arange(T) if self.tree is None else leaf_order(self.tree)
        shown = self.matrix[np.ix_(self.order_, self.order_)]
        top = 1.0 if self.kind == "correlation" else float(np.abs(shown).max()) or 1.0
        self.image_ = self.ax_.imshow(shown, cmap=cmap, vmin=-top, vmax=top, interpolation="nearest", aspect="equal")
        self.ax_.spines[:].set_visible(False)
        row = side * 72 / T if ax is None else min(points_for_each(self.ax_, T, axis) for axis in "xy")
        self._name(row)
        for _, start, _ in self._blocks()[1:]:  # the edges of the clusters
            self.ax_.axhline(start - 0.5, color="0.35", linewidth=0.8)
            self.ax_.axvline(start - 0.5, color="0.35", linewidth=0.8)
        self.dendrogram_ax_ = self._tree() if dendrogram and self.tree is not None and T > 1 else None
        self.colorbar_ = None
        if colorbar:
            self.colorbar_ = self.figure_.colorbar(self.image_, ax=self.ax_, shrink=0.6, pad=0.02, aspect=30, label=self.kind)
            self.colorbar_.outline.set_visible(False)
        return self

    def _name(self, points: float) -> None:
        """Every name where it fits, else the clusters."""
        T, ax, size = len(self.matrix), self.ax_, min(10.0, 0.82 * points)
        ax.tick_params(length=0)
        names = [self.tasks[t] for t in self.order_]
        if points >= LEAST_POINTS:
            ax.set_yticks(np.arange(T), names, fontsize=size, parse_math=False)
            if T <= 40 and points >= 7:
                long = max(map(len, names)) > 3
                ax.set_xticks(np.arange(T), names, fontsize=size, rotation=90 if long else 0, parse_math=False)
                return
        else:
            blocks = [b for b in self._blocks() if (b[2] - b[1]) * points >= 9]
            places = [(start + end - 1) / 2 for _, start, end in blocks]
            ax.set_yticks(places, [f"cluster {g + 1}: {end - start} tasks" for g, start, end in blocks], fontsize=8)
        ax.set_xticks([])
        ax.set_xlabel(f"{T} tasks, in the order of the rows", fontsize=9)

    def _blocks(self) -> list[tuple[int, int, int]]:
        """Cluster, first row and end of each run of rows of one cluster."""
        group = np.asarray(self.groups)[self.order_]
        edges = [0, *(np.flatnonzero(np.diff(group)) + 1), len(group)]
        return [(int(group[start]), int(start), int(end)) for start, end in pairwise(edges)]

    def _tree(self) -> Any:
        """The merges, drawn above the heat map; below the cut in the colours of the clusters."""
        from matplotlib.collections import LineCollection

        T = len(self.matrix)
        where, height = np.empty(2 * T - 1), np.zeros(2 * T - 1)
        where[self.order_] = np.arange(T)
        group = np.concatenate([self.groups, np.full(T - 1, -1)]).astype(int)
        lines, colours = [], []
        for k, (one, other, merge, _) in enumerate(self.tree, start=T):  # type: ignore[arg-type]
            one, other = int(one), int(other)
            where[k], height[k] = (where[one] + where[other]) / 2, merge
            group[k] = group[one] if group[one] == group[other] else -1
            lines.append([(where[one], height[one]), (where[one], merge), (where[other], merge), (where[other], height[other])])
            colours.append("0.45" if group[k] < 0 else GROUP_COLOURS[group[k] % len(GROUP_COLOURS)])
        ax = self.ax_.inset_axes([0, 1.015, 1, 0.14], sharex=self.ax_)
        ax.add_collection(LineCollection(lines, colors=colours, linewidths=1.2 if T <= 60 else 0.8))
        ax.set_ylim(0, 1.05 * max(float(height.max()), 1e-3))
        ax.set_axis_off()
        return ax
