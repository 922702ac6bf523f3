"""The file in which the records of images survive a restart.

**Its text.** Times are written as seconds since the epoch, so that people can read them. The time
of the save is recorded in both clocks, with the ids of the boot (`/proc/sys/kernel/random/boot_id`)
and of the machine (`/etc/machine-id`).

Records from another machine are rejected: a cloned disk image carries them, and they say nothing
about what was pulled since. If it is not known which machine wrote them, or which one this is, it
is treated as the same machine, since everything below holds for it too.

Reading them back turns times into ages, and ages into times on the current monotonic
clock. The age of an image is

* in the same boot: its age at the save plus the monotonic time since. The wall clock is not used,
  as it may have been set in between.
* after a reboot: its age at the save. Only the wall clock knows how long the node was off,
  and it may have been wrong before or after, so that time does not count. Nor is an image
  older than the wall clock says: if the clock was set back to before the time in the text,
  the image is as young as that.

Losing the file is harmless: an image without a record counts as new.

Nothing is saved between the start and a removal: a full disk has no space for it. The daemon saves
between passes and when it exits; commands and dry runs only read.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import ValidationError

from eviction.configuration.models import Model
from eviction.records.own_file import OwnFile
from eviction.types import Json
from reclaim.images.records import Loaded
from reclaim.types import ImageRecord, Records
from reclaim.workers import in_time
from signals.clock import Clock
from signals.open_files import text_of
from signals.quantity import reason_of

LARGEST_BYTES = 16 * 1024**2  # about 50 000 images, more than a runtime can list
LOAD_SECONDS = 1.0
# Unchanged records are saved again after this time, as the time since the save does
# not count after a reboot.
SAVE_AGAIN_SECONDS = 3600.0

_LATEST = 253_402_300_800.0  # the year 10000: anything later is not a time
_MOST_TIMES = 10**9  # once a second for 31 years: nothing is used or comes back more often


@dataclass(frozen=True)
class Moment:
    """One moment in both clocks, in seconds, on one machine. `boot_id` tells whether two monotonic
    times can be compared; empty: not known, so they cannot. `machine_id`: empty if not known."""

    monotonic: float
    wall: float
    boot_id: str = ""
    machine_id: str = ""

    def same_boot(self, now: "Moment") -> bool:
        """Whether `now` is known to be in the same boot."""
        return bool(self.boot_id) and self.boot_id == now.boot_id

    def check_machine(self, now: "Moment") -> None:
        """Raises ValueError if `now` is known to be on another machine."""
        if self.machine_id and now.machine_id and self.machine_id != now.machine_id:
            raise ValueError("it is of another machine")


def moments(
    clock: Clock, boot_id: str | None = None, machine_id: str | None = None
) -> Callable[[], Moment]:
    """What tells the moment, by this clock. The ids: None: those of this boot and machine."""
    boot = current_boot_id() if boot_id is None else boot_id
    machine = current_machine_id() if machine_id is None else machine_id
    return lambda: Moment(clock.monotonic(), clock.wall(), boot, machine_id=machine)


class _Document(Model):
    """What the file holds: records by image id, with times in seconds since the epoch."""

    kind: Literal["reclaimd.io/image-records"] = "reclaimd.io/image-records"
    version: Literal[1] = 1
    saved: Moment
    images: dict[str, ImageRecord]
    gone: dict[str, ImageRecord] = {}  # noqa: RUF012 # of a model


def records_json(records: Records, saved: Moment, gone: Records) -> bytes:
    """The records, and what has gone, as text. `saved`: the moment at which they are written."""

    def wall(monotonic: float) -> float:
        return saved.wall - max(saved.monotonic - monotonic, 0.0)

    document = _Document(saved=saved, images=_converted(records, wall), gone=_converted(gone, wall))
    return document.model_dump_json(indent=1).encode() + b"\n"


def records_from_json(text: bytes, now: Moment) -> Loaded:
    """The records, in times of `now`'s monotonic clock. Raises ValueError for anything else, also
    if it is cut off, with a sentence."""
    try:
        document = _Document.model_validate_json(text)
    except ValidationError:
        raise ValueError("it is no file of image records of this version of reclaimd") from None
    saved = document.saved
    saved.check_machine(now)
    clocks = _checked(saved.monotonic), _checked(saved.wall)
    if saved.monotonic < 0:  # it begins with the boot
        raise ValueError(f"it holds an impossible time: {saved.monotonic}")
    for record in (*document.images.values(), *document.gone.values()):
        for times in (record.uses, record.returned):
            if not 0 <= times <= _MOST_TIMES:
                raise ValueError(f"it holds an impossible number: {times}")
    same_boot = saved.same_boot(now) and now.monotonic >= saved.monotonic

    def monotonic(time: float) -> float:
        age = max(saved.wall - _checked(time), 0.0)
        if same_boot:
            return saved.monotonic - age
        return now.monotonic - min(age, max(now.wall - time, 0.0))

    return Loaded(
        _converted(document.images, monotonic),
        _converted(document.gone, monotonic),
        saved=clocks if same_boot else None,
        at=saved.wall,
    )


def _checked(time: float) -> float:
    if not abs(time) <= _LATEST:  # nor a NaN
        raise ValueError(f"it holds an impossible time: {time}")
    return time


def _converted(records: Records, convert: Callable[[float], float]) -> dict[str, ImageRecord]:
    """The records with each of their times converted."""
    converted = {}
    for image_id, record in records.items():
        times: Json = {
            name: convert(time)
            for name in ("first_detected", "last_used", "first_listed", "counted_since")
            if (time := getattr(record, name)) is not None
        }
        converted[image_id] = replace(record, **times)
    return converted


def current_boot_id() -> str:
    """The id of this boot of the kernel; empty if it cannot be read."""
    return text_of("/proc/sys/kernel/random/boot_id")


def current_machine_id(path: str = "/etc/machine-id") -> str:
    """The id of this machine (machine-id(5)); empty if it has none, or none yet, as in many
    containers."""
    word = text_of(path)
    return word if re.fullmatch("[0-9a-f]{32}", word) else ""


class RecordFile:
    """One file of records. Constructing it touches nothing.

    One thread at a time: the start loads, then one saves.
    """

    def __init__(self, path: str, clock: Clock, now: Callable[[], Moment] | None = None):
        self._path = path
        self._file = OwnFile(path)
        self._clock = clock
        self._now = now or moments(clock)
        self._on_disk: tuple[Records, Records] = ({}, {})
        self._as_of = clock.monotonic()

    def load(self) -> Loaded:
        """What was saved, in times of this boot's monotonic clock, if it
        can be read within a second.
        """
        try:
            loaded = in_time(
                lambda: records_from_json(self._file.read(LARGEST_BYTES), self._now()), LOAD_SECONDS
            )
        except FileNotFoundError:
            return Loaded()  # as at the first start
        except (OSError, ValueError) as error:
            return Loaded(
                problem=(
                    f"the state file {self._path} is not used: {reason_of(error)}; images count"
                    " as new"
                )
            )
        self._on_disk = (loaded.records, loaded.gone)
        self._as_of = self._clock.monotonic()
        return loaded

    def save(self, records: Records, gone: Records) -> str:
        """Saves the records, and what has gone, unless the same ones were saved or
        loaded within the last hour.

        Returns a sentence if saving failed, else an empty string.
        """
        recent = self._clock.monotonic() - self._as_of < SAVE_AGAIN_SECONDS
        if (records, gone) == self._on_disk and (recent or not (records or gone)):
            return ""
        try:
            text = records_json(records, self._now(), gone)
            if len(text) > LARGEST_BYTES:
                return (
                    f"the state file {self._path} would be larger than"
                    f" {LARGEST_BYTES // 1024**2} MiB"
                )
            self._file.replace(text)
        except (OSError, ValueError) as error:
            return f"the state file {self._path} cannot be saved: {reason_of(error)}"
        self._on_disk = (dict(records), dict(gone))
        self._as_of = self._clock.monotonic()
        return ""
