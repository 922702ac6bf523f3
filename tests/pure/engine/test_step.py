"""What the daemon does between its passes: it looks, begins passes, pauses after
them, and asks the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eviction.decision.synchronize import ManagerState
from eviction.engine.effects import (
    Crossed,
    Effect,
    KubeletHealthy,
    Locate,
    LookWanted,
    PassWanted,
    PauseSet,
    Read,
    Reconfigured,
    Refresh,
    Request,
    Sampled,
    Send,
    Stopping,
    Tick,
    Watch,
    Withdrawn,
    WriteBack,
)
from eviction.engine.fold import fold
from eviction.engine.step import backed_off, new_pass, next_deadline, next_look, seconds_halfway
from eviction.engine.world import LookWhy
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.types import Decision, Extent
from reclaim import types
from reclaim.types import (
    DELETE_ALL_UNUSED_CONTAINERS,
    DELETE_UNUSED_IMAGES,
    Action,
    Kind,
    Reason,
    ReclaimError,
    ReclaimResult,
    Result,
    Verdict,
)
from signals.filesystems import FilesystemPaths, Reading
from signals.samplers import Sample
from signals.summary import asked
from signals.types import FilesystemIdentity, FilesystemRole, FsStats, Poll, Signal
from tests.inline import configured, function_of
from tests.pure.engine.site import (
    DEVICE,
    HANGS,
    Disk,
    Site,
    Store,
    objects,
    outcome_of,
    plan_of,
    reasons,
    record_of,
    results,
    timed,
)
from tests.pure.values import GIB, MIB, SteppedClock, threshold

NEVER_MET = {"nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%", "imagefs.available": "0%"}
MARK_MIB = 480  # of nodefs, whose disk has 500 MiB available when a story begins
PRESSURE = -30 * MIB  # is written, and the mark is passed
FAST, SLOW = "/fast", ("/slow-1", "/slow-2", "/slow-3")


class Daemon:
    """A daemon on a node with one disk: dead containers a, b, … and images A, B, …, 10 MiB each."""

    def __init__(
        self,
        containers: int = 0,
        images: int = 5,
        *,
        hard: Mapping[str, str] | None = None,
        **fields: Any,
    ):
        self.clock = SteppedClock()
        self.disk = Disk(self.clock)
        self.containers = Store(self.disk, objects(containers), sized=False)
        self.images = Store(
            self.disk, {name.upper(): size for name, size in objects(images).items()}
        )
        configuration = configured(
            **{
                "parallelRemovals": 1,
                "evictionHard": {**NEVER_MET, "nodefs.available": f"{MARK_MIB}Mi", **(hard or {})},
                "evictionMinimumReclaim": {"nodefs.available": "10Mi"},
                **fields,
            }
        )
        named = {DELETE_ALL_UNUSED_CONTAINERS: self.containers, DELETE_UNUSED_IMAGES: self.images}
        functions = (
            function_of(store, name=name, side_by_side=True) for name, store in named.items()
        )
        self.engine = timed(self.clock, self.disk, *functions, configuration=configuration)
        world = self.engine.world
        self.engine.located = world.paths
        self.engine.world = world._replace(on_its_own=True, look_due=world.now)

    def after(self, seconds: float) -> None:
        """Everything that happens meanwhile."""
        self.engine.passes_until(seconds)

    @property
    def records(self) -> list[Pass]:
        """Of the passes that have ended."""
        return self.engine.said("passed")

    def count(self, kind: type[Effect]) -> int:
        """How many effects of this kind were handed out."""
        return sum(isinstance(effect, kind) for effect in self.engine.handed_out)

    def want(self, function: str = DELETE_UNUSED_IMAGES, **request: Any) -> PassWanted:
        """A command asks for a pass of this function about nodefs."""
        world = self.engine.world
        asked = Request(row=(function,), **request)
        signal = Signal.NODEFS_AVAILABLE
        wanted = PassWanted(
            world.observations,
            world.decision,
            Trigger.REQUEST,
            asked,
            signal,
            self.clock.monotonic(),
        )
        self.engine.events.append(wanted)
        return wanted


# ---- pressure


def test_pressure_is_noticed_relieved_and_recorded() -> None:
    """10 MiB below the mark, and 10 more are to be free: both containers go,
    no image; then it is quiet.
    """
    daemon = Daemon(containers=2)
    daemon.after(1.0)
    assert daemon.records == []
    daemon.disk.free(PRESSURE)
    daemon.after(30.0)
    (record,) = daemon.records
    assert (record.trigger, record.result) == (Trigger.INTERVAL, PassResult.SATISFIED)
    assert (daemon.containers.sent, daemon.images.sent) == (["a", "b"], [])
    assert record.decision.acted_on is not None
    assert record.observations.signals[Signal.NODEFS_AVAILABLE].available == 470 * MIB
    assert [one.signal for one in daemon.engine.said("reclaiming")] == [Signal.NODEFS_AVAILABLE]


@pytest.mark.parametrize(("urgent", "trigger"), [(True, Trigger.INTERVAL), (False, Trigger.WATCH)])
def test_a_look_that_is_wanted_comes_at_once_or_when_the_floor_allows(
    urgent: bool, trigger: Trigger
) -> None:
    """By a poll or a command at once; inotify may want more of them than there are to
    be, and is the trigger then.
    """
    daemon = Daemon()
    daemon.after(1.0)
    looks, now = daemon.engine.world.looks, daemon.clock.monotonic()
    daemon.disk.free(PRESSURE)
    for _ in range(100):
        daemon.engine.events.append(LookWanted(urgent))
    while daemon.engine.events:
        daemon.engine.turn()
    if urgent:
        assert daemon.engine.world.looks > looks
        assert daemon.clock.monotonic() - now < 0.1
    daemon.after(0.5)
    assert daemon.records[0].trigger is trigger
    assert daemon.engine.world.looks - looks < 150


def test_a_poll_that_has_seen_a_crossing_brings_a_look() -> None:
    """At once, and not only when it is due."""
    daemon = Daemon()
    daemon.after(1.0)
    daemon.disk.free(PRESSURE)
    daemon.engine.events.append(Crossed())
    daemon.engine.turn()
    assert daemon.engine.world.look is not None


@pytest.mark.parametrize("near", [True, False])
def test_near_a_mark_the_disk_is_polled_between_looks(near: bool) -> None:
    """Its sampler is told the level; far away it is not."""
    daemon = Daemon(assumedFillRate="500Mi" if near else "1Mi")
    daemon.after(0.1)
    watches = [effect for effect in daemon.engine.handed_out if isinstance(effect, Watch)]
    assert {effect.levels.levels[0] for effect in watches} == ({MARK_MIB * MIB} if near else set())


def test_while_a_pass_runs_polls_look_for_the_next_mark() -> None:
    """It waits for its removal 1 MiB above another mark, which the shortest interval is for: its
    looks are 0.25 s apart all the same, and the level is polled in between."""
    daemon = Daemon(hard={"imagefs.available": f"{MARK_MIB - 11}Mi"}, pollFloor="10ms")
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.disk.free(PRESSURE)
    daemon.engine.until_it(Send)
    looks, handed_out = daemon.engine.world.looks, len(daemon.engine.handed_out)
    daemon.after(4.0)
    watched = [
        effect for effect in daemon.engine.handed_out[handed_out:] if isinstance(effect, Watch)
    ]
    assert {effect.levels.levels[0] for effect in watched} == {(MARK_MIB - 11) * MIB}
    assert daemon.engine.world.looks - looks <= 4.0 / 0.25


SLOWLY = {"assumedFillRate": "2Mi"}  # halfway to the mark in 5 s


@pytest.mark.parametrize(
    ("fields", "written", "why", "longest_seconds"),
    [
        ({"assumedFillRate": "1Ki"}, 0, LookWhy.NO_MARK_NEAR, 10.0),
        (SLOWLY, 0, LookWhy.HALFWAY, 5.0),
        ({}, 0, LookWhy.NOTHING_FILLS, 1.0),
        ({**SLOWLY, "reclaimTable": {"nodefs.available": []}}, -PRESSURE, LookWhy.EMPTY_ROW, 1.0),
        (
            {**SLOWLY, "reclaimTable": {"nodefs.available": [DELETE_UNUSED_IMAGES]}},
            -PRESSURE,
            LookWhy.BACKS_OFF,
            1.0,
        ),
        (
            {
                **SLOWLY,
                "evictionSoft": {"nodefs.available": "490Mi"},
                "evictionSoftGracePeriod": {"nodefs.available": "1m"},
            },
            15 * MIB,
            LookWhy.NOT_YET,
            0.25,
        ),
    ],
)
def test_why_the_next_look_is_due_is_known(
    fields: dict[str, Any], written: int, why: LookWhy, longest_seconds: float
) -> None:
    """A sentence for `status`, and the longest interval that goes with it."""
    daemon = Daemon(images=0, **fields)
    daemon.after(1.0)
    daemon.disk.free(-written)
    daemon.engine.events.append(LookWanted(urgent=True))
    daemon.after(0.5)
    world = daemon.engine.world
    assert (world.look_why, world.look_due - world.looked_at <= longest_seconds) == (why, True)
    assert next_look(world._replace(now=world.looked_at), seconds_halfway(world))[1] is why


def test_while_something_fills_near_a_mark_polls_look_in_between() -> None:
    """1 MiB every 50 ms."""
    daemon = Daemon()
    for _ in range(15):
        daemon.disk.free(-MIB)
        daemon.engine.events.append(LookWanted(urgent=True))
        daemon.after(0.05)
    assert daemon.engine.world.look_why is LookWhy.POLLED


def test_a_look_that_is_wanted_and_has_to_wait_is_due_for_that_reason() -> None:
    """Until the floor allows it."""
    daemon = Daemon(pollFloor="5s", pollCeiling="10s", assumedFillRate="1Ki")
    daemon.after(1.0)
    daemon.engine.events.append(LookWanted())
    daemon.after(0.1)
    world = daemon.engine.world
    assert (world.look_why, world.look_due - world.looked_at) == (LookWhy.WANTED, 5.0)


def test_while_a_pass_runs_or_is_held_off_the_next_look_says_so() -> None:
    """Neither is a pause of its row."""
    daemon = Daemon()
    daemon.engine.world = daemon.engine.world._replace(
        hold_off_until=daemon.clock.monotonic() + 60.0
    )
    daemon.disk.free(PRESSURE)
    daemon.after(2.5)
    held_off = daemon.engine.world.look_why
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.engine.events.append(KubeletHealthy())
    daemon.after(1.0)
    assert (held_off, daemon.engine.world.look_why) == (LookWhy.HELD_OFF, LookWhy.RELIEVING)


@pytest.mark.regression
def test_while_a_pass_runs_there_are_four_looks_a_second() -> None:
    """A removal that hangs for 20 s, at a mark that is met all the while: no
    turn without a pause.
    """
    daemon = Daemon()
    daemon.after(0.1)
    daemon.disk.free(PRESSURE)
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.engine.until_it(Send)
    before = daemon.engine.world.looks
    daemon.after(20.0)
    assert 70 <= daemon.engine.world.looks - before <= 90


def test_a_row_without_a_function_is_told_every_ten_seconds() -> None:
    """Instead of a pass, as in the kubelet's own."""
    daemon = Daemon(reclaimTable={"nodefs.available": []})
    daemon.disk.free(PRESSURE)
    daemon.after(25.0)
    assert (len(daemon.engine.said("reclaiming")), daemon.records) == (3, [])


