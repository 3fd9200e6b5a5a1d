"""One term of a predictor, as a user states it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from ..._component import Component, is_number
from ...structures import as_structure

KERNELS = ("constant", "linear")  # and the kernels of scikit-learn


@dataclass(eq=False, repr=False)
class Term(Component):
    """A function of some columns, for all rows or for each level of a grouping: one term of a predictor.

    The predictor is the sum of its terms, ``f(row) = b + sum_q phi_q(x)' W_q u_q(row)``. What a term does depends on ``u``:

    - without ``by``: 1, one function for all rows (fixed effects with ``weight=np.inf``);
    - with ``by``: the indicator of the row's level, a function for each level (random effects);
    - with ``by`` and ``described_by``: the descriptors of the level, which also exist for levels without any data.

    Parameters
    ----------
    kernel : str or callable
        ``"constant"`` (an intercept), ``"linear"``, a kernel of scikit-learn, or any ``k(X, Z)``.
    by : str or int, default=None
        The column that names the level of each row, by name or by position. An integer is always a position.
    structure : Structure or str, default=None
        The penalty that relates the levels; ``None`` is ``Independent()``.
    columns : str, int or list of them, default=None
        The inputs; ``None`` is all columns that no term names in ``by`` or ``described_by``.
    described_by : str, int or list of them, default=None
        Columns that describe the levels of ``by``; they are constant within a level. Text and categories enter one-hot.
    descriptor_kernel : str or callable, default=None
        A kernel on the descriptors; ``None`` is linear.
    intercept : bool, default=False
        Whether the function has an intercept, which is penalised with it.
    weight : float, default=1.0
        ``omega``, the scale of the kernel: the penalty is divided by it. A linear or constant term is not penalised at all with
        ``np.inf``.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import Term
    >>> Term("linear", by="shop", structure="trace", intercept=True)
    Term('linear', by='shop', structure='trace', intercept=True)
    """

    kernel: Any
    _: KW_ONLY
    by: Any = None
    structure: Any = None
    columns: Any = None
    described_by: Any = None
    descriptor_kernel: Any = None
    intercept: bool = False
    weight: float = 1.0

    def check(self) -> None:
        if not (isinstance(self.kernel, str) or callable(self.kernel)):
            raise ValueError(f'Term needs a kernel: "constant", "linear", a name or a callable, got {self.kernel!r}')
        if isinstance(self.kernel, str) and self.kernel not in KERNELS:
            self._check_kernel_name()
        if not isinstance(self.intercept, (bool, np.bool_)):
            raise ValueError(f"Term needs intercept=True or intercept=False, got intercept={self.intercept!r}")
        if not (is_number(self.weight) or self.weight == np.inf) or not self.weight > 0:
            raise ValueError(f"Term needs weight > 0 (np.inf for an unpenalised term), got weight={self.weight!r}")
        constant = self.kernel == "constant" if isinstance(self.kernel, str) else False
        if constant and self.by is None:
            raise ValueError('Term("constant") needs by=: the intercept of all rows is there already (fit_intercept=True)')
        if constant and (self.columns is not None or self.intercept):
            raise ValueError('Term("constant") is an intercept, and takes neither columns= nor intercept=')
        if self.described_by is not None and self.by is None:
            raise ValueError(f"described_by={self.described_by!r} needs by=: the grouping whose levels are described")
        if self.descriptor_kernel is not None and self.described_by is None:
            raise ValueError(f"descriptor_kernel={self.descriptor_kernel!r} needs described_by=")
        if self.structure is not None:
            as_structure(self.structure)
        if self.free and not (isinstance(self.kernel, str) and self.kernel in KERNELS):
            raise ValueError(f"weight=inf needs a linear or constant term, got kernel={self.kernel!r}")
        if self.free and self.structure is not None:
            raise ValueError(f"a term with weight=inf is not penalised, and takes no structure, got {self.structure!r}")

    def _check_kernel_name(self) -> None:
        from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS  # slow to import

        known = sorted({*KERNELS, *PAIRWISE_KERNEL_FUNCTIONS})
        if self.kernel not in known:
            close = get_close_matches(self.kernel, known, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"the kernel of a Term must be one of {known} or a callable k(X, Z), got {self.kernel!r}{meant}")

    @property
    def free(self) -> bool:
        """Whether the term is not penalised."""
        return self.weight == np.inf

    def __repr__(self) -> str:
        usual = vars(type(self))
        given = {name: value for name, value in self.get_params().items() if name != "kernel"}
        changed = {name: value for name, value in given.items() if repr(value) != repr(usual[name])}
        return f"Term({', '.join([repr(self.kernel), *(f'{name}={value!r}' for name, value in changed.items())])})"
