"""Files of the configuration on a filesystem that does not answer: every command
ends, and the daemon relieves.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from signals.types import Signal
from tests.faults.silent_file import OPEN, SilentFile
from tests.faults.silent_filesystem import Silence, SilentFilesystem
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, came_true, reclaimd

PATIENCE_SECONDS = 90.0
EXIT_SECONDS = 35.0  # as promised, after SIGTERM
SLACK_SECONDS = 20.0  # the machine is shared

PRUNE = {"name": "prune", "exec": ["{}/program"], "frees": "nodefs", "timeout": "1s"}
BALLAST = {"name": "ReleaseBallast", "file": "{}/ballast", "size": "1Mi", "frees": "nodefs"}
FUNCTIONS: Mapping[str, dict[str, Any]] = {"program": PRUNE, "ballast": BALLAST}
READ_AT_THE_START = {"kubeletConfig": "{}/kubelet.yaml", "kubeletConfigDir": "{}"}


def function(what: str, *, in_the_row: bool = True) -> dict[str, object]:
    """The fields of one function of the configuration, which is the first of its row or of none."""
    made = FUNCTIONS[what]
    table = {"nodefs.available": [made["name"], "DeleteUnusedImages"]}
    return {"reclaimFunctions": [made], **({"reclaimTable": table} if in_the_row else {})}


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """A directory on a filesystem that does not answer.

    A process that waits for it can be killed.
    """
    directory = tmp_path / "hung"
    directory.mkdir()
    with SilentFilesystem(str(directory)) as filesystem:
        filesystem.fall_silent(Silence.UNREAD)
        yield directory


def on(directory: Path, fields: Mapping[str, object]) -> dict[str, Any]:
    """The same fields, with the directory in the places of `{}`."""
    found: dict[str, Any] = json.loads(json.dumps(fields).replace("{}", str(directory)))
    return found


@pytest.mark.regression
@pytest.mark.parametrize("what", FUNCTIONS)
@pytest.mark.parametrize("in_the_row", [False, True], ids=["no-row", "row"])
def test_the_daemon_relieves_beside_a_function_whose_file_hangs(
    small_node: SmallNode, hung: Path, what: str, in_the_row: bool
) -> None:
    """It starts, says which function cannot do anything, removes images, and ends in time."""
    small_node.add_images(3)
    given = on(hung, function(what, in_the_row=in_the_row))
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB, **given)
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "cannot do anything" in event["message"])
        daemon.wait_for(lambda event: event.get("result") == "satisfied", PATIENCE_SECONDS)
        assert daemon.stop(EXIT_SECONDS + SLACK_SECONDS) == 0
    assert len(small_node.removed("image")) == 3


@pytest.mark.regression
@pytest.mark.parametrize("what", FUNCTIONS)
@pytest.mark.parametrize("command", ["doctor", "plan", "check", "config"])
def test_every_command_ends_beside_a_function_whose_file_hangs(
    small_node: SmallNode, hung: Path, what: str, command: str
) -> None:
    """Those that look at the file name it."""
    given = on(hung, function(what))
    ended = reclaimd(
        command, "--config", small_node.configuration(**given), timeout_seconds=PATIENCE_SECONDS
    )
    assert ended.returncode in (0, 1, 3), ended.stderr
    if command in ("doctor", "plan"):
        told = ended.stdout + ended.stderr
        assert f"{hung}/" in told
        assert "did not answer within 2 s" in told


@pytest.mark.regression
@pytest.mark.parametrize("field", READ_AT_THE_START)
@pytest.mark.parametrize("command", ["run", "doctor", "plan", "check", "config"])
def test_a_configuration_that_hangs_is_refused(
    small_node: SmallNode, hung: Path, tmp_path: Path, field: str, command: str
) -> None:
    """In time, with one sentence; for doctor it is the first finding."""
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    given: dict[str, Any] = {
        "kubeletConfig": str(kubelet),
        **on(hung, {field: READ_AT_THE_START[field]}),
    }
    ended = reclaimd(
        command, "--config", small_node.configuration(**given), timeout_seconds=PATIENCE_SECONDS
    )
    assert ended.returncode == (1 if command == "doctor" else 2)
    told = ended.stdout if command == "doctor" else ended.stderr
    assert "did not answer within" in told.partition("\n\n")[0]


@pytest.mark.regression
@pytest.mark.parametrize("command", ["run", "reclaim", "check", "config"])
def test_a_configuration_file_that_hangs_itself_is_refused(hung: Path, command: str) -> None:
    """Also by a command that asks the daemon first."""
    ended = reclaimd(command, "--config", f"{hung}/reclaimd.yaml", timeout_seconds=PATIENCE_SECONDS)
    assert ended.returncode == 2
    assert (
        ended.stderr
        == f"reclaimd: {hung}/reclaimd.yaml: cannot be read: it did not answer within 2 s\n"
    )


@pytest.mark.regression
@pytest.mark.parametrize("field", ["podLogsDir", "stateFile", "historyFile", "containerLogsDir"])
def test_doctor_ends_while_a_directory_hangs(small_node: SmallNode, hung: Path, field: str) -> None:
    """And says which."""
    path = f"{hung}/file" if field.endswith("File") else str(hung)
    given: dict[str, Any] = {field: path}
    configuration = small_node.configuration(**given)
    ended = reclaimd("doctor", "--config", configuration, timeout_seconds=PATIENCE_SECONDS)
    assert ended.returncode in (0, 1), ended.stderr
    if field != "containerLogsDir":
        assert "did not answer within 2 s" in ended.stdout


@pytest.mark.regression
@pytest.mark.parametrize("command", ["doctor", "plan"])
def test_a_token_that_hangs_is_a_kubelet_that_does_not_answer(
    small_node: SmallNode, hung: Path, command: str
) -> None:
    """The pods are those of its directories then."""
    endpoint = {
        "kubeletEndpoint": "https://127.0.0.1:1",
        "kubeletTokenFile": "{}/token",
        "kubeletInsecureSkipVerify": True,
    }
    configuration = small_node.configuration(**on(hung, endpoint))
    ended = reclaimd(command, "--config", configuration, timeout_seconds=PATIENCE_SECONDS)
    assert ended.returncode in (0, 1), ended.stderr
    assert "the kubelet is not asked: it did not answer within 4 s" in ended.stdout


def blocks(pid: int, number: signal.Signals) -> bool:
    """Whether the main thread of a process blocks a signal. Source: proc_pid_status(5)."""
    (mask,) = re.findall(
        r"^SigBlk:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
    )
    return bool(int(mask, 16) >> number - 1 & 1)


@pytest.mark.regression
def test_sigterm_ends_a_start_that_hangs(small_node: SmallNode, hung: Path) -> None:
    """The directory of the lock is the daemon's own, and is not looked at in time."""
    configuration = small_node.configuration(lockDirectory=f"{hung}/lock")
    process = subprocess.Popen(
        [PROGRAM, "run", "--config", configuration],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert came_true(lambda: blocks(process.pid, signal.SIGTERM))
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=EXIT_SECONDS + SLACK_SECONDS)
    assert process.returncode == 0
    assert "leaving: something hangs" in told


@pytest.mark.regression
def test_the_daemon_goes_on_and_ends_while_a_program_hangs_in_its_start(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Nobody who looks at the file is held up, only its start."""
    directory = tmp_path / "mount"
    directory.mkdir()
    with SilentFile(directory) as filesystem:
        filesystem.fall_silent(Silence.SWALLOWED)
        small_node.add_images(3)
        given = on(directory, function("program"))
        configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB, **given)
        with Daemon("--config", configuration) as daemon:
            assert came_true(lambda: filesystem.requests[OPEN] > 0)
            daemon.wait_for(lambda event: event.get("result") == "satisfied", PATIENCE_SECONDS)
            daemon.process.send_signal(signal.SIGTERM)
            daemon.wait_for(
                lambda event: event["message"] == "stopped", EXIT_SECONDS + SLACK_SECONDS
            )
            filesystem.abort()
            assert daemon.stop() == 0