def test_a_pass_that_makes_no_progress_is_told() -> None:
    """After 10 s, with what it does."""
    daemon = Daemon()
    daemon.disk.free(PRESSURE)
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.after(9.0)
    assert daemon.engine.said("takes_long") == []
    daemon.after(3.0)
    what, seconds = daemon.engine.said("takes_long")[0]
    assert (what, seconds > 10.0) == ("relieving nodefs.available", True)


def test_after_a_stop_nothing_begins() -> None:
    """Neither a look nor a pass."""
    daemon = Daemon()
    daemon.after(1.0)
    daemon.engine.events.append(Stopping())
    daemon.engine.turn()
    daemon.disk.free(PRESSURE)
    looks = daemon.engine.world.looks
    daemon.after(60.0)
    assert (daemon.engine.world.looks - looks <= 1, daemon.records, daemon.images.sent) == (
        True,
        [],
        [],
    )


# ---- several filesystems


@pytest.mark.regression
@pytest.mark.parametrize("polled", ["/node", "/node/images"])
def test_the_polls_of_a_filesystem_count_in_whatever_order_its_paths_answer(polled: str) -> None:
    """Two looks a second apart; in between, polls have seen three falls: it fills at 100 MiB/s."""
    world, paths = Site(1, wanted_mib=1).engine.world, ("/node", "/node/images")
    world = world._replace(paths=FilesystemPaths(*paths, paths[0]), readings={}, fill_rates={})
    for second, available in ((0.0, 400), (1.0, 300)):
        at = world.now + second
        world = world._replace(now=at, readings=asked(world.readings, paths, at))
        polls = [
            Poll(at - ago, (available + int(100 * ago)) * MIB, 1000) for ago in (0.75, 0.5, 0.25)
        ]
        stats = FsStats(available * MIB, available * MIB, GIB, 1000, 2000, at)
        for path in paths:
            reading = Reading(stats, DEVICE, tuple(polls) if path == polled and second else ())
            world = fold(
                world, Sampled(Sample(path, at, reading, FilesystemIdentity(path, DEVICE)))
            )
    assert world.fill_rates[DEVICE, False].rate == 100 * MIB


