"""scikit-learn's callback protocol (1.9), and a minimal implementation for older versions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

from ..problem.solution import History

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """``set_callbacks`` for objects with ``setup``, ``on_fit_task_begin``, ``on_fit_task_end`` and ``teardown``."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Set the callbacks of the next fits; none removes them."""
            for callback in callbacks:
                if not hasattr(callback, "on_fit_task_end") or isinstance(callback, type):
                    raise TypeError("callbacks must be instances following the FitCallback protocol.")
            self.__dict__.pop("_skl_callbacks", None)
            if callbacks:
                self._skl_callbacks = list(callbacks)
            return self

        def _init_callback_context(self, task_name: str = "fit", max_subtasks: int | None = 0) -> _Context:
            self._callback_fit_ctx = _Context(type(self).__name__, task_name, 0, max_subtasks, self._skl_callbacks, None)
            _tell(self._skl_callbacks, "setup", estimator=self, context=self._callback_fit_ctx)
            return self._callback_fit_ctx

    def _tell(callbacks: list, hook: str, *given: Any, **named: Any) -> list:
        """The answers of the callbacks that have this hook."""
        return [getattr(callback, hook)(*given, **named) for callback in callbacks if hasattr(callback, hook)]

    class _Context:
        """Where in a fit a hook is called: the fit itself, or one iteration of it."""

        def __init__(self, estimator_name, task_name, task_id, max_subtasks, callbacks, parent):
            self.estimator_name, self.task_name, self.task_id = estimator_name, task_name, task_id
            self.max_subtasks, self.parent, self._callbacks, self._children = max_subtasks, parent, callbacks, 0

        def subcontext(self, task_name: str = "", max_subtasks: int | None = 0) -> _Context:
            self._children += 1
            return _Context(self.estimator_name, task_name, self._children - 1, max_subtasks, self._callbacks, self)

        def call_on_fit_task_begin(self, *, estimator: Any, **_: Any) -> _Context:
            _tell(self._callbacks, "on_fit_task_begin", estimator, self)
            return self

        def call_on_fit_task_end(self, *, estimator: Any, **_: Any) -> bool:
            return any(_tell(self._callbacks, "on_fit_task_end", estimator, self))

    def _with_callbacks(method):
        """Tear callbacks down whether the fit ends well or not."""

        @functools.wraps(method)
        def managed(estimator, *args, **kwargs):
            try:
                return method(estimator, *args, **kwargs)
            finally:
                context = estimator.__dict__.pop("_callback_fit_ctx", None)
                told = getattr(estimator, "_skl_callbacks", []) if context is not None else []
                _tell(told, "teardown", estimator=estimator, context=context)

        return managed


Method = TypeVar("Method", bound=Callable[..., Any])


def with_callbacks(method: Method) -> Method:
    """scikit-learn's decorator with a type: it has none, and an untyped one would hide the signature of ``fit``."""
    return _with_callbacks(method)


class Watch:
    """Reports each iteration of a solve to an estimator's callbacks; a callback that answers True stops the fit."""

    def __init__(self, estimator: Any, data: dict[str, Any], context: Any):
        self.estimator, self.data, self.context = estimator, data, context
        context.call_on_fit_task_begin(estimator=estimator, **data)

    @classmethod
    def over(cls, estimator: Any, X: Any, y: Any, max_subtasks: int) -> Watch:
        """A watch over the fit of an estimator that has callbacks."""
        return cls(estimator, {"X": X, "y": y}, estimator._init_callback_context(max_subtasks=max_subtasks))

    def part(self, name: str, max_subtasks: int | None = 0) -> Watch:
        """A watch over a part of the fit, which begins now."""
        return Watch(self.estimator, self.data, self.context.subcontext(task_name=name, max_subtasks=max_subtasks))

    def end(self, reconstruct: Any = None) -> bool:
        """This part is over; ``reconstruct`` gives the fitted attributes as they would be now. True asks to stop."""
        return self.context.call_on_fit_task_end(estimator=self.estimator, reconstruction_attributes=reconstruct, **self.data)


def show(history: History) -> str | None:
    """A line about every tenth iteration, for ``verbose``."""
    k = history.iteration[-1]
    if k > 3 and k % 10:
        return None
    gap = f"{history.gap[-1]:.2e}" if math.isfinite(history.gap[-1]) else "unknown"
    return f"iteration {k:5d}   objective {history.objective[-1]:.8g}   gap {gap}   {history.seconds[-1]:.2f} s"
