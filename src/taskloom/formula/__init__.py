"""Models from formulas of lme4's kind: ``"y ~ x1 + x2 + (1 + x1 | shop) + (1 | region)"``.

Formulas need formulaic, an extra (``pip install "taskloom[formula]"``), which evaluates what stands in them: transformations,
interactions, the coding of categories. A formula is code, so take none from strangers.
"""

from __future__ import annotations

from .formula_design import FormulaDesign
from .formula_model import FormulaModel, from_formula
from .parsing import ParsedFormula, RandomPart, parse_formula

__all__ = ["FormulaDesign", "FormulaModel", "ParsedFormula", "RandomPart", "from_formula", "parse_formula"]
