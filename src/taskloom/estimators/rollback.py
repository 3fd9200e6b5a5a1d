"""All or nothing: what fails leaves the estimator as it was."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def all_or_nothing(method: Method) -> Method:
    """Put every attribute back where a method of an estimator raises: the labels of a fit that was refused would otherwise
    speak for the weights of the fit before it."""

    signature = inspect.signature(method)

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **settings: Any) -> Any:
        try:
            signature.bind(self, *args, **settings)
        except TypeError as error:  # Python would name the class in which the method stands
            hint = "; the task of each row travels inside X: task_column=..." if "task" in settings else ""
            raise TypeError(f"{type(self).__name__}.{method.__name__}() {error}{hint}") from None
        before = vars(self).copy()
        try:
            return method(self, *args, **settings)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Method, whole)
