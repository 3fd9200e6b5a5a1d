"""scikit-learn's ``available_if`` with a type: it has none, and an untyped decorator would hide the signature of a method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sklearn.utils import metaestimators

Method = TypeVar("Method", bound=Callable[..., Any])


def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """A method that is there where ``check(estimator)`` holds, and whose ``AttributeError`` says why it is not."""
    return metaestimators.available_if(check)
