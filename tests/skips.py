"""With `HOUSE=1` a test that is skipped fails, unless that is expected: a run that has tested less
than it should, as a package could not be installed or there is no root, is not green.

`ALLOW_SKIPS` in the environment allows more: patterns of reasons, separated by `;`.
"""

import os
from collections.abc import Generator
from fnmatch import fnmatchcase
from typing import TypeVar

import pytest

ALLOWED = {
    "root may *": "what another user may not do; root runs all other tests",
    "no real kubelet can be started here: *": (
        "no distribution has the programs: make kubelet names them"
    ),
    "no real BuildKit can be started here: *": "no distribution has it",
    "no caches of real tools: *": "what downloads models is no part of an environment for tests",
    "no helm on the PATH, *": "Debian has no package of it; the workflow installs it",
    "this kubectl is older than 1.21: *": (
        "Debian 12 has 1.20, and only one way of using a directory needs more"
    ),
}
"""The reasons of skips that are expected where the tests are complete, as
patterns; and why each is.
"""

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of a test."""
    return judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of a file that is skipped as a whole."""
    return judged((yield))


def judged(report: _Report) -> _Report:
    """The report, failed if it is of a skip that is not allowed."""
    if os.environ.get("HOUSE") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not is_allowed(reason):
            report.outcome = "failed"
            report.longrepr = (
                f"skipped, which HOUSE=1 does not allow unless ALLOW_SKIPS names it: {reason}"
            )
    return report


def is_allowed(reason: str) -> bool:
    """Whether a pattern names this reason."""
    named = filter(None, os.environ.get("ALLOW_SKIPS", "").split(";"))
    return any(fnmatchcase(reason, pattern.strip()) for pattern in (*ALLOWED, *named))
