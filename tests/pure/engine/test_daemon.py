"""What the daemon does between its passes: it looks, begins passes, pauses after them, is held back,
asks the runtime, and collects periodically.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

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
from eviction.records.passes import Trigger
from eviction.surface.announcements import Announcements
from eviction.types import Extent
from eviction.wording.log import Log
from reclaim import types
from reclaim.functions.periodic_image_gc import IMAGE_GC
from reclaim.functions.table import CONTAINER_GC
from reclaim.types import EventReason, GCEvent, ReclaimError
from signals.filesystems import Reading
from signals.samplers import Sample
from signals.summary import asked
from signals.types import FilesystemIdentity, FilesystemRole, FsStats, Poll, Signal
from tests.inline import configured
from tests.pure.engine.site import CONTAINERS, DEVICE, Disk, Site, Store, record_of, told
from tests.pure.values import GIB, MIB, SteppedClock, each_row, rows_of

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


def days(days: Mapping[str, tuple[str, Mapping[str, Any], str]]) -> pytest.MarkDecorator:
    """One test for each: the objects of a node, its configuration, and its story."""
    return pytest.mark.parametrize(("names", "fields", "story"), days.values(), ids=days)


@days(
    {
        "pressure is noticed at the next look, relieved and recorded": (
            "abA",
            {},
            """
        happens  | seconds | passes                                             | sent | told
                 | 1       |                                                    |      | 1 detected 2 runtime_asked
        write 30 | 30      | 2.0 interval satisfied: a removed 10, b removed 10 | a b  | 1 reclaiming 1 detected 3 runtime_asked
    """,
        ),
        "or at once, if a poll has seen it": (
            "abA",
            {},
            """
        happens           | seconds | passes                                             | sent
                          | 1.5     |                                                    |
        write 30, crossed | 0.1     | 1.5 interval satisfied: a removed 10, b removed 10 | a b
    """,
        ),
        "inotify brings a look when the floor allows it": (
            "A",
            {},
            """
        happens                            | seconds | passes                                 | looks
                                           | 1.5     |                                        | 2
        write 25, look-wanted, look-wanted | 1       | 1.5 watch not_enough: - / A removed 10 | 4
    """,
        ),
        "what frees nothing is tried less and less often": (
            "",
            {},
            """
        happens  | seconds | passes
        write 30 | 200     | 0.0 interval not_enough: - / - + 1.0 interval not_enough: - / - + 3.0 interval not_enough: - / - + 7.0 interval not_enough: - / - + 15.0 interval not_enough: - / - + 31.0 interval not_enough: - / - + 63.0 interval not_enough: - / - + 123.0 interval not_enough: - / - + 183.0 interval not_enough: - / -
    """,
        ),
        "a gain, or a failure, after a second": (
            "A",
            {},
            """
        happens                       | seconds | passes
        write 30, containers unlisted | 3.5     | 0.0 interval not_enough: no list / A removed 10 + 1.3 interval failed: no list / - + 2.3 interval failed: no list / - + 3.3 interval failed: no list / -
    """,
        ),
        "not later than the next object is old enough": (
            "",
            {},
            """
        happens             | seconds | passes
        young 1.5, write 30 | 6       | 0.0 interval not_enough: - / Y kept: too_young + 1.0 interval not_enough: - / Y kept: too_young + 2.5 interval not_enough: - / Y kept: too_young + 4.0 interval not_enough: - / Y kept: too_young + 5.5 interval not_enough: - / Y kept: too_young
    """,
        ),
        "what flaps is no new pressure, until it was clear for 10 s": (
            "",
            {},
            """
        happens  | seconds | passes
        write 30 | 2.9     | 0.0 interval not_enough: - / - + 1.0 interval not_enough: - / -
        free 30  | 0.1     |
        write 30 | 2.9     | 4.0 interval not_enough: - / -
        free 30  | 0.1     |
        write 30 | 7       | 8.0 interval not_enough: - / -
        free 30  | 25      |
        write 30 | 3.9     | 38.2 interval not_enough: - / - + 39.2 interval not_enough: - / - + 41.2 interval not_enough: - / -
    """,
        ),
        "while one row pauses another one is served": (
            "A",
            {
                "hard": {"imagefs.available": "470Mi"},
                "reclaimTable": {"nodefs.available": [CONTAINERS]},
            },
            """
        happens  | seconds | passes | sent
        write 30 | 4       | 0.0 interval not_enough: - + 1.0 interval not_enough: - + 3.0 interval not_enough: - |
        write 5  | 2       | 4.2 interval not_enough: - / A removed 10 + 5.5 interval not_enough: - / - | A
    """,
        ),
        "a row without a function is told every ten seconds": (
            "A",
            {"reclaimTable": {"nodefs.available": []}},
            """
        happens  | seconds | passes | told                          | look
        write 30 | 25      |        | 3 reclaiming 26 runtime_asked | the row names no function
    """,
        ),
        "one that cannot end is told, looked at four times a second": (
            "A",
            {},
            """
        happens            | seconds | passes | told                                        | look                                            | looks
        write 30, Send inf | 9       |  | 1 reclaiming 10 runtime_asked               | a pass runs                                     | 37
                           | 3       |  | 1 reclaiming 8 takes_long 13 runtime_asked  | a pass runs                                     | 12
                           | 20      | 0.0 interval not_enough: - / A parked its removal was sent 30 s ago and is not answered; it is waited for + 31.0 interval not_enough: - / A kept: being_removed | 2 reclaiming 80 takes_long 33 runtime_asked | the row pauses after a pass that was not enough | 76
    """,
        ),
        "after a stop nothing begins": (
            "A",
            {},
            """
        happens  | seconds | passes | sent | looks
                 | 1       |        |      | 2
        stop     | 0       |        |      | 0
        write 30 | 60      |        |      | 1
    """,
        ),
        "during the hold-off nothing begins, and why is told": (
            "AB",
            {},
            """
        happens              | seconds | passes                                                 | look                              | told
        held-off 9, write 30 | 5.5     |                                                        | a pass is due, but held off       | 6 not_begun 6 runtime_asked
                             | 5       | 9.0 interval satisfied: - / A removed 10, B removed 10 | a mark is near, but nothing fills | 9 not_begun 1 reclaiming 11 runtime_asked
    """,
        ),
        "a healthy kubelet ends it": (
            "AB",
            {},
            """
        happens                | seconds | passes                                                 | sent
        held-off 300, write 30 | 5.5     |                                                        |
        healthy                | 1.5     | 6.0 interval satisfied: - / A removed 10, B removed 10 | A B
    """,
        ),
        "a pause ends a pass, and relief goes on after it": (
            "AB",
            {},
            """
        happens                        | seconds | passes                                                    | sent
        write 30, on check B: pause 60 | 30      | 0.0 interval not_enough: - / A removed 10, B kept: paused | A
                                       | 31      | 60.3 interval satisfied: - / B removed 10                 | A B
    """,
        ),
        "another configuration ends a pass, too": (
            "AB",
            {},
            """
        happens                      | seconds | passes | sent
        write 30, on check B: reload | 30      | 0.0 interval satisfied: - / A removed 10, B kept: reconfigured | A
    """,
        ),
        "a disk that answers late is decided about when it has": (
            "AB",
            {"pollFloor": "5s", "pollCeiling": "10s"},
            """
        happens                   | seconds | passes                                                 | sent
                                  | 0.1     |                                                        |
        write 30, Read 1, crossed | 9       | 1.1 interval satisfied: - / A removed 10, B removed 10 | A B
    """,
        ),
        "near a mark the disk is polled, and behind a pass for the next one": (
            "A",
            {"hard": {"imagefs.available": "469Mi"}, "pollFloor": "10ms"},
            """
        happens                     | seconds | polls for | looks
                                    | 0.1     | 480       | 1
        write 30, crossed, Send inf | 4       | 469       | 17
    """,
        ),
        "what runs within its own patience is not stuck": (
            "A",
            {},
            """
        happens                          | seconds | told
        write 30, patience 120, Send inf | 100     | 1 reclaiming 101 runtime_asked
    """,
        ),
        "a command's program keeps nobody from asking, and gives way to pressure": (
            "AB",
            {},
            """
        happens             | seconds | asked | passes | sent
        program, Send P inf | 61      | 2 2   |  |
        write 30, crossed   | 1       | 3 2   | 0.0 request not_enough: P parked its removal was sent 61 s ago and is not answered; it is waited for + 61.5 interval satisfied: - / A removed 10, B removed 10 | A B
    """,
        ),
        "where images are is asked while a pass runs": (
            "AB",
            {},
            """
        happens                                | seconds | images       | passes
                                               | 1       | /node/images |
        write 30, crossed, Send inf, elsewhere | 5       | /elsewhere   |
        answered                               | 1       | /elsewhere   | 1.2 interval satisfied: - / A removed 10, B removed 10
    """,
        ),
        "before its mark what is coming is freed, and no more": (
            "ABC",
            {},
            """
        happens | seconds | passes | sent
        kubelet | 0.5     |  |
        fill 8  | 2       | 2.2 lead satisfied: - / A removed 9, B kept: relieved, C kept: relieved | A
        fill 0  | 5       |  | A
    """,
        ),
        "also where a soft mark is in its grace": (
            "ABC",
            {
                "evictionSoft": {"nodefs.available": "900Mi"},
                "evictionSoftGracePeriod": {"nodefs.available": "1h"},
            },
            """
        happens | seconds | passes | sent
        kubelet | 0.5     |  |
        fill 8  | 2       | 2.2 lead not_enough: - / A removed 9, B kept: relieved, C kept: relieved | A
        fill 0  | 5       |  | A
    """,
        ),
        "no mark is near, and none is polled for": (
            "",
            {"assumedFillRate": "1Ki"},
            """
        happens | seconds | look                          | due | polls for
                | 1.5     | no mark can be reached sooner | 10  |
    """,
        ),
        "halfway": (
            "",
            {"assumedFillRate": "2Mi"},
            """
        happens | seconds | look                     | due
                | 1.5     | halfway to the next mark | 5
    """,
        ),
        "near, and nothing fills": (
            "",
            {},
            """
        happens | seconds | look                              | due
                | 1.5     | a mark is near, but nothing fills | 1
    """,
        ),
        "it fills": (
            "",
            {},
            """
        happens | seconds | look                              | due
        fill 8  | 1.5     | a mark is near, but nothing fills | 1
    """,
        ),
        "not yet": (
            "",
            {
                "assumedFillRate": "2Mi",
                "evictionSoft": {"nodefs.available": "490Mi"},
                "evictionSoftGracePeriod": {"nodefs.available": "1m"},
            },
            """
        happens  | seconds | look                                           | due
        write 15 | 7.5     | a threshold is met, but not to be acted on yet | 0.25
    """,
        ),
        "backing off": (
            "",
            {"assumedFillRate": "2Mi"},
            """
        happens  | seconds | look                                            | due
        write 30 | 1.5     | the row pauses after a pass that was not enough | 1
    """,
        ),
        "what is written is written back near a mark, and not where nothing fills": (
            "",
            {"hard": {"nodefs.available": "80Mi"}},
            """
        happens             | seconds | written back
        fill 8, WriteBack 2 | 22.3    | 0
                            | 0.3     | 1
                            | 7       | 4
        fill 0              | 10      | 4
                            | 10      | 4
    """,
        ),
        "a runtime that does not say is asked nothing else": (
            "",
            {},
            """
        happens    | seconds | asked | problem
        Locate inf | 200     | 1 0   | where its images are: it did not answer within 2 s
        answered   | 61      | 2 2   |
    """,
        ),
        "one that does not know is asked every second, and who uses them once it does": (
            "",
            {},
            """
        happens         | seconds | asked | problem | told
        problem no list | 5.5     | 6 0   | no list | 6 runtime_asked
        problem         | 5       | 7 1   |         | 1 detected 8 runtime_asked
        problem no list | 60      | 12 1  | no list | 1 detected 13 runtime_asked
    """,
        ),
        "who uses the images is not asked while something is relieved": (
            "A",
            {},
            """
        happens     | seconds | asked | sent
        Refresh inf | 1       | 1 1   |
        write 30    | 5       | 5 1   | A
    """,
        ),
        "wanted": (
            "",
            {"assumedFillRate": "1Ki", "pollFloor": "5s", "pollCeiling": "10s"},
            """
        happens     | seconds | look                          | due
                    | 1       | no mark can be reached sooner | 10
        look-wanted | 1       | it was asked for              | 5
    """,
        ),
    }
)
def test_what_happens_to_a_daemon(names: str, fields: Mapping[str, Any], story: str) -> None:
    """Its mark is at 480 MiB, of 500 that are available at first; 490 are to be reached."""
    assert_day(Site(names, daemon=True, **fields), story)


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


@each_row("""
    what | loop | ends | happens | seconds | plans | says
    a period after the last one ended | container | | Plan GC 10 | 155 | 10 80 150 |
    images every five minutes | image | | | 610 | 0 300 600 |
    every failure of containers is an event | container | a b - - c - | | 330 | 0 60 120 180 240 300 | warning container garbage collection failed: a event=ContainerGCFailed + warning container garbage collection failed: b event=ContainerGCFailed + info    container garbage collection succeeded again + warning container garbage collection failed: c event=ContainerGCFailed + info    container garbage collection succeeded again
    the first failure of images in a row is none | image | a b c - d | | 1210 | 0 300 600 900 1200 | error   image garbage collection failed once; statistics may not be there yet: a + warning image garbage collection failed again: b event=ImageGCFailed + warning image garbage collection failed again: c event=ImageGCFailed + info    image garbage collection succeeded again + error   image garbage collection failed once; statistics may not be there yet: d
    not while it is held off | container | | held-off 90.5 | 92 | 91 |
    but once the kubelet is healthy | container | | held-off 90.5, in 30.5 healthy | 32 | 31 |
