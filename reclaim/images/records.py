"""What is remembered of images: when each was first detected, and last seen in use.

The kubelet keeps the same record in memory (`pkg/kubelet/images/image_gc_manager.go`, detectImages) and starts anew
after a restart. Here records can be restored (`records_json`), and an image without a record may have a witness of its
age: containerd writes the configuration of an image, named by the image's id, at the moment of the pull. The witness
can only make an image without a record as old as it provably is, and an image with a restored record no older than
that: it may have been removed and pulled again meanwhile. Without record and witness an image counts as new.

A runtime may pull an image once for each runtime handler and list its id with each. Then each entry has a record, as in
the kubelet with its gate RuntimeClassInImageCriApi, and an entry that is added to others is new: a witness of the id
says nothing of it. Which containers use it is known by the id alone, so the use of one entry is the use of all.

Covers: first detected, last used, forgetting, detections of two threads. An id that appears again starts a new age.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from reclaim.images.references import bare_hex
from reclaim.types import Image, ImageRecord

AgeWitness = Callable[[str], float | None]
"""Wall time (seconds since the epoch) at which an image id was certainly there already; None = not known."""


class ImageRecords:
    """The records of all listed images. Times are monotonic seconds. May be used from several threads."""

    def __init__(self, witness: AgeWitness = lambda _: None, seed: Mapping[str, ImageRecord] | None = None):
        self._witness = witness
        self._lock = threading.Lock()
        self._records: dict[str, ImageRecord] = dict(seed or {})
        self._listed_at: dict[str, float] = {}
        self._unconfirmed: set[str] = set()  # restored, not seen by this process yet

    @property
    def records(self) -> Mapping[str, ImageRecord]:
        """The records by `Image.record_key`."""
        with self._lock:
            return dict(self._records)

    def restore(self, records: Mapping[str, ImageRecord]) -> None:
        """Restores what an earlier process remembered; a record that this process has already is not changed.

        At the next detection the witness is asked about each, and those no longer listed are forgotten.
        """
        with self._lock:
            restored = {known: record for known, record in records.items() if known not in self._records}
            self._records.update(restored)
            self._unconfirmed.update(restored)

    def update(
        self, images: Iterable[Image], in_use: frozenset[str], now: float, wall_now: float
    ) -> Mapping[str, ImageRecord]:
        """One detection: new images get a record, those in use a new last use, those no longer listed are forgotten.

        `in_use`: ids. `now` monotonic, `wall_now` since the epoch, both seconds. What another thread listed later than
        `now` is not forgotten, and no last use is set back.
        """
        listed = {image.record_key: image.id for image in images}
        with self._lock:
            asked = self._for_the_witness(listed)
        # asked without the lock: a disk that does not answer must not block a thread that needs no witness
        first_seen = {known: self._first_seen(listed[known], now, wall_now) for known in asked}
        with self._lock:
            fresh = {
                known: record
                for known, record in self._records.items()
                if known not in listed and self._listed_at.get(known, now) > now
            }
            for key, image_id in listed.items():
                record = self._confirmed(key, first_seen.get(key), now)
                if image_id in in_use and now > (float("-inf") if record.last_used is None else record.last_used):
                    record = ImageRecord(record.first_detected, now)
                fresh[key] = record
            self._listed_at = {
                known: max(now, self._listed_at.get(known, now)) if known in listed else self._listed_at[known]
                for known in fresh
            }
            self._unconfirmed &= fresh.keys() - listed.keys()
            self._records = fresh
            return dict(fresh)

    def forget(self, image_ids: Iterable[str]) -> None:
        """These images were removed: should one come back before the next detection, it starts a new age."""
        gone = frozenset(image_ids)
        with self._lock:
            for key in [key for key in self._records if _id_of(key) in gone]:
                del self._records[key]
                self._listed_at.pop(key, None)
                self._unconfirmed.discard(key)

    def _for_the_witness(self, listed: Mapping[str, str]) -> list[str]:
        """The keys to ask the witness about: restored ones, and new ones that are the only entry of their id."""
        entries = Counter(listed.values())
        entries.update(_id_of(key) for key in self._records.keys() - listed.keys())
        return [
            key
            for key, image_id in listed.items()
            if key in self._unconfirmed or (key not in self._records and entries[image_id] == 1)
        ]

    def _first_seen(self, image_id: str, now: float, wall_now: float) -> float | None:
        seen = self._witness(image_id)
        return None if seen is None else now - max(wall_now - seen, 0.0)

    def _confirmed(self, key: str, witnessed: float | None, now: float) -> ImageRecord:
        """The record of a listed image, a new one if it has none."""
        known = self._records.get(key)
        if known is None:
            return ImageRecord(now if witnessed is None else witnessed)
        if key not in self._unconfirmed or witnessed is None or witnessed <= known.first_detected:
            return known
        last_used = known.last_used  # of the image that was there before this one was pulled?
        return ImageRecord(witnessed, None if last_used is None or last_used < witnessed else last_used)


def _id_of(key: str) -> str:
    """The image id in the key of a record."""
    return key.partition(",")[0]


def containerd_witness(image_filesystem: str) -> AgeWitness:
    """The witness of a containerd whose snapshotter is in `image_filesystem` (as `ImageFsInfo` reports it).

    The id of an image is the digest of its configuration, and containerd keeps that as a file of this name in the
    content store beside the snapshotter. The later of modification and change time counts, so that a file
    restored from a backup is not older than that. It only reads; a store of another layout has no witness.
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
