"""One pass: what goes, in which order, what is sent and what is not, and when it ends; what the
daemon does between its passes: it looks, begins passes, pauses after them, is held back, asks the
runtime, and collects periodically (`StartGarbageCollection` in `pkg/kubelet/kubelet.go`); and the
owner of the state with real threads: what hangs, what cannot be started, what is raised; and its
end."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.engine.effects import (
    Check,
    Effect,
    Event,
    LookWanted,
    PassWanted,
    PauseSet,
    Plan,
    Progressed,
    Reconfigured,
    Request,
    Send,
    Tick,
    Watch,
)
from eviction.engine.fold import fold
from eviction.engine.node import Node
from eviction.engine.owner import Job, Owner, Performer
from eviction.engine.stages import Stages
from eviction.engine.world import Pause
from eviction.records.listener import Listeners
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.surface.announcements import Announcements
from eviction.types import EvictionError, Extent
from eviction.wording.log import Log
from reclaim import types
from reclaim.removals import StageId, sent_claims
from reclaim.types import Reason, Result
from reclaim.workers import Workers
from signals.filesystems import Reading
from signals.interval import FillRate
from signals.samplers import Sample, Samplers
from signals.summary import asked
from signals.types import FilesystemIdentity, Signal
from tests.inline import configured
from tests.pure.engine.site import (
    AT_FIRST_MIB,
    CONTAINERS,
    DEVICE,
    IMAGES,
    Defective,
    Disk,
    Site,
    Store,
    record_of,
    told,
)
from tests.pure.values import MIB, SteppedClock, filling, on_new_thread, stats, threshold
from tests.reclaimd_process import came_true
from tests.rows import rows, rows_of
from tests.thread_limit import no_thread_starts


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
    nothing is even checked if it is relieved before it begins | AB | 0 | check 1 |  | satisfied: A kept: relieved, B kept: relieved | 0.00
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
    it is checked again after a slow reading | A | 10 | Read 0.06, on check A: in 0.03 A refused running |  | not_enough: A kept: running | 0.31
    each has freed what was promised for it | AB | 100 | parallelRemovals 2, A size 2, B size 40 | A B | not_enough: A removed 2, B removed 40 | 0.25
    what it frees long before its end is its own | A | 100 | Send A 10, A holds 0, in 1 free 10 | A | not_enough: A removed 10 | 10.25
    they stand in the order of the plan | AB | 100 | parallelRemovals 2, Send A 2, Send B 1 | B A | not_enough: A removed 10, B removed 10 | 2.25
    a reading of before the end of another is not enough | ab | 10 | parallelRemovals 2, Read 0.02, Check b 1.01, Send 1 | a | satisfied: a removed 10, b kept: relieved | 1.07
    late space is waited for | AB | 10 | late 0.1 | A | satisfied: A removed 10, B kept: relieved | 0.13
    also of what promises nothing | abA | 20 | late 0.2, frees late | a b | satisfied: a removed 0, b removed 0 | 0.22
    after each that frees less than it promised | ABCD | 100 | A holds 0, B holds 0, C holds 0, D holds 4 | A B C D | not_enough: A removed 0, B removed 0, C removed 0, D removed 4 | 1.26
    not longer than 5 s | A | 400 | on send A: fill -2 | A | not_enough: A removed 10 | 5.00
    though the disk does not answer any more | A | 400 | late 9, in 0.1 Read inf | A | not_enough: A removed 0 | 2.13
    not where it is urgent | ABC | 15 | full-in 10, late 5 | A B C | not_enough: A removed 0, B removed 0, C removed 0 | 0.26
    functions come in order | abAB | 30 |  | a b A | satisfied: a removed 10, b removed 10 / A removed 10, B kept: relieved | 0.01
    one that was not reached is not in the record | abAB | 10 |  | a | satisfied: a removed 10, b kept: relieved | 0.00
    an error does not stop the next | abAB | 10 | containers unlisted | A | satisfied: no list / A removed 10, B kept: relieved | 0.00
    where it is urgent they go side by side | abAB | 100 | full-in 10 | a A B b | not_enough: a removed 10, b removed 10 / A removed 10, B removed 10 | 0.26
    one of eight is of what promises nothing | abcdABCDEFGHIJKL | 200 | full-in 10 | a A B C D E F G b H I J K L c d | not_enough: a removed 10, b removed 10, c removed 10, d removed 10 / A removed 10, B removed 10, C removed 10, D removed 10, E removed 10, F removed 10, G removed 10, H removed 10, I removed 10, J removed 10, K removed 10, L removed 10 | 0.28
    it becomes urgent | abcdABCDEF | 60 | on send a: full-in 10 | a A B C D E | satisfied: a removed 10, b kept: relieved, c kept: relieved, d kept: relieved / A removed 10, B removed 10, C removed 10, D removed 10, E removed 10, F kept: relieved | 0.01
    it failed side by side, and is tried in its turn | aA | 100 | full-in 10, a stuck, on send A: a fails | a A a | not_enough: a removed 10 busy / A removed 10 | 0.26
    the first object waits for no plan but its own | abAB | 40 | full-in 10, parallelRemovals 2, Plan DeleteUnusedImages 0.2, Send 1 | a A B b | satisfied: a removed 0, b removed 10 / A removed 10, B removed 10 | 1.21
    the last resort comes once everything else is gone | A | 100 | held-back | A Z | not_enough: A removed 10, Z removed 10 | 0.25
    not if it is enough | A | 10 | held-back | A | satisfied: A removed 10, Z kept: not_pulled | 0.00
    nor if one has failed | A | 100 | held-back, A stuck | A | not_enough: A failed the runtime reported success but still has it, Z kept: not_pulled | 0.00
    or is not answered | A | 100 | held-back, A mute | A | failed: A unanswered the runtime has gone away, Z kept: not_pulled; the runtime has gone away | 0.00
    or could not be checked | A | 100 | held-back, A silent |  | failed: A unanswered the runtime does not answer, Z kept: not_pulled; the runtime does not answer | 0.00
    or is late | A | 100 | held-back, Send A inf |  | not_enough: A parked its removal was sent 30 s ago and is not answered; it is waited for, Z kept: not_pulled | 30.00
    or a list is incomplete | A | 100 | held-back, K kept incomplete_listing | A | not_enough: A removed 10, Z kept: not_pulled, K kept: incomplete_listing | 0.25
    or one is under way | A | 100 | held-back, K kept being_removed | A | not_enough: A removed 10, Z kept: not_pulled, K kept: being_removed | 0.25
    even of another pass | A | 100 | held-back, program, Send P inf | A | not_enough: A removed 10, Z kept: not_pulled | 0.25
    or another function has failed | aA | 100 | held-back, containers unlisted | A | not_enough: no list / A removed 10, Z kept: not_pulled | 0.25
    what is in use has had its say | A | 100 | held-back, K kept in_use | A Z | not_enough: A removed 10, Z removed 10 | 0.25
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
    an empty disk is no gain | ABC | 300 | on send A: mount, on check B: free 400 | A | not_enough: A removed 0, B kept: layout_changed, C kept: layout_changed | 0.00
    after it the disk does not answer | ABC | 100 | on send A: Read inf | A | not_enough: A removed 0, B kept: unreadable, C kept: unreadable | 2.00
    a stop ends the wait of an object | AB | 20 | A waits 1 1, on check A: stop |  | not_enough: A kept: stopping, B kept: stopping | 0.00
    reclaim --now goes on in the pause that it knew | A | 10 | now, pause 60 | A | satisfied: A removed 10 | 0.00
    not in one that begins later | AB | 100 | now, pause 60, on check A: pause 60 |  | not_enough: A kept: paused, B kept: paused | 0.00
    nor beyond the first | A | 10 | pause 60 |  | not_enough: - | 0.00
    so does a pause | A | 100 | A waits 60 1, in 1 pause 600 |  | not_enough: A kept: paused | 1.00
    a stop ends the wait for a plan | A | 10 | Plan inf, in 1 stop |  | not_enough: - | 1.00
    a pause, too | A | 10 | Plan inf, in 1 pause 60 |  | not_enough: - | 1.00
    and another configuration | A | 10 | Plan inf, in 1 reload |  | not_enough: - | 1.00
    a removal that hangs is left after 30 s | AB | 10 | full-in 1000, Send A inf | B | satisfied: A parked its removal was sent 30 s ago and is not answered; it is waited for, B removed 10 | 30.00
    where it is urgent after 5 s | AB | 10 | full-in 10, Send A inf | B | satisfied: A parked its removal was sent 5 s ago and is not answered; it is waited for, B removed 10 | 5.00
    never later than configured | AB | 10 | full-in 10, removalPatience 1s, Send A inf | B | satisfied: A parked its removal was sent 1 s ago and is not answered; it is waited for, B removed 10 | 1.00
    within a patience of its own later | A | 10 | full-in 10, patience 120, Send A inf |  | not_enough: A parked its removal was sent 120 s ago and is not answered; it is waited for | 120.00
    a check that hangs is given up after 60 s and its removal is never sent | AB | 10 | Check A inf, in 70 answered | B | satisfied: A parked the check before its removal has not ended for 60 s, B removed 10 | 60.00
    nothing more is begun than what is in flight is expected to free | ABC | 10 | parallelRemovals 4, full-in 1, Send 1 | A | satisfied: A removed 10, B kept: relieved, C kept: relieved | 1.00
    nothing is counted on that shared layers keep | ABCDE | 10 | parallelRemovals 2, A frees 4, B frees 4, C frees 4, D frees 4 | A B C | satisfied: A removed 4, B removed 4, C removed 4, D kept: relieved, E kept: relieved | 0.01
    nor in a dry run | ABCDE | 10 | dry-run, A frees 4, B frees 4, C frees 4, D frees 4 |  | dry_run: A planned, B planned, C planned, D kept: relieved, E kept: relieved | 0.00
    a plan that takes long does not keep the one beside it from beginning | abA | 20 | full-in 10, Plan DeleteUnusedImages 1 | a b | satisfied: a removed 10, b removed 10 / A kept: relieved | 1.00
    a filesystem that hangs does not keep a pass to the end of its row from its end | AB | 0 | all, on check A: Read inf | A B | not_enough: A removed 0, B removed 0 | 2.51
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


def test_while_it_plans_it_tells_once_a_second_that_it_goes_on() -> None:
    """With each call that the runtime has answered, of its pass and stage; nothing after it."""
    site, said = Site("A"), list[Progressed | None]()

    class Long(Store):
        def plan(self) -> types.Plan:
            for _ in range(3):
                said.append(site.engine.stages.progress())
                self.clock.step(0.6)
            return super().plan()

    site.serves(site.images, Long(site.disk))
    wanted = site.begin(100)
    site.engine.until_it(Plan)
    (running,) = site.engine.world.passes
    site.ended(wanted)
    goes_on = Progressed(running, StageId(IMAGES, 2))
    assert (said, site.engine.stages.progress()) == ([goes_on, None, goes_on], None)


def test_a_pass_says_how_long_its_removals_took() -> None:
    """Seconds, of all stages of its functions."""
    site = Site("aA")
    site.happen("Send 2")
    assert round(site.passed(15).timings.remove_seconds, 1) == 4.0


def test_what_a_pass_frees_hides_what_is_written_where_it_removes_alone() -> None:
    """On another filesystem a fill that has ended stays ended, however long the pass lasts."""
    site = Site("A")
    site.happen("kubelet, Send A inf")
    site.begin(10)
    site.engine.until_it(Send)
    world, rate = site.engine.world, filling(FillRate(AT_FIRST_MIB * MIB, 0.0), 100 * MIB)
    (running,) = world.passes.values()
    passes = {running.id: running._replace(begun_rates={(DEVICE, False): rate})}
    ended = {(DEVICE, False): FillRate(AT_FIRST_MIB * MIB, 0.0)}
    for device, needed in ((DEVICE, 579 * MIB), (DEVICE + 1, 0)):
        booked = {device: running.id}
        seen = world._replace(passes=passes, fill_rates=ended, booked_to=booked)
        found = seen.ahead(world.observations).signals[Signal.NODEFS_AVAILABLE]
        assert found.needed == needed


def test_what_a_dry_run_checks_stands_in_no_other_pass_s_way() -> None:
    """The object that it has just claimed is removed meanwhile."""
    site = Site("A")
    site.happen("Check inf")
    site.begin(100, dry_run=True)
    site.engine.until_it(Check)
    site.happen("Check 0")
    assert told(site.passed(100)) == "not_enough: A removed 10"


# ---- what the row has beside its objects


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


def test_a_stage_that_fails_or_cannot_be_read_does_not_end_its_function() -> None:
    """If it is not said to: as that of the age sweep of the periodic collection is."""
    site, second = Site("A"), Store(Disk(Site().clock))
    site.serves(site.images, second)
    for number, happens in enumerate(("A stuck", "images unlisted"), 1):
        site.happen(happens)
        site.passed(100)
        assert second.plans == number


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


# ---- its end


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


# ---- what the daemon does between its passes

TOLD = [
    "not_begun",
    "reclaiming",
    "takes_long",
    "parked",
    "parked_ended",
    "detected",
    "runtime_asked",
]


def began(record: Pass) -> float:
    """How many seconds after the beginning."""
    return record.started_wall - 1_800_000_000


def logged(site: Site) -> list[str]:
    """What was logged of what the listeners were told, without the time."""
    out = StringIO()
    log = Log(site.clock.wall, stream=out, verbosity=0)
    announcements = Announcements(Node(configured(), clock=site.clock), log)
    for about in site.engine.said("collection_ended"):
        announcements.collection_ended(*about)
    return [line.split(" ", 1)[1].strip() for line in out.getvalue().splitlines()]


DAYS = dict(
    day.split("\n", 1) for day in Path(__file__).with_name("days.txt").read_text().split("\n\n")
)


@pytest.mark.parametrize("day", DAYS.values(), ids=DAYS)
def test_what_happens_to_a_daemon(day: str) -> None:
    """Its mark is at 480 MiB, of 500 that are available at first; 490 are to be reached. Each day
    of `days.txt` has the objects of a node, what is configured, and its story: on each line
    something happens, and then so many seconds go by; the other columns are what there is by then.
    `passes`, `collected`: those that have ended meanwhile, and when they began. `told`: how often,
    so far; `says`: what was logged of collections meanwhile."""
    above, table, story = day.partition("  happens")
    given = yaml.safe_load(above)
    site = Site(given["objects"] or "", daemon=True, **given.get("fields", {}))
    engine, seen, looks = site.engine, Counter[str](), 0

    def new(what: str, so_far: list[Any]) -> list[Any]:
        fresh, seen[what] = so_far[seen[what] :], len(so_far)
        return fresh

    for row in rows_of(table + story):
        site.happen(row.pop("happens"))
        engine.after(float(row.pop("seconds")))
        world, passes = engine.world, new("passes", engine.said("passed"))
        effects = new("effects", engine.handed_out)
        handed = Counter(type(effect).__name__ for effect in engine.handed_out)
        watches = (each for each in effects if isinstance(each, Watch))
        told_of = {what: len(engine.said(what)) for what in TOLD}
        found = {
            "passes": " + ".join(f"{began(one):.1f} {one.trigger} {told(one)}" for one in passes),
            "seconds to eviction": " ".join(
                f"{one.seconds_to_eviction or 0:.1f}" for one in passes
            ),
            "collected": " + ".join(
                f"{began(one):.0f} {one.row[0].removeprefix('Garbage')} {told(one)}"
                for one in new("collected", engine.said("collected"))
            ),
            "says": " + ".join(new("says", logged(site) if "says" in row else [])),
            "sent": site.called("send"),
            "look": world.look_why,
            "due": f"{world.look_due - world.looked_at:g}",
            "looks": str(world.looks - looks),
            "polls for": " ".join({f"{(each.levels.levels[0] or 0) >> 20}" for each in watches}),
            "images": world.paths.imagefs or "",
            "asked": f"{handed['Locate']} {handed['Refresh']}",
            "problem": world.asking.problem,
            "written back": str(handed["WriteBack"]),
            "lead": f"{world.lead_seconds:.2g}",
            "committed": " ".join(
                path for each in effects if isinstance(each, Send) for path in each.btrfs
            ),
            "told": " ".join(f"{count} {what}" for what, count in told_of.items() if count),
        }
        looks = world.looks
        assert {column: found[column] for column in row} == row


def test_a_command_waits_for_the_pass_of_its_filesystem_and_a_dry_run_does_not() -> None:
    """A removal hangs for half a minute: the dry run is answered at once. The command has its turn
    after it, and learns that it was decided by what is not so any more. Asked for anew, its pass
    runs."""
    site = Site("AB", daemon=True)
    site.happen("write 30, Send inf")
    site.engine.until_it(Send)
    about: Any = {"signal": Signal.NODEFS_AVAILABLE, "extent": Extent.ALL}
    dry = [site.begin(dry_run=True), site.begin(dry_run=True, **about)]
    wanted = site.begin(**about)
    site.engine.after(1.0)
    assert [each.record.done() for each in (*dry, wanted)] == [True, True, False]
    site.happen("answered")
    site.engine.after(1.0)
    assert wanted.record.result(0.0) is None
    wanted = site.begin(**about)
    site.engine.after(1.0)
    assert site.engine.said("passed")[1:] == [record_of(wanted)], "a dry run on request is no news"


# ---- how it looks


@pytest.mark.parametrize("polled", ["/node", "/node/images"])
def test_the_polls_of_a_filesystem_count_in_whatever_order_its_paths_answer(polled: str) -> None:
    """Two looks a second apart; in between, polls have seen three falls: it fills at 100 MiB/s."""
    world, paths = Site().engine.world, ("/node", "/node/images")
    for second, available in ((0.0, 400), (1.0, 300)):
        at = world.now + second
        world = world._replace(now=at, readings=asked(world.readings, paths, at))
        *polls, last = (
            stats((available + int(100 * ago)) * MIB, time=at - ago)
            for ago in (0.75, 0.5, 0.25, 0.0)
        )
        for path in paths:
            reading = Reading(last, DEVICE, tuple(polls) if path == polled and second else ())
            sample = Sample(path, at, reading, FilesystemIdentity(path, DEVICE))
            world = fold(world, sample)
    assert world.fill_rates[DEVICE, False].rate == 100 * MIB


# ---- what holds it back


def test_a_pause_ends_by_itself() -> None:
    """One that is forgotten ends after a day; one of which nothing is known any more, at once, if
    it was unknown and not begun by an operator."""
    assert Pause().begun(0.0, 10 * 86_400.0).until == 86_400.0
    site = Site(daemon=True)
    for unknown, left in (("", 60.0), ("the file cannot be read", 0.0)):
        site.engine.events += [PauseSet(60.0, unknown), PauseSet(0.0, if_unknown=True)]
        site.engine.settle()
        assert site.engine.world.pause_left_seconds() == left


LONGEST_SECONDS = 60.0


class RunningClock(SteppedClock):
    """A stepped clock that goes on by itself."""

    def monotonic(self) -> float:
        """The real monotonic time, and what was stepped."""
        return super().monotonic() + time.monotonic()


class Heard:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.defects: list[Exception] = []

    def defect(self, error: Exception) -> None:
        """Kept."""
        self.defects.append(error)


class OnThreads(Performer):
    """A site whose effects are carried out on threads. `before` stands between an effect and its
    answer, and may hang or raise."""

    def __init__(self, names: str, *, workers: int = 8, **fields: Any):
        clock = RunningClock()
        self.site = Site(names, clock=clock, **fields)
        self.clock, self.disk = clock, self.site.disk
        self.jobs: list[Job] = []
        self.before: Callable[[Job], object] = lambda _: None
        self.on_look: Callable[[], object] = lambda: None
        self.forgotten: list[str] = []
        self.stopping, self.let_go = threading.Event(), threading.Event()
        self.waited_for = False  # whether what hangs had to give up, as the test waited for it
        self.listeners, self.heard = Listeners(), Heard()
        self.listeners.add(self.heard)
        self.readings = 0
        self.samplers = Samplers(clock, lambda _, now: self._reading(now), on_new_thread)
        self.samplers.prepare(("/node", "/node/images"))
        self.owner = Owner(
            self.site.engine.world,
            self,
            self.samplers,
            listeners=self.listeners,
            workers=Workers("work", workers),
            clock=clock,
            stopping=self.stopping,
        )
        self.stages = Stages(lambda: self.owner.world, self.site.engine.context, clock)

    def _reading(self, now: float) -> Reading:
        self.readings += 1
        return self.disk.reading(now)

    def perform(self, job: Job) -> Event:
        """As the node does."""
        self.jobs.append(job)
        self.before(job)
        answer: Event = getattr(self.stages, type(job).__name__.lower())(job)
        return answer

    def forget(self, pass_id: str) -> None:
        """Kept."""
        self.forgotten.append(pass_id)

    def hang(self) -> None:
        """What a call does that is not answered."""
        if not self.let_go.wait(LONGEST_SECONDS):
            self.waited_for = True

    def hang_at(self, kind: type[Job]) -> None:
        """Effects of this kind are not answered before they are let go."""
        self.before = lambda job: self.hang() if isinstance(job, kind) else None

    def raise_at(self, **defects: BaseException) -> None:
        """What is raised at effects of this kind, or at the removal of this object."""

        def fail(job: Job) -> None:
            about = job.claim.verdict.id if isinstance(job, Send) else type(job).__name__
            if about in defects:
                raise defects[about]

        self.before = fail

    def look(self) -> None:
        """One observation."""
        before = self.owner.world.looks
        self.owner.post(LookWanted(urgent=True))
        self.owner.until(lambda: self.owner.world.looks > before)

    def want(self, mib: int, **request: Any) -> PassWanted:
        """Asks for a pass, until so much more is available."""
        self.look()
        world, until = self.owner.world, threshold(Signal.IMAGEFS_AVAILABLE, f"{500 + mib}Mi")
        asked = Request(row=(IMAGES,), until=(until,), **request)
        wanted = PassWanted(
            world.observations, world.decision, Trigger.REQUEST, asked, None, self.clock.monotonic()
        )
        self.owner.post(wanted)
        return wanted

    def want_until(self, kind: type[Job]) -> PassWanted:
        """Asks for a pass, and waits until such an effect has begun."""
        wanted = self.want(100)
        assert came_true(lambda: any(isinstance(job, kind) for job in self.jobs))
        return wanted

    def passed(self, mib: int) -> Pass:
        """The record of a pass."""
        wanted = self.want(mib)
        self.owner.until(wanted.record.done)
        return record_of(wanted)

    def relieves(self) -> bool:
        """Whether a pass for 20 MiB relieves."""
        return self.passed(20).functions[0].relieved

    def close(self) -> None:
        """Nothing is left behind, and nobody has waited for what hangs."""
        self.let_go.set()
        self.owner.drained(LONGEST_SECONDS)
        self.owner.workers.close()
        self.samplers.close()
        self.listeners.finish(LONGEST_SECONDS)
        assert not self.waited_for


@contextmanager
def on_threads(names: str, **options: Any) -> Iterator[OnThreads]:
    """A site that is let go at the end."""
    site = OnThreads(names, **options)
    try:
        yield site
    finally:
        site.close()


@contextmanager
def running(site: OnThreads) -> Iterator[None]:
    """Another thread is the owner, as in the daemon, until it is stopped."""
    thread = threading.Thread(target=site.owner.run, daemon=True)
    thread.start()
    assert came_true(lambda: site.owner._thread is thread)  # else the caller would turn
    try:
        yield
    finally:
        site.owner.stop()
        thread.join(LONGEST_SECONDS)
        assert not thread.is_alive()


def test_between_two_looks_a_disk_is_polled_and_one_that_falls_is_looked_at() -> None:
    """On its own thread, whatever the owner does."""
    with on_threads("A", daemon=True) as site:
        site.look()
        looks, readings = site.owner.world.looks, site.readings
        assert came_true(lambda: site.readings > readings + 1)
        site.disk.free(-100 * MIB)
        site.owner.until(lambda: site.owner.world.looks > looks)


@pytest.mark.usefixtures("hasty")
def test_of_many_who_wait_each_is_told_and_at_the_end_all_are_refused() -> None:
    """Six threads ask six hundred times for a pause, until the owner ends: whoever asks then
    is refused."""
    refused, begun = list[str](), threading.Semaphore(0)
    with on_threads("A") as site:

        def ask() -> None:
            try:
                while True:
                    pause = PauseSet(60.0)
                    assert site.owner.ask(pause, pause.done) == 0
                    assert site.owner.world.pause_left_seconds() > 0
                    begun.release()
            except EvictionError as error:
                refused.append(str(error))

        asking = [threading.Thread(target=ask, daemon=True) for _ in range(6)]
        with running(site):
            for thread in asking:
                thread.start()
            assert all(begun.acquire(timeout=LONGEST_SECONDS) for _ in range(600))
        site.owner.refuse_the_rest()
        for thread in asking:
            thread.join(LONGEST_SECONDS)
        assert refused == ["it is stopping"] * len(asking)


# ---- what is raised


@pytest.mark.parametrize(
    ("defects", "becomes"),
    [
        (
            {"A": ZeroDivisionError("defect"), "B": SystemExit(1)},
            "satisfied: A failed ZeroDivisionError: defect, B failed SystemExit: 1, C removed 10",
        ),
        ({"Plan": KeyError("defect")}, "failed: KeyError: 'defect'"),
        (
            {"Check": KeyError("defect")},
            "not_enough: " + ", ".join(f"{name} failed KeyError: 'defect'" for name in "ABC"),
        ),
    ],
)
def test_a_defect_on_a_worker_is_the_outcome_of_what_it_did(
    defects: dict[str, BaseException], becomes: str
) -> None:
    """Of one removal, of a plan, or of a check; the next object is tried, and nothing of the pass
    is left."""
    with on_threads("ABC") as site:
        site.raise_at(**defects)
        assert told(site.passed(10)) == becomes
        assert site.forgotten == ["abcdef000001"]


def test_a_defect_in_what_has_happened_or_is_handed_out_is_told_and_the_rest_goes_on() -> None:
    """Something that cannot be folded comes between two requests: both are answered. What else
    follows from a turn is handed out."""

    def looked() -> None:
        raise ZeroDivisionError("of no use")

    with on_threads("A") as site:
        first, second = PauseSet(60.0), PauseSet(0.0)
        for event in (first, Reconfigured(None), second):  # type: ignore[arg-type] # that is the point
            site.owner.post(event)
        site.owner.until(second.done.done)
        assert first.done.done()
        site.on_look = looked
        assert told(site.passed(10)) == "satisfied: A removed 10"
        assert site.listeners.done(LONGEST_SECONDS)
        assert [type(each) for each in site.heard.defects[:2]] == [
            AttributeError,
            ZeroDivisionError,
        ]


def test_a_defect_while_deciding_does_not_end_the_owner() -> None:
    """A threshold that raises at each look: it is told once a second; once it does not any more,
    relief goes on."""
    with on_threads("AB") as site:
        mark = threshold(Signal.IMAGEFS_AVAILABLE, "1Mi")
        defective = Defective(mark.value.quantity)
        defective.raising.append("defect")
        config = site.owner.world.config._replace(thresholds=(replace(mark, value=defective),))
        site.owner.world = site.owner.world._replace(config=config)
        with running(site):
            site.owner.post(LookWanted(urgent=True))
            assert came_true(lambda: len(site.heard.defects) >= 2)
            assert site.owner.world.looks == 0
            defective.raising.clear()
            assert site.relieves()


# ---- threads


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("parallel", [1, 3])
def test_removals_need_no_more_threads_than_there_are(parallel: int) -> None:
    """On one thread, however many may go side by side: what finds it at work waits."""
    names = "ABCDEFGHIJKL"
    with on_threads(names, workers=1, parallelRemovals=parallel) as site:
        (result,) = site.passed(400).functions
        gone = "".join(each.verdict.id for each in result.outcomes if each.result is Result.REMOVED)
        assert (result.error, gone) == ("", names)


def test_while_every_worker_hangs_it_is_said_and_what_is_next_waits() -> None:
    """A plan hangs on the only thread, and another pass is asked for: after 10 s, and no more once
    the plan ends."""
    with on_threads("AB", workers=1) as site:
        site.hang_at(Plan)
        with running(site):
            site.want_until(Plan)
            dry_run = site.want(20, dry_run=True)
            site.look()
            assert site.owner.occupied() == ""
            site.clock.step(12.0)
            told = "all 1 threads for calls of the runtime are at work, and what is next has waited"
            assert site.owner.occupied().startswith(told)
            site.let_go.set()
            assert came_true(dry_run.record.done)
            assert site.owner.occupied() == ""


def test_where_no_thread_starts_nothing_is_sent_and_the_next_pass_tries_again() -> None:
    """The pass ends with the sentence, and nothing counts as being removed. Threads that were
    prepared relieve: what pressure needs was there before it."""
    with on_threads("AB") as site:
        site.look()
        with no_thread_starts():
            record = site.passed(20)
        assert told(record) == "failed: no thread can be started for work: can't start new thread"
        assert (site.site.called("send"), site.owner.world.removals) == ("", {})
        site.owner.workers.prepare(2)
        with no_thread_starts():
            assert site.relieves()


# ---- the end


@rows("""
    names | becomes
    AB    | not_enough: A removed 0, B kept: stopping
    A     | not_enough: A parked its removal was sent 30 s ago and is not answered; it is waited for
