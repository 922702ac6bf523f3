"""The others, re-enacted on the same node: what answers a disk that fills, besides reclaimd.

Each is told the mark when a fill begins, and removes images over CRI with a client of the tests. None knows a guard: on
this node nothing is lost by that.

Sources: the kubelet's eviction manager looks every 10 s (`pkg/kubelet/eviction/eviction_manager.go`), at statistics of
images that containerd refreshes about every 10 s, and removes every unused image one after another
(`pkg/kubelet/images/image_gc_manager.go`, DeleteUnusedImages). `crictl rmi --prune` removes all of them at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
    """Somebody who removes images when the disk is below its mark."""

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """Waits in its own way until the mark is crossed, and removes. Returns early when `ended` is set."""


@dataclass
class Spin:
    """The physical floor: bare `statvfs` without a pause, lists at hand, one removal after another until the goal is
    reached. Nothing that has to look, ask or think can be faster on this runtime."""

    cri: CriClient
    removal_seconds: list[float] = field(default_factory=list)

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """At once."""
        while disk.available() >= disk.mark:
            if ended.is_set():
                return
        for image in unused:
            if disk.available() >= disk.goal:
                return
            began = time.monotonic()
            self.cri.remove_image(image)
            self.removal_seconds.append(time.monotonic() - began)


@dataclass
class Everything:
    """Everything unused, all calls at once, the moment at which the mark is crossed."""

    cri: CriClient

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """As soon as a spin sees the mark crossed."""
        while disk.available() >= disk.mark:
            if ended.is_set():
                return
        with ThreadPoolExecutor(min(len(unused), MOST_AT_ONCE)) as pool:
            list(pool.map(self.cri.remove_image, unused))


@dataclass
class KubeletsWay:
    """A look every 10 s at statistics that are up to 10 s old; then everything unused, one after another.

    `phase`: how far into both periods the fill begins, 0 to 1; `age` of the statistics at a look, as a share of theirs.
    """

    cri: CriClient
    phase: float
    age: float

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """At the first look whose statistics show it."""
        began = time.monotonic()
        seen: list[tuple[float, int]] = [(began, disk.available())]
        look_at = began + (1 - self.phase) * KUBELET_SECONDS
        refresh_at = look_at - self.age * KUBELET_SECONDS
        while not ended.is_set():
            now = time.monotonic()
            if now >= refresh_at:
                seen.append((now, disk.available()))
                refresh_at += KUBELET_SECONDS
            if now >= look_at:
                if seen[-1][1] < disk.mark:
                    break
                look_at += KUBELET_SECONDS
            ended.wait(0.01)
        for image in unused:
            if ended.is_set():
                return
            self.cri.remove_image(image)


@dataclass
class Pruner:
    """A timer starts it each minute, whatever the disk shows; it removes everything unused, all calls at once.

    `until`: seconds from the beginning of the fill to its next start.
    """

    cri: CriClient
    until: float

    def respond(self, disk: Disk, unused: Sequence[str], ended: threading.Event) -> None:
        """When its time has come."""
        if not ended.wait(self.until):
            with ThreadPoolExecutor(min(len(unused), MOST_AT_ONCE)) as pool:
                list(pool.map(self.cri.remove_image, unused))
