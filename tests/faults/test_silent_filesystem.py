"""A filesystem stops answering: the daemon goes on, serves the other one, and ends on SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eviction.surface.control_client import NotAskedError, ask
from signals.types import FsLayout
from tests.faults.meters import Meters, Report, control_heartbeat
from tests.faults.silent_filesystem import Silence, SilentFilesystem
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.conftest import SmallNodeFactory

pytestmark = pytest.mark.house("tests/faults/silent_filesystem.py")

PROBE_LIMIT_SECONDS = 2.0  # how long one observation waits for a filesystem, once
SLACK_SECONDS = 20.0  # the machine is shared
EXIT_SECONDS = 2.0
SILENCES = list(Silence)


def daemon_of(small: SmallNode, tmp_path: Path) -> tuple[Daemon, str]:
    """A daemon with two filesystems, and its control socket."""
    control = str(tmp_path / "control.sock")
    configuration = small.configuration(
        evictionHard={"nodefs.available": "20Mi", "imagefs.available": "1Mi"},
        pollCeiling="200ms",
        controlSocket=control,
    )
    return Daemon("--config", configuration), control


@contextmanager
def daemon_beside(
    small: SmallNode, tmp_path: Path
) -> Iterator[tuple[Daemon, SilentFilesystem, str]]:
    """A daemon that has read an image filesystem which can stop answering; it is
    aborted before the daemon ends.
    """
    daemon, control = daemon_of(small, tmp_path)
    with SilentFilesystem(str(small.images_root)) as filesystem, daemon:
        try:
            assert came_true(lambda: sees_imagefs(control))
            yield daemon, filesystem, control
        finally:
            filesystem.abort()


def sees_imagefs(control: str) -> bool:
    """Whether the daemon has a fresh reading of the image filesystem."""
    try:
        observed = {each["signal"]: each for each in ask(control, "status")["observations"]}
    except NotAskedError:  # the socket is created after the first line of the log
        return False
    return "imagefs.available" in observed and not observed["imagefs.available"]["stale"]


@pytest.mark.parametrize("silence", SILENCES, ids=lambda each: each.value)
def test_the_fixture_blocks_every_caller_and_releases_all_on_abort(
    tmp_path: Path, silence: Silence
) -> None:
    """It answers until `fall_silent`. A killed caller then ends at once if its request was not
    read, and only when the filesystem is aborted if it was; after that nothing is mounted."""
    mountpoint = tmp_path / "silent"
    mountpoint.mkdir()
    with SilentFilesystem(str(mountpoint), 64 * MIB) as filesystem:
        assert os.statvfs(mountpoint).f_blocks * 4096 == 64 * MIB
        filesystem.fall_silent(silence)
        caller = subprocess.Popen(
            [sys.executable, "-c", f"import os; os.statvfs({str(mountpoint)!r})"]
        )
        with pytest.raises(subprocess.TimeoutExpired):
            caller.wait(0.5)
        caller.kill()
        if silence is Silence.UNREAD:
            assert caller.wait(60) == -signal.SIGKILL
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                caller.wait(0.5)
        filesystem.abort()
        assert caller.wait(60) == -signal.SIGKILL
    assert not os.path.ismount(mountpoint)


def silence_and_fill(
    small: SmallNode, daemon: Daemon, control: str, fall_silent: Callable[[], None]
) -> Report:
    """One filesystem stops answering, the other one fills, and the daemon logs both;
    returns the meters' report.
    """
    with Meters(daemon.process.pid, control_heartbeat(control)) as meters:
        fall_silent()
        daemon.wait_for(lambda event: "did not answer statvfs" in event["message"])
        small.fill(small.available() - 10 * MIB)
        daemon.wait_for(lambda event: "ReclaimPressure: nodefs.available" in event["message"])
        time.sleep(0.5)
    assert not sees_imagefs(control), "a reading that fails is stale"
    return meters.report


def assert_not_blocked(report: Report) -> None:
    """The loop was blocked for at most the limit of one probe, and neither threads
    nor descriptors accumulated.
    """
    assert report.longest_stall_seconds is not None
    assert report.longest_stall_seconds <= PROBE_LIMIT_SECONDS + SLACK_SECONDS, str(report)
    # a worker that asks the runtime, a client of the control socket
    assert report.threads_more <= 2, str(report)
    assert report.descriptors_more <= 2, str(report)


def test_a_daemon_goes_on_beside_a_silent_filesystem_and_exits_within_2_s(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """No threads accumulate, pressure on the other filesystem is found, and SIGTERM
    ends the daemon within 2 s.
    """
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    with daemon_beside(small, tmp_path) as (daemon, filesystem, control):
        assert_not_blocked(
            silence_and_fill(small, daemon, control, lambda: filesystem.fall_silent(Silence.UNREAD))
        )
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began <= EXIT_SECONDS + SLACK_SECONDS


def test_a_daemon_frees_its_node_within_2_s_even_if_the_kernel_keeps_its_process(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """The kernel keeps a process whose request was read and never answered, even after SIGKILL.

    The daemon goes on beside it, and still stops within 2 s of SIGTERM: it logs "stopped", another
    instance can start on the node, and its process exits with 0 once the filesystem is aborted.
    """
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    with daemon_beside(small, tmp_path) as (daemon, filesystem, control):
        assert_not_blocked(
            silence_and_fill(
                small, daemon, control, lambda: filesystem.fall_silent(Silence.SWALLOWED)
            )
        )
        assert filesystem.statfs_requests > 0
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_for(lambda event: event["message"] == "stopped", EXIT_SECONDS + SLACK_SECONDS)
        assert daemon.process.poll() is None, (
            "the kernel waits for an answer to the thread that asked"
        )
        successor, _ = daemon_of(small, tmp_path)
        with successor:  # entering fails unless it logs its start
            filesystem.abort()
            assert daemon.stop() == 0
            assert successor.stop() == 0
