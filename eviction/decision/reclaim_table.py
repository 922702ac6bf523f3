"""The table of reclaim functions by signal and layout (pure).

When a signal is under pressure, the functions of its row are called in order (kubelet,
`pkg/kubelet/eviction/helpers.go`, buildSignalToNodeReclaimFuncs):

* Containers before images: a dead container keeps its image in use.
* One filesystem for everything: any removal relieves any disk signal.
* A dedicated image filesystem holds images and writable layers. The kubelet's own filesystem holds neither, so its row
  is empty.
* Split: images have a filesystem of their own, writable layers are with the kubelet's data; each is relieved by what
  is on it.

`imageGCHighThresholdPercent` and the periodic garbage collection play no part: a row is called because of its signal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eviction.types import ReclaimFunction, Threshold
from signals.types import FilesystemRole, FsLayout, Signal

_C: Final = ReclaimFunction.DELETE_ALL_UNUSED_CONTAINERS
_I: Final = ReclaimFunction.DELETE_UNUSED_IMAGES

RECLAIM_TABLE: Final[Mapping[tuple[FilesystemRole, FsLayout], tuple[ReclaimFunction, ...]]] = {
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


def row(signal: Signal, layout: FsLayout) -> tuple[ReclaimFunction, ...]:
    """The functions for a signal in a layout. Bytes and inodes of a filesystem have the same row."""
    return RECLAIM_TABLE[signal.filesystem, layout]


def relieved_by(
    thresholds: tuple[Threshold, ...], function: ReclaimFunction, layout: FsLayout
) -> tuple[Threshold, ...]:
    """The thresholds that a function can relieve: those with the function in their row.

    A function must not go on for a threshold that it cannot relieve: pressure on the kubelet's own filesystem would
    otherwise cost every image.
    """
    return tuple(threshold for threshold in thresholds if function in row(threshold.signal, layout))
