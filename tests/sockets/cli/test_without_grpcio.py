"""A node without the extra `drill`: no grpcio is there, and everything but a drill
on an embedded node works.

A process in which every import of grpc is refused; the runtime that it speaks to is
the embedded one, out here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from signals.types import Signal
from tests.drill.documents import document
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, Daemon, answer, reclaimd
from tests.repository import ROOT

MISSING = "the embedded runtime needs grpcio, which is not installed: pip install 'reclaimd[drill]'"
REFUSING = """
import sys

sys.modules["grpc"] = None
"""


COMMANDS = """
import json
import sys

from tests.reclaimd_process import reclaimd_here

done = [reclaimd_here(*arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[each.args, each.returncode, each.stdout, each.stderr] for each in done]))
assert not [name for name, module in sys.modules.items() if module and name.partition(".")[0] == "grpc"]
"""


def commands(without: str, *lines: Sequence[str]) -> list[subprocess.CompletedProcess[str]]:
    """Runs several commands in one process without grpc."""
    process = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(lines)],
        env={**ENVIRONMENT, "PYTHONPATH": f"{without}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [subprocess.CompletedProcess(*each) for each in json.loads(process.stdout)]


@pytest.fixture
def without(tmp_path: Path) -> str:
    """The PYTHONPATH of a process in which there is no grpc:

    Python imports sitecustomize as it starts.
    """
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(REFUSING)
    path = str(tmp_path / "site")
    command = [sys.executable, "-c", "import grpc"]
    process = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert "ModuleNotFoundError: import of grpc halted" in process.stderr, "it is really refused"
    return path


def test_a_node_is_looked_at_planned_and_relieved(small_node: SmallNode, without: str) -> None:
    """`check`, `plan` and `reclaim`, one after the other."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 2 * MIB)
    check, plan, reclaim = commands(
        without,
        ("check", "--config", file),
        ("plan", "--config", file, "-o", "json"),
        ("reclaim", "--config", file, "--now"),
    )
    assert check.returncode == 1, check.stderr
    assert plan.returncode == 0, plan.stderr
    assert answer(plan)
    assert reclaim.returncode == 0, reclaim.stderr
    assert small_node.removed("image")


def test_the_daemon_relieves_a_node(small_node: SmallNode, without: str) -> None:
    """`run`, with metrics."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, 2 * MIB, metricsAddress="127.0.0.1:0")
    with Daemon("--config", file, PYTHONPATH=without) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied", 20.0)
    assert small_node.removed("image")


def test_a_drill_on_the_embedded_node_says_what_is_missing(without: str, tmp_path: Path) -> None:
    """One sentence, exit 2, before anything is made."""
    report = ("--report", str(tmp_path / "report"))
    process = reclaimd("drill", *report, PYTHONPATH=without)
    others = commands(
        without, ("drill", "--all", *report), ("drill", "pressured-node", "-o", "json", *report)
    )
    for each in (process, *others):
        assert (each.returncode, each.stdout) == (2, "")
        assert each.stderr == f"reclaimd: {MISSING}\n"
    assert not (tmp_path / "report").exists()


def test_what_needs_no_embedded_node_goes_on(
    small_node: SmallNode, without: str, tmp_path: Path
) -> None:
    """The list, the check of a file, and the measurement of a node that is there."""
    scenario = tmp_path / "small.yaml"
    scenario.write_text(str(document(name="small")))
    file = small_node.configuration()
    observe = (
        "--observe",
        "--for",
        "200ms",
        "--config",
        file,
        "--report",
        str(tmp_path / "report"),
    )
    for done in commands(
        without, ("drill", "--list"), ("drill", "--check", str(scenario)), ("drill", *observe)
    ):
        assert done.returncode == 0, done.stderr
