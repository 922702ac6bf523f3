"""Why a reclaim function is called: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a program is told of the pass that starts it, as far as it is known.

    `signal` and `pass_id`: words of the caller's. `filesystem`: the mount point where space is short. `available` and
    `mark` are in the unit of the signal, bytes or inodes; None: not known. `missing_bytes` and `missing_inodes`: what
    has to come free, with what is written meanwhile; 0 where it is not short of them.
    """

    signal: str = ""
    filesystem: str = ""
    available: int | None = None
    mark: int | None = None
    missing_bytes: int = 0
    missing_inodes: int = 0
    pass_id: str = ""


NO_PRESSURE: Final = Pressure()
