"""Regression on many tasks at once."""

from __future__ import annotations

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, column_or_1d

from .._component import require
from ..metrics import macro_r2
from ..tables import align_targets, column_names
from .base import MultiTaskEstimator


class MultiTaskRegressor(RegressorMixin, MultiTaskEstimator):
    """Learn many related regression tasks together with the structure that relates them, to a proved optimum.

    Minimises, over the tasks ``f``, their intercepts ``b`` and the structure ``A``,

        sum_t c_t/S_t sum_{i in t} s_i loss(y_i, f_t(x_i) + b_t) + alpha tr(A^+ G) + ridge tr(G) + F(A)

    where ``G`` holds the inner products of the tasks (``W'W`` for a linear kernel), ``S_t`` is the total weight of task
    ``t`` and ``c_t`` its strength.

    Parameters
    ----------
    structure : Structure or str, default=None
        The penalty ``F``: an object of :mod:`taskloom.structures` or its lower-case name. ``None`` is ``Trace()``.
    kernel : str or callable, default="linear"
        A scikit-learn pairwise kernel name, ``"precomputed"``, a Gaussian-process kernel, or any ``k(X, Z)``.
    alpha : float, default=0.01
        Strength of the structured norm.
    loss : Loss or str, default="squared"
        An object of :mod:`taskloom.losses` or its snake_case name.
    ridge : float, default=0.0
        Strength of the plain squared norm.
    task_weight : {"equal", "size"}, array or dict, default="equal"
        ``c_t``: 1, in proportion to the weight of the task, or given (a dict by task name).
    fit_intercept : bool, default=True
        Whether each task has an unpenalised intercept.
    task_column : str or int, default=None
        Name or position of the column of ``X`` that holds the task of each row (long tables).
    gamma, degree, coef0 : float
        Parameters of named kernels, as in scikit-learn.
    solver : {"auto", "factored", "alternating", "block", "proximal"} or Solver, default="auto"
        ``"auto"`` picks by structure, loss and shape, and says so in ``certificate_.message``.
    tol : float, default=1e-4
        Relative duality gap at which the fit stops.
    max_iter : int, default=1000
    time_limit : float, default=None
        Seconds after which the fit stops with its best certified iterate.
    warm_start : bool, default=False
        Start from the last fit.
    verbose : int, default=0
    random_state : int, RandomState or None, default=None
        Here for scikit-learn; fits are deterministic, starts come from the data.

    Attributes
    ----------
    structure_ : ndarray of shape (n_tasks, n_tasks)
        The learned ``A``, in the order of ``tasks_``.
    coef_ : ndarray of shape (n_tasks, n_features)
        Weights (linear kernel).
    dual_coef_ : ndarray of shape (n_samples, n_tasks)
        Kernel coefficients (other kernels).
    intercept_ : ndarray of shape (n_tasks,)
    tasks_ : ndarray of shape (n_tasks,)
        Column names of ``Y``, or the sorted labels of the task column.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap``, ``relative_gap``, ``status``, ``message``.
    n_iter_ : int
    history_ : dict of arrays
        ``iteration``, ``objective``, ``dual``, ``gap``, ``seconds``.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

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

    def _targets(self, y, loss, long):
        """``Y`` as a float matrix with NaN where unobserved; sets ``tasks_`` for wide tables."""
        Y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
        require(not np.isinf(Y).any(), "y holds infinity")
        if long:
            Y = column_or_1d(Y, warn=True)
        self._wide = Y.ndim == 2
        Y = Y[:, None] if Y.ndim == 1 else Y
        self.tasks_ = column_names(y, Y.shape[1]) if not long else None
        if loss.targets == "signs":
            values = np.unique(Y[~np.isnan(Y)])
            require(
                bool(np.isin(values, (-1, 1)).all()),
                f"{type(loss).__name__} needs targets -1 and +1 in a regressor, got {values[:5].tolist()}; "
                "use MultiTaskClassifier for labels",
            )
        return Y

    def predict(self, X):
        """Predict every task at every row (wide), or each row's own task (long).

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_tasks), or (n_samples,) for a long table or a one-dimensional ``y``
        """
        values = self._decision(X)
        return values[:, 0] if values.ndim == 2 and not self._wide else values

    def score(self, X, y, sample_weight=None):
        """The mean over tasks of the coefficient of determination; NaN targets are left out."""
        y = y if self.task_column is not None or not self._wide else align_targets(y, self.tasks_)
        Y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
        predicted = self.predict(X)
        return macro_r2(Y.reshape(predicted.shape), predicted, self._tasks_of_rows(X), sample_weight)
