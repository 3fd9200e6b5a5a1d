"""What is computed once for a problem, and what it is made of: whatever changes, what was made of it is computed anew.

Everything is also made of rows and tasks, which never change; nothing is made of the strength, which changes often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

FEATURES, WEIGHTS, TARGETS, LOSS, STRUCTURE = "features", "weights", "targets", "loss", "structure"
_DATA = (FEATURES, WEIGHTS, TARGETS, LOSS)

MADE_OF: dict[str, tuple[str, ...]] = {
    # How tasks lie among the rows.
    "buckets": (),
    "single tasks": (),
    # The features, in another order or layout.
    "by observation": (FEATURES,),
    "parts": (FEATURES,),
    "row inputs": (FEATURES,),
    "stacked": (FEATURES,),
    "transposed": (FEATURES,),
    # Sums over rows.
    "task weights": (WEIGHTS,),
    "mean gram": (FEATURES, WEIGHTS),
    "tasks": (FEATURES, WEIGHTS),
    "weights": (FEATURES, WEIGHTS),
    # The best constants, and what they leave of the loss.
    "rounding_floor": (WEIGHTS, TARGETS, LOSS),
    "constants": (WEIGHTS, TARGETS, LOSS),
    "scale": (WEIGHTS, TARGETS, LOSS),
    # The data as a solver wants them.
    "blocks": _DATA,
    "blocks of parts": _DATA,
    "by row": _DATA,
    "coupled grams": _DATA,
    "grown": _DATA,
    "leave one out": _DATA,
    "means": _DATA,
    "normal equations": _DATA,
    "offset": _DATA,
    "reduced": _DATA,
    "rough blocks": _DATA,
    "same rows": _DATA,
    "shared inputs": _DATA,
    "table or blocks": _DATA,
    "task grams": _DATA,
    "unit of gradients": _DATA,
    # Whole problems, and the price of nothing.
    "centred": (*_DATA, STRUCTURE),
    "nothing": (*_DATA, STRUCTURE),
    "unfolded": (*_DATA, STRUCTURE),
}


def without(memo: Mapping[str, Any], changed: Iterable[str]) -> dict[str, Any]:
    """What stays true when this much has changed."""
    gone = set(changed)
    return {key: value for key, value in memo.items() if gone.isdisjoint(MADE_OF[key])}
