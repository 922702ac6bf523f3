"""The daemon: pressure that nothing relieves, its beginning and end, watches, and a machine without a
runtime."""

from __future__ import annotations

import io
import itertools
import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from eviction.records.passes import Pass
from eviction.surface.daemon import Daemon as Loop
from eviction.wording.log import Log
from reclaim.images.records import ImageRecords
from reclaim.types import EventReason, GCEvent
from signals.types import FsLayout, Signal
from tests.nodes.faults import Delay
from tests.nodes.small_node import MIB, SmallNode
from tests.nodes.stepped import turn
from tests.pure.values import SteppedClock
from tests.reclaimd_process import (
    PATIENCE_SECONDS,
    Daemon,
    came_true,
    reclaimd,
    reclaimd_here,
    write_configuration,
)
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import dead_filesystem
from tests.sockets.stage import Stage
from tests.stopped import stopped

NODEFS = Signal.NODEFS_AVAILABLE


@pytest.fixture
def crowded(small_node: SmallNode) -> SmallNode:
    """Three old images of 4 MiB and a running pod."""
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    return small_node


def relieved(small: SmallNode, daemon: Daemon) -> None:
    """Waits for a pass that cleared the threshold."""
    daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert small.removed("image")


def says(daemon: Daemon, words: str) -> None:
    """Waits for a message with these words."""
    daemon.wait_for(lambda event: words in event["message"])


# ---- pressure that nothing relieves


