"""The report of a drill as a self-contained HTML page, and as JUnit XML for a CI.

A page is the text of the report with its drawings. It loads nothing and runs nothing. All text from
a scenario, a runtime or a pod is escaped. A chart has lines and marks, and events whose names show
on hover; colours are CSS classes, light or dark as the reader prefers.

In JUnit XML the scenario is a suite and each expectation a case; one that could not be judged is
skipped. Source of the format: the schema that Jenkins' JUnit plugin reads (`testsuite`, `testcase`,
`failure`, `skipped`).
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import product
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from eviction.drill.measurements import PLURALS, ConditionPeriod
from eviction.drill.report.document import (
    DrillReportJson,
    before_rows,
    checks_table,
    mark_text,
    row_lines,
    story_rows,
)
from eviction.drill.schedule import PressurePeriod
from eviction.printable import escaped
from eviction.types import NodeCondition
from signals.quantity import format_bytes, format_duration

WIDTH = 880.0
LEFT = 170.0
RIGHT = 215.0
PLOT = WIDTH - LEFT - RIGHT
RIM = LEFT + PLOT
HEIGHT = 260.0
TOP = 12.0
BOTTOM = 34.0
FLOOR = HEIGHT - BOTTOM
LANE = 26.0
TICKS = 5
FONT, LINE = 13.0, 17.0  # the size of a text, and the height of its line
CHARACTER = 0.6 * FONT  # usual fonts are no wider, in labels with digits
FILLS = "the disk fills"
FAULTS = "faults"
GAP = 9.0  # between the plot and the texts beside it

COLOURS = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfb; --ink: #1d2126; --soft: #5c6570; --edge: #d9dde2;
  --grid: #e6e9ed; --sheet: #ffffff;
  --a: #1f6feb; --b: #b35900; --mark: #c0261d; --soft-mark: #9a6700;
  --good: #1a7f37; --image: #6f42c1; --container: #0b7285; --sandbox: #6b7280;
  --log: #8a6100; --fault: #c2255c;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e4e7eb; --soft: #9aa4af; --edge: #363d46;
    --grid: #272d34; --sheet: #1a1e23;
    --a: #6cb0ff; --b: #ffab5c; --mark: #ff7b72; --soft-mark: #e3b341;
    --good: #56d364; --image: #c4a1ff; --container: #5fd3e6; --sandbox: #a2abb5;
    --log: #e3c16f; --fault: #ff8fb8;
  }
}
"""
NAMES = re.findall(r"--([\w-]+): ", COLOURS.partition("@media")[0])  # of the colours
# A class is a colour: of the stroke of lines, and of the inside of texts and rectangles.
CLASSES = """text, rect { fill: currentColor; }
line, path { fill: none; stroke: currentColor; }
rect { stroke: transparent; stroke-width: 8; }
path { stroke-width: 1.8; stroke-linejoin: round; }
path.b { stroke-dasharray: 7 3; }
line.soft-mark { stroke-dasharray: 5 3; }
line.soft { stroke-dasharray: 2 3; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
""" + "".join(f".{name} {{ color: var(--{name}); }}\n" for name in NAMES)
FONTS = f"svg {{ font: {FONT:g}px system-ui, sans-serif; }}"

STYLE = f"""{COLOURS}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }}
:focus-visible {{ outline: 3px solid var(--a); outline-offset: 2px; }}
p {{ margin: 0.4rem 0; }}
.why {{ color: var(--soft); }}
.verdict, figcaption {{ font-weight: 600; }}
.bad {{ color: var(--mark); }}
figure, pre {{ margin: 1rem 0; padding: 0.6rem; background: var(--sheet);
  border: 1px solid var(--edge); border-radius: 6px; overflow-x: auto; }}
figure {{ break-inside: avoid; }}
{FONTS}
svg {{ display: block; width: 100%; min-width: 60rem; height: auto; }}
{CLASSES}
@media (max-width: 40rem) {{ body {{ padding: 0.8rem; }} }}
@media print {{ body {{ max-width: none; padding: 0; font-size: 10pt; }} svg {{ min-width: 0; }}
  pre {{ white-space: pre-wrap; }} }}
"""


