"""Shared by the displays: axes, colours, and the size of labels."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray

# the colour-blind safe palette of Okabe and Ito, and two colours of Tol
GROUP_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#882255")
GAIN, LOSS, NEUTRAL = "#0072B2", "#D55E00", "#8c8c8c"
DIVERGING = "RdBu"  # blue is positive, red is negative, white is zero


def pyplot(who: str) -> Any:
    """Import matplotlib, when a figure is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(f"{who} needs matplotlib; install it with: pip install 'taskloom[plot]'") from None
    return plt


def one_axes(who: str, ax: Any, width: float, height: float) -> tuple[Any, Any]:
    """The axes that were given, or those of a new figure of this size (inches)."""
    plt = pyplot(who)
    if ax is not None:
        return ax.figure, ax
    return plt.subplots(figsize=(width, height), layout="constrained")


def panels(who: str, ax: Any, rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Any, Array]:
    """A grid of axes: in a new figure, or in the place of the axes that were given (as scikit-learn's displays do it)."""
    plt = pyplot(who)
    if ax is None:
        return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **options)
    place = ax.get_subplotspec()
    if place is None:
        raise ValueError(f"{who} draws several panels in the place of ax: give axes made by plt.subplots or a grid")
    ax.set_axis_off()
    return ax.figure, place.subgridspec(rows, columns).subplots(squeeze=False, **options)


def points_for_each(ax: Any, n: int, axis: str) -> float:
    """The height of each of ``n`` rows (``axis="y"``), or the width of each of ``n`` columns, in points."""
    box = ax.get_window_extent()
    return (box.height if axis == "y" else box.width) * 72 / ax.figure.dpi / n


def tidy(ax: Any) -> None:
    """Remove the top and right spines, and add a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
