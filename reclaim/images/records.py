"""What is remembered about images: when each was first detected, and last seen in use.

The kubelet keeps the same record in memory (`pkg/kubelet/images/image_gc_manager.go`, detectImages) and starts over
after a restart. Here, records can be restored (`records_file`), and an image without a record may be dated by another
source: containerd remembers when it was pulled (`reclaim.containerd`). A pull time makes an image without a record only
as old as it provably is, and an image with a restored record no older than the pull: it may have been removed and
pulled again in between. Without a record and a pull time, an image counts as new.

Pull times are wall times, and the wall clock may have been set since. So a pull time counts

* by the smallest difference between the wall clock and the monotonic clock known in this boot: if the clock was set
  forward after the pull, the image does not become older;
* no further back than the earliest moment of this boot at which both clocks are known, and no further back than the
  previous detection, in which the image was missing.

A runtime may pull an image once for each runtime handler and list its id with each. Each entry then has a record, as in
the kubelet with its gate RuntimeClassInImageCriApi, and an entry added to others is new: the id's pull time says
nothing about it. Only the id tells which containers use it, so the use of one entry is the use of all.

Covers: first detected, last used, forgetting, concurrent detections. An id that appears again starts a new age.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from reclaim.types import Image, ImageRecord

PullTimes = Callable[[], Mapping[str, float]]
"""Wall times (seconds since the epoch) at which image ids certainly existed already; unknown ids are left out."""

EarlierClocks = Callable[[], tuple[float, float] | None]
"""How many seconds ago, in this boot, the wall clock showed which time (seconds since the epoch); None if not known."""


class ImageRecords:
    """The records of all listed images. Times are monotonic seconds. Thread-safe.

    `earlier`: asked once, if there are pull times and nothing else relates the two clocks before the first detection.
    """

    def __init__(
        self,
        pull_times: PullTimes = dict,
        seed: Mapping[str, ImageRecord] | None = None,
        earlier: EarlierClocks = lambda: None,
    ):
        self._pull_times = pull_times
        self._earlier = earlier
        self._known_since = float("inf")  # the earliest moment at which both clocks are known
        self._smallest_offset = float("inf")  # between the wall clock and the monotonic clock since then
        self._detected_at = float("-inf")
        self._lock = threading.Lock()
        self._records: dict[str, ImageRecord] = dict(seed or {})
        self._unconfirmed: set[str] = set()  # restored, and not yet seen by this process

    @property
    def records(self) -> Mapping[str, ImageRecord]:
        """The records by `Image.record_key`."""
        with self._lock:
            return dict(self._records)

    def restore(self, records: Mapping[str, ImageRecord], saved: tuple[float, float] | None = None) -> None:
        """Restores what an earlier process remembered; records that this process already has are not changed.

        The next detection checks each against its pull time, and forgets those no longer listed. `saved`: when they
        were saved in this boot, by the monotonic and the wall clock.
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

        `in_use`: ids. `now` is monotonic and `wall_now` since the epoch, both in seconds. A detection that began before
        another thread's finished one forgets nothing and sets no last use back.
        """
        listed = {image.record_key: image.id for image in images}
        with self._lock:
            asked = self._to_be_dated(listed)
            alone = self._known_since == float("inf")
        # asked without the lock: a runtime that does not answer must not block a thread that needs no pull times
        pulled = self._pull_times() if asked else {}
        earlier = self._earlier() if alone and pulled else None
        with self._lock:
            self._compare_clocks(now, wall_now)
            if earlier is not None:
                self._compare_clocks(now - earlier[0], earlier[1])
            seen = {key: pulled[listed[key]] - self._smallest_offset for key in asked if listed[key] in pulled}
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
        """These images were removed: if one returns before the next detection, it starts a new age."""
        gone = frozenset(image_ids)
        with self._lock:
            for key in [key for key in self._records if _id_of(key) in gone]:
                del self._records[key]
                self._unconfirmed.discard(key)

    def _to_be_dated(self, listed: Mapping[str, str]) -> list[str]:
        """The keys that need a pull time: restored ones, and new ones that are the only entry of their id."""
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

    def _confirmed(self, key: str, pulled: float | None, now: float) -> ImageRecord:
        """The record of a listed image, a new one if it has none. `pulled`: on the monotonic clock."""
        known = self._records.get(key)
        if known is None:
            if pulled is None:
                return ImageRecord(now)
            since = max(pulled, self._known_since, self._detected_at)
            return ImageRecord(since, first_listed=now) if since < now else ImageRecord(now)
        if key not in self._unconfirmed or pulled is None or pulled <= known.first_detected:
            return known
        since = min(pulled, now)
        last_used = known.last_used  # or of an image that was there before this one was pulled?
        return ImageRecord(since, None if last_used is None or last_used < since else last_used, now)


def _id_of(key: str) -> str:
    """The image id in the key of a record."""
    return key.partition(",")[0]
