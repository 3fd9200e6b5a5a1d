"""A predictor is a sum of terms: some columns of the features, and the structure variable on their weights."""

from __future__ import annotations

from typing import NamedTuple

from .variables import Variable


class Term(NamedTuple):
    """``phi(x)' W u(task)``: the columns that are its features, and the structure variable that sits on ``W``.

    Terms may share columns (``Robust``, ``Dirty``) or have columns of their own (sums of kernels).
    """

    columns: slice
    variable: Variable
