"""What is remembered of images: when each was first seen, and last seen in use.

The kubelet keeps the same record in memory (`pkg/kubelet/images/image_gc_manager.go`) and starts anew after a
restart. Here an image that has no record yet may have a witness: containerd writes the configuration of an image,
named by the image's id, at the moment of the pull. What the witness says can only make an image as old as it
provably is; without one an unknown image is young, never ancient.

Covers: first seen, last used, forgetting. An id that re-appears starts a new age.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from reclaim.references import bare_hex
from reclaim.types import Image, ImageRecord

AgeWitness = Callable[[str], float | None]
"""Wall time (seconds since the epoch) at which an image id was certainly there already; None = not known."""


class ImageRecords:
    """The records of all listed images. Times are monotonic seconds; only `update` changes them."""

    def __init__(self, witness: AgeWitness = lambda _: None, seed: Mapping[str, ImageRecord] | None = None):
        self._witness = witness
        self._records: dict[str, ImageRecord] = dict(seed or {})

    @property
    def records(self) -> Mapping[str, ImageRecord]:
        """The records by image id."""
        return dict(self._records)

    def update(
        self, images: Iterable[Image], in_use: frozenset[str], now: float, wall_now: float
    ) -> Mapping[str, ImageRecord]:
        """One detection: new images get a record, those in use a new last use, those no longer listed are forgotten.

        `now` monotonic, `wall_now` since the epoch, both seconds.
        """
        fresh: dict[str, ImageRecord] = {}
        for image in images:
            known = self._records.get(image.id) or ImageRecord(self._first_detected(image.id, now, wall_now))
            fresh[image.id] = ImageRecord(known.first_detected, now) if image.id in in_use else known
        self._records = fresh
        return dict(fresh)

    def _first_detected(self, image_id: str, now: float, wall_now: float) -> float:
        seen = self._witness(image_id)
        return now if seen is None else now - max(wall_now - seen, 0.0)


def containerd_witness(image_filesystem: str) -> AgeWitness:
    """The witness of a containerd whose snapshotter lives in `image_filesystem` (what `ImageFsInfo` says).

    The id of an image is the digest of its configuration, and containerd keeps that as a file of this name in the
    content store beside the snapshotter. The later of modification and change time counts, so that a file brought
    back from a backup is not older than its return. Read only; a store of another shape has no witness.
    """
    blobs = os.path.join(os.path.dirname(image_filesystem), "io.containerd.content.v1.content", "blobs", "sha256")

    def witness(image_id: str) -> float | None:
        name = bare_hex(image_id)
        if len(name) != 64 or not name.isalnum():
            return None
        try:
            found = os.lstat(os.path.join(blobs, name))
        except OSError:
            return None
        return max(found.st_mtime, found.st_ctime)

    return witness
