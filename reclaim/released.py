"""What came back without removing anything: a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """What was given back without removing anything: bytes and inodes as measured, in how many calls.

    `mount_points`: of the filesystems concerned. `skipped`: why there was none, or no further call, as a sentence;
    empty if nothing kept it from being called. In a dry run there are no calls.
    """

    bytes: int = 0
    inodes: int = 0
    calls: int = 0
    mount_points: tuple[str, ...] = ()
    skipped: str = ""
