"""What is written down of each removal, and the terms in which it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reclaim.cri import cri_pb2 as pb
from reclaim.types import ContainerState

FRESH_SECONDS = 1.0
STATES = {
    pb.CONTAINER_CREATED: ContainerState.CREATED,
    pb.CONTAINER_RUNNING: ContainerState.RUNNING,
    pb.CONTAINER_EXITED: ContainerState.EXITED,
    pb.CONTAINER_UNKNOWN: ContainerState.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One removal. `state` is that of the object when it went; `wrong` is empty if it was allowed to go."""

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
    """What reclaimd is configured to do, and so may do.

    `exact`: it goes the kubelet's way with the kubelet's own state, and may remove what is CREATED. `told`: it is told
    by the kubelet which pods have terminated. `keep`: tags that stay. `min_age_seconds`: of an image.
    """

    exact: bool = False
    told: bool = False
    keep: frozenset[str] = frozenset()
    min_age_seconds: float = 0.0
