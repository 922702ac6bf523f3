"""One pass: what goes, in which order, what is sent and what is not, and when it ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eviction.engine.effects import (
    Check,
    Effect,
    Plan,
    Progressed,
    Sampled,
    Send,
    Tick,
)
from eviction.engine.fold import fold
from eviction.engine.gate import may_send, too_old
from eviction.engine.step import next_deadline
from eviction.records.passes import PassResult, Trigger
from eviction.types import Extent
from reclaim import types
from reclaim.function import STATUS_FRESH_SECONDS, Ready
from reclaim.removals import Checked, Claim, StageId, State, moved_to, sent_claims
from reclaim.types import Reason, Result
from signals.samplers import Sample
from signals.types import Signal
from tests.pure.engine.site import (
    CONTAINERS,
    IMAGES,
    Defective,
    Disk,
    Site,
    Store,
    told,
    verdict_of,
)
from tests.pure.values import MIB, threshold
from tests.rows import rows, rows_of


def assert_passes(site: Site, story: str) -> None:
    """On each line something happens first. Then there is a pass, if so many MiB more are wanted;
    which objects were sent by then, and what became of each in that pass."""
    for row in rows_of(story):
        site.request.clear()
        site.happen(row["happens"])
        site.engine.settle()
        if row["wanted"]:
            assert told(site.passed(int(row["wanted"]))) == row["becomes"]
        assert site.called("send") == row["sent"]


@rows("""
    what | names | wanted | happens | sent | becomes | seconds
    nothing more is removed than needed | ABC | 20 |  | A B | satisfied: A removed 10, B removed 10, C kept: relieved | 0.00
    what is not enough goes to the end | ABC | 100 |  | A B C | not_enough: A removed 10, B removed 10, C removed 10 | 0.26
    with extent all, too | ABC | 0 | all | A B C | satisfied: A removed 10, B removed 10, C removed 10 | 0.01
    what the plan keeps is passed on | A | 10 | K kept pinned | A | satisfied: A removed 10, K kept: pinned | 0.00
    what is refused or fails is left out | ABCD | 10 | A refused running, B refused in_use, C stuck | C D | satisfied: C failed the runtime reported success but still has it, D removed 10, A kept: running, B in_use: in_use | 0.01
    what was gone already frees nothing | AB | 10 | A gone | B | satisfied: A already_gone, B removed 10 | 0.00
    so does what somebody removes meanwhile | AB | 10 | on send A: A vanishes | A B | satisfied: A already_gone, B removed 10 | 0.01
    a call that fails may have removed it | AB | 10 | A fails | A | satisfied: A removed 10 busy, B kept: relieved | 0.00
    or may not | AB | 10 | A stuck fails | A B | satisfied: A failed busy, B removed 10 | 0.00
    before a check silence ends the stage | ABC | 100 | B silent | A | not_enough: A removed 10, B unanswered the runtime does not answer, C kept: incomplete_listing; the runtime does not answer | 0.25
    after a call, too | ABC | 100 | B mute | A B | not_enough: A removed 10, B unanswered the runtime has gone away, C kept: incomplete_listing; the runtime has gone away | 0.25
    an answer that is an error is about one object | ABC | 100 | A unlike | B C | not_enough: A failed the runtime does not like it, B removed 10, C removed 10 | 0.26
    it waits, however often | A | 10 | A waits 1 40 | A | satisfied: A removed 10 | 40.04
    no check is fresh enough | A | 10 | check 1.5 |  | not_enough: A failed none of its 20 checks was fresher than 1 s, and of after the last container began, when the removal was to be sent | 30.02
    a slow last look keeps no image | AB | 20 | fresh 1, look 1.1 | A B | satisfied: A removed 10, B removed 10 | 2.20
    nor a container | AB | 20 | fresh 0.05, look 0.06 | A B | satisfied: A removed 10, B removed 10 | 0.12
    of two at once the first goes first | ab | 20 | parallelRemovals 2, Check a 0.02 | a b | satisfied: a removed 0, b removed 0 | 0.02
    a check that takes long holds up nobody | ab | 20 | parallelRemovals 2, Check a 1 | b a | satisfied: a removed 10, b removed 0 | 1.00
    while it waited for its turn it became too old | ab | 20 | parallelRemovals 2, on check b: take 0.1 | a b | satisfied: a removed 0, b removed 0 | 0.11
    each has freed what was promised for it | AB | 100 | parallelRemovals 2, A size 2, B size 40 | A B | not_enough: A removed 2, B removed 40 | 0.25
    what it frees long before its end is its own | A | 100 | Send A 10, A holds 0, in 1 free 10 | A | not_enough: A removed 10 | 10.25
    they stand in the order of the plan | AB | 100 | parallelRemovals 2, Send A 2, Send B 1 | B A | not_enough: A removed 10, B removed 10 | 2.25
    a reading of before the end of another is not enough | ab | 10 | parallelRemovals 2, Read 0.02, Check b 1.01, Send 1 | a | satisfied: a removed 10, b kept: relieved | 1.07
    late space is waited for | AB | 10 | late 0.1 | A | satisfied: A removed 10, B kept: relieved | 0.13
    also of what promises nothing | abA | 20 | late 0.2, frees late | a b | satisfied: a removed 0, b removed 0 | 0.22
    after each that frees less than it promised | ABCD | 100 | A holds 0, B holds 0, C holds 0, D holds 4 | A B C D | not_enough: A removed 0, B removed 0, C removed 0, D removed 4 | 1.26
    not longer than 5 s | A | 400 | on send A: fill -2 | A | not_enough: A removed 10 | 5.00
    not where it is urgent | ABC | 15 | full-in 10, late 5 | A B C | not_enough: A removed 0, B removed 0, C removed 0 | 0.26
    functions come in order | abAB | 30 |  | a b A | satisfied: a removed 10, b removed 10 / A removed 10, B kept: relieved | 0.01
    one that was not reached is not in the record | abAB | 10 |  | a | satisfied: a removed 10, b kept: relieved | 0.00
    an error does not stop the next | abAB | 10 | containers unlisted | A | satisfied: no list / A removed 10, B kept: relieved | 0.00
    where it is urgent they go side by side | abAB | 100 | full-in 10 | a A B b | not_enough: a removed 10, b removed 10 / A removed 10, B removed 10 | 0.26
    one of eight is of what promises nothing | abcdABCDEFGHIJKL | 200 | full-in 10 | a A B C D E F G b H I J K L c d | not_enough: a removed 10, b removed 10, c removed 10, d removed 10 / A removed 10, B removed 10, C removed 10, D removed 10, E removed 10, F removed 10, G removed 10, H removed 10, I removed 10, J removed 10, K removed 10, L removed 10 | 0.28
    it becomes urgent | abcdABCDEF | 60 | on send a: full-in 10 | a A B C D E | satisfied: a removed 10, b kept: relieved, c kept: relieved, d kept: relieved / A removed 10, B removed 10, C removed 10, D removed 10, E removed 10, F kept: relieved | 0.01
    it failed side by side, and is tried in its turn | aA | 100 | full-in 10, a stuck, on send A: a fails | a A a | not_enough: a removed 10 busy / A removed 10 | 0.26
    the first object waits for no plan but its own | abAB | 40 | full-in 10, parallelRemovals 2, Plan DeleteUnusedImages 0.2, Send 1 | a A B b | satisfied: a removed 0, b removed 10 / A removed 10, B removed 10 | 1.21
    a dry run sends nothing | ABCDE | 25 | dry-run |  | dry_run: A planned, B planned, C planned, D kept: relieved, E kept: relieved | 0.00
    its budget is that of the whole row | abAB | 25 | dry-run |  | dry_run: a planned, b planned / A planned, B planned | 0.00
    a stop before it is sent | ABC | 100 | on check A: stop |  | not_enough: A kept: stopping, B kept: stopping, C kept: stopping | 0.00
    a pause | ABC | 100 | on check A: pause 60 |  | not_enough: A kept: paused, B kept: paused, C kept: paused | 0.00
    another configuration | ABC | 100 | on check A: reload |  | not_enough: A kept: reconfigured, B kept: reconfigured, C kept: reconfigured | 0.00
    another disk is mounted | ABC | 100 | on check A: mount |  | not_enough: A kept: layout_changed, B kept: layout_changed, C kept: layout_changed | 0.00
    the disk does not answer any more | ABC | 100 | on check A: Read inf |  | not_enough: A kept: unreadable, B kept: unreadable, C kept: unreadable | 2.00
    it is enough by now | AB | 20 | on check A: free 20 |  | satisfied: A kept: relieved, B kept: relieved | 0.00
    or almost | AB | 20 | on check A: free 19 | A | satisfied: A removed 10, B kept: relieved | 0.00
    a dry run goes on in a pause | AB | 100 | dry-run, on check A: pause 60 |  | dry_run: A planned, B planned | 0.00
    and by its own configuration | AB | 100 | dry-run, on check A: reload |  | dry_run: A planned, B planned | 0.00
    not after a stop | AB | 100 | dry-run, on check A: stop |  | dry_run: A kept: stopping, B kept: stopping | 0.00
    not on another disk | AB | 100 | dry-run, on check A: mount |  | dry_run: A kept: layout_changed, B kept: layout_changed | 0.00
    not without one | AB | 100 | dry-run, on check A: Read inf |  | dry_run: A kept: unreadable, B kept: unreadable | 2.00
    a stop lets the removal in flight finish | ABC | 100 | on send A: stop | A | not_enough: A removed 0, B kept: stopping, C kept: stopping | 0.00
    after it the images are on another disk | ABC | 100 | on send A: mount | A | not_enough: A removed 0, B kept: layout_changed, C kept: layout_changed | 0.00
    after it the disk does not answer | ABC | 100 | on send A: Read inf | A | not_enough: A removed 0, B kept: unreadable, C kept: unreadable | 2.00
    a stop ends the wait of an object | AB | 20 | A waits 1 1, on check A: stop |  | not_enough: A kept: stopping, B kept: stopping | 0.00
    so does a pause | A | 100 | A waits 60 1, in 1 pause 600 |  | not_enough: A kept: paused | 1.00
    a stop ends the wait for a plan | A | 10 | Plan inf, in 1 stop |  | not_enough: - | 1.00
    a pause, too | A | 10 | Plan inf, in 1 pause 60 |  | not_enough: - | 1.00
    and another configuration | A | 10 | Plan inf, in 1 reload |  | not_enough: - | 1.00
    a removal that hangs is left after 30 s | AB | 10 | full-in 1000, Send A inf | B | satisfied: A parked its removal was sent 30 s ago and is not answered; it is waited for, B removed 10 | 30.00
    where it is urgent after 5 s | AB | 10 | full-in 10, Send A inf | B | satisfied: A parked its removal was sent 5 s ago and is not answered; it is waited for, B removed 10 | 5.00
    never later than configured | AB | 10 | full-in 10, removalPatience 1s, Send A inf | B | satisfied: A parked its removal was sent 1 s ago and is not answered; it is waited for, B removed 10 | 1.00
    within a patience of its own later | A | 10 | full-in 10, patience 120, Send A inf |  | not_enough: A parked its removal was sent 120 s ago and is not answered; it is waited for | 120.00
    the disk begins to fill behind it | ABC | 20 | Send A inf, in 3 fill 20 | B C | not_enough: A parked its removal was sent 5 s ago and is not answered; it is waited for, B removed 0, C removed 9 | 5.26
