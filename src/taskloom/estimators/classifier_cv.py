"""Classification on many tasks with alpha and structure chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from numpy.typing import ArrayLike

from ..solvers import Solver
from .classifier import MultiTaskClassifier
from .cross_validation.search import CrossValidated, searched
from .parameter_types import KernelParameter, LossLike, StructureParameter, TaskWeight, Unseen


class MultiTaskClassifierCV(CrossValidated, MultiTaskClassifier):
    """:class:`MultiTaskClassifier` with alpha, and optionally the structure, chosen by cross-validation.

    Parameters
    ----------
    structure, structures, kernel, kernels, alphas, cv, scoring, common, weights, fallback, n_jobs, random_state
        As in :class:`MultiTaskRegressorCV`; the default folds hold every class of every task. The default score is the share of
        the loss that is explained; for the classes of one target it is the mean accuracy over tasks, that of ``score``.
    loss, ridge, task_weight, fit_intercept, task_column, terms, intercept_scaling, \
unseen, coding, gamma, degree, coef0, approximation, n_components, solver, tol, max_iter, time_limit, verbose
        As in :class:`MultiTaskClassifier`.

    Attributes
    ----------
    alpha_, best_structure_, best_kernel_, best_gamma_, best_score_, best_params_, best_index_, cv_results_, path_, transfer_, \
fallback_tasks_, n_splits_
        As in :class:`MultiTaskRegressorCV`.
    classes_, structure_, coef_, dual_coef_, intercept_, tasks_, certificate_, n_iter_, history_, n_features_in_, \
feature_names_in_
        As in :class:`MultiTaskClassifier`.
    """

    _parameter_constraints: ClassVar[dict[str, list]] = searched(MultiTaskClassifier)
    _plain_class = MultiTaskClassifier

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
        loss: LossLike = "logistic",
        ridge: float = 0.0,
        task_weight: TaskWeight = "equal",
        fit_intercept: bool = True,
        task_column: str | int | None = None,
        common: Any = "auto",
        terms: Any = None,
        weights: Any = None,
        intercept_scaling: float = 1.0,
        unseen: Unseen = "auto",
        coding: Literal["one_vs_rest", "simplex"] = "one_vs_rest",
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
