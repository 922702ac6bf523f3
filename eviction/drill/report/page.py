"""The report of a drill as one self-contained HTML page, as one SVG picture, and as JUnit XML for a CI.

On a page nothing is loaded and nothing runs. Every text that comes from a scenario, a runtime or a pod is escaped. In
JUnit XML there is one suite for the scenario and one case for each expectation; one that could not be judged is a
skipped case. Source of the format: the schema that Jenkins' JUnit plugin reads (`testsuite`, `testcase`, `failure`,
`skipped`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import quoteattr

from eviction.drill.report.document import DrawnPass, Report
from eviction.drill.report.timeline import CLASSES, COLOURS, KINDS, Run, html_text, sheet, timeline, unit_of
from eviction.reporting.log import escaped
from signals.quantity import counted, format_bytes, format_duration

STYLE = f"""{COLOURS}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 0.5rem; break-after: avoid; }}
p {{ margin: 0.4rem 0; }}
.why, dt {{ color: var(--soft); }}
.verdict, figcaption, th {{ font-weight: 600; }}
.good {{ color: var(--good); }}
.bad {{ color: var(--mark); }}
figure {{ margin: 0 0 1rem; padding: 0.6rem; background: var(--sheet); border: 1px solid var(--edge);
  border-radius: 6px; overflow-x: auto; }}
