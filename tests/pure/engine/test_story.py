"""One pass, told whole: what happens on the left of each step, what the engine
has others do on its right.

Nothing runs here. The product's own `fold` takes in each event, its own `step` says what follows;
the clock is what the story says it is, and what a filesystem, a stage or the runtime would answer
is an event of the story.
"""

from __future__ import annotations

from dataclasses import replace

from eviction.configuration.effective import eviction_config
from eviction.decision.synchronize import ManagerState
from eviction.engine.effects import (
    Check,
    CheckEnded,
    Effect,
    Ended,
    Event,
    Plan,
    Planned,
    Read,
    Sampled,
    Send,
    Tell,
)
from eviction.engine.fold import fold
from eviction.engine.step import step
from eviction.engine.world import Asking, World
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.types import NodeCondition
from reclaim import types
from reclaim.function import Ready
from reclaim.removals import Checked, Claim, StageId, State, sent
from reclaim.types import (
    DELETE_UNUSED_IMAGES,
    NEVER,
    Action,
    Kind,
    Outcome,
    Reason,
    Result,
    Verdict,
)
from signals.filesystems import FilesystemPaths, Reading
from signals.samplers import Sample
from signals.types import FilesystemIdentity, FsStats, Signal
from tests.inline import NOTHING_DECIDED, configured, function_of
from tests.pure.values import GIB, MIB, observations_of

