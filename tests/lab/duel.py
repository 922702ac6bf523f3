"""One fill of a node, with the kubelet alone or with somebody beside it,
and what became of the node.

The node has eleven pods (running, completed, with an init container, crashing) and nineteen
images that nobody uses. The fill ends below the kubelet's mark by as much as those images hold:
whoever removes all of them in time has no pressure. An independent sampler reads the filesystem;
it knows nothing of who responds.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from pathlib import Path

from tests.background import Background
from tests.kubelet import manifests
from tests.kubelet.api import ApiError
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.kubelet import KubeletSettings
from tests.kubelet.node import DEFAULTS, GIB, MIB, KubeletNode, kubelet_node, restarts, unused
from tests.lab.bench.ring import Sampler
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import available_bytes, capacity_bytes
from tests.real_node.oci import BASE, Image, ImageTar, numbered
from tests.reclaimd_process import Daemon

SIZE_BYTES = 6 * GIB
UNUSED, UNUSED_BYTES = 19, 40 * MIB
HEADROOM_BYTES = 200 * MIB  # above reclaimd's mark when the fill begins
WATCH_SECONDS = 0.25
USED_IMAGES = numbered("reclaimd.test/used:{}", 11, 2 * MIB, BASE, first=1000)
IMAGES = [*unused(UNUSED, UNUSED_BYTES), *USED_IMAGES]
UNTOUCHED_SECONDS = 12.0  # after the fill: the kubelet looks once more
QUIET_SECONDS = 22.0  # above its mark: it looks each 10 s, at figures that are up to 10 s old
# after the fill, at the latest: it evicts one pod each 10 s as long as it has to
SETTLE_SECONDS = 40.0
IMAGEFS_PERCENT = 15  # of `DEFAULTS`
MARGIN_PERCENT = 5  # reclaimd's default
# written back after 30 s, and accounted for with the next commit, up to 30 s later
ACCOUNTED_SECONDS = {"btrfs": 75.0}
METADATA_BYTES = {"btrfs": 32 * MIB}  # that grow with what is written and removed
KUBELET_LINE = re.compile(
    r"[IWE](\d{4} [\d:.]+) +\d+ (?:eviction_manager|image_gc_manager)\.go:\d+\] (.*)"
)
LINE_CHARACTERS = 200  # of a line of a log that is kept
# of what a file keeps: the lowest reading of each, if it differs from the last one kept
SAMPLE_SECONDS = 0.1


class Responder(StrEnum):
    """Who answers the fill."""

    NOBODY = "nobody"
    """the kubelet alone"""
    RECLAIMD = "reclaimd"
    """beside the kubelet, as it is by default"""


Sample = tuple[float, int, int]
"""Seconds after the fill began; what was available and what the fill had written, in bytes."""


@dataclass(frozen=True)
class Event:
    """Something that happened `at` seconds after the fill began. `whose`: `fill`, `node`,
    `kubelet`, or the name of the responder."""

    at: float
    whose: str
    what: str


@dataclass(frozen=True)
class DuelRun:
    """What one fill did. Bytes; seconds. The own mark is the kubelet's, or that of reclaimd."""

    rate_mib: int
    responder: Responder
    runtime: str
    """its name and version, as it says over CRI"""
    capacity_bytes: int
    mark_bytes: int
    own_mark_bytes: int
    fill_bytes: int
    pressure: bool
    evicted: tuple[str, ...]
    first_freed_seconds: float | None
    """from when the own mark was crossed to the first freed byte; None if nothing was freed, or the
    filesystem does not tell when
    """
    lowest_bytes: int
    images_before: int
    images_left: int
    restarted: tuple[str, ...]
    samples: tuple[Sample, ...]
    events: tuple[Event, ...]


class PressureWatch(Background):
    """Asks the API server whether the node has DiskPressure, until the `with` block ends.
    `changes`: when that became true or false, by `time.monotonic()`."""

    def __init__(self, node: KubeletNode) -> None:
        super().__init__("pressure watch")
        self.changes: list[tuple[float, bool]] = []
        self._node = node

    def _run(self) -> None:
        last = False
        while not self._over.wait(WATCH_SECONDS):
            with contextlib.suppress(ApiError, OSError):
                if (has := self._node.conditions()["DiskPressure"]) != last:
                    self.changes.append((time.monotonic(), has))
                    last = has


def crowd(node: KubeletNode) -> list[str]:
    """Makes the pods of a duel, and waits until each pod is what it is to be.

    The names of what runs.
    """
    names = [image.reference for image in USED_IMAGES]
    runs = [manifests.running(f"serves-{at}", names[at]) for at in range(5)]
    runs += [manifests.with_init(f"prepared-{at}", names[8 + at], names[at]) for at in range(2)]
    done = [manifests.completed(f"done-{at}", names[5 + at]) for at in range(3)]
    node.create(manifests.crashing("fails-0", names[10]))
    node.create_all("Running", *runs)
    node.create_all("Succeeded", *done)
    return [pod["metadata"]["name"] for pod in runs]