""")
def test_what_becomes_of_each_object(
    names: str, wanted: str, happens: str, sent: str, becomes: str, seconds: str
) -> None:
    """Of containers a, b … and images A, B … of 10 MiB, while so many MiB more are wanted; and how
    many seconds that takes."""
    site = Site(names)
    site.happen(happens)
    assert told(site.passed(int(wanted))) == becomes
    assert site.called("send") == sent
    assert site.clock.monotonic() - 1000 == pytest.approx(float(seconds), abs=0.02)


# ---- what the safety case names


def test_nothing_is_removed_if_relieved_before_it_begins() -> None:
    """No object is even checked."""
    site = Site("AB")
    assert told(site.passed(0)) == "satisfied: A kept: relieved, B kept: relieved"
    assert site.calls == []


@rows("""
    parallel | seconds_left | at_once
    2        | 10           | 16
    2        | 1000         | 2
    1        | 1            | 1
    20       | 1            | 20
""")
def test_where_it_is_urgent_more_go_side_by_side(
    parallel: int, seconds_left: int, at_once: int
) -> None:
    """Sixteen instead of the configured two; one stays one, however urgent it is."""
    site, most = Site("abcdefghijklmnopqrstuvwxyz", parallelRemovals=parallel), 0
    site.happen(f"full-in {seconds_left}, Send 1")
    wanted = site.begin(300)
    while not wanted.record.done():
        site.engine.turn()
        most = max(most, len(sent_claims(site.engine.world.removals)))
    assert most == at_once


def test_nothing_more_is_begun_than_what_is_in_flight_is_expected_to_free() -> None:
    """10 MiB are wanted, and the first image promises them: no other is begun beside it, however
    urgent it is."""
    assert_passes(
        Site("ABC", parallelRemovals=4),
        """
        happens | wanted | sent | becomes
        full-in 1, Send 1 | 10 | A | satisfied: A removed 10, B kept: relieved, C kept: relieved
        """,
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_pass_does_not_count_on_bytes_that_shared_layers_keep(dry_run: bool) -> None:
    """10 MiB are wanted, and each of five images of 10 MiB frees 4: three go."""
    site = Site("ABCDE", parallelRemovals=2)
    site.happen(", ".join(f"{name} frees 4" for name in "ABCDE") + ", dry-run" * dry_run)
    assert len(site.passed(10).functions[0].outcomes) == 3


def test_a_removal_that_hangs_is_left_and_the_others_go_on() -> None:
    """It hangs for half a minute; once it ends, it is told how, and nothing is under way."""
    site = Site("ABC")
    assert_passes(
        site,
        """
        happens    | wanted | sent | becomes
        Send A inf | 10     | B    | satisfied: A parked its removal was sent 30 s ago and is not answered; it is waited for, B removed 10, C kept: relieved
        """,
    )
    assert [each.verdict.id for each in site.engine.said("parked")] == ["A"]
    assert site.engine.said("parked_ended") == []
    site.engine.let_go()
    (ended,) = site.engine.said("parked_ended")
    assert (ended.verdict.id, ended.result, site.engine.world.removals) == ("A", Result.REMOVED, {})


def test_an_object_is_sent_once_until_its_removal_has_ended() -> None:
    """Until then it is being removed; afterwards, if it is listed, it is one like any other."""
    assert_passes(
        Site("AB"),
        """
        happens             | wanted | sent  | becomes
        Send A inf          | 100    | B     | not_enough: A parked its removal was sent 30 s ago and is not answered; it is waited for, B removed 10
        B holds 10          | 100    | B B   | not_enough: B removed 10, A kept: being_removed
        answered            |        | B B A |
        A holds 10          | 100    | B B A A | not_enough: A removed 10
        """,
    )


def test_a_check_that_hangs_is_given_up_and_its_removal_is_never_sent() -> None:
    """A minute later the next object is checked; when the check ends at last no call goes out, as
    nobody knows any more whether it may."""
    assert_passes(
        Site("AB"),
        """
        happens     | wanted | sent | becomes
        Check A inf | 10     | B    | satisfied: A parked the check before its removal has not ended for 60 s, B removed 10
        answered    |        | B    |
        """,
    )


def test_a_check_that_was_given_up_sends_nothing_though_its_pass_goes_on() -> None:
    """It ends 10 s later, while the next object is being removed: nothing comes of it."""
    site = Site("AB")
    assert_passes(
        site,
        """
        happens               | wanted | sent | becomes
        Check A 70, Send B 20 | 100    | B    | not_enough: A parked the check before its removal has not ended for 60 s, B removed 10
        """,
    )
    (ended,) = site.engine.said("parked_ended")
    assert (ended.verdict.id, ended.verdict.reason) == ("A", Reason.STOPPING)


def test_a_stuck_runtime_is_sent_nothing_more() -> None:
    """In this pass and the next; a dry run sends nothing and says what would go. When a removal
    ends, more are sent."""
    assert_passes(
        Site("ABCD"),
        """
        happens                | wanted | sent    | becomes
        Send A inf, Send B inf | 30     |         | failed: A parked its removal was sent 30 s ago and is not answered; it is waited for, B parked its removal was sent 30 s ago and is not answered; it is waited for, C kept: runtime_stuck, D kept: runtime_stuck; the runtime is stuck: 2 removals are not answered, the oldest for 60 s; no more is sent until one of them ends
                               | 30     |         | failed: A kept: runtime_stuck, B kept: runtime_stuck, C kept: runtime_stuck, D kept: runtime_stuck; the runtime is stuck: 2 removals are not answered, the oldest for 60 s; no more is sent until one of them ends
        dry-run                | 100    |         | dry_run: C planned, D planned, A kept: being_removed, B kept: being_removed
        answered               | 30     | A B C   | satisfied: C removed 10, D kept: relieved
        """,
    )


def test_a_plan_that_hangs_is_given_up_after_a_minute_and_not_asked_for_again_before_it_has_ended() -> (
    None
):
    """The pass ends with a sentence, the next one says that the earlier reading is not answered;
    then it plans."""
    assert_passes(
        Site("A"),
        """
        happens  | wanted | sent | becomes
        Plan inf | 10     |      | failed: DeleteUnusedImages, stage 1 cannot plan: it did not answer within 60 s
        Plan 0   | 10     |      | failed: DeleteUnusedImages, stage 1 cannot plan: an earlier reading has not been answered yet
        answered | 10     | A    | satisfied: A removed 10
        """,
    )


def test_a_long_plan_that_goes_forward_does_not_hang() -> None:
    """As long as the runtime answers one call after the other: here for two minutes."""
    site = Site("A")
    site.happen("Plan 120")
    wanted = site.begin(10)
    site.engine.until_it(Plan)
    (running,) = site.engine.world.passes
    answers = [Progressed(running, StageId(IMAGES, 1))]
    site.engine.coming += [(1000.0 + at, lambda: answers) for at in range(10, 120, 10)]
    assert told(site.ended(wanted)) == "satisfied: A removed 10"


def test_a_plan_that_hangs_does_not_keep_the_one_beside_it_from_beginning() -> None:
    """ListImages is not answered: the dead containers go meanwhile, and are enough; with the answer
    the pass ends."""
    site = Site("abA")
    site.happen(f"full-in 10, Plan {IMAGES} inf")
    wanted = site.begin(20)
    site.engine.until(lambda: len(site.containers.sent) == 2)
    assert site.clock.monotonic() < 1001.0
    site.engine.let_go()
    assert told(site.ended(wanted)) == "satisfied: a removed 10, b removed 10 / A kept: relieved"


def test_a_pass_to_the_end_of_its_row_ends_though_its_filesystem_hangs() -> None:
    """It answers nothing from the first check on: the objects go all the same, and what that has
    gained is not known."""
    site = Site("AB")
    site.happen("all, on check A: Read inf")
    record = site.passed()
    assert (site.called("send"), record.measured.bytes) == ("A B", 0)


def test_a_reading_that_late_space_waits_for_costs_no_turn() -> None:
    """The disk does not answer while it is watched: nothing is due before its reading is late."""
    site = Site("A")
    engine = site.engine
    site.begin(400)
    engine.until(lambda: any(the.settling is not None for the in engine.world.passes.values()))
    site.happen("Read inf")
    engine.until(lambda: any(one.asked_at is not None for one in engine.world.readings.values()))
    site.clock.step(0.5)
    engine.events.append(Tick())
    engine.turn()
    assert next_deadline(engine.world) > engine.world.now


def test_what_a_dry_run_checks_stands_in_no_other_pass_s_way() -> None:
    """The object that it has just claimed is removed meanwhile."""
    site = Site("A")
    site.happen("Check inf")
    site.begin(100, dry_run=True)
    site.engine.until_it(Check)
    site.happen("Check 0")
    assert told(site.passed(100)) == "not_enough: A removed 10"


# ---- what the row has beside its objects


@rows("""
    what | names | wanted | happens | sent | last
    everything else is gone | A | 100 | | A Z | yes
    it is enough | A | 10 | | A |
    one has failed | A | 100 | A stuck | A |
    one is not answered | A | 100 | A mute | A |
    one could not be checked | A | 100 | A silent | |
    one is late | A | 100 | Send A inf | |
    a list is incomplete | A | 100 | K kept incomplete_listing | A |
    one is under way | A | 100 | K kept being_removed | A |
    what is in use has had its say | A | 100 | K kept in_use | A Z | yes
    another function has failed | aA | 100 | containers unlisted | A |
