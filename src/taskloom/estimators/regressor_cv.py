"""Regression on many tasks with alpha and structure chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from numpy.typing import ArrayLike

from ..solvers import Solver
from .cross_validation.search import CrossValidated, searched
from .parameter_types import KernelParameter, LossParameter, StructureParameter, TaskWeight, Unseen
from .regressor import MultiTaskRegressor


class MultiTaskRegressorCV(CrossValidated, MultiTaskRegressor):
    """:class:`MultiTaskRegressor` with alpha, and optionally the structure, chosen by cross-validation.

    Each fold decomposes its features once and fits the path from the largest alpha down, with warm starts.

    Parameters
    ----------
    structure : Structure or str, default=None
        The structure, as in :class:`MultiTaskRegressor`.
    structures : sequence of Structure or str, default=None
        Several candidates instead of one.
    kernel : str, callable or list, default=None
        One kernel, or a list that is added up, as in :class:`MultiTaskRegressor`; ``None`` leaves it to ``kernels``.
    kernels : "auto", sequence or None, default="auto"
        Several candidates, compared on the same folds: names, functions ``k(X, Z)``, and pairs of a name and values of
        ``gamma`` (numbers, ``"scale"``, ``"median"``): ``["linear", ("rbf", ["median", 0.01, 0.1])]``. ``"auto"`` compares the
        linear kernel with a Gaussian one on standardised inputs, whose width is found on at most 600 rows; beyond 2500 rows
        (1000 of a long table) the Gaussian one has 400 landmarks. Sparse inputs, sums of terms, several losses and structures
        on the columns of ``X`` keep the linear kernel, and so does ``None``.
    alphas : int or sequence of float, default=30
        Values of alpha: how many, on a grid computed from the data (five decades down from the smallest alpha with zero
        weights), or the values themselves. A grid of at least five values goes on while the best is at its end; where the
        values were given, a warning says so.
    cv : int, splitter, iterable of splits or "loo", default=None
        Folds: 5 by default, stratified so that every fold has every task. Any scikit-learn splitter works, grouped and
        time-ordered ones included. ``"loo"`` (or ``LeaveOneOut()``) leaves out one row at a time and scores all predictions
        together; for the squared loss and a known structure (``"independent"``, ``SharedMean``, ...) in closed form.
    scoring : str, callable or None, default=None
        ``None`` is the share of the loss of the best constant that is explained: under the squared loss R2 over the rows of a
        long table, and the mean R2 over the tasks of a wide one. The loss of the constant is that over all data, so that a fold
        may test one row of a task. (The classes of one target, losses of whole rows and ``loss=`` by task take ``score``.)
        ``"steady"`` is the mean over tasks of R2 with the variance of each task over all the data, at least a thousandth of
        that within all tasks of a long table. Scorers of scikit-learn and of ``taskloom.metrics`` work as in ``GridSearchCV``.
    common : "auto", None, bool, str, callable or Term, default="auto"
        ``"auto"`` compares fits without a common part with fits that have one (the kernel of the own parts; independent own
        parts, unless a structure was given), on the same folds. Anything else is fixed, as in :class:`MultiTaskRegressor`.
    weights : dict or list of float, default=None
        Weights of terms that are not searched: by name (``"common"``, ``"intercept"``; the text of a term), or one for each of
        ``terms``. The others are chosen with alpha, at most eight settings for each value of alpha. A term that has a weight
        other than 1 keeps it.
    fallback : {None, "single"}, default=None
        ``"single"`` gives a task its own single-task model where joint learning hurts it by more than one standard error.
    n_jobs : int, default=None
        Folds that run at the same time, in threads.
    random_state : int, RandomState or None, default=None
        Shuffles the default folds; ``None`` assigns rows to folds in their order.
    loss, ridge, task_weight, fit_intercept, task_column, terms, intercept_scaling, \
unseen, standardize_targets, noise, gamma, degree, coef0, approximation, n_components, solver, tol, \
max_iter, time_limit, verbose
        As in :class:`MultiTaskRegressor`.

    Attributes
    ----------
    alpha_ : float
        The chosen alpha.
    best_kernel_, best_gamma_ : str, callable or list; float or str
        The chosen kernel, and its ``gamma`` where ``kernels`` were compared; ``gamma_`` is the number that a word stands for.
    best_structure_ : Structure
        The chosen candidate (``structure_`` is the learned matrix); of the own parts, beside a common one.
    best_weights_ : dict
        The chosen weights, by term; only if the chosen model has a common part or terms.
    selection_ : str
        What was chosen among what, in one sentence.
    best_score_ : float
        Its mean score over the folds.
    best_params_, best_index_ : dict, int
        The chosen parameters of the plain estimator, and their index in ``cv_results_``.
    cv_results_ : dict of arrays
        One entry for each candidate and alpha, in the columns of ``GridSearchCV``, with the largest relative duality gap.
    path_ : dict of arrays
        The path of the chosen structure: ``alphas``, ``score`` and its ``standard_error`` over the folds, the largest
        ``relative_gap``, and the means over the folds of ``n_iter`` and of ``spectrum`` (the eigenvalues of the structure).
    transfer_ : dict of arrays
        For each ``task`` its score ``alone`` (single-task learning at its best alpha), ``together`` (multi-task),
        the ``gain``, the ``standard_error`` of the gain over the folds, and its ``model``.
    fallback_tasks_ : ndarray
        The tasks with a single-task model (``fallback="single"``).
    n_splits_ : int
    structure_, coef_, dual_coef_, intercept_, tasks_, noise_, certificate_, n_iter_, history_, n_features_in_, \
feature_names_in_
        As in :class:`MultiTaskRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import MultiTaskRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 5))
    >>> Y = X @ rng.normal(size=(5, 1)) @ rng.normal(size=(1, 8)) + rng.normal(size=(40, 8))
    >>> model = MultiTaskRegressorCV(structures=["trace", "shared_mean"], alphas=10).fit(X, Y)
    >>> model.best_structure_
    Trace()
    >>> bool(model.transfer_["gain"].mean() > 0)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list]] = searched(MultiTaskRegressor)
    _plain_class = MultiTaskRegressor

    def __init__(
        self,
        structure: StructureParameter = None,
        *,
        structures: Sequence[StructureParameter] | None = None,
        alphas: int | ArrayLike = 30,
        cv: Any = None,
        scoring: Any = None,
        fallback: Literal["single"] | None = None,
        n_jobs: int | None = None,
        kernel: KernelParameter | None = None,
        kernels: Sequence[Any] | Literal["auto"] | None = "auto",
        loss: LossParameter = "squared",
        ridge: float = 0.0,
        task_weight: TaskWeight = "equal",
        fit_intercept: bool = True,
        task_column: str | int | None = None,
        common: Any = "auto",
        terms: Any = None,
        weights: Any = None,
        intercept_scaling: float = 1.0,
        unseen: Unseen = "auto",
        standardize_targets: bool = False,
        noise: float | None = None,
        gamma: float | Literal["scale", "median"] | None = None,
        degree: float = 3,
        coef0: float = 1,
        approximation: Any = None,
        n_components: float | Literal["auto"] = 100,
        solver: str | Solver = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        time_limit: float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self._keep(locals())
