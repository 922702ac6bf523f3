"""`reclaimd reclaim --room AMOUNT --on FILESYSTEM --hold`: nobody else takes the room."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, reclaimd_here


def test_room_is_held_until_the_command_ends(small_node: SmallNode) -> None:
    """What is above the marks is taken by no file that has a name; SIGTERM gives it back, exit 0.
    What is below the marks is not held, so that nothing is under pressure by it."""
    small_node.add_images(6)
    file = small_node.configuration(
        evictionHard={"nodefs.available": "2Mi"},
        evictionMinimumReclaim={"nodefs.available": "0"},
        margin="0",
    )
    wanted = small_node.available() + 6 * MIB
    words = ("--room", f"{wanted}e0", "--on", "nodefs", "--now", "--hold", "--for", "1h")
    command = [PROGRAM, "reclaim", "--config", file, *words]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "held" in line)
        assert f"held by process {process.pid} until it ends, for 1h at most" in said
        assert 2 * MIB <= small_node.available() <= 2 * MIB + 4 * MIB
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert small_node.available() >= wanted


def test_it_is_given_back_after_its_time(small_node: SmallNode) -> None:
    """Which ends the command."""
    file = small_node.configuration()
    before, began = small_node.available(), time.monotonic()
    process = reclaimd_here(
        *("reclaim", "--config", file, "--room", "1Mi", "--on", "nodefs", "--hold", "--for", "1s")
    )
    assert process.returncode == 0
    assert time.monotonic() - began >= 1
    assert small_node.available() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--hold",), "--hold goes with --room, and not with --dry-run"),
        (
            ("--room", "1Mi", "--on", "nodefs", "--hold", "--dry-run"),
            "--hold goes with --room, and not with --dry-run",
        ),
        (("--for", "1m"), "--for goes with --hold"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], why: str) -> None:
    """Before anything is looked at."""
    process = reclaimd_here("reclaim", *words)
    assert (process.returncode, process.stderr) == (2, f"reclaimd: {why}\n")
