"""The one stage of `DeleteUnusedImages`: it plans, checks who uses an image now, and sends one removal.

The periodic pass over images (`periodic_image_gc`) makes plans of its own, but removes through the same stage.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from itertools import islice

from reclaim.function import GONE, STATUS_FRESH_SECONDS, Ready, ReclaimContext, Refused, Stage, Wait
from reclaim.images.plan import NewestOfRepositories, entries_by_id, part_of, plan_image_gc, repositories_of
from reclaim.images.references import ImagesInUse, images_in_use, removal_references
from reclaim.inventory import FRESH_SECONDS, Evidence
from reclaim.pods.starts import Directories, PodStarts
from reclaim.types import Image, Listing, Plan, Reason, Result, Verdict

LIST_AGE_SECONDS = 0.25  # how old the list of containers may be when an image is checked, if nothing has begun since


@dataclass(frozen=True, slots=True)
class ListedImages:
    """What a plan is based on: complete lists, which images they show in use, and when detection began, as in the
    kubelet (monotonic seconds). `list_seconds`: how long reading them took."""

    listing: Listing
    usage: ImagesInUse
    detected_at: float
    list_seconds: float


class UnusedImages(Stage):
    """Removes an image that a list of containers shows to be unused. The list must be at most a quarter of a second
    old, and begun after the newest pod, or container of one, began to start. Concurrent removals share one list.

    While a pod is being made, and if the directories of pods cannot be read, a list is used only by those who asked
    before it was begun. A dry run does not wait for pods.

    `last_resort`: removes only what goes last (`plan.part_of`); otherwise, all but that.
    """

    fresh_seconds = FRESH_SECONDS

    def __init__(self, context: ReclaimContext, *, last_resort: bool = False):
        self._last_resort = last_resort
        self._context = context
        self._clock = context.clock
        self._inventory = context.inventory
        self._policy = context.policies.images
        self._starts = PodStarts(
            lambda: context.inventory.sandboxes(self._listed_after),
            context.pods,
            context.clock,
            self._policy.pod_start_seconds,
            context.part_ages,
            lambda: context.facts().urgent,
        )
        self._lock = threading.Lock()  # guards the evidence, which concurrent checks share
        self._evidence: Evidence | None = None
        self._of_plan: Evidence | None = None  # serves the first checks, as long as the last look holds
        self._listed_after = float("-inf")  # when the containers that sandboxes are compared with were listed
        self._in_vain: Evidence | None = None  # what the last look found too old, as far as it has cost patience
        self._stopped: set[str] = set()  # images that the last look has stopped
        self._answered: set[str] = set()  # images that the runtime says it has removed
        self._references: dict[str, tuple[str, ...]] = {}  # what the runtime is sent for each listed image

    def plan(self) -> Plan:
        """Unused images, in the order of the policy. Raises RuntimeUnavailable."""
        found = self.read()
        records = self._context.records.records
        need_bytes, layers = self._context.facts().pressure.missing_bytes, self._context.inventory.layers
        plan = plan_image_gc(found.listing, records, self._policy, found.detected_at, found.usage, layers, need_bytes)
        return replace(part_of(plan, last=self._last_resort), list_seconds=found.list_seconds)

    def read(self) -> ListedImages:
        """Lists everything, and records which images are in use. Raises RuntimeUnavailable."""
        began, wall, context = self._clock.monotonic(), self._clock.wall(), self._context
        evidence = self._inventory.snapshot(context.not_older_than())
        found = evidence.listing
        listing = found.without(context.facts().planned)
        listed_at = self._clock.monotonic()
        usage = images_in_use(listing, self._inventory.index_of(listing.images))
        in_use = None if context.facts().planned else usage.ids  # what a dry run leaves out is still there
        context.records.update(found.images, in_use, began, wall, found.containers)
        records, count = context.records.records, self._policy.keep_newest_per_repository
        self._listing = listing
        with self._lock:
            self._evidence, self._of_plan = None, replace(evidence, listing=listing)
        self._references = {each: removal_references(known) for each, known in entries_by_id(listing.images).items()}
        self._newest = NewestOfRepositories(listing.images, records, count, began)
        return ListedImages(listing, usage, began, listed_at - began)

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Refuses an image that is in use by now, or may be because a user's image cannot be resolved. Waits while a
        pod is being made. Raises RuntimeUnavailable."""
        asked_at = self._clock.monotonic()
        with self._lock:
            evidence = self._usable_evidence(asked_at)
            if self._waits and (evidence is not self._evidence or self._starts.under_way):
                self._listed_after = evidence.begun_at
                seconds = self._starts.wait_seconds(evidence.listing.containers, verdict.id)
                if seconds > 0:
                    self._evidence = self._of_plan = None  # after a wait, everything is read anew
                    return Wait(seconds)
            if evidence is not self._evidence:
                self._usage = images_in_use(evidence.listing, self._inventory.index_of(evidence.listing.images))
                evidence = self._evidence = replace(evidence, read_at=self._clock.monotonic())  # sandboxes belong to it
            usage = self._usage
        refused = self._refusal(verdict, usage, evidence)
        if refused is not None:
            return refused
        at = replace(evidence, read_at=self._clock.monotonic()).as_of  # and the status of the image
        directories = evidence.directories
        if directories is None or not self._waits:
            return Ready(at)
        return Ready(at, lambda: self._holds(verdict.id, evidence, directories, alone=evidence.begun_at >= asked_at))

    def _holds(self, image_id: str, evidence: Evidence, directories: Directories, *, alone: bool) -> bool:
        """The last look. `alone`: the list was begun after this image was asked about. Where pods keep beginning, the
        last look stops an image once, unless the list itself is too old by now."""
        if directories.nothing_has_begun_since(evidence.listing.containers):
            return True
        fresh = self._clock.monotonic() - evidence.answered_at <= FRESH_SECONDS
        if alone and fresh and image_id in self._stopped and self._starts.patience_used_up:
            return True
        with self._lock:
            self._stopped.add(image_id)
            if self._in_vain is not evidence:  # several images may have relied on it
                self._in_vain = evidence
                self._starts.lost(min(self._clock.monotonic() - evidence.begun_at, FRESH_SECONDS))
        return False

    @property
    def _waits(self) -> bool:
        return not self._context.facts().dry_run

    def _usable_evidence(self, asked_at: float) -> Evidence:
        """The current evidence; or new evidence if something has begun since, or if it is too old for someone who asked
        at this time. Raises RuntimeUnavailable."""
        known = self._evidence or self._of_plan
        directories = None if known is None else known.directories
        unchanged = (
            known is not None
            and directories is not None
            and directories.nothing_has_begun_since(
                known.listing.containers, max(known.begun_at, asked_at - STATUS_FRESH_SECONDS)
            )
        )
        alone = known is None or (self._waits and (not unchanged or self._starts.under_way))
        oldest = asked_at if alone else asked_at - LIST_AGE_SECONDS
        if known is not None and known.as_of > oldest:
            return known
        # the kubelet may not have listed a new pod yet
        named_since = asked_at if alone and known is not None else None
        evidence = self._inventory.evidence(self._listing, oldest, named_since)
        return replace(evidence, listing=evidence.listing.without(self._context.facts().planned))

    def _refusal(self, verdict: Verdict, usage: ImagesInUse, evidence: Evidence) -> Refused | None:
        """Why the image must stay: somebody uses it, or its current status protects it. Raises RuntimeUnavailable."""
        if verdict.id in usage.by_containers:
            return Refused(Reason.IN_USE, Result.IN_USE)
        if usage.unresolved:
            return Refused(Reason.UNRESOLVED_IMAGE)
        image = self._status(verdict.id)
        if image is None:
            self._context.records.forget(verdict.id)
            return GONE
        reason = self._protected(image, evidence.listing)
        return None if reason is None else Refused(reason)

    def _protected(self, image: Image, listing: Listing) -> Reason | None:
        """Why its current status protects the image: since it was listed it may have been pinned or got another name,
        or the list may have been wrong."""
        if image.pinned:
            return Reason.PINNED
        if self._policy.keep.kept_ids((image,)):
            return Reason.KEEP_LIST
        if self._is_newest(image):
            return Reason.NEWEST_OF_REPOSITORY
        usage = images_in_use(replace(listing, images=(image,)))
        if image.id in usage.by_containers:
            return Reason.IN_USE
        return Reason.SANDBOX_IMAGE if image.id in usage.by_sandboxes else None

    def _is_newest(self, image: Image) -> bool:
        """Whether too few newer images of one of its repositories still exist: others remove images too, and a tag may
        have moved."""
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
        """RemoveImage by what names exactly this image (`removal_references`), never by a tag: given one, one runtime
        drops all tags and another only that one."""
        removed = [self._context.images.remove_image(each) for each in self._references.get(verdict.id, (verdict.id,))]
        self._answered.add(verdict.id)
        return any(removed)

    def present(self, verdict: Verdict) -> bool:
        """True if ImageStatus answers with exactly this id. An image that is gone, or may be, loses its age: if it is
        pulled again, it is a new image."""
        there = gone = False
        try:
            there = self._status(verdict.id) is not None
            gone = not there
        finally:
            if not there or verdict.id in self._answered:
                self._context.records.forget(verdict.id, self._clock.monotonic() if gone else None)
        return there

    def _status(self, image_id: str) -> Image | None:
        """What ImageStatus says about exactly this id; None if the runtime does not have it. CRI-O does not find an
        artifact with several names by its id. Raises RuntimeUnavailable."""
        asked = dict.fromkeys((*self._references.get(image_id, ()), image_id))
        found = (self._context.images.image_status(each) for each in asked)
        return next((image for image in found if image is not None and image.id == image_id), None)
