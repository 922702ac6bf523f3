"""Signals, filesystem readings, observations and layouts. Values only.

The names of the signals are the kubelet's (`pkg/kubelet/eviction/api/types.go`,
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/). A configuration
may add filesystems; their signals have the same form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import ClassVar, NamedTuple

ROLE_NAME = re.compile("[a-z][a-z0-9-]{0,31}")
ROLE_NAMES_ALLOWED = "a lower-case letter, and up to 31 lower-case letters, digits and hyphens"


class SignalsError(Exception):
    """The base class of this package's errors."""


class FilesystemRole(str):
    """What a filesystem is for on the node: one of the kubelet's three roles, or the name of one
    that the configuration adds.

    There is one object per name, so `is` compares names. One filesystem can have several roles.
    """

    _known: ClassVar[dict[str, FilesystemRole]] = {}
    NODEFS: ClassVar[FilesystemRole]
    IMAGEFS: ClassVar[FilesystemRole]
    CONTAINERFS: ClassVar[FilesystemRole]

    def __new__(cls, name: str) -> FilesystemRole:  # noqa: PYI034 # one object per name, whatever the class
        """Raises ValueError for what cannot be a name."""
        if not ROLE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a filesystem name; allowed are {ROLE_NAMES_ALLOWED}")
        return cls._known.setdefault(name, super().__new__(cls, name))

    @property
    def kubelets(self) -> bool:
        """Whether it is one of the kubelet's, whose pressure is the node's pressure."""
        return self in KUBELET_ROLES


FilesystemRole.NODEFS = FilesystemRole("nodefs")
FilesystemRole.IMAGEFS = FilesystemRole("imagefs")
FilesystemRole.CONTAINERFS = FilesystemRole("containerfs")
KUBELET_ROLES = (FilesystemRole.NODEFS, FilesystemRole.IMAGEFS, FilesystemRole.CONTAINERFS)

AVAILABLE = "available"
INODES_FREE = "inodesFree"


class Signal(str):
    """How much is left on a filesystem, in bytes or inodes: one of the kubelet's disk signals, or a
    signal of the same form for a filesystem that the configuration adds (`buildcache.available`).

    Names are compared byte for byte, as in the kubelet; there is one object per name. `filesystem`:
    the role of its filesystem. `counts_inodes`: true if the unit is inodes, false if it is bytes.
    """

    _known: ClassVar[dict[str, Signal]] = {}
    NODEFS_AVAILABLE: ClassVar[Signal]
    NODEFS_INODES_FREE: ClassVar[Signal]
    IMAGEFS_AVAILABLE: ClassVar[Signal]
    filesystem: FilesystemRole
    counts_inodes: bool

    def __new__(cls, name: str) -> Signal:  # noqa: PYI034 # one object per name, whatever the class
        """Raises ValueError for what cannot be a signal."""
        if name not in cls._known:
            role, _, unit = name.partition(".")
            if unit not in (AVAILABLE, INODES_FREE):
                raise ValueError(
                    f"{name!r} is not a signal; a signal ends with .{AVAILABLE} or .{INODES_FREE}"
                )
            signal = super().__new__(cls, name)
            signal.filesystem = FilesystemRole(role)
            signal.counts_inodes = unit == INODES_FREE
            cls._known[name] = signal
        return cls._known[name]

    def on(self, role: FilesystemRole) -> Signal:
        """The same of another filesystem."""
        in_bytes, in_inodes = signals_about(role)
        return in_inodes if self.counts_inodes else in_bytes


@cache
def signals_about(role: FilesystemRole) -> tuple[Signal, Signal]:
    """The two signals of a filesystem: bytes, inodes."""
    return Signal(f"{role}.{AVAILABLE}"), Signal(f"{role}.{INODES_FREE}")


Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE = signals_about(FilesystemRole.NODEFS)
Signal.IMAGEFS_AVAILABLE = Signal("imagefs.available")
KUBELET_SIGNALS = tuple(signal for role in KUBELET_ROLES for signal in signals_about(role))


def in_order(signals: Iterable[Signal]) -> tuple[Signal, ...]:
    """The kubelet's signals first, in its order; then the others by name, bytes before inodes."""
    return tuple(sorted(signals, key=order_of))


