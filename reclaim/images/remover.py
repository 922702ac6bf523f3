"""Removes images: checks against a fresh list of containers, sends one removal, asks whether the image is gone."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import islice

from reclaim.clock import Clock
from reclaim.execution.remover import GONE, Ready, Refused, Wait
from reclaim.images.in_use import ImagesInUse, images_in_use
from reclaim.images.keep_list import KEEP_NOTHING, KeepList
from reclaim.images.lister import FRESH_SECONDS, Lister
from reclaim.images.newest import NewestOfRepositories, repositories_of
from reclaim.images.pod_startup import Directories, PodStarts
from reclaim.services import ImageService
from reclaim.types import Image, Listing, Reason, Result, RuntimeUnavailable, Verdict


class ImageRemover:
    """Removes an image that a list of containers, at most 1 s old, shows to be unused.

    The list is read anew before each removal where that is cheap: it may be as old as four times what it took to
    read, and never older than 1 s. (The age of a list that takes half a second and more counts from its answer: from
    the question it could never be young enough.) Removals that run side by side share one.

    A list of before a pod began shows nothing of it. So the directories of pods are read before each list and once more
    right before each removal: where one is new or has changed, the list that has cleared the image counts no longer.
    While a pod is being made, and where the directories cannot be read, a list serves only those who asked before it
    was begun.

    `starts`: the pods that removals wait for; None: none is looked for, as in a dry run. `planned`: what a dry run
    would have removed before: these containers count as gone. `newest`: of the images of the plan, if the newest of
    each repository stay.
    """

    fresh_seconds = FRESH_SECONDS
    frees_late = False

    def __init__(
        self,
        images: ImageService,
        lister: Lister,
        listing: Listing,
        clock: Clock,
        planned: tuple[Verdict, ...] = (),
        *,
        keep: KeepList = KEEP_NOTHING,
        starts: PodStarts | None = None,
        newest: NewestOfRepositories | None = None,
    ):
        self._images = images
        self._keep = keep
        self._starts = starts
        self._newest = newest
        self._planned = planned
        self._lister = lister
        self._clock = clock
        self._index = lister.index_of(listing.images)
        self._lock = threading.Lock()
        self._looking = threading.Lock()  # one thread is enough for the directories, however many images are checked
        self._listing = listing
        self._pods: Directories | None = None  # right before the list was read
        self._began_at = float("-inf")  # when that began
        self._read_at = float("-inf")  # as of when the list counts
        self._cost_seconds = 0.0
        self._failed: RuntimeUnavailable | None = None  # the last time that the list was not answered
        self._failed_at = float("-inf")  # when that question began

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Refuses an image that is in use by now, or may be: its user cannot be told. Waits while a pod is made."""
        asked_at = self._clock.monotonic()
        with self._lock:
            if self._refresh(asked_at) and self._starts is not None:
                wait = self._starts.wait_seconds(self._listing.containers)
                if wait > 0:
                    self._began_at = self._read_at = float("-inf")  # after it everything is read anew
                    return Wait(wait)
            usage, pods, read_at = images_in_use(self._listing, self._index), self._pods, self._read_at
        refused = self._refusal(verdict, usage)
        if refused is not None:
            return refused
        return Ready(float("-inf") if self._has_begun_since(pods) else read_at)

    def _has_begun_since(self, pods: Directories | None) -> bool:
        """Whether a pod has begun since its directories were these: the last look, right before the removal."""
        if self._starts is None or pods is None:
            return False
        with self._looking:
            now = self._starts.directories()
        return now is None or not now <= pods

    def _refusal(self, verdict: Verdict, usage: ImagesInUse) -> Refused | None:
        """Why the image stays, by who uses it and by its own status of now. Raises RuntimeUnavailable."""
        if verdict.id in usage.by_containers:
            return Refused(Reason.IN_USE, Result.IN_USE)
        if usage.unresolved:
            return Refused(Reason.UNRESOLVED_IMAGE)
        image = self._images.image_status(verdict.id)
        if image is None or image.id != verdict.id:
            return GONE
        reason = self._protected(image)
        return None if reason is None else Refused(reason)

    def _protected(self, image: Image) -> Reason | None:
        """Why its status of now keeps the image: it may have been pinned, or got another name, since it was listed, and
        the list may have been wrong."""
        if image.pinned:
            return Reason.PINNED
        if self._keep.kept_ids((image,)):
            return Reason.KEEP_LIST
        if self._is_newest(image):
            return Reason.NEWEST_OF_REPOSITORY
        usage = images_in_use(replace(self._listing, images=(image,)))
        if image.id in usage.by_containers:
            return Reason.IN_USE
        return Reason.SANDBOX_IMAGE if image.id in usage.by_sandboxes else None

    def _is_newest(self, image: Image) -> bool:
        """Whether too few newer images of a repository of it are still there: others remove images too, and a tag may
        have moved."""
        newest = self._newest
        return newest is not None and any(
            not self._has(repository, newer, newest.count) for repository, newer in newest.newer_than(image)
        )

    def _has(self, repository: str, ids: list[str], count: int) -> bool:
        """Whether so many of these images are there, and of this repository."""
        there = (image_id for image_id in ids if self._is_of(repository, image_id))
        return len(ids) >= count and len(list(islice(there, count))) == count

    def _is_of(self, repository: str, image_id: str) -> bool:
        image = self._images.image_status(image_id)
        return image is not None and image.id == image_id and repository in repositories_of(image)

    def _refresh(self, asked_at: float) -> bool:
        """Reads the list anew if it does not serve one who asked at this time. Whether it did. Raises
        RuntimeUnavailable, also for a question of after that time that has failed already."""
        pods = None if self._starts is None else self._starts.directories()
        if self._serves(asked_at, pods):
            return False
        if self._failed is not None and self._failed_at >= asked_at:
            raise self._failed
        began_at = self._clock.monotonic()
        try:
            named_since = began_at if self._begun(pods) else None  # the kubelet may not have told of a new pod before
            listing, answered_at = self._lister.refresh_containers(self._listing, self._index, named_since)
        except RuntimeUnavailable as error:
            self._failed, self._failed_at = error, began_at
            raise
        self._listing = listing.without(self._planned)
        self._pods, self._began_at, self._cost_seconds = pods, began_at, self._clock.monotonic() - began_at
        self._read_at = began_at if answered_at - began_at < FRESH_SECONDS / 2 else answered_at
        return True

    def _serves(self, asked_at: float, pods: Directories | None) -> bool:
        """Whether the list is young enough, and of after the last pod began. `pods`: their directories now."""
        if self._starts is not None and (pods is None or self._starts.under_way):
            return self._began_at >= asked_at
        return not self._begun(pods) and asked_at - self._read_at <= min(4 * self._cost_seconds, FRESH_SECONDS / 2)

    def _begun(self, pods: Directories | None) -> bool:
        """Whether one of these directories is new, or has changed, since the list."""
        return pods is not None and (self._pods is None or not pods <= self._pods)

    def remove(self, verdict: Verdict) -> bool:
        """RemoveImage by whole id, never by name: by name one runtime drops all tags and another only one."""
        return self._images.remove_image(verdict.id)

    def present(self, verdict: Verdict) -> bool:
        """True if ImageStatus answers with this very id."""
        image = self._images.image_status(verdict.id)
        return image is not None and image.id == verdict.id
