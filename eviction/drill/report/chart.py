"""Charts over time as inline SVG: lines, marks, bands, and ticks whose names show on hover.

No script, and nothing is loaded: a browser shows `<title>` on hover, and colours are CSS classes of the page. Every
text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from eviction.reporting.log import escaped

WIDTH = 960.0
LEFT, RIGHT = 84.0, 206.0
PLOT = WIDTH - LEFT - RIGHT
HEIGHT = 250.0
TOP, BOTTOM = 12.0, 34.0
LABEL_GAP = 15.0
LANE = 26.0
TICKS = 5


def html_text(text: str) -> str:
    """A text as HTML, for an element or an attribute: markup and unprintable characters are escaped."""
    return escape(escaped(text))


@dataclass(frozen=True, slots=True)
class Series:
    """One line: (seconds, amount) in order of time. `style` is a CSS class."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "line-a"


@dataclass(frozen=True, slots=True)
class MarkLine:
    """A horizontal line with its label."""

    label: str
    amount: float
    style: str = "mark"


@dataclass(frozen=True, slots=True)
class Span:
    """A period with its label."""

    label: str
    began: float
    ended: float
    style: str


@dataclass(frozen=True, slots=True)
class Tick:
    """An event at one moment, with its label."""

    label: str
    seconds: float
    style: str


Lane = tuple[str, Sequence[Span | Tick]]
"""Events of one kind, with their name."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Amounts over time, from `began` to `ended` (seconds). `unit` formats an amount. `binary`: True for bytes."""

    name: str
    began: float
    ended: float
    unit: Callable[[int], str]
    series: Sequence[Series]
    marks: Sequence[MarkLine] = ()
    bands: Sequence[Span] = ()
    ticks: Sequence[Tick] = ()
    binary: bool = True


def chart_svg(chart: Chart) -> str:
    """The chart as one `<svg>` element that takes the width of its container."""
    amounts = [amount for series in chart.series for _, amount in series.points]
    amounts += [mark.amount for mark in chart.marks]
    step = _step(max(amounts, default=1.0), binary=chart.binary)
    top = step * max(math.ceil(max(amounts, default=1.0) / step), 1)
    floor = HEIGHT - BOTTOM
    x = _scale(chart.began, chart.ended)

    def y(amount: float) -> float:
        return floor - (floor - TOP) * min(max(amount, 0.0), top) / top

    parts = [_rect(band, x(band.began), x(band.ended), TOP, floor) for band in chart.bands]
    for number in range(round(top / step) + 1):
        height = y(number * step)
        parts.append(_line(LEFT, height, LEFT + PLOT, height, "grid"))
        parts.append(_text(LEFT - 8, height + 4, chart.unit(round(number * step)), "axis end"))
    parts += _time_axis(chart.began, chart.ended, floor)
    parts += _marks(chart.marks, y)
    parts += [_path(series, x, y) for series in chart.series if series.points]
    parts += [_tick(tick, x(tick.seconds), floor - 14, floor) for tick in chart.ticks]
    return _svg(chart.name, HEIGHT, parts)


def lanes_svg(name: str, began: float, ended: float, lanes: Sequence[Lane]) -> str:
    """Events over time: one lane for each kind, with the same time axis as the charts."""
    x = _scale(began, ended)
    floor = TOP + LANE * len(lanes)
    parts: list[str] = []
    for number, (label, things) in enumerate(lanes):
        top = TOP + LANE * number
        parts.append(_line(LEFT, top + LANE, LEFT + PLOT, top + LANE, "grid"))
        parts.append(_text(LEFT - 8, top + LANE / 2 + 4, label, "axis end"))
        for thing in things:
            if isinstance(thing, Span):
                parts.append(_rect(thing, x(thing.began), x(thing.ended), top + 5, top + LANE - 5))
            else:
                parts.append(_tick(thing, x(thing.seconds), top + 4, top + LANE - 4))
    parts += _time_axis(began, ended, floor)
    return _svg(name, floor + BOTTOM, parts)


