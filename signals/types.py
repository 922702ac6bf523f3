"""Signals, readings of filesystems, observations and layouts: values only.

The names and strings of the signals are the kubelet's (`pkg/kubelet/eviction/api/types.go`,
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class SignalsError(Exception):
    """Root of the errors of this package."""


class ReadingUnavailable(SignalsError):
    """A filesystem could not be read: it is missing, failed, or did not answer in time. The message is for people."""


class Signal(StrEnum):
    """The disk signals of the kubelet; names are compared byte for byte, as in the kubelet."""

    NODEFS_AVAILABLE = "nodefs.available"
    NODEFS_INODES_FREE = "nodefs.inodesFree"
    IMAGEFS_AVAILABLE = "imagefs.available"
    IMAGEFS_INODES_FREE = "imagefs.inodesFree"
    CONTAINERFS_AVAILABLE = "containerfs.available"
    CONTAINERFS_INODES_FREE = "containerfs.inodesFree"

    @property
    def filesystem(self) -> FilesystemRole:
        """The role of the filesystem that the signal is about."""
        return _FILESYSTEMS[self]

    @property
    def counts_inodes(self) -> bool:
        """True when the unit is inodes, false when it is bytes."""
        return self in _COUNTING_INODES


class FilesystemRole(StrEnum):
    """What a filesystem is for on the node. One filesystem can have several roles."""

    NODEFS = "nodefs"
    IMAGEFS = "imagefs"
    CONTAINERFS = "containerfs"


# Looked up, not computed: each observation needs them some hundred times.
_FILESYSTEMS = {signal: FilesystemRole(signal.value.partition(".")[0]) for signal in Signal}
_COUNTING_INODES = frozenset(signal for signal in Signal if signal.value.endswith(".inodesFree"))


class FsLayout(StrEnum):
    """How the roles are spread over devices (kubelet, `pkg/kubelet/eviction/helpers.go`).

    `single`: images, writable layers and the kubelet's data on one device. `dedicated-imagefs`: images and writable
    layers together, apart from the kubelet's data. `split`: images and writable layers on different devices; the
    kubelet's data may be with either, as a rule with the writable layers.
    """

    SINGLE = "single"
    DEDICATED_IMAGEFS = "dedicated-imagefs"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class FsStats:
    """The numbers of one filesystem at one moment (statvfs(3)).

    `available_bytes` is what an unprivileged process can use (`f_bavail`), as the kubelet counts. `free_bytes`
    (`f_bfree`) includes the blocks that are reserved for root; on an ext4 that root has filled into this reserve, it
    rises before `available_bytes` does. `inodes_total == 0`: the filesystem counts no inodes (btrfs, some tmpfs).
    `time` is in monotonic seconds.
    """

    available_bytes: int
    free_bytes: int
    capacity_bytes: int
    inodes_free: int
    inodes_total: int
    time: float


class Poll(NamedTuple):
    """What one poll of a filesystem has read at `time`, monotonic seconds."""

    time: float
    available_bytes: int
    inodes_free: int


@dataclass(frozen=True, slots=True)
class FilesystemIdentity:
    """Which filesystem a reading is of. `device_id` (`st_dev`) tells filesystems apart. `mount_point`: of the mount
    that holds `path`; empty if unknown, as `device` and `type`."""

    path: str
    device_id: int
    device: str = ""
    type: str = ""
    mount_point: str = ""


@dataclass(frozen=True, slots=True)
class SignalObservation:
    """The value of one signal: bytes or inodes; `time` in monotonic seconds, None if unknown.

    `stale`: the filesystem could not be read. Then the numbers are the last known ones, and no threshold counts as met
    or as clear by them.
    """

    signal: Signal
    available: int
    capacity: int
    time: float | None
    stale: bool = False
    filesystem: FilesystemIdentity | None = None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A filesystem that could not be read, and why (a sentence for people)."""

    role: FilesystemRole
    reason: str


@dataclass(frozen=True, slots=True)
class SignalObservations:
    """The signals of the node at one moment.

    `layout` is None until it is known (the runtime has not yet said where its images are). A signal that is not in
    `signals` does not exist on this node, or its filesystem was never read; `unavailable` says why a filesystem could
    not be read. `filesystems`: the readings by role. `polls`: by role what the polls have read between the observation
    before and this one, oldest first. `time` is in monotonic seconds, `wall_time` in seconds since the Unix epoch, for
    people.
    """

    signals: Mapping[Signal, SignalObservation]
    layout: FsLayout | None
    time: float
    wall_time: float = 0.0
    unavailable: tuple[Unavailable, ...] = ()
    filesystems: Mapping[FilesystemRole, tuple[FilesystemIdentity, FsStats]] = field(default_factory=dict)
    polls: Mapping[FilesystemRole, tuple[Poll, ...]] = field(default_factory=dict)