def duel(
    directory: Path,
    plane: ControlPlane,
    rate_mib: int,
    *,
    responder: Responder = Responder.RECLAIMD,
    fstype: str = "ext4",
    images: Sequence[Image | ImageTar] = IMAGES,
) -> DuelRun:
    """One fill of one file at a rate on a new node. `images`: `IMAGES`, or their tar."""
    settings = KubeletSettings(DEFAULTS)
    with kubelet_node(directory, plane, settings, SIZE_BYTES, fstype, images) as node:
        runs = crowd(node)
        capacity = capacity_bytes(node.disk)
        mark, above = (
            capacity * percent // 100
            for percent in (IMAGEFS_PERCENT, IMAGEFS_PERCENT + MARGIN_PERCENT)
        )
        _leave(node.disk, above + HEADROOM_BYTES)
        most = (
            HEADROOM_BYTES + above - (mark - UNUSED * UNUSED_BYTES) - METADATA_BYTES.get(fstype, 0)
        )
        images_before = len(node.runtime.cri.list_images())
        said: list[Event] = []
        with _beside(node, responder, said), PressureWatch(node) as pressure:
            began, wall = time.monotonic(), time.time()
            fill = fill_bytes(node.disk / "fill", 0, rate_mib * MIB, most_bytes=most)
            try:
                with Sampler(node.disk, fill) as sampler:
                    fill.wait(600.0)
                    ended = time.monotonic()
                    _settle(sampler, mark, ended + ACCOUNTED_SECONDS.get(fstype, 0.0))
            finally:
                fill.stop()
        own = above if responder == Responder.RECLAIMD else mark
        pods = node.api.pods()
        version = node.runtime.cri.version()
        said += [Event(began, "fill", "begins"), Event(ended, "fill", "ends")]
        said += [
            Event(at, "node", "DiskPressure" if has else "no DiskPressure")
            for at, has in pressure.changes
        ]
        said += _kubelet_says(node, wall, began)
        disk = str(node.disk)
        shown = (
            Event(round(each.at - began, 3), each.whose, each.what.replace(disk, "/disk"))
            for each in said
        )
        events = sorted(shown, key=attrgetter("at"))
        return DuelRun(
            rate_mib=rate_mib,
            responder=responder,
            runtime=f"{version.runtime_name} {version.runtime_version.lstrip('v')}",
            capacity_bytes=capacity,
            mark_bytes=mark,
            own_mark_bytes=own,
            fill_bytes=most,
            pressure=any(has for _, has in pressure.changes),
            evicted=tuple(node.evicted()),
            first_freed_seconds=None if fstype in ACCOUNTED_SECONDS else sampler.first_freed(own),
            lowest_bytes=sampler.lowest,
            images_before=images_before,
            images_left=len(node.runtime.cri.list_images()),
            restarted=tuple(name for name in runs if restarts(pods[name])),
            samples=tuple((at - began, left, written) for at, left, written in sampler.samples),
            events=tuple(each for each in events if each.at >= 0),
        )


def _leave(disk: Path, bytes_available: int) -> None:
    """Allocates so much that this is left, to a MiB. What has been written so far is on the disk
    then, so that the fill does not wait for it. TimeoutError."""
    size, deadline = 0, time.monotonic() + 60.0
    with open(disk / "ballast", "wb") as file:
        while True:
            os.sync()  # btrfs accounts for what was allocated when it commits
            more = available_bytes(disk) - bytes_available
            if abs(more) <= MIB:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{disk}: {more} bytes more than {bytes_available} are available after a minute"
                )
            if more > 0:
                os.posix_fallocate(file.fileno(), size, more)
            else:
                os.truncate(file.fileno(), size + more)
            size += more


def _settle(sampler: Sampler, mark_bytes: int, ended: float) -> None:
    """Waits until nobody has a reason to act any more. `ended`: when all that was written is
    accounted for."""
    while (since := time.monotonic() - ended) < SETTLE_SECONDS:
        below = next((at for at, left, _ in reversed(sampler.samples) if left < mark_bytes), None)
        is_quiet = below is None or time.monotonic() - below >= QUIET_SECONDS
        if since >= UNTOUCHED_SECONDS and is_quiet:
            return
        time.sleep(0.1)


@contextlib.contextmanager
def _beside(node: KubeletNode, responder: Responder, said: list[Event]) -> Iterator[None]:
    """Who stands beside the kubelet; at the end `said` has what the responder did."""
    if responder == Responder.NOBODY:
        yield
        return
    with Daemon("--config", node.configured()) as daemon:
        # it has asked the runtime where its images are, and the
        # kubelet whether it is healthy
        time.sleep(2.0)
        yield
    wall = time.time() - time.monotonic()
    for event in daemon.events:
        if "time" in event:
            at = datetime.fromisoformat(event["time"]).timestamp() - wall
            said.append(Event(at, "reclaimd", event["message"][:LINE_CHARACTERS]))


def _kubelet_says(node: KubeletNode, wall: float, began: float) -> Iterator[Event]:
    """What the kubelet has logged of evictions and image garbage collection
    since the fill began.
    """
    year = time.localtime(wall).tm_year
    for line in node.kubelet.log_text().splitlines():
        if found := KUBELET_LINE.search(line):
            at = datetime.strptime(f"{year}{found[1]}", "%Y%m%d %H:%M:%S.%f").timestamp()
            yield Event(began + at - wall, "kubelet", found[2][:LINE_CHARACTERS])
