"""Where a doubt about the kubelet's directories is told: plan, status, doctor, log and
metrics, in one sentence.
"""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

import pytest

from reclaim.evidence.states import Why
from tests.nodes.small_node import AN_HOUR, SmallNode
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here

MARKS = {"nodefs.available": "1Ki", "imagefs.available": "1Ki"}
SENTENCE = (
    "the pod default/web runs without a directory in {pods}, so which pods are gone is not known"
)


class Doubtful:
    """A small node on which a pod runs, and its directory is not there."""

    def __init__(self, node: SmallNode):
        self.node = node
        self.dead = node.gone_pod("gone")
        node.run(node.run_pod("web"))
        self.pods = node.root_directory / "pods"
        self.sentence = SENTENCE.format(pods=self.pods)

    def lose(self) -> None:
        """The directory goes."""
        self.node.forget("uid-web")

    def file(self, **fields: str) -> str:
        """A configuration."""
        return self.node.configuration(None, 0, evictionHard=MARKS, **fields)


@pytest.fixture
def doubtful(small_node: SmallNode) -> Doubtful:
    """The node, with the directory still there."""
    return Doubtful(small_node)


@pytest.mark.regression
def test_the_plan_says_why_nothing_is_gone(doubtful: Doubtful) -> None:
    """In its last line, in JSON, and as the reason of each object.

    Without a doubt there is no such line.
    """
    file = doubtful.file()
    assert answer(reclaimd_here("plan", "--config", file, "-o", "json"))["pods"]["directories"] == {
        "believed": True,
        "why": None,
        "sentence": None,
    }
    doubtful.lose()
    document = answer(reclaimd_here("plan", "--config", file, "-o", "json"))
    assert document["pods"]["directories"] == {
        "believed": False,
        "why": "runs_without",
        "sentence": doubtful.sentence,
    }
    (kept,) = [each for each in document["kept"] if each["id"] == doubtful.dead]
    assert kept["reason"] == "pod_unknown"
    process = reclaimd_here("plan", "--config", file)
    assert process.stdout.splitlines()[-1] == f"pods: {doubtful.sentence}"
    assert process.returncode == 0


@pytest.mark.regression
def test_doctor_finds_directories_that_are_not_the_kubelets(doubtful: Doubtful) -> None:
    """A problem, with exit 1; so is a directory that cannot be read."""
    file = doubtful.file()
    assert findings(file) == {}
    doubtful.lose()
    assert findings(file) == {"pod-directories": doubtful.sentence}
    doubtful.pods.rename(doubtful.pods.with_name("away"))
    told = findings(file)["pod-directories"]
    assert told.startswith(f"{doubtful.pods} cannot be read (")


@pytest.mark.regression
def test_doctor_finds_a_directory_of_logs_that_is_a_symlink(doubtful: Doubtful) -> None:
    """It is not followed."""
    logs = doubtful.node.pod_logs_dir
    logs.rename(logs.with_name("elsewhere"))
    logs.symlink_to(logs.with_name("elsewhere"))
    assert findings(doubtful.file()) == {"log-symlink": f"podLogsDir: {logs}"}


def findings(file: str) -> dict[str, str]:
    """The evidence of each finding that is no note, by check."""
    found = answer(reclaimd_here("doctor", "--config", file, "-o", "json"))["findings"]
    return {each["check"]: each["evidence"] for each in found if each["level"] != "note"}


@pytest.mark.regression
def test_a_daemon_tells_it_everywhere_and_takes_it_back(doubtful: Doubtful, tmp_path: Path) -> None:
    """Status, doctor, log and metrics after a pass on request; all is well again after another."""
    control = str(tmp_path / "control" / "socket")
    file = doubtful.file(controlSocket=control, metricsAddress="127.0.0.1:0")

    def status() -> dict[str, Any]:
        found: dict[str, Any] = answer(reclaimd_here("status", "--config", file, "-o", "json"))
        return found

    with Daemon("--config", file) as daemon:
        address = daemon.wait_for(lambda event: "address" in event)["address"]
        assert came_true(lambda: believed(file)), "the first comparison needs no pass"
        assert doubts(address) == set()
        doubtful.lose()
        reclaimd_here("reclaim", "--config", file, "--signal", "nodefs.available", "--dry-run")
        assert status()["pod_directories"]["sentence"] == doubtful.sentence
        assert (
            f"pods: {doubtful.sentence}"
            in reclaimd_here("status", "--config", file).stdout.splitlines()
        )
        assert findings(file) == {"pod-directories": doubtful.sentence}
        assert doubts(address) == {"runs_without"}
        reclaimd_here("reclaim", "--config", file, "--signal", "nodefs.available", "--all", "--now")
        assert (
            daemon.wait_for(lambda event: event["message"] == doubtful.sentence)["why"]
            == "runs_without"
        )
        assert doubtful.dead in doubtful.node.containers()
        doubtful.node.admit("uid-web")
        reclaimd_here("reclaim", "--config", file, "--signal", "nodefs.available", "--all", "--now")
        assert daemon.wait_for(lambda event: "are trusted again" in event["message"])
        assert believed(file)
        assert doubts(address) == set()
        assert doubtful.dead not in doubtful.node.containers()


def test_doctor_asks_the_daemon_whether_the_directories_were_others_before(
    doubtful: Doubtful, tmp_path: Path
) -> None:
    """A command by itself has seen no others."""
    file = doubtful.file(controlSocket=str(tmp_path / "control" / "socket"))
    for each in doubtful.node.containers():
        doubtful.node.runtime.age(each, AN_HOUR)
    with Daemon("--config", file):
        assert came_true(lambda: believed(file))
        doubtful.node.runtime.reboot()
        doubtful.pods.rename(doubtful.pods.with_name("old"))
        doubtful.pods.mkdir()
        for directory in doubtful.pods.with_name("old").iterdir():
            doubtful.node.admit(directory.name)
        reclaimd_here("reclaim", "--config", file, "--signal", "nodefs.available", "--all", "--now")
        assert "is another directory than before" in findings(file)["pod-directories"]
    assert findings(file) == {}


def believed(file: str) -> bool:
    """Whether a daemon answers, and believes the directories."""
    process = reclaimd_here("status", "--config", file, "-o", "json")
    return process.returncode == 0 and bool(answer(process)["pod_directories"]["believed"])


def doubts(address: str) -> set[str]:
    """The words of the gauge that are 1."""
    connection = http.client.HTTPConnection(address, timeout=30.0)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    rows = [
        line for line in text.splitlines() if line.startswith("reclaimd_pod_directories_doubted{")
    ]
    assert len(rows) == len(Why)
    return {row.partition('why="')[2].partition('"')[0] for row in rows if row.endswith(" 1.0")}
