"""Structures as the command line writes them: ``trace``, ``clusters:4``, ``shared_mean:5``."""

from __future__ import annotations

from .. import structures
from .._component import snake_case
from ..structures import Structure, as_structure

SLOW = {"sparse": 20}  # number of tasks beyond which a structure is only tried if it is named


def parse(text: str) -> Structure:
    """A structure from its name, with parameters after colons."""
    name, *numbers = text.strip().split(":")
    if not numbers:
        return as_structure(name)
    cls = {snake_case(cls.__name__).replace("_", ""): cls for cls in structures._CATALOGUE}.get(name.replace("_", ""))
    if cls is None:
        return as_structure(name)  # which says what there is
    try:
        values = [int(value) if value.strip().isdigit() else float(value) for value in numbers]
        return cls(*values)
    except TypeError:
        raise ValueError(f"{text!r} has too many parameters for {cls.__name__}") from None
    except ValueError as error:
        raise ValueError(f"structure {text!r}: {error}") from None


def written(structure: Structure) -> str:
    """The inverse of :func:`parse`; arrays are left out."""
    numbers = [value for value in structure.get_params().values() if isinstance(value, (int, float))]
    first = [f"{numbers[0]:g}"] if numbers else []  # the others have sensible defaults
    return ":".join([snake_case(type(structure).__name__), *first])


def every(n_tasks: int, linear: bool) -> list[Structure]:
    """All structures that need no parameters and accept this number of tasks."""
    found = []
    for cls in structures._CATALOGUE:
        try:
            structure = cls()
            structure.check_tasks(n_tasks)
        except (TypeError, ValueError):  # needs arguments, or more tasks
            continue
        fast = n_tasks <= SLOW.get(snake_case(cls.__name__), n_tasks)
        if fast and (linear or not structure.on_features):
            found.append(structure)
    return found
