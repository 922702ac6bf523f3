"""The built-in scenarios: each holds, fails with a wrong expectation, and has a report.

One test a scenario, so that each is run once.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.strict_yaml import read_document
from eviction.drill.judge import judge
from eviction.drill.report.page import junit_xml, page
from eviction.drill.scenario import Expectation, find_scenario, library
from tests.drill.runs import report_of_run, run
from tests.drill.test_report import assert_self_contained, tree
from tests.reclaimd_process import reclaimd
from tests.sockets.mounts import need_mounts

WRONG: dict[str, Any] = read_document(
    str(Path(__file__).with_name("wrong.yaml")), trusted_only=False
)


@pytest.mark.parametrize("name", library())
def test_a_scenario_of_the_library_holds(name: str) -> None:
    """Run on the embedded node, every expectation holds; the same run judged with one wrong
    expectation fails in exactly that; and its report has all that was measured."""
    need_mounts()
    scenario = find_scenario(name)
    result = run(scenario)
    assert [f"{c.name}: {c.expected}: {c.seen}" for c in result.checks if not c.held] == []

    wrong = dict(WRONG[name]["wrong"])
    faults = wrong.pop("faults", len(scenario.faults))
    written = read_document(library()[name], trusted_only=False)["expect"]
    checks = judge(Expectation.model_validate({**written, **wrong}), result.measurements, faults)
    assert [check.name for check in checks if not check.held] == [WRONG[name]["fails"]]

    report = report_of_run(result)
    html = page(report)
    assert_self_contained(html)
    shown = "".join(tree(html).itertext())
    assert name in shown
    names = [each.name for each in report.removals] + [each.name for each in report.checks]
    assert [each for each in names if each not in shown] == []
    suite = tree(junit_xml(report)).find("testsuite")
    assert suite is not None
    assert suite.get("tests") == str(len(suite.findall("testcase"))) == str(len(report.checks))


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_fifty_runs_of_the_whole_library_hold(tmp_path: Path) -> None:
    """All scenarios one after the other, 50 times (DRILL_RUNS=n for another number): none ever
    fails."""
    need_mounts()
    for number in range(int(os.environ.get("DRILL_RUNS", "50"))):
        reports = tmp_path / str(number)
        process = reclaimd("drill", "--all", "--report", str(reports), timeout_seconds=1800.0)
        assert process.returncode == 0, f"run {number}: {process.stdout}{process.stderr}"
        shutil.rmtree(reports)  # 5 MiB each
