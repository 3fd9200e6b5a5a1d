"""Regression on many tasks at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils._param_validation import Interval

from .._array_api import following
from ..losses import RowLoss, as_loss
from ..solvers import Solver
from ..tables.layout import align_targets, column_names, shown, sorted_labels
from ..uncertainty.term_posterior import TermPosterior
from . import partial_fit as blocks_fit
from .base import MultiTaskEstimator
from .parameter_types import KernelParameter, LossParameter, StructureParameter, TaskWeight, Unseen
from .standard_deviations import posterior_of, predict_std
from .target_encoding import places, signs_of, two_classes
from .terms.sum_deviations import sum_deviation
from .validation import TargetInfo, available_if, losses_by_task, names_its_class, new_rows


class MultiTaskRegressor(RegressorMixin, MultiTaskEstimator):
    """Learn many related regression tasks together with the structure that relates them, to a proved optimum.

    Minimises, over the tasks ``f``, their intercepts ``b`` and the structure ``A``::

        sum_t c_t/S_t sum_{i in t} s_i loss(y_i, f_t(x_i) + b_t) + alpha tr(A^+ G) + ridge tr(G) + F(A)

    where ``G`` holds the inner products of the tasks (``W'W`` for a linear kernel), ``S_t`` is the total weight of task
    ``t`` and ``c_t`` its task weight.

    Parameters
    ----------
    structure : Structure or str, default=None
        The penalty ``F``: an object of :mod:`taskloom.structures` or its lower-case name. ``None`` is ``Trace()``.
    kernel : str or callable, default="linear"
        A scikit-learn pairwise kernel name, ``"precomputed"``, a Gaussian-process kernel, or any ``k(X, Z)``.
    alpha : float, default=0.01
        Regularisation strength of the structured norm.
    loss : Loss, str or dict, default="squared"
        An object of :mod:`taskloom.losses` or its snake_case name; or one for each task, by task name. A task with a loss of
        labels (``"logistic"``, ``"hinge"``) takes -1 and +1, or two labels of which the second in order counts as +1, and
        predicts its decision value.
    ridge : float, default=0.0
        Regularisation strength of the plain squared norm.
    task_weight : {"equal", "size"}, array or dict, default="equal"
        ``c_t``: 1, in proportion to the weight of the task, or given (a dict by task name).
    fit_intercept : bool, default=True
        Whether each task has an unpenalised intercept.
    task_column : str or int, default=None
        Name or position of the column of ``X`` that holds the task of each row (long tables).
    common : bool, str, callable or Term, default=None
        A common function of all tasks beside their own: ``True`` with the kernel of the own parts, another kernel, or a
        :class:`taskloom.Term` with a kernel and a weight beside the own parts, whose weight is 1. The intercepts of the tasks
        are then penalised with their functions, and one intercept for all is not.
    terms : list of Term, default=None
        The terms of the predictor, in place of ``structure``, ``kernel``, ``common``, ``task_column`` and ``task_weight``:
        several groupings, fixed effects, descriptors of levels. See :class:`taskloom.Term`.
    intercept_scaling : float, default=1.0
        With ``common=``, the constant feature whose weights are the intercepts of the tasks: the larger, the less they are
        shrunk beside the slopes of the own parts.
    unseen : {"auto", "raise", "mean"}, default="auto"
        What to do with a task that was not seen in training (long tables): refuse it, or predict with the mean of the tasks.
        ``"auto"`` predicts the common part where there is one, and refuses otherwise.
    standardize_targets : bool, default=False
        Whether to give each task's targets mean 0 and variance 1 during the fit. Predictions, ``coef_`` and ``intercept_``
        are in the units of the targets; ``structure_`` and ``certificate_`` belong to the standardized problem.
    noise : float, default=None
        Standard deviation of the noise, for ``predict(X, return_std=True)``; ``None`` estimates it from the residuals.
    gamma : float, {"scale", "median"} or None, default=None
        Parameter of named kernels, as in scikit-learn; ``None`` is its default there. From the inputs of the fit: ``"scale"``
        is ``1 / (n_features * X.var())``, as in scikit-learn's ``SVR``, and ``"median"`` is ``1 / (2 m)`` with the median ``m``
        of the squared distances between rows. ``gamma_`` is then the number.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1
        Constant of the polynomial and sigmoid kernels.
    approximation : {"nystroem", "leverage", "fourier"}, transformer or None, default=None
        Features in place of the kernel matrix, for many rows: from landmarks (``"nystroem"``; ``"leverage"`` draws them by
        ridge leverage scores), random Fourier features (rbf only), or a scikit-learn transformer. ``None`` is exact. The
        certificate is that of the approximate problem; ``bound_exact`` says how far the exact one may be.
    n_components : int, float or "auto", default=100
        The number of features; or, between 0 and 1, the relative error of the kernel (in the Frobenius norm, on up to 1000
        rows) until which it grows; ``"auto"`` is 0.05.
    solver : str or Solver, default="auto"
        ``"auto"``, ``"factored"``, ``"proximal"``, ``"alternating"`` or ``"block"``. ``"auto"`` picks by structure, loss and
        shape.
    tol : float, default=1e-4
        Relative duality gap at which the fit stops.
    max_iter : int, default=1000
        The most steps of the solver.
    time_limit : float, default=None
        Seconds after which the fit stops with its best certified iterate. It counts from the call of ``fit``.
    warm_start : bool, default=False
        Start from the last fit.
    verbose : int, default=0
        Whether to print a line about every tenth iteration.
    random_state : int, RandomState or None, default=None
        Draws the features of an approximation; ``None`` draws the same every time. Fits are deterministic otherwise, starts
        come from the data.
    device : {"cuda", "cuda:0", ..., "cpu"}, default=None
        Where to fit. ``"cuda"`` needs PyTorch or CuPy; CUDA tensors as ``X`` choose their own device; ``"cpu"`` runs the code
        for devices on the host. See the section on GPUs in docs/scaling.md for what a device can fit.

    Attributes
    ----------
    structure_ : ndarray of shape (n_tasks, n_tasks), or FactoredStructure
        The learned ``A``, in the order of ``tasks_``; of more than 2000 tasks it is held by a factor.
    coef_ : ndarray of shape (n_tasks, n_features)
        Weights (linear kernel); with an approximation those of the mapped features, ``(n_tasks, n_components)``.
    feature_map_ : object with ``transform``
        The map of an approximation, and ``approximation_error_`` its relative error, where one was asked for.
    dual_coef_ : ndarray of shape (n_samples, n_tasks)
        Kernel coefficients (other kernels).
    intercept_ : ndarray of shape (n_tasks,)
    tasks_ : ndarray of shape (n_tasks,)
        Column names of ``Y``, or the sorted labels of the task column; then tasks that were added.
    noise_ : ndarray of shape (n_tasks,)
        Standard deviation of the noise of each task (squared loss).
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative_gap``, ``status``, ``message``.
    n_iter_ : int
        Steps of the solver.
    history_ : dict of arrays
        ``iteration``, ``objective``, ``dual``, ``gap``, ``seconds``.
    device_ : str
        Where the fit ran, if on a device.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    One object for each thread that fits: ``clone`` it. A fitted model may predict in many threads.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import MultiTaskRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 5))
    >>> Y = X @ rng.normal(size=(5, 1)) @ rng.normal(size=(1, 8)) + 0.1 * rng.normal(size=(30, 8))
    >>> Y[::2, 3] = np.nan  # a task may be observed in some rows only
    >>> model = MultiTaskRegressor("trace", alpha=0.1).fit(X, Y)
    >>> bool(model.certificate_.relative_gap <= 1e-4)
    True
    >>> int(np.linalg.matrix_rank(model.coef_, tol=1e-3))
    1
    """

    _parameter_constraints: ClassVar[dict[str, list]] = {
        **MultiTaskEstimator._parameter_constraints,
        "standardize_targets": ["boolean"],
        "noise": [Interval(Real, 0, None, closed="neither"), None],
        "device": [str, None],
    }

    def __init__(
        self,
        structure: StructureParameter = None,
        *,
        kernel: KernelParameter = "linear",
        alpha: float = 0.01,
        loss: LossParameter = "squared",
        ridge: float = 0.0,
        task_weight: TaskWeight = "equal",
        fit_intercept: bool = True,
        task_column: str | int | None = None,
        common: Any = None,
        terms: Any = None,
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
        warm_start: bool = False,
        verbose: int = 0,
        random_state: Any = None,
        device: str | None = None,
    ):
        self._keep(locals())

    # --- fit in blocks --------------------------------------------------------------------------------------------

    @available_if(blocks_fit.is_incremental)
    @names_its_class
    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one more block of rows; the model is then that of all blocks so far, as ``fit`` on them together.

        Squared loss only. Statistics are exact: one Gram matrix of the features for each task, or one for all of them while
        every row has seen every task. New tasks may appear in any block; a task without an observation so far is not among
        ``tasks_``. Landmarks of an approximation come from the first block (``fit_blocks`` draws them from all rows). Each call
        solves, from the last solution with ``warm_start=True``. After ``fit`` or ``load`` it begins anew, with a warning.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.

        Returns
        -------
        self
            The fitted model.
        """
        self._state = blocks_fit.with_block(self, X, y, sample_weight)
        return self

    @available_if(blocks_fit.is_incremental)
    @names_its_class
    def fit_blocks(self, blocks: Iterable[tuple] | Callable[[], Iterable[tuple]]) -> Self:
        """Learn from rows that need not fit in memory; equal to ``fit`` on all of them.

        Squared loss only. Memory holds a block, its features some rows at a time, and the statistics of ``partial_fit``.

        Parameters
        ----------
        blocks : iterable of tuples, or callable
            Tuples ``(X, y)`` or ``(X, y, sample_weight)``, or a function without arguments that makes such an iterable. A
            generator can be read once. With an approximation there are two passes, the first for a uniform sample of rows
            from which the map is drawn: pass a list, a function that makes the generator, or
            :func:`taskloom.parquet_blocks`.

        Returns
        -------
        self
            The fitted model.
        """
        self._state = blocks_fit.of_blocks(self, blocks)
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse &= getattr(self, "device", None) is None
        return tags

    # --- targets ------------------------------------------------------------------------------------------------

    def _targets(self, y, labels):
        """``Y`` as a float matrix with NaN where unobserved; with a loss for each task, encoded for it."""
        mixed = isinstance(self.loss, dict)
        for loss in map(as_loss, self.loss.values() if mixed else [self.loss]):
            if isinstance(loss, RowLoss):
                raise ValueError(f"loss={self.loss!r} compares the classes of one target; use MultiTaskClassifier")
        raw = np.asarray(y) if mixed else _numbers(y)
        if raw.ndim not in (1, 2):
            raise ValueError(f"y should be a 1d or 2d array, got shape {raw.shape}")
        raw = column_or_1d(raw, warn=True) if labels is not None else raw
        wide = raw.ndim == 2
        raw = raw if wide else raw[:, None]
        tasks = column_names(y, raw.shape[1]) if labels is None else sorted_labels(labels)
        if mixed:
            classes: list[Any] = [None] * len(tasks)
            Y = np.full(raw.shape, np.nan)
            for t, (place, loss) in enumerate(zip(places(labels, tasks), losses_by_task(self.loss, tasks), strict=True)):
                if loss.targets == "signs":
                    classes[t], Y[place] = two_classes(raw[place], f"task {shown(tasks[t])}")
                else:
                    Y[place] = _numbers(raw[place], f"y of task {shown(tasks[t])}")
            return Y, TargetInfo(tasks_=tasks, wide=wide, classes_=classes)
        if loss.targets == "signs" and not (np.isnan(raw) | (np.abs(raw) == 1)).all():
            values = np.unique(raw[~np.isnan(raw)])
            raise ValueError(
                f"{type(loss).__name__} needs targets -1 and +1 in a regressor, got {values[:5].tolist()}; "
                "use MultiTaskClassifier for labels"
            )
        return raw, TargetInfo(tasks_=tasks, wide=wide)

    def _targets_of_task(self, state, y, name):
        if isinstance(self.loss, dict):
            raise ValueError("add_task cannot know the loss of a new task where each has its own")
        return _numbers(y), None

    # --- predict ------------------------------------------------------------------------------------------------

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True, "joint"]) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(self, X: Any, return_std: bool | Literal["joint"] = False) -> Any:
        """Predict every task at every row (wide), or each row's own task (long).

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.
        return_std : bool or "joint", default=False
            Whether to give the standard deviations too (squared loss): those of the Gaussian-process posterior of the tasks'
            functions, given the structure. With ``"joint"`` the structure is taken for as uncertain as the weights that it was
            learned from, which calibrated intervals need. An observation differs from the function by noise, whose standard
            deviation is ``noise_``. With ``common=`` or ``terms=`` a level that was not seen has its prior variance besides:
            under a structure that relates levels, the mean variance of the fitted ones; without a penalty it is infinite.

        Returns
        -------
        ndarray of shape (n_samples, n_tasks), or (n_samples,) for a long table or a one-dimensional ``y``
            Or a pair of them.
        """
        mean = following(self._respond(self._decision(X)), X)
        if not return_std:
            return mean
        if isinstance(return_std, str) and return_std != "joint":
            raise ValueError(f'return_std must be True, False or "joint", got {return_std!r}')
        posterior = posterior_of(self._state, self.noise, self._no_posterior(), joint=isinstance(return_std, str))
        if isinstance(posterior, TermPosterior):
            std = sum_deviation(self, self._state, X, posterior).astype(self._state.dtype, copy=False)
        else:
            std = predict_std(self._state, *new_rows(self, self._state, X), posterior)
        return mean, following(self._respond(std), X)

    def _no_posterior(self) -> str:
        """Why this fit has no posterior, although its rows are at hand."""
        if len(getattr(self, "fallback_tasks_", ())):  # of a search
            return "describe a joint fit of all tasks, but fallback gave some a model of their own (fallback_tasks_)"
        return f"need a fit with the squared loss for all tasks, got loss={self.loss!r}"

    @property
    def noise_(self) -> np.ndarray:
        """Standard deviation of the noise of each task."""
        return posterior_of(self._fitted(), self.noise, self._no_posterior()).noise * self._state.scale.std

    def _respond(self, values):
        """Decision values in the shape of the targets."""
        return values[:, 0] if values.ndim == 2 and not self._state.wide else values

    # --- scores -------------------------------------------------------------------------------------------------

    def _coded(self, known, y, labels):
        """Numbers, and labels as -1 and +1 where a task has them."""
        y = align_targets(y, known.tasks_) if labels is None and known.wide else y
        if known.classes_ is None:
            Y = _numbers(y)
            return Y.reshape(-1, len(known.tasks_)) if labels is None else column_or_1d(Y)
        raw = np.asarray(y)
        raw = raw[:, None] if raw.ndim == 1 else raw
        Y = np.full(raw.shape, np.nan)
        for place, classes in zip(places(labels, known.tasks_), known.classes_, strict=True):
            Y[place] = _numbers(raw[place]) if classes is None else signs_of(raw[place], classes)
        return Y if labels is None else Y[:, 0]

    score = MultiTaskEstimator.score


def _numbers(y, name="y"):
    """Targets as floats, NaN allowed, infinity not."""
    try:
        Y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name=name)
    except ValueError as error:
        raise error if name == "y" else ValueError(f"{name}: {error}") from None
    if np.isinf(Y).any():
        raise ValueError(f"{name} holds infinity")
    return Y
