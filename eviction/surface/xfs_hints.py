"""Gives directories of the node an extent size hint: which, and what is said of each."""

import os
from collections.abc import Iterable, Iterator
from functools import partial

from eviction.configuration.effective import Configuration
from eviction.engine.node import Node
from eviction.survey.space import SNAPSHOTTER
from eviction.types import Decision
from eviction.wording.log import Log
from reclaim.cri.containers_storage import CONTAINERS, IMAGES
from reclaim.workers import NoThread, Workers, in_time
from reclaim.xfs_hint import HintRefused, set_inherited_hint
from signals.mounts import mounts_of
from signals.quantity import format_bytes
from signals.types import SignalObservations


def usual_directories(configuration: Configuration, containerfs: str | None) -> list[str]:
    """Those in which each new pod and each new snapshot gets a directory of its own.

    `containerfs`: where the runtime says that writable layers are. None of docker's: it does not
    say where.
    """
    directories = [f"{configuration.root_directory}/pods", configuration.pod_logs_dir]
    path = containerfs or ""
    if os.path.basename(path).startswith(SNAPSHOTTER):
        directories.append(f"{path}/snapshots")
    elif path.endswith((IMAGES, CONTAINERS)):
        directories.append(path.rpartition("-")[0])
    return directories


def set_hints(
    directories: Iterable[str], size_bytes: int, *, dry_run: bool, skip_others: bool = False
) -> Iterator[tuple[bool, str]]:
    """Yields for each directory whether it went well, and a sentence.

    `size_bytes`: 0 removes the hint. `skip_others`: one on another filesystem than XFS is no
    failure. A directory that hangs is given up after 2 s.
    """
    was, now = ("is", "would be") if dry_run else ("was", "is now")
    for directory in directories:
        try:
            mounts = in_time(partial(mounts_of, [directory]))
            kind = mounts[directory].type if directory in mounts else "an unknown filesystem"
            if skip_others and kind != "xfs":
                yield True, f"{directory} is left alone: it is on {kind}, not on XFS"
                continue
            before = in_time(
                partial(set_inherited_hint, directory, size_bytes, kind, dry_run=dry_run)
            )
        except HintRefused as error:
            yield False, str(error)
        except OSError as error:
            yield False, f"{directory} cannot have the hint: {error.strerror}"
        else:
            change = f"{was} {_size(before)}, and {now} {_size(size_bytes)}"
            yield True, f"{directory}: the extent size hint {change} for what is made below it"


def _size(hint_bytes: int) -> str:
    return format_bytes(hint_bytes) if hint_bytes else "none"


class HintsAtStart:
    """Gives the usual directories the configured hint, once the runtime has said where its are."""

    def __init__(self, node: Node, log: Log):
        self._node = node
        self._log = log
        self._done = node.configuration.xfs_extent_size_hint_bytes is None

    def observed(self, _: SignalObservations, __: Decision) -> None:
        containerfs = self._node.summary.paths.containerfs
        if self._done or containerfs is None:
            return
        self._done = True
        try:  # not on this thread, as a directory may hang
            Workers("hints", 1).run(partial(self._set, containerfs))
        except NoThread as error:
            self._log.warning(f"xfsExtentSizeHint is not set: {error}")

    def _set(self, containerfs: str) -> None:
        configuration = self._node.configuration
        for well, sentence in set_hints(
            usual_directories(configuration, containerfs),
            configuration.xfs_extent_size_hint_bytes or 0,
            dry_run=self._node.dry_run,
            skip_others=True,
        ):
            (self._log.info if well else self._log.warning)(sentence)
