"""From the crossing to the first byte on a real containerd with as many dead containers and unused
images as in `first_byte`, and what of it is containerd's own: a caller that knows its image, and
removes it at the crossing.

The first byte is the filesystem's, by an independent observer: a removal that is answered has not
freed anything yet. A fill begins a second before the mark, and at the highest rate also so shortly
before it that the lists are not always read ahead.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.first_byte import (
    FILLED_BEFORE_SECONDS,
    FILLED_SHARE,
    IMAGE_BYTES,
    RATES,
    RELIEF_BYTES,
    WITHIN_SECONDS,
    Value,
    fill_until,
    relieved,
)
from tests.bench.measure import MIB, Observer, Row
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.oci import BASE, Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, came_true

DISK_BYTES = 4 * GIB
PODS = 10  # half of them are gone
COPIES = 5  # of each container
MADE_AT_ONCE = 4
IMPORTED_AT_ONCE = 20
ON_DISK = 2  # containerd keeps what it imported and what it unpacked
APP = "reclaimd.test/app:1"
UNUSED = "reclaimd.test/unused"
SHORTLY_BEFORE_SECONDS = 0.24  # from the start of a fill to the mark
SETTLED_SECONDS = 1.5


def containerd_first_byte(effort: Effort) -> list[Row]:
    """All crossings on one node, in turns. What was removed is brought back before each."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        running_node(Path(name), DISK_BYTES) as node,
    ):
        crowd = Crowd(node, effort.dead, effort.large.images)
        for _ in range(effort.first_bytes):
            for rate in RATES[-1:] if effort.short else RATES:
                crowd.complete()
                for what, unit, value in _bare_call(crowd, rate):
                    values[f"containerd, {rate} MiB/s, a bare call: {what}", unit].append(value)
                shortly = (SHORTLY_BEFORE_SECONDS,) if rate == RATES[-1] else ()
                for seconds in (FILLED_BEFORE_SECONDS, *shortly):
                    crowd.complete()
                    at = f"containerd, {effort.dead} dead containers, {rate} MiB/s for {seconds} s"
                    for what, unit, value in _crossed(crowd, Path(name), rate, seconds):
                        values[f"{at}: {what}", unit].append(value)
    return [Row(what, unit, found) for (what, unit), found in values.items()]


class Crowd:
    """So many dead containers and unused images on a node; half of the first containers are of pods
    that are gone, and all that are made anew."""

    def __init__(self, node: RealNode, dead: int, images: int, image_bytes: int = IMAGE_BYTES):
        self.node, self._dead, self._images, self._image_bytes = node, dead, images, image_bytes
        node.import_image(Image(APP, (BASE,)))
        self._numbers = count()
        for number in range(PODS):
            self._add_pod(dead // PODS, gone=number < PODS // 2)

    def complete(self) -> None:
        """Brings back what was removed."""
        containers, images = self._dead - len(self.containers()), self._images - len(self.unused())
        if containers > 0:
            self._add_pod(containers, gone=True)
        new = [next(self._numbers) for _ in range(images)]
        for begin in range(0, len(new), IMPORTED_AT_ONCE):
            some = new[begin : begin + IMPORTED_AT_ONCE]
            self.node.import_images(
                [
                    Image(f"{UNUSED}/{one}:1", (random_layer(one, self._image_bytes),))
                    for one in some
                ]
            )

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


def _bare_call(crowd: Crowd, rate: int) -> Iterator[Value]:
    """One image and one call at the crossing: what no program can be faster than."""
    node, image, before = crowd.node, crowd.unused()[0], int(FILLED_BEFORE_SECONDS * rate) * MIB
    time.sleep(SETTLED_SECONDS)

    def called(observer: Observer) -> bool:
        if observer.crossed_at is None:
            return False
        node.cri.remove_image(image)
        return came_true(lambda: observer.first_gain_at is not None, WITHIN_SECONDS)

    mark = node.filesystem.available_bytes() - before
    observer = fill_until(called, node.mountpoint, mark, rate, most_bytes=before + 2 * rate * MIB)
    shutil.rmtree(node.mountpoint / "fill")
    if observer.crossed_at is None or observer.first_gain_at is None:
        raise RuntimeError("the fill has not crossed the mark, or the call has freed nothing")
    yield "crossing to the first byte", "ms", (observer.first_gain_at - observer.crossed_at) * 1000


def _crossed(crowd: Crowd, directory: Path, rate: int, seconds: float) -> Iterator[Value]:
    node, headroom = crowd.node, int(seconds * rate) * MIB
    mark = node.filesystem.available_bytes() - headroom
    configuration = configure(
        directory,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": str(RELIEF_BYTES), "imagefs.available": "0"},
        parallelRemovals=2,
    )
    containers, images = len(crowd.containers()), len(crowd.unused())
    most = (headroom + images * ON_DISK * IMAGE_BYTES // FILLED_SHARE) // MIB * MIB
    with Daemon("--config", configuration) as daemon:
        # it has located and listed everything, and the youngest image is old enough
        time.sleep(SETTLED_SECONDS)
        observer = fill_until(relieved, node.mountpoint, mark, rate, most)
        came_true(lambda: bool(daemon.passes), WITHIN_SECONDS)
    shutil.rmtree(node.mountpoint / "fill")
    if (
        observer.crossed_at is None
        or observer.first_gain_at is None
        or observer.relieved_at is None
    ):
        raise RuntimeError("the fill has not crossed the mark, or nothing has relieved the node")
    yield "crossing to the first byte", "ms", (observer.first_gain_at - observer.crossed_at) * 1000
    yield (
        "crossing to the minimum reclaim",
        "ms",
        (observer.relieved_at - observer.crossed_at) * 1000,
    )
    yield "images lost", "images", images - len(crowd.unused())
    yield "containers lost", "containers", containers - len(crowd.containers())
