"""The daemon: a runtime that stops, hangs and comes back, pressure that nothing relieves, its
beginning and end, and a machine without a runtime."""

from __future__ import annotations

import io
import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.drill.private_mounts import unmount
from eviction.records.listener import Listener
from eviction.records.passes import Pass
from eviction.surface.daemon import Daemon as Loop
from eviction.wording.log import Log
from reclaim.images.records import ImageRecords
from reclaim.types import EventReason, GCEvent
from signals.types import FsLayout, Signal
from tests.nodes.faults import Delay, Fail, Failpoint, Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.nodes.stepped import turn
from tests.printed import expect_console
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
from tests.sockets.mounts import dead_filesystem, mounted_tmpfs
from tests.stopped import stopped

NODEFS = Signal.NODEFS_AVAILABLE
BACK_SECONDS = 20.0  # ten times the 2 s that it takes at most where nothing else runs


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


# ---- pressure that nothing relieves, on a stepped clock


@dataclass
class Run(Listener):
    """What the loop did in eight minutes of its own clock: calls by method, passes, events, and the
    lines of its log with their second."""

    calls: Counter[str] = field(default_factory=Counter)
    passes: list[Pass] = field(default_factory=list)
    events: list[GCEvent] = field(default_factory=list)
    lines: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

    def warned(self, event: GCEvent) -> None:
        """Keeps it."""
        self.events.append(event)

    def passed(self, record: Pass) -> None:
        """Keeps it."""
        self.passes.append(record)

    @property
    def most_within_a_minute(self) -> int:
        """The largest number of lines within any 60 s after the first."""
        times = [at for at, _ in self.lines if at > 60.0]
        return max(sum(at <= other < at + 60.0 for other in times) for at in times)


def under_pressure(small: SmallNode, **failpoints: Failpoint) -> Run:
    """The loop, below a mark that nothing can reach."""
    clock, run = SteppedClock(), Run()
    began = clock.monotonic()

    class Lines(io.StringIO):
        def write(self, text: str) -> int:
            run.lines.append((clock.monotonic() - began, json.loads(text)))
            return len(text)

    own: dict[str, Any] = {"clock": clock, "records": ImageRecords(), "imageMinimumGCAge": "0s"}
    node = small.node(NODEFS, above=40 * MIB, **own)
    daemon = Loop(node, Log(clock.wall, as_json=True, stream=Lines()))
    node.listeners.add(run)
    for method, action in failpoints.items():
        small.failpoints[method] = action
    before = small.failpoints.calls
    while clock.monotonic() < began + 480.0:
        turn(node, clock, began + 480.0)
        assert node.listeners.done(PATIENCE_SECONDS)  # so that each line has its time
    daemon.stop()
    daemon.run()
    run.calls = small.failpoints.calls - before
    return run


MET = "Attempting to reclaim ephemeral-storage (ReclaimPressure: below reclaimd's own mark)"


@pytest.mark.regression
def test_pressure_that_nothing_relieves_does_not_spin_and_is_logged_once(
    small_node: SmallNode,
) -> None:
    """Everything is in use: passes end up a minute apart, each names what holds the bytes and sends
    the kubelet's event, which the API server's object counts; log lines are few."""
    small_node.run(small_node.run_pod("web"), writes=8 * MIB)
    run = under_pressure(small_node)
    assert small_node.removed() == []
    assert 10 <= len(run.passes) <= 16, "1, 2, 4 … 60 s apart"
    assert run.calls["ListImages"] == len(run.passes)
    starts = [record.started_wall for record in run.passes]
    pauses = [later - sooner for sooner, later in itertools.pairwise(starts)]
    assert 55.0 <= pauses[-1] <= 65.0
    assert run.most_within_a_minute == 1
    for record in run.passes:
        assert record.reason.endswith("everything else is in use or protected")
    kept = {"in_use": 1, "ready": 1, "running": 1, "sandbox_image": 1}
    assert run.lines[-1][1]["record"]["kept_by_reason"] == kept
    event = (EventReason.THRESHOLD_MET, MET)
    assert [(each.reason, each.message) for each in run.events] == [event] * len(run.passes)
    messages = [line["message"] for _, line in run.lines]
    assert messages.count(MET) == 1
    assert len([each for each in messages if each.startswith("ReclaimPressure")]) == 1


def test_removals_that_fail_are_tried_less_and_less_often(crowded: SmallNode) -> None:
    """A refusal is logged once a minute; when the runtime removes again, the daemon relieves."""
    run = under_pressure(crowded, RemoveImage=Fail(grpc.StatusCode.UNKNOWN, "read-only"))
    assert crowded.removed() == []
    assert run.calls["RemoveImage"] == 3 * len(run.passes) <= 48
    assert run.most_within_a_minute == 1
    assert "3 removals failed" in run.passes[-1].reason
    assert "read-only" in json.dumps(run.lines[-1][1]["record"]["removals"])
    with Daemon("--config", crowded.configuration(NODEFS, above=10 * MIB)) as daemon:
        crowded.wait_for("RemoveImage", run.calls["RemoveImage"] + 3)
        del crowded.failpoints["RemoveImage"]
        relieved(crowded, daemon)