@pytest.mark.regression
def test_slow_filesystems_delay_neither_each_other_nor_the_pass_on_a_fast_one() -> None:
    """Three answer after 2.5 s each.

    Each is read as often as one alone; the fast one is relieved within 0.3 s.
    """
    clock = SteppedClock()
    disks = {path: Disk(clock, DEVICE + number) for number, path in enumerate((FAST, *SLOW), 1)}
    names = {path.strip("/").replace("-", ""): path for path in disks}
    hard = {f"{name}.available": f"{MARK_MIB}Mi" for name in names}
    store = Store(disks[FAST], {"A": 10 * MIB, "B": 10 * MIB, "C": 10 * MIB})
    configuration = configured(
        evictionHard={**NEVER_MET, "nodefs.available": "0%", **hard},
        evictionMinimumReclaim={"fast.available": "10Mi"},
        filesystems=[{"name": name, "path": path} for name, path in names.items()],
        reclaimFunctions=[{"name": "prune", "exec": ["/bin/true"], "frees": "fast"}],
        reclaimTable={"fast.available": ["prune"]},
        parallelRemovals=1,
    )
    function = replace(function_of(store, name="prune"), frees=FilesystemRole("fast"))
    engine = timed(clock, Disk(clock), function, disks=disks, configuration=configuration)
    own = {FilesystemRole(name): path for name, path in names.items()}
    engine.world = engine.world._replace(
        on_its_own=True, look_due=engine.world.now, paths=engine.world.paths._replace(own=own)
    )
    engine.takes = lambda effect: (
        2.5 if isinstance(effect, Read) and effect.paths[0] in SLOW else 0.0
    )
    engine.passes_until(30.0)
    reads = [
        path for effect in engine.handed_out if isinstance(effect, Read) for path in effect.paths
    ]
    assert {reads.count(path) for path in SLOW} <= {11, 12, 13}
    disks[FAST].free(PRESSURE)
    began = clock.monotonic()
    engine.events.append(LookWanted(urgent=True))
    engine.until(lambda: bool(engine.said("passed")))
    (record,) = engine.said("passed")
    assert (record.functions[0].relieved, store.sent) == (True, ["A", "B"])
    assert clock.monotonic() - began < 1.0  # 0.3 s of it are the wait for late space at the end
    assert record.timings.total_seconds < 0.5


