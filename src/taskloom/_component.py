"""The base class of losses, structures and solvers: validated parameters with ``get_params`` and ``set_params``."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from numbers import Real
from operator import ge, gt
from typing import Any, ClassVar, Self

import numpy as np

_COMPARE = {">": gt, ">=": ge}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the stack level of the caller outside of taskloom and scikit-learn."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("taskloom", "sklearn"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def is_number(value: Any) -> bool:
    """Whether a parameter is one finite real number (a bool or a string is not)."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


class Component:
    """A dataclass with scikit-learn's ``get_params`` and ``set_params``, for cloning and grid search.

    Parameters are stored unchanged, as scikit-learn's ``clone`` requires; ``check`` validates them. Subclasses are declared
    with ``eq=False``, because arrays do not compare to a bool.
    """

    ranges: ClassVar[dict[str, str]] = {}  # parameters that must be finite numbers in a range, as {"mu": "> 0"}

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise ``ValueError`` for invalid parameters. The default checks ``ranges``."""
        for name, needed in self.ranges.items():
            value, (sign, bound, *_) = getattr(self, name), needed.split()
            if not (is_number(value) and _COMPARE[sign](value, float(bound))):
                raise ValueError(f"{type(self).__name__} needs a finite {name} {needed}, got {name}={value!r}")

    @property
    def user_written(self) -> bool:
        """Whether a user wrote methods of this component, so that they may contradict each other."""
        return type(self).__module__.partition(".")[0] != "taskloom"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Ignored; for compatibility with scikit-learn.

        Returns
        -------
        dict
            Parameter names to values.
        """
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}  # type: ignore[arg-type]

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; if they are invalid, nothing changes.

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
        """With large arrays and lists abbreviated."""
        shown = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            name, value = field.name, getattr(self, field.name)
            if not field.init:
                continue
            if isinstance(value, np.ndarray) and value.size > 9:
                shown.append(f"{name}=<array {value.shape}>")
            elif isinstance(value, (list, tuple)) and len(value) > 9:
                shown.append(f"{name}=<{len(value)} entries>")
            else:
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def snake_case(name: str) -> str:
    """``"SquaredHinge"`` becomes ``"squared_hinge"``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def resolve(given: Any, kind: type, catalogue: list[type], what: str, also: Sequence[str] = ()) -> Any:
    """The component of a snake_case name, or the component itself; ``ValueError`` for anything else.

    ``also`` are further names that the caller accepts, for the message.
    """
    if isinstance(given, kind):
        return given
    plain = given.replace("_", "").lower() if isinstance(given, str) else ""  # "logdet" and "LogDet" are as clear as "log_det"
    for cls in catalogue:
        if cls.__name__.lower() == plain:
            try:
                return cls()
            except TypeError as error:
                needs = f"{what}={given!r} needs arguments: pass an object, {what}={cls.__name__}(...). ({error})"
                raise ValueError(needs) from None
    if isinstance(given, type) and issubclass(given, kind):
        raise TypeError(f"{what}={given.__name__} is a class; pass an object of it: {given.__name__}(...)")
    names = {cls.__name__.lower(): snake_case(cls.__name__) for cls in catalogue}
    meant = "".join(f"; did you mean {names[close]!r}?" for close in get_close_matches(plain, names, n=1))
    known = sorted([*names.values(), *also])
    raise ValueError(f"{what} must be one of {known} or a {kind.__name__} object, got {given!r}{meant}")
