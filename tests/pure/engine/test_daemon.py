"""What the daemon does between its passes: it looks, begins passes, pauses after them, is held back,
asks the runtime, and collects periodically.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eviction.engine.effects import (
    Locate,
    PauseSet,
    Read,
    Refresh,
    Sampled,
    Send,
    Tick,
    Watch,
    Withdrawn,
    WriteBack,
)
from eviction.engine.fold import fold
from eviction.engine.step import next_deadline
from eviction.engine.world import Pause
from eviction.records.passes import Trigger
from eviction.types import Extent
from signals.filesystems import FilesystemPaths, Reading
from signals.samplers import Sample
from signals.summary import asked
from signals.types import FilesystemIdentity, FilesystemRole, FsStats, Poll, Signal
from tests.pure.engine.site import (
    CONTAINERS,
    DEVICE,
    Disk,
    Site,
    Store,
    record_of,
    told,
)
from tests.pure.values import GIB, MIB, SteppedClock, rows_of, threshold


def assert_day(site: Site, story: str) -> None:
    """On each line something happens, and then so many seconds go by; the other columns are what
    there is by then. `passes`: those that have ended meanwhile, and when they began. `told`: how
    often, so far."""
    ended = looks = 0
    for row in rows_of(story):
        site.happen(row.pop("happens"))
        site.engine.after(float(row.pop("seconds")))
        world, records = site.engine.world, site.engine.said("passed")
        passes = (
            f"{one.started_wall - 1_800_000_000:.1f} {one.trigger} {told(one)}"
            for one in records[ended:]
        )
        found = {
            "passes": " + ".join(passes),
            "sent": site.called("send"),
            "look": world.look_why,
            "due": f"{world.look_due - world.looked_at:g}",
            "looks": str(world.looks - looks),
            "asked": site.engine.count(Locate, Refresh),
            "problem": world.asking.problem,
            "written back": site.engine.count(WriteBack),
            "told": "".join(
                f"{len(said)} {what} "
                for what in ("not_begun", "reclaiming", "takes_long", "detected")
                if (said := site.engine.said(what))
            ).strip(),
        }
        ended, looks = len(records), world.looks
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
                 | 1       |                                                    |      | 1 detected
        write 30 | 30      | 2.0 interval satisfied: a removed 10, b removed 10 | a b  | 1 reclaiming 1 detected
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
        happens  | seconds | passes | told         | look
        write 30 | 25      |        | 3 reclaiming | the row names no function
    """,
        ),
        "one that cannot end is told, looked at four times a second": (
            "A",
            {},
            """
        happens            | seconds | passes | told                       | look                                            | looks
        write 30, Send inf | 9       |  | 1 reclaiming               | a pass runs                                     | 37
                           | 3       |  | 1 reclaiming 8 takes_long  | a pass runs                                     | 12
                           | 20      | 0.0 interval not_enough: - / A parked its removal was sent 30 s ago and is not answered; it is waited for + 31.0 interval not_enough: - / A kept: being_removed | 2 reclaiming 80 takes_long | the row pauses after a pass that was not enough | 76
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
        held-off 9, write 30 | 5.5     |                                                        | a pass is due, but held off       | 6 not_begun
                             | 5       | 9.0 interval satisfied: - / A removed 10, B removed 10 | a mark is near, but nothing fills | 9 not_begun 1 reclaiming
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
        "no mark is near": (
            "",
            {"assumedFillRate": "1Ki"},
            """
        happens | seconds | look                          | due
                | 1.5     | no mark can be reached sooner | 10
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
        free 60           | 2       |
                          | 55      |
        """,
    )


@pytest.mark.regression
@pytest.mark.parametrize("pressed", [True, False])
def test_where_images_are_is_asked_while_something_runs(pressed: bool) -> None:
    """While a removal hangs; what the runtime says is in force, and ends that pass. Beside a
    command's program of ten minutes, who uses them is asked, too."""
    site = Site("A", daemon=True)
    program(site)
    site.happen("Send inf")
    site.engine.after(1.0)
    elsewhere = FilesystemPaths("/node", "/elsewhere", "/elsewhere")
    site.engine.located = elsewhere
    if pressed:
        site.happen("write 30, crossed")
        site.engine.until_it(Send)
    else:
        wanted = site.begin(signal=Signal.NODEFS_AVAILABLE, extent=Extent.ALL, row=("Program",))
    site.engine.after(5.0 if pressed else 61.0)
    assert site.engine.world.paths == elsewhere
    if not pressed:
        assert not wanted.record.done()
        assert site.engine.count(Locate, Refresh) == "2 2"


def program(site: Site) -> Store:
    """A function that may run for ten minutes."""
    store = Store(site.disk, "P")
    store.patience_seconds = 600.0
    site.serves(store, name="Program")
    return store


@pytest.mark.regression
def test_the_program_of_a_command_gives_way_to_pressure() -> None:
    """It has run for a minute: the disk is short, so its pass goes on without it, and the one of the
    daemon begins within a moment."""
    site = Site("AB", daemon=True)
    program(site)
    site.happen("Send P inf")
    wanted = site.begin(signal=Signal.NODEFS_AVAILABLE, extent=Extent.ALL, row=("Program",))
    site.engine.after(60.0)
    assert not wanted.record.done()
    site.happen("write 30, crossed")
    site.engine.after(1.0)
    assert told(record_of(wanted)).startswith("satisfied: P parked")
    assert site.called("send") == "A B"


def test_a_command_waits_for_the_pass_of_its_filesystem_and_a_dry_run_does_not() -> None:
    """A removal hangs for half a minute: the dry run is answered at once. The command has its turn
    after it, and learns that it was decided by what is not so any more; who has gone gets none, and
    is told that it was in time. Asked for anew, its pass runs."""
    site = Site("AB", daemon=True)
    site.happen("write 30, Send inf")
    site.engine.until_it(Send)
    about = {"signal": Signal.NODEFS_AVAILABLE, "extent": Extent.ALL}
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


@pytest.mark.parametrize("soft", [False, True], ids=["alone", "a soft mark is in its grace period"])
def test_a_pass_begins_before_its_mark_and_frees_what_is_coming(soft: bool) -> None:
    """The disk will be at the kubelet's mark within the second that a removal takes: objects go
    until what is written in that second fits above it, and no more once nothing fills."""
    site = Site("ABCDE", daemon=True)
    grace = (threshold(Signal.NODEFS_AVAILABLE, "900Mi", grace_seconds=3600.0),) * soft
    site.knows_the_kubelets_mark(*grace)
    site.engine.after(0.5)
    site.happen("fill 8")
    site.engine.until(lambda: bool(site.engine.said("passed")))
    assert site.engine.said("passed")[0].trigger is Trigger.LEAD
    assert site.disk.available >= 487 * MIB
    site.happen("fill 0")
    site.engine.after(5.0)
    assert site.called("send") == "A"


# ---- how it looks


@pytest.mark.parametrize("near", [True, False])
def test_near_a_mark_the_disk_is_polled_between_looks(near: bool) -> None:
    """Its sampler is told the level; far away it is not. While a pass waits for its removal, the
    next mark is polled for, and looks are 0.25 s apart all the same."""
    site = Site(
        "A",
        daemon=True,
        hard={"imagefs.available": "469Mi"},
        pollFloor="10ms",
        assumedFillRate="500Mi" if near else "1Mi",
    )
    site.engine.after(0.1)
    assert levels(site) == ({480 * MIB} if near else set())
    if near:
        site.happen("write 30, Send inf")
        site.engine.until_it(Send)
        site.engine.handed_out.clear()
        looks = site.engine.world.looks
        site.engine.after(4.0)
        assert levels(site) == {469 * MIB}
        assert site.engine.world.looks - looks <= 16


def levels(site: Site) -> set[int | None]:
    """That samplers were told to watch for."""
    watches = [effect for effect in site.engine.handed_out if isinstance(effect, Watch)]
    return {effect.levels.levels[0] for effect in watches}


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
    within 0.3 s."""
    slow, clock = ("/slow-1", "/slow-2", "/slow-3"), SteppedClock()
    disks = {path: Disk(clock, DEVICE + number) for number, path in enumerate(("/fast", *slow), 1)}
    names = {path.strip("/").replace("-", ""): path for path in disks}
    site = Site(
        daemon=True,
        clock=clock,
        disks=disks,
        hard={"nodefs.available": "0%", **{f"{name}.available": "480Mi" for name in names}},
        evictionMinimumReclaim={"fast.available": "10Mi"},
        filesystems=[{"name": name, "path": path} for name, path in names.items()],
        reclaimFunctions=[{"name": "prune", "exec": ["/bin/true"], "frees": "fast"}],
        reclaimTable={"fast.available": ["prune"]},
    )
    store = Store(disks["/fast"], "ABC")
    site.serves(store, name="prune")
    function = replace(site.engine.world.functions["prune"], frees=FilesystemRole("fast"))
    own = {FilesystemRole(name): path for name, path in names.items()}
    site.change(functions={"prune": function}, paths=site.engine.world.paths._replace(own=own))
    site.happen(", ".join(f"Read {path} 2.5" for path in slow))
    site.engine.after(30.0)
    reads = [
        each
        for effect in site.engine.handed_out
        if isinstance(effect, Read)
        for each in effect.paths
    ]
    assert {reads.count(path) for path in slow} <= {11, 12, 13}
    disks["/fast"].free(-30 * MIB)
    began = clock.monotonic()
    site.happen("crossed")
    site.engine.until(lambda: bool(site.engine.said("passed")))
    (record,) = site.engine.said("passed")
    assert (record.functions[0].relieved, store.sent) == (True, ["A", "B"])
    assert clock.monotonic() - began < 1.0  # 0.3 s of it are the wait for late space at the end
    assert record.timings.total_seconds < 0.5


@pytest.mark.regression
def test_a_filesystem_that_hangs_costs_no_turn() -> None:
    """Once its reading is late, that deadline is over, and is not due for as long as it hangs."""
    site = Site(daemon=True)
    site.engine.after(0.1)
    site.happen("Read inf")
    site.engine.look()
    site.clock.step(3.0)
    site.engine.events.append(Tick())
    site.engine.turn()
    world = site.engine.world
    assert all(reading.late(world.now) for reading in world.readings.values())
    assert next_deadline(world) > world.now


# ---- what holds it back


def test_a_pause_and_the_hold_off_end_by_themselves() -> None:
    """Each says until when. One that is forgotten ends after a day; one of which nothing is known
    any more, at once, if it was unknown and not begun by an operator."""
    none, pause = Pause(), Pause().begun(1000.0, 60.0)
    wall = 1_800_000_000.0
    assert (none.why(1000.0, wall), none.left_seconds(1000.0)) == ("", 0.0)
    why = "paused until 2027-01-15T08:01:00Z (reclaimd resume ends it)"
    assert (pause.why(1000.0, wall), pause.why(1060.0, wall + 60)) == (why, "")
    assert (pause.left_seconds(1059.0), pause.ended().why(1059.0, wall)) == (1.0, "")
    assert none.begun(0.0, 10 * 86_400.0).left_seconds(0.0) == 86_400.0
    site = Site(daemon=True)
    for unknown, left in (("", 60.0), ("the file cannot be read", 0.0)):
        site.engine.events += [PauseSet(60.0, unknown), PauseSet(0.0, if_unknown=True)]
        site.engine.settle()
        assert site.engine.world.pause.left_seconds(site.clock.monotonic()) == left
    world = site.engine.world
    assert [world._replace(hold_off_until=world.now + left).held_off() for left in (1.0, 0.0)] == [
        "the kubelet does not answer on /healthz; nothing is removed for another 1 s after the start",
        "",
    ]
