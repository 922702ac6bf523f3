"""The stage of `DeleteUnusedImages`: it checks who uses an image now, and sends one removal.

The periodic pass over images makes plans of its own, but removes through the same stage. It is the
kubelet's pass (`pkg/kubelet/images/image_gc_manager.go`, GarbageCollect), in its order:

1. Detect: list images and containers, and update the records.
2. Remove what has been unused for longer than the maximum age. If a removal fails, the rest are
   still tried, and the pass ends with an error.
3. Read the image filesystem. Below the high mark, the pass is done.
4. Remove unused images, least recently used first, until the sum of their sizes reaches the target.
   The sizes are the runtime's, and the filesystem is not read again: the next pass corrects any
   error. Here, unless it is to be exactly the kubelet's, the order is the policy's, and what an
   image frees counts where it is known.

Images that are already gone, and images whose removal is not answered in time, add nothing to the
sum. Does not cover: the arithmetic (`images.plan`), and when a pass is due and what is announced of
it (`eviction.engine.periodic`).
"""

import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import NamedTuple

from reclaim.cri.inventory import Evidence
from reclaim.evidence.references import images_in_use, removal_references
from reclaim.evidence.starts import FRESH_SECONDS, PodStarts
from reclaim.function import (
    GONE,
    STATUS_FRESH_SECONDS,
    Ready,
    ReclaimContext,
    ReclaimFunction,
    Refused,
    Stage,
    Wait,
)
from reclaim.images.keep_list import KeepList
from reclaim.images.plan import (
    NewestOfRepositories,
    decide_space,
    invalid_capacity,
    known_images,
    not_enough_freed,
    part_of,
    plan_image_gc,
    plan_maximum_age,
    repositories_of,
)
from reclaim.types import NO_LAYERS, Image, Kind, Plan, Reason, ReclaimError, Result, Verdict
from signals.types import FilesystemRole

# how old the list of containers may be when an image is checked, if nothing has begun since
LIST_AGE_SECONDS = 0.25


Planner = Callable[[ReclaimContext, Evidence, float], Plan]
"""Plans from what was listed by a detection that began at this time (monotonic seconds)."""


def unused_images(
    context: ReclaimContext, evidence: Evidence, detected_at: float, *, last: bool = False
) -> Plan:
    """What may go under pressure, in the order of the policy: all but what goes last; or,
    `last`, that alone."""
    plan = plan_image_gc(
        evidence.listing,
        context.records.records,
        context.policies.images,
        now=detected_at,
        usage=evidence.usage,
        layers=context.inventory.layers,
        need_bytes=context.facts().pressure.missing_bytes,
    )
    return part_of(plan, last=last)


