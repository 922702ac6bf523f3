"""The newest images of each repository, which stay so that a rollback finds its image (`keepNewestPerRepository`).

A repository is a name without tag and digest, in full, so `busybox` and `docker.io/library/busybox` are one. An image
with several repositories stays if it is among the newest of one of them; one without a name has none, and does not
count. What is in use, pinned or kept for another reason counts like any other.

The newest is what was detected last. (CRI reports no time of a pull or a build. The record of an image survives a
restart, and on containerd begins with the time of the pull.) Of those detected together it is what was used last.

A runtime may list an id more than once, and it is one image: a removal is by id and takes every entry, so what is
decided is decided for all of them.

Covers: the entries of an id as one, which images of a list are the newest, and which are newer than one. Does not
cover: the plan (`plan`), the check right before a removal (`unused_images`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from reclaim.images.references import normalized, repository_of
from reclaim.types import Image, ImageRecord

_NO_NAME = "<none>"  # what Docker lists in place of a name


def entries_by_id(images: Iterable[Image]) -> Iterable[list[Image]]:
    """The entries of each id, in the order of their first one."""
    found: dict[str, list[Image]] = {}
    for image in images:
        found.setdefault(image.id, []).append(image)
    return found.values()


def one_image(entries: list[Image]) -> Image:
    """The entries of one id as one image, with all names and the sum of the sizes by runtime handler."""
    last = entries[-1]
    if len(entries) == 1 and not last.runtime_handler and len(last.repo_tags) <= 1 and len(last.repo_digests) <= 1:
        return last  # nearly every image is listed so
    sizes = {entry.runtime_handler: entry.size_bytes for entry in entries}
    return last._replace(
        repo_tags=tuple(sorted({tag for entry in entries for tag in entry.repo_tags})),
        repo_digests=tuple(sorted({digest for entry in entries for digest in entry.repo_digests})),
        size_bytes=sum(sizes.values()),
        pinned=any(entry.pinned for entry in entries),
        runtime_handler="",
    )


def one_record(entries: list[Image], records: Mapping[str, ImageRecord], now: float) -> ImageRecord:
    """The records of the entries of one id as one: as young as the youngest, last used when any was. An entry without a
    record was detected `now`."""
    if len(entries) == 1:
        return records.get(entries[0].record_key) or ImageRecord(now)
    known = [records.get(entry.record_key, ImageRecord(now)) for entry in entries]
    uses = [record.last_used for record in known if record.last_used is not None]
    return ImageRecord(
        max(record.first_detected for record in known),
        max(uses, default=None),
        max(record.listed_since for record in known),
    )


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