""")
def test_the_loops_run_in_their_periods_and_tell_their_failures(
    loop: str, ends: str, happens: str, seconds: str, plans: str, says: str
) -> None:
    """A loop begins at once, and waits its period after each pass; a failure is not tried again
    sooner, and the success after it is told."""
    site, stage, _ = collecting("", *ends.split(), what=loop)
    site.happen(happens.replace("GC", CONTAINER_GC))
    site.engine.after(float(seconds))
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


def test_a_defect_in_a_pass_does_not_end_its_loop() -> None:
    """It is a failure like any other; a period later it runs again."""
    site, stage, _ = collecting("")
    stage.planned = types.Plan(remove=("defect",))  # type: ignore[arg-type] # that is the point
    site.engine.after(1.0)
    (said,) = logged(site)
    assert said.startswith("warning container garbage collection failed: AttributeError: ")
    stage.planned = types.Plan()
    site.engine.after(60.0)
    assert logged(site)[1:] == ["info    container garbage collection succeeded again"]


@pytest.mark.parametrize(("what", "names"), [(CONTAINER, "ab"), (IMAGE, "AB")])
def test_a_stop_ends_a_pass_which_is_told_but_no_failure(what: str, names: str) -> None:
    """What it has removed counts; that it did not come to its end is announced by nobody."""
    site, *_ = collecting(names, what=what)
    site.happen(f"on send {names[0]}: stop")
    site.engine.after(600.0)
    (record,) = [each for each in site.engine.said("collected") if each.removals]
    assert told(record) == f"satisfied: {names[0]} removed 0"
    assert (record.trigger, record.reason) == (Trigger.PERIODIC, "removed 1 object")
    assert (record.decision.layout, record.timings.detect_seconds) == (None, 0.0)
    assert (site.called("send"), logged(site)) == (names[0], [])
