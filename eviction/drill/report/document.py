"""The JSON report of a drill, read back: the page, JUnit XML and the comparison are made from it.

A report may come from an earlier run, another version, or another person. Unknown fields are ignored; required fields
are checked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any

from eviction.configuration.models import ConfigDict, Field, Model, ValidationError
from eviction.configuration.strict_yaml import first_problem
from eviction.types import EvictionError, NodeCondition

KIND = "DrillReport"
LARGEST_BYTES = 64 << 20


# No drill lasts longer and no disk is larger. With these bounds every number can be drawn.
Seconds = Annotated[float, Field(ge=-1e6, le=1e6)]
Amount = Annotated[int, Field(ge=-(2**63), le=2**63)]
# A sum of sizes that a runtime reports, each of which may be as large as a CRI message can hold.
Sum = Annotated[int, Field(ge=-(2**80), le=2**80)]


class ReportError(EvictionError):
    """A file that is not the report of a drill. The message is one sentence."""


class _Part(Model):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class CheckPart(_Part):
    """One expectation."""

    name: str
    expected: str
    seen: str
    held: bool | None  # None: it could not be judged


class FilesystemPart(_Part):
    """One filesystem, named for its first role."""

    name: str
    roles: list[str]
    capacity_bytes: Amount
    inodes_total: Amount


class MarkPart(_Part):
    """One threshold with its mark, without and with minimum reclaim."""

    signal: str
    value: str
    filesystem: str | None = None
    effective: Amount | None = None
    effective_with_min_reclaim: Amount | None = None
    grace_seconds: Seconds = 0.0

    @property
    def counts_inodes(self) -> bool:
        """True if the mark is a number of inodes."""
        return self.signal.endswith(".inodesFree")


class ConditionPart(_Part):
    """A period during which a condition was reported: ReclaimPressure, or DiskPressure where the kubelet would have."""

    condition: str
    from_seconds: Seconds
    to_seconds: Seconds | None = None


class PressurePart(_Part):
    """A period during which a pressure was applied."""

    what: str
    from_seconds: Seconds
    to_seconds: Seconds | None = None
    written: int = 0


class FaultPart(_Part):
    """One fault that occurred."""

    what: str
    seconds: Seconds


class RemovalPart(_Part):
    """One object that was removed."""

    seconds: Seconds
    kind: str
    name: str


class EndedPodPart(_Part):
    """One pod that ran and has ended."""

    seconds: Seconds
    name: str


class AmountPart(_Part):
    """Bytes and inodes; None: not known."""

    bytes: Sum | None = None
    inodes: Sum | None = None


class TimingsPart(_Part):
    """Where the time of a pass went."""

    list_seconds: Seconds
    plan_seconds: Seconds
    remove_seconds: Seconds
    total_seconds: Seconds


class ActedOnPart(_Part):
    """The threshold that a pass acted on."""

    signal: str


class PassPart(_Part):
    """One pass."""

    from_seconds: Seconds
    collector: int = 1
    acted_on: ActedOnPart | None = None
    row: list[str]
    removals: list[dict[str, Any]]
    measured: AmountPart
    nominal: AmountPart
    result: str
    reason: str
    timings: TimingsPart


class AvailablePart(_Part):
    """What was available on one filesystem."""

    available_bytes: Amount
    inodes_free: Amount


class PointPart(AvailablePart):
    """One point of the timeline: the first filesystem, and the second where there is one."""

    seconds: Seconds
    imagefs: AvailablePart | None = None
    containerfs: AvailablePart | None = None


class Report(_Part):
    """A whole run."""

    kind: str
    scenario: str = Field(max_length=200)
    why: str
    held: bool
    simulated: bool
    filesystem: str
    layout: str
    ended_seconds: float = Field(gt=0, le=1e6)
    crossed_seconds: Seconds | None = None
    response: str = Field("reclaimd", max_length=200)
    from_crossing_to_first_removal_seconds: Seconds | None = None
    from_crossing_to_first_relief_seconds: Seconds | None = None
    from_crossing_to_relief_seconds: Seconds | None = None
    images_lost_beyond_need: int | None = 0  # None: the sizes of layers are not known
    lowest: dict[str, Amount | None] = Field(default_factory=dict)
    checks: list[CheckPart]
    filesystems: list[FilesystemPart]
    marks: list[MarkPart]
    conditions: list[ConditionPart]
    pressures: list[PressurePart]
    faults: list[FaultPart]
    removals: list[RemovalPart]
    ended_pods: list[EndedPodPart] = Field(default_factory=list)
    lists_apart_seconds: Seconds | None = None
    passes: list[PassPart]
    timeline: list[PointPart]

    @property
    def reclaim_pressure(self) -> list[ConditionPart]:
        """The periods of our own condition. Older reports have them under the kubelet's name."""
        return [one for one in self.conditions if one.condition != NodeCondition.DISK_PRESSURE] or self.conditions

    @property
    def disk_pressure(self) -> list[ConditionPart]:
        """The periods in which the kubelet would have reported DiskPressure."""
        ours = self.reclaim_pressure
        return [one for one in self.conditions if one not in ours]

    @property
    def verdict(self) -> str:
        """The verdict in words, with the number of expectations that could not be judged."""
        if not self.checks:
            return "observed; nothing was expected"
        open_ = sum(check.held is None for check in self.checks)
        verdict = "everything held" if self.held else "not everything held"
        return f"{verdict} of what could be judged; {open_} of {len(self.checks)} could not" if open_ else verdict

    @property
    def title(self) -> str:
        """The name of the scenario; with `observed` if another component relieved the node."""
        return self.scenario if self.response == "reclaimd" else f"{self.scenario}, {self.response}"

    def series(self, filesystem: str, *, inodes: bool) -> list[tuple[float, int]]:
        """What was available on one filesystem: (seconds, bytes or inodes)."""
        first = bool(self.filesystems) and self.filesystems[0].name == filesystem
        points = [(point.seconds, point if first else getattr(point, filesystem, None)) for point in self.timeline]
        return [
            (seconds, found.inodes_free if inodes else found.available_bytes)
            for seconds, found in points
            if isinstance(found, AvailablePart)
        ]


def report_of(document: Mapping[str, Any], name: str) -> Report:
    """The report in a document. `name` names it in the error message. Raises ReportError."""
    if document.get("kind") != KIND:
        raise ReportError(f"{name}: is not a report of a drill: its kind is not {KIND}")
    try:
        return Report.model_validate(document)
    except ValidationError as error:
        raise ReportError(first_problem(error, name, Report)) from None


def read_report(path: str) -> Report:
    """The report in a JSON file. Raises ReportError with one sentence."""
    try:
        if os.stat(path).st_size > LARGEST_BYTES:
            raise ReportError(f"{path}: larger than {LARGEST_BYTES} bytes, the largest allowed")
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not readable as JSON: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ReportError(f"{path}: is not a report of a drill: not one JSON object")
    return report_of(document, path)
