"""Other responders to a disk that fills, imitated on the same node for comparison with reclaimd.

Each is given the mark when a fill begins, and removes images over CRI with a client of the tests.
None has guards; on this node nothing is lost by that.

Sources: the kubelet's eviction manager synchronizes every 10 s
(`pkg/kubelet/eviction/eviction_manager.go`), on statistics of images that containerd
refreshes about every 10 s, and removes every unused image one after another
(`pkg/kubelet/images/image_gc_manager.go`, DeleteUnusedImages). `crictl rmi --prune`
removes all of them at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from tests.real_node.cri_client import CriClient

KUBELET_SECONDS = 10.0
MOST_AT_ONCE = 512


@dataclass
class Disk:
    """The filesystem that fills: its mark and, above it, what counts as relieved; bytes."""

    path: str
    mark: int
    goal: int

    def available(self) -> int:
        """Bytes available, now."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


class Responder(Protocol):
    """Removes images when the disk is below its mark."""

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """Waits in its own way until the mark is crossed, and removes.

        Returns early when `ended` is set.
        """


def _crosses(disk: Disk, ended: threading.Event) -> bool:
    """Polls without a pause until the mark is crossed; False if it ended before."""
    while disk.available() >= disk.mark:
        if ended.is_set():
            return False
    return True


def _remove_at_once(cri: CriClient, images: Sequence[str]) -> None:
    with ThreadPoolExecutor(min(len(images), MOST_AT_ONCE)) as pool:
        list(pool.map(cri.remove_image, images))


@dataclass
class Spin:
    """The physical floor: bare `statvfs` without a pause, lists at hand, one removal after
    another until the goal is reached. Nothing that has to poll, list or decide can be
    faster on this runtime."""

    cri: CriClient

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """Removes one after another, until the goal, as soon as the mark is crossed."""
        for image in unused if _crosses(disk, ended) else ():
            if disk.available() >= disk.goal:
                return
            self.cri.remove_image(image)


@dataclass
class Everything:
    """Removes everything unused, all calls at once, when the mark is crossed."""

    cri: CriClient

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """As soon as the mark is crossed."""
        if _crosses(disk, ended):
            _remove_at_once(self.cri, unused)


@dataclass
class KubeletsWay:
    """An observation every 10 s of statistics that are up to 10 s old; then everything
    unused, one after another.

    `phase`: how far into the period the fill begins, 0 to 1; `age` of the statistics at an
    observation, as a share of their period.
    """

    cri: CriClient
    phase: float
    age: float

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """Removes after the first observation whose statistics are below the mark."""
        began = time.monotonic()
        statistics: list[tuple[float, int]] = [(began, disk.available())]
        observe_at = began + (1 - self.phase) * KUBELET_SECONDS
        refresh_at = observe_at - self.age * KUBELET_SECONDS
        while not ended.is_set():
            now = time.monotonic()
            if now >= refresh_at:
                statistics.append((now, disk.available()))
                refresh_at += KUBELET_SECONDS
            if now >= observe_at:
                if statistics[-1][1] < disk.mark:
                    break
                observe_at += KUBELET_SECONDS
            ended.wait(0.01)
        for image in unused:
            if ended.is_set():
                return
            self.cri.remove_image(image)


@dataclass
class Pruner:
    """A timer starts it each minute, whatever the disk shows; it removes everything
    unused, all calls at once.

    `until`: seconds from the beginning of the fill to its next start.
    """

    cri: CriClient
    until: float

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """Removes after `until` seconds."""
        if not ended.wait(self.until):
            _remove_at_once(self.cri, unused)