NODE, DEVICE = "/node", 7
MARK = {"nodefs.available": "480Mi"}
NEVER_MET = dict.fromkeys(("nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%")
FOLLOWS = Read | Plan | Check | Send  # what others are to do; the rest is news


class Engine:
    """A daemon's world on a node with one filesystem, whose images go if less
    than 480 MiB are available.
    """

    def __init__(self, now: float):
        configuration = configured(
            evictionHard=NEVER_MET | MARK,
            evictionMinimumReclaim={"nodefs.available": "10Mi"},
            reclaimTable={"nodefs.available": [DELETE_UNUSED_IMAGES]},
            parallelRemovals=1,
        )
        self.world = World(
            now=now,
            wall=now,
            configuration=configuration,
            functions={DELETE_UNUSED_IMAGES: function_of(name=DELETE_UNUSED_IMAGES)},
            manager=ManagerState(eviction_config(configuration)),
            paths=FilesystemPaths(NODE, NODE, NODE),
            observations=observations_of(),
            decision=NOTHING_DECIDED,
            on_its_own=True,
            asking=Asking(locate_due=NEVER, refresh_due=NEVER),
            ids_begin="abcdef",
        )
        self.told: dict[str, tuple[object, ...]] = {}

    def at(self, now: float, *events: Event) -> list[Effect]:
        """Takes in what has happened by this time; what follows."""
        self.world = self.world._replace(now=now, wall=now)
        for event in events:
            self.world = fold(self.world, event)
        self.world, effects = step(self.world)
        self.told |= {effect.what: effect.about for effect in effects if isinstance(effect, Tell)}
        return [effect for effect in effects if isinstance(effect, FOLLOWS)]


def read(at: float, available_mib: int) -> Sampled:
    """The sampler has read the filesystem."""
    stats = FsStats(available_mib * MIB, available_mib * MIB, GIB, 1000, 2000, at)
    return Sampled(Sample(NODE, at, Reading(stats, DEVICE), FilesystemIdentity(NODE, DEVICE)))


def image(name: str) -> Verdict:
    """An unused image of 10 MiB."""
    return Verdict(Kind.IMAGE, name, name, Action.REMOVE, Reason.UNUSED, 10 * MIB)


def called(claim: Claim, looked_at: float, at: float) -> Claim:
    """The claim once its call has gone out, after this last look."""
    return sent(replace(claim, ready_since=looked_at), at)


def test_one_pass_from_the_observation_to_its_record() -> None:
    """10 MiB are missing to the mark, and 10 more are the minimum reclaim.

    Of three images of 10 MiB two go.
    """
    engine, images = Engine(now=100.0), StageId(DELETE_UNUSED_IMAGES, 1)
    the_pass, a, b, c = "abcdef000001", image("a"), image("b"), image("c")

    # The node is looked at: its filesystem is read.
    assert engine.at(100.00) == [Read((NODE,))]

    # Observation: 470 MiB are available. Decision: the mark of 480 is met. A pass
    # begins: images are planned.
    assert engine.at(100.01, read(100.01, available_mib=470)) == [Plan(the_pass, images)]
    decision = engine.world.decision
    assert (decision.acted_on, decision.row) == (
        decision.thresholds_met[0],
        (DELETE_UNUSED_IMAGES,),
    )
    assert decision.conditions == {NodeCondition.RECLAIM_PRESSURE}
    assert engine.told["reclaiming"] == (decision.acted_on,)

    # Plan: three images may go, in this order. The first is claimed, and checked.
    plan = Planned(the_pass, images, types.Plan((a, b, c)), fresh_seconds=1.0)
    claim = Claim(the_pass, images, a, claimed_at=100.05)
    assert engine.at(100.05, plan) == [Check(claim)]
    assert engine.world.removals == {claim.id: claim}

    # Check: nobody uses it, by a last look that ended at 100.09. Something may have been
    # mounted over it meanwhile.
    ready = Ready(100.08)
    checked = CheckEnded(claim.id, Checked(ready, looked_at=100.09))
    assert engine.at(100.10, checked) == [Read((NODE,))]

    # Gate: the disk is the same and still short, nobody has paused or stopped. It is sent, once.
    assert engine.at(100.11, read(100.11, available_mib=470)) == [
        Send(called(claim, 100.09, 100.11), ready)
    ]
    assert engine.world.removals[claim.id].state is State.SENT
    assert engine.at(100.13) == []

    # Reading: it has gone, and what that has freed is read before anything else is begun.
    assert engine.at(100.15, Ended(claim.id, Outcome(a, Result.REMOVED))) == [Read((NODE,))]

    # 480 MiB: the mark is cleared, the minimum reclaim is not. The next image takes the same way.
    claim = Claim(the_pass, images, b, claimed_at=100.16)
    checked = CheckEnded(claim.id, Checked(ready, looked_at=100.18))
    assert engine.at(100.16, read(100.16, available_mib=480)) == [Check(claim)]
    assert engine.at(100.19, checked) == [Read((NODE,))]
    assert engine.at(100.20, read(100.20, available_mib=480)) == [
        Send(called(claim, 100.18, 100.20), ready)
    ]
    assert engine.at(100.23, Ended(claim.id, Outcome(b, Result.REMOVED))) == [Read((NODE,))]

    # Relieved: 490 MiB. The pass has ended, the third image stays; the node is looked at
    # again, and nothing follows.
    assert engine.at(100.24, read(100.24, available_mib=490)) == [Read((NODE,))]
    assert engine.at(100.25, read(100.25, available_mib=490)) == []
    assert (engine.world.passes, engine.world.removals) == ({}, {})
    assert engine.world.decision.thresholds_met == ()

    # Record: what has caused it, what has gone, what each has freed, what was kept
    # and why, and how it ended.
    (record,) = engine.told["passed"]
    assert isinstance(record, Pass)
    assert (record.id, record.trigger, record.decision) == (the_pass, Trigger.INTERVAL, decision)
    assert record.observations.signals[Signal.NODEFS_AVAILABLE].available == 470 * MIB
    (result,) = record.functions
    assert [(each.verdict, each.result, each.freed.bytes) for each in result.outcomes] == [
        (a, Result.REMOVED, 10 * MIB),
        (b, Result.REMOVED, 10 * MIB),
    ]
    assert [each.verdict for each in result.kept] == [c.kept(Reason.RELIEVED)]
    assert (result.relieved, result.error) == (True, "")
    assert (record.result, record.measured.bytes, record.still_met) == (
        PassResult.SATISFIED,
        20 * MIB,
        (),
    )
