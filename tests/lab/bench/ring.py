"""One fill of a crowded node on which reclaimd runs as it is by default,
and what became of the node.

The marks are the kubelet's defaults and reclaimd's, which are 5 % of the disk above them. A fill
begins above our mark, and without relief ends a good deal below the kubelet's. A sampler of its own
reads the filesystem, as the kubelet sees it; it knows nothing of reclaimd.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path

from reclaim.xfs_hint import set_inherited_hint
from tests.background import Background
from tests.lab.bench.fills import other_writers
from tests.lab.bench.measure import MIB, Effort
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.crio import crio_program
from tests.real_node.fill import Fill, fill_bytes
from tests.real_node.loopfs import available_bytes, capacity_bytes, loop_devices_of, run_tool
from tests.real_node.oci import BASE, Image, ImageTar, random_layer, write_image
from tests.reclaimd_process import Daemon, came_true, write_configuration

KUBELETS_PERCENT = {"nodefs.available": 10, "imagefs.available": 15}  # its defaults
KUBELETS_MARK, OUR_MARK, GOAL = 15, 20, 22  # percent: our margin is 5, and the minimum reclaim 2
SAMPLE_SECONDS = 0.003
SETTLED_SECONDS = 1.5  # it has located and listed everything, and the youngest image is old enough
QUIET_SECONDS = 1.0
WITHIN_SECONDS = 90.0
PODS = 10  # half of them are gone
COPIES = 5  # of each container
MADE_AT_ONCE = 4
IMPORTED_AT_ONCE = 3
ON_DISK = 2  # containerd keeps what it imported and what it unpacked
APP = "reclaimd.test/app:1"
UNUSED = "reclaimd.test/unused"
THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
"""cgroup v1: how many bytes a second a device writes at most, by its number; 0: no bound."""
WITH_HINT = "xfs-hint"
"""XFS whose files are allocated in units of 1 MiB (`reclaimd xfs-hint`)."""


@dataclass(frozen=True)
class Scene:
    """A disk, what can be reclaimed on it, and a fill. `image_bytes`: that each image holds there.
    `before_bytes`: from its beginning to our mark; 0: what it writes in a second. `below_bytes`:
    how far below our mark it ends without relief. `write_mib`: what the disk writes a second at
    most; 0: as much as it can."""

    disk_bytes: int
    images: int
    image_bytes: int
    dead: int
    before_bytes: int
    below_bytes: int
    write_mib: int = 0


def small(effort: Effort) -> Scene:
    """6 GiB, which one burst fills; half as far again below our mark as the kubelet's is."""
    images, image_bytes = effort.images, effort.image_bytes * ON_DISK
    below = min(450 * MIB, images * image_bytes // 4)
    return Scene(6 * GIB, images, image_bytes, effort.dead, 0, below)


def large(effort: Effort) -> Scene:
    """40 GiB, of which 5 GiB can be reclaimed; the fill's file has 3 GiB at our mark, and 5.2 GiB
    at its end, which is 252 MiB below the kubelet's. On XFS a step of 4 GiB lies between."""
    return Scene(40 * GIB, 40, 128 * MIB, min(effort.dead, 50), 3 * GIB, 2300 * MIB)


def slow(effort: Effort) -> Scene:
    """The same on a disk that writes 200 MiB a second, as many of a cloud do: a faster fill waits
    in the page cache."""
    return replace(large(effort), write_mib=200)


SCENES = {"small": small, "large": large, "slow": slow}


StartResponder = Callable[[str], AbstractContextManager[Daemon | None]]
"""Starts who relieves the node, if anybody does, with this configuration file of reclaimd's."""


@dataclass(frozen=True)
class Fought:
    """What one fill did. `first_byte_ms`: from our mark to the first freed byte; None if
    nothing was freed. `lowest_mib`: above the kubelet's mark, negative below it.
    `pressure_seconds`: spent below it, at any reading. `beyond_mib`: the most that was
    available after our mark, also with the fill's files closed, beyond what was to be reached;
    0 if no pass went as far, as the fill went on. `others_mib_s`: what each of the other writers
    has written and got to the disk, a second."""

    first_byte_ms: float | None
    lowest_mib: float
    pressure_seconds: float
    relieved: bool
    images_lost: int
    images_left: int
    containers_lost: int
    containers_left: int
    beyond_mib: float
    passes: int
    others_mib_s: float | None


class Sampler(Background):
    """Reads what a fill has written and what is available, until the `with` block ends."""

    def __init__(self, disk: Path, filling: Fill) -> None:
        super().__init__("sampler")
        self.samples: list[tuple[float, int, int]] = []
        self._disk = disk
        self._directory = filling.directory

    def below(self, mark: int) -> float:
        """Seconds below the mark."""
        return sum(
            after[0] - before[0] for before, after in pairwise(self.samples) if before[1] < mark
        )

    @property
    def lowest(self) -> int:
        """The least that was available."""
        return min(available for _, available, _ in self.samples)

    def crossed(self, mark: int) -> float | None:
        """When the first reading was below the mark, by `time.monotonic()`; None if none was."""
        return next((at for at, available, _ in self.samples if available < mark), None)

    def most_after(self, mark: int) -> int:
        """The most that was available after the mark was passed."""
        crossed = self.crossed(mark) or 0.0
        return max(available for at, available, _ in self.samples if at >= crossed)

    def first_freed(self, mark: int) -> float | None:
        """Seconds from the mark to two readings in succession that cannot be
        without 1 MiB having come back.
        """
        if (crossed := self.crossed(mark)) is None:
            return None
        most = max(available + written for at, available, written in self.samples if at <= crossed)
        after = [
            (at, available + written >= most + MIB)
            for at, available, written in self.samples
            if at > crossed
        ]
        return next(
            (at - crossed for (at, freed), (_, still) in pairwise(after) if freed and still), None
        )

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with contextlib.suppress(FileNotFoundError), os.scandir(self._directory) as files:
                # with what XFS allocated ahead
                written = sum(file.stat().st_blocks for file in files) * 512
                available = available_bytes(self._disk)
                self.samples.append((time.monotonic(), available, written))


class Crowd:
    """So many dead containers and unused images on a node; half of the first containers are of pods
    that are gone, and all that are made anew. `directory`: for the tars of the images, which come
    back as they were."""

    def __init__(
        self, node: RealNode, dead: int, images: int, image_bytes: int, directory: Path
    ) -> None:
        self.node, self._dead = node, dead
        self._tars: dict[str, ImageTar] = {}
        self._images = {
            f"{UNUSED}/{number}:1": random_layer(number, image_bytes) for number in range(images)
        }
        self._directory = directory
        self._numbers = count()
        directory.mkdir()
        node.import_image(Image(APP, (BASE,)))
        for number in range(PODS):
            self._add_pod(dead // PODS, gone=number < PODS // 2)

    def complete(self) -> None:
        """Brings back what was removed."""
        if (containers := self._dead - len(self.containers())) > 0:
            self._add_pod(containers, gone=True)
        missing = self._images.keys() - self.unused()
        with ThreadPoolExecutor(IMPORTED_AT_ONCE) as pool:
            list(pool.map(self._bring_back, sorted(missing)))

    def _bring_back(self, reference: str) -> None:
        if reference not in self._tars:
            image = Image(reference, (self._images[reference],))
            self._tars[reference] = write_image(image, self._directory)
        self.node.containerd.import_image(self._tars[reference], keep=True)

    def containers(self) -> list[str]:
        """The dead containers."""
        return [container.id for container in self.node.cri.list_containers()]

    def unused(self) -> list[str]:
        """The tags of the images that nothing uses."""
        return [
            tag
            for image in self.node.cri.list_images()
            for tag in image.repo_tags
            if tag.startswith(UNUSED)
        ]

    def _add_pod(self, containers: int, *, gone: bool) -> None:
        pod = self.node.kubelet.pod(f"pod-{next(self._numbers)}")

        def one(number: int) -> None:
            copy, attempt = divmod(number, COPIES)
            name = f"container-{copy}"
            self.node.kubelet.run_to_end(pod, name, APP, attempt=attempt)

        with ThreadPoolExecutor(MADE_AT_ONCE) as pool:
            list(pool.map(one, range(containers)))
        if gone:
            self.node.kubelet.end_pod(pod)


class Ring:
    """A crowded node that is filled again and again, and restored in between."""

    def __init__(self, node: RealNode, crowd: Crowd, scene: Scene, directory: Path) -> None:
        self.node, self.crowd, self._scene = node, crowd, scene
        self._directory = directory
        self._capacity = capacity_bytes(node.mountpoint)
        self.mark = self._capacity * OUR_MARK // 100

    def fight(self, rate_mib: int, start: StartResponder, writers: int) -> Fought:
        """One fill at so many MiB/s, beside so many other `writers`."""
        node, crowd, disk = self.node, self.crowd, self.node.mountpoint
        crowd.complete()
        ours = self.mark
        kubelets, goal = (self._capacity * percent // 100 for percent in (KUBELETS_MARK, GOAL))
        headroom = self._scene.before_bytes or rate_mib * MIB
        most_mib = self._scene.write_mib
        fill_bytes(disk / "ballast", ours + headroom, fast=True).wait(60.0)
        run_tool("sync", "-f", disk)
        images, containers = len(crowd.unused()), len(crowd.containers())
        configuration = self._configuration()
        try:
            with (
                _throttled(node, most_mib) if most_mib else nullcontext(),
                other_writers(disk / "others", writers) as others,
                start(configuration) as who,
            ):
                time.sleep(SETTLED_SECONDS)
                most = headroom + self._scene.below_bytes
                filling = fill_bytes(disk / "fill", 0, rate_mib * MIB, most_bytes=most)
                try:
                    with Sampler(disk, filling) as sampler:
                        filling.process.wait(WITHIN_SECONDS)
                        if node.filesystem.fstype == "btrfs":
                            run_tool("sync", "-f", disk)  # statvfs shows only then what was written
                        relieved = who is not None and came_true(
                            lambda: node.filesystem.available_bytes() >= ours, WITHIN_SECONDS
                        )
                        passes = _passes_until_quiet(who)
                finally:
                    filling.stop()
                others_mib_s = others()
            most = max(node.filesystem.available_bytes(), sampler.most_after(ours))
        finally:
            for name in ("fill", "ballast", "others"):
                shutil.rmtree(disk / name, ignore_errors=True)
        first, left, dead = sampler.first_freed(ours), len(crowd.unused()), len(crowd.containers())
        return Fought(
            first_byte_ms=None if first is None else round(first * 1000, 1),
            lowest_mib=round((sampler.lowest - kubelets) / MIB, 1),
            pressure_seconds=round(sampler.below(kubelets), 3),
            relieved=relieved,
            images_lost=images - left,
            images_left=left,
            containers_lost=containers - dead,
            containers_left=dead,
            beyond_mib=round(max(most - goal, 0) / MIB, 1),
            passes=passes,
            others_mib_s=others_mib_s,
        )

    def _configuration(self) -> str:
        path, node = self._directory, self.node
        kubelet = path / "kubelet.yaml"
        hard = {signal: f"{percent}%" for signal, percent in KUBELETS_PERCENT.items()}
        head = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
        kubelet.write_text(json.dumps({**head, "evictionHard": hard}))
        fields = {
            "kubeletConfig": str(kubelet),
            "kubeletHealthzEndpoint": "",
            "rootDirectory": str(node.kubelet.root_dir),
            "podLogsDir": str(node.kubelet.pod_logs_dir),
            "containerRuntimeEndpoint": f"unix://{node.containerd.socket}",
            "imageMinimumGCAge": "1s",
            "holdOffAfterStart": "0s",
        }
        return str(write_configuration(path / "reclaimd.yaml", **fields))


@contextmanager
def _throttled(node: RealNode, mib: int) -> Iterator[None]:
    """The node's disk writes at most so many MiB a second."""
    (device,) = loop_devices_of(node.filesystem.image)
    number = os.stat(device).st_rdev
    device_id = f"{os.major(number)}:{os.minor(number)}"
    THROTTLE.write_text(f"{device_id} {mib * MIB}\n")
    try:
        yield
    finally:
        THROTTLE.write_text(f"{device_id} 0\n")


def _passes_until_quiet(who: Daemon | None) -> int:
    """How many have ended, once none has for a second."""
    since, seen = time.monotonic(), 0
    while time.monotonic() - since < QUIET_SECONDS:
        if who is not None and len(who.passes) != seen:
            since, seen = time.monotonic(), len(who.passes)
        time.sleep(0.05)
    return seen


@contextmanager
def ring(filesystem: str, scene: Scene, runtime: str = "containerd") -> Iterator[Ring]:
    """A new node on this type of filesystem, or on XFS `WITH_HINT`, with containerd or the CRI-O
    that `CRIO` names; all of it is gone on exit."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        fstype = "xfs" if filesystem == WITH_HINT else filesystem
        crio = crio_program() if runtime == "crio" else None
        node = stack.enter_context(
            running_node(directory / "node", scene.disk_bytes, fstype=fstype, crio=crio)
        )
        for device in loop_devices_of(node.filesystem.image):
            # as a disk of its own: what has passed the cache of its filesystem is on it, and a
            # flush does not wait for the cache of this machine's disk
            run_tool("losetup", "--direct-io=on", device)
        if filesystem == WITH_HINT:
            set_inherited_hint(str(node.mountpoint), MIB, "xfs")
        image_bytes = scene.image_bytes // (1 if crio else ON_DISK)
        crowd = Crowd(node, scene.dead, scene.images, image_bytes, directory / "images")
        yield Ring(node, crowd, scene, directory)