@pytest.mark.regression
def test_an_empty_row_asks_for_nothing_and_sends_the_event_as_often_as_the_kubelet(
    make_small_node: SmallNodeFactory,
) -> None:
    """Nothing relieves the kubelet's own filesystem beside a dedicated imagefs: no pass runs, and
    every 10 s, which is the kubelet's interval, the event is sent."""
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    run = under_pressure(small)
    assert (run.passes, run.calls["RemoveImage"]) == ([], 0)
    assert run.calls["ListImages"] <= 9, "to know what is there, once a minute"
    assert {each.message for each in run.events} == {MET}
    assert 44 <= len(run.events) <= 49
    assert [line["message"] for _, line in run.lines].count(MET) == 1


def test_a_soft_threshold_in_its_grace_makes_the_relief_of_another_insufficient(
    crowded: SmallNode,
) -> None:
    """Success is that no configured threshold is met, grace or not (kubelet,
    reclaimNodeLevelResources). Inodes stay below a mark of 1M whose hour of grace has begun."""
    inodes = str(Signal.NODEFS_INODES_FREE)
    soft = {"evictionSoft": {inodes: "1M"}, "evictionSoftGracePeriod": {inodes: "1h"}}
    with Daemon("--config", crowded.configuration(NODEFS, above=MIB, **soft)) as daemon:
        event = daemon.wait_for(lambda event: event.get("result") == "not_enough")
        met = f"; still under pressure: {inodes}, containerfs.inodesFree; "
        assert met in event["message"], "and not the bytes"
    assert crowded.removed("image")


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


# ---- a runtime that is away, or hangs


@pytest.mark.parametrize("when", ["at the start", "while it runs", "hangs"])
def test_a_runtime_that_restarts_is_used_again_within_2_s(crowded: SmallNode, when: str) -> None:
    """It comes after the daemon, which says once that it is away; it stops, or hangs, while pressure
    comes: the disk is observed meanwhile, and relief comes soon after its return."""
    at_start = when == "at the start"
    if at_start:
        crowded.server.stop()
    file = crowded.configuration(NODEFS, above=MIB if at_start else -2 * MIB)
    with Daemon("--config", file) as daemon:
        if not at_start:
            crowded.wait_for("ListPodSandbox")
            says(daemon, "started on")
            if when == "hangs":
                crowded.failpoints["ListContainers"] = Hang()
            else:
                crowded.server.stop()
            crowded.fill(4 * MIB)
        says(daemon, "ReclaimPressure: nodefs.available")
        if when == "hangs":
            crowded.wait_for("ListContainers", 2)
        else:
            daemon.wait_for(lambda event: event.get("result") == "failed" or at_start)
        assert crowded.removed() == []
        crowded.failpoints.clear()
        if when != "hangs":
            crowded.server.start()
        assert came_true(lambda: bool(crowded.removed()), BACK_SECONDS)
        relieved(crowded, daemon)
        away = sum("cannot be asked" in event["message"] for event in daemon.events)
        assert away == 1 if at_start else away <= 1


def test_a_daemon_beside_a_hung_runtime_ends_on_sigterm(crowded: SmallNode) -> None:
    """No removal is in flight, so it does not wait for the list that hangs."""
    crowded.failpoints["ListContainers"] = Hang()
    with Daemon("--config", crowded.configuration(NODEFS, above=MIB)) as daemon:
        crowded.wait_for("ListContainers")
        assert daemon.stop() == 0
        assert daemon.logged("stopped")
    assert crowded.removed() == []


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


# ---- its beginning and end


def test_a_second_daemon_on_the_same_node_exits_with_75_and_the_first_goes_on(
    crowded: SmallNode,
) -> None:
    """Two daemons would both remove: the second one exits at once with a sentence. The lock is let
    go of with the process."""
    file = crowded.configuration(NODEFS, above=-2 * MIB)
    with Daemon("--config", file) as daemon:
        second = reclaimd("run", "--config", file)
        lock = f"({Path(file).parent}/lock is locked)"
        sentence = f"reclaimd: another instance holds the node {lock}\n"
        assert (second.returncode, second.stderr) == (75, sentence)
        crowded.fill(4 * MIB)
        relieved(crowded, daemon)
    with Daemon("--config", file) as third:
        assert third.stop() == 0


