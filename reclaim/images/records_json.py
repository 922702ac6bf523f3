"""Records of images as text, and back, so that they survive a restart.

Times in the text are seconds since the epoch, so that people can read them. The time of the save is written beside them
in both clocks, with the id of the boot (`/proc/sys/kernel/random/boot_id`) and of the machine (`/etc/machine-id`).

Records of another machine are refused: a disk image that was cloned carries them, and says nothing of what was pulled
since. A text without the id of the machine, as earlier versions wrote it, or a machine without an id: as if it were the
same, since all that follows holds for them too.

Reading them back turns times into ages, and ages into times of the monotonic clock of now. The age of an image is

* in the same boot: its age at the save plus the monotonic time since. The wall clock is not used, as it may have been
  set in between.
* after a reboot: its age at the save. How long the node was off is known to the wall clock only, which may have been
  wrong before or after, so that time does not count. Nor is an image older than the wall clock says: where the clock
  was set back to a time before the one in the text, the image is as young as that.

So neither a clock step nor a reboot makes an old image young (except a clock set back behind the image's first
detection) or a young one old. The witness of `records` may still know better. Losing the text is harmless: an image
without a record counts as new.

Covers: the format, its checks, the clocks. Does not cover: the file (`records_file`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from reclaim.types import ImageRecord

KIND = "reclaimd.io/image-records"
VERSION = 1
LARGEST_BYTES = 16 * 1024**2  # some 100 000 images, more than a runtime can list

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:@/-]{0,255}(,[A-Za-z0-9._-]{1,63})?")  # an id, and a runtime handler
_LATEST = 253_402_300_800.0  # the year 10000: anything later is no time


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment in both clocks, in seconds, on one machine. `boot_id` tells whether two monotonic times can be
    compared; empty: not known, so they cannot. `machine_id`: empty if not known."""

    monotonic: float
    wall: float
    boot_id: str = ""
    machine_id: str = ""


class NotRecords(Exception):
    """Bytes that are no records of this version and machine. The message is a sentence without a subject."""


def records_json(records: Mapping[str, ImageRecord], saved: Moment) -> bytes:
    """The records as text. `saved`: the moment in which they are written; keys of an unknown shape are left out."""

    def wall(monotonic: float | None) -> float | None:
        return None if monotonic is None else saved.wall - max(saved.monotonic - monotonic, 0.0)

    images = {
        key: {name: wall(time) for name, time in asdict(record).items()}
        for key, record in sorted(records.items())
        if _KEY.fullmatch(key)
    }
    document = {"kind": KIND, "version": VERSION, "saved": asdict(saved), "images": images}
    return json.dumps(document, indent=1).encode() + b"\n"


def records_from_json(text: bytes, now: Moment) -> tuple[dict[str, ImageRecord], Moment | None]:
    """The records, in times of the monotonic clock of `now`, and when they were saved, if in this boot. Raises
    NotRecords, whatever the bytes are."""
    if len(text) > LARGEST_BYTES:
        raise NotRecords(f"is larger than {LARGEST_BYTES // 1024**2} MiB")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError, and numbers with too many digits, are ValueErrors
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
    """Raises LookupError, TypeError or ValueError for what is none; fields that are not known are passed over."""

    def moment(name: str) -> float | None:
        time = entry.get(name)
        return None if time is None else now.monotonic - _age(_time(time), saved, now)

    first_detected = now.monotonic - _age(_time(entry["first_detected"]), saved, now)
    last_used = moment("last_used")
    was_there = first_detected if last_used is None else min(first_detected, last_used)  # an image that was used
    return ImageRecord(was_there, last_used, moment("first_listed"))


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


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LATEST <= value <= _LATEST:  # nor a NaN
        raise ValueError(value)
    return float(value)
