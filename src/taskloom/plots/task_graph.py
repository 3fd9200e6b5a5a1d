"""The strongest correlations as lines between tasks on a circle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..estimators.inspection.task_order import every_pair, leaf_order, task_tree
from ..labels import display_names
from .canvas import DIVERGING, GROUP_COLOURS, one_axes

Array = np.ndarray
ROUND = 2 * np.pi * 0.8  # circumference of the unit circle, less space between names


@dataclass(eq=False, repr=False)
class TaskGraphDisplay:
    """Tasks on a circle, cluster by cluster, and a line for each strong correlation.

    Names point away from the centre, so they do not overlap.

    Parameters
    ----------
    correlation : ndarray of shape (n_tasks, n_tasks)
        Correlations of tasks.
    tasks : sequence of str
        Their names.
    groups : ndarray of shape (n_tasks,)
        The cluster of each task.

    Attributes
    ----------
    ax_, figure_, lines_
        The axes, the figure and the lines.
    n_edges_, n_hidden_ : int
        Correlations above the threshold that are drawn, and that are left out because of ``max_edges``.
    """

    correlation: Array
    tasks: Any
    groups: Array

    @classmethod
    def from_estimator(cls, model: Any, *, n_clusters: int | None = None, ax: Any = None, **options: Any) -> Self:
        """Draw the correlations of a fitted model.

        Parameters
        ----------
        model : fitted estimator
            A multi-task estimator of taskloom.
        n_clusters : int, default=None
            Number of clusters to mark; ``None`` is that of ``task_clusters``.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        TaskGraphDisplay
            The display, drawn.
        """
        C, groups = every_pair(model), model.task_clusters(n_clusters)
        return cls(C, display_names(model.tasks_, 28), groups).plot(ax, **options)

    def plot(
        self, ax: Any = None, *, threshold: float | None = None, max_edges: int | None = None, cmap: Any = DIVERGING
    ) -> Self:
        """Draw the graph.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; ``None`` makes a new figure, large enough for all names.
        threshold : float, default=None
            Correlations below this in absolute value are not drawn; ``None`` is 0.1.
        max_edges : int, default=None
            At most this many correlations are drawn, the strongest; the title says so. ``None`` is three per task, or
            all when ``threshold`` is given.
        cmap : str or Colormap, default="RdBu"
            A diverging one: it is centred at 0.

        Returns
        -------
        self
            The display, drawn.
        """
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be between 0 and 1, got {threshold!r}")
        T = len(self.correlation)
        if max_edges is None:
            max_edges = 3 * T if threshold is None else T * T
        threshold = 0.1 if threshold is None else threshold
        letters = 0.6 * max(map(len, self.tasks)) + 1.5  # the longest name, in units of the size of its letters
        side = 2 * (max(110.0, 8 * T / ROUND, 10 * letters) + 8 * letters) / 72
        self.figure_, self.ax_ = one_axes(type(self).__name__, ax, side + 1.0, side + 0.4)
        room = side * 36 if ax is None else min(self.ax_.get_window_extent().size) * 36 / self.figure_.dpi
        size = min(9.0, room / (letters + T / ROUND))  # radius + names = room, and names do not overlap
        named = size >= 4
        limit = 1 / max(1 - size * letters / room, 0.5) if named else 1.05  # names take at most half of small axes
        order = leaf_order(task_tree(self.correlation, self.groups))
        angle = np.empty(T)
        angle[order] = np.pi / 2 - 2 * np.pi * (np.arange(T) + 0.5) / T
        spot = np.column_stack([np.cos(angle), np.sin(angle)])
        self._edges(spot, threshold, max_edges, cmap)
        colours = [GROUP_COLOURS[g % len(GROUP_COLOURS)] for g in self.groups]
        self.ax_.scatter(*spot.T, c=colours, s=np.clip(2400 / T, 12, 90), zorder=3, edgecolors="white", linewidths=0.6)
        if named:
            self._names(angle, size)
        self.ax_.set(aspect="equal", xlim=(-limit, limit), ylim=(-limit, limit))
        self.ax_.set_axis_off()
        return self

    def _edges(self, spot: Array, threshold: float, max_edges: int, cmap: Any) -> None:
        from matplotlib.collections import LineCollection

        C = self.correlation
        one, other = np.nonzero(np.triu(np.abs(C) >= max(threshold, 1e-12), k=1))
        order = np.argsort(-np.abs(C[one, other]), kind="stable")[:max_edges][::-1]  # the strongest last: on top
        self.n_hidden_ = len(one) - len(order)
        one, other = one[order], other[order]
        self.n_edges_, value = len(one), C[one, other]
        s = np.linspace(0, 1, 25)[None, :, None]
        start, end = spot[one][:, None, :], spot[other][:, None, :]
        control = 0.45 * (start + end) / 2  # control point of a Bezier curve, towards the centre
        curve = (1 - s) ** 2 * start + 2 * s * (1 - s) * control + s**2 * end
        width = (np.abs(value) - threshold) / (1 - threshold) if threshold < 1 else np.ones(len(value))
        density = np.clip(8 / np.sqrt(max(len(value), 1)), 0.25, 1)
        self.lines_ = LineCollection(
            list(curve), cmap=cmap, linewidths=density * (1.0 + 3.0 * width), alpha=0.3 + 0.55 * density
        )
        self.lines_.set_array(value)
        self.lines_.set_clim(-1, 1)
        self.ax_.add_collection(self.lines_)
        if self.n_edges_:
            bar = self.figure_.colorbar(self.lines_, ax=self.ax_, shrink=0.5, pad=0.02, aspect=25, label="correlation")
            bar.outline.set_visible(False)
            bar.solids.set_alpha(1)
        weakest = f"{np.abs(value).min():.2f}" if self.n_hidden_ and len(value) else f"{threshold:g}"
        which = f"the {self.n_edges_} strongest correlations, " if self.n_hidden_ else f"{self.n_edges_} correlations "
        self.ax_.set_title(f"{which}of absolute value {weakest} or more", fontsize=10)

    def _names(self, angle: Array, size: float) -> None:
        """Names point away from the centre; those of a few tasks are horizontal."""
        few = len(angle) <= 12
        radius = 1.03 + 0.06 * min(1.0, 5 / len(angle))
        for name, at in zip(self.tasks, angle, strict=True):
            x, y = np.cos(at), np.sin(at)
            left, middle = x < -1e-9, few and abs(x) < 0.2
            where = {
                "rotation": 0 if few else np.degrees(at) + (180 if left else 0),
                "ha": "center" if middle else "right" if left else "left",
                "va": "center" if not middle else "bottom" if y > 0 else "top",
            }
            self.ax_.text(radius * x, radius * y, name, fontsize=size, rotation_mode="anchor", parse_math=False, **where)
