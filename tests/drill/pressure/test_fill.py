"""The fill of a directory: written as asked, kept, and freed as soon as the
drill lets go of it or ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eviction.drill.pressure.fill_program import Order
from eviction.drill.pressure.schedule import Fill
from eviction.drill.runtime.private_mounts import unmount
from eviction.drill.scenario import Grows
from tests.drill.documents import MIB
from tests.reclaimd_process import came_true
from tests.sockets.mounts import mounted_tmpfs


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 32 MiB and 1 000 inodes."""
    made = tmp_path / "disk"
    mounted_tmpfs(str(made), 32 * MIB, 1000)
    yield made
    unmount(str(made))


def left(disk: Path) -> tuple[int, int]:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize, found.f_ffree


def filled(*arguments: object) -> Fill:
    """Fills, and waits until it is done."""
    made = Fill(Order(*arguments))  # type: ignore[arg-type] # positional, as an order has them
    assert came_true(lambda: not made.goes_on())
    return made


@pytest.mark.parametrize("rate", [0, 100 * MIB])
def test_bytes_are_taken_without_a_name_and_given_back(disk: Path, rate: int) -> None:
    """Reserved at once, or written:

    5 MiB are missing and no file is visible; then they are free again.
    """
    before = left(disk)
    made = filled(str(disk), "bytes", rate, 5 * MIB, 0)
    assert made.stop() == 5 * MIB
    assert before[0] - left(disk)[0] == 5 * MIB
    assert os.listdir(disk) == []
    made.free()
    made.free()
    assert left(disk) == before
    assert made.problem == ""


def test_files_are_made_and_given_back(disk: Path) -> None:
    """400 files of a page each in one directory, and then none and no directory."""
    before = left(disk)
    made = filled(str(disk), "inodes", 0, 400, 0, 4096)
    assert made.stop() == 400
    assert before[1] - left(disk)[1] == 401
    assert before[0] - left(disk)[0] == 400 * 4096
    made.free()
    assert left(disk) == before


@pytest.mark.parametrize(("grows", "reserve"), [("bytes", 20 * MIB), ("inodes", 700)])
def test_the_reserve_is_never_filled(disk: Path, grows: Grows, reserve: int) -> None:
    """However large the amount is, the reserve is left."""
    made = filled(str(disk), grows, 0, sys.maxsize, reserve)
    assert left(disk)[grows == "inodes"] == reserve
    made.free()


def test_what_grows_is_stopped_in_the_middle_and_held(disk: Path) -> None:
    """SIGTERM ends the writing although it is blocked in the parent, as it is
    in a drill on a real node.
    """
    before = left(disk)
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        made = Fill(Order(str(disk), "bytes", 2 * MIB, 30 * MIB))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
    assert came_true(lambda: left(disk)[0] < before[0])
    written = made.stop()
    assert 0 < written < 30 * MIB
    assert before[0] - left(disk)[0] == written
    made.free()


def test_a_killed_fill_process_is_a_problem(disk: Path) -> None:
    """Its space is free again, and `problem` says why."""
    before = left(disk)
    made = filled(str(disk), "bytes", 0, 5 * MIB, 0)
    os.kill(made._process.pid, signal.SIGKILL)
    assert came_true(lambda: made.problem != "")
    assert "killed" in made.problem
    assert left(disk) == before
    made.free()


def test_a_directory_that_cannot_be_filled_is_a_problem(tmp_path: Path) -> None:
    """The message is that of the operating system, and nothing was written."""
    made = Fill(Order(str(tmp_path / "absent"), "bytes", 0, MIB))
    assert not made.goes_on()
    assert "No such file or directory" in made.problem
    assert made.stop() == 0
    made.free()
