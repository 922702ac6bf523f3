"""What a pass is about, for functions that are told of it: a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the pass acts on when a function is called; empty and None where it is not known.

    `filesystem`: its mount point. `available` and `mark`: in the signal's unit. `missing_*`: what has to come free.
    """

    signal: str = ""
    filesystem: str = ""
    available: int | None = None
    mark: int | None = None
    missing_bytes: int = 0
    missing_inodes: int = 0
    pass_id: str = ""


NO_PRESSURE: Final = Pressure()
