"""Gain of each task over its single-task model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..labels import display_names
from .canvas import GAIN, LOSS, NEUTRAL, one_axes, points_for_each, tidy

Array = np.ndarray


@dataclass(eq=False, repr=False)
class TransferDisplay:
    """The gain of each task over its single-task model, sorted, with its interval.

    Parameters
    ----------
    tasks : sequence of str
        Their names.
    gain : ndarray of shape (n_tasks,)
        The gain in score of each task; NaN where it could not be scored.
    standard_error : ndarray of shape (n_tasks,)
        The standard error of the gain.

    Attributes
    ----------
    ax_, figure_
    order_ : ndarray
        The tasks from the bottom to the top, as positions in ``tasks``; those without a score are left out.
    """

    tasks: Any
    gain: Array
    standard_error: Array

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw ``transfer_`` of a fitted cross-validated model.

        Parameters
        ----------
        model : fitted estimator
            A :class:`~taskloom.MultiTaskRegressorCV` or :class:`~taskloom.MultiTaskClassifierCV`.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        TransferDisplay
            The display, drawn.
        """
        if not hasattr(type(model), "_cross_validate"):
            raise ValueError(f"{type(model).__name__} has no transfer_; use from_transfer(compare_to_single_task(model, X, y))")
        check_is_fitted(model, "transfer_")
        return cls.from_transfer(model.transfer_, ax=ax, **options)

    @classmethod
    def from_transfer(cls, transfer: dict[str, Array], *, ax: Any = None, **options: Any) -> Self:
        """Draw the result of :func:`~taskloom.compare_to_single_task`.

        Parameters
        ----------
        transfer : dict of arrays
            ``task``, ``gain`` and ``standard_error``.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        TransferDisplay
            The display, drawn.
        """
        names = display_names(transfer["task"], 28)
        gain, error = (np.asarray(transfer[name], dtype=float) for name in ("gain", "standard_error"))
        return cls(names, gain, error).plot(ax, **options)

    from_ledger = from_transfer  # the former name

    def plot(self, ax: Any = None, *, width: float = 2.0) -> Self:
        """Draw one row per task.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; ``None`` makes a new figure, high enough for all names.
        width : float, default=2.0
            The half-width of the intervals, in standard errors over the folds.

        Returns
        -------
        self
            The display, drawn.
        """
        scored = np.flatnonzero(~np.isnan(self.gain))
        if scored.size == 0:
            raise ValueError("no task has a score: there is no gain to draw")
        self.order_ = scored[np.argsort(self.gain[scored], kind="stable")]
        n = len(self.order_)
        height = min(max(1.2, 0.25 * n), max(7.0, 0.105 * n), 60.0)
        self.figure_, self.ax_ = one_axes(type(self).__name__, ax, 6.4, height + 0.9)
        gain, margin = self.gain[self.order_], width * np.nan_to_num(self.standard_error[self.order_])
        low, high, row = gain - margin, gain + margin, np.arange(n)
        self.ax_.axvline(0, color="0.3", linewidth=1)
        points = 72 * height / n if ax is None else points_for_each(self.ax_, n, "y")
        looks = {"better with multi-task": GAIN, "better with single-task": LOSS, "not clear": NEUTRAL}
        masks = (low > 0, high < 0, (low <= 0) & (high >= 0))
        for mask, (what, colour) in zip(masks, looks.items(), strict=True):
            if mask.any():
                thin = min(2.0, points / 4)
                self.ax_.hlines(row[mask], low[mask], high[mask], color=colour, alpha=0.55, linewidth=thin)
                label = f"{mask.sum()} {what}"
                self.ax_.scatter(gain[mask], row[mask], color=colour, s=min(28.0, 3 * points), zorder=3, label=label)
        self._names(points)
        self.ax_.set(xlabel=f"gain in score over single-task models (± {width:g} standard errors)", ylim=(-0.8, n - 0.2))
        self._range(low, high, gain)
        tidy(self.ax_)
        self.ax_.grid(visible=False, axis="y")
        self.ax_.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        return self

    def _range(self, low: Array, high: Array, gain: Array) -> None:
        """Of 20 tasks and more, outliers are marked at the edge of the plot, with their gain."""
        if len(gain) < 20:
            return
        left, right = float(np.quantile(low, 0.03)), float(np.quantile(high, 0.97))
        left, right = min(left, 0.0) - 0.15 * (right - left), max(right, 0.0) + 0.15 * (right - left)
        self.ax_.set_xlim(left, right)
        for row in np.flatnonzero((gain < left) | (gain > right)):
            value = f"{gain[row]:.2g}"
            text, x, side = (f"◂ {value}", left, "left") if gain[row] < left else (f"{value} ▸", right, "right")
            self.ax_.annotate(text, (x, row), fontsize=7, ha=side, va="center", backgroundcolor="white")

    def _names(self, points: float) -> None:
        """All names where they fit, else those of the largest and the smallest gains."""
        n = len(self.order_)
        rows = np.arange(n)
        if points < 5:
            each = max(1, int(n * points / 9 / 4))
            step = int(np.ceil(9 / points))
            low = rows[: each * step : step]
            rows = np.unique(np.concatenate([low, n - 1 - low]))
        size = min(10.0, 0.85 * points) if points >= 5 else 8.0
        self.ax_.set_yticks(rows, [self.tasks[self.order_[k]] for k in rows], fontsize=size, parse_math=False)
        self.ax_.tick_params(axis="y", length=0)
