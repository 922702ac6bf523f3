"""What ballast is, whether its extents are really its own, the plan of its release, and when it is made again.

Covers: values and judgements. Does not cover: reading (`file`, `extents`), making (`create`), unlinking (`release`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from reclaim.types import Action, Plan, Verdict

BALLAST = "ballast"
SMALLEST_BYTES = 1 << 20  # what is smaller may be stored in an inode, and relieves nobody
LARGEST_BYTES = 1 << 62
LONGEST_NAME = 240  # bytes: with what is around the temporary name, no more than the 255 of a directory entry
RETRY_SECONDS = 300.0  # between two attempts to make it again


class BallastReason(StrEnum):
    """Why it is removed, or kept right before that."""

    SET_ASIDE = "set_aside"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class BallastSettings:
    """The absolute path of the file, and its size in bytes. `settings_problem` is None for them."""

    path: str
    size_bytes: int

    @property
    def directory(self) -> str:
        """The directory of the file."""
        return self.path.rpartition("/")[0] or "/"

    @property
    def name(self) -> str:
        """Its name in that directory."""
        return self.path.rpartition("/")[2]

    @property
    def temporary_name(self) -> str:
        """The name that it has while it is made."""
        return f".{self.name}.new"


def settings_problem(path: str, size_bytes: int) -> str | None:
    """Why these cannot be the settings of ballast, as one sentence; None: they can."""
    names = path.split("/")[1:]
    if not path.startswith("/") or not all(names) or {".", ".."} & set(names) or "\0" in path:
        return f"the file of the ballast is {path!r}; allowed is an absolute path of a file, without //, . and .."
    if len(names[-1].encode("utf-8", "surrogateescape")) > LONGEST_NAME:
        return f"the name of the ballast {path!r} is too long; allowed are {LONGEST_NAME} bytes"
    if not SMALLEST_BYTES <= size_bytes <= LARGEST_BYTES:
        return f"the size of the ballast {path} is {size_bytes} bytes; allowed are {SMALLEST_BYTES} to {LARGEST_BYTES}"
    return None


class Extent(NamedTuple):
    """A piece of a file that has a place on the disk; bytes.

    `placed`: its place is known now, not only promised. `shared`: with another file. `inline`: in the metadata, in a
    block with others. `compressed`: it takes less than its length.
    """

    logical: int
    length: int
    placed: bool = True
    shared: bool = False
    inline: bool = False
    compressed: bool = False

    @property
    def own(self) -> bool:
        """Whether its length comes free when its file is unlinked."""
        return self.placed and not (self.shared or self.inline or self.compressed)


def own_bytes(extents: Sequence[Extent], size_bytes: int) -> int:
    """The bytes of a file that come free when it is unlinked; what is allocated behind its end does not count."""
    return sum(max(min(each.logical + each.length, size_bytes) - each.logical, 0) for each in extents if each.own)


def extents_problem(extents: Sequence[Extent], size_bytes: int) -> str | None:
    """Why a file with these extents does not hold `size_bytes`, as the end of a sentence; None: it does."""
    for found, words in (
        (
            any(each.shared for each in extents),
            "it shares extents with another file, so unlinking it does not free them",
        ),
        (any(each.inline for each in extents), "it is stored in the metadata, not in blocks of its own"),
        (any(each.compressed for each in extents), "it is compressed"),
    ):
        if found:
            return words
    return allocation_problem(own_bytes(extents, size_bytes), size_bytes)


def allocation_problem(allocated_bytes: int, size_bytes: int) -> str | None:
    """Why so many allocated bytes are not enough, as the end of a sentence; None: they are."""
    if allocated_bytes >= size_bytes:
        return None
    return f"it is sparse: {allocated_bytes} of its {size_bytes} bytes are allocated"


def room_problem(available_bytes: int, settings: BallastSettings, mark_bytes: int = 0) -> str | None:
    """Why the ballast is not made now, as one sentence; None: there is room for it twice over.

    `mark_bytes`: what must stay available besides, the highest mark of the filesystem.
    """
    wanted = 2 * settings.size_bytes + mark_bytes
    if available_bytes >= wanted:
        return None
    above = f" above the mark of {mark_bytes} bytes" if mark_bytes else ""
    return (
        f"{settings.path} is not made: {available_bytes} bytes are available, and it is only made where twice its size "
        f"is{above}, {wanted} bytes"
    )


def plan_ballast(settings: BallastSettings, allocated_bytes: int) -> Plan:
    """The one file goes."""
    return Plan(
        (
            Verdict(
                BALLAST,
                settings.path,
                settings.path,
                Action.REMOVE,
                BallastReason.SET_ASIDE,
                size_bytes=allocated_bytes,
            ),
        )
    )


class Restoration(StrEnum):
    """What came of asking that the ballast is made again where it is missing. `BEGUN`: a thread looks and makes it."""

    BEGUN = "begun"
    UNDER_PRESSURE = "under_pressure"
    BEING_MADE = "being_made"
    TOO_SOON = "too_soon"
    NO_ROOM = "no_room"
    NO_THREAD = "no_thread"


def restoration(
    settings: BallastSettings,
    available_bytes: int,
    mark_bytes: int,
    *,
    under_pressure: bool,
    being_made: bool,
    seconds_since_last: float | None,
) -> Restoration:
    """Whether to look for the ballast now and make it where it is missing: not under pressure, not while one is made,
    each 5 minutes at most, and with room for it twice over above the mark.

    `seconds_since_last`: since the last attempt; None: there was none.
    """
    if under_pressure:
        return Restoration.UNDER_PRESSURE
    if being_made:
        return Restoration.BEING_MADE
    if seconds_since_last is not None and seconds_since_last < RETRY_SECONDS:
        return Restoration.TOO_SOON
    if room_problem(available_bytes, settings, mark_bytes) is not None:
        return Restoration.NO_ROOM
    return Restoration.BEGUN
