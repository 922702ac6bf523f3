"""The ballast of a configuration is made again when there is room, never at
pressure, on a thread of its own.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eviction.decision.thresholds import highest_mark
from eviction.engine.node import Node
from eviction.surface.kept_files import BallastKeeper
from eviction.types import Decision, NodeCondition
from eviction.wording.log import Log
from reclaim.workers import NoThread, Task, Workers
from signals.types import FilesystemRole, Signal
from tests.nodes.small_node import MIB, SmallNode

SIZE = 4 * MIB
CALM = Decision(frozenset(), (), None, (), None)
PRESSURE = replace(CALM, conditions=frozenset({NodeCondition.DISK_PRESSURE}))


@pytest.fixture
def ballast(small_node: SmallNode) -> Path:
    """Where the ballast is to be."""
    return small_node.disk / "ballast"


@pytest.fixture
def node(small_node: SmallNode, ballast: Path) -> Node:
    """A node with a ballast of 4 MiB in its configuration, and 40 MiB more than its mark."""
    functions = [{"name": "ReleaseBallast", "file": str(ballast), "size": "4Mi"}]
    return small_node.node(Signal.NODEFS_AVAILABLE, -40 * MIB, reclaimFunctions=functions)


class OneThread(Workers):
    """A thread that says when it is done. `begun`: how many tasks it was given."""

    def __init__(self) -> None:
        super().__init__("ballast", 1)
        self.begun = 0
        self.done = threading.Event()

    def run(self, task: Task, announce: Callable[[], object] = lambda: None) -> None:
        """As any, and tells."""
        self.done.clear()
        super().run(task, self.done.set)
        self.begun += 1


class Held(OneThread):
    """One that is slow: it does its task when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Task] = []

    def run(self, task: Task, announce: Callable[[], object] = lambda: None) -> None:
        """Takes one at a time."""
        if self.waiting:
            raise NoThread("its thread is at work")
        self.waiting.append(task)
        self.begun += 1
        self.done.set()


class Kept:
    """A keeper, and what it has logged."""

    def __init__(self, node: Node, workers: OneThread | None = None):
        self.node = node
        self.workers = workers or OneThread()
        self.log = io.StringIO()
        self.keeper = BallastKeeper(node, Log(time.time, stream=self.log), self.workers)

    def ask(self, now: float, *, room: int = 1 << 40, decision: Decision = CALM) -> bool:
        """Has it hear an observation with so much available above the mark, and waits
        for the thread if it began.
        """
        seen, begun = self.node.summary.observe(), self.workers.begun
        identity, stats = seen.filesystems[FilesystemRole.NODEFS]
        mark = highest_mark(self.node.thresholds(seen.layout), seen, FilesystemRole.NODEFS)
        assert mark > 0
        found = {FilesystemRole.NODEFS: (identity, replace(stats, available_bytes=mark + room))}
        self.keeper.observed(replace(seen, time=now, filesystems=found), decision)
        if self.workers.begun == begun:
            return False
        assert self.workers.done.wait(60.0)
        return True


def test_it_is_made_again_when_there_is_room_and_never_at_pressure(
    node: Node, ballast: Path
) -> None:
    """At pressure and without room nothing is done; then it is made, logged once, and
    looked for each 5 minutes.
    """
    kept = Kept(node)
    assert not kept.ask(0.0, decision=PRESSURE)
    assert not kept.ask(1.0, room=2 * SIZE - 1)
    assert (ballast.exists(), kept.log.getvalue()) == (False, "")
    assert kept.ask(2.0, room=2 * SIZE)
    assert ballast.stat().st_size == SIZE
    ballast.unlink()
    assert not kept.ask(301.9)
    assert kept.ask(302.0)
    assert kept.ask(602.0)
    assert ballast.stat().st_size == SIZE
    assert kept.log.getvalue().count(f"the ballast {ballast} of 4.0MiB is there again") == 2


def test_what_keeps_it_from_being_made_is_logged(node: Node, ballast: Path) -> None:
    """Each time, in one sentence."""
    ballast.mkdir()
    kept = Kept(node)
    assert (kept.ask(0.0), kept.ask(300.0)) == (True, True)
    sentence = (
        f"the ballast is not made again: {ballast} is not the ballast: it is not a regular file"
    )
    assert kept.log.getvalue().count(sentence) == 2


def test_in_a_dry_run_nothing_is_made(small_node: SmallNode, node: Node, ballast: Path) -> None:
    """Nor without a ballast in the configuration."""
    dry = small_node.node(
        Signal.NODEFS_AVAILABLE,
        0,
        dry_run=True,
        reclaimFunctions=[{"name": "ReleaseBallast", "file": str(ballast), "size": "4Mi"}],
    )
    assert not Kept(dry).ask(0.0)
    assert not Kept(small_node.node(Signal.NODEFS_AVAILABLE, 0)).ask(0.0)


def test_while_one_is_made_no_other_is_begun(node: Node, ballast: Path) -> None:
    """However long a disk that hangs takes; pressure that comes then is not forgotten."""
    held = Held()
    kept = Kept(node, held)
    assert kept.ask(0.0)
    assert not kept.ask(9999.0)
    assert not kept.ask(9999.0, decision=PRESSURE)
    assert not kept.ask(99999.0)
    held.waiting.pop()()
    assert f"{ballast} is not made: the disk came under pressure meanwhile" in kept.log.getvalue()
    assert not os.path.lexists(ballast)
    assert kept.ask(999999.0)


def test_when_the_daemon_ends_what_is_made_is_given_up(node: Node, ballast: Path) -> None:
    """Its thread removes what there is of it."""
    held = Held()
    kept = Kept(node, held)
    assert kept.ask(0.0)
    kept.keeper.close()
    held.waiting.pop()()
    assert not os.path.lexists(ballast)


def test_without_a_thread_it_is_tried_again_later(node: Node, ballast: Path) -> None:
    """The limit of processes is reached."""
    kept = Kept(node)
    kept.workers.limit = 0
    assert not kept.ask(0.0)
    assert not kept.ask(300.0)
    kept.workers.limit = 1
    assert kept.ask(600.0)
    assert ballast.exists()
