"""What is remembered about images, when each was first detected and last seen in use; and the file in which that
survives a restart.

**Records.** The kubelet keeps the same record in memory (`pkg/kubelet/images/image_gc_manager.go`, detectImages) and
starts over after a restart. Here, records can be restored from the file, and an image without a record may be dated by
another source: containerd remembers when it was pulled (`reclaim.containerd`). A pull time makes an image without a
record only as old as it provably is, and an image with a restored record no older than the pull: it may have been
removed and pulled again in between. Without a record and a pull time, an image counts as new.

Pull times are wall times, and the wall clock may have been set since. So a pull time counts

* by the smallest difference between the wall clock and the monotonic clock known in this boot: if the clock was set
  forward after the pull, the image does not become older;
* no further back than the earliest moment of this boot at which both clocks are known, and no further back than the
  previous detection, in which the image was missing.

A runtime may pull an image once for each runtime handler and list its id with each. Each entry then has a record, as in
the kubelet with its gate RuntimeClassInImageCriApi, and an entry added to others is new: the id's pull time says
nothing about it. Only the id tells which containers use it, so the use of one entry is the use of all.

An id that appears again after it was gone starts a new age.

**What has gone is remembered**: the last 1000 images that are no longer listed, whoever removed them. If one is listed
again, by its id or else by its first tag, it has returned: that is reported once, and how often it was used and came
back goes on from there. A list may be a second older than its detection: within a second of a removal of ours, none
has returned by its id; the next detection tells.

**The text of the file.** Times are written as seconds since the epoch, so that people can read them. The time of the
save is recorded in both clocks, with the ids of the boot (`/proc/sys/kernel/random/boot_id`) and of the machine
(`/etc/machine-id`).

Records from another machine are rejected: a cloned disk image carries them, and they say nothing about what was pulled
since. If the text has no machine id, as earlier versions wrote it, or the machine has none, it is treated as the same
machine, since everything below holds for it too.

Reading them back turns times into ages, and ages into times on the current monotonic clock. The age of an image is

* in the same boot: its age at the save plus the monotonic time since. The wall clock is not used, as it may have been
  set in between.
* after a reboot: its age at the save. Only the wall clock knows how long the node was off, and it may have been wrong
  before or after, so that time does not count. Nor is an image older than the wall clock says: if the clock was set
  back to before the time in the text, the image is as young as that.

So neither a clock step nor a reboot makes an old image young (except a clock set back to before the image's first
detection) or a young one old. Pull times may correct this further. Losing the file is harmless: an image without a
record counts as new.

**The file itself.**

* Reading never raises: a file that is missing, unreadable or not trusted gives no records and one sentence saying why.
  Reading creates nothing.
* Saving never raises either. The new text is written to a file beside the old one, synced and renamed, so that a full
  disk (no bytes, no inodes) or a kill at any point leaves the old file whole. A kill leaves at most one file of a fixed
  name behind, which the next save removes.
* Nothing is saved between the start and a removal: a full disk has no space for it. The daemon saves between passes and
  when it exits; commands and dry runs only read.
* A filesystem that does not answer is waited for up to a second (`load_in_time`).
* The file and its directory must not be symbolic links, and a file that others may write is not trusted.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace

from reclaim.execution.workers import NoThread, ReadingHangs, ReadingsInTime, Workers
from reclaim.images.pull_records import NOT_READ, PullRecords
from reclaim.types import Container, Image, ImageRecord
from signals.clock import Clock

PullTimes = Callable[[], Mapping[str, float]]
"""Wall times (seconds since the epoch) at which image ids certainly existed already; unknown ids are left out."""

Pulls = Callable[[Iterable[Container]], PullRecords]
"""Reads the kubelet's records of pulls, given all containers."""

EarlierClocks = Callable[[], tuple[float, float] | None]
"""How many seconds ago, in this boot, the wall clock showed which time (seconds since the epoch); None if not known."""