def test_after_a_kill_the_next_daemon_needs_no_repair(crowded: SmallNode) -> None:
    """SIGKILL in the middle of a removal: the next one takes the node over at once and finishes the
    work."""
    file = crowded.configuration(NODEFS, above=6 * MIB)
    before = set(os.listdir(crowded.root_directory))
    crowded.failpoints["RemoveImage"] = Hang(times=1)
    with Daemon("--config", file) as daemon:
        crowded.wait_for("RemoveImage")
        daemon.process.kill()
        daemon.process.wait(60.0)
    crowded.failpoints.clear()
    assert came_true(lambda: len(crowded.removed()) == 1)
    with Daemon("--config", file) as daemon:
        relieved(crowded, daemon)
    assert len(crowded.removed()) == 2
    assert set(os.listdir(crowded.root_directory)) == before


def test_after_its_start_the_daemon_holds_off(crowded: SmallNode) -> None:
    """After a reboot the containers of live pods are dead: pressure is logged, looked at again and
    again, and nothing is removed yet."""
    file = crowded.configuration(NODEFS, above=MIB, holdOffAfterStart="5m")
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("held off"))
        says(daemon, "ReclaimPressure")
        time.sleep(0.5)
    assert crowded.removed() == []


def test_the_daemon_relieves_a_full_disk_from_its_very_start(crowded: SmallNode) -> None:
    """With 0 bytes and 0 inodes free the daemon starts and removes, without creating a file."""
    file = crowded.configuration(NODEFS, above=-30 * MIB)
    crowded.fill(inodes=crowded.inodes_free() - 1)
    crowded.fill(crowded.available())
    assert (crowded.available(), crowded.inodes_free()) == (0, 0)
    with Daemon("--config", file) as daemon:
        assert came_true(lambda: len(crowded.removed()) == 3)
        daemon.wait_for(lambda event: event.get("result") == "not_enough")


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


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A machine with a filesystem of 64 MiB, whose mark of 16 MiB a program keeps that removes the
    cache and says what it was told: what stands for its paths."""
    disk, program = tmp_path / "disk", tmp_path / "prune"
    mounted_tmpfs(str(disk), 64 * MIB, 1000)
    program.write_text(
        '#!/bin/sh\necho "missing $RECLAIMD_MISSING_BYTES of $RECLAIMD_SIGNAL"\nrm -f'
        f" {disk}/cache-*\n"
    )
    program.chmod(0o700)
    prune = {"name": "prune", "exec": [str(program)], "frees": "data", "plan": False}
    file = write_configuration(
        tmp_path / "reclaimd.yaml",
        containerRuntimeEndpoint="none",
        rootDirectory=f"{tmp_path}/no-kubelet",
        controlSocket=f"{tmp_path}/control.sock",
        historyFile=f"{tmp_path}/history",
        filesystems=[{"name": "data", "path": str(disk)}],
        reclaimFunctions=[prune],
        reclaimTable={"data.available": ["prune"]},
        evictionHard={"data.available": "16Mi"},
        evictionMinimumReclaim={"data.available": "0"},
    )
    yield {"CONFIG": str(file), "DISK": str(disk), "DIRECTORY": str(tmp_path)}
    unmount(str(disk))


def fill(disk: str) -> None:
    """52 MiB of cache, which leaves less than 16 MiB."""
    for number in range(13):
        (Path(disk) / f"cache-{number}").write_bytes(os.urandom(4 * MIB))


def test_without_a_runtime_the_daemon_relieves_and_says_what_it_did(alone: dict[str, str]) -> None:
    """No kubelet's directory is needed, no kubelet's event is made, and what the program prints is in
    the log. So do commands that only read, and the hook, as before pods of a CI system start."""
    file, disk = alone["CONFIG"], alone["DISK"]
    with Daemon("--config", file) as daemon:
        says(daemon, f"started on data ({disk}); thresholds: data.avail")
        expect_console(Path(__file__).with_name("expected") / "without-a-runtime.txt", alone)
        fill(disk)
        says(daemon, "attempting to reclaim data.available")
        line = daemon.wait_for(lambda event: event["message"].startswith("prune: missing "))
        assert line["message"].endswith(" of data.available")
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        status = ("status", "--config", file)
        assert came_true(lambda: "\nprune  " in reclaimd_here(*status).stdout)
        head, *_ = reclaimd_here(*status).stdout.splitlines()
        assert head.endswith("; layout none, as there is no runtime")
        assert not any(event.get("event") for event in daemon.events)
    history = reclaimd_here("history", "--config", file).stdout
    assert [word in history for word in ("  program  ", "data.available: removed 1")] == [True] * 2
    fill(disk)
    done = reclaimd("reclaim", "--config", file, "--standalone")
    assert (done.returncode, os.listdir(disk)) == (0, [])
    doctor = reclaimd_here("doctor", "--config", file)
    assert (doctor.stderr, "kubelet's directories" in doctor.stdout) == ("", False)
