"""A drill as JUnit XML, for a CI: one suite a scenario, one case an expectation.

What could not be judged is a skipped case. Source of the form: the schema that Jenkins' JUnit plugin reads
(`testsuite`, `testcase`, `failure`, `skipped`).
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from eviction.drill.report.document import Report
from eviction.reporting.log import escaped


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
            said = f"expected: {check.expected}; seen: {check.seen}"
            lines.append(f'{case}><failure type="expectation" message={_quoted(said)}/></testcase>')
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])


def _quoted(value: object) -> str:
    """An attribute's value; what is not printable, which XML 1.0 has no way to write, as an escape."""
    return quoteattr(escaped(str(value)))
