"""Scores and eigenvalues of the structure along the regularisation path."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..structures.factored_matrix import FactoredStructure
from .canvas import GAIN, LOSS, panels, tidy

Array = np.ndarray


@dataclass(eq=False, repr=False)
class PathDisplay:
    """The cross-validated score and the eigenvalues of the structure against the regularisation strength ``alpha``.

    Parameters
    ----------
    alphas : ndarray of shape (n_alphas,)
        The regularisation strengths.
    score : ndarray of shape (n_alphas,), default=None
        Mean score over the folds.
    standard_error : ndarray of shape (n_alphas,), default=None
        Standard error of the score over the folds.
    spectrum : ndarray of shape (n_alphas, n_tasks), default=None
        The eigenvalues of the structure, largest first.
    chosen : float, default=None
        The ``alpha`` to mark.

    Attributes
    ----------
    axes_ : ndarray of Axes
        One panel for scores and one for eigenvalues, where they are given.
    ax_ : Axes
        The first of them.
    figure_
    """

    alphas: Array
    _: KW_ONLY
    score: Array | None = None
    standard_error: Array | None = None
    spectrum: Array | None = None
    chosen: float | None = None

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw ``path_`` of a fitted cross-validated model.

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
        PathDisplay
            The display, drawn.
        """
        if not hasattr(type(model), "_cross_validate"):
            raise ValueError(
                f"PathDisplay needs a cross-validated model (MultiTaskRegressorCV, ...), got {type(model).__name__}"
            )
        check_is_fitted(model, "path_")
        path = {name: model.path_.get(name) for name in ("alphas", "score", "standard_error", "spectrum")}
        return cls(**path, chosen=model.alpha_).plot(ax, **options)

    @classmethod
    def from_solutions(cls, alphas: Any, solutions: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw the eigenvalues of solutions, as ``taskloom.path`` returns them.

        Parameters
        ----------
        alphas : array-like of shape (n_alphas,)
            The regularisation strengths.
        solutions : sequence of Solution
            The result of :func:`~taskloom.path`.
        ax : matplotlib Axes, default=None
            As in :meth:`plot`.
        **options : object
            The other parameters of :meth:`plot`.

        Returns
        -------
        PathDisplay
            The display, drawn.
        """
        matrices = [solution.A for solution in solutions]
        spectrum = np.array(
            [A.spectrum() if isinstance(A, FactoredStructure) else np.linalg.eigvalsh(A)[::-1] for A in matrices]
        )
        alphas = np.asarray(alphas, dtype=float)
        if len(alphas) != len(spectrum):
            raise ValueError(f"there are {len(alphas)} values of alpha for {len(spectrum)} solutions")
        return cls(alphas, spectrum=spectrum).plot(ax, **options)

    def plot(self, ax: Any = None) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Its place is divided among the panels; ``None`` makes a new figure.

        Returns
        -------
        self
            The display, drawn.
        """
        parts = ((self._score, self.score), (self._spectrum, self.spectrum))
        draws = [(draw, values) for draw, values in parts if values is not None]
        if len(draws) == 0:
            raise ValueError("there is nothing to draw: neither scores nor spectrum")
        self.figure_, grid = panels(type(self).__name__, ax, len(draws), 1, 6.4, 2.9 * len(draws), sharex=True)
        self.axes_ = grid[:, 0]
        self.ax_ = self.axes_[0]
        for panel, (draw, values) in zip(self.axes_, draws, strict=True):
            draw(panel, values)
            panel.set_xscale("log")
            tidy(panel)
            if self.chosen is not None:
                panel.axvline(self.chosen, color=LOSS, linestyle="--", linewidth=1)
        self.axes_[-1].set_xlabel("regularisation strength alpha")
        return self

    def _score(self, ax: Any, score: Array) -> None:
        ax.plot(self.alphas, score, color=GAIN, marker="o", markersize=3.5, linewidth=1.5, label="mean over folds")
        if self.standard_error is not None and np.isfinite(self.standard_error).any():
            low, high = score - self.standard_error, score + self.standard_error
            ax.fill_between(self.alphas, low, high, color=GAIN, alpha=0.18, linewidth=0, label="± one standard error")
        if self.chosen is not None:
            ax.plot([], [], color=LOSS, linestyle="--", linewidth=1, label=f"chosen: {self.chosen:.3g}")
        ax.set_ylabel("score")
        ax.legend(frameon=False, fontsize=8)

    def _spectrum(self, ax: Any, spectrum: Array) -> None:
        """One line per eigenvalue; the largest are darkest and on top."""
        from matplotlib import colormaps

        n = spectrum.shape[1]
        shade = colormaps["viridis"](np.minimum(np.arange(n) / max(min(n, 15) - 1, 1), 1.0) * 0.85)
        for k in reversed(range(n)):
            ax.plot(self.alphas, spectrum[:, k], color=shade[k], linewidth=1.5 if n <= 20 else 0.9)
        if self.chosen is not None:
            there = spectrum[np.argmin(np.abs(np.log(self.alphas / self.chosen)))]
            alive = (there > 1e-3 * max(np.nanmax(there), 1e-300)).sum()
            ax.set_title(f"{alive} of {n} eigenvalues above 0.1 % of the largest, at the chosen alpha", fontsize=9)
        ax.set_ylabel("eigenvalues of the structure")
        ax.set_ylim(bottom=0)