figure, tr {{ break-inside: avoid; }}
svg {{ display: block; width: 100%; min-width: 40rem; height: auto; font: 11px system-ui, sans-serif; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; background: var(--sheet); }}
th, td {{ text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border: 1px solid var(--edge); }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
td.name {{ overflow-wrap: anywhere; min-width: 9rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; margin: 0.8rem 0; }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
.key span {{ display: inline-block; margin-right: 1.2rem; white-space: nowrap; }}
.key i {{ display: inline-block; width: 1.1rem; height: 0.6rem; margin-right: 0.4rem; }}
{CLASSES}
i.image {{ background: var(--image); }} i.container {{ background: var(--container); }}
i.sandbox {{ background: var(--sandbox); }} i.log {{ background: var(--log); }}
i.fault {{ background: var(--fault); }} i.band {{ background: var(--band); border: 1px solid var(--mark); }}
i.release, i.line-a, i.line-b {{ height: 0; vertical-align: middle; border-top: 2px dotted var(--soft); }}
i.line-a {{ border-top: 3px solid var(--a); }}
i.line-b {{ border-top: 3px dashed var(--b); }}
@media (max-width: 40rem) {{ body {{ padding: 0.8rem; }} dl {{ grid-template-columns: 1fr; }} }}
@media print {{ body {{ max-width: none; padding: 0; font-size: 10pt; }} svg {{ min-width: 0; }} }}
"""


def page(report: Report) -> str:
    """The page of one run."""
    simulated = " (simulated filesystem)" if report.simulated else ""
    body = [
        f"<h1>{html_text(report.title)}</h1>",
        f'<p class="why">{html_text(report.why)}</p>',
        f'<p class="verdict {"good" if report.held else "bad"}">{report.verdict}{simulated}</p>',
        _facts(report),
        "<h2>Timeline</h2>",
        _key(report),
        *(figure(*drawing) for drawing in timeline([Run(report)])),
        "<h2>Expectations</h2>",
        _checks(report),
        "<h2>Passes</h2>",
        _passes(report.passes),
        "<h2>Removed objects</h2>",
        _removals(report),
    ]
    return html(f"drill {report.scenario}", body)


def picture(report: Report) -> str:
    """The first chart and the events of one run as one SVG file."""
    first, relief = report.from_crossing_to_first_removal_seconds, report.from_crossing_to_relief_seconds
    facts = ["everything held" if report.held else "NOT everything held"]
    if first is not None:
        facts.append(f"the first removal {format_duration(first)} after the mark was crossed")
    if relief is not None:
        facts.append(f"relieved after {format_duration(relief)}")
    outcome = f"{', '.join(facts)}; {counted(len(report.removals), 'object')} removed"
    return sheet(report.scenario, (report.why, outcome), timeline([Run(report)]))


def junit_xml(report: Report) -> str:
    """A run as JUnit XML."""
    suite, failures = f"reclaimd.drill.{report.scenario}", sum(check.held is False for check in report.checks)
    skipped = sum(check.held is None for check in report.checks)
    counts = f"tests={_quoted(len(report.checks))} failures={_quoted(failures)} skipped={_quoted(skipped)}"
    head = f"name={_quoted(suite)} {counts} time={_quoted(f'{report.ended_seconds:.3f}')}"
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {head}>", f'<testsuite {head} errors="0">']
    for check in report.checks:
        case = f"<testcase classname={_quoted(suite)} name={_quoted(f'{check.name} {check.expected}')}"
        if check.held:
            lines.append(f"{case}/>")
        elif check.held is None:
            lines.append(f"{case}><skipped message={_quoted(check.seen)}/></testcase>")
        else:
            message = f"expected: {check.expected}; measured: {check.seen}"
            lines.append(f'{case}><failure type="expectation" message={_quoted(message)}/></testcase>')
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])


def _quoted(value: object) -> str:
    """The value of an attribute. Unprintable characters, which XML 1.0 cannot contain, become escapes."""
    return quoteattr(escaped(str(value)))


# ---- parts of a page


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


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = (), name: str = "") -> str:
    """A table whose cells are HTML already. `numbers`: the columns of figures. `name`: the column of long names."""

    def cell(column: str, text: str) -> str:
        style = ' class="number"' if column in numbers else ' class="name"' if column == name else ""
        return f"<td{style}>{text}</td>"

    lines = ["".join(cell(column, text) for column, text in zip(head, row, strict=True)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    header = "".join(f"<th>{html_text(text)}</th>" for text in head)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(caption: str, drawing: str) -> str:
    """A drawing with its caption."""
    return f"<figure><figcaption>{html_text(caption)}</figcaption>{drawing}</figure>"


def _key(report: Report) -> str:
    """The meaning of the colours in this report."""
    kinds = [kind for kind in KINDS if any(removal.kind == kind for removal in report.removals)]
    entries = [("band", "ReclaimPressure is reported")] if report.conditions else []
    entries += [(kind, f"{kind} removed") for kind in kinds]
    entries += [("fault", "fault triggered")] if report.faults else []
    entries += [("release", "minimum reclaim is reached")]
    spans = "".join(f'<span><i class="{style}"></i>{text}</span>' for style, text in entries)
    return f'<p class="key">{spans}</p>'


def _facts(report: Report) -> str:
    beyond, apart = report.images_lost_beyond_need, report.lists_apart_seconds
    removed = f"objects: {len(report.removals)}"
    facts = {
        "node": f"{report.filesystem}; layout {report.layout}",
        "pressure": "; then ".join(pressure.what for pressure in report.pressures),
        "faults": "; ".join(fault.what for fault in report.faults),
        "relieved by": "another component (observed)" if report.response != "reclaimd" else "",
        "crossing to first removal": seconds_text(report.from_crossing_to_first_removal_seconds),
        "crossing to first relief": seconds_text(report.from_crossing_to_first_relief_seconds),
        "crossing to relief": seconds_text(report.from_crossing_to_relief_seconds),
        "lowest": ", ".join(_lowest(report)),
        "removed": removed if beyond is None else f"{removed}, of which images beyond need: {beyond}",
        "the runtime's lists": ""
        if apart is None
        else f"{seconds_text(apart)} apart at most; a removal may have happened by that much earlier",
        "pods that ended": ", ".join(f"{pod.name} at {pod.seconds:.2f} s" for pod in report.ended_pods),
    }
    entries = "".join(f"<dt>{name}</dt><dd>{html_text(text)}</dd>" for name, text in facts.items() if text)
    return f"<dl>{entries}</dl>"


def seconds_text(seconds: float | None) -> str:
    """A time for people; `-` if there is none."""
    return "-" if seconds is None else format_duration(seconds)


def _lowest(report: Report) -> list[str]:
    """The lowest points. Signals with the same value share a phrase."""
    names: dict[str, list[str]] = {}
    for signal, value in report.lowest.items():
        role, _, unit = signal.partition(".")
        inodes = unit == "inodesFree"
        shown = "not measured" if value is None else f"{unit_of(inodes=inodes)(value)}{' inodes' * inodes}"
        names.setdefault(shown, []).append(role)
    return [f"{shown} on {' and '.join(roles)}" for shown, roles in names.items()]


def _checks(report: Report) -> str:
    words = {True: '<span class="good">held</span>', False: '<span class="bad">NOT</span>', None: "not judged"}
    rows = [[words[c.held], html_text(c.name), html_text(c.expected), html_text(c.seen)] for c in report.checks]
    return html_table(["", "What", "Expected", "Measured"], rows, name="What")


def _passes(passes: Sequence[DrawnPass]) -> str:
    if not passes:
        return "<p>No passes.</p>"
    rows = [_pass_cells(one) for one in passes]
    head = [name for name in rows[0] if name != "Collector" or len({one.collector for one in passes}) > 1]
    cells = [[html_text(row[name]) for name in head] for row in rows]
    return html_table(head, cells, ("At", "Collector", "Tried", "Nominal"), name="Result")


def _pass_cells(one: DrawnPass) -> dict[str, str]:
    timings = one.timings
    parts = (("lists", timings.list_seconds), ("plan", timings.plan_seconds), ("removals", timings.remove_seconds))
    of_which = ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in parts)
    return {
        "At": f"{one.from_seconds:.3f} s",
        "Collector": str(one.collector),
        "Signal": one.acted_on.signal if one.acted_on else "-",
        "Row": ", ".join(one.row),
        "Tried": str(len(one.removals)),
        "Measured": f"{format_bytes(one.measured.bytes or 0)}, {counted(one.measured.inodes or 0, 'inode')}",
        "Nominal": format_bytes(one.nominal.bytes or 0),
        "Took": f"{format_duration(timings.total_seconds)} ({of_which})",
        "Result": f"{one.result}: {one.reason}",
    }


def _removals(report: Report) -> str:
    if not report.removals:
        return "<p>Nothing was removed.</p>"
    rows = [[f"{r.seconds:.3f} s", html_text(r.kind), html_text(r.name)] for r in report.removals]
    return html_table(["At", "Kind", "Name"], rows, ("At",), name="Name")
