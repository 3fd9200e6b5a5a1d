"""Convergence: objective, dual value and duality gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .canvas import GAIN, LOSS, panels, tidy

Array = np.ndarray
AXES = {"iteration": "iteration", "seconds": "time (s)"}


@dataclass(eq=False, repr=False)
class ConvergenceDisplay:
    """Objective and dual value, which bracket the minimum, and the duality gap, against iterations and time.

    Parameters
    ----------
    history : dict of arrays
        ``iteration``, ``objective``, ``dual``, ``gap`` and ``seconds``, as in ``history_``.
    target : float, default=None
        The duality gap at which the fit stops: the tolerance times the loss of the intercept-only model.

    Attributes
    ----------
    axes_ : ndarray of Axes
        Values above, duality gaps below; one column for iterations and one for time.
    ax_ : Axes
        The first of them.
    figure_
    """

    history: dict[str, Array]
    target: float | None = None

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw the convergence of a fitted model.

        Parameters
        ----------
        model : fitted estimator
            A multi-task estimator of taskloom.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        ConvergenceDisplay
            The display, drawn.
        """
        check_is_fitted(model, "history_")
        proof = model.certificate_
        scale = proof.gap / proof.relative_gap if 0 < proof.relative_gap < np.inf else None
        return cls(model.history_, None if scale is None else model.tol * scale).plot(ax, **options)

    @classmethod
    def from_solution(cls, solution: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw the convergence of a :class:`~taskloom.problem.solution.Solution`, as ``solve`` gives it.

        Parameters
        ----------
        solution : Solution
            What :func:`~taskloom.solve` gives.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        ConvergenceDisplay
            The display, drawn.
        """
        return cls(solution.history.as_dict()).plot(ax, **options)

    def plot(self, ax: Any = None, *, against: str | Sequence[str] = ("iteration", "seconds")) -> Self:
        """Draw two rows of panels.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Its place is divided among the panels; ``None`` makes a new figure.
        against : {"iteration", "seconds"} or sequence of them, default=("iteration", "seconds")
            The horizontal axes: one column of panels each.

        Returns
        -------
        self
            The display, drawn.
        """
        against = [against] if isinstance(against, str) else list(against)
        if not (len(against) > 0 and set(against) <= set(AXES)):
            raise ValueError(f'against must name "iteration" or "seconds" or both, got {against!r}')
        if len(self.history["iteration"]) == 0:
            raise ValueError("there is no history to draw: the fit took no iteration")
        self.figure_, self.axes_ = panels(
            type(self).__name__, ax, 2, len(against), 4.2 * len(against), 5.2, sharey="row", sharex="col"
        )
        from matplotlib.ticker import MaxNLocator

        self.ax_ = self.axes_[0, 0]
        for (upper, lower), name in zip(self.axes_.T, against, strict=True):
            self._values(upper, self.history[name])
            self._gap(lower, self.history[name])
            lower.set_xlabel(AXES[name])
            lower.xaxis.set_major_locator(MaxNLocator(5 if name == "iteration" else 3, integer=name == "iteration"))
        for panel, label in zip(self.axes_[:, 0], ("bounds of the minimum", "duality gap"), strict=True):
            panel.set_ylabel(label)
            panel.legend(frameon=False, fontsize=8)
        return self

    def _values(self, ax: Any, x: Array) -> None:
        objective, dual = (np.where(np.isfinite(v), v, np.nan) for v in (self.history["objective"], self.history["dual"]))
        _line(ax, x, objective, LOSS, "objective")
        _line(ax, x, dual, GAIN, "dual value")
        ax.fill_between(x, dual, objective, color="0.5", alpha=0.15, linewidth=0)
        ax.set_ylim(*self._range(objective, dual))
        tidy(ax)

    def _range(self, objective: Array, dual: Array) -> tuple[float, float]:
        """The range of the axis; the first values are cut off where they were far from the minimum."""
        values = np.concatenate([objective, dual])
        values = values[np.isfinite(values)]
        if values.size == 0:
            return 0.0, 1.0
        low, high = float(values.min()), float(values.max())
        last = float(objective[np.isfinite(objective)][-1]) if np.isfinite(objective).any() else high
        floor = last - 2 * max(high - last, 0.05 * abs(last), 1e-12)
        low = max(low, min(floor, last))  # a first dual bound can be very poor
        margin = 0.06 * max(high - low, 1e-12)
        return low - margin, high + margin

    def _gap(self, ax: Any, x: Array) -> None:
        gap = np.where((self.history["gap"] > 0) & np.isfinite(self.history["gap"]), self.history["gap"], np.nan)
        _line(ax, x, gap, "0.2", "duality gap")
        if np.isfinite(gap).any():
            ax.set_yscale("log")
        if self.target is not None and self.target > 0:
            ax.axhline(self.target, color=GAIN, linestyle="--", linewidth=1, label="tolerance")
        tidy(ax)


def _line(ax: Any, x: Array, y: Array, colour: str, label: str) -> None:
    """A line with a mark at each value, as long as there are few."""
    ax.plot(x, y, color=colour, marker="o" if len(x) <= 40 else None, markersize=3.5, linewidth=1.5, label=label)