MOST_GONE = 1000  # some 250 KB in the file
LONGEST_TAG = 512  # characters; a longer one is not recognised
NO_TAG = "<none>"  # so begins the tag of an image that has none
LIST_SECONDS = 1.0  # how much older than its detection a list may be


@dataclass(frozen=True, slots=True)
class Gone:
    """What is remembered of an image that is no longer listed. `tag`: its first one, or empty. `by_us`: we removed it.
    `uses`, `returned`, `counted_since`: as in its record."""

    tag: str = ""
    by_us: bool = False
    uses: int = 0
    returned: int = 0
    counted_since: float | None = None


class ImageRecords:
    """The records of all listed images. Times are monotonic seconds. Thread-safe.

    `earlier`: asked once, if there are pull times and nothing else relates the two clocks before the first detection.
    `on_return`: called for each image that has returned, on the thread of the detection (`Listener.returned`).
    """

    def __init__(
        self,
        pull_times: PullTimes = dict,
        seed: Mapping[str, ImageRecord] | None = None,
        earlier: EarlierClocks = lambda: None,
        on_return: Callable[[Image, str, bool, float], None] = lambda *_: None,
        pulls: Pulls = lambda _: NOT_READ,
    ):
        self._pull_times = pull_times
        self._earlier = earlier
        self._on_return = on_return
        self._pulls = pulls
        self._known_since = float("inf")  # the earliest moment at which both clocks are known
        self._smallest_offset = float("inf")  # between the wall clock and the monotonic clock since then
        self._detected_at = float("-inf")
        self._in_use_at = float("-inf")  # the latest detection, or the latest restored use
        self._lock = threading.Lock()
        self._records: dict[str, ImageRecord] = dict(seed or {})
        self._gone: dict[str, Gone] = {}  # by id, those that went last at the end
        self._removed_at = float("-inf")  # when we last removed one
        self._tags: dict[str, str] = {}  # of the listed images, by id
        self._unconfirmed: set[str] = set()  # restored, and not yet seen by this process
        self._judged = False  # whether the kubelet's records of pulls have been known

    @property
    def records(self) -> Mapping[str, ImageRecord]:
        """The records by `Image.record_key`."""
        with self._lock:
            return dict(self._records)

    @property
    def gone(self) -> Mapping[str, Gone]:
        """What has gone, by id."""
        with self._lock:
            return dict(self._gone)

    def restore(self, loaded: Loaded) -> None:
        """Restores what an earlier process remembered; records that this process already has are not changed.

        The next detection checks each against its pull time, and forgets those no longer listed.
        """
        with self._lock:
            if loaded.saved is not None:
                self._compare_clocks(*loaded.saved)
            restored = {known: record for known, record in loaded.records.items() if known not in self._records}
            self._records.update(restored)
            self._unconfirmed.update(restored)
            uses = [record.last_used for record in restored.values() if record.last_used is not None]
            self._in_use_at = max([self._in_use_at, *uses])
            there = set(map(_id_of, self._records))
            self._gone = {known: each for known, each in loaded.gone.items() if known not in there} | self._gone

    def update(
        self,
        images: Iterable[Image],
        in_use: frozenset[str] | None,
        now: float,
        wall_now: float,
        containers: Iterable[Container] = (),
    ) -> Mapping[str, ImageRecord]:
        """One detection, the kubelet's detectImages: new images get a record, those in use a new last use, and those no
        longer listed are forgotten.

        `in_use`: ids; None: images are only dated. `now` is monotonic and `wall_now` since the epoch, both in seconds.
        A detection that began before another thread's finished one forgets nothing and sets no last use back. Whether
        the kubelet has not pulled an image is decided when it is first dated beside known records of pulls, and
        remembered: a record may be pruned later. `containers`: all that were listed, for that.
        """
        pulls, listed = self._pulls(containers), {image.record_key: image for image in images}
        with self._lock:
            asked = self._to_be_dated(listed)
            judged = frozenset(asked if self._judged else listed)
            self._judged = self._judged or not pulls.problem
            alone = self._known_since == float("inf")
        # asked without the lock: a runtime that does not answer must not block a thread that needs no pull times
        pulled = self._pull_times() if asked or (judged and not pulls.problem) else {}
        earlier = self._earlier() if alone and pulled else None
        with self._lock:
            self._compare_clocks(now, wall_now)
            if earlier is not None:
                self._compare_clocks(now - earlier[0], earlier[1])
            there, returned = {image.id for image in listed.values()}, list[tuple[Image, str, bool, float]]()
            seen = {key: pulled[listed[key].id] - self._smallest_offset for key in asked if listed[key].id in pulled}
            newest = now >= self._detected_at
            fresh = {} if newest else dict(self._records)
            for key, image in listed.items():
                record = self._confirmed(key, seen.get(key), now)
                if not record.pulled:
                    told = pulls.pulled(image, pulled.get(image.id) if key in judged else None)
                    record = record if told is None else replace(record, pulled=told)
                gone_id = None if key in self._records else self._with_tag_of(image, there)
                if image.id in self._gone:
                    gone_id = image.id if now - self._removed_at >= LIST_SECONDS else None
                if gone_id is not None:
                    gone = self._gone.pop(gone_id)
                    returned.append((image, gone_id, gone.by_us, wall_now - (now - record.first_detected)))
                    uses, returns = record.uses + gone.uses, gone.returned + gone.by_us
                    record = replace(record, uses=uses, returned=returns, counted_since=gone.counted_since)
                elif key in self._unconfirmed and record.first_detected > self._known_since:  # pulled since the save
                    returned.append((image, image.id, False, wall_now - (now - record.first_detected)))
                if in_use and image.id in in_use and (record.last_used is None or now > record.last_used):
                    begins = record.last_used != self._in_use_at
                    record = replace(record, last_used=now, uses=record.uses + begins)
                fresh[key] = record
            self._unconfirmed &= fresh.keys() - listed.keys()
            for key in self._records.keys() - fresh.keys():
                if _id_of(key) not in there and _id_of(key) not in self._gone:
                    self._remember(_id_of(key), self._records[key], by_us=False)
            if newest:
                self._tags = {each.id: each.repo_tags[0][:LONGEST_TAG] for each in listed.values() if each.repo_tags}
            self._records = fresh
            self._detected_at = max(now, self._detected_at)
            self._in_use_at = self._in_use_at if in_use is None else self._detected_at
            found = dict(fresh)
        for each in returned:
            self._on_return(*each)
        return found

    def forget(self, image_id: str, removed: float | None = None) -> None:
        """This image is gone, or may be: if it returns before the next detection, it starts a new age. `removed`: when
        it was gone after our removal, in monotonic seconds; None: it may be there."""
        with self._lock:
            for key in [key for key in self._records if _id_of(key) == image_id]:
                record = self._records.pop(key)
                self._unconfirmed.discard(key)
                if removed is not None:
                    self._remember(image_id, record, by_us=True)
                    self._removed_at = max(removed, self._removed_at)

    def _remember(self, image_id: str, record: ImageRecord, *, by_us: bool) -> None:
        self._gone.pop(image_id, None)  # so that it moves to the end
        counted = record.uses, record.returned, record.uses_since if record.uses else None
        self._gone[image_id] = Gone(self._tags.get(image_id, ""), by_us, *counted)
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _with_tag_of(self, image: Image, there: set[str]) -> str | None:
        """The id of an image that had gone and whose tag this one has now; None if there is none. `there`: the listed
        ids, which come back by themselves."""
        tags, gone = {tag for tag in image.repo_tags if not tag.startswith(NO_TAG)}, reversed(self._gone.items())
        return next((known for known, each in gone if each.tag in tags and known not in there), None)

    def _to_be_dated(self, listed: Mapping[str, Image]) -> list[str]:
        """The keys that need a pull time: restored ones, and new ones that are the only entry of their id."""
        entries = Counter(image.id for image in listed.values())
        entries.update(_id_of(key) for key in self._records.keys() - listed.keys())
        return [
            key
            for key, image in listed.items()
            if key in self._unconfirmed or (key not in self._records and entries[image.id] == 1)
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
        last_used = None if last_used is None or last_used < since else last_used
        counted = known.uses_since if known.uses else None
        told = known.pulled if since - known.first_detected < SAME_PULL_SECONDS else None
        return replace(
            known, first_detected=since, last_used=last_used, first_listed=now, pulled=told, counted_since=counted
        )


def _id_of(key: str) -> str:
    """The image id in the key of a record."""
    return key.partition(",")[0]


# ---- the file

KIND = "reclaimd.io/image-records"
VERSION = 1
LARGEST_BYTES = 16 * 1024**2  # about 100 000 images, more than a runtime can list

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:@/-]{0,255}(,[A-Za-z0-9._-]{1,63})?")  # an id, and a runtime handler
_COUNTS = ("uses", "returned")  # all other fields of a record but `pulled` are times
_LATEST = 253_402_300_800.0  # the year 10000: anything later is not a time