@pytest.mark.regression
def test_a_filesystem_that_hangs_costs_no_turn() -> None:
    """Once its reading is late, that deadline is over, and is not due for as long as it hangs."""
    daemon = Daemon()
    daemon.after(0.1)
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Read) else 0.0
    daemon.engine.look()
    daemon.clock.step(3.0)
    daemon.engine.events.append(Tick())
    daemon.engine.turn()
    world = daemon.engine.world
    assert all(reading.late(world.now) for reading in world.readings.values())
    assert next_deadline(world) > world.now


def test_a_reading_that_comes_after_its_look_is_decided_about_when_it_is_there() -> None:
    """The disk answers after 1 s, and is below its mark: the next look was not due before 5 s."""
    daemon = Daemon(pollFloor="5s", pollCeiling="10s")
    daemon.after(0.1)
    daemon.engine.takes = lambda effect: 1.0 if isinstance(effect, Read) else 0.0
    daemon.disk.free(PRESSURE)
    daemon.engine.events.append(LookWanted(urgent=True))
    looks = daemon.engine.world.looks
    daemon.engine.until(lambda: daemon.engine.world.looks == looks + 1)
    assert daemon.engine.world.passes == {}
    daemon.engine.until(lambda: bool(daemon.engine.world.passes))
    assert daemon.engine.world.now == pytest.approx(1001.1, abs=0.06)


