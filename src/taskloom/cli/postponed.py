"""Modules that scikit-learn imports whether they are used or not; half of the time that a command takes to start.

Only the process of a command does this: in a session of Python or a notebook nothing is postponed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class Postponed(ModuleType):
    """Stands for a module until something in it is asked for. (``LazyLoader`` imports at the first ``import``, up to 3.11.)"""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            try:
                import_module(self.__name__)
            except BaseException:  # Ctrl-C, too: the next one who asks tries again
                sys.modules[self.__name__] = self
                raise
        return getattr(sys.modules[self.__name__], name)


def postpone_imports() -> None:
    """Postpone ``scipy.stats`` and ``pandas`` in this process."""
    for name, spec in (("scipy.stats", ModuleSpec("scipy.stats", None)), ("pandas", find_spec("pandas"))):
        if spec is not None and name not in sys.modules:
            sys.modules[name] = module = Postponed(name)
            module.__spec__ = spec
