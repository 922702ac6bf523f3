"""The signal -> reclaim functions table.

When a signal is under pressure, these functions are called, in this order (kubelet,
`pkg/kubelet/eviction/helpers.go`, buildSignalToNodeReclaimFuncs):

* Containers before images: a dead container keeps its image in use.
* One filesystem for everything: any disk signal is relieved by anything that goes.
* A dedicated image filesystem holds images and writable layers; the kubelet's own filesystem holds neither, so
  nothing here relieves it.
* Split: images are alone, writable layers are with the kubelet's data; each is relieved by what is on it.

Nothing in this table knows a percentage of an image garbage collection or a period: a row is called because of its
signal, whatever `imageGCHighThresholdPercent` says and whether or not a periodic loop runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eviction.types import Threshold
from signals.types import FilesystemRole, FsLayout, Signal

DELETE_ALL_UNUSED_CONTAINERS: Final = "DeleteAllUnusedContainers"
DELETE_UNUSED_IMAGES: Final = "DeleteUnusedImages"
_C: Final = DELETE_ALL_UNUSED_CONTAINERS
_I: Final = DELETE_UNUSED_IMAGES

ReclaimTable = Mapping[tuple[FilesystemRole, FsLayout], tuple[str, ...]]
"""The names of functions by filesystem and layout. What a name stands for is in `reclaim.functions`."""

RECLAIM_TABLE: Final[ReclaimTable] = {
    (FilesystemRole.NODEFS, FsLayout.SINGLE): (_C, _I),
    (FilesystemRole.NODEFS, FsLayout.DEDICATED_IMAGEFS): (),
    (FilesystemRole.NODEFS, FsLayout.SPLIT): (_C,),
    (FilesystemRole.IMAGEFS, FsLayout.SINGLE): (_C, _I),
    (FilesystemRole.IMAGEFS, FsLayout.DEDICATED_IMAGEFS): (_C, _I),
    (FilesystemRole.IMAGEFS, FsLayout.SPLIT): (_I,),
    (FilesystemRole.CONTAINERFS, FsLayout.SINGLE): (_C, _I),
    (FilesystemRole.CONTAINERFS, FsLayout.DEDICATED_IMAGEFS): (_C, _I),
    (FilesystemRole.CONTAINERFS, FsLayout.SPLIT): (_C,),
}


def row(signal: Signal, layout: FsLayout, table: ReclaimTable = RECLAIM_TABLE) -> tuple[str, ...]:
    """The functions for a signal in a layout. Both signals of a filesystem have the same row."""
    return table[signal.filesystem, layout]


def functions_of(table: ReclaimTable) -> frozenset[str]:
    """The names of all functions that the table calls."""
    return frozenset(name for functions in table.values() for name in functions)


def relieved_by(
    thresholds: tuple[Threshold, ...], function: str, layout: FsLayout, table: ReclaimTable = RECLAIM_TABLE
) -> tuple[Threshold, ...]:
    """The thresholds that a function can relieve: those in whose row it stands.

    What the function cannot relieve must not drive it on: pressure on a kubelet's filesystem of its own would
    otherwise cost every image.
    """
    return tuple(threshold for threshold in thresholds if function in row(threshold.signal, layout, table))
