"""Nothing that may wait stands before relief: a refresh, a dry run, a program on another
filesystem, a question that has just been asked in vain.

By the order in which the runtime is asked, so that no clock decides: what is slow goes on until the
relief has come, or until it has waited for it in vain.
"""

from __future__ import annotations

import io
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.runtime.private_mounts import unmount
from eviction.engine.effects import PauseSet, Request
from eviction.engine.node import Node
from eviction.records.passes import Trigger
from eviction.surface.daemon import Daemon as Loop
from eviction.wording.log import Log
from reclaim.cri.inventory import GivenUp
from reclaim.function import GONE, STATUS_FRESH_SECONDS, ReclaimFunction, Refused
from reclaim.functions.table import FUNCTIONS, table_of
from reclaim.images.records import ImageRecords
from reclaim.types import Plan, RuntimeUnavailable, Verdict
from signals.filesystems import Reading, read_statvfs
from signals.types import FilesystemRole, FsLayout, Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.pure.values import SteppedClock
from tests.reclaimd_process import PROGRAM, Daemon, came_true
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import Dialect
from tests.sockets.engine.test_first_byte import FAST, dead_copies, passed
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.program.scripts import script

pytestmark = pytest.mark.regression

IN_VAIN_SECONDS = 8.0  # less than the deadline of a list


class Patient:
    """A runtime in front of a node's own whose next answer of one kind waits until an image was
    removed. `waits`: it does now; `waited`: whether one was, in time."""

    def __init__(self, small: SmallNode, directory: Path, *methods: str):
        small.add_images(3)
        small.run(small.run_pod("web"))
        self._small = small
        self.asked = threading.Event()  # from now on the next answer waits
        self.waits = threading.Event()
        self.waited: list[bool] = []
        changes = dict.fromkeys(methods, self._wait)
        self.dialect = Dialect(small.server.target, str(directory / "patient.sock"), changes)

    def _wait(self, _: Any) -> None:
        if self.asked.is_set() and not self.waits.is_set():
            self.waits.set()
            self.waited.append(
                came_true(lambda: bool(self._small.removed("image")), IN_VAIN_SECONDS)
            )


@pytest.mark.parametrize("method", ["ListImages", "ListPodSandbox"])
def test_a_refresh_whose_list_is_slow_holds_no_pass_up(
    small_node: SmallNode, tmp_path: Path, method: str
) -> None:
    """The first question of a daemon who uses what is answered only when an image has gone."""
    patient = Patient(small_node, tmp_path, method)
    patient.asked.set()
    endpoint = patient.dialect.endpoint
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, above=-2 * MIB, containerRuntimeEndpoint=endpoint
    )
    with patient.dialect, Daemon("--config", file) as daemon:
        assert patient.waits.wait(60.0)
        small_node.fill(4 * MIB)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert patient.waited == [True]


def test_dry_runs_hold_no_pass_up(small_node: SmallNode, tmp_path: Path) -> None:
    """Two clients ask for one again and again; a list of theirs is answered
    only when an image has gone.
    """
    patient = Patient(small_node, tmp_path, "ListImages")
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=-2 * MIB,
        containerRuntimeEndpoint=patient.dialect.endpoint,
        controlSocket=str(tmp_path / "control" / "socket"),
    )
    with patient.dialect, Daemon("--config", file) as daemon:
        # a refresh has listed everything; the next one is in a minute
        small_node.wait_for("ListImages", 1)
        with dry_runs(file), dry_runs(file):
            patient.asked.set()
            assert patient.waits.wait(60.0)
            small_node.fill(4 * MIB)
            daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert patient.waited == [True]


@contextmanager
def dry_runs(file: str) -> Iterator[None]:
    """A client that asks for one dry run after the other."""
    stop = threading.Event()
    command = [PROGRAM, "reclaim", "--dry-run", "--signal", "imagefs.available", "--config", file]

    def ask() -> None:
        while not stop.is_set():
            subprocess.run(command, check=False, capture_output=True, timeout=120)

    client = threading.Thread(target=ask)
    client.start()
    try:
        yield
    finally:
        stop.set()
        client.join()


