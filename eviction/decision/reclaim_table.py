"""The table of reclaim functions by signal and layout.

When a signal is under pressure, the functions of its row are called in order (kubelet,
`pkg/kubelet/eviction/helpers.go`, buildSignalToNodeReclaimFuncs):

* Containers before images, because a dead container keeps its image in use. (When it is urgent,
  dead containers are removed side by side with images that are already unused:
  `eviction.engine.relief`.)
* One filesystem for everything: any removal relieves any disk signal.
* A dedicated image filesystem holds images and writable layers. The kubelet's own filesystem holds
  neither, so its row is empty.
* Split: images and writable layers are on different filesystems, and each is relieved by removing
  what is on it. The kubelet assumes that its own data is with the writable layers. So does this
  table, even if the data is with the images or on a filesystem of its own.

A configuration can replace rows, and adds rows for filesystems of its own (`Rows`).

`imageGCHighThresholdPercent` and the periodic garbage collection play no part: a row is
called because of its signal.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from eviction.decision.thresholds import filesystem_of_writable_layers
from eviction.types import Row, ThresholdValue
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import KUBELET_ROLES, FilesystemRole, FsLayout, Signal

BUILT_IN = (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES)
_C, _I = BUILT_IN
RECLAIM_TABLE: Mapping[FsLayout | None, Mapping[FilesystemRole, Row]] = {
    FsLayout.SINGLE: dict.fromkeys(KUBELET_ROLES, (_C, _I)),
    FsLayout.DEDICATED_IMAGEFS: {
        FilesystemRole.NODEFS: (),
        FilesystemRole.IMAGEFS: (_C, _I),
        FilesystemRole.CONTAINERFS: (_C, _I),
    },
    FsLayout.SPLIT: {
        FilesystemRole.NODEFS: (_C,),
        FilesystemRole.IMAGEFS: (_I,),
        FilesystemRole.CONTAINERFS: (_C,),
    },
}
"""The names of functions by layout and filesystem. `reclaim.functions.table` has the functions."""


class RowEntry(NamedTuple):
    """One function in a row of the configuration. `below`: call it only while the signal is below
    this mark, and stop once it is not; None: as long as the thresholds require."""

    function: str
    below: ThresholdValue | None = None


Rows = Mapping[Signal, tuple[RowEntry, ...]]
"""The rows of the configuration; each replaces the built-in row of its signal."""

NO_ROWS: Rows = MappingProxyType({})


def row(signal: Signal, layout: FsLayout | None, rows: Rows = NO_ROWS) -> Row:
    """The functions for a signal in a layout. A filesystem's bytes and inodes have the same
    built-in row. While the layout is unknown (None), the kubelet's signals have no row; signals of
    filesystems that the configuration adds have no built-in row at all.

    `rows`: those of the configuration.
    """
    if signal.filesystem.kubelets and layout is None:
        return ()
    configured = entries_of(signal, layout, rows)
    if configured is not None:
        return tuple(entry.function for entry in configured)
    return RECLAIM_TABLE.get(layout, {}).get(signal.filesystem, ())


def entries_of(signal: Signal, layout: FsLayout | None, rows: Rows) -> tuple[RowEntry, ...] | None:
    """The configured row of a signal, None if there is none. Unless containerfs has a row of its
    own, it uses the row of the filesystem that its thresholds are derived from."""
    if (
        signal.filesystem is FilesystemRole.CONTAINERFS
        and signal not in rows
        and layout is not None
    ):
        signal = signal.on(filesystem_of_writable_layers(layout))
    return rows.get(signal)
