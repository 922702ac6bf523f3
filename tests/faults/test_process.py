"""The daemon as a process: killed, started many times at once or with too little, with a defect
while it observes, and what it holds after very much work."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import psutil
import pytest

from eviction.engine.effects import LookWanted
from eviction.exit_codes import EXIT_NO_RESOURCES
from eviction.records.history import HistoryRecorder
from eviction.surface import daemon as surface
from eviction.surface.control_client import ask
from eviction.surface.endpoints import DaemonEndpoints
from eviction.surface.systemd import Notifier
from eviction.wording.log import Log
from signals.filesystems import Reading, read_statvfs
from signals.types import FsLayout, Signal
from signals.watcher import FsWatcher
from tests.faults import meters
from tests.faults.matrix.node import WAITS_FOR_A_LINE
from tests.faults.meters import MIB, Meters
from tests.faults.populated import PopulatedNode
from tests.nodes.faults import Fail
from tests.nodes.small_node import SmallNode
from tests.ports import free_port
from tests.pure.values import SteppedClock
from tests.reclaimd_process import (
    ENVIRONMENT,
    PATIENCE_SECONDS,
    PROGRAM,
    Daemon,
    Process,
    answer,
    came_true,
    reclaimd_here,
    started,
    write_configuration,
)
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import need_mounts
from tests.thread_limit import ThreadLimit, no_thread_starts

SOAK = (pytest.mark.soak, pytest.mark.timeout(3600))

# ---- killed

KILLS_OF_SOAK = 200
LONGEST_STEP_SECONDS = 0.005  # between two calls to the runtime
STARVED_PASSES = 5
WHOLE_ROW = ("--signal", "nodefs.available", "--all", "--now", "-o", "json")


def undisturbed_pass(configuration: str) -> Any:
    """The record of one undisturbed pass.

    On a machine so busy that the reading of an object was too old for its removal the pass gives up
    with an error; then it is repeated.
    """
    for left in reversed(range(STARVED_PASSES)):
        process = reclaimd_here("reclaim", "--config", configuration, *WHOLE_ROW)
        # 1: space that comes late is not there yet
        assert process.returncode in (0, 1), process.stderr
        record = answer(process)
        starved = any("fresher than" in (each["error"] or "") for each in record["removals"])
        if not starved or not left:
            return record
    raise AssertionError


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(4, 7), pytest.param(KILLS_OF_SOAK, time.time_ns(), marks=SOAK, id="soak")],
)
def test_a_reclaim_that_is_killed_leaves_nothing_to_repair(
    tmp_path: Path, kills: int, seed: int
) -> None:
    """Four kills at random moments, each right after a random call to the runtime: the next start
    converges in one pass, and removes nothing that must be kept. Or 200, with a new seed each time,
    which is printed."""
    need_mounts()
    chance = random.Random(seed)  # noqa: S311 # a repeatable sequence, no secret
    node = PopulatedNode(tmp_path / "node")
    calls = node.failpoints

    def has_gone_on(process: Process, last: int) -> bool:
        return calls.calls.total() > last or process.poll() is not None

    gone: list[int] = []
    try:
        node.populate()
        before = calls.calls.total()
        undisturbed_pass(node.configuration(Signal.NODEFS_AVAILABLE, above=1))
        of_a_pass = calls.calls.total() - before
        for _ in range(kills):
            removable = node.populate()
            configuration = node.configuration(Signal.NODEFS_AVAILABLE, above=1)
            already = len(node.removed())
            last = calls.calls.total() + chance.randrange(of_a_pass)
            with open(os.devnull, "wb") as nowhere:
                words = ("reclaim", "--config", configuration, *WHOLE_ROW)
                process = started(*words, streams=(0, nowhere.fileno(), nowhere.fileno()))
            assert came_true(partial(has_gone_on, process, last), 20.0, every_seconds=0.0005)
            time.sleep(chance.uniform(0.0, LONGEST_STEP_SECONDS))
            process.kill()
            process.wait(60.0)
            gone.append(len(node.removed()) - already)
            assert node.lost() == []
            record = undisturbed_pass(configuration)
            left = removable & node.leftovers()
            reported = (*record["removals"], *record["kept"])
            assert not left, [each for each in reported if each["id"] in left]
            assert {each["result"] for each in record["removals"]} <= {"removed", "already_gone"}
            assert node.lost() == []
    finally:
        node.close()
    middle = sum(0 < each < max(gone) for each in gone)
    print(f"seed {seed}: {gone.count(0)} before the first removal, {middle} in the middle of it")
    assert kills < KILLS_OF_SOAK or middle > kills // 10, "the kills were in the middle of it"


# ---- started


@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.timeout(300)
def test_of_four_starts_at_once_exactly_one_lives(tmp_path: Path, count: int) -> None:
    """Or of fifty, without pressure and without a runtime: one runs on, the others exit with 75 and
    one sentence."""
    (tmp_path / "kubelet").mkdir()
    control = str(tmp_path / "control.sock")
    configuration = write_configuration(
        tmp_path / "reclaimd.yaml",
        rootDirectory=str(tmp_path / "kubelet"),
        containerRuntimeEndpoint=f"unix://{tmp_path}/none.sock",
        controlSocket=control,
        evictionHard={"nodefs.available": "1Ki"},
    )
    running: dict[Path, Process] = {}
    for number in range(count):
        path = tmp_path / f"{number}.log"
        with path.open("wb") as log:
            words = ("run", "--config", str(configuration))
            running[path] = started(*words, streams=(0, 1, log.fileno()))
    try:

        def one_is_left() -> bool:
            for path, process in list(running.items()):
                if process.poll() is not None:
                    del running[path]
                    said = path.read_text()
                    assert process.returncode == 75, said
                    assert "another instance holds the node" in said
                    assert said.count("\n") == 1
            return len(running) == 1

        assert came_true(one_is_left, 120.0)
        assert ask(control, "status")["heartbeat_age_seconds"] < 60
        ((path, alive),) = running.items()
        alive.send_signal(signal.SIGTERM)
        assert alive.wait(PATIENCE_SECONDS) == 0, path.read_text()
    finally:
        for process in running.values():
            process.kill()
            process.wait()


# ---- what a pass needs is made at the start

RECLAIM_AFTER_PREPARE = """
import json, sys
from eviction.configuration.effective import load
from eviction.engine.node import Node
from eviction.records.passes import Trigger
node = Node(load(sys.argv[1], {}, {}))
node.prepare()
node.locate()
before = set(sys.modules)
observations, decision = node.look()
record = node.relieve(observations, decision, Trigger.INTERVAL)
print(json.dumps({"result": record.result, "imported": sorted(set(sys.modules) - before)}))
node.close()
"""


@contextmanager
def no_threads(pid: int) -> Iterator[None]:
    """No thread starts in the process from now on."""
    with ThreadLimit(pid) as limit:
        limit.forbid()
        yield


@contextmanager
def few_descriptors(pid: int) -> Iterator[None]:
    """Python and the configuration are content with 14; the sockets of a pass are not."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (14, hard))
    yield


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (no_threads, "no thread can be started for the log: can't start new thread"),
        (few_descriptors, "no sockets can be made for the runtime: Too many open files"),
    ],
)
def test_a_start_with_too_little_ends_with_one_sentence(
    small_node: SmallNode, limit: Callable[[int], AbstractContextManager[None]], said: str
) -> None:
    """Exit 71, which the page explains."""
    file, pipe = small_node.configuration(parallelRemovals=2), subprocess.PIPE
    command = [*WAITS_FOR_A_LINE, PROGRAM, "run", "--config", file]
    with (
        subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True, env=ENVIRONMENT) as process,
        limit(process.pid),
    ):
        _, words = process.communicate("go\n", timeout=120.0)
    assert process.returncode == EXIT_NO_RESOURCES, words
    assert f"cannot start: {said}" in words.strip().splitlines()[-1]


