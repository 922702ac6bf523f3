"""The daemon and the commands on a machine without a container runtime: one filesystem
of its own, and a program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.runtime.private_mounts import unmount
from tests.reclaimd_process import (
    Daemon,
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.sockets.mounts import mounted_tmpfs

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 MiB."""
    directory = tmp_path / "disk"
    mounted_tmpfs(str(directory), 64 * MIB, 1000)
    yield directory
    unmount(str(directory))


@pytest.fixture
def file(tmp_path: Path, disk: Path) -> str:
    """A configuration with 16 MiB as the mark, and a program that removes the cache
    and says what it was told.
    """
    program = tmp_path / "prune"
    program.write_text(
        '#!/bin/sh\necho "missing $RECLAIMD_MISSING_BYTES of $RECLAIMD_SIGNAL"\nrm -f'
        f" {disk}/cache-*\n"
    )
    program.chmod(0o700)
    return str(
        write_configuration(
            tmp_path / "reclaimd.yaml",
            containerRuntimeEndpoint="none",
            rootDirectory=str(tmp_path / "no-kubelet"),
            controlSocket=str(tmp_path / "control.sock"),
            historyFile=str(tmp_path / "history"),
            filesystems=[{"name": "data", "path": str(disk)}],
            reclaimFunctions=[
                {"name": "prune", "exec": [str(program)], "frees": "data", "plan": False}
            ],
            reclaimTable={"data.available": ["prune"]},
            evictionHard={"data.available": "16Mi"},
            evictionMinimumReclaim={"data.available": "0"},
        )
    )


def status_of(file: str) -> dict[str, Any]:
    """What the daemon says of itself."""
    found: dict[str, Any] = answer(reclaimd_here("status", "--config", file, "-o", "json"))
    return found


def fill(disk: Path) -> None:
    """52 MiB of cache, which leaves less than 16 MiB."""
    for number in range(13):
        (disk / f"cache-{number}").write_bytes(os.urandom(4 * MIB))


def test_the_daemon_relieves_it_and_says_what_it_did(file: str, disk: Path) -> None:
    """No kubelet's directory is needed, no kubelet's event is made, and what the
    program prints is in the log.
    """
    with Daemon("--config", file) as daemon:
        daemon.wait_for(
            lambda event: event["message"].startswith(
                f"started on data ({disk}); thresholds: data.avail"
            )
        )
        fill(disk)
        daemon.wait_for(lambda event: event["message"] == "attempting to reclaim data.available")
        line = daemon.wait_for(lambda event: event["message"].startswith("prune: missing "))
        assert line["message"].endswith(" of data.available")
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert came_true(lambda: status_of(file)["passes"] != [])
        status = status_of(file)
        assert (status["conditions"], status["layout"]) == ([], None)
        assert status["functions"]["prune"]["measured"]["bytes"] > 40 * MIB
        text = reclaimd_here("status", "--config", file).stdout
        assert text.splitlines()[0].endswith("; layout none, as there is no runtime")
        assert "/pods" not in text
        assert not any(event.get("event") for event in daemon.events)
        assert daemon.stop() == 0
    history = reclaimd_here("history", "--config", file).stdout
    assert "program" in history
    assert "data.available" in history


def test_the_hook_relieves_it_without_a_daemon(file: str, disk: Path) -> None:
    """As before pods of a CI system start, from cron, say."""
    fill(disk)
    done = reclaimd("reclaim", "--config", file, "--standalone")
    assert (done.returncode, list(disk.iterdir())) == (0, [])


@pytest.mark.parametrize(
    "command", [("check", "--standalone"), ("plan",), ("doctor",), ("config",)]
)
def test_the_commands_that_only_read_do_so(file: str, command: tuple[str, ...]) -> None:
    """Nothing of a kubelet or a runtime is said, and nothing goes wrong."""
    done = reclaimd_here(*command, "--config", file)
    assert done.stderr == ""
    assert (done.returncode, "data.available" in done.stdout) == (0, True) or command == ("doctor",)
    assert "kubelet's directories" not in done.stdout


def test_what_is_asked_of_a_kubelets_signal_is_refused(file: str) -> None:
    """With the signals that there are."""
    refused = reclaimd_here(
        "reclaim", "--config", file, "--standalone", "--signal", "nodefs.available"
    )
    assert refused.returncode == 2
    assert "'nodefs.available' is none of data.available, data.inodesFree" in refused.stderr
