"""What is remembered about images: when each was first detected and last seen in use.

The kubelet keeps the same record in memory (`pkg/kubelet/images/image_gc_manager.go`, detectImages)
and starts over after a restart. Here, records can be restored (`eviction.records.state_file`), and
an image without a record may be dated by another source: containerd remembers when it was pulled
(`reclaim.functions.containerd_garbage`). A pull time makes an image without a record only as old as
it provably is, and an image with a restored record no older than the pull: it may have been removed
and pulled again in between. Without a record and a pull time, an image counts as new. An id that
appears again after it was gone starts a new age.

Pull times are wall times, and the wall clock may have been set since. So a pull time counts

* by the smallest difference between the wall clock and the monotonic clock known in this boot: if
  the clock was set forward after the pull, the image does not become older;
* no further back than the earliest moment of this boot at which both clocks are known, and no
  further back than the previous detection, in which the image was missing.

**What has gone is remembered**: the last 1000 images that are no longer listed, whoever removed
them. If one is listed again, by its id or else by its first tag, it has returned: that is
reported once, and how often it was used and came back goes on from there.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reclaim.evidence.starts import FRESH_SECONDS, SAME_SECONDS
from reclaim.images.plan import NO_NAME, entries_by_id
from reclaim.kubelet.pull_records import NOT_READ, PullRecords
from reclaim.types import Container, Image, ImageRecord, Records

MOST_GONE = 1000  # some 400 KB in the file


class Loaded(NamedTuple):
    """What an earlier process has saved: its records, and those of images that had gone.
    `problem`: why they cannot be read, as a sentence, else empty. `saved`: when they were saved,
    in monotonic and wall seconds; None if not in this boot. `at`: the same in wall seconds, in any
    boot; None if there are none."""

    records: Mapping[str, ImageRecord] = {}
    gone: Mapping[str, ImageRecord] = {}
    problem: str = ""
    saved: tuple[float, float] | None = None
    at: float | None = None


class Returned(NamedTuple):
    """An image that had gone is listed again."""

    image: Image
    gone_id: str
    """The one that had gone; another one than this if only its tag came back."""
    by_us: bool
    """Whether we had removed it."""
    since: float
    """When it was listed, or pulled before that, as far as the runtime says; seconds since the
    epoch."""


class ImageRecords:
    """The records of all listed images, by id. Times are monotonic seconds. Thread-safe.

    `pull_times`: wall times (seconds since the epoch) at which image ids certainly existed already;
    unknown ids are left out. `earlier`: how many seconds ago, in this boot, the wall clock showed
    which time; None if not known. Asked once, if there are pull times and nothing else relates the
    two clocks before the first detection. `on_return`: called for each image that has returned, on
    the thread of the detection (listeners hear `returned`). `pulls`: reads the kubelet's records
    of pulls, given all containers.
    """

    def __init__(
        self,
        pull_times: Callable[[], Mapping[str, float]] = dict,
        seed: Records | None = None,
        earlier: Callable[[], tuple[float, float] | None] = lambda: None,
        *,
        on_return: Callable[[Returned], None] = lambda _: None,
        pulls: Callable[[Iterable[Container]], PullRecords] = lambda _: NOT_READ,
    ):
        self._pull_times = pull_times
        self._earlier = earlier
        self._on_return = on_return
        self._pulls = pulls
        self._known_since = float("inf")  # the earliest moment at which both clocks are known
        # between the wall clock and the monotonic clock since then
        self._smallest_offset = float("inf")
        self._detected_at = float("-inf")
        self._in_use_at = float("-inf")  # the latest detection, or the latest restored use
        self.records: Records = dict(seed or {})
        """Those of the listed images. Replaced as a whole."""
        # A detection and a removal that end at once must not lose what the other has
        # recorded. Readers need no lock.
        self._lock = threading.Lock()
        self._gone: dict[str, ImageRecord] = {}  # those that went last at the end
        self._removed_at = float("-inf")  # when we last removed one
        self._unconfirmed: set[str] = set()  # restored, and not yet seen by this process
        self._judged = False  # whether the kubelet's records of pulls have been known

    @property
    def gone(self) -> Records:
        """The last records of the images that have gone."""
        with self._lock:
            return dict(self._gone)

    def restore(self, loaded: Loaded) -> None:
        """Restores what an earlier process remembered; records of this process stay.

        The next detection checks each against its pull time, and forgets those no longer listed.
        """
        with self._lock:
            if loaded.saved is not None:
                self._compare_clocks(*loaded.saved)
            restored = {
                known: record
                for known, record in loaded.records.items()
                if known not in self.records
            }
            self.records = {**self.records, **restored}
            self._unconfirmed.update(restored)
            self._in_use_at = max(
                [self._in_use_at, *(record.last_use for record in restored.values())]
            )
            self._gone = {
                known: record for known, record in loaded.gone.items() if known not in self.records
            } | self._gone

    def update(
        self,
        images: Iterable[Image],
        in_use: frozenset[str] | None,
        now: float,
        *,
        wall_now: float,
        containers: Iterable[Container] = (),
    ) -> Records:
        """One detection, the kubelet's detectImages: new images get a record, those in use a new
        last use, and those no longer listed are forgotten.

        `in_use`: ids; None: images are only dated. `now` is monotonic and `wall_now` since the
        epoch, both in seconds. A detection that began before another thread's finished one forgets
        nothing and sets no last use back. Whether the kubelet has not pulled an image is decided
        when it is first dated beside known records of pulls, and remembered: a record may be pruned
        later. `containers`: all that were listed, for that.
        """
        pulls = self._pulls(containers)
        listed = entries_by_id(images)
        with self._lock:
            asked = (listed.keys() - self.records.keys()) | (listed.keys() & self._unconfirmed)
            if not (self._judged or pulls.problem):
                asked = set(listed)
                self._judged = True
            alone = self._known_since == float("inf")
        # asked without the lock: a runtime that does not answer must not block a
        # thread that needs no pull times
        pulled = self._pull_times() if asked else {}
        earlier = self._earlier() if alone and pulled else None
        with self._lock:
            self._compare_clocks(now, wall_now)
            if earlier is not None:
                self._compare_clocks(now - earlier[0], earlier[1])
            found: dict[str, ImageRecord] = {}
            returned: list[Returned] = []
            for image_id, entries in listed.items():
                image = entries[-1]
                came = pulled.get(image_id) if image_id in asked else None
                record = self._dated(entries, came, now)
                if not record.pulled and (told := pulls.pulled(image, came)) is not None:
                    record = replace(record, pulled=told)
                if (gone_id := self._returned_as(image, record, listed, now=now)) is not None:
                    gone = self._gone.pop(gone_id, ImageRecord(now))
                    returned.append(
                        Returned(
                            image,
                            gone_id,
                            by_us=gone.removed,
                            since=wall_now - (now - record.first_detected),
                        )
                    )
                    record = _with_uses_of(gone, record)
                if in_use and image_id in in_use and now > record.last_use:
                    begins = record.last_used != self._in_use_at
                    record = replace(record, last_used=now, uses=record.uses + begins)
                found[image_id] = record
            if now < self._detected_at:
                found = {**self.records, **found}
            self._unconfirmed &= found.keys() - listed.keys()
            for image_id in self.records.keys() - found.keys() - self._gone.keys():
                self._remember(image_id, self.records[image_id])
            self.records = found
            self._detected_at = max(now, self._detected_at)
            self._in_use_at = self._in_use_at if in_use is None else self._detected_at
        for image_returned in returned:
            self._on_return(image_returned)
        return found

    def forget(self, image_id: str, removed: float | None = None) -> None:
        """This image is gone, or may be: if it returns before the next detection, it starts
        a new age. `removed`: when it was gone after our removal, in monotonic seconds;
        None: it may be there."""
        with self._lock:
            records = dict(self.records)
            record = records.pop(image_id, None)
            self.records = records
            self._unconfirmed.discard(image_id)
            if record is not None and removed is not None:
                self._remember(image_id, replace(record, removed=True))
                self._removed_at = max(removed, self._removed_at)

    def _remember(self, image_id: str, record: ImageRecord) -> None:
        gone = self._gone
        gone.pop(image_id, None)  # so that it moves to the end
        gone[image_id] = record
        while len(gone) > MOST_GONE:
            del gone[next(iter(gone))]

    def _dated(self, entries: Sequence[Image], came: float | None, now: float) -> ImageRecord:
        """The record of a listed image, given all entries of its id.

        `came`: when it was pulled, in wall seconds.
        """
        image = entries[-1]
        handlers = tuple(sorted({entry.runtime_handler for entry in entries}))
        tag = "".join(image.repo_tags[:1])
        known = self.records.get(image.id)
        restored = image.id in self._unconfirmed
        new = ImageRecord(now, handlers=handlers, tag=tag)
        pulled = None if came is None else min(came - self._smallest_offset, now)
        if known is None:
            if pulled is None or len(handlers) > 1:  # it says nothing about one of several entries
                return new
            since = max(pulled, self._known_since, self._detected_at)
            return replace(new, first_detected=since, first_listed=now) if since < now else new
        # A removal takes all entries of an id, so they have one record. An entry that was added for
        # another runtime handler starts a new age: the id's pull time says nothing about it.
        if not set(handlers) <= set(known.handlers):
            new = replace(
                new, last_used=known.last_used, first_listed=known.listed_since, pulled=known.pulled
            )
            return _with_uses_of(known, new)
        if restored and pulled is not None and pulled > known.first_detected:
            # a use before the pull may be of an image that was there before this one
            last_used = known.last_used if known.last_use >= pulled else None
            # the same pull, though the clocks have drifted against each other
            told = known.pulled if pulled - known.first_detected < SAME_SECONDS else None
            new = replace(
                new, first_detected=pulled, last_used=last_used, first_listed=now, pulled=told
            )
            return _with_uses_of(known, new)
        return replace(known, handlers=handlers, tag=tag)

    def _returned_as(
        self, image: Image, record: ImageRecord, listed: Collection[str], *, now: float
    ) -> str | None:
        """As which image that had gone this one is here again: as itself, or by its tag if that one
        is not listed itself; None if it has not returned."""
        if image.id in self._gone:
            # a list may be a second older than its detection; the next one tells
            return image.id if now - self._removed_at >= FRESH_SECONDS else None
        if image.id in self.records:
            pulled_since_the_save = (
                image.id in self._unconfirmed and record.first_detected > self._known_since
            )
            return image.id if pulled_since_the_save else None
        tags = {tag for tag in image.repo_tags if tag and not tag.startswith(NO_NAME)}
        for gone_id, gone in reversed(self._gone.items()):
            if gone.tag in tags and gone_id not in listed:
                return gone_id
        return None

    def _compare_clocks(self, monotonic: float, wall: float) -> None:
        self._known_since = min(self._known_since, monotonic)
        self._smallest_offset = min(self._smallest_offset, wall - monotonic)


def _with_uses_of(earlier: ImageRecord, record: ImageRecord) -> ImageRecord:
    """The record of an image that was here before, with its uses and returns until now."""
    return replace(
        record,
        uses=record.uses + earlier.uses,
        returned=record.returned + earlier.returned + earlier.removed,
        counted_since=earlier.uses_since if earlier.uses else record.counted_since,
    )
