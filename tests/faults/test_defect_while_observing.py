"""An exception while the daemon observes the node: it is logged, and a second later the daemon goes
on. If nothing comes of it, that is seen."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from eviction.engine.effects import LookWanted
from eviction.records.history import HistoryRecorder
from eviction.records.listener import Listener
from eviction.surface.daemon import LARGEST_DELAY_SECONDS, Daemon
from eviction.surface.endpoints import DaemonEndpoints
from eviction.surface.systemd import Notifier
from eviction.types import Decision
from eviction.wording.log import Log
from signals.filesystems import Reading, read_statvfs
from signals.types import Signal, SignalObservations
from tests.nodes.small_node import MIB, SmallNode
from tests.pure.values import SteppedClock
from tests.reclaimd_process import came_true

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
        return replace(reading, stats=replace(reading.stats, capacity_bytes=cast(int, None)))


def test_an_exception_while_observing_does_not_end_the_daemon(small_node: SmallNode) -> None:
    """It is logged once, the next attempt comes a second later, and as soon as an attempt
    succeeds the node is relieved."""
    images = small_node.add_images(3)
    defective, written = Defective(small_node.root_directory), io.StringIO()
    node = small_node.node(
        Signal.NODEFS_AVAILABLE, above=10 * MIB, evictionHard=IMAGES, reader=defective
    )
    daemon = Daemon(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop = threading.Thread(target=daemon.run)
    loop.start()
    try:
        assert came_true(lambda: defective.attempts >= 3), "the loop has ended"
        assert defective.attempts <= 5, "it does not spin"
        defective.mended.set()
        assert came_true(lambda: set(images) <= set(small_node.removed("image"))), (
            written.getvalue()
        )
    finally:
        daemon.stop()
        loop.join(60.0)
    assert not loop.is_alive()
    messages = [json.loads(line)["message"] for line in written.getvalue().splitlines()]
    assert sum(message.startswith("observing the node: TypeError: ") for message in messages) == 1


class Raises(Listener):
    """A listener that raises after each observation."""

    def __init__(self) -> None:
        self.told = 0

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Raises."""
        self.told += 1
        raise ZeroDivisionError("a filesystem without blocks")


def test_a_listener_that_raises_holds_no_relief_up(small_node: SmallNode) -> None:
    """It loses its own lines, which is counted; others are told."""
    images = small_node.add_images(3)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    raises, written = Raises(), io.StringIO()
    node.listeners.add(raises)
    daemon = Daemon(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop = threading.Thread(target=daemon.run)
    loop.start()
    try:
        assert came_true(lambda: set(images) <= set(small_node.removed("image")))
    finally:
        daemon.stop()
        loop.join(60.0)
    assert raises.told == node.listeners.failed > 0
    assert any("result" in json.loads(line) for line in written.getvalue().splitlines()), (
        "the log has the pass"
    )


class Hangs(Listener):
    """A listener that hangs until `mended` is set."""

    def __init__(self) -> None:
        self.mended = threading.Event()

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Hangs."""
        self.mended.wait(60.0)


@pytest.mark.regression
def test_a_listener_that_hangs_keeps_no_watchdog_from_being_fed(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """It is fed by the owner, after each look: systemd kills no daemon that relieves."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "40"}
        notifier, node, hangs = Notifier(environment, os.getpid()), small_node.node(), Hangs()
        log = Log(lambda: 0.0, stream=io.StringIO())
        daemon = Daemon(node, log)
        history = HistoryRecorder("", 0, node.clock, warn=log.warning)
        endpoints = DaemonEndpoints(daemon, log, notifier, history=history)
        node.on_look = endpoints.keep_alive
        node.listeners.add(hangs)
        while node.world.looks < 3:
            node.owner.turn()
            node.owner.post(LookWanted(urgent=True))
        hangs.mended.set()
        assert [manager.recv(64) for _ in range(3)] == [b"WATCHDOG=1"] * 3


@pytest.mark.regression
def test_a_daemon_whose_owner_does_not_turn_is_not_alive(small_node: SmallNode) -> None:
    """Its thread has ended, or it hangs in a turn: seen 8 s after the turn
    was due, or after it began.
    """
    clock = SteppedClock()
    node = small_node.node(clock=clock)
    daemon = Daemon(node, Log(clock.wall, stream=io.StringIO()))
    clock.step(LARGEST_DELAY_SECONDS)
    assert daemon.why_not_alive() is None
    while not node.world.looks:
        node.owner.turn()
    assert daemon.why_not_alive() is None
    clock.step(LARGEST_DELAY_SECONDS + 0.1)
    assert daemon.why_not_alive() == "the next observation is 8.1 s late"


@pytest.mark.regression
def test_a_daemon_that_turns_and_never_ends_a_look_is_not_alive(small_node: SmallNode) -> None:
    """A defect in each turn: it goes on, and relieves nothing."""
    clock, defective = SteppedClock(), Defective(small_node.root_directory)
    node = small_node.node(
        Signal.NODEFS_AVAILABLE, evictionHard=IMAGES, reader=defective, clock=clock
    )
    daemon = Daemon(node, Log(clock.wall, stream=io.StringIO()))
    clock.step(node.configuration.poll_ceiling_seconds + LARGEST_DELAY_SECONDS + 0.1)
    while defective.attempts < 2:
        node.owner.turn()
    assert not node.world.looks
    assert daemon.why_not_alive() == "the next observation is 8.1 s late"
