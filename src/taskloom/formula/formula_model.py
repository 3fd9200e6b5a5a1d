"""An estimator behind a formula: it takes data frames where the estimator takes its table."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Self

from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from .._component import warn
from ..estimators import MultiTaskRegressor
from ..estimators.terms.likelihood_terms import likelihood_terms
from ..losses import as_loss
from .formula_design import FormulaDesign


def from_formula(
    formula: str,
    data: Any,
    *,
    model: Callable[..., Any] | None = None,
    structure: Any = None,
    penalize_fixed: bool = False,
    reml: bool | None = None,
    **settings: Any,
) -> FormulaModel:
    """Fit a mixed model that a formula of lme4's kind describes.

    By default the covariances of the random effects maximise the restricted likelihood, so that predictions are those of lme4
    and of other mixed models. With ``alpha``, another loss or a structure it is the problem that these say.

    The result is fitted: the call has all that a fit needs. Its ``fit()`` without data returns it unchanged, so that the
    habit of statsmodels, ``from_formula(formula, data).fit()``, costs nothing.

    Parameters
    ----------
    formula : str
        Target, fixed effects and random parts: ``"y ~ x1 + x2 + (1 + x1 | shop) + (1 | region)"``.
    data : data frame
        With the columns that the formula names.
    model : class, default=None
        The estimator; ``None`` is :class:`taskloom.MultiTaskRegressor`.
    structure : Structure or str, default=None
        The structure of random parts with several columns; ``None`` is ``"trace"``, which learns their covariance.
    penalize_fixed : bool, default=False
        Whether fixed effects are penalised, with weight 1.
    reml : bool, default=None
        Whether the covariances of random effects, and alpha, are those of the restricted likelihood (squared loss). ``None``:
        where neither ``alpha`` nor a structure, another loss, another estimator or ``penalize_fixed`` is given. Otherwise
        ``alpha`` is ``1/n`` by default, which adds a row of zeros to each level.
    **settings : dict
        Parameters of the estimator: ``alpha``, ``loss``, ``tol``, ...

    Returns
    -------
    FormulaModel

    Notes
    -----
    ==========================  ========================================================================================
    ``x1 + x1:x2 + C(a)``       fixed effects, as formulaic codes them: ``Term("linear", columns=[...], weight=np.inf)``
    ``.``                       every column that is neither target nor part of a grouping
    ``0 + x``, ``x - 1``        no intercept: ``fit_intercept=False``
    ``(1 | shop)``              an intercept for each shop: ``Term("constant", by="shop")``
    ``(x | shop)``              intercept and slope, their covariance learned:
                                ``Term("linear", by="shop", columns=["x"], intercept=True, structure="trace")``
    ``(0 + x | shop)``          a slope without intercept: ``Term("linear", by="shop", columns=["x"])``
    ``(x || shop)``             intercept and slope, independent: two terms, each with its weight
    ``(1 | town/shop)``         nested: ``(1 | town) + (1 | town:shop)``
    ``(1 | town:shop)``         a level for each combination that occurs
    ==========================  ========================================================================================

    A formula is evaluated as code: take none from strangers. It sees the columns, ``np`` and the transformations of
    formulaic, no variables of the caller. Rows with a missing input or grouping are refused, and so are categories of fixed
    effects that the data of the fit has not. Levels of groupings may be new.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import taskloom
    >>> data = pd.DataFrame({"x": np.arange(12.0), "shop": list("abc") * 4})
    >>> data["y"] = 2 * data["x"] + data["shop"].map({"a": 0.0, "b": 5.0, "c": 10.0})
    >>> model = taskloom.from_formula("y ~ x + (1 | shop)", data, alpha=1e-6)
    >>> new = pd.DataFrame({"x": [1.0, 1.0], "shop": ["a", "c"]})
    >>> model.predict(new).round(1).tolist()
    [2.0, 12.0]
    """
    for name in {"terms", "fit_intercept"} & settings.keys():
        raise ValueError(f"{name}={settings[name]!r} is in the formula: write '0 +' for no intercept, (x | group) for a term")
    if reml is None:
        squared = as_loss(settings.get("loss", "squared")).quadratic if not isinstance(settings.get("loss"), dict) else False
        said = {"alpha", "ridge"} & settings.keys() or structure is not None or model is not None or penalize_fixed
        reml = squared and not said
    if model is None and not reml:
        settings = {"alpha": 1 / max(len(data), 1), **settings}
    estimator = (MultiTaskRegressor if model is None else model)(**settings)
    return FormulaModel(formula, estimator, structure=structure, penalize_fixed=penalize_fixed, reml=reml).fit(data)


class FormulaModel(BaseEstimator):
    """A formula and the estimator that fits it; scikit-learn's searches take it, with a data frame as ``X`` and no ``y``.

    Fitted attributes and methods of the estimator are there under their own names (``coef_``, ``certificate_``, ``summary()``);
    those that predict take a data frame. All others that need a table take ``design_.transform(data)``.

    Parameters
    ----------
    formula : str
        As in :func:`taskloom.from_formula`.
    estimator : estimator, default=None
        What fits the terms of the formula; ``None`` is ``MultiTaskRegressor()``.
    structure : Structure or str, default=None
        The structure of random parts with several columns; ``None`` is ``"trace"``, which learns their covariance.
    penalize_fixed : bool, default=False
        Whether fixed effects are penalised, with weight 1.
    reml : bool, default=None
        Whether the covariances of random effects, and alpha, are those of the restricted likelihood; ``None``: without an
        ``estimator`` of yours.

    Attributes
    ----------
    design_ : FormulaDesign
        The formula with the categories and transformations of the fit.
    estimator_ : estimator
        The fitted estimator.
    """

    def __init__(
        self,
        formula: str,
        estimator: Any = None,
        *,
        structure: Any = None,
        penalize_fixed: bool = False,
        reml: bool | None = None,
    ):
        self.formula = formula
        self.estimator = estimator
        self.structure = structure
        self.penalize_fixed = penalize_fixed
        self.reml = reml

    def fit(self, data: Any = None, y: None = None, **options: Any) -> Self:
        """Fit the terms of the formula.

        Parameters
        ----------
        data : data frame, default=None
            With the columns that the formula names; ``None`` leaves a fitted model as it is.
        y : None, default=None
            Ignored: the target is in the formula.
        **options : dict
            Further arguments of the estimator's ``fit``, such as ``sample_weight``.

        Returns
        -------
        self
        """
        if data is None:
            check_is_fitted(self, "estimator_", msg="this %(name)s is not fitted: call fit(data) with a data frame")
            return self
        design = FormulaDesign.build(self.formula, data, structure=self.structure, penalize_fixed=self.penalize_fixed)
        estimator = MultiTaskRegressor() if self.estimator is None else clone(self.estimator)
        estimator.set_params(terms=design.terms, fit_intercept=design.fit_intercept)
        table, target = design.transform(data), design.target(data)
        reml = self.estimator is None and self.structure is None and not self.penalize_fixed if self.reml is None else self.reml
        if reml:
            estimator.set_params(**self._at_likelihood(estimator, table, target, options.get("sample_weight")))
        estimator.fit(table, target, **options)
        self.design_, self.estimator_ = design, estimator
        return self

    def _at_likelihood(self, estimator: Any, table: Any, target: Any, sample_weight: Any) -> dict[str, Any]:
        """Terms and alpha at the variance components."""
        if isinstance(estimator.loss, dict) or not as_loss(estimator.loss).quadratic:
            raise ValueError(f"reml=True needs loss='squared', got loss={estimator.loss!r}; give alpha and reml=False")
        found = likelihood_terms(estimator, table, target, sample_weight)
        if not isinstance(found, str):
            return {"terms": found[0], "alpha": found[1]}
        if self.reml and self.estimator is None:
            raise ValueError(f"reml=True: {found} Give alpha and reml=False")
        alpha = 1 / len(target)
        warn(f"{found} This fit has alpha = 1/n = {alpha:.3g} and weights of 1; give alpha to choose it", UserWarning)
        return {"alpha": alpha}

    def predict(self, data: Any, **options: Any) -> Any:
        """Predict the target, as it stands left of ``~``.

        Parameters
        ----------
        data : data frame
            With the inputs and groupings of the formula.
        **options : dict
            Further arguments of the estimator's ``predict``, such as ``return_std=True``.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(self.design_.transform(data), **options)

    def score(self, data: Any, y: None = None, **options: Any) -> float:
        """The score of the estimator on a data frame with the target.

        Parameters
        ----------
        data : data frame
            With the columns that the formula names.
        y : None, default=None
            Ignored: the target is in the formula.
        **options : dict
            Further arguments of the estimator's ``score``.

        Returns
        -------
        float
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.score(self.design_.transform(data), self.design_.target(data), **options)

    def save(self, path: Any) -> None:
        """Refuse: a formula is code, and model files hold nothing that can run.

        Parameters
        ----------
        path : path
            Ignored.
        """
        raise NotImplementedError(
            "a formula is code, which a model file never holds: pickle the model, or save model.estimator_ and give it "
            "model.design_.transform(data)"
        )

    def __getattr__(self, name: str) -> Any:
        """Attributes of the fitted estimator; what predicts takes a data frame."""
        if name.startswith("_") or "estimator_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; fit(data) adds those of the estimator")
        value = getattr(self.estimator_, name)
        if not (callable(value) and name.startswith(("predict", "decision_function"))):
            return value

        @wraps(value)
        def of_data(data: Any, *arguments: Any, **options: Any) -> Any:
            return value(self.design_.transform(data), *arguments, **options)

        return of_data