class UnusedImages(Stage):
    """Removes an image that a list of containers shows to be unused. The list must be at most a
    quarter of a second old, and begun after the newest pod, or container of one, began to start.
    Concurrent removals share one list.

    While a pod is being made, and if the directories of pods cannot be read, a list is used only by
    those who asked before it was begun. A dry run does not wait for pods.
    """

    fresh_seconds = FRESH_SECONDS

    def __init__(self, context: ReclaimContext, planner: Planner = unused_images):
        self._planner = planner
        self._context = context
        self._clock = context.clock
        self._inventory = context.inventory
        self._policy = context.policies.images
        self._starts = PodStarts(
            lambda: context.inventory.sandboxes(self._listed_after),
            context.pods,
            context.clock,
            hold_off_seconds=self._policy.pod_start_seconds,
            part_ages=context.part_ages,
            urgent=lambda: context.facts().urgent,
        )
        # One check at a time lists or finds that it has to wait; those beside it use the
        # same list, and the same wait.
        self._listing = threading.Lock()
        self._evidence: Evidence | None = None  # at first the plan's; none after a wait
        self._starts_seen = False  # whether pods that are being made were looked for in it
        # when the containers that sandboxes are compared with were listed
        self._listed_after = float("-inf")
        # when the list was begun that the last look found too old
        self._in_vain_at: float | None = None
        self._stopped: set[str] = set()  # images that the last look has stopped
        self._answered: set[str] = set()  # images that the runtime says it has removed
        # what the runtime is sent for each listed image
        self._references: dict[str, tuple[str, ...]] = {}

    def plan(self) -> Plan:
        """Lists everything, and records which images are in use, as the kubelet's detection does,
        before it plans. Raises RuntimeUnavailable."""
        began = self._clock.monotonic()
        wall = self._clock.wall()
        context = self._context
        listed = self._inventory.snapshot(context.not_older_than())
        self.listed_at = self._clock.monotonic()
        planned = context.facts().planned
        self._evidence = evidence = listed.without(planned)
        context.records.update(
            listed.listing.images,
            None if planned else listed.usage.ids,  # what a dry run leaves out is still there
            began,
            wall_now=wall,
            containers=listed.listing.containers,
        )
        known = known_images(evidence.listing.images, context.records.records, began)
        self._references = {
            image_id: removal_references(image.entries) for image_id, image in known.items()
        }
        self._newest = NewestOfRepositories(known.values(), self._policy.keep_newest_per_repository)
        self._listed_images = evidence.listing
        self._starts_seen = False
        return self._planner(context, evidence, began)

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Refuses an image that is in use by now, or may be because a user's image cannot be
        resolved. Waits while a pod is being made. Raises RuntimeUnavailable."""
        asked_at = self._clock.monotonic()
        with self._listing:
            evidence = self._evidence_for(asked_at)
            seconds = self._seconds_to_wait(evidence, verdict)
            if not self._starts_seen:
                # sandboxes belong to it
                evidence = evidence._replace(read_at=self._clock.monotonic())
            self._starts_seen = True
            # after a wait, everything is read anew
            self._evidence = None if seconds > 0 else evidence
        if seconds > 0:
            return Wait(seconds)
        status = self._status(verdict.id)
        refused = refusal(verdict, evidence, status, keep=self._policy.keep)
        if refused is None and status is not None and self._is_newest(status):
            refused = Refused(Reason.NEWEST_OF_REPOSITORY)
        if refused == GONE:
            self._context.records.forget(verdict.id)
        if refused is not None:
            return refused
        # the status belongs to it, too
        as_of = evidence._replace(read_at=self._clock.monotonic()).as_of
        if evidence.directories is None or not self._waits:
            return Ready(as_of)
        alone = evidence.begun_at >= asked_at
        return Ready(as_of, lambda: self._holds(verdict.id, evidence, alone=alone))

    def _evidence_for(self, asked_at: float) -> Evidence:
        """What shows who uses an image, for one who asks at this time.

        Raises RuntimeUnavailable.
        """
        known = self._evidence
        if known is None:
            return self._listed_again(asked_at)
        if self._nothing_begins(known, asked_at):
            oldest = asked_at - LIST_AGE_SECONDS
            return known if known.as_of > oldest else self._listed_again(oldest)
        # a pod is being made, which the kubelet may not have listed yet
        if known.as_of > asked_at:
            return known
        return self._listed_again(asked_at, named_since=asked_at)

    def _nothing_begins(self, evidence: Evidence, asked_at: float) -> bool:
        """Whether no pod is being made, nor has any part of one begun since.

        A dry run does not mind.
        """
        if not self._waits:
            return True
        by = max(evidence.begun_at, asked_at - STATUS_FRESH_SECONDS)
        return not self._starts.under_way and evidence.holds(self._context.pods.pod_directories(by))

    def _listed_again(self, not_older_than: float, named_since: float | None = None) -> Evidence:
        """Raises RuntimeUnavailable."""
        evidence = self._inventory.evidence(self._listed_images, not_older_than, named_since)
        self._starts_seen = False
        return evidence.without(self._context.facts().planned)

    def _seconds_to_wait(self, evidence: Evidence, verdict: Verdict) -> float:
        """How long to wait for pods that are being made; 0: not at all.

        Raises RuntimeUnavailable.
        """
        if not self._waits or (self._starts_seen and not self._starts.under_way):
            return 0.0
        self._listed_after = evidence.begun_at
        return self._starts.wait_seconds(evidence.listing.containers, verdict.id)

    def _holds(self, image_id: str, evidence: Evidence, *, alone: bool) -> bool:
        """The last look. `alone`: the list was begun after this image was asked about.
        Where pods keep beginning, the last look stops an image once, unless the list
        itself is too old by now."""
        if evidence.holds(self._context.pods.pod_directories()):
            return True
        fresh = self._clock.monotonic() - evidence.answered_at <= FRESH_SECONDS
        if alone and fresh and image_id in self._stopped and self._starts.patience_used_up:
            return True
        with self._listing:
            self._stopped.add(image_id)
            if self._in_vain_at != evidence.begun_at:  # several images may have relied on it
                self._in_vain_at = evidence.begun_at
                self._starts.lost(min(self._clock.monotonic() - evidence.begun_at, FRESH_SECONDS))
        return False

    @property
    def _waits(self) -> bool:
        return not self._context.facts().dry_run

    def _is_newest(self, image: Image) -> bool:
        """Whether too few newer images of one of its repositories still exist: others remove images
        too, and a tag may have moved."""
        count = self._newest.count
        for repository, newer in self._newest.newer_than(image):
            there = (image_id for image_id in newer if self._is_of(repository, image_id))
            if len(newer) < count or len(list(islice(there, count))) < count:
                return True
        return False

    def _is_of(self, repository: str, image_id: str) -> bool:
        image = self._status(image_id)
        return image is not None and repository in repositories_of(image)

    def remove(self, verdict: Verdict) -> bool:
        """RemoveImage by what names exactly this image (`removal_references`), never by a tag:
        given one, one runtime drops all tags and another only that one."""
        removed = [
            self._context.runtime.remove_image(each)
            for each in self._references.get(verdict.id, (verdict.id,))
        ]
        self._answered.add(verdict.id)
        return any(removed)

    def present(self, verdict: Verdict) -> bool:
        """True if ImageStatus answers with exactly this id. An image that is gone, or may be, loses
        its age: if it is pulled again, it is a new image."""
        there = gone = False
        try:
            there = self._status(verdict.id) is not None
            gone = not there
        finally:
            if not there or verdict.id in self._answered:
                self._context.records.forget(verdict.id, self._clock.monotonic() if gone else None)
        return there

    def _status(self, image_id: str) -> Image | None:
        """What ImageStatus says about exactly this id; None if the runtime does not have it. CRI-O
        does not find an artifact with several names by its id. Raises RuntimeUnavailable."""
        asked = dict.fromkeys((*self._references.get(image_id, ()), image_id))
        found = (self._context.runtime.image_status(each) for each in asked)
        return next((image for image in found if image is not None and image.id == image_id), None)


def refusal(
    verdict: Verdict, evidence: Evidence, status: Image | None, *, keep: KeepList
) -> Refused | None:
    """Why an image stays; None if it may go. `status`: what the runtime says of it now: since it
    was listed it may have been pinned or got another name, or the list may have been wrong."""
    if verdict.id in evidence.usage.by_containers:
        return Refused(Reason.IN_USE, Result.IN_USE)
    if evidence.usage.unresolved:
        return Refused(Reason.UNRESOLVED_IMAGE)
    if status is None:
        return GONE
    if status.pinned:
        return Refused(Reason.PINNED)
    if keep.kept_ids((status,)):
        return Refused(Reason.KEEP_LIST)
    usage = images_in_use(evidence.listing._replace(images=(status,)))
    if status.id in usage.by_containers:
        return Refused(Reason.IN_USE)
    return Refused(Reason.SANDBOX_IMAGE) if status.id in usage.by_sandboxes else None


# ---- the kubelet's periodic loop

IMAGE_GC = "GarbageCollectImages"

ImageFsStats = Callable[[], tuple[int | None, int | None]]
"""Reads the image filesystem: capacity and available bytes, None if not known.

