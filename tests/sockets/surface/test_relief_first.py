"""Nothing that may wait stands before relief, and what does not go forward is known.

By the order in which the runtime is asked, so that no clock decides: what is slow goes on until the
relief has come, or until it has waited for it in vain.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from eviction.cli.client import ask_daemon
from eviction.drill.private_mounts import unmount
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
from tests.pure.values import SteppedClock
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.passes import FAST, Dialect, dead_copies, passed
from tests.sockets.program.scripts import script

pytestmark = pytest.mark.regression

NODEFS = Signal.NODEFS_AVAILABLE
IN_VAIN_SECONDS = 8.0  # less than the deadline of a list


class Held:
    """A runtime in front of a node's own: once `hangs` is set the next answer of these kinds waits
    until `relieved`, or was not in time. `held`: one waits; `in_time`: which of the two."""

    def __init__(self, small: SmallNode, relieved: Callable[[], bool], *methods: str):
        small.add_images(3)
        small.run(small.run_pod("web"))
        self._relieved = relieved
        self.hangs, self.held = threading.Event(), threading.Event()
        self.in_time: list[bool] = []
        self.path = str(small.disk.parent / "held.sock")
        changes = dict.fromkeys(methods, self._hold)
        self.dialect = Dialect(small.server.target, self.path, changes)
        self.fields = {
            "containerRuntimeEndpoint": self.dialect.endpoint,
            "controlSocket": f"{small.disk.parent}/control/socket",
        }

    def _hold(self, _: Any) -> None:
        if self.hangs.is_set() and not self.held.is_set():
            self.held.set()
            self.in_time.append(came_true(self._relieved, IN_VAIN_SECONDS))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 16 MiB beside the kubelet's, whose mark is at 8."""
    disk = tmp_path / "cache"
    mounted_tmpfs(str(disk), 16 * MIB, 100)
    yield disk
    unmount(str(disk))


def relieved_by_a_program(cache: Path) -> dict[str, Any]:
    """The fields of a configuration in which a program removes what has grown there."""
    (cache.parent / "bin").mkdir()
    command = script(cache.parent / "bin", f"rm -f {cache}/*")
    return {
        "filesystems": [{"name": "cache", "path": str(cache)}],
        "reclaimFunctions": [{"name": "prune", "exec": [command], "frees": "cache", "plan": False}],
        "reclaimTable": {"cache.available": ["prune"]},
        "evictionHard": {"cache.available": "8Mi"},
    }


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


@pytest.mark.parametrize(
    ("method", "clients"), [("ListImages", 0), ("ListPodSandbox", 0), ("ListImages", 2)]
)
def test_a_refresh_or_a_dry_run_whose_list_is_slow_holds_no_pass_up(
    small_node: SmallNode, method: str, clients: int
) -> None:
    """The first question of a daemon who uses what, or a list of two clients that ask for dry runs
    again and again, is answered only when an image has gone."""
    held = Held(small_node, lambda: bool(small_node.removed("image")), method)
    if not clients:
        held.hangs.set()
    file = small_node.configuration(NODEFS, above=-2 * MIB, **held.fields)
    with held.dialect, Daemon("--config", file) as daemon:
        if clients:
            small_node.wait_for("ListImages")  # of a refresh; the next one is in a minute
        with dry_runs(file, clients):
            held.hangs.set()
            assert held.held.wait(60.0)
            small_node.fill(4 * MIB)
            daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert held.in_time == [True]


@pytest.mark.parametrize("clients", [0, 20])
def test_a_filesystem_is_relieved_while_the_containers_of_another_cannot_be_listed(
    small_node: SmallNode, cache: Path, clients: int
) -> None:
    """The pass of the kubelet's filesystem, or twenty dry runs, wait for ListContainers, which is
    answered when the cache was relieved."""
    held = Held(small_node, lambda: not list(cache.iterdir()), "ListContainers")
    fields = {**held.fields, **relieved_by_a_program(cache)}
    file = small_node.configuration(NODEFS, above=-2 * MIB, **fields)
    with held.dialect, Daemon("--config", file):
        small_node.wait_for("ListContainers")
        held.hangs.set()
        if not clients:
            small_node.fill(4 * MIB)
        with dry_runs(file, clients):
            assert held.held.wait(60.0)
            (cache / "grown").write_bytes(bytes(12 * MIB))
            assert came_true(lambda: held.in_time == [True])


def test_a_list_that_hangs_in_a_hurry_is_asked_for_once(small_node: SmallNode) -> None:
    """Functions that plan side by side, and the row after them, have the error of the one
    question."""
    copies = dead_copies(small_node, "crashed")
    small_node.add_images(6, MIB)
    node = small_node.node(NODEFS, above=20 * MIB, read_deadline_seconds=0.5)
    node.detection.images()
    small_node.failpoints["ListImages"] = Hang()
    asked = small_node.failpoints.calls["ListImages"]
    record = passed(node, FAST)
    assert small_node.failpoints.calls["ListImages"] - asked == 1
    assert small_node.removed("container") == copies
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
