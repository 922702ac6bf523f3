"""`reclaimd check` is answered by a running daemon; if the daemon cannot, by the command itself.

The daemon on a small node holds off for an hour, so that a threshold that is met stays met.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from signals.types import Signal
from tests.budgets.test_start import REMOVING
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, Daemon, answer, came_true, reclaimd, reclaimd_here
from tests.sockets.surface.test_reclaim_by_daemon import conversation, located, observed
from tests.stopped import stopped

MOST_MEBIBYTES = 32  # of a check that asks; 11 on Python 3.11
MOST_MEBIBYTES_ALONE = 45  # of a standalone check; 39 on Python 3.11
CHANGING = ("time", "available")


@pytest.fixture
def file(small_node: SmallNode, tmp_path: Path) -> str:
    """The configuration of a node that is clear by 8 MiB, with a control socket."""
    small_node.add_images(4)
    return small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=-8 * MIB,
        controlSocket=f"{tmp_path}/run/control.sock",
        holdOffAfterStart="1h",
    )


@pytest.fixture
def daemon(file: str) -> Iterator[Daemon]:
    """A daemon on the node that knows where the images are."""
    with Daemon("--config", file) as running:
        assert came_true(lambda: located(file))
        yield running


def imports(file: str, *arguments: str) -> tuple[set[str], float]:
    """The modules that a check has loaded at its end, and the MiB that it needed at its peak."""
    program = (
        "import sys\nfrom eviction.cli.main import main\nassert main(sys.argv[1:]) == 0\npeak ="
        " [line.split()[1] for line in open('/proc/self/status') if"
        " line.startswith('VmHWM')]\nprint(*peak, *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "check", "--config", file, *arguments]
    process = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    peak, *modules = process.stderr.split()
    return set(modules), int(peak) / 1024


def test_the_daemon_gives_the_answer_of_the_command_itself(file: str, daemon: Daemon) -> None:
    """The same document, table and line, but for amounts and times."""
    documents = [
        answer(reclaimd_here("check", "--config", file, "-o", "json", *alone))
        for alone in ([], ["--standalone"])
    ]
    for document in documents:
        for observation in document["observations"]:
            assert all(observation.pop(name) is not None for name in CHANGING)
    assert documents[0] == documents[1]
    tables = [
        reclaimd_here("check", "--config", file, *alone).stdout.splitlines()
        for alone in ([], ["--standalone"])
    ]
    assert [line.split()[0] for line in tables[0]] == [line.split()[0] for line in tables[1]]
    process = reclaimd("check", "--config", file, "--npd")
    assert (process.returncode, process.stdout, process.stderr) == (0, "no disk pressure\n", "")


def test_a_check_by_the_daemon_imports_little_and_needs_little_memory(
    file: str, daemon: Daemon
) -> None:
    """At most 32 MiB at its peak: a node-problem-detector asks every few seconds."""
    loaded, peak = imports(file)
    assert not {"google", "pydantic", "argparse", "dataclasses", "eviction.engine.view"} & loaded
    assert peak <= MOST_MEBIBYTES
    loaded, _ = imports(file, "--standalone")
    assert {
        "google",
        "pydantic",
        "argparse",
        "eviction.engine.view",
    } <= loaded, "so the ones above were really missing"


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_check_without_a_daemon_needs_little_memory_too(file: str, output: str) -> None:
    """At most 45 MiB at its peak, without the modules that remove."""
    loaded, peak = imports(file, "--standalone", "-o", output)
    assert not REMOVING & loaded
    assert peak <= MOST_MEBIBYTES_ALONE


def test_the_readings_are_new_and_a_met_threshold_is_exit_1(
    small_node: SmallNode, file: str, daemon: Daemon
) -> None:
    """What was written a moment ago is counted, by the daemon as by the command itself."""
    small_node.fill(9 * MIB)
    for alone in ((), ("--standalone",)):
        process = reclaimd_here("check", "--config", file, "--npd", *alone)
        assert process.returncode == 1
        assert process.stdout.startswith("pressure: nodefs.available ")


def test_a_daemon_that_does_not_answer_is_waited_for_1_s(file: str, daemon: Daemon) -> None:
    """The daemon is stopped (SIGSTOP): the command says so and answers itself."""
    with stopped(daemon.process.pid):
        process = reclaimd_here("check", "--config", file, "--npd")
    assert process.stderr == "reclaimd: the daemon does not answer; doing the work here\n"
    assert (process.returncode, process.stdout) == (0, "no disk pressure\n")


def test_a_request_that_the_daemon_may_not_answer_is_refused(
    small_node: SmallNode, file: str, daemon: Daemon
) -> None:
    """Another configuration, invalid options, no options: a sentence each, and
    the command answers itself.
    """
    control = Path(json.loads(Path(file).read_text())["controlSocket"])
    for request, sentence in (
        ({"options": {}, "told": {"files": [["/elsewhere", 0, 0]]}}, "another configuration"),
        ({"options": {"output": "xml"}, "told": {}}, "neither table nor json"),
        ({"options": {"all": True}, "told": {}}, "not an option of check"),
        ({"told": {}}, "contains the options"),
    ):
        with conversation(control, {"command": "check", **request}) as lines:
            assert sentence in json.loads(lines.readline())["refused"]
    other = small_node.configuration(
        Signal.NODEFS_AVAILABLE, above=-8 * MIB, controlSocket=str(control)
    )
    process = reclaimd_here("check", "--config", other, "--npd")
    assert "it runs with another configuration" in process.stderr
    assert (process.returncode, process.stdout) == (0, "no disk pressure\n")


def test_a_daemon_that_has_never_reached_the_runtime_leaves_it_to_the_command(
    small_node: SmallNode, file: str
) -> None:
    """The answer is the same while the runtime is away; once it is back the
    command finds the images itself.
    """
    small_node.server.stop()
    with Daemon("--config", file):
        assert came_true(lambda: observed(file))
        asked, alone = (
            reclaimd_here("check", "--config", file),
            reclaimd_here("check", "--config", file, "--standalone"),
        )
        assert asked.returncode == alone.returncode
        assert "layout: not known yet" in asked.stdout
        assert asked.stderr.startswith(
            "reclaimd: the daemon refuses: it does not know where the images are: "
        )
        small_node.server.start()
        assert "layout: single" in reclaimd_here("check", "--config", file).stdout
