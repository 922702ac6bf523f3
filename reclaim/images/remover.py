"""Removes images: checks against a fresh list of containers, sends one removal, asks whether the image is gone."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import islice

from reclaim.clock import Clock
from reclaim.execution.remover import GONE, Ready, Refused, Wait
from reclaim.images.in_use import images_in_use
from reclaim.images.keep_list import KEEP_NOTHING, KeepList
from reclaim.images.lister import FRESH_SECONDS, Lister
from reclaim.images.newest import NewestOfRepositories, repositories_of
from reclaim.images.pod_startup import PodStarts
from reclaim.services import ImageService
from reclaim.types import Image, Listing, Reason, Result, Verdict


class ImageRemover:
    """Removes an image that a list of containers, at most 1 s old, shows to be unused.

    The list is read anew before each removal where that is cheap: it may be as old as four times what it took to
    read, and never older than 1 s. (The age of a list that takes half a second and more counts from its answer: from
    the question it could never be young enough.) Removals that run side by side share one. `starts`: the pods that
    removals wait for. `planned`: what a dry run would have removed before: these containers count as gone. `newest`: of
    the images of the plan, if the newest of each repository stay.
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
        self._listing = listing
        self._read_at = float("-inf")
        self._cost_seconds = 0.0

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Refuses an image that is in use by now, or may be: its user cannot be told. Waits while a pod is made."""
        with self._lock:
            if self._refresh() and self._starts is not None:
                wait = self._starts.wait_seconds(self._listing.containers)
                if wait > 0:
                    self._read_at = float("-inf")  # after it everything is read anew
                    return Wait(wait)
            usage, read_at = images_in_use(self._listing, self._index), self._read_at
        if verdict.id in usage.by_containers:
            return Refused(Reason.IN_USE, Result.IN_USE)
        if usage.unresolved:
            return Refused(Reason.UNRESOLVED_IMAGE)
        image = self._images.image_status(verdict.id)
        if image is None or image.id != verdict.id:
            return GONE
        reason = self._protected(image)
        return Ready(read_at) if reason is None else Refused(reason)

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

    def _refresh(self) -> bool:
        """Reads the list anew if it is too old. Whether it did."""
        asked_at = self._clock.monotonic()
        if asked_at - self._read_at <= min(4 * self._cost_seconds, FRESH_SECONDS / 2):
            return False
        listing, answered_at = self._lister.refresh_containers(self._listing, self._index)
        self._listing = listing.without(self._planned)
        self._cost_seconds = self._clock.monotonic() - asked_at
        self._read_at = asked_at if answered_at - asked_at < FRESH_SECONDS / 2 else answered_at
        return True

    def remove(self, verdict: Verdict) -> bool:
        """RemoveImage by whole id, never by name: by name one runtime drops all tags and another only one."""
        return self._images.remove_image(verdict.id)

    def present(self, verdict: Verdict) -> bool:
        """True if ImageStatus answers with this very id."""
        image = self._images.image_status(verdict.id)
        return image is not None and image.id == verdict.id