SAME_PULL_SECONDS = 1.0  # a pull time compared with a restored one: the clocks drift against each other
LOAD_SECONDS = 1.0
# Unchanged records are saved again after this time, as the time since the save does not count after a reboot.
SAVE_AGAIN_SECONDS = 3600.0

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MACHINE_ID = "/etc/machine-id"  # machine-id(5)
_MACHINE_ID_TEXT = re.compile(r"[0-9a-f]{32}")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment in both clocks, in seconds, on one machine. `boot_id` tells whether two monotonic times can be
    compared; empty: not known, so they cannot. `machine_id`: empty if not known."""

    monotonic: float
    wall: float
    boot_id: str = ""
    machine_id: str = ""


class NotRecords(Exception):
    """Bytes that are not records of this version and machine. The message is a sentence without a subject."""


def records_json(records: Mapping[str, ImageRecord], saved: Moment, gone: Mapping[str, Gone] | None = None) -> bytes:
    """The records, and what has gone, as text. `saved`: the moment at which they are written. Keys of an unknown form
    are left out."""

    def wall(monotonic: float | None) -> float | None:
        return None if monotonic is None else saved.wall - max(saved.monotonic - monotonic, 0.0)

    images = {
        key: {name: value if name in (*_COUNTS, "pulled") else wall(value) for name, value in asdict(record).items()}
        for key, record in sorted(records.items())
        if _KEY.fullmatch(key)
    }
    no_longer = {
        key: {**asdict(each), "counted_since": wall(each.counted_since)}
        for key, each in (gone or {}).items()
        if _KEY.fullmatch(key)
    }
    document = {"kind": KIND, "version": VERSION, "saved": asdict(saved), "images": images, "gone": no_longer}
    return json.dumps(document, indent=1).encode() + b"\n"


def records_from_json(text: bytes, now: Moment) -> Loaded:
    """The records, in times of `now`'s monotonic clock. Raises NotRecords for anything else."""
    if len(text) > LARGEST_BYTES:
        raise NotRecords(f"is larger than {LARGEST_BYTES // 1024**2} MiB")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError and numbers with too many digits are ValueErrors
        raise NotRecords("is no JSON document") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise NotRecords(f"is not of the kind {KIND}")
    if document.get("version") != VERSION or isinstance(document["version"], bool):
        raise NotRecords(f"is not of version {VERSION}")
    try:
        at = {"machine_id": "", **document["saved"]}
        saved = Moment(_time(at["monotonic"]), _time(at["wall"]), _text(at["boot_id"]), _text(at["machine_id"]))
        if saved.machine_id and now.machine_id and saved.machine_id != now.machine_id:
            raise NotRecords("is of another machine")
        records = {_key(key): _record(entry, saved, now) for key, entry in document["images"].items()}
        went = document.get("gone", {}).items()
        gone = {_key(key): _gone(each, saved, now) for key, each in went}
    except (AttributeError, LookupError, TypeError, ValueError):
        raise NotRecords("holds what is no record of an image") from None
    return Loaded(records, gone, saved=(saved.monotonic, saved.wall) if _same_boot(saved, now) else None, at=saved.wall)


