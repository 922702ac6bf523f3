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
from reclaim.types import Image, ImageRecord
from signals.clock import Clock

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
        self._in_use_at = float("-inf")  # the latest detection, or the latest restored use
        self._lock = threading.Lock()
        self._records: dict[str, ImageRecord] = dict(seed or {})
        self._removed: dict[str, ImageRecord] = {}  # by us, by the id of the image
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
            uses = [record.last_used for record in restored.values() if record.last_used is not None]
            self._in_use_at = max([self._in_use_at, *uses])

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
                if key not in self._records and (removed := self._removed.pop(image_id, None)) is not None:
                    record = replace(record, uses=removed.uses, returned=removed.returned + 1)
                if image_id in in_use and (record.last_used is None or now > record.last_used):
                    begins = record.last_used != self._in_use_at
                    record = replace(record, last_used=now, uses=record.uses + begins)
                fresh[key] = record
            self._unconfirmed &= fresh.keys() - listed.keys()
            self._records = fresh
            self._detected_at = self._in_use_at = max(now, self._detected_at)
            return dict(fresh)

    def forget(self, image_id: str, removed: bool = False) -> None:
        """This image is gone, or may be: if it returns before the next detection, it starts a new age. `removed`: it is
        gone, and we removed it; its next appearance is a return."""
        with self._lock:
            for key in [key for key in self._records if _id_of(key) == image_id]:
                record = self._records.pop(key)
                self._unconfirmed.discard(key)
                if removed:
                    self._removed[image_id] = record

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
        last_used = None if last_used is None or last_used < since else last_used
        return replace(known, first_detected=since, last_used=last_used, first_listed=now)


def _id_of(key: str) -> str:
    """The image id in the key of a record."""
    return key.partition(",")[0]


# ---- the file

KIND = "reclaimd.io/image-records"
VERSION = 1
LARGEST_BYTES = 16 * 1024**2  # about 100 000 images, more than a runtime can list

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:@/-]{0,255}(,[A-Za-z0-9._-]{1,63})?")  # an id, and a runtime handler
_COUNTS = ("uses", "returned")  # all other fields of a record are times
_LATEST = 253_402_300_800.0  # the year 10000: anything later is not a time

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


def records_json(records: Mapping[str, ImageRecord], saved: Moment) -> bytes:
    """The records as text. `saved`: the moment at which they are written. Keys of an unknown form are left out."""

    def wall(monotonic: float | None) -> float | None:
        return None if monotonic is None else saved.wall - max(saved.monotonic - monotonic, 0.0)

    images = {
        key: {name: value if name in _COUNTS else wall(value) for name, value in asdict(record).items()}
        for key, record in sorted(records.items())
        if _KEY.fullmatch(key)
    }
    document = {"kind": KIND, "version": VERSION, "saved": asdict(saved), "images": images}
    return json.dumps(document, indent=1).encode() + b"\n"


def records_from_json(text: bytes, now: Moment) -> tuple[dict[str, ImageRecord], Moment | None]:
    """The records, in times of `now`'s monotonic clock, and when they were saved, if in this boot. Raises NotRecords
    for anything else."""
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
    except (AttributeError, LookupError, TypeError, ValueError):
        raise NotRecords("holds what is no record of an image") from None
    return records, saved if _same_boot(saved, now) else None


def _record(entry: dict[str, object], saved: Moment, now: Moment) -> ImageRecord:
    """Raises LookupError, TypeError or ValueError if it is not a record; unknown fields are ignored."""

    def moment(name: str) -> float | None:
        time = entry.get(name)
        return None if time is None else now.monotonic - _age(_time(time), saved, now)

    first_detected = now.monotonic - _age(_time(entry["first_detected"]), saved, now)
    last_used = moment("last_used")
    was_there = first_detected if last_used is None else min(first_detected, last_used)  # an image in use was there
    return ImageRecord(was_there, last_used, moment("first_listed"), *(_count(entry.get(name, 0)) for name in _COUNTS))


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


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(value)
    return value


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LATEST <= value <= _LATEST:  # nor a NaN
        raise ValueError(value)
    return float(value)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The records in a file. `problem`: why there are none, as a sentence, else empty; `missing`: there is no file, as
    at the first start. `saved`: when they were saved, in monotonic and wall seconds; None if not in this boot."""

    records: Mapping[str, ImageRecord] = field(default_factory=dict)
    problem: str = ""
    missing: bool = False
    saved: tuple[float, float] | None = None


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
        self._on_disk: Mapping[str, ImageRecord] = {}
        self._as_of = clock.monotonic()

    def load(self) -> Loaded:
        """What was saved, in times of this boot's monotonic clock."""
        try:
            records, saved = records_from_json(self._file.read(LARGEST_BYTES), self._now())
        except FileNotFoundError:
            return Loaded(problem=f"there is no state file {self._path} yet; images count as new", missing=True)
        except (OSError, ValueError, NotRecords) as error:  # ValueError: the path contains a NUL
            why = error if isinstance(error, NotRecords) else f"cannot be read: {reason_of(error)}"
            return Loaded(problem=f"the state file {self._path} {why}; images count as new")
        with self._lock:
            self._on_disk, self._as_of = records, self._clock.monotonic()
        return Loaded(records, saved=None if saved is None else (saved.monotonic, saved.wall))

    def save(self, records: Mapping[str, ImageRecord]) -> str:
        """Saves the records, unless the same ones were saved or loaded within the last hour.

        Returns a sentence if saving failed, else an empty string.
        """
        with self._lock:
            recent = self._clock.monotonic() - self._as_of < SAVE_AGAIN_SECONDS
            if records == self._on_disk and (recent or not records):
                return ""
            try:
                text = records_json(records, self._now())
                if len(text) > LARGEST_BYTES:
                    return f"the state file {self._path} would be larger than {LARGEST_BYTES // 1024**2} MiB"
                self._file.replace(text)
            except (OSError, ValueError) as error:
                return f"the state file {self._path} cannot be saved: {reason_of(error)}"
            self._on_disk, self._as_of = dict(records), self._clock.monotonic()
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
