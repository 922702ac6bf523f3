"""Alerts and dashboards: promtool accepts and tests them, and a real Prometheus evaluates them on a real daemon."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true
from tests.repository import ROOT
from tests.sockets.prometheus import Prometheus
from tests.sockets.telemetry.test_http_server import address_of
from tests.tool import tool

CONFIG = ROOT / "config"
RULES = CONFIG / "prometheus" / "rules.yaml"


def rules() -> list[dict[str, Any]]:
    """Those of the file."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_alert_is_sound_and_tested() -> None:
    """promtool checks the rules as they are shipped and runs their tests; each alert fires in one, and elsewhere, or at
    another time, it does not."""
    promtool = tool("promtool", "prometheus")
    files = sorted(path.name for path in RULES.parent.glob("*.test.yaml"))
    for arguments in (("check", "rules", RULES.name), ("test", "rules", *files)):
        command = [promtool, *arguments]
        process = subprocess.run(command, cwd=RULES.parent, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
    alerts = [rule["alert"] for rule in rules()]
    tests = [test for name in files for test in yaml.safe_load((RULES.parent / name).read_text())["tests"]]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(alerts)
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == set(alerts)
    assert len(set(alerts)) == len(alerts)


def test_the_operator_gets_the_same_rules() -> None:
    """Of the component `prometheus`."""
    file = CONFIG / "kubernetes" / "components" / "prometheus" / "rules.yaml"
    assert yaml.safe_load(file.read_text())["spec"] == yaml.safe_load(RULES.read_text())


def expressions() -> list[str]:
    """Of all panels and alerts, as Prometheus gets them."""
    dashboard = json.loads((CONFIG / "grafana" / "reclaimd.json").read_text())
    of_panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    of_alerts = [rule["expr"] for rule in rules()]
    return [e.replace("$instance", ".*").replace("$__rate_interval", "5m") for e in [*of_panels, *of_alerts]]


def test_every_expression_evaluates_against_a_scraped_daemon(small_node: SmallNode, tmp_path: Path) -> None:
    """A real Prometheus scrapes a daemon that relieved its node: no expression is refused, every metric exists."""
    program = tool("prometheus", "prometheus")
    small_node.add_images(3)
    marks = {"nodefs.inodesFree": "1%"}
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, metricsAddress="127.0.0.1:0", evictionHard=marks)
    with Daemon("--config", file) as daemon:
        address = address_of(daemon)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        with Prometheus(program, tmp_path, address) as prometheus:
            (built,) = prometheus.query("reclaimd_build_info")
            assert built["metric"]["instance"] == address

            def has_headroom() -> bool:
                small_node.fill(16 << 10)  # the time to a mark is known only while something fills
                return bool(prometheus.query("reclaimd_headroom_seconds"))

            assert came_true(has_headroom)
            for expression in expressions():
                prometheus.query(expression)
                for metric in set(re.findall(r"reclaimd_[a-z_]+", expression)):
                    assert prometheus.query(metric), f"{metric} of {expression} is not served"
            for expression in expressions()[:8]:
                if "increase" not in expression:  # needs two scrapes of a change
                    assert prometheus.query(expression), f"{expression} is empty"
            assert prometheus.query('reclaimd_passes_total{result="satisfied"} > 0')


def test_panels_do_not_overlap_and_name_what_they_show() -> None:
    """24 columns, no two panels on one place, ids differ, every panel has a title and a unit."""
    panels = json.loads((CONFIG / "grafana" / "reclaimd.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
    assert len({panel["id"] for panel in panels}) == len(panels)
