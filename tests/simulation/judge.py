"""What must hold, whatever happens: judged after every turn, and by the runtime's own tables
when something is removed.

Nothing here asks the product whether it is right. What no program could know is not held against
it: between the last look at the kubelet's directories and the removal, and between the kubelet's
question whether an image is there and the container's directory, a container may begin unseen.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from eviction.configuration.effective import Configuration
from eviction.engine.effects import (
    Check,
    Effect,
    Ended,
    Event,
    PassWanted,
    Plan,
    Planned,
    Progressed,
    Send,
    Tell,
)
from eviction.engine.effects import CheckEnded as CheckAnswer
from eviction.engine.node import policies_of
from eviction.engine.world import RunningPass, World
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.types import Extent
from reclaim.removals import Claim, StageId
from reclaim.types import Kind, PodSandboxState, Reason, Result
from signals.samplers import Sample
from signals.types import FsLayout
from tests.simulation.machine import EXITED, HeldImage, Machine, Pod
from tests.simulation.scheduler import Scheduler
from tests.simulation.services import READ_DEADLINE_SECONDS

LOOK_FRESH_SECONDS = 0.05
LIST_AGE_SECONDS = 0.25
PATIENCE_SECONDS = 2.0
A_PASS_AT_MOST_SECONDS = 3600.0
PLAN_HANGS_SECONDS = 62.0
STANDS_TIMES = 2  # 10 s
LOOKS_IN_VAIN_SECONDS = 60.0  # for so long lists may count that were made without a look
BEGINS_WITHIN_SECONDS = 10.0
BEGINS_AGAIN_WITHIN_SECONDS = 75.0
MOST_CLAIMS, MOST_PASSES, MOST_LANES = 64, 8, 12
URGENT_IN_FLIGHT = 16
BLIND_SECONDS = 3.0
IN_VAIN, IN_VAIN_SECONDS = 40, 10.0  # two rows a second, each every second, are 20
SLACK = 1e-6
A_DEFECT = re.compile(r"\b[A-Z]\w*(Error|Exception): ")


class Violation(Exception):
    """Something that must never happen has happened."""


@dataclass(slots=True)
class Looked:
    """A check that has ended. `look`: of which moment the directories were that it last saw;
    `listed`: and those before the last list of containers. `answered`: of which moment its last
    answer of the runtime was; the last look comes after it."""

    began: float
    look: float
    listed: float
    answered: float
    ended: float


@dataclass(slots=True)
class Sent:
    """A removal that was sent. `at`: when."""

    claim: Claim
    looked: Looked
    at: float
    pass_began: float
    trigger: Trigger
    urgent: bool


@dataclass
class Judge:
    """The judge of one run, over all lives of its daemon; it is also who
    watches the simulated runtime. `say`: where it tells what is removed.
    """

    clock: Scheduler
    machine: Machine
    configuration: Configuration
    say: Callable[[str], None]
    paused_until: float = 0.0
    paused_at: float = 0.0
    stopping: bool = False
    hold_off_until: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # the moment of the last look
        self._look = self._look_in_vain = self._listed = float("-inf")
        # device -> when a pass for it last began
        self._began = defaultdict[int, float](float)
        self._pressed_since: dict[int, float] = {}
        self._calm_since: dict[int, float] = {}
        # device -> when something last kept it from being relieved
        self._dirty_at = defaultdict[int, float](float)
        self._removed_ids: set[str] = set()
        self.tag_changed = defaultdict[str, float](float)
        self.pinned_at = defaultdict[str, float](float)
        self._read_at = defaultdict[int, float](float)  # device -> when it was last read

    # ---- a life begins

    def starts(self, hold_off_until: float, jobs: dict[object, object]) -> None:
        """A new process: what the last one had under way is nobody's any more."""
        self.hold_off_until, self.stopping, self.jobs = hold_off_until, False, jobs
        self._looked: dict[object, Looked] = {}
        self._check_began: dict[object, float] = {}
        self._answered: dict[object, float] = {}  # by the task that was answered
        # how often in a row a pass was seen as it is
        self._stood: dict[str, tuple[object, int]] = {}
        # when a plan that is awaited was last answered
        self._plan_progress: dict[tuple[str, StageId], float] = {}
        self._under_way: dict[str, Sent] = {}
        self._sent: dict[object, Sent] = {}
        self._ledger: dict[str, list[int]] = {}
        self._available: dict[int, int] = {}
        self._passes_seen: set[str] = set()
        self._gone_at: dict[str, float] = {}  # image -> when this daemon was told that it has gone
        # when passes ended that have not removed anything
        self._in_vain = deque[float](maxlen=IN_VAIN)
        self.all_dirty(40.0)

    def all_dirty(self, seconds: float = 0.0) -> None:
        """Nothing can be relieved at present, by no fault of the daemon's, nor
        for so long after.
        """
        for device in {disk.device for disk in self.machine.disks.values()}:
            self._dirty_at[device] = max(self._dirty_at[device], self.clock.now + seconds)

    # ---- turns

    def turned(
        self, events: list[Event], before: World, world: World, effects: tuple[Effect, ...]
    ) -> None:
        if world.effects:
            raise Violation("there is something that nobody is handed")
        sampled, now = False, self.clock.now
        for event in events:
            match event:
                case Sample(reading=reading):
                    sampled = True
                    if reading is not None:
                        self._available[reading.device_id] = reading.stats.available_bytes
                        self._read_at[reading.device_id] = now
                case Ended(claim, outcome):
                    self._under_way.pop(claim.object_id, None)
                    sent = self._sent.pop(claim, None)
                    gone = outcome.result in (Result.REMOVED, Result.ALREADY_GONE)
                    if sent is not None and gone:
                        self._is_gone(claim.object_id, sent)
                case Planned(pass_id, stage):
                    self._plan_progress.pop((pass_id, stage), None)
                case Progressed(pass_id, stage) if (pass_id, stage) in self._plan_progress:
                    self._plan_progress[pass_id, stage] = now
                case PassWanted():
                    self.counts["requests"] += 1
        if sampled and before.booked_to:
            self._booked(before, world)
        if world.passes_begun != before.passes_begun:
            for the in world.passes.values():
                if the.id not in self._passes_seen:
                    self._pass_begins(the)
        for effect in effects:
            match effect:
                case Send():
                    self._sends(effect, world)
                case Plan(pass_id, stage):
                    self._plan_progress[pass_id, stage] = now
                case Tell("passed", about):
                    self._passed(about[0], world)  # type: ignore[arg-type]
                case Tell("reclaiming", about):
                    self._reclaiming(about[0], world)
                case Tell("parked"):
                    self.counts["late"] += 1

    def begins(self, job: object) -> None:
        if type(job) is Check:
            self._check_began[job.claim.id] = self.clock.now

    def ends(self, job: object, event: Event) -> None:
        if type(job) is Check:
            assert isinstance(event, CheckAnswer)
            began, now = self._check_began[job.claim.id], self.clock.now
            last_look_follows = self._look_in_vain < began - LOOKS_IN_VAIN_SECONDS
            answered = (
                self._answered.get(self.clock.task, began) if last_look_follows else float("-inf")
            )
            self._looked[job.claim.id] = Looked(began, self._look, self._listed, answered, now)
            self.counts["checks"] += 1
        elif type(job) is Plan:
            self.counts["plans"] += 1

    def _is_gone(self, object_id: str, sent: Sent) -> None:
        """What counts as gone is: the runtime does not have it any more."""
        held, image = self.machine.containers.get(object_id), self.machine.images.get(object_id)
        there = held is not None or object_id in self.machine.sandboxes
        if there or (image is not None and image.since < sent.at):  # else it was pulled again
            raise Violation(
                f"{sent.claim.verdict.kind} {sent.claim.verdict.name} counts as gone, and is there"
            )
        self._gone_at[object_id] = self.clock.now

    def _reclaiming(self, threshold: object, world: World) -> None:
        role = threshold.signal.filesystem  # type: ignore[attr-defined]
        found = world.observations.filesystems.get(role)
        if found is not None:
            self._began[found[0].device_id] = self.clock.now

    def _pass_begins(self, the: RunningPass) -> None:
        self.counts["passes"] += 1
        self._passes_seen.add(the.id)
        by_itself = the.wanted is None
        if by_itself and self.clock.now < self.hold_off_until - SLACK:
            raise Violation(f"pass {the.id} began during the hold-off after the start")
        if by_itself and self._paused(the.began_at, now_asked=False):
            raise Violation(f"pass {the.id} began during a pause")

    def _paused(self, began: float, *, now_asked: bool) -> bool:
        if self.clock.now >= self.paused_until - SLACK:
            return False
        return not (now_asked and self.paused_at <= began)

    # ---- what is sent

    def _sends(self, effect: Send, world: World) -> None:
        claim, now = effect.claim, self.clock.now
        self.counts["sends"] += 1
        what = (
            f"{claim.verdict.kind} {claim.verdict.name} ({claim.verdict.id[:20]}) for pass"
            f" {claim.pass_id}"
        )
        the, looked = world.passes.get(claim.pass_id), self._looked.get(claim.id)
        if the is None or looked is None:
            raise Violation(f"{what} was sent without a check, or for a pass that has ended")
        for when, wrong in (
            ("in a dry run", claim.dry_run or the.dry_run or self.configuration.dry_run),
            ("after a stop", self.stopping),
            ("during a pause", self._paused(the.began_at, now_asked=the.request.now)),
            ("while it is being removed", claim.verdict.id in self._under_way),
            ("late after its last look", now - looked.ended > LOOK_FRESH_SECONDS + SLACK),
            ("beside too many", len(self._under_way) > 2 * MOST_CLAIMS),
        ):
            if wrong:
                raise Violation(f"{what} was sent {when}")
        self._are_bounded(what, the)
        sent = Sent(claim, looked, now, the.began_at, the.trigger, the.urgent)
        self._under_way[claim.verdict.id] = self._sent[claim.id] = sent
        if claim.verdict.kind == Kind.IMAGE and claim.verdict.id in self.machine.images:
            held = self.machine.images[claim.verdict.id]
            known = self.tag_changed[claim.verdict.id] < looked.began
            if known and self.configuration.keep_images.kept_ids((held.listed,)):
                raise Violation(f"{what} was sent, and the keep list in force names it")
        if claim.stage.last_resort:
            self._is_last_resort(what, claim, world)
        own = the.trigger in (Trigger.INTERVAL, Trigger.WATCH)
        if own and self.configuration.extent is Extent.ENOUGH and isinstance(the.lane, int):
            self._is_pressed(what, the, the.lane, world)

    def _are_bounded(self, what: str, the: RunningPass) -> None:
        """How many are under way, and whether the runtime answers them."""
        now, parallel = self.clock.now, self.configuration.parallel_removals
        patience = self.configuration.removal_patience_seconds + 1.0
        late = [sent for sent in self._under_way.values() if now - sent.at > patience]
        if len(late) > parallel:
            raise Violation(f"{what} was sent although {len(late)} removals are not answered")
        mine = [
            sent
            for sent in self._under_way.values()
            if sent.claim.pass_id == the.id and now - sent.at < 4.0
        ]
        if len(mine) >= (max(URGENT_IN_FLIGHT, parallel) if parallel > 1 else 1):
            raise Violation(f"{what} was sent although {len(mine)} of its pass are under way")

    def _is_pressed(self, what: str, the: RunningPass, device: int, world: World) -> None:
        """A pass of the daemon's own removes only while something presses,
        as far as it can be read.
        """
        if self.clock.now - self._read_at[device] > BLIND_SECONDS:
            raise Violation(f"{what} was sent for device {device}, which cannot be read")
        share = 0.34 if self.configuration.eviction_soft else self.mark() + 0.03
        # in a split layout the kubelet takes its own data to be with the containers
        for path, disk in self.machine.disks.items():
            if disk.device == device or path != "/images":
                available = self._available.get(disk.device)
                if available is None or available <= share * disk.capacity:
                    return
        seen = [
            s
            for s in world.observations.signals.values()
            if s.filesystem and s.filesystem.device_id == device
        ]
        if not any(one.signal.counts_inodes and one.available < 0.4 * one.capacity for one in seen):
            percent = 100 * self._available.get(device, 0) / self.machine.disks["/images"].capacity
            raise Violation(
                f"{what} was sent in a pass of {the.trigger} while {percent:.1f} % are available"
            )

    def mark(self) -> float:
        margin = str(self.configuration.effective["margin"])
        return 0.05 + float(margin.rstrip("%")) / 100

    def _is_last_resort(self, what: str, claim: Claim, world: World) -> None:
        """Everything else is gone, or stays for a reason of its own."""
        self.counts["last resort"] += 1
        the = world.passes[claim.pass_id]
        for stage in the.done:
            for outcome in stage.outcomes:
                if outcome.result in (Result.FAILED, Result.UNANSWERED, Result.PARKED):
                    raise Violation(
                        f"{what} was sent as a last resort although {outcome.verdict.name}"
                        f" {outcome.result}"
                    )
            if stage.error:
                raise Violation(
                    f"{what} was sent as a last resort although a stage has failed: {stage.error}"
                )
        tried = {
            outcome.verdict.id for stage in the.done for outcome in (*stage.outcomes, *stage.kept)
        }
        missed = [
            each
            for each in self.candidates()
            if not each.preloaded
            and each.since < the.began_at - 1.0
            and each.listed.id not in tried
        ]
        if missed and claim.stage.function in the.row:
            raise Violation(f"{what} was sent as a last resort before {missed[0].listed.title}")

    def candidates(self, margin_seconds: float = 60.0) -> list[HeldImage]:
        """Images that may go by everything that is true."""
        now, machine, images = self.clock.now, self.machine, policies_of(self.configuration).images
        ready = any(each.state is PodSandboxState.READY for each in machine.sandboxes.values())
        if not (machine.says_sandbox_image or ready):
            return []  # nothing says which image sandboxes need
        used = {
            each for held in machine.containers.values() for each in (held.image_id, *held.mounts)
        }
        used |= machine.starting.keys() | machine.bad_images
        no_last_resort = not machine.bad_images.isdisjoint(machine.images)  # they fail
        return [
            held
            for held in machine.images.values()
            if held.listed.id not in used
            and not (held.preloaded and no_last_resort)
            and not held.listed.pinned
            and "pause" not in held.listed.title
            and not images.keep.kept_ids((held.listed,))
            and now - held.since > images.min_age_seconds + margin_seconds
        ]

    # ---- what is removed: by the runtime's own tables, at this moment

    def sending(self) -> object:
        job = self.jobs.get(self.clock.task)
        return self._sent.get(job.claim.id) if type(job) is Send else None

    def lists(self, method: str) -> None:
        self.counts[f"lists of {method}"] += 1
        if method == "containers":
            self._listed = self._look

    def looks(self) -> None:
        self._look = self.clock.now

    def looks_in_vain(self) -> None:
        self._look_in_vain = self.clock.now

    def answers(self) -> None:
        self._answered[self.clock.task] = self.clock.now

    def removes(self, kind: str, object_id: str, sent: object) -> None:
        if not isinstance(sent, Sent):
            raise Violation(f"{kind} {object_id[:20]} is removed, and nobody has sent that")
        if sent.claim.verdict.id != object_id:
            raise Violation(
                f"{kind} {object_id[:20]} is removed in place of {sent.claim.verdict.id[:20]}"
            )
        self.say(f"    {kind} {object_id[:20]} is removed")
        self.counts["removals"] += 1
        if kind == "container stop":
            return
        wrong_with = getattr(self, f"_wrong_with_{kind.removesuffix(' stop')}")
        wrong = wrong_with(object_id, sent)
        self._removed_ids.add(object_id)
        if wrong:
            checked, at = self.clock.now - sent.looked.began, self.clock.now - sent.at
            ago = f"it was checked {checked:.3f} s ago, and sent {at:.3f} s ago"
            raise Violation(f"{kind} {sent.claim.verdict.name} is removed: {wrong} ({ago})")

    def image_went(self, image_id: str) -> None:
        """Somebody else has removed it."""
        self._removed_ids.add(image_id)

    def _patience_is_used_up(self, began: float, sent: Sent) -> bool:
        """Whether, by its rules, a pass need not wait for what has begun then: it has waited for as
        long as it does, and it is urgent, or others have begun in it before. What has begun since
        the list, the last look sees, which then stops an image once."""
        if began > max(sent.looked.began, sent.looked.listed) and not sent.claim.attempts:
            return False
        if sent.at - sent.pass_began < min(
            2 * self.configuration.pod_start_seconds, PATIENCE_SECONDS
        ):
            return False
        return sent.urgent or any(
            sent.pass_began < each < began for each in self.machine.beginnings
        )

    def _must_be_seen(self, began: float, last_look: float, pod: Pod, sent: Sent) -> bool:
        """Whether a container that is not listed yet must stop the removal of its image:
        its directory was there at the last look, and it is waited for, or its pod was
        touched since the list."""
        if began >= last_look - SLACK:
            return False
        touched = (
            sent.looked.listed < pod.touched_at < last_look - SLACK and not sent.claim.attempts
        )
        return touched or not self._patience_is_used_up(began, sent)

    def _wrong_with_image(self, image_id: str, sent: Sent) -> str:
        machine, looked = self.machine, sent.looked
        last_look = max(looked.look, looked.answered)
        held = machine.images.get(image_id)
        if held is None:
            return ""
        for user in machine.containers.values():
            # else that need not be known
            mounted = image_id in user.mounts and user.listed.state is not EXITED
            if user.image_id != image_id and not mounted:
                continue
            if user.made_at < looked.began - LIST_AGE_SECONDS - SLACK:
                there = looked.began - user.made_at
                return (
                    f"container {user.listed.title} uses it, and was there {there:.3f} s before the"
                    " check"
                )
            if self._must_be_seen(user.directory_at, last_look, user.pod, sent):
                there = last_look - user.directory_at
                what = f"container {user.listed.title} uses it"
                return f"{what}; its directory was there {there:.3f} s before the last look"
            self.counts["began unseen"] += 1
        for making in machine.starting.get(image_id, ()):
            if making.pod.over:  # nothing comes of it
                continue
            if self._must_be_seen(making.directory_at, last_look, making.pod, sent):
                return (
                    f"pod {making.pod.name} makes {making.name} of it; its directory was there"
                    " before the last look"
                )
            self.counts["began unseen"] += 1
        if held.listed.pinned and self.pinned_at[image_id] < looked.began:
            return "it is pinned"
        if "pause" in held.listed.title:
            return "no pod starts without it"
        age, least = (
            self.clock.now - held.since,
            policies_of(self.configuration).images.min_age_seconds,
        )
        # an age begins when the list was asked for that has it first, as in the kubelet
        age += READ_DEADLINE_SECONDS
        came_again = held.since > self._gone_at.get(image_id, float("inf"))
        known = came_again or image_id not in self._removed_ids
        if known and age < least and sent.trigger is not Trigger.PERIODIC:
            return f"it has been there for {self.clock.now - held.since:.0f} s"
        return ""

    def _wrong_with_container(self, container_id: str, sent: Sent) -> str:
        machine = self.machine
        held = machine.containers.get(container_id)
        if held is None:
            return ""
        if held.listed.state is not EXITED:
            return f"it is {held.listed.state}"
        if self.clock.now < held.runs_until:
            return "it runs, and only lists say that it has exited"
        pod = held.pod
        if not pod.uid:
            return "no kubelet has made it"
        if pod.seen is None:
            return ""
        if pod.back_at >= sent.looked.began - SLACK:
            self.counts["pods back unseen"] += 1
            return ""
        if (
            machine.others_removed_at.get((pod.uid, held.listed.name), 0.0)
            > sent.looked.began - 1.0
        ):
            return ""
        # as the kubelet orders them: wrongly, if the clock was set back in between
        by_date = held.listed.created_at_ns
        newer = any(
            each.pod is pod
            and each.listed.name == held.listed.name
            and (each.made_at > held.made_at or each.listed.created_at_ns > by_date)
            for each in machine.containers.values()
        )
        return "" if newer else "it is the newest copy, and its pod exists"

    def _wrong_with_sandbox(self, sandbox_id: str, sent: Sent) -> str:
        machine = self.machine
        found = machine.sandboxes.get(sandbox_id)
        if found is None:
            return ""
        if found.state is PodSandboxState.READY:
            return "it is READY"
        if not found.pod_uid:
            return "no kubelet has made it"
        if any(
            c.listed.sandbox_id == sandbox_id and c.made_at < sent.looked.began
            for c in machine.containers.values()
        ):
            return "it holds containers"
        pod = machine.pods.get(found.pod_uid)
        if pod is None or pod.seen is None or pod.back_at >= sent.looked.began - SLACK:
            return ""
        newer = any(  # by its date, as for containers
            each.pod_uid == found.pod_uid and each.created_at_ns > found.created_at_ns
            for each in machine.sandboxes.values()
        )
        return "" if newer or pod.sandbox_id != sandbox_id else "its pod exists"

    # ---- bookings

    def _booked(self, before: World, world: World) -> None:
        known = {
            identity.device_id: stats
            for identity, stats in before.observations.filesystems.values()
        }
        for identity, stats in dict(world.observations.filesystems.values()).items():
            then, booked_to = (
                known.get(identity.device_id),
                before.booked_to.get(identity.device_id),
            )
            if then is None or booked_to is None or stats.time <= then.time:
                continue
            del known[identity.device_id]
            ledger = self._ledger.setdefault(booked_to, [0, 0, 0])
            ledger[0] += stats.available_bytes - then.available_bytes
            ledger[1] += stats.free_bytes - then.free_bytes
            ledger[2] += stats.inodes_free - then.inodes_free

    def _passed(self, record: Pass, world: World) -> None:
        ledger = self._ledger.pop(record.id, [0, 0, 0])
        gained = record.measured.bytes - record.written_meanwhile.bytes
        if (
            gained != max(ledger[0], ledger[1])
            or record.measured.inodes - record.written_meanwhile.inodes != ledger[2]
        ):
            raise Violation(
                f"pass {record.id} says it gained {gained} bytes, and its filesystems"
                f" {max(ledger[:2])}"
            )
        if record.measured.bytes < 0 or record.written_meanwhile.bytes < 0:
            raise Violation(f"pass {record.id} has measured less than nothing")
        if (
            record.trigger in (Trigger.INTERVAL, Trigger.WATCH)
            and record.result is not PassResult.SATISFIED
        ):
            self._is_in_vain(record)
        freed = sum(result.measured.bytes for result in record.functions)
        self.counts["freed MiB"] += freed >> 20
        for result in record.functions:
            errors = [result.error, *(outcome.error for outcome in result.outcomes)]
            if defects := [*filter(A_DEFECT.search, errors)]:
                raise Violation(f"pass {record.id} has a defect: {defects[0]}")
            for outcome in result.outcomes:
                if outcome.result is Result.REMOVED and outcome.verdict.id in self._under_way:
                    raise Violation(
                        f"{outcome.verdict.name} counts as removed, and is being removed"
                    )
                if outcome.result is not None:
                    self.counts[f"{outcome.result}"] += 1
        if any(
            kept.verdict.reason is Reason.LAYOUT_CHANGED
            for result in record.functions
            for kept in result.kept
        ):
            self.counts["layout changed"] += 1

    def _is_in_vain(self, record: Pass) -> None:
        """What removes nothing does not begin at once again."""
        if record.count(Result.REMOVED):
            return
        self._in_vain.append(self.clock.now)
        if len(self._in_vain) == IN_VAIN and self.clock.now - self._in_vain[0] < IN_VAIN_SECONDS:
            raise Violation(
                f"pass {record.id} is the {IN_VAIN}th in a row in {IN_VAIN_SECONDS:g} s that"
                " removes nothing"
            )

    # ---- from time to time

    def looks_over(self, world: World) -> None:
        """Nothing grows, everything ends, and what presses is relieved in time."""
        now = self.clock.now
        self.counts["looked over"] += 1
        self._goes_on(world)
        for the in world.passes.values():
            if now - the.began_at > A_PASS_AT_MOST_SECONDS:
                raise Violation(f"pass {the.id} has not ended for {now - the.began_at:.0f} s")
            for run in the.current:
                waits = now - self._plan_progress.get((the.id, run.id), now)
                if run.plan is None and waits > PLAN_HANGS_SECONDS:
                    raise Violation(
                        f"pass {the.id} waits for a plan that has hung for {waits:.0f} s"
                    )
        for claim in world.removals.values():
            patience = (
                60.0 if claim.sent_at is None else self.configuration.removal_patience_seconds
            )
            waits = now - (claim.claimed_at if claim.sent_at is None else claim.sent_at)
            if claim.awaited and waits > patience + 2.0:
                raise Violation(
                    f"pass {claim.pass_id} waits for {claim.verdict.name} for {waits:.0f} s"
                )
        sizes = {
            "claims": (len(world.removals), MOST_CLAIMS),
            "passes": (len(world.passes), MOST_PASSES),
            "lanes": (len(world.lanes), MOST_LANES),
            "devices with a booking": (len(world.booked_to), 4),
            "readings": (len(world.readings), len(world.paths.distinct())),
            "wanted passes": (len(world.wanted), 20),
            "durations": (len(world.durations), 8),
            "cool-downs": (len(world.cooling_until), len(world.functions)),
            "fill rates": (len(world.fill_rates), 8),
            "hanging plans": (len(world.hanging), 12),
        }
        for what, (size, most) in sizes.items():
            if size > most:
                raise Violation(f"the world holds {size} {what}")
        self._relief_begins(world)

    def _goes_on(self, world: World) -> None:
        """A pass that waits for nothing that it has sent, asked or planned goes on,
        whatever a filesystem does.
        """
        stood: dict[str, tuple[object, int]] = {}
        waits = {claim.pass_id for claim in world.removals.values() if claim.awaited}
        for the in world.passes.values():
            state = the.progress_at, the.at, len(the.done), the.last_resort, the.settling is None
            before, times = self._stood.get(the.id, (None, 0))
            if the.id not in waits and not any(run.plan is None for run in the.current):
                stood[the.id] = state, times + 1 if before == state else 0
                if stood[the.id][1] > STANDS_TIMES:
                    raise Violation(f"pass {the.id} waits for nothing, and does not go on")
        self._stood = stood

    def _relief_begins(self, world: World) -> None:
        now, machine = self.clock.now, self.machine
        disks = {disk.device: disk for disk in machine.disks.values()}
        held_back = (
            now < self.paused_until
            or self.configuration.dry_run
            or self.stopping
            or now < self.hold_off_until
            or world.observations.layout is None
        )
        if held_back:
            self.all_dirty()
        relieved = self.relieved_devices(world.observations.layout)
        for device, disk in disks.items():
            if now < disk.hangs_until:
                self._dirty_at[device] = now
            pressed = (
                disk.available() < (self.mark() - 0.005) * disk.capacity and device in relieved
            )
            if not pressed:
                self._pressed_since.pop(device, None)
                if disk.available() > (self.mark() + 0.03) * disk.capacity:
                    self._calm_since.setdefault(device, now)
                else:
                    self._calm_since.pop(device, None)
                continue
            since = self._pressed_since.setdefault(device, now)
            calm_since = self._calm_since.get(device, since)
            clean = now - self._dirty_at[device]
            began = self._began[device]
            if any(the.lane == device and not the.dry_run for the in world.passes.values()):
                self._began[device] = began = now
            waits = now - max(since, began)
            calm_before = since - calm_since > 90.0 and began < calm_since
            within = BEGINS_WITHIN_SECONDS + self.configuration.poll_ceiling_seconds  # after a jump
            if calm_before and clean > now - since + 30.0 and waits > within:
                raise Violation(
                    f"nothing relieves device {device}, which has pressed for {now - since:.0f} s"
                )
            if clean > waits + 30.0 and waits > BEGINS_AGAIN_WITHIN_SECONDS:
                raise Violation(f"nothing relieves device {device} again, for {waits:.0f} s")

    def relieved_devices(self, layout: FsLayout | None) -> set[int]:
        """The devices whose signals have a row."""
        paths: dict[FsLayout | None, tuple[str, ...]] = {
            FsLayout.SINGLE: ("/node",),
            FsLayout.DEDICATED_IMAGEFS: ("/images",),
            FsLayout.SPLIT: ("/images", "/containers"),
        }
        return {self.machine.disks[path].device for path in paths.get(layout, ())}

    def at_the_end(self, world: World) -> None:
        """After a while in which nothing went wrong: what can be relieved is,
        and nothing is left over.
        """
        now = self.clock.now
        old = [claim for claim in world.removals.values() if now - claim.claimed_at > 120.0]
        if old:
            raise Violation(
                f"{old[0].verdict.name} is still {old[0].state} at the end, after"
                f" {now - old[0].claimed_at:.0f} s"
            )
        if world.hanging:
            raise Violation(f"a plan hangs at the end: {next(iter(world.hanging))}")
        layout = world.observations.layout
        if layout is None:
            raise Violation("the layout is not known at the end")
        images = self.machine.disks["/images"]
        mark = (self.mark() - 0.005) * images.capacity
        left = self.candidates(600.0)
        if images.device in self.relieved_devices(layout) and images.available() < mark and left:
            percent = 100 * images.available() / images.capacity
            raise Violation(
                f"{len(left)} images could go at the end, and {percent:.1f} % are available"
            )
        self.counts["ends relieved"] += 1
