"""What losses, structures and solvers have in common: parameters that are checked at birth and can be searched."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any, Self

import numpy as np


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points at the line outside of taskloom (and of scikit-learn) from which the call came."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("taskloom", "sklearn"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def is_number(value: Any) -> bool:
    """Whether a parameter is one finite real number (a bool or a string is not)."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


class Component:
    """A dataclass with scikit-learn's ``get_params`` and ``set_params``, so that it can be cloned and searched.

    Parameters are stored as given (scikit-learn's ``clone`` insists on that); ``check`` refuses nonsense.
    Subclasses that hold arrays are declared with ``eq=False``: comparing arrays does not give a bool.
    """

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise ``ValueError`` when a parameter makes no sense. The default accepts everything."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            For scikit-learn's sake; components do not nest.

        Returns
        -------
        dict
            Parameter names to values.
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}  # type: ignore[arg-type]

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name and check them; on failure nothing changes.

        Parameters
        ----------
        **params : object
            New values by parameter name.

        Returns
        -------
        self
            The component itself.
        """
        before = self.get_params()
        unknown = sorted(set(params) - set(before))
        if unknown:
            raise ValueError(f"{type(self).__name__} has no parameter {unknown[0]!r}; it has {sorted(before)}")
        self.__dict__.update(params)
        try:
            self.check()
        except Exception:
            self.__dict__.update(before)
            raise
        return self

    def __repr__(self) -> str:
        shown = []
        for name, value in self.get_params().items():
            shown.append(f"{name}={_brief(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: Any) -> str:
    """A parameter in a few words."""
    if isinstance(value, np.ndarray) and value.size > 9:
        return f"<array {value.shape}>"
    if isinstance(value, (list, tuple)) and len(value) > 9:
        return f"<{len(value)} entries>"
    return repr(value)


def snake_case(name: str) -> str:
    """``"SquaredHinge"`` becomes ``"squared_hinge"``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def resolve(given: Any, kind: type, catalogue: list[type], what: str, also: Sequence[str] = ()) -> Any:
    """A component, or the component that a snake_case name stands for; anything else is refused by name.

    ``also`` are names that mean something to the caller.
    """
    if isinstance(given, kind):
        return given
    by_name = {snake_case(cls.__name__): cls for cls in catalogue}
    spelled = {name.replace("_", ""): name for name in by_name}  # "logdet" is as clear as "log_det"
    plain = given.replace("_", "").lower() if isinstance(given, str) else ""  # and so is "LogDet"
    name = spelled.get(plain)
    if name is not None:
        try:
            return by_name[name]()
        except TypeError as error:
            cls = by_name[name].__name__
            raise ValueError(f"{what}={given!r} needs arguments: pass an object, {what}={cls}(...). ({error})") from None
    if isinstance(given, type) and issubclass(given, kind):
        raise TypeError(f"{what}={given.__name__} is a class; pass an object of it: {given.__name__}(...)")
    close = [spelled[each] for each in get_close_matches(plain, spelled, n=1)]
    meant = f"; did you mean {close[0]!r}?" if close else ""
    names = sorted([*by_name, *also])
    raise ValueError(f"{what} must be one of {names} or a {kind.__name__} object, got {given!r}{meant}")
