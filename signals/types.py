"""What is observed: signals, readings of filesystems, observations, layouts. Values only.

The names and the strings of the signals are the kubelet's (`pkg/kubelet/eviction/api/types.go`,
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SignalsError(Exception):
    """Root of what can go wrong while observing."""


class ReadingUnavailable(SignalsError):
    """A filesystem could not be read: it is missing, it failed, or it did not answer in time."""


class Signal(StrEnum):
    """The disk signals of the kubelet; the comparison of names is byte for byte, as there."""

    NODEFS_AVAILABLE = "nodefs.available"
    NODEFS_INODES_FREE = "nodefs.inodesFree"
    IMAGEFS_AVAILABLE = "imagefs.available"
    IMAGEFS_INODES_FREE = "imagefs.inodesFree"
    CONTAINERFS_AVAILABLE = "containerfs.available"
    CONTAINERFS_INODES_FREE = "containerfs.inodesFree"

    @property
    def filesystem(self) -> FilesystemRole:
        """The filesystem that the signal is about."""
        return _FILESYSTEMS[self]

    @property
    def counts_inodes(self) -> bool:
        """True when the unit is inodes, false when it is bytes."""
        return self in _COUNTING_INODES


class FilesystemRole(StrEnum):
    """What a filesystem is to the node. One filesystem can have several roles."""

    NODEFS = "nodefs"
    IMAGEFS = "imagefs"
    CONTAINERFS = "containerfs"


# Looked up, not computed: these two are asked some hundred times at each look.
_FILESYSTEMS = {signal: FilesystemRole(signal.value.partition(".")[0]) for signal in Signal}
_COUNTING_INODES = frozenset(signal for signal in Signal if signal.value.endswith(".inodesFree"))


class FsLayout(StrEnum):
    """How the roles are spread over devices (kubelet, `pkg/kubelet/eviction/helpers.go`).

    `single`: images, writable layers and kubelet data on one device. `dedicated-imagefs`: images and writable
    layers together, apart from kubelet data. `split`: images alone, writable layers with kubelet data.
    """

    SINGLE = "single"
    DEDICATED_IMAGEFS = "dedicated-imagefs"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class FsStats:
    """One reading of one filesystem (`statvfs`).

    `available_bytes` is what an unprivileged process can use (`f_bavail`), as the kubelet counts; `free_bytes`
    (`f_bfree`) includes the blocks reserved for root and moves first while an ext4 that was filled into its
    reserve recovers. `inodes_total == 0` means that the filesystem counts no inodes (btrfs, some tmpfs).
    `time` is monotonic seconds.
    """

    available_bytes: int
    free_bytes: int
    capacity_bytes: int
    inodes_free: int
    inodes_total: int
    time: float


@dataclass(frozen=True, slots=True)
class FilesystemIdentity:
    """Where a reading comes from. `device_id` (`st_dev`) tells filesystems apart; the rest is for people."""

    path: str
    device_id: int
    device: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class SignalObservation:
    """What one look says about one signal: bytes or inodes, `time` in monotonic seconds (None = unknown).

    `stale` marks a reading that did not arrive in time: the numbers are the last known ones, and they count
    neither as pressure nor as health.
    """

    signal: Signal
    available: int
    capacity: int
    time: float | None
    stale: bool = False
    filesystem: FilesystemIdentity | None = None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A filesystem of which a look could not say anything, and why (a sentence for people)."""

    role: FilesystemRole
    reason: str


@dataclass(frozen=True, slots=True)
class SignalObservations:
    """One look at the node.

    `layout` is None as long as it is not known (the runtime has not yet said where its images are).
    A signal that is not in `signals` does not exist on this node or could not be read; `unavailable` says which.
    `time` is monotonic seconds, `wall_time` seconds since the epoch for people.
    """

    signals: Mapping[Signal, SignalObservation]
    layout: FsLayout | None
    time: float
    wall_time: float = 0.0
    unavailable: tuple[Unavailable, ...] = ()
    filesystems: Mapping[FilesystemRole, tuple[FilesystemIdentity, FsStats]] = field(default_factory=dict)
