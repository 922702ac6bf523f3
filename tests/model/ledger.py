"""The record of each removal, and the policy by which it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reclaim.cri import cri_pb2 as pb
from reclaim.types import ContainerState

HANGS_SECONDS = 5.0
"""How much time passes when a call begins to hang: more than anybody's patience."""

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 2.0  # of a pass, for pods that begin
STATES = {
    pb.CONTAINER_CREATED: ContainerState.CREATED,
    pb.CONTAINER_RUNNING: ContainerState.RUNNING,
    pb.CONTAINER_EXITED: ContainerState.EXITED,
    pb.CONTAINER_UNKNOWN: ContainerState.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One removal. `state` is that of the object when it was removed; `wrong` is empty if the removal was allowed."""

    kind: Literal["container", "sandbox", "image"]
    id: str
    by_reclaimd: bool
    state: str
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Since:
    """When something came into being: the number of calls that reclaimd had sent by then, and the time in seconds."""

    call: int
    seconds: float


@dataclass(slots=True)
class Licence:
    """What reclaimd is configured to remove, and so may remove.

    `exact`: it follows the kubelet's rules with the kubelet's own state, and may remove CREATED containers.
    `from_kubelet`: it learns from the kubelet which pods have terminated. `keep`: tags that are kept.
    `min_age_seconds`: of an image.
    """

    exact: bool = False
    from_kubelet: bool = False
    keep: frozenset[str] = frozenset()
    min_age_seconds: float = 0.0
