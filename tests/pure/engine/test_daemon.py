"""What the daemon does between its passes: it looks, begins passes, pauses after them, is held back,
asks the runtime, and collects periodically.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.engine.effects import (
    PauseSet,
    Read,
    Sampled,
    Send,
    Watch,
    Withdrawn,
)
from eviction.engine.fold import fold
from eviction.engine.node import Node
from eviction.engine.periodic import CONTAINER, IMAGE, loops
from eviction.engine.world import Pause
from eviction.surface.announcements import Announcements
from eviction.types import Extent
from eviction.wording.log import Log
from reclaim import types
from reclaim.functions.table import CONTAINER_GC
from reclaim.functions.unused_images import IMAGE_GC
from reclaim.types import EventReason, GCEvent, ReclaimError
from signals.filesystems import Reading
from signals.samplers import Sample
from signals.summary import asked
from signals.types import FilesystemIdentity, FilesystemRole, FsStats, Poll, Signal
from tests.inline import configured
from tests.pure.engine.site import DEVICE, Disk, Site, Store, record_of, told
from tests.pure.values import GIB, MIB, SteppedClock
from tests.rows import rows, rows_of

TOLD = ("not_begun", "reclaiming", "takes_long", "detected", "runtime_asked")


def assert_day(site: Site, story: str) -> None:
    """On each line something happens, and then so many seconds go by; the other columns are what
    there is by then. `passes`: those that have ended meanwhile, and when they began. `told`: how
    often, so far."""
    ended = looks = done = 0
    for row in rows_of(story):
        site.happen(row.pop("happens"))
        site.engine.after(float(row.pop("seconds")))
        world, records = site.engine.world, site.engine.said("passed")
        passes = (
            f"{one.started_wall - 1_800_000_000:.1f} {one.trigger} {told(one)}"
            for one in records[ended:]
        )
        watches = (each for each in site.engine.handed_out[done:] if isinstance(each, Watch))
        handed = Counter(type(effect).__name__ for effect in site.engine.handed_out)
        told_of = {what: len(site.engine.said(what)) for what in TOLD}
        found = {
            "passes": " + ".join(passes),
            "sent": site.called("send"),
            "look": world.look_why,
            "due": f"{world.look_due - world.looked_at:g}",
            "looks": str(world.looks - looks),
            "polls for": " ".join({f"{(each.levels.levels[0] or 0) >> 20}" for each in watches}),
            "images": world.paths.imagefs or "",
            "asked": f"{handed['Locate']} {handed['Refresh']}",
            "problem": world.asking.problem,
            "written back": str(handed["WriteBack"]),
            "told": " ".join(f"{count} {what}" for what, count in told_of.items() if count),
        }
        ended, looks, done = len(records), world.looks, len(site.engine.handed_out)
        assert {column: found[column] for column in row} == row


DAYS = dict(
    day.split("\n", 1) for day in Path(__file__).with_name("days.txt").read_text().split("\n\n")
)


@pytest.mark.parametrize("day", DAYS.values(), ids=DAYS)
def test_what_happens_to_a_daemon(day: str) -> None:
    """Its mark is at 480 MiB, of 500 that are available at first; 490 are to be reached. Each day
    of `days.txt` has the objects of a node, what is configured, and its story."""
    above, table, story = day.partition("  happens")
    told = yaml.safe_load(above)
    site = Site(told["objects"] or "", daemon=True, **told.get("fields", {}))
    assert_day(site, table + story)


def test_where_images_are_is_asked_every_minute_and_every_second_under_pressure() -> None:
    """Nothing can be relieved in the wrong place. Who uses them is asked while there is none, every
    minute; once it is over, though it is reported for five more, neither is asked each second."""
    assert_day(
        Site(daemon=True),
        """
        happens           | seconds | asked
                          | 119     | 2 2
        write 30, crossed | 20      | 22 2
        free 60           | 2       | 23 2
                          | 55      | 23 2
        """,
    )


def test_a_command_waits_for_the_pass_of_its_filesystem_and_a_dry_run_does_not() -> None:
    """A removal hangs for half a minute: the dry run is answered at once. The command has its turn
    after it, and learns that it was decided by what is not so any more; who has gone gets none, and
    is told that it was in time. Asked for anew, its pass runs."""
    site = Site("AB", daemon=True)
    site.happen("write 30, Send inf")
    site.engine.until_it(Send)
    about: Any = {"signal": Signal.NODEFS_AVAILABLE, "extent": Extent.ALL}
    dry, wanted, gone = site.begin(dry_run=True), site.begin(**about), site.begin(**about)
    first, second = Withdrawn(gone), Withdrawn(gone)
    site.engine.events += [first, second]
    site.engine.after(1.0)
    assert [each.record.done() for each in (dry, wanted, gone)] == [True, False, False]
    assert (first.done.result(), second.done.result()) == (True, False)
    site.happen("answered")
    site.engine.after(1.0)
    assert wanted.record.result(0.0) is None
    assert not gone.record.done()
    assert len(site.engine.said("passed")) == 1
    wanted = site.begin(**about)
    site.engine.after(1.0)
    assert site.engine.said("passed")[1:] == [record_of(wanted)], "a dry run on request is no news"


# ---- how it looks


@pytest.mark.regression
@pytest.mark.parametrize("polled", ["/node", "/node/images"])
def test_the_polls_of_a_filesystem_count_in_whatever_order_its_paths_answer(polled: str) -> None:
    """Two looks a second apart; in between, polls have seen three falls: it fills at 100 MiB/s."""
    world, paths = Site().engine.world, ("/node", "/node/images")
    for second, available in ((0.0, 400), (1.0, 300)):
        at = world.now + second
        world = world._replace(now=at, readings=asked(world.readings, paths, at))
        polls = [
            Poll(at - ago, (available + int(100 * ago)) * MIB, 1000) for ago in (0.75, 0.5, 0.25)
        ]
        stats = FsStats(available * MIB, available * MIB, GIB, 1000, 2000, at)
        for path in paths:
            reading = Reading(stats, DEVICE, tuple(polls) if path == polled and second else ())
            sample = Sample(path, at, reading, FilesystemIdentity(path, DEVICE))
            world = fold(world, Sampled(sample))
    assert world.fill_rates[DEVICE, False].rate == 100 * MIB


@pytest.mark.regression
def test_slow_filesystems_delay_neither_each_other_nor_the_pass_on_a_fast_one() -> None:
    """Three answer after 2.5 s each. Each is read as often as one alone; the fast one is relieved
    within a second, while a pass runs on another one."""
    clock, slow = SteppedClock(), ("/slow1", "/slow2", "/slow3")
    disks = {path: Disk(clock, DEVICE + number) for number, path in enumerate(("/fast", *slow), 1)}
    own = {FilesystemRole(path.strip("/")): path for path in disks}
    site = Site(
        daemon=True,
        clock=clock,
        disks=disks,
        hard={"nodefs.available": "0%", **{f"{name}.available": "480Mi" for name in own}},
        evictionMinimumReclaim={"fast.available": "10Mi"},
        filesystems=[{"name": str(name), "path": path} for name, path in own.items()],
        reclaimFunctions=[{"name": "prune", "exec": ["/bin/true"], "frees": "fast"}],
        reclaimTable={"fast.available": ["prune"]},
    )
    store = Store(disks["/fast"], "ABC")
    site.serves(store, name="prune")
    function = site.engine.world.functions["prune"]
    function = function._replace(frees=FilesystemRole("fast"))
    site.engine.located = site.engine.world.paths._replace(own=own)
    site.change(functions={"prune": function}, paths=site.engine.located)
    site.happen(", ".join(f"Read {path} 2.5" for path in slow))
    site.engine.after(30.0)
    reads = Counter(
        path
        for effect in site.engine.handed_out
        if isinstance(effect, Read)
        for path in effect.paths
    )
    assert {reads[path] for path in slow} <= {11, 12, 13}
    disks["/fast"].free(-30 * MIB)
    site.happen("program, Send P inf, crossed")
    site.engine.after(1.0)
    (record,) = site.engine.said("passed")
    assert (record.functions[0].relieved, store.sent) == (True, ["A", "B"])
    assert record.timings.total_seconds < 0.5  # with the wait for late space at the end


# ---- what holds it back


def test_a_pause_ends_by_itself() -> None:
    """It says until when. One that is forgotten ends after a day; one of which nothing is known
    any more, at once, if it was unknown and not begun by an operator."""
    pause, wall = Pause().begun(1000.0, 60.0), 1_800_000_000.0
    why = "paused until 2027-01-15T08:01:00Z (reclaimd resume ends it)"
    assert (pause.why(1000.0, wall), pause.why(1060.0, wall + 60)) == (why, "")
    assert pause.ended().why(1059.0, wall) == ""
    assert Pause().begun(0.0, 10 * 86_400.0).left_seconds(0.0) == 86_400.0
    site = Site(daemon=True)
    for unknown, left in (("", 60.0), ("the file cannot be read", 0.0)):
        site.engine.events += [PauseSet(60.0, unknown), PauseSet(0.0, if_unknown=True)]
        site.engine.settle()
        assert site.engine.world.pause.left_seconds(site.clock.monotonic()) == left


# ---- the kubelet's periodic loops (`StartGarbageCollection` in `pkg/kubelet/kubelet.go`)


class Told(Store):
    """A stage whose plans end as told, each with an error or, for `-`, without one."""

    ends: list[str]
    began: list[str]

    def plan(self) -> types.Plan:
        """Notes when."""
        self.began.append(f"{self.clock.monotonic() - 1000.0:.0f}")
        if self.ends and (error := self.ends.pop(0)) != "-":
            raise ReclaimError(error)
        return super().plan()


def collecting(
    names: str, *ends: str, what: str = CONTAINER, space: str = ""
) -> tuple[Site, Told, Store]:
    """A daemon with both loops, the stage of one of them, whose plans end as told, and the second
    stage over images, beside that for their age."""
    site = Site(names, daemon=True, periodicGC=True, hard={"nodefs.available": "0%"})
    stages = {CONTAINER: site.containers, IMAGE: site.images}
    stage = Told(site.disk, stages[what].sizes, sized=what == IMAGE)
    stage.on, stage.ends, stage.began = site.images.on, list(ends), []
    stages[what], second = stage, Store(site.disk, space)
    site.serves(stages[CONTAINER], name=CONTAINER_GC)
    site.serves(stages[IMAGE], second, name=IMAGE_GC)
    site.change(periodic=loops(site.clock.monotonic(), images=True))
    return site, stage, second


def logged(site: Site) -> list[str]:
    """What was logged of what the listeners were told, without the time."""
    out = StringIO()
    log = Log(site.clock.wall, stream=out, verbosity=0)
    announcements = Announcements(Node(configured(), clock=site.clock), log)
    for about in site.engine.said("collection_ended"):
        announcements.collection_ended(*about)
    return [line.split(" ", 1)[1].strip() for line in out.getvalue().splitlines()]


@rows("""
    what | loop | ends | happens | seconds | plans | says
    a period after the last one ended | container | | Plan GC 10 | 155 | 10 80 150 |
    images every five minutes | image | | | 610 | 0 300 600 |
    every failure of containers is an event | container | a b - - c - | | 330 | 0 60 120 180 240 300 | warning container garbage collection failed: a event=ContainerGCFailed + warning container garbage collection failed: b event=ContainerGCFailed + info    container garbage collection succeeded again + warning container garbage collection failed: c event=ContainerGCFailed + info    container garbage collection succeeded again
    the first failure of images in a row is none | image | a b c - d | | 1210 | 0 300 600 900 1200 | error   image garbage collection failed once; statistics may not be there yet: a + warning image garbage collection failed again: b event=ImageGCFailed + warning image garbage collection failed again: c event=ImageGCFailed + info    image garbage collection succeeded again + error   image garbage collection failed once; statistics may not be there yet: d
    not while it is held off | container | | held-off 90.5 | 92 | 91 |
    but once the kubelet is healthy | container | | held-off 90.5, in 30.5 healthy | 32 | 31 |
