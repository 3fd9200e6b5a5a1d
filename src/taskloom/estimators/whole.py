"""All or nothing: what fails leaves the estimator as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def all_or_nothing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Put every attribute back where a method of an estimator raises: the labels of a fit that was refused would otherwise
    speak for the weights of the fit before it."""

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **settings: Any) -> Any:
        before = vars(self).copy()
        try:
            return method(self, *args, **settings)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return whole
