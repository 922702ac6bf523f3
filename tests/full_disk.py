"""Fills a filesystem to the last byte or inode, and measures how soon the program frees one.

Covers: filling to the last byte or inode; a start of `reclaimd reclaim`, and a daemon that
is continued, in turns, with working directory, HOME and TMPDIR on that filesystem; an observer that
reads it every millisecond.

Does not cover: what is on the node, and whether the right objects were
removed; the caller checks that.
"""

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.background import Background
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon
from tests.stopped import wait_until_stopped

SIZES = (1 << 20, 1 << 16, 4096, 1)
WRITTEN_BYTES = 1 << 26  # of the last ones at the most; those before are allocated
ROOM_NAME = "room"
# bytes: xfs shows them as available and allocates them to no process; inodes are 0
NEXT_TO_NOTHING = 64 << 10
LONGEST_SECONDS = 60.0
WIDE_SECONDS = 30.0  # the machine is shared; the soak prints the times


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

    Bytes are allocated, and written until ENOSPC, and again after a sync until nothing more fits;
    with `leave_reserve` until nothing is available except to root.
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
    # btrfs, which counts no inodes, keeps no checksums of what is only allocated
    while os.statvfs(room).f_files and available(room, inodes=False) > WRITTEN_BYTES:
        with (room / "allocated").open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), WRITTEN_BYTES // 2)
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


def relieved(
    disk: Path, configuration: str, number: int, *, inodes: bool, leave_reserve: bool = False
) -> float:
    """Fills the disk and relieves it: by a cold start of `reclaimd reclaim` if `number` is even, by
    a running daemon if it is odd. Seconds from the start of the process, or from SIGCONT, to the
    first freed byte or inode."""
    if number % 2:
        seconds = _daemon_woken(disk, configuration, inodes=inodes, leave_reserve=leave_reserve)
    else:
        with full(disk, inodes=inodes, leave_reserve=leave_reserve):
            seconds = _hook(disk, configuration, inodes=inodes)
    assert seconds < WIDE_SECONDS
    return seconds


def tell(name: str, times: Sequence[float]) -> None:
    """Prints how long so many turns took."""
    for who, of in (("cold start", sorted(times[::2])), ("running daemon", sorted(times[1::2]))):
        middle, worst = of[len(of) // 2], of[-1]
        print(f"{name}: {who} to first byte: median {middle:.3f} s, worst {worst:.3f} s")


def _hook(disk: Path, configuration: str, *, inodes: bool) -> float:
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
    said = f"exit {process.returncode}: {process.stderr} {process.stdout}"
    assert process.returncode == 0, said
    assert observer.freed_at is not None, f"nothing was freed; {said}"
    return observer.freed_at - began


def _daemon_woken(disk: Path, configuration: str, *, inodes: bool, leave_reserve: bool) -> float:
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
        assert daemon.stop() == 0
        log = "\n".join(event["message"] for event in daemon.events)
    assert observer.freed_at is not None, log
    return observer.freed_at - began
