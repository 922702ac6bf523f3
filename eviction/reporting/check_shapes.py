"""The JSON of `reclaimd check`."""

from __future__ import annotations

from typing import Literal, TypedDict

from eviction.reporting.filesystem_facts import FilesystemFacts
from eviction.reporting.json_shapes import RoleName
from eviction.reporting.observations_json import ObservationJson, ThresholdJson
from eviction.reporting.pass_shapes import ConditionName, LayoutName


class UnavailableJson(TypedDict):
    """A filesystem that could not be read."""

    filesystem: RoleName
    """Its role."""
    reason: str
    """Why, for people."""


class CheckJson(TypedDict):
    """One observation: the answer of `reclaimd check`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["Check"]
    """What the document is."""
    endpoint: str
    """The runtime's."""
    conditions: list[ConditionName]
    """The node conditions that are reported: ReclaimPressure is ours, DiskPressure the kubelet's."""
    disk_pressure: bool | None
    """Whether the kubelet would report DiskPressure now; null where its thresholds are not known."""
    layout: LayoutName | None
    """How the roles are spread over filesystems; null where that is not known."""
    filesystems: list[FilesystemFacts]
    """What the filesystems of the signals are."""
    observations: list[ObservationJson]
    """In the order of the signals."""
    thresholds: list[ThresholdJson]
    """Those in force."""
    thresholds_met: list[ThresholdJson]
    """Those that are met."""
    unavailable: list[UnavailableJson]
    """The filesystems that could not be read."""
