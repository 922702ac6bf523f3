"""What is remembered of images: when each was first detected, and last seen in use.

The kubelet keeps the same record in memory (`pkg/kubelet/images/image_gc_manager.go`, detectImages) and starts anew
after a restart. Here records can be restored (`records_file`), and an image without a record may have a witness of its
age: containerd remembers when it was pulled (`cri.image_store`). The witness can only make an image without a record as
old as it provably is, and an image with a restored record no older than that: it may have been removed and pulled again
meanwhile. Without record and witness an image counts as new.

The witness speaks in wall time, and the wall clock may have been set since. So its word counts

* by the smallest difference of the wall clock to the monotonic one that is known of this boot: a clock that was set
  forward after the pull makes the image no older;
* no further back than to the earliest moment of this boot at which both clocks are known, nor to the detection before,
  in which the image was missing.

A runtime may pull an image once for each runtime handler and list its id with each. Then each entry has a record, as in
the kubelet with its gate RuntimeClassInImageCriApi, and an entry that is added to others is new: a witness of the id
says nothing of it. Which containers use it is known by the id alone, so the use of one entry is the use of all.

Covers: first detected, last used, forgetting, detections of two threads. An id that appears again starts a new age.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from reclaim.types import Image, ImageRecord

AgeWitness = Callable[[], Mapping[str, float]]
"""Wall times (seconds since the epoch) at which image ids were certainly there already; without those not known."""

EarlierClocks = Callable[[], tuple[float, float] | None]
"""How many seconds ago, in this boot, the wall clock showed what (seconds since the epoch); None = not known."""


class ImageRecords:
    """The records of all listed images. Times are monotonic seconds. May be used from several threads.

    `earlier`: asked once, if there is a witness and nothing else tells of both clocks before the first detection.
    """

    def __init__(
        self,
        witness: AgeWitness = dict,
        seed: Mapping[str, ImageRecord] | None = None,
        earlier: EarlierClocks = lambda: None,
    ):
        self._witness = witness
        self._earlier = earlier
        self._known_since = float("inf")  # the earliest moment at which both clocks are known
        self._smallest_offset = float("inf")  # of the wall clock, from then on
        self._detected_at = float("-inf")
        self._lock = threading.Lock()
        self._records: dict[str, ImageRecord] = dict(seed or {})
        self._unconfirmed: set[str] = set()  # restored, not seen by this process yet

    @property
    def records(self) -> Mapping[str, ImageRecord]:
        """The records by `Image.record_key`."""
        with self._lock:
            return dict(self._records)

    def restore(self, records: Mapping[str, ImageRecord], saved: tuple[float, float] | None = None) -> None:
        """Restores what an earlier process remembered; a record that this process has already is not changed.

        At the next detection the witness is asked about each, and those no longer listed are forgotten. `saved`: when
        they were saved in this boot, by the monotonic and the wall clock.
        """
        with self._lock:
            if saved is not None:
                self._compare_clocks(*saved)
            restored = {known: record for known, record in records.items() if known not in self._records}
            self._records.update(restored)
            self._unconfirmed.update(restored)

    def update(
        self, images: Iterable[Image], in_use: frozenset[str], now: float, wall_now: float
    ) -> Mapping[str, ImageRecord]:
        """One detection, the kubelet's detectImages: new images get a record, those in use a new last use, and those no
        longer listed are forgotten.

        `in_use`: ids. `now` monotonic, `wall_now` since the epoch, both seconds. One that began before another that has
        ended, of another thread, forgets nothing and sets no last use back.
        """
        listed = {image.record_key: image.id for image in images}
        with self._lock:
            asked = self._for_the_witness(listed)
            alone = self._known_since == float("inf")
        # asked without the lock: a runtime that does not answer must not block a thread that needs no witness
        witnessed = self._witness() if asked else {}
        earlier = self._earlier() if alone and witnessed else None
        with self._lock:
            self._compare_clocks(now, wall_now)
            if earlier is not None:
                self._compare_clocks(now - earlier[0], earlier[1])
            seen = {key: witnessed[listed[key]] - self._smallest_offset for key in asked if listed[key] in witnessed}
            fresh = dict(self._records) if now < self._detected_at else {}
            for key, image_id in listed.items():
                record = self._confirmed(key, seen.get(key), now)
                if image_id in in_use and now > (float("-inf") if record.last_used is None else record.last_used):
                    record = replace(record, last_used=now)
                fresh[key] = record
            self._unconfirmed &= fresh.keys() - listed.keys()
            self._records = fresh
            self._detected_at = max(now, self._detected_at)
            return dict(fresh)

    def forget(self, image_ids: Iterable[str]) -> None:
        """These images were removed: should one come back before the next detection, it starts a new age."""
        gone = frozenset(image_ids)
        with self._lock:
            for key in [key for key in self._records if _id_of(key) in gone]:
                del self._records[key]
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

    def _compare_clocks(self, monotonic: float, wall: float) -> None:
        self._known_since = min(self._known_since, monotonic)
        self._smallest_offset = min(self._smallest_offset, wall - monotonic)

    def _confirmed(self, key: str, witnessed: float | None, now: float) -> ImageRecord:
        """The record of a listed image, a new one if it has none. `witnessed`: on the monotonic clock."""
        known = self._records.get(key)
        if known is None:
            if witnessed is None:
                return ImageRecord(now)
            vouched = max(witnessed, self._known_since, self._detected_at)
            return ImageRecord(vouched, first_listed=now) if vouched < now else ImageRecord(now)
        if key not in self._unconfirmed or witnessed is None or witnessed <= known.first_detected:
            return known
        since = min(witnessed, now)
        last_used = known.last_used  # of the image that was there before this one was pulled?
        return ImageRecord(since, None if last_used is None or last_used < since else last_used, now)


def _id_of(key: str) -> str:
    """The image id in the key of a record."""
    return key.partition(",")[0]