def test_under_pressure_no_module_is_imported(small_node: SmallNode) -> None:
    """Not even where the runtime has to be asked again: an import needs descriptors,
    memory, a disk that answers.
    """
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    lost = Fail(grpc.StatusCode.UNAVAILABLE, "connection lost", times=1)
    small_node.failpoints["ListImages"] = lost
    process = subprocess.run(
        [sys.executable, "-c", RECLAIM_AFTER_PREPARE, configuration],
        capture_output=True,
        text=True,
        timeout=120.0,
        check=True,
        env=ENVIRONMENT,
    )
    assert json.loads(process.stdout) == {"result": "satisfied", "imported": []}
    assert small_node.failpoints.calls["ListImages"] == 2


def test_a_daemon_at_rest_has_few_threads(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """36 at most, with two filesystems, all that is on by default, and `parallelRemovals` as it is
    by default."""
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    configuration = small.configuration(
        parallelRemovals=2,
        controlSocket=str(tmp_path / "run" / "control.sock"),
        metricsAddress=f"127.0.0.1:{free_port()}",
        stateFile=str(tmp_path / "state"),
        historyFile=str(tmp_path / "history"),
    )
    with Daemon("--config", configuration) as daemon:
        small.wait_for("ListContainers")
        threads = Path(f"/proc/{daemon.process.pid}/task")
        assert came_true(lambda: len(list(threads.iterdir())) <= 36)


def test_a_watch_without_a_thread_is_a_problem_and_nothing_more(tmp_path: Path) -> None:
    """The sentence says that observations come at intervals only; nothing stays open."""
    with no_thread_starts():
        watcher = FsWatcher((str(tmp_path),), lambda: None, 10.0)
        watcher.start()
    assert "observing at intervals only" in str(watcher.problem)
    watcher.watch((str(tmp_path),))
    watcher.stop()


# ---- what it holds after very much work

GROWTH_BYTES = 4 * MIB
SMALL_BYTES = 256 << 10
# a pass during which the next image arrives would count as fruitless, and back off for a second
ENDING_SECONDS = 0.03


class Load:
    """Work for a daemon whose mark the next image crosses, piece by piece."""

    def __init__(self, small: SmallNode) -> None:
        self.small = small
        self._made = 0

    def passes(self, count: int) -> None:
        """Each of them removes an image."""
        for _ in range(count):
            self._made += 1
            name = f"registry.example/load/{self._made}:1"
            image = self.small.add_image(name, SMALL_BYTES)
            assert came_true(partial(self._has_gone, image))
            time.sleep(ENDING_SECONDS)

    def _has_gone(self, image: str) -> bool:
        return image in self.small.removed()[-8:]

    def restarts(self, count: int) -> None:
        """Of the runtime, each followed by pressure that is relieved."""
        for _ in range(count):
            self.small.server.stop()
            self.small.server.start()
            self.passes(1)

    def events(self, count: int) -> None:
        """Of inotify, in a directory that the daemon watches."""
        directory = os.open(self.small.root_directory / "pods", os.O_RDONLY | os.O_DIRECTORY)
        try:
            for _ in range(count):
                os.mkdir("sign-of-growth", dir_fd=directory)
                os.rmdir("sign-of-growth", dir_fd=directory)
        finally:
            os.close(directory)


@pytest.mark.parametrize(
    ("name", "count", "first", "growth_bytes"),
    [
        ("events", 10_000, 2_000, None),
        ("passes", 20, 10, None),
        ("restarts", 4, 4, None),
        *(
            pytest.param(name, count, count // 10, GROWTH_BYTES, marks=SOAK)
            for name, count in (("events", 1_000_000), ("passes", 10_000), ("restarts", 200))
        ),
    ],
)
def test_what_a_daemon_holds_stays_bounded(
    small_node: SmallNode, name: str, count: int, first: int, growth_bytes: int | None
) -> None:
    """No load adds a descriptor or a thread; a million events, 10 000 passes, 200 restarts add less
    than 4 MiB. Compared with what is held after the `first`, which fill its caches. It is read when
    it has no more threads than then: a call, a removal and gRPC's own work each have one while they
    last."""
    small, began = small_node, time.monotonic()
    small.run(small.run_pod("web"))  # so that only what the load adds is removable
    load: Callable[[int], None] = getattr(Load(small), name)
    file = small.configuration(
        Signal.NODEFS_AVAILABLE, above=-(SMALL_BYTES // 2), pollCeiling="10ms"
    )
    if name == "events":  # each of them may be the one after which the disk is full
        marks = {"nodefs.available": "1Mi"}
        file = small.configuration(evictionHard=marks, pollCeiling="10ms", assumedFillRate="100Gi")
    with Daemon("--config", file, cold=True) as daemon:
        small.wait_for("ListPodSandbox")
        time.sleep(0.5)
        process, readings = psutil.Process(daemon.process.pid), list[meters.Reading]()

        def settled() -> bool:
            with process.oneshot():
                used = process.num_fds(), process.num_threads(), process.memory_info().rss
            readings.append(meters.Reading(*used))
            return readings[-1].threads <= metered.report.first.threads

        load(first)
        with Meters(process.pid, every_seconds=0.5) as metered:
            load(count)
            came_true(settled, PATIENCE_SECONDS)
        if name == "passes":
            assert len(daemon.passes) >= count * 0.9
        assert daemon.stop() == 0
    last = min(readings, key=lambda each: (each.threads, each.descriptors))
    report = replace(metered.report, last=last)
    print(f"{count} {name} in {time.monotonic() - began:.0f} s:\n{report}")
    assert report.descriptors_more <= 0, str(report)
    assert report.threads_more <= 0, str(report)
    if growth_bytes is not None:
        assert report.last.rss_bytes - report.first.rss_bytes <= growth_bytes, str(report)


# ---- a defect while it observes

IMAGES = {"imagefs.available": "1%"}  # so that a capacity counts


class Defective:
    """A reader whose numbers nothing can be concluded from until `mended` is set."""

    def __init__(self, path: Path) -> None:
        self.mended = threading.Event()
        self.attempts = 0
        self._path = str(path)

    def __call__(self, path: str, now: float) -> Reading:
        """The capacity is no number until `mended` is set."""
        self.attempts += path == self._path
        reading = read_statvfs(path, now)
        if self.mended.is_set():
            return reading
        return reading._replace(stats=replace(reading.stats, capacity_bytes=cast(int, None)))


def test_an_exception_while_observing_does_not_end_the_daemon(small_node: SmallNode) -> None:
    """It is logged once, the next attempt comes a second later, and as soon as an attempt
    succeeds the node is relieved."""
    images = small_node.add_images(3)
    defective = Defective(small_node.root_directory)
    node = small_node.node(
        Signal.NODEFS_AVAILABLE, above=10 * MIB, evictionHard=IMAGES, reader=defective
    )
    written = io.StringIO()
    daemon = surface.Daemon(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop, began = threading.Thread(target=daemon.run), time.monotonic()
    loop.start()
    try:
        assert came_true(lambda: defective.attempts >= 3), "the loop has ended"
        assert defective.attempts <= time.monotonic() - began + 2, "it does not spin"
        defective.mended.set()
        assert came_true(lambda: set(images) <= set(small_node.removed("image")))
    finally:
        daemon.stop()
        loop.join(60.0)
    assert not loop.is_alive()
    events = [json.loads(line) for line in written.getvalue().splitlines()]
    failed = [each for each in events if each["message"].startswith("observing the node: TypeE")]
    assert len(failed) == 1
    assert any("result" in each for each in events), "the log has the pass"


def test_a_listener_that_hangs_keeps_no_watchdog_from_being_fed(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """It is fed by the owner, after each look: systemd kills no daemon that relieves."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "40"}
        notifier, node = Notifier(environment, os.getpid()), small_node.node()
        mended = threading.Event()
        log = Log(lambda: 0.0, stream=io.StringIO())
        history = HistoryRecorder("", 0, node.clock, warn=log.warning)
        daemon = surface.Daemon(node, log)
        node.on_look = DaemonEndpoints(daemon, log, notifier, history=history).keep_alive
        node.listeners.add(SimpleNamespace(observed=lambda *_: mended.wait(60.0)))
        while node.world.looks < 3:
            node.owner.turn()
            node.owner.post(LookWanted(urgent=True))
        mended.set()
        assert [manager.recv(64) for _ in range(3)] == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize("defect", [False, True], ids=["no turn", "no look"])
def test_a_daemon_that_never_ends_a_look_is_not_alive(small_node: SmallNode, defect: bool) -> None:
    """Its owner's thread has ended or hangs in a turn: seen 8 s after the turn was due, or after it
    began. Or there is a defect in each turn: it goes on, and relieves nothing."""
    clock, defective = SteppedClock(), Defective(small_node.root_directory)
    reader: dict[str, Any] = {"reader": defective} if defect else {}
    node = small_node.node(Signal.NODEFS_AVAILABLE, evictionHard=IMAGES, clock=clock, **reader)
    daemon = surface.Daemon(node, Log(clock.wall, stream=io.StringIO()))
    clock.step(surface.LARGEST_DELAY_SECONDS)
    assert daemon.why_not_alive() is None
    if defect:
        clock.step(node.configuration.poll_ceiling_seconds)
    while defective.attempts < 2 if defect else not node.world.looks:
        node.owner.turn()
    assert bool(node.world.looks) != defect
    clock.step(0.1 if defect else surface.LARGEST_DELAY_SECONDS + 0.1)
    assert daemon.why_not_alive() == "the next observation is 8.1 s late"