def page(report: DrillReportJson) -> str:
    """The page of one run."""
    apart = report.lists_apart_seconds
    rows = [
        *before_rows(
            f"{report.filesystem}; layout {report.layout}",
            [pressure.what for pressure in report.pressures],
            [fault.what for fault in report.faults],
        ),
        *story_rows(report),
    ]
    if apart is not None:
        polled = f"the runtime's lists were polled at most {format_duration(apart)} apart"
        rows.append(("removals", f"{polled}; a removal may have happened that much earlier"))
    figures = [
        f'<figure tabindex="0"><figcaption>{html_text(name)}</figcaption>{svg}</figure>'
        for name, svg in timeline(report)
    ]
    drawn = "\n".join(figures)
    text = "\n".join(map(html_text, [*row_lines(rows), "", *checks_table(report)]))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<title>{html_text(f"drill {report.scenario}")}</title>
<style>{STYLE}</style>
</head>
<body><main>
<h1>{html_text(report.title)}</h1>
<p class="why">{html_text(report.why)}</p>
<p class="verdict {"good" if report.held else "bad"}">{report.verdict}</p>
<pre tabindex="0">{text}</pre>
{drawn}
</main></body>
</html>
"""


def junit_xml(report: DrillReportJson) -> str:
    """A run as JUnit XML. Unprintable characters, which XML 1.0 cannot contain, are escaped."""
    suite = escaped(f"reclaimd.drill.{report.scenario}")
    held = [check.held for check in report.checks]
    head = {
        "name": suite,
        "tests": str(len(held)),
        "failures": str(held.count(False)),
        "skipped": str(held.count(None)),
        "time": f"{report.ended_seconds:.3f}",
    }
    root = Element("testsuites", head)
    cases = SubElement(root, "testsuite", head, errors="0")
    for check in report.checks:
        case = SubElement(
            cases, "testcase", classname=suite, name=escaped(f"{check.name} {check.expected}")
        )
        if check.held is None:
            SubElement(case, "skipped", message=escaped(check.seen))
        elif not check.held:
            SubElement(
                case,
                "failure",
                type="expectation",
                message=escaped(f"expected: {check.expected}; measured: {check.seen}"),
            )
    indent(root, "")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


def html_text(text: str) -> str:
    """A text as HTML, for an element or an attribute: escapes markup and unprintable characters."""
    return escape(escaped(text))


# ---- a timeline


def timeline(report: DrillReportJson) -> list[tuple[str, str]]:
    """Name and SVG of the charts of a run, and last of its events. Seconds count from its start."""
    wanted = {(mark.filesystem, mark.counts_inodes) for mark in report.marks if mark.filesystem}
    wanted = wanted or {(filesystem.name, False) for filesystem in report.filesystems[:1]}
    drawings = []
    for filesystem, inodes in product(report.filesystems, (False, True)):
        if (filesystem.name, inodes) in wanted:
            total = format_bytes(filesystem.capacity_bytes)
            what = f"bytes available on {', '.join(filesystem.roles)} (of {total})"
            if inodes:
                total = f"{filesystem.inodes_total} inodes"
                what = f"inodes free on {', '.join(filesystem.roles)} (of {total})"
            lines = {"a": report.series(filesystem.name, inodes)}
            drawings.append(
                (
                    what,
                    chart_svg(
                        what,
                        report.ended_seconds,
                        lines,
                        marks=_marks_of(report, filesystem.name, inodes),
                        inodes=inodes,
                    ),
                )
            )
    name = "what happened"
    return [*drawings, (name, lanes_svg(name, report.ended_seconds, _lanes(report)))]


def _marks_of(report: DrillReportJson, filesystem: str, inodes: bool) -> "list[MarkLine]":
    """The horizontal lines of a chart: one for each amount that is a mark, or ends pressure."""
    lines: dict[tuple[int, str], MarkLine] = {}
    releases = []
    for mark in report.marks:
        if (mark.filesystem, mark.counts_inodes) != (filesystem, inodes) or mark.effective is None:
            continue
        name, _, _ = mark.signal.partition(".")
        style = "mark" if mark.grace_seconds == 0 else "soft-mark"
        label = f"{name} {mark_text(mark)} = {_amount(mark.effective, inodes)}"
        lines.setdefault((mark.effective, style), MarkLine(label, mark.effective, style))
        releases.append(mark.effective_with_min_reclaim or 0)
    for amount in sorted(set(releases) - {amount for amount, _ in lines}):
        label = f"relieved at {_amount(amount, inodes)}"
        lines[amount, "soft"] = MarkLine(label, amount, "soft")
    return list(lines.values())


def _lanes(report: DrillReportJson) -> "list[Lane]":
    """Pressures, faults, conditions, removals and pods that ended.

    What another component reports is not known: only our own condition has a lane although it was
    not reported.
    """
    ours = NodeCondition.RECLAIM_PRESSURE
    removed = [f"{kinds} removed" for kinds in PLURALS.values()]
    lanes: dict[str, list[Event]] = {name: [] for name in (FILLS, FAULTS, ours, *removed)}

    def add(lane: str, *event: Any) -> None:
        lanes.setdefault(lane, []).append(Event(*event))

    for pressure in report.pressures:
        add(FILLS, pressure.what, "soft", pressure.from_seconds, _ended(pressure, report))
    for fault in report.faults:
        add(FAULTS, fault.what, "fault", fault.seconds)
    for period in report.conditions:
        name = period.condition
        add(name, name, "mark", period.from_seconds, _ended(period, report))
    for gone in report.removals:
        lane = f"{PLURALS.get(gone.kind, gone.kind)} removed"
        add(lane, f"{gone.kind} {gone.name}", gone.kind, gone.seconds)
    for pod in report.ended_pods:
        add("pods ended", f"{pod.name} ended", "mark", pod.seconds)
    always = ours if report.response == "reclaimd" else ""
    return [Lane(name, events) for name, events in lanes.items() if events or name == always]


def _ended(period: PressurePeriod | ConditionPeriod, report: DrillReportJson) -> float:
    return report.ended_seconds if period.to_seconds is None else period.to_seconds


# ---- its parts


class MarkLine(NamedTuple):
    """A horizontal line with its label."""

    label: str
    amount: float
    style: str = "mark"


class Event(NamedTuple):
    """A period with its label, or a moment if it has no end."""

    label: str
    style: str
    began: float
    ended: float | None = None


class Lane(NamedTuple):
    """Events of one kind, with their name, and what they come to, which stands beside them.

    If that is empty, it is how many there are, or how long they lasted.
    """

    name: str
    events: Sequence[Event]
    total: str = ""


def chart_svg(
    name: str,
    ended: float,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    marks: Sequence[MarkLine],
    inodes: bool = False,
) -> str:
    """Amounts over time, from 0 to `ended` (seconds), as an `<svg>` element.

    It is as wide as its container. `lines`: CSS class -> (seconds, amount) in the order of time.
    """
    amounts = [amount for points in lines.values() for _, amount in points]
    highest = max([*amounts, *(mark.amount for mark in marks)], default=1.0)
    # between grid lines: 1, 2, 5, 10 … inodes, or a power of two of bytes
    least = max(highest / TICKS, 1.0)
    step = _rounded_up(least) if inodes else 2.0 ** math.ceil(math.log2(least))
    top = step * max(math.ceil(highest / step), 1)
    x = _scale(ended)

    def y(amount: float) -> float:
        return FLOOR - (FLOOR - TOP) * min(max(amount, 0.0), top) / top

    parts: list[str] = []
    for number in range(round(top / step) + 1):
        height = y(number * step)
        label = _amount(round(number * step), inodes)
        parts += [
            _across(height, "grid"),
            _text(LEFT - GAP, height + 4, label, style="soft end"),
        ]
    parts += _time_axis(ended, FLOOR)
    # labels are moved apart so that none covers another or leaves the chart
    place = 0.0
    for lower, mark in reversed([*enumerate(sorted(marks, key=lambda each: each.amount))]):
        height = y(mark.amount)
        place = min(max(height + 4, place + LINE), HEIGHT - 6 - LINE * lower)
        parts += [
            _across(height, mark.style),
            _line(RIM, height, RIM + GAP - 3, y2=place - 4, style=mark.style),
            _beside(place, mark.label, mark.style),
        ]
    for style, points in lines.items():
        places = "L".join(f"{x(seconds):.1f} {y(amount):.1f}" for seconds, amount in points)
        parts.append(f'<path class="{style}" d="M{places or "0 0"}"/>')
    return _svg(name, HEIGHT, parts)


def lanes_svg(name: str, ended: float, lanes: Sequence[Lane]) -> str:
    """Events over time, in lanes, with the same time axis as the charts."""
    x = _scale(ended)
    top = TOP
    parts: list[str] = []
    for lane in lanes:
        middle = top + LANE / 2 + 4
        lasted = sum((event.ended or event.began) - event.began for event in lane.events)
        total = format_duration(lasted) if lasted else str(len(lane.events) or "none")
        parts += [
            _across(top + LANE, "grid"),
            _text(LEFT - GAP, middle, _cut(lane.name, LEFT - 2 * GAP), style="soft end"),
            _beside(middle, lane.total or total, "soft"),
            *(_event(event, x, top + 4, floor=top + LANE - 4) for event in lane.events),
        ]
        top += LANE
    parts += _time_axis(ended, top)
    axis = "seconds since the first pressure began"
    parts.append(_text(LEFT + PLOT / 2, top + BOTTOM + 6, axis, style="soft middle"))
    return _svg(name, top + BOTTOM + LINE, parts)


def _amount(amount: int, inodes: bool) -> str:
    return str(amount) if inodes else format_bytes(amount).replace(".0", "")


def _cut(text: str, room: float) -> str:
    """A text as wide as `room` at most."""
    text = escaped(text)
    limit = int(room / CHARACTER)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _beside(y: float, text: str, style: str) -> str:
    """A text on the right of the plot."""
    return _text(RIM + GAP, y, _cut(text, RIGHT - 2 * GAP), style=style)


def _svg(name: str, height: float, parts: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{html_text(name)}">',
            *parts,
            "</svg>",
        ]
    )


def _scale(ended: float) -> Callable[[float], float]:
    span = max(ended, 1e-6)
    return lambda seconds: LEFT + PLOT * min(max(seconds / span, 0.0), 1.0)


def _rounded_up(least: float) -> float:
    """1, 2, 5 or 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def _time_axis(ended: float, floor: float) -> list[str]:
    x = _scale(ended)
    step = _rounded_up(max(ended, 1e-6) / 8)
    digits = max(-math.floor(math.log10(step)), 0)
    parts: list[str] = []
    for number in range(math.floor(ended / step) + 1):
        place = x(number * step)
        parts += [
            _line(place, floor, place, y2=floor + 5, style="grid"),
            _text(place, floor + 19, f"{number * step:.{digits}f} s", style="soft middle"),
        ]
    return parts


def _event(event: Event, x: Callable[[float], float], top: float, *, floor: float) -> str:
    """A rectangle, thin for a moment; its invisible edge is easy to point at."""
    left = x(event.began)
    wide, until = 1.6, ""
    if event.ended is not None:
        wide, until = max(x(event.ended) - left, wide), f" to {event.ended:.3f} s"
    title = f"<title>{html_text(event.label)}, {event.began:.3f} s{until}</title>"
    size = f'width="{wide:.1f}" height="{floor - top:.1f}"'
    style = html_text(event.style)
    return f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}" {size}>{title}</rect>'


def _line(x1: float, y1: float, x2: float, *, y2: float, style: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line class="{html_text(style)}" {ends}/>'


def _across(y: float, style: str) -> str:
    """A line over the whole width of the plot."""
    return _line(LEFT, y, RIM, y2=y, style=style)


def _text(x: float, y: float, text: str, *, style: str) -> str:
    return f'<text class="{html_text(style)}" x="{x:.1f}" y="{y:.1f}">{html_text(text)}</text>'
