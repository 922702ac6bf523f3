"""One fill of a node, with the kubelet alone or with reclaimd beside it, and what became of the node.

The node has eleven pods (running, completed, with an init container, crashing) and nineteen images that nobody uses.
The fill ends below the kubelet's mark by as much as those images hold: whoever removes all of them in time has no
pressure. An independent sampler reads the filesystem; it knows nothing of either.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.background import Background
from tests.kubelet import manifests
from tests.kubelet.api import ApiError
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.kubelet import KubeletSettings
from tests.kubelet.node import GIB, KubeletNode, kubelet_node
from tests.real_node.fill import Fill, fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import Daemon, write_configuration

MIB = 1 << 20
SIZE_BYTES = 6 * GIB
UNUSED, UNUSED_BYTES = 19, 40 * MIB
HEADROOM_BYTES = 200 * MIB  # above reclaimd's mark when the fill begins
SAMPLE_SECONDS = 0.005
WATCH_SECONDS = 0.25
UNUSED_IMAGES = [
    Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(number, UNUSED_BYTES))) for number in range(UNUSED)
]
USED_IMAGES = [
    Image(f"reclaimd.test/used:{number}", (BASE, random_layer(1000 + number, 2 * MIB))) for number in range(11)
]
SETTLE_SECONDS = 40.0  # after the fill: the kubelet evicts one pod each 10 s as long as it has to
UNTOUCHED_SECONDS = 12.0  # where its mark was not passed: it looks once more
NODEFS_PERCENT, IMAGEFS_PERCENT = 10, 15  # the kubelet's defaults
MARGIN_PERCENT = 5  # reclaimd's default


class Side(StrEnum):
    """Who answers the fill."""

    KUBELET = "kubelet"
    RECLAIMD = "reclaimd"
    """beside the kubelet"""


@dataclass(frozen=True)
class DuelRun:
    """What one fill did. Bytes; seconds. `first_freed_seconds`: from the crossing of the own mark (the kubelet's, or
    that of reclaimd) to the first freed byte, None if nothing was freed."""

    rate_mib: int
    side: Side
    pressure: bool
    evicted: tuple[str, ...]
    first_freed_seconds: float | None
    lowest_bytes: int
    mark_bytes: int
    images_left: int
    restarted: tuple[str, ...]


class Sampler(Background):
    """Reads available bytes and what the fill has written, each 5 ms, until the `with` block ends."""

    def __init__(self, disk: Path, fill: Fill) -> None:
        super().__init__("sampler")
        self.samples: list[tuple[float, int, int]] = []
        self._disk = disk
        self._written_to = fill.directory / "fill.bin"

    @property
    def lowest(self) -> int:
        """The least that was available."""
        return min(available for _, available, _ in self.samples)

    def first_freed(self, mark_bytes: int) -> float | None:
        """Seconds from the first reading below the mark to the first one that cannot be without 1 MiB having come back;
        None if there is none."""
        crossed = next((at for at, available, _ in self.samples if available < mark_bytes), None)
        if crossed is None:
            return None
        most = max(available + written for at, available, written in self.samples if at <= crossed)
        freed = (at for at, available, written in self.samples if at > crossed and available + written >= most + MIB)
        return next((at - crossed for at in freed), None)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with contextlib.suppress(FileNotFoundError):
                written = self._written_to.stat().st_blocks * 512
                figures = os.statvfs(self._disk)
                self.samples.append((time.monotonic(), figures.f_bavail * figures.f_frsize, written))


class PressureWatch(Background):
    """Asks the API server whether the node has DiskPressure, until the `with` block ends. `seen`: it once had."""

    def __init__(self, node: KubeletNode) -> None:
        super().__init__("pressure watch")
        self.seen = False
        self._node = node

    def _run(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            with contextlib.suppress(ApiError, OSError):
                self.seen = self.seen or self._node.conditions()["DiskPressure"]


def crowd(node: KubeletNode) -> list[str]:
    """Makes the pods of a duel, and waits until each pod is what it is to be. The names of what runs."""
    names = [image.reference for image in USED_IMAGES]
    runs = [f"serves-{number}" for number in range(5)]
    for number, name in enumerate(runs):
        node.create(manifests.running(name, names[number]))
    for number in range(3):
        node.create(manifests.completed(f"done-{number}", names[5 + number]))
    for number in range(2):
        node.create(manifests.with_init(f"prepared-{number}", names[8 + number], names[number]))
    node.create(manifests.crashing("fails-0", names[10]))
    runs += ["prepared-0", "prepared-1"]
    for name in runs:
        node.wait_for_phase(name, "Running")
    for number in range(3):
        node.wait_for_phase(f"done-{number}", "Succeeded")
    return runs


def duel(
    directory: Path,
    plane: ControlPlane,
    rate_mib: int,
    *,
    side: Side = Side.RECLAIMD,
    fstype: str = "ext4",
    observe: Callable[[KubeletNode], AbstractContextManager[object]] = lambda _: nullcontext(),
) -> DuelRun:
    """One fill of one file at a rate on a new node. `observe`: what goes on from right before the fill to the end."""
    settings = KubeletSettings({"nodefs.available": f"{NODEFS_PERCENT}%", "imagefs.available": f"{IMAGEFS_PERCENT}%"})
    with kubelet_node(directory, plane, settings, SIZE_BYTES, fstype, [*UNUSED_IMAGES, *USED_IMAGES]) as node:
        runs = crowd(node)
        figures = os.statvfs(node.disk)
        capacity = figures.f_blocks * figures.f_frsize
        mark, own = (capacity * percent // 100 for percent in (IMAGEFS_PERCENT, IMAGEFS_PERCENT + MARGIN_PERCENT))
        fill_bytes(node.disk / "ballast", own + HEADROOM_BYTES, fast=True).wait(60.0)
        most = HEADROOM_BYTES + own - (mark - UNUSED * UNUSED_BYTES)
        with _responder(node, directory, side), observe(node), PressureWatch(node) as pressure:
            fill = fill_bytes(node.disk / "fill", 0, rate_mib * MIB, most_bytes=most)
            try:
                with Sampler(node.disk, fill) as sampler:
                    fill.wait(600.0)
                    time.sleep(UNTOUCHED_SECONDS)
                    if sampler.lowest < mark:
                        time.sleep(SETTLE_SECONDS - UNTOUCHED_SECONDS)
            finally:
                fill.stop()
        pods = node.api.pods()
        return DuelRun(
            rate_mib,
            side,
            pressure.seen,
            tuple(sorted(name for name, pod in pods.items() if pod["status"].get("reason") == "Evicted")),
            sampler.first_freed(mark if side == Side.KUBELET else own),
            sampler.lowest,
            mark,
            len(node.runtime.cri.list_images()),
            tuple(name for name in runs if restarts(pods[name])),
        )


def restarts(pod: dict[str, object]) -> int:
    """How often containers of a pod have been started again."""
    status = pod["status"]
    assert isinstance(status, dict)
    kinds = ("initContainerStatuses", "containerStatuses")
    return sum(int(each["restartCount"]) for kind in kinds for each in status.get(kind, ()))


@contextlib.contextmanager
def _responder(node: KubeletNode, directory: Path, side: Side) -> Iterator[None]:
    """Who stands beside the kubelet: nobody, or reclaimd as it is by default."""
    if side == Side.KUBELET:
        yield
        return
    configuration = write_configuration(directory / "reclaimd.yaml", **node.reclaimd_fields())
    with Daemon("--config", str(configuration)) as daemon:
        time.sleep(2.0)  # it has asked the runtime where its images are, and the kubelet whether it is healthy
        yield
    (directory / "reclaimd.log").write_text("\n".join(json.dumps(event) for event in daemon.events))