""")
def test_the_loops_run_in_their_periods_and_tell_their_failures(
    loop: str, ends: str, happens: str, seconds: float, plans: str, says: str
) -> None:
    """A loop begins at once, and waits its period after each pass; a failure is not tried again
    sooner, and the success after it is told."""
    site, stage, _ = collecting("", *ends.split(), what=loop)
    site.happen(happens.replace("GC", CONTAINER_GC))
    site.engine.after(seconds)
    assert (" ".join(stage.began), " + ".join(logged(site))) == (plans, says)


def test_a_loop_removes_one_object_at_a_time_beside_whatever_else_runs() -> None:
    """The other loop hangs; it promises nothing and relieves nothing, so all of its plan goes.
    Without a mark or an age there is no loop of images."""
    site, *_ = collecting("abcX")
    site.happen("Send X inf, Send 1")
    for seconds, sent in ((1.5, "a"), (1.0, "a b"), (1.0, "a b c")):
        site.engine.after(seconds)
        assert site.called("send") == sent
    assert [loop.what for loop in loops(0.0, images=False)] == [CONTAINER]


def test_a_loop_that_frees_too_little_has_failed_with_the_event_s_text() -> None:
    """The second stage of images knows what was wanted, and is told what was freed."""
    site, _, space = collecting("", what=IMAGE, space="A")
    space.planned = replace(
        space.plan(),
        target_bytes=20 * MIB,
        event_of=lambda freed: GCEvent(EventReason.FREE_DISK_SPACE_FAILED, f"freed {freed}"),
    )
    site.engine.after(1.0)
    (record,) = [each for each in site.engine.said("collected") if each.row == (IMAGE_GC,)]
    assert record.errors == ("freed 10485760",)
    assert any("freed 10485760 event=FreeDiskSpaceFailed" in line for line in logged(site))


@pytest.mark.regression
def test_the_loop_of_images_has_no_last_resort() -> None:
    """Enough is promised before what cannot be pulled again has its turn: the pass is over, and the
    loop goes on."""
    site, _, space = collecting("", what=IMAGE, space="AB")
    first, second = space.plan().remove
    last = second._replace(last_resort=True)
    space.planned = types.Plan((first, last), target_bytes=10 * MIB)
    site.engine.after(310.0)
    records = [each for each in site.engine.said("collected") if each.row == (IMAGE_GC,)]
    assert [each.errors for each in records] == [(), ()]
    assert space.sent[0] == "A"
