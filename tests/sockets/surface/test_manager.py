"""The daemon: a runtime that stops, hangs and comes back, pressure that nothing
relieves, its beginning and end.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from signals.types import FsLayout, Signal
from tests.nodes.faults import Delay, Fail, Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true, reclaimd
from tests.sockets.conftest import SmallNodeFactory

BACK_SECONDS = 20.0  # ten times the 2 s that it takes at most where nothing else runs


def crowd(small: SmallNode) -> list[str]:
    """Three old images of 4 MiB and a running pod."""
    images = small.add_images(3)
    small.run(small.run_pod("web"))
    return images


def relieved(small: SmallNode, daemon: Daemon) -> None:
    """Waits for a pass that cleared the threshold."""
    daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert small.removed("image")


def test_pressure_that_nothing_relieves_does_not_spin_and_is_logged_once(
    small_node: SmallNode,
) -> None:
    """A pass that freed nothing makes the next one wait longer: in 3 s a few
    passes, not hundreds.
    """
    small_node.run(small_node.run_pod("web"))
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "not_enough")
        before = small_node.failpoints.calls["ListImages"]
        time.sleep(3.0)
        assert small_node.failpoints.calls["ListImages"] - before <= 10
        assert sum(event["message"].startswith("ReclaimPressure") for event in daemon.events) == 1
        assert len(daemon.passes) == 1, "the same result is not logged again"
        assert daemon.stop() == 0
    assert small_node.removed() == []


def test_pressure_whose_row_is_empty_asks_the_runtime_for_nothing(
    make_small_node: SmallNodeFactory,
) -> None:
    """The kubelet's own filesystem has an empty row: no lists are requested, and
    the state is logged once.
    """
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    crowd(small)
    configuration = small.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "ReclaimPressure: nodefs.available" in event["message"])
        time.sleep(0.5)
        before = small.failpoints.calls.total()
        time.sleep(1.5)
        assert small.failpoints.calls.total() - before <= 3
        assert sum(event["message"].startswith("ReclaimPressure") for event in daemon.events) == 1
    assert small.removed() == []


def test_a_row_whose_removals_all_fail_does_not_spin(small_node: SmallNode) -> None:
    """A runtime that refuses every removal is not asked hundreds of times a second."""
    crowd(small_node)
    small_node.failpoints["RemoveImage"] = Fail(grpc.StatusCode.UNKNOWN, "read-only file system")
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("RemoveImage", 3)
        before = small_node.failpoints.calls["RemoveImage"]
        time.sleep(2.0)
        assert small_node.failpoints.calls["RemoveImage"] - before <= 30
        del small_node.failpoints["RemoveImage"]
        relieved(small_node, daemon)


def test_a_soft_threshold_in_its_grace_makes_the_relief_of_another_insufficient(
    small_node: SmallNode,
) -> None:
    """Success is that no configured threshold is met, grace or not (kubelet,
    reclaimNodeLevelResources).

    Bytes are relieved, inodes stay below a mark of 1M whose hour of grace has just begun.
    """
    crowd(small_node)
    inodes = str(Signal.NODEFS_INODES_FREE)
    configuration = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=MIB,
        evictionSoft={inodes: "1M"},
        evictionSoftGracePeriod={inodes: "1h"},
    )
    with Daemon("--config", configuration) as daemon:
        event = daemon.wait_for(lambda event: event.get("result") == "not_enough")
        assert f"; still under pressure: {inodes}, containerfs.inodesFree; " in event["message"], (
            "and not the bytes"
        )
    assert small_node.removed("image")


def test_a_runtime_that_comes_after_the_daemon_is_used_within_2_s(small_node: SmallNode) -> None:
    """The daemon starts without a runtime, logs that once, and relieves the node
    when the runtime is there.
    """
    crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=MIB)
    small_node.server.stop()
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "the container runtime cannot be asked" in event["message"])
        time.sleep(2.0)
        assert sum("cannot be asked" in event["message"] for event in daemon.events) == 1
        assert any("ReclaimPressure" in event["message"] for event in daemon.events)
        small_node.server.start()
        assert came_true(lambda: bool(small_node.removed()), BACK_SECONDS)
        relieved(small_node, daemon)


def test_a_runtime_that_restarts_is_used_again_within_2_s(small_node: SmallNode) -> None:
    """It stops while the daemon runs; the pressure that comes meanwhile is
    relieved soon after its return.
    """
    crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=-2 * MIB)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("ListPodSandbox")
        time.sleep(0.3)
        small_node.server.stop()
        small_node.fill(4 * MIB)
        daemon.wait_for(lambda event: event.get("result") == "failed")
        assert small_node.removed() == []
        small_node.server.start()
        assert came_true(lambda: bool(small_node.removed()), BACK_SECONDS)
        relieved(small_node, daemon)


def test_a_runtime_that_hangs_does_not_stop_the_observations(small_node: SmallNode) -> None:
    """While every list hangs the daemon still observes the disk; when they return it
    relieves the node within 2 s.
    """
    crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=-2 * MIB)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("ListPodSandbox")
        time.sleep(0.3)
        small_node.failpoints["ListContainers"] = Hang()
        small_node.fill(4 * MIB)
        daemon.wait_for(lambda event: "ReclaimPressure: nodefs.available" in event["message"])
        small_node.wait_for("ListContainers", 2)
        assert daemon.process.poll() is None
        small_node.failpoints.clear()
        assert came_true(lambda: bool(small_node.removed()), BACK_SECONDS)
        relieved(small_node, daemon)


def test_a_daemon_beside_a_hung_runtime_ends_on_sigterm(small_node: SmallNode) -> None:
    """No removal is in flight, so it does not wait for the list that hangs."""
    crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=MIB)
    small_node.failpoints["ListContainers"] = Hang()
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("ListContainers")
        assert daemon.stop() == 0
        assert daemon.logged("stopped")
    assert small_node.removed() == []


def test_sigterm_waits_for_the_removal_in_flight_and_starts_no_other(small_node: SmallNode) -> None:
    """An interrupted RemoveImage leaves a record behind for ever: the one that
    was sent finishes; exit 0.
    """
    images = crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    small_node.failpoints["RemoveImage"] = Delay(2.0)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("RemoveImage")
        assert daemon.stop() == 0
        assert small_node.removed() == images[:1], "finished before the daemon left"
        assert small_node.failpoints.calls["RemoveImage"] == 1
        (record,) = daemon.passes
    assert record["removals"][0]["result"] == "removed"
    assert record["removals"][0]["error"] is None
    assert record["kept_by_reason"]["stopping"] == 2


def test_a_second_daemon_on_the_same_node_exits_with_75_and_the_first_goes_on(
    small_node: SmallNode,
) -> None:
    """Two daemons would both remove: the second one exits at once with a sentence."""
    crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=-2 * MIB)
    with Daemon("--config", configuration) as daemon:
        second = reclaimd("run", "--config", configuration)
        assert daemon.process.poll() is None, "it is the first one that goes on"
        assert second.returncode == 75
        assert second.stderr.count("\n") == 1
        assert "another instance" in second.stderr
        assert f"{Path(configuration).parent / 'lock'} is locked" in second.stderr
        small_node.fill(4 * MIB)
        relieved(small_node, daemon)
    with Daemon("--config", configuration) as third:
        assert third.stop() == 0, "the lock is let go of with the process"


def test_after_a_kill_the_next_daemon_needs_no_repair(small_node: SmallNode) -> None:
    """SIGKILL in the middle of a removal: the next one takes the node over at
    once and finishes the work.
    """
    images = crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=6 * MIB)
    before = set(os.listdir(small_node.root_directory))
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("RemoveImage")
        daemon.process.kill()
        daemon.process.wait(60.0)
    small_node.failpoints.clear()
    assert came_true(lambda: len(small_node.removed()) == 1)
    with Daemon("--config", configuration) as daemon:
        relieved(small_node, daemon)
    assert small_node.removed() == images[:2]
    assert set(os.listdir(small_node.root_directory)) == before


def test_after_its_start_the_daemon_holds_off(small_node: SmallNode) -> None:
    """After a reboot the containers of live pods are dead: pressure is logged,
    and nothing is removed yet.
    """
    crowd(small_node)
    configuration = small_node.configuration(
        Signal.NODEFS_AVAILABLE, above=MIB, holdOffAfterStart="5m"
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("held off"))
        daemon.wait_for(lambda event: "ReclaimPressure" in event["message"])
        time.sleep(0.5)
    assert small_node.removed() == []


def test_the_daemon_relieves_a_full_disk_from_its_very_start(small_node: SmallNode) -> None:
    """With 0 bytes and 0 inodes free the daemon starts and removes, without creating a file."""
    crowd(small_node)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=-30 * MIB)
    small_node.fill(inodes=small_node.inodes_free() - 1)
    small_node.fill(small_node.available())
    assert (small_node.available(), small_node.inodes_free()) == (0, 0)
    with Daemon("--config", configuration) as daemon:
        assert came_true(lambda: len(small_node.removed()) == 3)
        daemon.wait_for(lambda event: event.get("result") == "not_enough")


def watches(pid: int) -> int:
    """1 where a process has an inotify instance that watches something, 0 where it has none."""

    def holds_watches(descriptor: Path) -> bool:
        with suppress(FileNotFoundError):  # it has just been closed
            return "inotify wd:" in descriptor.read_text()
        return False

    return int(any(map(holds_watches, Path(f"/proc/{pid}/fdinfo").iterdir())))


@pytest.mark.parametrize("watching", [True, False])
def test_inotify_wakes_the_loop_and_without_it_the_interval_does(
    small_node: SmallNode, watching: bool
) -> None:
    """A minute from the mark a new file is noticed at once; with --no-watch it
    is not noticed yet.
    """
    crowd(small_node)
    configuration = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=-8 * MIB,
        pollFloor="10ms",
        pollCeiling="120s",
        assumedFillRate="128Ki",
    )
    with Daemon("--config", configuration, *([] if watching else ["--no-watch"])) as daemon:
        small_node.wait_for("ListPodSandbox")
        assert came_true(lambda: watches(daemon.process.pid) == int(watching))
        time.sleep(1.0)
        small_node.fill(10 * MIB)
        (small_node.disk / "grown").rename(small_node.root_directory / "grown")
        if watching:
            relieved(small_node, daemon)
            assert daemon.passes[0]["trigger"] == "watch"
        else:
            time.sleep(2.0)
            assert not daemon.logged("ReclaimPressure")


def test_nothing_is_watched_far_from_the_marks(small_node: SmallNode) -> None:
    """Where the fastest fill takes longer than `pollCeiling` to the mark no event matters: at 200
    MiB/s and 50 ms a watch comes 10 MiB above the mark, and goes 20 MiB above."""
    configuration = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=-32 * MIB,
        pollFloor="50ms",
        pollCeiling="50ms",
        assumedFillRate="200Mi",
    )
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("ListPodSandbox")
        assert not watches(daemon.process.pid)
        for _ in range(28):
            small_node.fill(MIB)
            time.sleep(0.02)  # slower than the fill that is taken to be possible
        assert came_true(lambda: watches(daemon.process.pid) == 1)
        (small_node.disk / "grown").unlink()
        assert came_true(lambda: watches(daemon.process.pid) == 0)
