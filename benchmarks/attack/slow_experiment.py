"""An experiment that does nothing, slowly: the machinery of ``taskloom reproduce`` without its data."""

from __future__ import annotations

import time
from typing import Any

TITLE = "Nothing, slowly"


def settings(quick: bool, repetitions: int | None) -> dict[str, Any]:
    return {"repetitions": repetitions or 12, "quick": quick}


def units(chosen: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"repetition": k} for k in range(chosen["repetitions"])]


def measure(unit: dict[str, Any], *_: Any) -> dict[str, Any]:
    end = time.perf_counter() + 0.15
    while time.perf_counter() < end:
        sum(range(1000))
    return {"square": unit["repetition"] ** 2, "padding": "x" * 20_000}


def summarise(_: dict[str, Any], done: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    return {"squares": [result["square"] for _, result in done]}


def table(record: dict[str, Any]) -> tuple[str, list[list[Any]]]:
    return "squares", [["square"], *([square] for square in record["squares"])]


def draw(record: dict[str, Any], figure: Any) -> None:
    figure.subplots().plot(record["squares"])
