"""Rules and dashboards: promtool accepts and tests them, and a real Prometheus
evaluates them on a real daemon. How dashboards are laid out: `told/dashboards.txt`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true
from tests.repository import ROOT
from tests.sockets.monitoring import Prometheus
from tests.sockets.passes import satisfied
from tests.sockets.surface.test_http_server import address_of
from tests.tool import tool

pytestmark = pytest.mark.house("config", "eviction", "reclaim", "signals")

CONFIG = ROOT / "config"
RULES = CONFIG / "prometheus" / "rules.yaml"


def rules() -> list[dict[str, Any]]:
    """Those of the file."""
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


RECORDED = [rule["record"] for rule in rules() if "record" in rule]


def test_every_rule_is_sound_and_tested() -> None:
    """promtool checks the rules as they are shipped and runs their tests; each alert
    fires in one, and elsewhere, or at another time, it does not; what each recording
    rule records is looked at."""
    directory, promtool = RULES.parent, tool("promtool", "prometheus")
    files = sorted(path.name for path in directory.glob("*.test.yaml"))
    for arguments in (("check", "rules", RULES.name), ("test", "rules", *files)):
        command = [promtool, *arguments]
        process = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        assert process.returncode == 0, process.stdout + process.stderr
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    assert len(set(alerts)) == len(alerts)
    documents = [yaml.safe_load((directory / name).read_text()) for name in files]
    tests = [test for document in documents for test in document["tests"]]
    cases = [case for test in tests for case in test.get("alert_rule_test", ())]
    for fires in (True, False):
        of_these = {case["alertname"] for case in cases if bool(case["exp_alerts"]) is fires}
        assert of_these == set(alerts)
    looked = [case for test in tests for case in test.get("promql_expr_test", ())]
    assert [case["expr"] for case in looked if case["exp_samples"]] == RECORDED


def test_the_operator_gets_the_same_rules() -> None:
    """Of the component `prometheus`."""
    file = CONFIG / "kubernetes" / "components" / "prometheus" / "rules.yaml"
    assert yaml.safe_load(file.read_text())["spec"] == yaml.safe_load(RULES.read_text())


DASHBOARDS = sorted((CONFIG / "grafana").glob("*.json"))
HEADROOM = "reclaimd_headroom_seconds"
EMPTY = {"Nodes in a dry run", "Nodes held off"}  # without such a node
UNSENT = "reclaimd_oldest_removal_timestamp_seconds"  # only while a removal is in flight


def panels() -> list[tuple[str, str]]:
    """Title and expression of every panel's queries, as Prometheus gets them."""
    documents = [json.loads(path.read_text()) for path in DASHBOARDS]
    return [
        (
            panel["title"],
            target["expr"].replace("$instance", ".*").replace("$__rate_interval", "5m"),
        )
        for document in documents
        for panel in document["panels"]
        for target in panel["targets"]
    ]


def empty_panels(prometheus: Prometheus) -> set[str]:
    """The titles of those that show nothing now."""
    return {title for title, expression in panels() if not prometheus.query(expression)}


@contextmanager
def filled_on(file: Path) -> Iterator[None]:
    """A file is written all the while, 16 KiB at a time, and begins anew at 2 MiB."""
    stopped = Event()

    def write() -> None:
        with open(file, "wb", buffering=0) as opened:
            while not stopped.wait(0.02):
                if opened.tell() >= 2 * MIB:
                    opened.seek(0)
                    opened.truncate()
                opened.write(bytes(16 << 10))

    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopped.set()
        writer.join()


def test_every_expression_evaluates_against_a_scraped_daemon(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """A real Prometheus scrapes a daemon that relieves its node: no expression is refused, every
    metric exists, and every panel shows something but those of a state that this node is not in."""
    small_node.add_images(3)
    marks = {"nodefs.inodesFree": "1%"}
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, -2 * MIB, metricsAddress="127.0.0.1:0", evictionHard=marks
    )
    with Daemon("--config", file) as daemon:
        address = address_of(daemon)
        with Prometheus(tmp_path, address, RULES) as prometheus:
            (built,) = prometheus.query("reclaimd_build_info")
            assert built["metric"]["instance"] == address
            assert came_true(
                lambda: bool(prometheus.query("increase(reclaimd_passes_total[1m])"))
            ), "two scrapes"
            small_node.fill(3 * MIB)
            daemon.wait_for(satisfied)
            assert came_true(
                lambda: bool(prometheus.query("increase(reclaimd_passes_total[1m]) > 0"))
            )
            # the time to a mark is known only while something fills
            with filled_on(small_node.disk / "filled"):
                assert came_true(lambda: all(map(prometheus.query, (HEADROOM, *RECORDED))))
                for expression in [
                    *(each for _, each in panels()),
                    *(rule["expr"] for rule in rules()),
                ]:
                    prometheus.query(expression)
                    for metric in set(re.findall(r"(?<!:)\breclaimd_[a-z_]+", expression)):
                        served = metric == UNSENT or prometheus.query(metric)
                        assert served, f"{metric} of {expression} is not served"
                assert came_true(lambda: empty_panels(prometheus) == EMPTY)
