"""The entries of a list of images: a runtime may list an id more than once, and it is one image.

A removal is by id and takes every entry, so what is decided is decided for all of them (`plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reclaim.types import Image, ImageRecord


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
