"""The report of a drill as one self-contained HTML page: nothing is loaded, nothing runs.

Every text that comes from a scenario, a runtime or a pod is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eviction.drill.measurement.measurements import PLURALS
from eviction.drill.report.chart import Chart, Lane, MarkLine, Series, Span, Tick, chart_svg, html_text, lanes_svg
from eviction.drill.report.css import STYLE
from eviction.drill.report.document import ConditionPart, FilesystemPart, MarkPart, PassPart, Report
from signals.quantity import counted, format_bytes, format_duration

KINDS = tuple(PLURALS)


def page(report: Report) -> str:
    """The page of one run."""
    verdict = report.verdict
    simulated = " (simulated filesystem)" if report.simulated else ""
    body = [
        f"<h1>{html_text(report.title)}</h1>",
        f'<p class="why">{html_text(report.why)}</p>',
        f'<p class="verdict {"good" if report.held else "bad"}">{verdict}{simulated}</p>',
        _facts(report),
        "<h2>Timeline</h2>",
        key(report),
        *charts(report),
        figure(*lanes_drawing(report)),
        "<h2>Expectations</h2>",
        _checks(report),
        "<h2>Passes</h2>",
        _passes(report.passes),
        "<h2>Removed objects</h2>",
        _removals(report),
    ]
    return html(f"drill {report.scenario}", body)


def html(title: str, body: Iterable[str]) -> str:
    """A whole page around a body."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>",
            f"<title>{html_text(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>",
            "",
        ]
    )


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (), name: int = -1) -> str:
    """A table whose cells are HTML already. `numbers`: the columns of figures. `name`: the column of long names."""
    figures = frozenset(numbers)

    def cell(place: int, text: str) -> str:
        style = ' class="number"' if place in figures else ' class="name"' if place == name else ""
        return f"<td{style}>{text}</td>"

    lines = ["".join(cell(place, text) for place, text in enumerate(row)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    header = "".join(f"<th>{html_text(text)}</th>" for text in head)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


# ---- charts


def charts_to_draw(report: Report) -> list[tuple[FilesystemPart, bool]]:
    """(filesystem, inodes?) of each chart: those with a mark; without any mark the bytes of the first filesystem."""
    marked = {(mark.filesystem, mark.counts_inodes) for mark in report.marks}
    found = [(fs, inodes) for fs in report.filesystems for inodes in (False, True) if (fs.name, inodes) in marked]
    return found or [(fs, False) for fs in report.filesystems[:1]]


def chart_name(filesystem: FilesystemPart, *, inodes: bool) -> str:
    """What a chart shows, in words."""
    roles = ", ".join(filesystem.roles)
    total = f"{filesystem.inodes_total} inodes" if inodes else format_bytes(filesystem.capacity_bytes)
    return f"{'inodes free' if inodes else 'bytes available'} on {roles} (of {total})"


def marks_of(report: Report, filesystem: FilesystemPart, *, inodes: bool) -> list[MarkLine]:
    """The lines of a chart: one for each amount that is a mark, and one for each mark with minimum reclaim."""
    mine = [m for m in report.marks if m.filesystem == filesystem.name and m.counts_inodes == inodes]
    unit = _unit(inodes=inodes)
    lines: dict[tuple[int, str], list[MarkPart]] = {}
    for mark in mine:
        if mark.effective is not None:
            lines.setdefault((mark.effective, "mark" if mark.grace_seconds == 0 else "soft-mark"), []).append(mark)
    marks: list[MarkLine] = []
    for (amount, style), same in lines.items():
        roles = list(dict.fromkeys(mark.signal.partition(".")[0] for mark in same))
        who = "" if set(roles) == set(filesystem.roles) else f"{', '.join(roles)} "
        marks.append(MarkLine(f"{who}{same[0].value} = {unit(amount)}", amount, style))
    known = {mark.amount for mark in marks}
    releases = {m.effective_with_min_reclaim for m in mine if m.effective_with_min_reclaim is not None} - known
    return marks + [MarkLine(f"relieved at {unit(amount)}", amount, "release") for amount in sorted(releases)]


def charts(report: Report) -> list[str]:
    """One figure for each filesystem and unit that has a mark."""
    return [figure(name, drawing) for name, drawing in chart_drawings(report)]


def chart_drawings(report: Report) -> list[tuple[str, str]]:
    """The name and the SVG of each chart."""
    bands = _bands(report, report.reclaim_pressure, "band")
    ticks = [Tick(f"{r.kind} {r.name}, {r.seconds:.3f} s", r.seconds, r.kind) for r in report.removals]
    ticks = [Tick(tick.label, tick.seconds, tick.style if tick.style in KINDS else "sandbox") for tick in ticks]
    ticks += [Tick(f"{f.what}, {f.seconds:.3f} s", f.seconds, "fault") for f in report.faults]
    drawings = []
    for filesystem, inodes in charts_to_draw(report):
        name = chart_name(filesystem, inodes=inodes)
        chart = Chart(
            name=name,
            began=0.0,
            ended=report.ended_seconds,
            unit=_unit(inodes=inodes),
            series=[Series(name, report.series(filesystem.name, inodes=inodes))],
            marks=marks_of(report, filesystem, inodes=inodes),
            bands=bands,
            ticks=ticks,
            binary=not inodes,
        )
        drawings.append((name, chart_svg(chart)))
    return drawings


def lanes_drawing(report: Report) -> tuple[str, str]:
    """The name and the SVG of the events over time."""
    name = "events"
    return name, lanes_svg(name, 0.0, report.ended_seconds, event_lanes(report))


def event_lanes(report: Report, prefix: str = "", origin: float = 0.0) -> list[Lane]:
    """Pressures, conditions, faults and removals, each in a lane of its own. `prefix`: of the lanes' names. `origin`:
    the moment of the run from which seconds count."""
    lanes: list[Lane] = []
    spans = [(p.what, p.from_seconds - origin, _end(p.to_seconds, report) - origin) for p in report.pressures]
    if spans or not prefix:
        lanes.append(("pressure", [Span(f"{what}, {a:.2f} s to {b:.2f} s", a, b, "pressure") for what, a, b in spans]))
    if report.faults:
        lanes.append(("faults", [_event(f.what, f.seconds - origin, "fault") for f in report.faults]))
    lanes.append(("condition", _bands(report, report.reclaim_pressure, "condition", origin)))
    if report.disk_pressure:
        lanes.append(("kubelet's", _bands(report, report.disk_pressure, "condition", origin)))
    if report.ended_pods:
        lanes.append(
            ("ended pods", [_event(f"{pod.name} ended", pod.seconds - origin, "pod") for pod in report.ended_pods])
        )
    for kind in KINDS:
        mine = [r for r in report.removals if r.kind == kind]
        if mine:
            lanes.append((PLURALS[kind], [_event(r.name, r.seconds - origin, kind) for r in mine]))
    return [(f"{prefix}{name}", things) for name, things in lanes]


def _event(what: str, seconds: float, style: str) -> Tick:
    return Tick(f"{what}, {seconds:.3f} s", seconds, style)


def figure(caption: str, drawing: str) -> str:
    """A drawing with its caption."""
    return f"<figure><figcaption>{html_text(caption)}</figcaption>{drawing}</figure>"


def key(report: Report) -> str:
    """The meaning of the colours in this report."""
    kinds = [kind for kind in KINDS if any(removal.kind == kind for removal in report.removals)]
    entries = [("band", "ReclaimPressure is reported")] if report.conditions else []
    entries += [(kind, f"{kind} removed") for kind in kinds]
    entries += [("fault", "fault triggered")] if report.faults else []
    entries += [("release", "minimum reclaim is reached")]
    spans = "".join(f'<span><i class="{style}"></i>{text}</span>' for style, text in entries)
    return f'<p class="key">{spans}</p>'


def _bands(report: Report, periods: Iterable[ConditionPart], style: str, origin: float = 0.0) -> list[Span]:
    bands = []
    for band in periods:
        began, ended = band.from_seconds - origin, _end(band.to_seconds, report) - origin
        until = "the end" if band.to_seconds is None else f"{ended:.3f} s"
        bands.append(Span(f"{band.condition}, {began:.3f} s to {until}", began, ended, style))
    return bands


def _end(seconds: float | None, report: Report) -> float:
    return report.ended_seconds if seconds is None else seconds


def _unit(*, inodes: bool) -> Callable[[int], str]:
    return str if inodes else format_bytes


# ---- tables


def _facts(report: Report) -> str:
    def took(seconds: float | None) -> str:
        return "-" if seconds is None else format_duration(seconds)

    beyond = report.images_lost_beyond_need
    facts = {
        "node": f"{report.filesystem}; layout {report.layout}",
        "pressure": "; then ".join(pressure.what for pressure in report.pressures),
        "faults": "; ".join(fault.what for fault in report.faults),
        "relieved by": "another component (observed)" if report.response != "reclaimd" else "",
        "crossing to first removal": took(report.from_crossing_to_first_removal_seconds),
        "crossing to first relief": took(report.from_crossing_to_first_relief_seconds),
        "crossing to relief": took(report.from_crossing_to_relief_seconds),
        "lowest": ", ".join(_lowest(report)),
        "removed": f"objects: {len(report.removals)}"
        + ("" if beyond is None else f", of which images beyond need: {beyond}"),
        "the runtime's lists": ""
        if report.lists_apart_seconds is None
        else f"{took(report.lists_apart_seconds)} apart at most; a removal may have happened by that much earlier",
        "pods that ended": ", ".join(f"{pod.name} at {pod.seconds:.2f} s" for pod in report.ended_pods),
    }
    return (
        "<dl>" + "".join(f"<dt>{name}</dt><dd>{html_text(text)}</dd>" for name, text in facts.items() if text) + "</dl>"
    )


def _lowest(report: Report) -> list[str]:
    """The lowest points. Signals with the same value share a phrase."""
    names: dict[str, list[str]] = {}
    for signal, value in report.lowest.items():
        role, _, unit = signal.partition(".")
        inodes = unit == "inodesFree"
        shown = "not measured" if value is None else f"{_unit(inodes=inodes)(value)}{' inodes' * inodes}"
        names.setdefault(shown, []).append(role)
    return [f"{shown} on {' and '.join(roles)}" for shown, roles in names.items()]


def _checks(report: Report) -> str:
    words = {True: '<span class="good">held</span>', False: '<span class="bad">NOT</span>', None: "not judged"}
    rows = [[words[c.held], html_text(c.name), html_text(c.expected), html_text(c.seen)] for c in report.checks]
    return html_table(["", "What", "Expected", "Measured"], rows, name=1)


def _passes(passes: Sequence[PassPart]) -> str:
    if not passes:
        return "<p>No passes.</p>"
    several = len({one.collector for one in passes}) > 1
    rows = []
    for one in passes:
        timings = one.timings
        parts = (("lists", timings.list_seconds), ("plan", timings.plan_seconds), ("removals", timings.remove_seconds))
        of_which = ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in parts)
        measured = f"{format_bytes(one.measured.bytes or 0)}, {counted(one.measured.inodes or 0, 'inode')}"
        row = [
            f"{one.from_seconds:.3f} s",
            *([str(one.collector)] if several else []),
            html_text(one.acted_on.signal if one.acted_on else "-"),
            html_text(", ".join(one.row)),
            str(len(one.removals)),
            measured,
            format_bytes(one.nominal.bytes or 0),
            f"{format_duration(timings.total_seconds)} ({of_which})",
            html_text(f"{one.result}: {one.reason}"),
        ]
        rows.append(row)
    head = [
        "At",
        *(["Collector"] if several else []),
        "Signal",
        "Row",
        "Tried",
        "Measured",
        "Nominal",
        "Took",
        "Result",
    ]
    figures = {place for place, name in enumerate(head) if name in ("At", "Collector", "Tried", "Nominal")}
    return html_table(head, rows, figures, name=len(head) - 1)


def _removals(report: Report) -> str:
    if not report.removals:
        return "<p>Nothing was removed.</p>"
    rows = [[f"{r.seconds:.3f} s", html_text(r.kind), html_text(r.name)] for r in report.removals]
    return html_table(["At", "Kind", "Name"], rows, {0}, name=2)
