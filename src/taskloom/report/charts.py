"""Small line charts as inline SVG: no style attributes (the page's policy forbids them), colours by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
WIDTH, HEIGHT = 360, 230
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 42
MOST_POINTS = 400  # of a line


@dataclass(frozen=True, eq=False)
class Line:
    """One series; ``look`` is its CSS class."""

    x: Array
    y: Array
    look: str


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart with axes; ``band`` is filled between two series, ``mark_x`` and ``mark_y`` are dashed lines."""

    title: str
    x_label: str
    lines: list[Line]
    log_x: bool = False
    log_y: bool = False
    band: tuple[Array, Array, Array] | None = None
    mark_x: float | None = None
    mark_y: float | None = None
    integer_x: bool = False  # only integers on the x axis

    def svg(self) -> str:
        """The chart as SVG; it contains no text of the user."""
        x = _Scale.over([line.x for line in self.lines], self.log_x, LEFT, WIDTH - RIGHT)
        values = [line.y for line in self.lines] + ([self.band[1], self.band[2]] if self.band else [])
        y = _Scale.over([*values, np.array([self.mark_y])] if self.mark_y else values, self.log_y, HEIGHT - BOTTOM, TOP)
        parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{self.title}" class="chart">']
        for tick, text in x.ticks(4, self.integer_x):
            parts.append(f'<text x="{tick:.1f}" y="{HEIGHT - BOTTOM + 16}" class="tick middle">{text}</text>')
        across, down = (LEFT, WIDTH - RIGHT), (TOP, HEIGHT - BOTTOM)
        for tick, text in y.ticks(5):
            parts.append(_segment(across, (tick, tick), "grid"))
            parts.append(f'<text x="{LEFT - 6}" y="{tick + 4:.1f}" class="tick end">{text}</text>')
        if self.band is not None:
            at, low, high = _thin(*self.band)
            edge = [*zip(x(at), y(low), strict=True), *reversed([*zip(x(at), y(high), strict=True)])]
            parts.append(f'<polygon class="band" points="{_points(edge)}"/>')
        if self.mark_x is not None:
            parts.append(_segment((x(self.mark_x), x(self.mark_x)), down, "mark"))
        if self.mark_y is not None:
            parts.append(_segment(across, (y(self.mark_y), y(self.mark_y)), "mark"))
        for line in self.lines:
            at, value = _thin(line.x, line.y)
            keep = np.isfinite(value) & ((value > 0) if self.log_y else True)
            spots = [*zip(x(at[keep]), y(value[keep]), strict=True)]
            parts.append(f'<polyline class="{line.look}" points="{_points(spots)}"/>')
            if len(spots) <= 40 and "many" not in line.look:
                parts += [f'<circle class="{line.look}" cx="{px:.1f}" cy="{py:.1f}" r="2.5"/>' for px, py in spots]
        label = f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" class="label middle">{self.x_label}</text>'
        return "".join([*parts, label, "</svg>"])


@dataclass(frozen=True)
class _Scale:
    """A linear or logarithmic axis: from values to pixels."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    @classmethod
    def over(cls, values: list[Array], log: bool, start: float, end: float) -> _Scale:
        flat = np.concatenate([np.asarray(v, dtype=float).ravel() for v in values])
        flat = flat[np.isfinite(flat) & ((flat > 0) if log else True)]
        if flat.size == 0:
            return cls(0.0, 1.0, False, start, end)
        low, high = (float(f(np.log10(flat) if log else flat)) for f in (np.min, np.max))
        if high - low < 1e-9 * max(abs(high), 1.0):
            low, high = low - 0.5, high + 0.5
        return cls(low, high, log, start, end)

    def __call__(self, value: Any) -> Any:
        at = np.log10(np.maximum(value, 1e-300)) if self.log else value
        return self.start + (np.clip(at, self.low, self.high) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, n: int, integer: bool = False) -> list[tuple[float, str]]:
        """Round numbers and their positions."""
        if self.log and self.high - self.low >= 1:
            powers = np.arange(np.ceil(self.low), np.floor(self.high) + 1)
            chosen = 10.0 ** powers[:: max(1, int(np.ceil(len(powers) / n)))]
        else:
            ends = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
            rough = max((ends[1] - ends[0]) / n, 1.0 if integer else 0.0)
            base = 10 ** np.floor(np.log10(rough))
            step = base * next(k for k in (1, 2, 5, 10) if k * base >= rough * 0.999)
            chosen = np.arange(np.ceil(ends[0] / step), np.floor(ends[1] / step + 1e-9) + 1) * step
        return [(float(self(v)), _number(float(v))) for v in chosen]


def _segment(x: tuple[float, float], y: tuple[float, float], look: str) -> str:
    return f'<line x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y[0]:.1f}" y2="{y[1]:.1f}" class="{look}"/>'


def _number(value: float) -> str:
    """A short text; powers of ten with an exponent."""
    if abs(value) < 1e-300:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}".replace("-", "\u2212")
    power = int(np.floor(np.log10(abs(value)) + 1e-9))
    front = value / 10.0**power
    small = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{'' if abs(front - 1) < 1e-6 else f'{front:.3g}·'}10{small}".replace("-", "\u2212")


def _thin(*columns: Array) -> list[Array]:
    n = len(columns[0])
    keep = np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).round().astype(int))
    return [np.asarray(column, dtype=float)[keep] for column in columns]


def _points(spots: list[tuple[float, float]]) -> str:
    return " ".join(f"{px:.1f},{py:.1f}" for px, py in spots)