def _svg(name: str, height: float, parts: Iterable[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{html_text(name)}">'
    return "\n".join([head, *parts, "</svg>"])


def _scale(began: float, ended: float) -> Callable[[float], float]:
    span = max(ended - began, 1e-6)
    return lambda seconds: LEFT + PLOT * min(max((seconds - began) / span, 0.0), 1.0)


def _step(most: float, *, binary: bool) -> float:
    """The distance of grid lines, for about `TICKS` lines: 1, 2, 5, 10 … of a binary unit for bytes, or of one
    inode."""
    least = max(most, 1.0) / TICKS
    unit = 1024.0 ** int(math.log(least, 1024)) if binary and least >= 1 else 1.0
    power = 10.0 ** math.floor(math.log10(max(least / unit, 1.0)))
    return next(unit * power * factor for factor in (1, 2, 5, 10) if unit * power * factor >= least)


def _time_axis(began: float, ended: float, floor: float) -> list[str]:
    x = _scale(began, ended)
    span = max(ended - began, 1e-6)
    power = 10.0 ** math.floor(math.log10(span / 8))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= span / 8)
    digits = max(-math.floor(math.log10(step)), 0)
    parts: list[str] = []
    for number in range(math.ceil(began / step), math.floor(ended / step) + 1):
        place = x(number * step)
        parts.append(_line(place, floor, place, floor + 5, "grid"))
        parts.append(_text(place, floor + 19, f"{number * step:.{digits}f} s", "axis middle"))
    return parts


def _marks(marks: Sequence[MarkLine], y: Callable[[float], float]) -> list[str]:
    """The lines at their amounts; their labels are moved apart where they would cover each other."""
    parts: list[str] = []
    place = float("inf")
    for mark in sorted(marks, key=lambda each: each.amount):
        height = y(mark.amount)
        place = min(height + 4, place - LABEL_GAP)
        parts.append(_line(LEFT, height, LEFT + PLOT, height, mark.style))
        parts.append(_line(LEFT + PLOT, height, LEFT + PLOT + 6, place - 4, mark.style))
        parts.append(_text(LEFT + PLOT + 9, place, mark.label, f"label {mark.style}-label"))
    return parts


def _path(series: Series, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    points = [(x(seconds), y(amount)) for seconds, amount in series.points]
    drawn = "M" + "L".join(f"{across:.1f} {height:.1f}" for across, height in _drawn_apart(points))
    return f'<path class="{html_text(series.style)}" d="{drawn}"><title>{html_text(series.name)}</title></path>'


def _drawn_apart(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that can be told apart in the drawing: of each unit of its width the first, the highest, the lowest
    and the last one, and none between two of the same height."""
    kept: list[tuple[float, float]] = []
    for _, column in groupby(points, key=lambda point: int(point[0])):
        these = list(column)
        extremes = {these.index(choose(these, key=lambda point: point[1])) for choose in (min, max)}
        kept += [these[index] for index in sorted({0, *extremes, len(these) - 1})]
    heights = [round(height, 1) for _, height in kept]
    last = len(kept) - 1
    return [
        point
        for index, point in enumerate(kept)
        if index in (0, last) or not heights[index - 1] == heights[index] == heights[index + 1]
    ]


def _rect(span: Span, left: float, right: float, top: float, floor: float) -> str:
    width = max(right - left, 1.5)
    return (
        f'<rect class="{html_text(span.style)}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{floor - top:.1f}"><title>{html_text(span.label)}</title></rect>'
    )


def _tick(tick: Tick, place: float, top: float, floor: float) -> str:
    """A thin line with a broad invisible one over it, so that it is easy to point at."""
    line = f'x1="{place:.1f}" y1="{top:.1f}" x2="{place:.1f}" y2="{floor:.1f}"'
    return (
        f'<g class="tick {html_text(tick.style)}"><title>{html_text(tick.label)}</title>'
        f'<line class="hit" {line}/><line {line}/></g>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{html_text(style)}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{html_text(style)}" x="{x:.1f}" y="{y:.1f}">{html_text(text)}</text>'
