"""The daemon: pressure that nothing relieves, its beginning and end, watches, and a machine without a
runtime; and that nothing that may wait stands before relief.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from eviction.cli.client import ask_daemon
from eviction.engine.effects import PauseSet, Request
from eviction.engine.node import Node
from eviction.engine.step import new_pass
from eviction.records.passes import Trigger
from eviction.surface.daemon import Daemon as Loop
from eviction.wording.log import Log
from reclaim.cri.inventory import GivenUp
from reclaim.function import GONE, STATUS_FRESH_SECONDS, ReclaimFunction, Refused
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.images.records import ImageRecords
from reclaim.types import Plan, RuntimeUnavailable, Verdict
from signals.types import FilesystemRole, Signal
from tests.inline import configured
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.nodes.stepped import turn
from tests.pure.values import SteppedClock
from tests.reclaimd_process import (
    PATIENCE_SECONDS,
    Daemon,
    came_true,
    reclaimd_here,
    write_configuration,
)
from tests.rows import rows
from tests.sockets.passes import FAST, changed, passed, satisfied
from tests.sockets.stage import Stage

NODEFS = Signal.NODEFS_AVAILABLE


@pytest.fixture
def crowded(small_node: SmallNode) -> SmallNode:
    """Three old images of 4 MiB and a running pod."""
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    return small_node


# ---- pressure that nothing relieves


A_MINUTE = timedelta(seconds=60)
MET = "Attempting to reclaim ephemeral-storage (ReclaimPressure: below reclaimd's own mark)"


def test_pressure_that_nothing_relieves_does_not_spin_and_is_logged_once(
    small_node: SmallNode,
) -> None:
    """Eight minutes on a stepped clock in which everything is in use: passes end up a minute apart,
    each names what holds the bytes; log lines are few, and those of passes a minute apart."""
    small_node.run(small_node.run_pod("web"), writes=8 * MIB)
    clock, stream = SteppedClock(), io.StringIO()
    node = small_node.node(NODEFS, above=40 * MIB, clock=clock, records=ImageRecords())
    daemon = Loop(node, Log(clock.wall, as_json=True, stream=stream))
    lists, until = small_node.failpoints.calls["ListImages"], clock.monotonic() + 480.0
    while clock.monotonic() < until:
        turn(node, clock, until)
        assert node.listeners.done(PATIENCE_SECONDS)
    passes = daemon.status().document.passes
    daemon.stop()
    daemon.run()
    assert small_node.removed() == []
    assert 10 <= len(passes) <= 16, "1, 2, 4 … 60 s apart"
    assert small_node.failpoints.calls["ListImages"] - lists == len(passes)
    kept = {"in_use": 1, "ready": 1, "running": 1, "sandbox_image": 1}
    for record in passes:
        assert record.reason.endswith("everything else is in use or protected")
        assert record.kept_by_reason == kept
    last, later = sorted(datetime.fromisoformat(record.started) for record in passes)[-2:]
    assert 55.0 <= (later - last).total_seconds() <= 65.0
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    messages = [line["message"] for line in lines]
    told = [datetime.fromisoformat(line["time"]) for line in lines if "result" in line]
    assert all(later - before >= A_MINUTE for before, later in pairwise(told)), messages
    assert messages.count(MET) == 1
    assert len([each for each in messages if each.startswith("ReclaimPressure")]) == 1
    assert len(messages) <= 14, messages


# ---- its beginning and end


def test_sigterm_waits_for_the_removal_in_flight_and_starts_no_other(stage: Stage) -> None:
    """Of a daemon and of a command."""
    stage.plays()


def test_a_second_daemon_on_the_same_node_exits_with_75_and_the_first_goes_on(stage: Stage) -> None:
    """Two daemons would both remove: the second one exits at once with a sentence."""
    stage.plays()


def test_after_a_kill_the_next_daemon_needs_no_repair(stage: Stage) -> None:
    """SIGKILL in the middle of a removal leaves nothing behind."""
    stage.plays()


def test_after_its_start_the_daemon_holds_off(stage: Stage) -> None:
    """Pressure is logged, looked at again and again, and nothing is removed yet."""
    stage.plays()


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
            daemon.wait_for(satisfied)
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


# ---- nothing that may wait stands before relief, and what does not go forward is known

# By the order in which the runtime is asked, so that no clock decides: what is slow goes on until the
# relief has come, or until it has waited for it in vain.

IN_VAIN_SECONDS = 8.0  # less than the deadline of a list


@contextmanager
def dry_runs(file: str, clients: int) -> Iterator[None]:
    """Clients that each ask for one dry run after the other, as `reclaim` does before all else."""
    stop = threading.Event()
    words = ["--dry-run", "--signal", "imagefs.available", "--config", file]

    def client() -> None:
        while not stop.wait(0.1):  # as long as a client takes to start
            ask_daemon("reclaim", words)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in threads:
            each.join()


@rows("""
    method         | clients
    ListImages     | 0
    ListPodSandbox | 0
    ListImages     | 2