def _record(entry: Mapping[str, object], saved: Moment, now: Moment) -> ImageRecord:
    """Raises LookupError, TypeError or ValueError if it is not a record; unknown fields are ignored."""
    first_detected = now.monotonic - _age(_time(entry["first_detected"]), saved, now)
    last_used = _moment(entry, "last_used", saved, now)
    was_there = first_detected if last_used is None else min(first_detected, last_used)  # an image in use was there
    first_listed, counted_since = (_moment(entry, each, saved, now) for each in ("first_listed", "counted_since"))
    (uses, returned), pulled = _counts(entry), entry.get("pulled")
    known = pulled if isinstance(pulled, bool) else None
    return ImageRecord(was_there, last_used, first_listed, uses, returned, known, counted_since)


def _gone(entry: Mapping[str, object], saved: Moment, now: Moment) -> Gone:
    """Raises as `_record`."""
    since = _moment(entry, "counted_since", saved, now)
    return Gone(_text(entry["tag"]), entry["by_us"] is True, *_counts(entry), since)


def _moment(entry: Mapping[str, object], name: str, saved: Moment, now: Moment) -> float | None:
    time = entry.get(name)
    return None if time is None else now.monotonic - _age(_time(time), saved, now)


def _age(time: float, saved: Moment, now: Moment) -> float:
    """Seconds from a time in the text until now; at least 0."""
    at_save = max(saved.wall - time, 0.0)
    if _same_boot(saved, now):
        return at_save + now.monotonic - saved.monotonic
    return min(at_save, max(now.wall - time, 0.0))


