"""Nothing is sent past the gate: it looks at the world as it is when the check
has been answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eviction.engine.effects import (
    Check,
    Effect,
    Event,
    PauseSet,
    Read,
    Reconfigured,
    Sampled,
    Send,
    Stopping,
)
from eviction.engine.fold import fold
from eviction.engine.gate import may_send, too_old
from eviction.engine.world import Pause, RunningPass, World
from reclaim.function import STATUS_FRESH_SECONDS, Ready
from reclaim.removals import Checked, Claim, StageId, State, moved_to, sent
from reclaim.types import Reason, Result
from signals.samplers import Sample
from signals.summary import Published
from tests.inline import FUNCTION, configured
from tests.pure.engine.site import DEVICE, HANGS, Site, reasons, record_of, results, verdict_of
from tests.pure.values import MIB

Change = Callable[[World], World]


def checking(*, now: bool = False, dry_run: bool = False) -> tuple[Site, World, RunningPass]:
    """A pass whose first object is being checked: nothing keeps it."""
    site = Site(3, wanted_mib=20)
    site.hang("abc", Check)
    site.begin(now=now, dry_run=dry_run)
    site.engine.until_it(Check)
    (the,) = site.engine.world.passes.values()
    return site, site.engine.world, the


def paused(world: World) -> World:
    """An operator has paused removals."""
    return world._replace(pause=world.pause.begun(world.now, 60.0))


def unknown(world: World) -> World:
    """Nobody knows whether one has."""
    return world._replace(pause=Pause().begun(world.now, 60.0, "the file cannot be read"))


def late_ones(count: int) -> Change:
    """So many removals are not answered."""

    def change(world: World) -> World:
        claims = (
            Claim("p", StageId(FUNCTION, 1), verdict_of(str(number)), world.now)
            for number in range(count)
        )
        late = {claim.id: moved_to(sent(claim, world.now), State.LATE) for claim in claims}
        return world._replace(removals={**world.removals, **late})

    return change


def available(size_bytes: int) -> Change:
    """So much is available by now."""

    def change(world: World) -> World:
        seen = {
            name: replace(each, available=size_bytes) if not name.counts_inodes else each
            for name, each in world.observations.signals.items()
        }
        return world._replace(observations=replace(world.observations, signals=seen))

    return change


def unreadable(world: World) -> World:
    """The disk does not answer any more."""
    seen = {name: replace(each, stale=True) for name, each in world.observations.signals.items()}
    readings = {path: Published(one.last, "cannot be read") for path, one in world.readings.items()}
    return world._replace(observations=replace(world.observations, signals=seen), readings=readings)


def mounted(world: World) -> World:
    """Another disk is where the images were."""
    seen = {
        role: (replace(identity, device_id=DEVICE + 1), stats)
        for role, (identity, stats) in world.observations.filesystems.items()
    }
    return world._replace(observations=replace(world.observations, filesystems=seen))


@pytest.mark.parametrize(
    ("change", "reason", "of_a_dry_run"),
    [
        (lambda world: world, None, None),
        (lambda world: world._replace(stopping=True), Reason.STOPPING, Reason.STOPPING),
        (paused, Reason.PAUSED, None),
        (unknown, Reason.PAUSED, None),
        (lambda world: paused(world)._replace(now=world.now + 60.0), None, None),
        (lambda world: world._replace(configuration=configured()), Reason.RECONFIGURED, None),
        (mounted, Reason.LAYOUT_CHANGED, Reason.LAYOUT_CHANGED),
        (unreadable, Reason.UNREADABLE, Reason.UNREADABLE),
        (available(520 * MIB), Reason.RELIEVED, Reason.RELIEVED),
        (available(520 * MIB - 1), None, None),
        (late_ones(1), None, None),
        (late_ones(2), Reason.RUNTIME_STUCK, None),
    ],
)
def test_what_keeps_an_object_from_being_sent(
    change: Change, reason: Reason | None, of_a_dry_run: Reason | None
) -> None:
    """Whatever has come between its claim and the answer of its check. A dry run sends nothing, so
    that a pause, a reload and a stuck runtime do not end it."""
    for dry_run, expected in ((False, reason), (True, of_a_dry_run)):
        _, world, the = checking(dry_run=dry_run)
        assert may_send(the, change(world)) == expected


def test_nothing_is_sent_for_a_pass_that_has_ended() -> None:
    """Nor for one that is not known any more."""
    _, world, the = checking()
    assert may_send(None, world) is Reason.STOPPING
    assert may_send(the._replace(ended=True), world) is Reason.STOPPING


def test_a_command_that_ignores_a_pause_ignores_the_one_that_it_knew() -> None:
    """`reclaim --now`: a pause that begins later stops it."""
    site = Site(3, wanted_mib=20)
    site.engine.world = paused(site.engine.world)
    site.hang("abc", Check)
    site.begin(now=True)
    site.engine.until_it(Check)
    (the,) = site.engine.world.passes.values()
    assert may_send(the, site.engine.world) is None
    assert may_send(the, paused(site.engine.world)) is Reason.PAUSED


def test_a_check_says_something_about_now_for_a_moment() -> None:
    """50 ms after its last look has ended; at no time if it was too old already."""
    _, world, _ = checking()
    assert not too_old(Checked(Ready(world.now), world.now - STATUS_FRESH_SECONDS), world)
    assert too_old(Checked(Ready(world.now), world.now - STATUS_FRESH_SECONDS - 0.001), world)
    assert too_old(Checked(None), world)


def test_a_check_that_has_waited_for_its_turn_is_repeated() -> None:
    """The answer was there 0.1 s before it could be taken in, as another check took that
    long: it is checked anew.
    """
    site, slow = Site(2, wanted_mib=20, parallel=2, sized=False), [0.1]
    site.store.on_check = lambda name: site.clock.step(slow.pop()) if name == "b" and slow else None
    assert results(site.relieve()) == dict.fromkeys("ab", Result.REMOVED)
    assert site.store.checked == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Stopping(), Reason.STOPPING),
        (PauseSet(60.0), Reason.PAUSED),
        (Reconfigured(configured(keepImages=["registry.example/b"])), Reason.RECONFIGURED),
    ],
)
@pytest.mark.regression
def test_what_comes_while_an_object_is_checked_is_in_force_for_it(
    event: Event, reason: Reason
) -> None:
    """The check has said that it may go, and nothing is sent; nor anything of the rest."""
    site = Site(3, wanted_mib=100)
    site.hang("a", Check)
    wanted = site.begin()
    site.engine.until_it(Check, "a")
    site.engine.events.append(event)
    site.engine.turn()
    site.engine.let_go()
    site.engine.until(wanted.record.done)
    assert site.store.sent == []
    assert reasons(record_of(wanted).functions[0]) == dict.fromkeys("abc", reason)


@pytest.mark.regression
def test_a_mount_while_an_object_is_checked_is_seen_before_it_is_sent() -> None:
    """The filesystem is read once more after the check, which may have taken long."""
    site = Site(2, wanted_mib=100)
    site.store.on_check = lambda _: setattr(site.disk, "device", DEVICE + 1)
    executed = site.relieve()
    assert site.store.sent == []
    assert set(reasons(executed).values()) == {Reason.LAYOUT_CHANGED}


@pytest.mark.regression
def test_a_reading_of_before_the_end_of_another_removal_lets_nothing_pass() -> None:
    """One object is enough. The other one was checked a moment before the first was gone, and the
    reading that was begun then does not show it."""
    site = Site(2, wanted_mib=10, parallel=2, sized=False)

    def takes(effect: Effect) -> float:
        match effect:
            case Read():
                return 0.02
            case Check(claim) if claim.verdict.id == "b":
                return 1.01
            case Send():
                return 1.0
            case _:
                return 0.0

    site.engine.takes = takes
    executed = site.relieve()
    assert site.store.sent == ["a"]
    assert reasons(executed)["b"] is Reason.RELIEVED


def test_what_waits_to_be_checked_again_is_kept_as_soon_as_the_gate_is_shut() -> None:
    """It waits for a minute, and a pause comes after a second: its pass ends then."""
    site = Site(1, wanted_mib=100)
    site.store.waits["a"] = [60.0]
    wanted = site.begin()
    site.engine.until(
        lambda: any(claim.state is State.WAITING for claim in site.engine.world.removals.values())
    )
    site.engine.passes_until(1.0)
    site.engine.events.append(PauseSet(600.0))
    site.engine.until(wanted.record.done)
    assert site.clock.monotonic() < 1002.0
    assert reasons(record_of(wanted).functions[0]) == {"a": Reason.PAUSED}


def test_who_pauses_learns_what_was_sent_before() -> None:
    """One removal is under way, which no pause calls back."""
    site = Site(2, wanted_mib=100)
    site.engine.takes = lambda effect: HANGS if isinstance(effect, Send) else 0.0
    site.begin()
    site.engine.until_it(Send)
    pause = PauseSet(60.0)
    site.engine.events.append(pause)
    site.engine.turn()
    assert pause.done.result() == 1


def test_a_reading_of_a_path_that_is_not_observed_changes_nothing() -> None:
    """It was asked for before the runtime said that images are elsewhere."""
    _, world, _ = checking()
    assert fold(world, Sampled(Sample("/elsewhere", world.now, problem="gone"))) == world