def test_a_program_on_another_filesystem_holds_no_pass_up(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """It may take a minute, and goes on; meanwhile the kubelet's filesystem is relieved."""
    images, disk, ended = small_node.add_images(3), tmp_path / "cache", tmp_path / "ended"
    small_node.run(small_node.run_pod("web"))
    mounted_tmpfs(str(disk), 16 * MIB, 100)
    (tmp_path / "bin").mkdir()
    program = script(tmp_path / "bin", f"echo runs; sleep 50; touch {ended}")
    try:
        file = small_node.configuration(
            Signal.NODEFS_AVAILABLE,
            above=-2 * MIB,
            filesystems=[{"name": "cache", "path": str(disk)}],
            reclaimFunctions=[
                {
                    "name": "prune",
                    "exec": [program],
                    "frees": "cache",
                    "plan": False,
                    "timeout": "60s",
                }
            ],
            reclaimTable={"cache.available": ["prune"]},
            evictionHard={"cache.available": "8Mi"},
        )
        with Daemon("--config", file) as daemon:
            small_node.wait_for("ListPodSandbox", 2)
            (disk / "grown").write_bytes(os.urandom(12 * MIB))
            daemon.wait_for(lambda event: event["message"].endswith("runs"))
            small_node.fill(4 * MIB)
            assert came_true(lambda: bool(small_node.removed("image")))
            assert not ended.exists()
    finally:
        unmount(str(disk))
    assert small_node.removed("image") == images[:1]


def test_a_list_that_hangs_in_a_hurry_is_asked_for_once(small_node: SmallNode) -> None:
    """Functions that plan side by side, and the row after them, have the error
    of the one question.
    """
    copies = dead_copies(small_node, "crashed")
    small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=20 * MIB, read_deadline_seconds=0.5)
    node.detection.images()
    small_node.failpoints["ListImages"] = Hang()
    asked = small_node.failpoints.calls["ListImages"]
    record = passed(node, FAST)
    assert small_node.failpoints.calls["ListImages"] - asked == 1
    assert small_node.removed("container") == copies
    assert "ListImages failed with DEADLINE_EXCEEDED" in "; ".join(record.errors)


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

    def present(self, verdict: Verdict) -> bool:
        """There is nothing."""
        return False


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


@pytest.mark.parametrize("asked", range(4))
def test_what_a_refresh_has_read_when_a_pass_begins_is_not_used(
    small_node: SmallNode, asked: int
) -> None:
    """It gives way whenever it is asked, and an image that the pass removes is not
    known again by an older list.
    """
    small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(records=ImageRecords())
    answers = iter([True] * asked)
    with pytest.raises(GivenUp):
        node.detection.images(lambda: next(answers, False))
    assert node.records.records == {}


class CountingReader:
    """Reads by statvfs, and counts the readings of one path."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.readings = 0

    def __call__(self, path: str, now: float) -> Reading:
        """One reading."""
        self.readings += path == self._path
        return read_statvfs(path, now)


def test_pressure_that_no_function_relieves_does_not_end_the_polling_of_other_filesystems(
    make_small_node: SmallNodeFactory,
) -> None:
    """The kubelet's own filesystem is below its mark, and its row is empty; that of the images is
    near its mark. The node is observed once a second."""
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    small.run(small.run_pod("web"))
    reader = CountingReader(small.images_root)
    above = small.available(small.image_disk) - MIB
    node: Node = small.node(
        Signal.NODEFS_AVAILABLE,
        above=10 * MIB,
        evictionHard={"imagefs.available": str(above)},
        reader=reader,
    )
    manager = Loop(node, Log(node.clock.wall, stream=io.StringIO()))
    node.prepare()
    manager.prepare()
    loop = threading.Thread(target=manager.run)
    loop.start()
    try:
        assert came_true(lambda: reader.readings > 100)
    finally:
        manager.stop()
        loop.join()