# ---- after a pass


@pytest.mark.parametrize(
    ("result", "function", "seconds"),
    [
        (PassResult.SATISFIED, "freed", [0.0, 0.0, 0.0]),
        (PassResult.NOT_ENOUGH, "freed", [1.0, 1.0, 1.0]),
        (PassResult.FAILED, "nothing", [1.0, 1.0, 1.0]),
        (PassResult.NOT_ENOUGH, "nothing", [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
        (PassResult.NOT_ENOUGH, "young", [1.0, 1.5, 1.5]),
    ],
)
def test_a_row_pauses_for_longer_only_while_it_frees_nothing(
    result: PassResult, function: str, seconds: list[float]
) -> None:
    """None after success, 1 s after a gain and after a failure, else doubled, up to a minute; not
    beyond the next object's age."""
    functions = {
        "freed": ReclaimResult("f", (outcome_of("a", Result.REMOVED),)),
        "nothing": ReclaimResult("f"),
        "young": ReclaimResult("f", eligible_in_seconds=1.5),
    }
    world, found = Daemon().engine.world, []
    decision = Decision(frozenset(), (), None, ("f",), None)
    for _ in seconds:
        world, the = new_pass(world, Trigger.INTERVAL, Request(), decision=decision)
        record = Pass(
            "1",
            0.0,
            Trigger.INTERVAL,
            world.observations,
            decision,
            functions=(functions[function],),
        )
        world = backed_off(world, the, replace(record, result=result))
        found.append(world.lane(the.lane).back_offs["f",].until - world.now)
    assert found == seconds


def starts(daemon: Daemon) -> list[float]:
    """When its passes began, in seconds from the first one."""
    began = [record.started_wall for record in daemon.records]
    return [round(each - began[0]) for each in began]


def test_pressure_that_nothing_relieves_is_tried_again_less_and_less_often() -> None:
    """After 1, 2, 4, 8 s …"""
    daemon = Daemon(images=0)
    daemon.disk.free(PRESSURE)
    daemon.after(40.0)
    assert starts(daemon) == [0, 1, 3, 7, 15, 31]


@pytest.mark.regression
def test_pressure_that_flaps_does_not_begin_again_from_the_shortest_pause() -> None:
    """Every 3 s it is clear for a moment; once it was clear for 10 s, the next is new pressure."""
    daemon = Daemon(images=0)
    daemon.disk.free(PRESSURE)
    for _ in range(10):
        daemon.after(2.9)
        daemon.disk.free(-PRESSURE)
        daemon.after(0.1)
        daemon.disk.free(PRESSURE)
    assert len(starts(daemon)) < 7
    before = len(daemon.records)
    daemon.disk.free(-PRESSURE)
    daemon.after(25.0)
    daemon.disk.free(PRESSURE)
    daemon.after(3.9)
    assert len(daemon.records) - before == 3  # at once, after 1 s, after 2 s


def test_while_one_row_pauses_another_one_is_served() -> None:
    """Nothing relieves nodefs; the disk of the images has its own row, and is
    relieved meanwhile.
    """
    daemon = Daemon(
        hard={"imagefs.available": "470Mi"},
        reclaimTable={"nodefs.available": [DELETE_ALL_UNUSED_CONTAINERS]},
    )
    daemon.disk.free(PRESSURE)
    daemon.after(20.0)
    assert daemon.images.sent == []
    daemon.disk.free(-5 * MIB)
    daemon.after(2.0)
    assert daemon.images.sent != []


def test_a_failure_is_tried_again_after_a_second() -> None:
    """The runtime does not answer: whenever it does again, relief goes on."""
    daemon = Daemon()
    daemon.containers.planned = daemon.images.planned = ReclaimError("the runtime is away")
    daemon.disk.free(PRESSURE)
    daemon.after(5.5)
    assert [record.result for record in daemon.records] == [PassResult.FAILED] * 6
    daemon.images.planned = plan_of(daemon.images.sizes)
    daemon.after(2.0)
    assert daemon.records[-1].result is PassResult.SATISFIED


def test_a_defect_in_a_pass_does_not_end_the_daemon() -> None:
    """It is that pass's failure; a second later the next one relieves."""
    daemon = Daemon()
    daemon.images.planned = types.Plan(remove=("defect",))  # type: ignore[arg-type]
    daemon.disk.free(PRESSURE)
    daemon.after(0.5)
    assert daemon.records[0].result is PassResult.FAILED
    assert "AttributeError" in daemon.records[0].reason
    daemon.images.planned = plan_of(daemon.images.sizes)
    daemon.after(2.0)
    assert daemon.records[-1].result is PassResult.SATISFIED


# ---- what holds it back


def test_during_the_hold_off_nothing_begins_until_the_kubelet_is_healthy() -> None:
    """Why is told once a second; what has answered once has ended it for good."""
    daemon = Daemon()
    daemon.engine.world = daemon.engine.world._replace(
        hold_off_until=daemon.clock.monotonic() + 300.0
    )
    daemon.disk.free(PRESSURE)
    daemon.after(5.5)
    assert daemon.records == []
    assert len(daemon.engine.said("not_begun")) == 6
    assert "the kubelet does not answer on /healthz" in daemon.engine.said("not_begun")[0]
    daemon.engine.events.append(KubeletHealthy())
    daemon.after(1.5)
    assert daemon.records[0].result is PassResult.SATISFIED


def test_a_pause_ends_a_pass_and_when_it_is_over_relief_goes_on() -> None:
    """It comes while the second object is checked: one has gone."""
    daemon = Daemon()
    daemon.disk.free(PRESSURE)
    daemon.images.on_check = lambda name: (
        daemon.engine.events.append(PauseSet(60.0)) if name == "B" else None
    )
    daemon.after(30.0)
    assert daemon.images.sent == ["A"]
    assert set(reasons(daemon.records[0].functions[-1]).values()) == {Reason.PAUSED}
    daemon.images.on_check, daemon.images.planned = lambda _: None, plan_of(daemon.images.sizes)
    daemon.after(31.0)
    assert daemon.images.sent == ["A", "B"]


def test_a_pause_of_which_nothing_is_known_any_more_ends_only_if_it_was_unknown() -> None:
    """A file that can be read again ends no pause that an operator has begun."""
    daemon = Daemon()
    for unknown, left in (("", 60.0), ("the file cannot be read", 0.0)):
        daemon.engine.events += [PauseSet(60.0, unknown), PauseSet(0.0, if_unknown=True)]
        while daemon.engine.events:
            daemon.engine.turn()
        assert daemon.engine.world.pause.left_seconds(daemon.clock.monotonic()) == left


def test_another_configuration_ends_the_pass_and_the_next_one_begins_by_it() -> None:
    """A mark of 0 is loaded while the second object is checked: no more is removed."""
    daemon = Daemon()
    daemon.disk.free(PRESSURE)
    other = configured(evictionHard={**NEVER_MET, "nodefs.available": "0%"})
    daemon.images.on_check = lambda name: (
        daemon.engine.events.append(Reconfigured(other)) if name == "B" else None
    )
    daemon.after(30.0)
    assert (daemon.images.sent, len(daemon.records)) == (["A"], 1)
    assert set(reasons(daemon.records[0].functions[-1]).values()) == {Reason.RECONFIGURED}


# ---- commands


def test_a_command_waits_for_the_pass_of_its_filesystem_and_a_dry_run_does_not() -> None:
    """A removal hangs for half a minute: the dry run is answered at once. The command has
    its turn after it, and learns that it was decided by what is not so any more; asked
    for anew, its pass runs."""
    daemon = Daemon()
    daemon.disk.free(PRESSURE)
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.engine.until_it(Send)
    dry, wanted = daemon.want(dry_run=True), daemon.want(extent=Extent.ALL)
    daemon.after(1.0)
    assert dry.record.done()
    assert not wanted.record.done()
    daemon.engine.let_go()
    daemon.after(1.0)
    assert wanted.record.result(0.0) is None
    assert len(daemon.records) == 1
    wanted = daemon.want(extent=Extent.ALL)
    daemon.after(1.0)
    assert daemon.records[1:] == [record_of(wanted)], "a dry run on request is no news"


def test_who_has_gone_before_the_pass_began_gets_none() -> None:
    """And is told that it was in time; not once it has begun."""
    daemon = Daemon()
    daemon.disk.free(PRESSURE)
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.engine.until_it(Send)
    wanted = daemon.want(extent=Extent.ALL)
    first, second = Withdrawn(wanted), Withdrawn(wanted)
    daemon.engine.events += [first, second]
    daemon.after(0.5)
    daemon.engine.let_go()
    daemon.after(1.0)
    assert (first.done.result(), second.done.result(), wanted.record.done()) == (True, False, False)


@pytest.mark.regression
def test_the_program_of_a_command_gives_way_to_pressure() -> None:
    """It may run for ten minutes, and has run for one: the disk is short, so its pass goes on
    without it, and the one of the daemon begins within a moment."""
    daemon = Daemon()
    program = Store(daemon.disk, {"program": 10 * MIB})
    program.patience_seconds = 600.0
    functions = {**daemon.engine.world.functions, "Program": function_of(program, name="Program")}
    daemon.engine.world = daemon.engine.world._replace(functions=functions)
    daemon.engine.takes = lambda each: (
        HANGS if isinstance(each, Send) and each.claim.verdict.id == "program" else 0.0
    )
    daemon.after(1.0)
    wanted = daemon.want("Program", extent=Extent.ALL)
    daemon.after(60.0)
    assert not wanted.record.done()
    daemon.disk.free(PRESSURE)
    daemon.engine.events.append(Crossed())
    daemon.after(1.0)
    assert results(record_of(wanted).functions[0]) == {"program": Result.PARKED}
    assert daemon.images.sent == ["A", "B"]


# ---- the lead


@pytest.mark.parametrize("soft", [False, True], ids=["alone", "a soft mark is in its grace period"])
def test_a_pass_begins_before_its_mark_and_frees_what_is_coming(soft: bool) -> None:
    """The disk will be at the kubelet's mark within the second that a removal takes: objects go
    until what is written in that second fits above it, and no more once nothing fills."""
    daemon = Daemon(images=5, containers=0)
    config = daemon.engine.world.manager.config
    kubelets = (threshold(Signal.NODEFS_AVAILABLE, f"{MARK_MIB - 1}Mi"),)
    soft_ones = (threshold(Signal.NODEFS_AVAILABLE, "900Mi", grace_seconds=3600.0),) * soft
    config = replace(config, kubelets=kubelets, thresholds=(*config.thresholds, *soft_ones))
    daemon.engine.world = daemon.engine.world._replace(manager=ManagerState(config))
    daemon.after(0.5)
    daemon.disk.fills_by = 8.0 * MIB
    daemon.engine.until(lambda: bool(daemon.records))
    assert daemon.records[0].trigger is Trigger.LEAD
    assert daemon.images.sent == ["A"]
    assert daemon.disk.available >= (MARK_MIB + 7) * MIB
    daemon.disk.fills_by = 0.0
    daemon.after(5.0)
    assert daemon.images.sent == ["A"]


def test_what_is_only_coming_takes_no_last_resort() -> None:
    """It may not come. Below the mark the last resort goes, too."""
    daemon = Daemon(images=0, containers=0)
    held = Verdict(Kind.IMAGE, "H", "H", Action.KEEP, Reason.NOT_PULLED, 10 * MIB, last_resort=True)
    daemon.images.planned = replace(daemon.images.plan(), keep=(held,))
    last = Store(daemon.disk, {"H": 10 * MIB})
    name = DELETE_UNUSED_IMAGES
    images = function_of(daemon.images, name=name, last_resort=lambda _: (last,))
    world = daemon.engine.world
    config = replace(
        world.manager.config, kubelets=(threshold(Signal.NODEFS_AVAILABLE, f"{MARK_MIB - 1}Mi"),)
    )
    functions = {**world.functions, name: images}
    daemon.engine.world = world._replace(functions=functions, manager=ManagerState(config))
    daemon.after(0.5)
    daemon.disk.fills_by = 8.0 * MIB
    daemon.engine.until(lambda: bool(daemon.records))
    assert (daemon.records[0].trigger, last.plans) == (Trigger.LEAD, 0)
    daemon.engine.until(lambda: bool(last.sent))
    assert daemon.disk.available < (MARK_MIB + 10) * MIB  # it has freed as much


def test_what_is_written_is_written_back_near_a_mark() -> None:
    """From half a minute before it on, one after another; how long the last one took is how slow
    the disk is now. Not where nothing fills."""
    daemon = Daemon(hard={"nodefs.available": f"{MARK_MIB - 400}Mi"})
    daemon.engine.takes = lambda effect: 2.0 if isinstance(effect, WriteBack) else 0.0
    daemon.after(1.0)
    daemon.disk.fills_by = 8.0 * MIB
    daemon.engine.until_it(WriteBack)
    assert 220 * MIB < daemon.disk.available - (MARK_MIB - 400) * MIB <= 240 * MIB
    daemon.after(7.0)
    assert (daemon.count(WriteBack), daemon.engine.world.lead_seconds(DEVICE)) == (4, 2.0)
    daemon.disk.fills_by = 0.0
    daemon.after(10.0)
    assert daemon.count(WriteBack) <= 5
    assert daemon.engine.world.writebacks == {}


# ---- the runtime


def test_where_images_are_is_asked_every_minute_and_every_second_under_pressure() -> None:
    """Nothing can be relieved in the wrong place.

    Who uses them is asked while there is none, every minute.
    """
    daemon = Daemon(images=0)
    daemon.after(119.0)
    assert (daemon.count(Locate), daemon.count(Refresh)) == (2, 2)
    daemon.disk.free(PRESSURE)
    daemon.engine.events.append(Crossed())
    daemon.after(20.0)
    assert daemon.count(Locate) >= 12
    assert daemon.count(Refresh) == 2
    assert daemon.engine.said("detected") != []
    daemon.disk.free(-2 * PRESSURE)  # which is reported for five minutes more
    daemon.after(2.0)
    located = daemon.count(Locate)
    daemon.after(55.0)
    assert (daemon.engine.world.under_pressure, daemon.count(Locate) - located) == (True, 0)


@pytest.mark.regression
def test_where_images_are_is_asked_while_a_pass_runs() -> None:
    """A removal hangs for half a minute; what the runtime says meanwhile is in
    force, and ends that pass.
    """
    daemon = Daemon()
    daemon.after(1.0)
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.disk.free(PRESSURE)
    daemon.engine.events.append(Crossed())
    daemon.engine.until_it(Send)
    before = daemon.count(Locate)
    elsewhere = FilesystemPaths("/node", "/elsewhere", "/elsewhere")
    daemon.engine.located = elsewhere
    daemon.after(60.0 if before < 2 else 5.0)
    assert daemon.count(Locate) > before
    assert daemon.engine.world.paths == elsewhere


@pytest.mark.regression
def test_a_program_that_runs_keeps_nobody_from_asking_the_runtime() -> None:
    """A command's program of ten minutes: where images are, and who uses them, is asked
    every minute all the while.
    """
    daemon = Daemon()
    program = Store(daemon.disk, {"program": 10 * MIB})
    program.patience_seconds = 600.0
    functions = {**daemon.engine.world.functions, "Program": function_of(program, name="Program")}
    daemon.engine.world = daemon.engine.world._replace(functions=functions)
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    daemon.after(1.0)
    wanted = daemon.want("Program", extent=Extent.ALL)
    daemon.after(61.0)
    assert not wanted.record.done()
    assert (daemon.count(Locate), daemon.count(Refresh)) == (2, 2)
    assert len(daemon.engine.said("detected")) == 2


def test_a_runtime_that_does_not_say_is_told_after_two_seconds_and_asked_by_nobody_else() -> None:
    """Once; while the answer is awaited it is not asked again, nor who uses its images."""
    daemon = Daemon()
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Locate | Refresh) else 0.0
    daemon.after(200.0)
    assert (daemon.count(Locate), daemon.count(Refresh)) == (1, 0)
    (told,) = daemon.engine.said("runtime_asked")
    assert told == ("where its images are: it did not answer within 2 s", None)
    daemon.engine.let_go()
    assert daemon.engine.world.asking.problem == ""


def test_who_uses_the_images_is_not_asked_while_something_is_relieved() -> None:
    """A pass asks for itself; and a question that hangs does not keep it from beginning."""
    daemon = Daemon()
    daemon.engine.takes = lambda effect: HANGS if isinstance(effect, Refresh) else 0.0
    daemon.after(1.0)
    assert daemon.count(Refresh) == 1
    daemon.disk.free(PRESSURE)
    daemon.after(5.0)
    assert daemon.records[0].result is PassResult.SATISFIED
    assert daemon.count(Refresh) == 1