class Told:
    """The passes and events of a loop, and the lines of its log with their second."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.events: list[GCEvent] = []
        self.lines: list[tuple[float, dict[str, Any]]] = []

    def warned(self, event: GCEvent) -> None:
        """Keeps it."""
        self.events.append(event)

    def passed(self, record: Pass) -> None:
        """Keeps it."""
        self.passes.append(record)


MET = "Attempting to reclaim ephemeral-storage (ReclaimPressure: below reclaimd's own mark)"


@pytest.mark.regression
def test_pressure_that_nothing_relieves_does_not_spin_and_is_logged_once(
    small_node: SmallNode,
) -> None:
    """Eight minutes on a stepped clock in which everything is in use: passes end up a minute apart,
    each names what holds the bytes and sends the kubelet's event, which the API server's object
    counts; log lines are few."""
    small_node.run(small_node.run_pod("web"), writes=8 * MIB)
    clock, told = SteppedClock(), Told()
    began = clock.monotonic()

    class Lines(io.StringIO):
        def write(self, text: str) -> int:
            told.lines.append((clock.monotonic() - began, json.loads(text)))
            return len(text)

    node = small_node.node(NODEFS, above=40 * MIB, clock=clock, records=ImageRecords())
    daemon = Loop(node, Log(clock.wall, as_json=True, stream=Lines()))
    node.listeners.add(told)
    lists = small_node.failpoints.calls["ListImages"]
    while clock.monotonic() < began + 480.0:
        turn(node, clock, began + 480.0)
        assert node.listeners.done(PATIENCE_SECONDS)  # so that each line has its time
    daemon.stop()
    daemon.run()
    assert small_node.removed() == []
    assert 10 <= len(told.passes) <= 16, "1, 2, 4 … 60 s apart"
    assert small_node.failpoints.calls["ListImages"] - lists == len(told.passes)
    last, later = (record.started_wall for record in told.passes[-2:])
    assert 55.0 <= later - last <= 65.0
    times = [at for at, _ in told.lines if at > 60.0]
    assert min(later - at for at, later in itertools.pairwise(times)) >= 60.0, "one in a minute"
    for record in told.passes:
        assert record.reason.endswith("everything else is in use or protected")
    kept = {"in_use": 1, "ready": 1, "running": 1, "sandbox_image": 1}
    assert told.lines[-1][1]["record"]["kept_by_reason"] == kept
    event = (EventReason.THRESHOLD_MET, MET)
    assert [(each.reason, each.message) for each in told.events] == [event] * len(told.passes)
    messages = [line["message"] for _, line in told.lines]
    assert messages.count(MET) == 1
    assert len([each for each in messages if each.startswith("ReclaimPressure")]) == 1


@pytest.mark.soak
def test_a_daemon_that_was_stopped_does_not_count_the_time_as_grace(crowded: SmallNode) -> None:
    """2 of 20 s of grace have passed when the process is stopped for 31 s, more than three of the
    longest intervals. It does not act right after SIGCONT."""
    marks = {"nodefs.available": str(crowded.available() + MIB)}
    soft: dict[str, Any] = {
        "evictionSoft": marks,
        "evictionSoftGracePeriod": dict.fromkeys(marks, "20s"),
    }
    with Daemon("--config", crowded.configuration(**soft)) as daemon:
        says(daemon, "ReclaimPressure: nodefs.available")
        time.sleep(2.0)
        with stopped(daemon.process.pid):
            time.sleep(31.0)
        time.sleep(5.0)
        assert crowded.removed() == []
        relieved(crowded, daemon)


# ---- its beginning and end


def test_sigterm_waits_for_the_removal_in_flight_and_starts_no_other(crowded: SmallNode) -> None:
    """An interrupted RemoveImage leaves a record behind for ever: the one that was sent finishes;
    exit 0."""
    crowded.failpoints["RemoveImage"] = Delay(2.0)
    with Daemon("--config", crowded.configuration(NODEFS, above=40 * MIB)) as daemon:
        crowded.wait_for("RemoveImage")
        assert daemon.stop() == 0
        assert len(crowded.removed()) == 1, "finished before the daemon left"
        assert crowded.failpoints.calls["RemoveImage"] == 1
        (record,) = daemon.passes
    first = record["removals"][0]
    assert (first["result"], first["error"]) == ("removed", None)
    assert record["kept_by_reason"]["stopping"] == 2


@pytest.mark.regression
def test_sigterm_beside_dead_fs_with_watching(make_small_node: SmallNodeFactory) -> None:
    """A watch that the kernel never answers holds neither the loop nor the end."""
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    marks = {"nodefs.available": "20Mi"}
    file = small.configuration(evictionHard=marks, pollCeiling="200ms")
    with Daemon("--config", file) as daemon:
        says(daemon, "started on")
        with dead_filesystem(str(small.images_root)):
            says(daemon, "did not answer statvfs")
            time.sleep(6.0)
            try:
                assert daemon.stop() == 0
            finally:
                daemon.process.kill()


def test_a_second_daemon_on_the_same_node_exits_with_75_and_the_first_goes_on(
    crowded: SmallNode,
) -> None:
    """Two daemons would both remove: the second one exits at once with a sentence, whatever root
    directory it names. The lock is let go of with the process."""
    other = crowded.disk / "other"
    other.mkdir()
    second = crowded.configuration(rootDirectory=str(other))
    file = crowded.configuration(NODEFS, above=-2 * MIB)
    with Daemon("--config", file) as daemon:
        done = reclaimd("run", "--config", second)
        lock = f"({Path(file).parent}/lock is locked)"
        sentence = f"reclaimd: another instance holds the node {lock}\n"
        assert (done.returncode, done.stderr) == (75, sentence)
        crowded.fill(4 * MIB)
        relieved(crowded, daemon)
    with Daemon("--config", file) as third:
        assert third.stop() == 0


def test_after_a_kill_the_next_daemon_needs_no_repair(stage: Stage) -> None:
    """SIGKILL in the middle of a removal leaves nothing behind."""
    stage.plays()


def test_after_its_start_the_daemon_holds_off(stage: Stage) -> None:
    """Pressure is logged, looked at again and again, and nothing is removed yet."""
    stage.plays()


@pytest.mark.regression
def test_what_is_asked_before_the_loop_runs_waits_for_it(small_node: SmallNode) -> None:
    """The control socket is there first: a client must not do the work of the loop beside it."""
    node = small_node.node()
    daemon = Loop(node, Log(node.clock.wall, stream=io.StringIO()))
    client, loop = threading.Thread(target=node.look), threading.Thread(target=daemon.run)
    client.start()
    client.join(0.5)
    assert client.is_alive(), "it has looked by itself"
    loop.start()
    client.join(60.0)
    assert not client.is_alive()
    daemon.stop()
    loop.join(60.0)


# ---- watches


def watches(daemon: Daemon) -> bool:
    """Whether it has an inotify instance that watches something."""

    def holds_watches(descriptor: Path) -> bool:
        with suppress(FileNotFoundError):  # it has just been closed
            return "inotify wd:" in descriptor.read_text()
        return False

    return any(map(holds_watches, Path(f"/proc/{daemon.process.pid}/fdinfo").iterdir()))


@pytest.mark.parametrize("watching", [True, False])
def test_inotify_wakes_the_loop_and_without_it_the_interval_does(
    crowded: SmallNode, watching: bool
) -> None:
    """A minute from the mark a new file is noticed at once; with --no-watch it is not noticed
    yet."""
    poll = {"pollFloor": "10ms", "pollCeiling": "120s", "assumedFillRate": "128Ki"}
    file = crowded.configuration(NODEFS, above=-8 * MIB, **poll)
    with Daemon("--config", file, *([] if watching else ["--no-watch"])) as daemon:
        crowded.wait_for("ListPodSandbox")
        assert came_true(lambda: watches(daemon) is watching)
        time.sleep(1.0)
        crowded.fill(10 * MIB)
        (crowded.disk / "grown").rename(crowded.root_directory / "grown")
        if watching:
            relieved(crowded, daemon)
            assert daemon.passes[0]["trigger"] == "watch"
        else:
            time.sleep(2.0)
            assert not daemon.logged("ReclaimPressure")


def test_nothing_is_watched_far_from_the_marks(small_node: SmallNode) -> None:
    """Where the fastest fill takes longer than `pollCeiling` to the mark no event matters: at 200
    MiB/s and 50 ms a watch comes 10 MiB above the mark, and goes 20 MiB above."""
    poll = {"pollFloor": "50ms", "pollCeiling": "50ms", "assumedFillRate": "200Mi"}
    with Daemon("--config", small_node.configuration(NODEFS, -32 * MIB, **poll)) as daemon:
        small_node.wait_for("ListPodSandbox")
        assert not watches(daemon)
        for _ in range(28):
            small_node.fill(MIB)
            time.sleep(0.02)  # slower than the fill that is taken to be possible
        assert came_true(lambda: watches(daemon))
        (small_node.disk / "grown").unlink()
        assert came_true(lambda: not watches(daemon))


# ---- without a container runtime


def test_without_a_runtime_the_daemon_relieves_and_says_what_it_did(stage: Stage) -> None:
    """No kubelet's directory is needed, no kubelet's event is made, and what the program prints is in
    the log. So do commands that only read, and the hook, as before pods of a CI system start."""
    prune = {"name": "prune", "exec": [f"{stage.directory}/prune"], "frees": "data", "plan": False}
    write_configuration(
        Path(stage.file),
        containerRuntimeEndpoint="none",
        rootDirectory=f"{stage.directory}/no-kubelet",
        controlSocket=stage.control,
        historyFile=f"{stage.directory}/history",
        filesystems=[{"name": "data", "path": str(stage.small.disk)}],
        reclaimFunctions=[prune],
        reclaimTable={"data.available": ["prune"]},
        evictionHard={"data.available": "16Mi"},
        evictionMinimumReclaim={"data.available": "0"},
    )
    stage.plays()
    assert not any(event.get("event") for event in stage.daemon.events)
    doctor = reclaimd_here("doctor", "--config", stage.file)
    assert (doctor.stderr, "kubelet's directories" in doctor.stdout) == ("", False)
