"""The periodic loops: when they run, and what they announce after a failure.

Source: kubelet, `StartGarbageCollection` in `pkg/kubelet/kubelet.go`.
"""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from eviction.engine.effects import Effect, KubeletHealthy, Plan, Send, Stopping
from eviction.engine.node import Node
from eviction.engine.periodic import (
    CONTAINER,
    CONTAINER_PERIOD_SECONDS,
    IMAGE,
    IMAGE_PERIOD_SECONDS,
    loops,
)
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.surface.announcements import Announcements
from eviction.wording.log import Log
from reclaim import types
from reclaim.functions.periodic_image_gc import IMAGE_GC
from reclaim.functions.table import CONTAINER_GC
from reclaim.types import EventReason, GCEvent, ReclaimError
from tests.inline import configured, function_of
from tests.pure.engine.site import HANGS, Disk, Store, objects, plan_of, timed
from tests.pure.values import MIB, SteppedClock


class Loops:
    """Both loops over objects in memory. `ends`: how the next plans of the loop that is told about
    end: an error, or none; each takes `seconds`."""

    def __init__(self, what: str = CONTAINER, *ends: str, seconds: float = 0.0):
        self.clock = SteppedClock()
        self.began: list[float] = []
        self.ends = list(ends)
        disk = Disk(self.clock)
        self.containers, self.images = Store(disk, {}, sized=False), Store(disk, {})
        story = self

        class Told(Store):
            """A stage whose plans end as told."""

            def plan(self) -> types.Plan:
                """Notes when."""
                story.began.append(round(story.clock.monotonic() - 1000.0 - seconds))
                if story.ends and (error := story.ends.pop(0)):
                    raise KeyError(error) if error == "defect" else ReclaimError(error)
                return super().plan()

        told = Told(disk, {}, sized=what is IMAGE)
        if what is CONTAINER:
            self.containers = told
        else:
            self.images = told
        functions = (
            function_of(self.containers, name=CONTAINER_GC),
            function_of(self.images, name=IMAGE_GC),
        )
        self.name = CONTAINER_GC if what is CONTAINER else IMAGE_GC
        self.engine = timed(self.clock, disk, *functions, configuration=configured(periodicGC=True))
        self.engine.takes = lambda effect: self.takes(effect, seconds)
        world = self.engine.world
        both = loops(world.now, images=True)
        self.engine.world = world._replace(on_its_own=True, periodic=both)

    def takes(self, effect: Effect, seconds: float) -> float:
        """How long plans of the loop take."""
        return seconds if isinstance(effect, Plan) and effect.stage.function == self.name else 0.0

    def said(self, verbosity: int = 0) -> list[str]:
        """What was logged of all that the listeners were told, without the time."""
        out = StringIO()
        log = Log(self.clock.wall, stream=out, verbosity=verbosity)
        announcements = Announcements(Node(configured(), clock=self.clock), log)
        for tell in self.engine.told:
            if tell.what == "collection_ended":
                announcements.collection_ended(*tell.about)  # type: ignore[arg-type]
        return [line.split(" ", 1)[1].strip() for line in out.getvalue().splitlines()]


def test_the_first_pass_comes_at_once_and_the_next_a_period_after_the_last_one_ended() -> None:
    """A pass of 10 s shifts the next one: 0, 10 + 60, 80 + 60 seconds."""
    story = Loops(CONTAINER, seconds=10.0)
    story.engine.passes_until(145.0)
    assert story.began == [0, 70, 140][: len(story.began)]
    assert len(story.began) == 2
    story.engine.passes_until(10.0)
    assert story.began == [0, 70, 140]


def test_the_periods_are_a_minute_and_five() -> None:
    """Kubelet: ContainerGCPeriod and ImageGCPeriod."""
    assert (CONTAINER_PERIOD_SECONDS, IMAGE_PERIOD_SECONDS) == (60.0, 300.0)
    story = Loops(IMAGE)
    story.engine.passes_until(610.0)
    assert (story.began, story.containers.plans) == ([0, 300, 600], 11)


def test_without_a_mark_or_an_age_there_is_no_loop_of_images() -> None:
    """As in the kubelet."""
    assert [loop.what for loop in loops(0.0, images=False)] == [CONTAINER]


def test_a_loop_removes_one_object_at_a_time_beside_whatever_else_runs() -> None:
    """The other loop hangs; it promises nothing and relieves nothing, so all of its plan goes."""
    story = Loops(IMAGE)
    story.containers.sizes, story.containers.planned = objects(3), plan_of(objects(3), sized=False)
    story.images.sizes, story.images.planned = {"x": 10 * MIB}, plan_of({"x": 10 * MIB})
    at_once: list[int] = []
    story.containers.on_remove = lambda _: at_once.append(
        sum(
            claim.sent_at is not None and claim.verdict.id != "x"
            for claim in story.engine.world.removals.values()
        )
    )
    story.engine.takes = lambda effect: (
        HANGS if isinstance(effect, Send) and effect.claim.verdict.id == "x" else 0.0
    )
    story.engine.passes_until(5.0)
    assert (story.containers.sent, at_once) == (["a", "b", "c"], [1, 1, 1])


def test_every_failure_of_the_container_loop_is_an_event() -> None:
    """The first one too; the success after it is announced, further ones are not."""
    story = Loops(CONTAINER, "a", "b", "", "", "c", "")
    story.engine.passes_until(330.0)
    assert story.said() == [
        "warning container garbage collection failed: a event=ContainerGCFailed",
        "warning container garbage collection failed: b event=ContainerGCFailed",
        "info    container garbage collection succeeded again",
        "warning container garbage collection failed: c event=ContainerGCFailed",
        "info    container garbage collection succeeded again",
    ]