Any exception ends the pass.
"""


class PeriodicImages(NamedTuple):
    """The plans of its stages, and what they need besides the context."""

    started_at: float
    """When the loop of passes began (monotonic seconds)."""
    stats: ImageFsStats
    exact: Callable[[], bool]
    """Whether to apply the maximum age, and count sizes, exactly as the kubelet does."""

    def function(self) -> ReclaimFunction:
        """The entry for the table of functions. What is kept is not listed."""
        return ReclaimFunction(
            IMAGE_GC,
            FilesystemRole.IMAGEFS,
            (Kind.IMAGE,),
            stages=lambda context: (
                UnusedImages(context, self.old),
                UnusedImages(context, self.for_space),
            ),
            stops_on_failure=True,
        )

    def old(self, context: ReclaimContext, evidence: Evidence, detected_at: float) -> Plan:
        """Images that have been unused for longer than the maximum age."""
        plan = plan_maximum_age(
            evidence.listing,
            context.records.records,
            context.policies.images,
            now=detected_at,
            started_at=self.started_at,
            exact=self.exact(),
        )
        return Plan(plan.remove)

    def for_space(self, context: ReclaimContext, evidence: Evidence, detected_at: float) -> Plan:
        """Unused images until enough is promised to reach the low mark; none below the high mark.

        Raises ReclaimError, whatever the reading raises.
        """
        policy = context.policies.images
        layers = NO_LAYERS if self.exact() else context.inventory.layers
        try:
            capacity, available = self.stats()
        except Exception as error:  # whatever it raises ends this pass, not the loop
            raise ReclaimError(f"the image filesystem cannot be read: {error}") from error
        if capacity is None or capacity <= 0:
            return Plan(event_of=lambda _: invalid_capacity(capacity))
        if available is not None:  # what a dry run would have removed
            available += sum(verdict.promised_bytes for verdict in context.facts().planned)
        space = decide_space(available, capacity, policy)
        if space.target_bytes is None:
            return Plan()
        plan = plan_image_gc(
            evidence.listing,
            context.records.records,
            policy,
            now=detected_at,
            usage=evidence.usage,
            layers=layers,
        )
        return Plan(
            plan.remove,
            target_bytes=space.target_bytes,
            event_of=partial(not_enough_freed, space, says_usage=policy.says_usage),
        )
