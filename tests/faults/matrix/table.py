"""The fault matrix as values: `matrix.yaml`, which has a row for each resource and fault, or the
reason why that cell cannot exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from reclaim.types import Kind

PROMISED_RELIEF_SECONDS = 2.0
PROMISED_EXIT_SECONDS = 35.0
SLACK_SECONDS = 6.0
"""What a busy machine is given beyond each promise: a relief takes 0.1 to 0.5 s on an idle one."""
QUESTIONS_SECONDS = 20.0  # two that wait for the runtime as long as they may


class Fault(StrEnum):
    """How a resource fails."""

    ABSENT_AT_START = "absent-at-start"
    """It is not there when the program starts, with the disk under pressure already; it comes
    later."""
    ABSENT = "absent-for-3s"
    """It goes in the middle of pressure, and is there again 3 s later."""
    HANGS = "hangs"
    """It stops answering in the middle of pressure, and never answers again: SIGTERM comes while it
    hangs."""
    SLOW = "slow"
    """From the middle of pressure on each use of it takes far longer; SIGTERM comes while it is
    slow."""
    WRONG = "wrong"
    """For 3 s in the middle of pressure it answers something that is not so."""
    COMES_BACK = "comes-back"
    """It hangs (or is absent, where it cannot hang) for 12 s, longer than any question waits, and
    is as before then."""


HELD_SECONDS = dict.fromkeys(Fault, 3.0) | {
    Fault.HANGS: 2.0,
    Fault.SLOW: 2.0,
    Fault.COMES_BACK: 12.0,
}
"""How long a fault lasts at least."""


class When(StrEnum):
    """When the relief comes."""

    GOES_ON = "goes on"
    COMES_BACK = "comes back"
    NOT_EXPECTED = "not expected"


class Livez(StrEnum):
    """What `/livez` says."""

    OK = "200"
    TRUTH = "200 or 503"
    UNHEARD = "unheard"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `matrix.yaml` says what its fields are. `reason`: why no relief is expected, or why
    it takes longer than 2 s."""

    resource: str
    fault: Fault
    variant: str = ""
    relief: When = When.GOES_ON
    within_seconds: float = PROMISED_RELIEF_SECONDS
    reason: str = ""
    meanwhile: frozenset[Kind] = frozenset()
    livez: Livez = Livez.OK
    how: str = ""
    restarts: bool = False
    in_suite: bool = False

    @property
    def id(self) -> str:
        """As in `statvfs-hangs`."""
        return "-".join(filter(None, (self.resource, str(self.fault), self.variant)))

    @property
    def hangs(self) -> bool:
        """Whether the resource does not answer for longer than a question waits."""
        return self.fault in (Fault.HANGS, Fault.COMES_BACK)

    @property
    def meanwhile_seconds(self) -> float:
        """How long after the beginning of the fault something else goes at the latest."""
        return QUESTIONS_SECONDS if self.hangs else PROMISED_RELIEF_SECONDS


DOCUMENT: Any = yaml.safe_load(Path(__file__).with_name("matrix.yaml").read_text())
RESOURCES = tuple(DOCUMENT["rows"])


def _rows() -> Iterator[Row]:
    for resource, cells in DOCUMENT["rows"].items():
        for cell, given in cells.items():
            if "impossible" in given:
                continue
            fault, _, variant = cell.partition(" ")
            promise = DOCUMENT["promises"][given["relief"]]
            yield Row(
                resource,
                Fault(fault),
                variant,
                When(promise["when"]),
                promise.get("within", PROMISED_RELIEF_SECONDS),
                promise.get("reason", ""),
                frozenset(map(Kind, given.get("meanwhile", ()))),
                Livez(given.get("livez", "200")),
                given.get("how", ""),
                given.get("restarts", False),
                given.get("suite", False),
            )


TABLE = tuple(_rows())
"""All rows."""
