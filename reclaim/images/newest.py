"""The newest images of each repository, which stay so that a rollback finds its image (`keepNewestPerRepository`).

A repository is a name without tag and digest, in full, so `busybox` and `docker.io/library/busybox` are one. An image
with several repositories stays if it is among the newest of one of them; one without a name has none, and does not
count. What is in use, pinned or kept for another reason counts like any other.

The newest is what was detected last. (CRI reports no time of a pull or a build. The record of an image survives a
restart, and on containerd begins with the time of the pull.) Of those detected together it is what was used last.

Covers: which images of a list are the newest, and which are newer than one. Does not cover: the plan (`plan`), the
check right before a removal (`remover`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reclaim.images.entries import entries_by_id, one_image, one_record
from reclaim.images.references import normalized, repository_of
from reclaim.types import Image, ImageRecord

_NO_NAME = "<none>"  # what Docker lists in place of a name


def repositories_of(image: Image) -> frozenset[str]:
    """The repositories, in full, of which an image has a tag or a digest."""
    names = (name for name in (*image.repo_tags, *image.repo_digests) if name and not name.startswith(_NO_NAME))
    return frozenset(repository_of(normalized(name)) for name in names)


class NewestOfRepositories:
    """The newest `count` images of each repository in a list; with a count of 0 there are none.

    `records` and `now`, in monotonic seconds, are those of the plan.
    """

    def __init__(self, images: Iterable[Image], records: Mapping[str, ImageRecord], count: int, now: float):
        self.count = count
        self._order: dict[str, tuple[float, float, str]] = {}
        self._ids: dict[str, list[str]] = {}  # by repository, the newest first
        for entries in entries_by_id(images) if count > 0 else ():
            image, record = one_image(entries), one_record(entries, records, now)
            last_used = float("-inf") if record.last_used is None else record.last_used
            self._order[image.id] = (record.first_detected, last_used, image.id)
            for repository in repositories_of(image):
                self._ids.setdefault(repository, []).append(image.id)
        for ids in self._ids.values():
            ids.sort(key=self._order.__getitem__, reverse=True)
        self.ids = frozenset(image_id for ids in self._ids.values() for image_id in ids[: max(count, 0)])
        """The ids of the images that are among the newest of one of their repositories."""

    def newer_than(self, image: Image) -> Iterator[tuple[str, list[str]]]:
        """Each repository that this image has by its names of now, and the ids of the listed images in it that are
        newer, the newest first. Without a count there are no repositories."""
        if self.count <= 0 or image.id not in self._order:
            return
        own = self._order[image.id]
        for repository in repositories_of(image):
            ids = self._ids.get(repository, [])
            yield repository, [each for each in ids if self._order[each] > own]
