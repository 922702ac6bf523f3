"""A run as JUnit XML, for a CI: one suite for the scenario, one case for each expectation.

An expectation that could not be judged is a skipped case. Source of the format: the schema that Jenkins' JUnit plugin
reads (`testsuite`, `testcase`, `failure`, `skipped`).
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
            message = f"expected: {check.expected}; measured: {check.seen}"
            lines.append(f'{case}><failure type="expectation" message={_quoted(message)}/></testcase>')
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])


def _quoted(value: object) -> str:
    """The value of an attribute. Unprintable characters, which XML 1.0 cannot contain, become escapes."""
    return quoteattr(escaped(str(value)))
