"""Fills a filesystem to the last byte or inode, and measures how soon the program frees one.

Covers: filling to the last byte or inode; a start of `reclaimd reclaim`, and a daemon that
is continued, with working directory, HOME and TMPDIR on that filesystem; an observer that
reads it every millisecond.

Does not cover: what is on the node, and whether the right objects were
removed; the caller checks that.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.background import Background
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon
from tests.stopped import wait_until_stopped

SIZES = (1 << 20, 1 << 16, 4096, 1)
ROOM_NAME = "room"
# bytes: xfs shows them as available and allocates them to no process; inodes are 0
NEXT_TO_NOTHING = 64 << 10
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Relief:
    """`first_freed_seconds`: from the start of the process, or from SIGCONT, to the
    first freed byte or inode.
    """

    first_freed_seconds: float
    code: int
    output: str


def environment_on(disk: Path) -> dict[str, str]:
    """An environment that points at the full filesystem, and does not forbid
    Python to write bytecode.
    """
    kept = {key: value for key, value in ENVIRONMENT.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "HOME": str(disk), "TMPDIR": str(disk)}


def available(disk: Path, *, inodes: bool, reserve: bool = False) -> int:
    """The value of the signal, bytes available or inodes free; with root's reserve of bytes."""
    found = os.statvfs(disk)
    blocks = found.f_bfree if reserve else found.f_bavail
    return found.f_ffree if inodes else blocks * found.f_frsize


@contextmanager
def full(disk: Path, *, inodes: bool, leave_reserve: bool = False) -> Iterator[None]:
    """Fills the filesystem until the block ends, and checks that one more block or file is refused.

    Bytes are written until ENOSPC, and again after a sync until nothing more fits; with
    `leave_reserve` until nothing is available except to root.
    """
    room = disk / ROOM_NAME
    room.mkdir()
    try:
        if inodes:
            _take_inodes(room)
        else:
            _take_bytes(room, leave_reserve=leave_reserve)
        assert available(disk, inodes=inodes) < NEXT_TO_NOTHING
        assert leave_reserve or not _fits(room / "one more", b"" if inodes else bytes(4096))
        yield
    finally:
        shutil.rmtree(room, ignore_errors=True)  # the test may have removed it


@contextmanager
def without_bytes_and_inodes(disk: Path) -> Iterator[None]:
    """Neither is free until the block ends."""
    with full(disk, inodes=False):
        _take_inodes(disk / ROOM_NAME)
        found = os.statvfs(disk)
        assert (found.f_bavail, found.f_favail) == (0, 0)
        yield


def _fits(path: Path, data: bytes) -> bool:
    """Appends it to a file, which is made; whether all of it has found room."""
    try:
        with path.open("ab", buffering=0) as file:
            return not data or file.write(data) == len(data)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def _take_inodes(room: Path) -> None:
    number = 0
    while _fits(room / str(number), b""):
        number += 1


def _take_bytes(room: Path, *, leave_reserve: bool) -> None:
    block = os.urandom(SIZES[0])
    for turn in range(10):
        before = available(room, inodes=False, reserve=True)
        for size in SIZES:
            while not leave_reserve or available(room, inodes=False) >= size:
                if not _fits(room / f"bytes-{turn}", block[:size]):
                    break
        subprocess.run(["sync", "-f", str(room)], check=False)  # of this filesystem only
        if turn and available(room, inodes=False, reserve=True) == before:
            return


class Observer(Background):
    """Reads a filesystem every millisecond until it has more free than its lowest reading."""

    def __init__(self, disk: Path, *, inodes: bool) -> None:
        super().__init__("observer")
        self.freed_at: float | None = None
        self._disk, self._inodes = disk, inodes
        self._least = available(disk, inodes=inodes, reserve=True)

    def wait(self, seconds: float) -> bool:
        """True if something was freed in time."""
        self._thread.join(seconds)
        return self.freed_at is not None

    def _run(self) -> None:
        while self.freed_at is None and not self._over.wait(0.001):
            now = available(self._disk, inodes=self._inodes, reserve=True)
            # a log that is truncated is no relief
            if now > self._least + (0 if self._inodes else 64 << 10):
                self.freed_at = time.monotonic()
            self._least = min(self._least, now)


def hook(disk: Path, configuration: str, *, inodes: bool) -> Relief:
    """A cold start of `reclaimd reclaim` on the full disk."""
    with Observer(disk, inodes=inodes) as observer:
        began = time.monotonic()
        process = subprocess.run(
            [PROGRAM, "reclaim", "--config", configuration, "-o", "json"],
            cwd=disk,
            env=environment_on(disk),
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
        observer.wait(0.1)
    assert observer.freed_at is not None, (
        f"nothing was freed; exit {process.returncode}: {process.stderr} {process.stdout}"
    )
    return Relief(observer.freed_at - began, process.returncode, process.stdout + process.stderr)


def daemon_woken(
    disk: Path, configuration: str, *, inodes: bool, leave_reserve: bool = False
) -> Relief:
    """A daemon that is stopped by SIGSTOP while the disk is filled, and
    continued when it is full.
    """
    with Daemon("--config", configuration, cwd=disk, environment=environment_on(disk)) as daemon:
        time.sleep(0.5)  # it has asked the runtime where its images are
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            wait_until_stopped(daemon.process.pid)
            with full(disk, inodes=inodes, leave_reserve=leave_reserve):
                with Observer(disk, inodes=inodes) as observer:
                    began = time.monotonic()
                    daemon.process.send_signal(signal.SIGCONT)
                    observer.wait(LONGEST_SECONDS)
                daemon.wait_for(lambda event: event.get("result") == "satisfied")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        code = daemon.stop()
        log = "\n".join(event["message"] for event in daemon.events)
    assert observer.freed_at is not None, log
    return Relief(observer.freed_at - began, code, log)