def _same_boot(saved: Moment, now: Moment) -> bool:
    return bool(saved.boot_id) and saved.boot_id == now.boot_id and now.monotonic >= saved.monotonic


def _key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(key)
    return key


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _counts(entry: Mapping[str, object]) -> tuple[int, int]:
    """How often it was used and came back; an older version wrote neither."""
    uses, returned = (max(int(_time(entry.get(name, 0))), 0) for name in _COUNTS)
    return uses, returned


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LATEST <= value <= _LATEST:  # nor a NaN
        raise ValueError(value)
    return float(value)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The records in a file, and what has gone. `problem`: why they cannot be read, as a sentence, else empty. `saved`:
    when they were saved, in monotonic and wall seconds; None if not in this boot. `at`: the same in wall seconds, in
    any boot; None if there are none."""

    records: Mapping[str, ImageRecord] = field(default_factory=dict)
    gone: Mapping[str, Gone] = field(default_factory=dict)
    problem: str = ""
    saved: tuple[float, float] | None = None
    at: float | None = None


def current_boot_id() -> str:
    """The id of this boot of the kernel; empty if it cannot be read."""
    return _word_in(_BOOT_ID)


def current_machine_id(path: str = _MACHINE_ID) -> str:
    """The id of this machine; empty if it has none, or none yet, as in many containers."""
    word = _word_in(path)
    return word if _MACHINE_ID_TEXT.fullmatch(word) else ""


def _word_in(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, UnicodeDecodeError):
        return ""


class RecordFile:
    """One file of records. Constructing it touches nothing. Thread-safe."""

    def __init__(self, path: str, clock: Clock, boot_id: str | None = None, machine_id: str | None = None):
        self._path = path
        self._file = OwnFile(path)
        self._clock = clock
        self._boot_id = current_boot_id() if boot_id is None else boot_id
        self._machine_id = current_machine_id() if machine_id is None else machine_id
        self._lock = threading.Lock()
        self._on_disk: tuple[Mapping[str, ImageRecord], Mapping[str, Gone]] = ({}, {})
        self._as_of = clock.monotonic()

    def load(self) -> Loaded:
        """What was saved, in times of this boot's monotonic clock."""
        try:
            loaded = records_from_json(self._file.read(LARGEST_BYTES), self._now())
        except FileNotFoundError:
            return Loaded()  # as at the first start
        except (OSError, ValueError, NotRecords) as error:  # ValueError: the path contains a NUL
            why = error if isinstance(error, NotRecords) else f"cannot be read: {reason_of(error)}"
            return Loaded(problem=f"the state file {self._path} {why}; images count as new")
        with self._lock:
            self._on_disk, self._as_of = (loaded.records, loaded.gone), self._clock.monotonic()
        return loaded

    def save(self, records: Mapping[str, ImageRecord], gone: Mapping[str, Gone] | None = None) -> str:
        """Saves the records, and what has gone, unless the same ones were saved or loaded within the last hour.

        Returns a sentence if saving failed, else an empty string.
        """
        with self._lock:
            recent = self._clock.monotonic() - self._as_of < SAVE_AGAIN_SECONDS
            if (records, gone or {}) == self._on_disk and (recent or not (records or gone)):
                return ""
            try:
                text = records_json(records, self._now(), gone)
                if len(text) > LARGEST_BYTES:
                    return f"the state file {self._path} would be larger than {LARGEST_BYTES // 1024**2} MiB"
                self._file.replace(text)
            except (OSError, ValueError) as error:
                return f"the state file {self._path} cannot be saved: {reason_of(error)}"
            self._on_disk, self._as_of = (dict(records), dict(gone or {})), self._clock.monotonic()
            return ""

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.wall(), self._boot_id, self._machine_id)