""")
def test_a_stop_waits_for_what_its_pass_has_given_up(names: str, becomes: str) -> None:
    """Or what it still waits for. It is not over before the runtime has answered, and nothing else
    is sent. Who pauses meanwhile learns that one removal is under way."""
    with on_threads(names) as site:
        site.hang_at(Send)
        with running(site):
            wanted, pause = site.want_until(Send), PauseSet(60.0)
            assert site.owner.ask(pause, pause.done) == 1
            if "parked" in becomes:
                site.clock.step(site.owner.world.configuration.removal_patience_seconds)
                site.look()
                assert came_true(wanted.record.done)
        assert not site.owner.drained(0.01)
        site.let_go.set()
        assert site.owner.drained(LONGEST_SECONDS)
        assert (site.site.called("send"), site.owner.world.removals) == ("A", {})
        assert re.sub(r"\d+ s ago", "30 s ago", told(record_of(wanted))) == becomes


def test_whoever_still_waits_at_the_end_is_answered_and_nothing_is_sent() -> None:
    """A pass that plans, one that waits for its turn, and one that is asked for after the stop."""
    with on_threads("A") as site:
        site.hang_at(Plan)
        with running(site):
            wanted = [site.want_until(Plan), site.want(10)]
        wanted.append(replace(wanted[0], record=Future()))
        site.owner.post(wanted[-1])
        site.owner.refuse_the_rest()
        assert all(each.record.done() for each in wanted)
        assert site.site.called("send") == ""