""")
def test_the_last_resort_comes_once_nothing_else_is_left(
    names: str, wanted: int, happens: str, sent: str, last: str
) -> None:
    """An image that is held back goes if everything else is settled, and is not enough."""
    site, z = with_last_resort(names)
    site.happen(happens)
    site.passed(wanted)
    assert (site.called("send"), bool(z.plans)) == (sent, last == "yes")


def with_last_resort(names: str, **options: Any) -> tuple[Site, Store]:
    """A site whose function of images holds Z back, and the stage over it."""
    site = Site(names, **options)
    held = verdict_of("Z").kept(Reason.NOT_PULLED)._replace(last_resort=True)
    site.images.planned = replace(site.images.plan(), keep=(held,))
    z = Store(site.disk, "Z")
    z.on = site.images.on
    site.serves(site.images, last_resort=lambda _: (z,), side_by_side=True)
    return site, z


def test_the_last_resort_does_not_begin_while_a_removal_of_another_pass_is_under_way() -> None:
    """On whatever filesystem: nobody knows yet what it will free."""
    site, z = with_last_resort("aA")
    site.happen("Send a inf")
    site.passed(100, row=(CONTAINERS,))
    site.passed(100, row=(IMAGES,))
    assert z.plans == 0
    site.engine.let_go()
    site.passed(100, row=(IMAGES,))
    assert site.called("send") == "A a Z"


def test_what_is_only_coming_takes_no_last_resort() -> None:
    """It may not come. Below the mark the last resort goes, too. The record says how far the kubelet's
    mark was away."""
    site, z = with_last_resort("", daemon=True)
    site.happen("kubelet")
    site.engine.after(0.5)
    site.happen("fill 8")
    site.engine.until(lambda: bool(site.engine.said("passed")))
    record = site.engine.said("passed")[0]
    assert (record.trigger, z.plans) == (Trigger.LEAD, 0)
    above = record.observations.signals[Signal.NODEFS_AVAILABLE].available - 479 * MIB
    assert record.seconds_to_eviction == pytest.approx(above / (8 * MIB), rel=0.1)
    site.engine.until(lambda: bool(z.sent))
    assert site.disk.available < 490 * MIB  # it has freed as much


def test_after_a_call_a_function_cools_down() -> None:
    """For a minute; a dry run shows what it would do."""
    site = Site("AB")
    site.serves(site.images, cooldown_seconds=60.0)
    assert_passes(
        site,
        """
        happens | wanted | sent | becomes
                | 10     | A    | satisfied: A removed 10, B kept: relieved
                | 100    | A    | not_enough: its cooldown lasts another 60 s
        dry-run | 100    | A    | dry_run: B planned
        take 60 | 100    | A B  | not_enough: B removed 10
        """,
    )


@pytest.mark.parametrize("stops", [False, True])
def test_a_stage_that_fails_ends_its_function_only_if_it_is_to_stop_then(stops: bool) -> None:
    """As the age sweep of the periodic collection; what cannot be read stops no other stage."""
    site, second = Site("A"), Store(Disk(Site().clock))
    site.happen("A stuck")
    fails = Store(site.disk)
    fails.planned = types.ReclaimError("no list")
    site.serves(site.images, second, stops_on_failure=stops)
    site.passed(100)
    assert second.plans == (0 if stops else 1)
    site.serves(fails, second)
    assert told(site.passed(100)) == "failed: no list"
    assert second.plans == (1 if stops else 2)


def test_a_function_that_waits_for_a_lower_mark_is_called_only_below_it() -> None:
    """Up to that mark; then the row goes on."""
    below = {"function": IMAGES, "below": "300Mi"}
    hard = dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.inodesFree"), "0%")
    site = Site(
        "abAB",
        evictionHard={**hard, "imagefs.available": "600Mi"},
        reclaimTable={"imagefs.available": [below, CONTAINERS]},
    )
    site.row = (IMAGES, CONTAINERS)
    site.happen("full-in 10")  # side by side goes only what does not wait
    first, second = (
        "not_enough: imagefs.available is not below 300Mi / a removed 10, b removed 10",
        "not_enough: A removed 10, B kept: relieved / b removed 10",
    )
    assert told(site.passed(until=None)) == first
    site.happen("write 225")
    site.containers.sizes["b"] = 10 * MIB
    assert told(site.passed(until=None)) == second


# ---- what it has gained


@pytest.mark.regression
def test_each_of_two_passes_at_once_books_what_it_has_gained() -> None:
    """To each removal what was promised for it, as neither was alone: 20 MiB in all."""
    site = Site("aA")
    site.happen("Send 1")
    passes = [
        site.begin(300, signal=Signal.IMAGEFS_AVAILABLE, row=(IMAGES,)),
        site.begin(300, row=(CONTAINERS,)),
    ]
    records = [site.ended(each) for each in passes]
    assert list(map(told, records)) == ["not_enough: A removed 10", "not_enough: a removed 0"]
    assert sum(record.measured.bytes for record in records) == 20 * MIB


@pytest.mark.regression
def test_a_mount_is_no_gain_and_voids_what_was_decided() -> None:
    """An empty disk is mounted in the middle: what it has available was not freed. Or between the
    look of a command and its pass."""
    site = Site("ABC")
    site.happen("on send A: mount, on check B: free 400")
    record = site.passed(300)
    assert (record.measured.bytes, record.written_meanwhile.bytes) == (0, 0)
    wanted = site.begin(300)
    site.happen("mount")
    site.engine.look()
    site.ended(wanted)
    assert site.called("send") == "A"


def test_the_lead_is_as_long_as_the_slowest_of_the_last_eight_removals() -> None:
    """A second before one is known; at most 5 s."""
    site = Site("A")
    found = [site.engine.world.lead_seconds()]
    for seconds in (90.0, *[0.1] * 6, 0.3, 0.2):
        site.happen(f"Send {seconds}, A holds 10")
        site.passed(extent=Extent.ALL)
        site.engine.after(100.0)
        found.append(round(site.engine.world.lead_seconds(), 2))
    assert found == [1.0, *[5.0] * 8, 0.3]


def test_a_removal_commits_each_btrfs_of_the_node() -> None:
    """By itself it does so every 30 s, and shows until then that nothing was freed."""
    site = Site("AB")
    for kind, wanted in (("btrfs", 10), ("ext4", 20)):
        site.engine.filesystem_type = kind
        site.passed(wanted)
    sends = [effect.btrfs for effect in site.engine.handed_out if isinstance(effect, Send)]
    assert sends == [("/node/images",), ()]


# ---- its end


@pytest.mark.regression
@pytest.mark.parametrize("at", [Check, Send])
def test_a_defect_in_a_pass_ends_that_pass_and_nothing_else(at: type[Effect]) -> None:
    """It is raised at the gate, or while a removal is in flight: nothing more is sent, the error is
    in the record, what was sent is waited for, and the next pass runs as usual."""
    site = Site("ABC", parallelRemovals=2)
    until = threshold(Signal.IMAGEFS_AVAILABLE, "530Mi")
    defective = Defective(until.value.quantity)
    site.happen(f"{at.__name__} A inf")
    wanted = site.begin(until=(replace(until, value=defective),))
    site.engine.until_it(at)
    sent_before = site.called("send")
    defective.raising.append("defect")
    if at is Check:
        site.engine.let_go()
    site.engine.events.append(Tick())
    record = site.ended(wanted)
    assert (record.result, record.reason) == (PassResult.FAILED, "ZeroDivisionError: defect")
    assert site.called("send") == sent_before
    site.engine.let_go()
    assert site.engine.world.removals == {}
    assert site.passed(30).functions[0].relieved


# ---- the gate


def test_the_gate_is_shut_for_what_has_ended_and_for_a_pause_that_is_not_known() -> None:
    """`reclaim --now` ignores the pause that it knew, not one that begins later. A check says
    something about now for 50 ms after its last look; nothing if it was too old already."""
    site = Site("A")
    site.happen("pause 60, Check inf")
    site.engine.settle()
    site.begin(20, now=True)
    site.engine.until_it(Check)
    world = site.engine.world
    (the,) = world.passes.values()
    later = world._replace(pause=world.pause.begun(world.now, 60.0, "the file cannot be read"))
    assert [may_send(each, world) for each in (the, None, the._replace(ended=True))] == [
        None,
        Reason.STOPPING,
        Reason.STOPPING,
    ]
    assert may_send(the, later) is Reason.PAUSED
    assert may_send(the, later._replace(now=world.now + 60.0)) is None
    for looked_ago, old in ((STATUS_FRESH_SECONDS, False), (STATUS_FRESH_SECONDS + 0.001, True)):
        assert too_old(Checked(Ready(world.now), world.now - looked_ago), world) is old
    assert too_old(Checked(None), world)
    # a reading that was asked for before the runtime said that images are elsewhere
    assert fold(world, Sampled(Sample("/elsewhere", world.now, problem="gone"))) == world


def test_a_removal_takes_no_way_that_the_table_does_not_have() -> None:
    """Nothing leads back from a call that went out, and nothing is sent that was given up."""
    ways = """
        checking checking, checking waiting, checking sent, checking abandoned,
        waiting checking, waiting abandoned, sent late
    """
    found = list[str]()
    for before, after in product(State, State):
        claim = Claim("pass", StageId(IMAGES, 1), verdict_of("A"), 0.0)._replace(state=before)
        with suppress(ValueError):
            assert moved_to(claim, after).state is after
            found.append(f"{before} {after}")
    assert sorted(found) == sorted(" ".join(ways.split()).split(", "))


# ---- one pass, told whole
