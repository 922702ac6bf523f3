"""What is configured of a program, and what it is told: values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLAN = "plan"


@dataclass(frozen=True, slots=True)
class ProgramUser:
    """The user and the one group that a program runs as, as numbers."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """One program of the user's own.

    `argv`: the program, an absolute path, and its arguments. `timeout_seconds`: how long one run may take, above 0.
    `user`: whom it runs as; None: as this process. `asks_plan`: whether a dry run starts it with `plan` as a further
    argument; False for a program that does its work whatever its arguments are.
    """

    argv: tuple[str, ...]
    timeout_seconds: float
    user: ProgramUser | None = None
    asks_plan: bool = True


@dataclass(frozen=True, slots=True)
class Pressure:
    """Why a program is started, as far as it is known.

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


def environment(pressure: Pressure, seconds: float, wall: float, *, dry_run: bool) -> dict[str, str]:
    """The whole environment of a program that is started now, at `wall` (seconds since the epoch), with so many seconds
    to run. What is not known is an empty value."""
    deadline = datetime.fromtimestamp(wall, UTC) + timedelta(seconds=seconds)
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "RECLAIMD_SIGNAL": pressure.signal,
        "RECLAIMD_FILESYSTEM": pressure.filesystem,
        "RECLAIMD_AVAILABLE": _number(pressure.available),
        "RECLAIMD_MARK": _number(pressure.mark),
        "RECLAIMD_MISSING_BYTES": str(pressure.missing_bytes),
        "RECLAIMD_MISSING_INODES": str(pressure.missing_inodes),
        "RECLAIMD_DEADLINE_SECONDS": f"{seconds:g}",
        "RECLAIMD_DEADLINE": deadline.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "RECLAIMD_PASS_ID": pressure.pass_id,
        "RECLAIMD_DRY_RUN": "true" if dry_run else "false",
    }


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