def order_of(signal: Signal) -> tuple[int, str]:
    """The sort key of a signal."""
    return (
        (KUBELET_SIGNALS.index(signal), "")
        if signal in KUBELET_SIGNALS
        else (len(KUBELET_SIGNALS), signal)
    )


class FsLayout(StrEnum):
    """How the roles are spread over devices (kubelet, `pkg/kubelet/eviction/helpers.go`).

    `single`: images, writable layers and the kubelet's data on one device.
    `dedicated-imagefs`: images and writable layers together, apart from the kubelet's data.
    `split`: images and writable layers on different devices; the kubelet's data may be with
    either, usually with the writable layers.
    """

    SINGLE = "single"
    DEDICATED_IMAGEFS = "dedicated-imagefs"
    SPLIT = "split"


@dataclass(frozen=True)
class FsStats:
    """The numbers of one filesystem at one moment (statvfs(3)).

    `available_bytes` is what an unprivileged process can use (`f_bavail`), as in the kubelet.
    `free_bytes` (`f_bfree`) includes the blocks reserved for root; on an ext4 whose reserve root
    has filled, it rises before `available_bytes` does. `inodes_total == 0`: the filesystem does not
    count inodes (btrfs, some tmpfs). `time` is in monotonic seconds.

    What is coming is known on some filesystems (`signals.ahead`). `promised_bytes`: promised to
    writes that statvfs does not show yet; `available_bytes` and `free_bytes` are without them.
    `preallocated_bytes`: behind the ends of files that grow; statvfs shows them as used.
    `step_bytes`: what the next preallocation takes at once, when those are used up; 0: none is due.
    """

    available_bytes: int
    free_bytes: int
    capacity_bytes: int
    inodes_free: int
    inodes_total: int
    time: float
    promised_bytes: int = 0
    preallocated_bytes: int = 0
    step_bytes: int = 0

    @property
    def unwritten_bytes(self) -> int:
        """How much can be written before nothing is available: it falls as files grow, without the
        steps of preallocation."""
        return self.available_bytes + self.preallocated_bytes


class FilesystemIdentity(NamedTuple):
    """The filesystem that a reading is of. `device_id` identifies it: `st_dev`, except that all
    subvolumes of a btrfs share one number. `mount_point`: of the mount that holds `path`; empty if
    unknown, as are `device` and `type`."""

    path: str
    device_id: int
    device: str = ""
    type: str = ""
    mount_point: str = ""


class SignalObservation(NamedTuple):
    """The value of one signal in bytes or inodes; `time` in monotonic seconds.

    `available` is without `promised`, what the filesystem has promised to writes that it does not
    show yet. `needed`: what must be available now so that what is coming does not reach the
    kubelet's mark; 0 while nothing fills. `stale`: the filesystem could not be read. The numbers
    are then the last known ones, and no threshold counts as met or as clear because of them.
    """

    signal: Signal
    available: int
    capacity: int
    time: float
    filesystem: FilesystemIdentity
    stale: bool = False
    promised: int = 0
    needed: int = 0

    def shown(self) -> SignalObservation:
        """The same as the filesystem shows it, which is what the kubelet sees."""
        return self._replace(available=self.available + self.promised, promised=0, needed=0)


class Unavailable(NamedTuple):
    """A filesystem that could not be read, and the reason (a sentence for people)."""

    role: FilesystemRole
    reason: str


class SignalObservations(NamedTuple):
    """The signals of the node at one moment.

    `layout` is None until it is known (the runtime has not yet said where its images are). A signal
    that is not in `signals` does not exist on this node, or its filesystem has never been read;
    `unavailable` has the reason for each filesystem that could not be read. `filesystems`: the
    readings by role. `polls`: by role, what the last polls read, oldest first. `limits`: by role,
    what `statvfs` returns in the directory itself, if a project quota limits it. `time` is in
    monotonic seconds, `wall_time` in seconds since the Unix epoch, for people.
    """

    signals: Mapping[Signal, SignalObservation]
    layout: FsLayout | None
    time: float
    wall_time: float = 0.0
    unavailable: tuple[Unavailable, ...] = ()
    filesystems: Mapping[FilesystemRole, tuple[FilesystemIdentity, FsStats]] = {}
    polls: Mapping[FilesystemRole, tuple[FsStats, ...]] = {}
    limits: Mapping[FilesystemRole, FsStats] = {}