""")
def test_a_refresh_or_a_dry_run_whose_list_is_slow_holds_no_pass_up(
    crowded: SmallNode, method: str, clients: int
) -> None:
    """The first question of a daemon who uses what, or a list of two clients that ask for dry runs
    again and again, is answered only when an image has gone."""
    hangs, held, in_time = threading.Event(), threading.Event(), list[bool]()

    def hold(_: object) -> None:
        if hangs.is_set() and not held.is_set():
            held.set()
            in_time.append(came_true(lambda: bool(crowded.removed("image")), IN_VAIN_SECONDS))

    crowded.failpoints[method] = changed(hold)
    if not clients:
        hangs.set()
    control = f"{crowded.disk.parent}/control/socket"
    file = crowded.configuration(NODEFS, above=-2 * MIB, controlSocket=control)
    with Daemon("--config", file) as daemon:
        if clients:
            crowded.wait_for("ListImages")  # of a refresh; the next one is in a minute
        with dry_runs(file, clients):
            hangs.set()
            assert held.wait(60.0)
            crowded.fill(4 * MIB)
            daemon.wait_for(satisfied)
    assert in_time == [True]


def test_a_list_that_hangs_in_a_hurry_is_asked_for_once(small_node: SmallNode) -> None:
    """Functions that plan side by side, and the row after them, have the error of the one
    question."""
    gone = small_node.gone_pod("gone")
    small_node.add_images(6, MIB)
    node = small_node.node(NODEFS, above=20 * MIB, read_deadline_seconds=2.0)
    node.detection.images()
    small_node.failpoints["ListImages"] = Hang()
    asked = small_node.failpoints.calls["ListImages"]
    record = passed(node, FAST)
    assert small_node.failpoints.calls["ListImages"] - asked == 1
    assert small_node.removed("container") == [gone]
    assert "ListImages failed with DEADLINE_EXCEEDED" in "; ".join(record.errors)


@pytest.mark.parametrize("asked", range(4))
def test_what_a_refresh_has_read_when_a_pass_begins_is_not_used(
    small_node: SmallNode, asked: int
) -> None:
    """It gives way whenever it is asked, and an image that the pass removes is not known again by an
    older list."""
    small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(records=ImageRecords())
    answers = iter([True] * asked)
    with pytest.raises(GivenUp):
        node.detection.images(lambda: next(answers, False))
    assert node.records.records == {}


# ---- what does not go forward


class Asks:
    """A stage that has nothing to remove, and asks something when it plans."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False
    listed_at: float | None = None
    patience_seconds: float | None = None

    def __init__(self, ask: Callable[[], object]):
        self._ask = ask

    def plan(self) -> Plan:
        """Asks."""
        self._ask()
        return Plan()

    def check(self, verdict: Verdict) -> Refused:
        """There is nothing."""
        return GONE

    def remove(self, verdict: Verdict) -> bool:
        """There is nothing."""
        return False

    present = remove


@pytest.mark.parametrize("fails", [False, True], ids=["is answered", "fails"])
def test_a_call_is_progress_of_the_stage_that_made_it(small_node: SmallNode, fails: bool) -> None:
    """A stage that hangs is left behind, and health knows of it, however often somebody else asks
    the runtime. A call that fails was answered, with an error."""
    clock, progress = SteppedClock(), list[float]()

    def version() -> None:
        with suppress(RuntimeUnavailable):
            node.client.version()

    def seen() -> None:
        """When the stage has made progress, by what has happened so far."""
        happened = PauseSet(0.0)
        node.owner.post(happened)
        happened.done.result(60.0)
        ((stage,),) = (each.current for each in node.world.passes.values())
        progress.append(stage.progress_at - began)

    def ask() -> None:
        clock.step(10.0)
        another = threading.Thread(target=version)
        another.start()
        another.join()
        seen()
        version()
        seen()

    function = ReclaimFunction("Asks", FilesystemRole.NODEFS, (), lambda _: (Asks(ask),))
    node = small_node.node(clock=clock, functions=table_of(function, *FUNCTIONS.values()))
    observations, decision = node.look()
    if fails:
        small_node.server.stop()
    began = clock.monotonic()
    node.relieve(observations, decision, Trigger.REQUEST, request=Request(row=("Asks",)))
    assert progress == [0.0, 10.0]


def test_a_pass_that_goes_forward_hides_none_that_is_stuck() -> None:
    """Two passes began 200 s ago; one has just removed something."""
    clock = SteppedClock()
    node = Node(configured(), clock=clock)
    world, stuck = new_pass(node.world, Trigger.WATCH, Request(), decision=node.world.decision)
    world, other = new_pass(world, Trigger.WATCH, Request(), decision=node.world.decision)
    clock.step(200.0)
    goes_on = other._replace(progress_at=clock.monotonic())
    node.owner.world = world._replace(passes={stuck.id: stuck, goes_on.id: goes_on})
    here = Loop(node, Log(clock.wall, stream=io.StringIO()))
    assert here.status().document.stalled_seconds == 200.0
    node.stopping.set()  # no look is late then
    node.owner.due_at = clock.monotonic()
    assert here.why_not_alive() == "the pass has made no progress for 200 s"
