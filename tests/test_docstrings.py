"""Every public parameter is documented in numpydoc's sections: ``python tests/test_docstrings.py`` lists what is missing.

Public are the names in ``__all__`` of taskloom and of its public modules, and the methods of their classes without a leading
underscore. A method that overrides a documented one may leave its sections to it, as long as the parameters are the same.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import pytest

import taskloom

NumpyDocString = pytest.importorskip("numpydoc.docscrape", reason="numpydoc is in the extra [lint]").NumpyDocString

MODULES = [*taskloom._MODULES, "report"]
RESULT_SECTIONS = ("Returns", "Yields")
NOTHING = (None, "None", "NoReturn", "Never", inspect.Signature.empty)


class Entry(NamedTuple):
    """A public object: the name in messages, the object, and the docstrings that may document its parameters."""

    name: str
    object: Any
    docstrings: list[str]
    method: bool = False


def public_objects() -> dict[str, Any]:
    """Name to object: everything in ``__all__`` that is a class or a function of taskloom."""
    found = {}
    for module in [taskloom, *(importlib.import_module(f"taskloom.{name}") for name in MODULES)]:
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value) and value.__module__.startswith("taskloom"):
                found[f"{value.__module__}.{name}"] = value
    return found


def methods(cls: type) -> Iterator[tuple[type, str, Any]]:
    """Public methods and properties with the class of taskloom that defines them, the nearest definition only."""
    seen = set()
    for base in cls.__mro__:
        for name, value in vars(base).items() if base.__module__.startswith("taskloom") else ():
            wrapped = isinstance(value, staticmethod | classmethod | property | cached_property) or hasattr(value, "fn")
            kind = wrapped or callable(value)
            if not name.startswith("_") and kind and not inspect.isclass(value) and name not in seen:
                seen.add(name)
                yield base, name, value


def entries() -> dict[str, Entry]:
    """All that is checked, by name; a method that several classes inherit is there once."""
    found = {}
    for name, value in public_objects().items():
        found[name] = Entry(name, value, [value.__doc__ or ""])
        for base, method, _ in methods(value) if inspect.isclass(value) else ():
            whole = f"{base.__module__}.{base.__qualname__}.{method}"
            documented = [vars(each)[method].__doc__ or "" for each in base.__mro__ if method in vars(each)]
            found[whole] = Entry(whole, inspect.getattr_static(base, method), documented, method=True)
    return found


def signature(entry: Entry) -> inspect.Signature | None:
    """The signature as a caller sees it; ``None`` for a property."""
    value = entry.object
    if isinstance(value, property | cached_property):
        return None
    if isinstance(value, staticmethod):
        return inspect.signature(value.__func__)
    if isinstance(value, classmethod):
        return _without_first(inspect.signature(value.__func__))
    if inspect.isclass(value):
        if issubclass(value, BaseException):
            return None
        # A class takes what its own __init__ takes; without one it has no parameters (not those of ``object``).
        return inspect.signature(value) if value.__init__ is not object.__init__ else None
    bound = inspect.signature(_function(value))
    return _without_first(bound) if entry.method else bound


def _function(value: Any) -> Callable:
    """The function behind a descriptor such as scikit-learn's ``available_if``."""
    return getattr(value, "fn", value)


def _without_first(whole: inspect.Signature) -> inspect.Signature:
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def problems(entry: Entry) -> list[str]:
    """What is missing or stale in the docstring of an object, in words."""
    if not entry.docstrings[0].strip() and (inspect.isclass(entry.object) or not any(map(str.strip, entry.docstrings))):
        return ["has no docstring"]
    parsed = [NumpyDocString(inspect.cleandoc(text)) for text in entry.docstrings]
    found = [] if any("".join(each["Summary"]).strip() for each in parsed) else ["has no summary"]
    whole = signature(entry)
    if whole is None:
        return found
    documented = next((each for each in parsed if each["Parameters"]), parsed[0])["Parameters"]
    found += _parameter_problems(whole, documented)
    if inspect.isclass(entry.object) or whole.return_annotation in NOTHING or (entry.method and not whole.parameters):
        return found
    said = any(each[section] for each in parsed for section in RESULT_SECTIONS)
    return found if said else [*found, "has no Returns section"]


def _parameter_problems(whole: inspect.Signature, documented: list) -> list[str]:
    described = {name.strip().lstrip("*"): each for each in documented for name in each.name.split(",")}
    found = [f"parameter {name} is not documented" for name in whole.parameters if name not in described]
    found += [f"parameter {name} is documented, but there is none" for name in described if name not in whole.parameters]
    for name, parameter in whole.parameters.items():
        if name not in described:
            continue
        text = " ".join(described[name].desc)
        if not text:
            found.append(f"parameter {name} has no description")
        if text.startswith("As in "):
            continue
        if not described[name].type:
            found.append(f"parameter {name} has no type")
        elif wrong := _wrong_default(described[name].type, parameter.default):
            found.append(f"parameter {name} {wrong}")
    return found


def _wrong_default(described: str, default: Any) -> str:
    """``default=0.01`` as scikit-learn writes it, and the same as in the signature."""
    said = re.search(r"(?:default=(.+)|optional)$", described)
    if default is inspect.Parameter.empty:
        return "has no default, but is said to have one" if said else ""
    if said is None:
        return f"does not say default={default!r}"
    plain = default is None or isinstance(default, bool | int | float | str)
    if plain and said[1] is not None and not _same(said[1], default):
        return f"says default={said[1]}, but it is {default!r}"
    return ""


def _same(said: str, default: Any) -> bool:
    try:
        return ast.literal_eval(said) == default
    except (ValueError, SyntaxError):
        return False


ENTRIES = entries()
# To be documented by the change that rewrites them: remove a name when it is.


@pytest.mark.parametrize("name", ENTRIES)
def test_every_parameter_is_documented(name):
    found = problems(ENTRIES[name])
    assert not found, f"{name} " + "; ".join(found)


def test_every_public_signature_has_types():
    untyped = []
    for name, entry in ENTRIES.items():
        if (whole := signature(entry)) is None:
            continue
        given = [parameter.annotation for parameter in whole.parameters.values()]
        given += [] if inspect.isclass(entry.object) else [whole.return_annotation]
        untyped += [name] if inspect.Parameter.empty in given else []
    assert not untyped


def test_the_check_finds_what_is_wrong():
    def documented(a, b=1, c="x", *, d=None) -> int:
        """Sum.

        Parameters
        ----------
        a : int
            First.
        b : int, default=2
            Second.
        c
            Third.
        e : int
            None such.
        """
        return 0

    assert problems(Entry("f", documented, [documented.__doc__])) == [
        "parameter d is not documented",
        "parameter e is documented, but there is none",
        "parameter b says default=2, but it is 1",
        "parameter c has no type",
        "has no Returns section",
    ]


if __name__ == "__main__":
    wrong = {name: found for name, entry in ENTRIES.items() if (found := problems(entry))}
    for name, found in wrong.items():
        sys.stdout.write(f"{name}: {'; '.join(found)}\n")
    sys.stdout.write(f"{len(wrong)} of {len(ENTRIES)} public objects lack something\n")
