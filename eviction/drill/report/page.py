"""The report of a drill as a self-contained HTML page, and as JUnit XML for a CI.

A page loads nothing and runs nothing. All text from a scenario, a runtime or a pod is escaped. In
JUnit XML the scenario is a suite and each expectation a case; one that could not be judged is
skipped. Source of the format: the schema that Jenkins' JUnit plugin reads (`testsuite`,
`testcase`, `failure`, `skipped`).
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from eviction.drill.report.document import DrillReportJson, MeasuredPassJson
from eviction.drill.report.lines import before_rows, story_rows
from eviction.drill.report.timeline import CLASSES, COLOURS, FONTS, html_text, timeline
from eviction.printable import escaped
from signals.quantity import format_duration

STYLE = f"""{COLOURS}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 0.5rem; break-after: avoid; text-align: left; }}
:focus-visible {{ outline: 3px solid var(--a); outline-offset: 2px; }}
p {{ margin: 0.4rem 0; }}
.why, dt {{ color: var(--soft); }}
.verdict, figcaption, th {{ font-weight: 600; }}
.bad {{ color: var(--mark); }}
figure {{ margin: 0 0 1rem; padding: 0.6rem; background: var(--sheet);
  border: 1px solid var(--edge); border-radius: 6px; overflow-x: auto; }}
figure, tr {{ break-inside: avoid; }}
{FONTS}
svg {{ display: block; width: 100%; min-width: 60rem; height: auto; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; background: var(--sheet); }}
th, td {{ text-align: left; vertical-align: top; padding: 0.3rem 0.6rem;
  border: 1px solid var(--edge); }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
td.name {{ overflow-wrap: anywhere; min-width: 9rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; margin: 0.8rem 0; }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
{CLASSES}
@media (max-width: 40rem) {{ body {{ padding: 0.8rem; }} dl {{ grid-template-columns: 1fr; }} }}
@media print {{ body {{ max-width: none; padding: 0; font-size: 10pt; }} svg {{ min-width: 0; }} }}
"""


def page(report: DrillReportJson) -> str:
    """The page of one run."""
    figures = [
        f'<figure tabindex="0"><figcaption>{html_text(name)}</figcaption>{svg}</figure>'
        for name, svg in timeline(report)
    ]
    drawn = "\n".join(figures)
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
{_facts(report)}
<h2>Timeline</h2>
{drawn}
{_checks(report)}
{_passes(report.passes)}
</main></body>
</html>
"""


def junit_xml(report: DrillReportJson) -> str:
    """A run as JUnit XML. Unprintable characters, which XML 1.0 cannot contain, are escaped."""
    suite = escaped(f"reclaimd.drill.{report.scenario}")
    held = [check.held for check in report.checks]
    counts = {"failures": str(held.count(False)), "skipped": str(held.count(None))}
    head = {"name": suite, "tests": str(len(held)), **counts, "time": f"{report.ended_seconds:.3f}"}
    root = Element("testsuites", head)
    cases = SubElement(root, "testsuite", head, errors="0")
    for check in report.checks:
        name = escaped(f"{check.name} {check.expected}")
        case = SubElement(cases, "testcase", classname=suite, name=name)
        if check.held is None:
            SubElement(case, "skipped", message=escaped(check.seen))
        elif not check.held:
            message = escaped(f"expected: {check.expected}; measured: {check.seen}")
            SubElement(case, "failure", type="expectation", message=message)
    indent(root, "")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


# ---- parts of a page


def table(
    caption: str,
    head: list[str],
    rows: list[list[str]],
    *,
    numbers: Sequence[str] = (),
    name: str = "",
) -> str:
    """A table of cells that are HTML, with its caption as a heading.

    Where it is too wide, it scrolls, also by keys. `numbers`: the columns of figures. `name`: the
    column of long names.
    """

    styles = dict.fromkeys(numbers, ' class="number"') | {name: ' class="name"'}
    lines = [
        "".join(
            f"<td{styles.get(column, '')}>{text}</td>"
            for column, text in zip(head, row, strict=True)
        )
        for row in rows
    ]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    header = "".join(f'<th scope="col">{html_text(text)}</th>' for text in head)
    title = html_text(caption)
    content = f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody>"
    region = f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">'
    return f"{region}<table><caption><h2>{title}</h2></caption>{content}</table></div>"


def _facts(report: DrillReportJson) -> str:
    apart = report.lists_apart_seconds
    what = [pressure.what for pressure in report.pressures]
    faults = [fault.what for fault in report.faults]
    facts = [
        *before_rows(f"{report.filesystem}; layout {report.layout}", what, faults),
        *story_rows(report),
    ]
    if apart is not None:
        polled = f"the runtime's lists were polled at most {format_duration(apart)} apart"
        facts.append(("removals", f"{polled}; a removal may have happened that much earlier"))
    items = [f"<dt>{word}</dt><dd>{html_text(text)}</dd>" for word, text in facts]
    return f"<dl>{''.join(items)}</dl>"


def _checks(report: DrillReportJson) -> str:
    words = {
        True: '<span class="good">held</span>',
        False: '<span class="bad">NOT</span>',
        None: "not judged",
    }
    rows = [
        [words[c.held], html_text(c.name), html_text(c.expected), html_text(c.seen)]
        for c in report.checks
    ]
    return table("Expectations", ["Held", "What", "Expected", "Measured"], rows, name="What")


def _passes(passes: Sequence[MeasuredPassJson]) -> str:
    rows = [
        [
            f"{one.from_seconds:.3f} s",
            html_text(one.acted_on.signal if one.acted_on else "-"),
            html_text(", ".join(one.row)),
            format_duration(one.timings.total_seconds),
            html_text(f"{one.result}: {one.reason}"),
        ]
        for one in passes
    ]
    head = ["At", "Signal", "Row", "Took", "Result"]
    return table("Passes", head, rows, numbers=("At", "Took"), name="Result")
