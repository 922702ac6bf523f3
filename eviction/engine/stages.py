"""The stages of the passes that run, and the calls to them, which may block: on
workers, which only answer.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from eviction.engine.effects import Check, CheckEnded, Ended, Plan, Planned, Progressed, Send
from eviction.engine.relief import facts_of
from eviction.engine.world import FOREVER_AGO, RETRY_SECONDS, World
from reclaim.function import PassFacts, ReclaimContext, Stage
from reclaim.removals import Claim, StageId, check, send
from reclaim.types import ReclaimError
from signals.clock import Clock


@dataclass(eq=False)
class Stages:
    """Makes the stages of a pass when its function first plans, and forgets them when it ends."""

    world: Callable[[], World]
    """As it is now."""
    context: Callable[[Callable[[], PassFacts]], ReclaimContext]
    """What the stages of one pass may use, given what they may know of it."""
    clock: Clock

    def __post_init__(self) -> None:
        self._stages: dict[tuple[str, str, bool], tuple[Stage, ...]] = {}
        self._planning: dict[int, Progressed] = {}  # by thread: what tells that its plan goes on
        self._told_at: dict[int, float] = {}  # by thread: when that was last told

    def plan(self, job: Plan) -> Planned:
        """Has a stage plan. Never raises ReclaimError."""
        began = self.clock.monotonic()
        stage = job.stage
        stages = self._made(job.pass_id, stage)
        planner = stages[stage.number - 1]
        thread = threading.get_ident()
        self._planning[thread] = Progressed(job.pass_id, stage)
        plan = None
        error = ""
        try:
            plan = planner.plan()
            if plan is not None and planner.listed_at is not None:
                plan = replace(plan, list_seconds=planner.listed_at - began)
        except ReclaimError as failure:
            error = str(failure)
        finally:
            del self._planning[thread]
        return Planned(
            job.pass_id,
            stage,
            plan,
            error,
            seconds=self.clock.monotonic() - began,
            fresh_seconds=planner.fresh_seconds,
            frees_late=planner.frees_late,
            patience_seconds=planner.patience_seconds,
            last=stage.number == len(stages),
        )

    def check(self, job: Check) -> CheckEnded:
        """Checks an object, and takes the last look."""
        claim = job.claim
        return CheckEnded(claim.id, check(claim.verdict, self._of(claim), self.clock))

    def send(self, job: Send) -> Ended:
        """The one call, and the question whether the object is gone."""
        claim = job.claim
        outcome = send(
            claim.verdict,
            self._of(claim),
            self.clock,
            sent_at=claim.sent_at or claim.claimed_at,
            btrfs=job.btrfs,
        )
        return Ended(claim.id, outcome)

    def forget(self, pass_id: str) -> None:
        """A pass has ended: its stages are not needed any more, but by calls
        that go on, which have them.
        """
        for key in list(self._stages):
            if key[0] == pass_id:
                del self._stages[key]

    def progress(self) -> Progressed | None:
        """A call of the runtime was answered on this thread: the plan that made it goes on. None if
        there is none, or if that was told within the last second."""
        thread = threading.get_ident()
        now = self.clock.monotonic()
        progressed = self._planning.get(thread)
        if progressed is None or now - self._told_at.get(thread, FOREVER_AGO) < RETRY_SECONDS:
            return None
        self._told_at[thread] = now
        return progressed

    def _made(self, pass_id: str, stage: StageId) -> tuple[Stage, ...]:
        """Those of a function: made once for a pass, and once more for the last resort."""
        key = pass_id, stage.function, stage.last_resort
        if key not in self._stages:
            function = self.world().functions[stage.function]
            make = function.last_resort if stage.last_resort else function.stages
            self._stages[key] = make(self.context(lambda: facts_of(self.world(), pass_id)))
        return self._stages[key]

    def _of(self, claim: Claim) -> Stage:
        stage = claim.stage
        return self._stages[claim.pass_id, stage.function, stage.last_resort][stage.number - 1]