def test_of_the_image_loop_the_first_failure_in_a_row_is_no_event() -> None:
    """It is logged, because statistics may not be available yet; every further one is an event."""
    story = Loops(IMAGE, "a", "b", "c", "", "d")
    story.engine.passes_until(1210.0)
    assert story.said() == [
        "error   image garbage collection failed once; statistics may not be there yet: a",
        "warning image garbage collection failed again: b event=ImageGCFailed",
        "warning image garbage collection failed again: c event=ImageGCFailed",
        "info    image garbage collection succeeded again",
        "error   image garbage collection failed once; statistics may not be there yet: d",
    ]


def test_a_success_after_a_success_is_a_debug_line() -> None:
    """With `-v 1`."""
    story = Loops()
    story.engine.passes_until(1.0)
    assert "debug   container garbage collection succeeded" in story.said(verbosity=1)


def test_the_event_of_having_freed_too_little_is_the_pass_s_failure_too() -> None:
    """With the same text, as in the kubelet.

    Images of after an age sweep: the second stage knows what was wanted.
    """
    event = GCEvent(EventReason.FREE_DISK_SPACE_FAILED, "freed too little")
    story = Loops(IMAGE)
    space = Store(story.images.disk, {"x": 10 * MIB})
    wanted: list[int] = []

    def event_of(freed: int) -> GCEvent:
        wanted.append(freed)
        return event

    space.planned = replace(plan_of(space.sizes), target_bytes=20 * MIB, event_of=event_of)
    functions = {
        **story.engine.world.functions,
        IMAGE_GC: function_of(story.images, space, name=IMAGE_GC),
    }
    story.engine.world = story.engine.world._replace(functions=functions)
    story.engine.passes_until(1.0)
    records: list[Pass] = story.engine.said("collected")
    (record,) = [each for each in records if each.row == (IMAGE_GC,)]
    assert (record.errors, record.reason) == (("freed too little",), "freed too little")
    assert wanted == [10 * MIB]
    assert any("freed too little event=FreeDiskSpaceFailed" in line for line in story.said())


@pytest.mark.regression
def test_the_loop_of_images_has_no_last_resort() -> None:
    """Enough is promised before what cannot be pulled again has its turn: the pass is
    over, and the loop goes on.
    """
    story = Loops(IMAGE)
    space = Store(story.images.disk, {"a": 10 * MIB, "b": 10 * MIB})
    pulled, side_loaded = plan_of(space.sizes).remove
    space.planned = types.Plan(
        (pulled, side_loaded._replace(last_resort=True)), target_bytes=10 * MIB
    )
    functions = {
        **story.engine.world.functions,
        IMAGE_GC: function_of(story.images, space, name=IMAGE_GC),
    }
    story.engine.world = story.engine.world._replace(functions=functions)
    story.engine.passes_until(310.0)
    records: list[Pass] = story.engine.said("collected")
    assert [each.errors for each in records if each.row == (IMAGE_GC,)] == [(), ()]
    assert space.sent[0] == "a"


@pytest.mark.regression
def test_a_defect_in_a_pass_does_not_end_the_loop() -> None:
    """It is a failure like any other; a period later it runs again."""
    story = Loops(CONTAINER)
    story.containers.planned = types.Plan(remove=("defect",))  # type: ignore[arg-type]
    story.engine.passes_until(1.0)
    (said,) = story.said()
    assert said.startswith("warning container garbage collection failed: AttributeError: ")
    story.containers.planned = types.Plan()
    story.engine.passes_until(60.0)
    assert story.said()[1:] == ["info    container garbage collection succeeded again"]


def test_while_everything_is_held_off_no_pass_runs() -> None:
    """It begins a second after at the latest, or once the kubelet is healthy."""
    for healthy_after, begins in ((None, 91), (30.5, 31)):
        story = Loops()
        story.engine.world = story.engine.world._replace(hold_off_until=1090.5)
        story.engine.passes_until(healthy_after or 90.0)
        assert story.began == []
        if healthy_after is not None:
            story.engine.events.append(KubeletHealthy())
        story.engine.passes_until(2.0)
        assert story.began == [begins]


@pytest.mark.parametrize("what", [CONTAINER, IMAGE])
def test_a_stop_ends_a_pass_which_is_told_but_no_failure(what: str) -> None:
    """What it has removed counts; that it did not come to its end is announced by nobody."""
    story = Loops(what)
    store = story.containers if what is CONTAINER else story.images
    store.sizes, store.planned = objects(2), plan_of(objects(2))
    store.on_remove = lambda _: story.engine.events.append(Stopping())
    story.engine.passes_until(2.0)
    collected: list[Pass] = story.engine.said("collected")
    record = next(record for record in collected if record.removals)
    assert ([outcome.verdict.id for outcome in record.removals], record.errors) == (["a"], ())
    assert (record.trigger, record.row) == (Trigger.PERIODIC, (story.name,))
    assert (record.result, record.reason) == (PassResult.SATISFIED, "removed 1 object")
    assert (record.decision.layout, record.timings.detect_seconds) == (None, 0.0)
    assert record.measured == record.removals[0].freed
    story.engine.passes_until(600.0)
    assert store.sent == ["a"]