class OwnFile:
    """One of our small files in the state directory. Constructing it touches nothing; no symbolic link is followed."""

    def __init__(self, path: str):
        self._directory, self._name = os.path.split(os.path.abspath(path))
        self._temporary = f".{self._name}.new"

    def read(self, largest_bytes: int) -> bytes:
        """The file, at most one byte more than allowed. Never blocks, not even on a FIFO. Raises OSError."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with (
            self._opened_directory() as directory,
            open(os.open(self._name, flags, dir_fd=directory), "rb") as file,
        ):
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OSError("it is not a regular file")
            if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS_MAY_WRITE:
                raise OSError("others may write it")
            return file.read(largest_bytes + 1)

    def replace(self, text: bytes) -> None:
        """Rewrites the whole file, or leaves the old one as it is. Raises OSError."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        with self._opened_directory() as directory:
            self._refuse_what_is_no_file(directory)
            _remove(self._temporary, directory)
            try:
                _write(self._temporary, directory, text)
                os.rename(self._temporary, self._name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                _remove(self._temporary, directory)
                raise
            os.fsync(directory)

    def remove(self) -> None:
        """Removes the file if it exists. Raises OSError."""
        with suppress(FileNotFoundError), self._opened_directory() as directory:
            _remove(self._name, directory)
            os.fsync(directory)

    @contextmanager
    def _opened_directory(self) -> Iterator[int]:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield directory
        finally:
            os.close(directory)

    def _refuse_what_is_no_file(self, directory: int) -> None:
        """Raises OSError if the path is a link, or anything but a regular file: that is not ours to replace."""
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(self._name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise OSError("it is not a regular file")


def _write(name: str, directory: int, text: bytes) -> None:
    """Writes a new file with this text, which is on the disk when this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _remove(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def reason_of(error: Exception) -> str:
    """The operating system's words for an error, else its own."""
    return getattr(error, "strerror", None) or str(error)


def load_in_time(file: RecordFile, workers: Workers) -> Loaded:
    """What was saved, if it can be read within a second on one of these threads."""
    try:
        return ReadingsInTime(workers, LOAD_SECONDS)(file.load)
    except (ReadingHangs, NoThread) as error:
        return Loaded(problem=f"the state file is not read: {error}; images count as new")
