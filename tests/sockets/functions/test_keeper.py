"""The ballast of a configuration is made again when there is room, never at
pressure, on a thread of its own.
"""

from __future__ import annotations

import io
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


class ByHand(Workers):
    """Threads that do a task when a test says so, one at a time, or none (`limit` 0)."""

    def __init__(self) -> None:
        super().__init__("ballast", 1)
        self.waiting: list[Task] = []

    def run(self, task: Task, announce: Callable[[], object] = lambda: None) -> None:
        """Takes one at a time."""
        if len(self.waiting) >= self.limit:
            raise NoThread("its thread is at work")
        self.waiting.append(task)


class Kept:
    """A keeper of a ballast of 4 MiB on a node with 40 MiB more than its mark, and what it has
    logged."""

    def __init__(self, small: SmallNode, ballast: Path, **options: object):
        functions = [{"name": "ReleaseBallast", "file": str(ballast), "size": "4Mi"}]
        options.setdefault("reclaimFunctions", functions)
        self.node: Node = small.node(Signal.NODEFS_AVAILABLE, -40 * MIB, **options)
        self.workers = ByHand()
        self.log = io.StringIO()
        self.keeper = BallastKeeper(self.node, Log(time.time, stream=self.log), self.workers)

    def hears(self, now: float, *, room: int = 1 << 40, decision: Decision = CALM) -> bool:
        """Has it hear an observation with so much available above the mark; whether it has begun."""
        seen, before = self.node.summary.observe(), len(self.workers.waiting)
        identity, stats = seen.filesystems[FilesystemRole.NODEFS]
        mark = highest_mark(self.node.thresholds(seen.layout), seen, FilesystemRole.NODEFS)
        assert mark > 0
        found = {FilesystemRole.NODEFS: (identity, replace(stats, available_bytes=mark + room))}
        self.keeper.observed(replace(seen, time=now, filesystems=found), decision)
        return len(self.workers.waiting) > before

    def makes(self, now: float, **heard: int) -> bool:
        """The same; what was begun is done."""
        begun = self.hears(now, **heard)
        if begun:
            self.workers.waiting.pop()()
        return begun


def test_it_is_made_again_when_there_is_room_and_never_at_pressure(
    small_node: SmallNode, ballast: Path
) -> None:
    """At pressure and without room nothing is done; then it is made, logged once, and
    looked for each 5 minutes.
    """
    kept = Kept(small_node, ballast)
    assert not kept.hears(0.0, decision=PRESSURE)
    assert not kept.hears(1.0, room=2 * SIZE - 1)
    assert (ballast.exists(), kept.log.getvalue()) == (False, "")
    assert kept.makes(2.0, room=2 * SIZE)
    ballast.unlink()
    assert [kept.makes(now) for now in (301.9, 302.0, 602.0)] == [False, True, True]
    assert ballast.stat().st_size == SIZE
    assert kept.log.getvalue().count(f"the ballast {ballast} of 4.0MiB is there again") == 2


def test_what_keeps_it_from_being_made_is_logged(small_node: SmallNode, ballast: Path) -> None:
    """Each time, in one sentence."""
    ballast.mkdir()
    kept = Kept(small_node, ballast)
    assert kept.makes(0.0)
    assert kept.makes(300.0)
    told = f"the ballast is not made again: {ballast} is not the ballast: it is not a regular file"
    assert kept.log.getvalue().count(told) == 2


@pytest.mark.parametrize("options", [{"dry_run": True}, {"reclaimFunctions": []}])
def test_in_a_dry_run_and_without_a_ballast_nothing_is_made(
    small_node: SmallNode, ballast: Path, options: dict[str, object]
) -> None:
    """Although there is room."""
    assert not Kept(small_node, ballast, **options).hears(0.0)


def test_while_one_is_made_no_other_is_begun(small_node: SmallNode, ballast: Path) -> None:
    """However long a disk that hangs takes; pressure that comes then is not forgotten."""
    kept = Kept(small_node, ballast)
    assert kept.hears(0.0)
    assert not kept.hears(9999.0, decision=PRESSURE)
    assert not kept.hears(99999.0)
    kept.workers.waiting.pop()()
    assert f"{ballast} is not made: the disk came under pressure meanwhile" in kept.log.getvalue()
    assert not ballast.exists()
    assert kept.hears(999999.0)


def test_when_the_daemon_ends_what_is_made_is_given_up(
    small_node: SmallNode, ballast: Path
) -> None:
    """Its thread removes what there is of it."""
    kept = Kept(small_node, ballast)
    assert kept.hears(0.0)
    kept.keeper.close()
    kept.workers.waiting.pop()()
    assert not ballast.exists()


def test_without_a_thread_it_is_tried_again_later(small_node: SmallNode, ballast: Path) -> None:
    """The limit of processes is reached."""
    kept = Kept(small_node, ballast)
    kept.workers.limit = 0
    assert not kept.hears(0.0)
    kept.workers.limit = 1
    assert not kept.hears(299.0)
    assert kept.makes(600.0)
    assert ballast.exists()
