"""The report of a drill as a self-contained HTML page, and as JUnit XML for a CI.

A page is the text of the report with its drawings. It loads nothing and runs nothing. All text from
a scenario, a runtime or a pod is escaped. In JUnit XML the scenario is a suite and each expectation
a case; one that could not be judged is skipped. Source of the format: the schema that Jenkins'
JUnit plugin reads (`testsuite`, `testcase`, `failure`, `skipped`).
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from eviction.drill.report.document import DrillReportJson
from eviction.drill.report.lines import before_rows, checks_table, row_lines, story_rows
from eviction.drill.report.timeline import CLASSES, COLOURS, FONTS, html_text, timeline
from eviction.printable import escaped
from signals.quantity import format_duration

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
    what = [pressure.what for pressure in report.pressures]
    faults = [fault.what for fault in report.faults]
    rows = [
        *before_rows(f"{report.filesystem}; layout {report.layout}", what, faults),
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
