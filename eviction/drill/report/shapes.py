"""The shape of the report of a drill in JSON (`to_json` makes it)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from eviction.drill.judgement.judge import Response
from eviction.reporting.json_shapes import Count, Keywords, RoleName, SignalName, one_of
from eviction.reporting.observations_json import ThresholdJson
from eviction.reporting.pass_shapes import ConditionName, PassJson
from signals.types import FsLayout


class ExpectationJson(TypedDict):
    """One expectation."""

    name: str
    """What is expected to hold."""
    expected: str
    """In words."""
    seen: str
    """In words."""
    held: bool | None
    """Null: it could not be judged."""


class MeasuredFilesystemJson(TypedDict):
    """One filesystem, named for its first role."""

    name: RoleName
    """Its first role."""
    roles: list[RoleName]
    """All of them."""
    capacity_bytes: Count
    """Its size."""
    inodes_total: Count
    """How many files it takes."""


class MarkJson(ThresholdJson):
    """A threshold with its mark."""

    filesystem: RoleName | None
    """The filesystem that it is on; null: not observed."""
    effective_with_min_reclaim: Count | None
    """The mark with the minimum reclaim on top; null while the capacity is not known."""


class ConditionPeriodJson(TypedDict):
    """A period during which a node condition was reported."""

    condition: ConditionName
    """Which one."""
    from_seconds: float
    """Since the start."""
    to_seconds: float | None
    """Null: until the end."""


class PressurePeriodJson(TypedDict):
    """A period during which something grew."""

    what: str
    """In words."""
    from_seconds: float
    """Since the start."""
    to_seconds: float | None
    """Null: until the end."""
    written: int
    """Bytes, or files."""


class FaultOccurrenceJson(TypedDict):
    """A fault that was triggered."""

    what: str
    """In words."""
    seconds: float
    """Since the start."""


class MeasuredRemovalJson(TypedDict):
    """An object that went, whoever removed it."""

    seconds: float
    """Since the start."""
    kind: str
    """What it was: container, sandbox, image, log, or of another function."""
    name: str
    """For people."""
    id: str
    """The runtime's id of it."""


class EndedPodJson(TypedDict):
    """A pod that ran and has ended."""

    seconds: float
    """Since the start."""
    name: str
    """Namespace and name."""
    uid: str
    """Its UID."""


class MeasuredPassJson(PassJson):
    """One pass, and when it was."""

    from_seconds: float
    """Since the start."""
    collector: Count
    """Of several agents the how many-th."""


class AvailableJson(TypedDict):
    """What was available on one filesystem."""

    available_bytes: int
    """Bytes."""
    inodes_free: int
    """Inodes."""


# The names of the further filesystems are keys, so it is no TypedDict.
PointJson = Annotated[
    dict[str, AvailableJson],
    Keywords(
        {
            "properties": {
                "seconds": {"description": "Since the start.", "type": "number"},
                "available_bytes": {"description": "On the first filesystem.", "type": "integer"},
                "inodes_free": {"description": "On the first filesystem.", "type": "integer"},
            },
            "required": ["seconds"],
        }
    ),
]
"""One point of the timeline."""


class DrillReportJson(TypedDict):
    """A run of a drill: the answer of `reclaimd drill`, and its file. Times are seconds since its start."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["DrillReport"]
    """What the document is."""
    scenario: str
    """Its name."""
    why: str
    """What it shows."""
    response: Annotated[str, one_of(Response)]
    """What relieved the node: our daemon, or another component that was only observed."""
    held: bool
    """Whether every expectation held that could be judged."""
    simulated: bool
    """Whether the filesystem was a size-limited view of a directory."""
    filesystem: str
    """What it was made of, in words."""
    layout: Annotated[str, Keywords({"enum": [*map(str, FsLayout), "unknown"]})]
    """How the roles are spread over filesystems."""
    crossed_seconds: float | None
    """When a mark was first crossed; null: never."""
    first_removal_seconds: float | None
    """When the first object went; null: none did."""
    relieved_seconds: float | None
    """When every threshold was clear again; null: never."""
    ended_seconds: float
    """When it ended."""
    from_crossing_to_first_removal_seconds: float | None
    """Null where there was no such thing."""
    from_crossing_to_first_relief_seconds: float | None
    """Until something was freed; null where nothing was."""
    from_crossing_to_relief_seconds: float | None
    """Null where there was no such thing."""
    images_lost_beyond_need: Count | None
    """Images that went although the others were enough; null where their layers are not known."""
    lowest: dict[SignalName, int | None]
    """Signal -> the least that was available; null: not measured."""
    checks: list[ExpectationJson]
    """The expectations, judged."""
    filesystems: list[MeasuredFilesystemJson]
    """Those that were measured."""
    marks: list[MarkJson]
    """The thresholds in force."""
    conditions: list[ConditionPeriodJson]
    """When conditions were reported."""
    pressures: list[PressurePeriodJson]
    """What grew, and when."""
    faults: list[FaultOccurrenceJson]
    """What went wrong on purpose."""
    removals: list[MeasuredRemovalJson]
    """The objects that went."""
    ended_pods: list[EndedPodJson]
    """The pods that ended."""
    lists_apart_seconds: float | None
    """The longest time between two looks at the runtime's lists; null where removals are known without."""
    history: dict[str, Any]
    """The last observations and decisions, where an expectation did not hold. Its form is not part of this contract."""
    passes: list[MeasuredPassJson]
    """Those of our own daemon."""
    timeline: list[PointJson]
    """At most 2 000 points: seconds, and what was available on the first filesystem; on each further one under its
    name."""
