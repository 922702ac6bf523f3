"""Runs scenarios in this process."""

import io
import time

from eviction.drill.embedded import Drill
from eviction.drill.embedded_node import EmbeddedNode
from eviction.drill.judge import DrillResult
from eviction.drill.report.document import DrillReportJson, report_of
from eviction.drill.scenario import Scenario
from eviction.records.json_shapes import to_json
from eviction.wording.log import Log
from tests.conftest import MOUNTS
from tests.schemas import assert_as_described


def run(scenario: Scenario) -> DrillResult:
    """One run on an embedded node."""
    with EmbeddedNode(scenario, MOUNTS.how) as embedded:
        return Drill(embedded, Log(time.time, stream=io.StringIO())).run()


def report_of_run(result: DrillResult) -> DrillReportJson:
    """The report of a run, whose JSON is as its schema says."""
    report = report_of(result)
    assert_as_described(to_json(report))
    return report
