"""From the crossing to the first byte on a real containerd with many dead containers and unused
images, and what of it is containerd's own: a caller that knows its image, and removes it at the
crossing.

The first byte is the filesystem's, by an independent observer: a removal that is answered has not
freed anything yet. A fill begins a second before the mark.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.measure import MIB, SAMPLE_SECONDS, Observer, Row
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, came_true

RATES = (100, 400)
IMAGE_BYTES = 2 * MIB
FILLED_SHARE = 4  # so far below the mark the fill would get without relief, as a part of the images
RELIEF_BYTES = 16 * MIB
WITHIN_SECONDS = 60.0
DISK_BYTES = 4 * GIB
PODS = 10  # half of them are gone
COPIES = 5  # of each container
MADE_AT_ONCE = 4
IMPORTED_AT_ONCE = 20
ON_DISK = 2  # containerd keeps what it imported and what it unpacked
APP = "reclaimd.test/app:1"
UNUSED = "reclaimd.test/unused"
SETTLED_SECONDS = 1.5


def containerd_first_byte(effort: Effort) -> list[Row]:
    """All crossings on one node, in turns. What was removed is brought back before each."""
    rows: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        running_node(Path(name), DISK_BYTES) as node,
    ):
        crowd = Crowd(node, effort.dead, effort.large.images)
        ways: dict[str, Callable[[Crowd, int], float]] = {
            "a bare call": _bare_call,
            f"{effort.dead} dead containers": partial(_by_daemon, directory=Path(name)),
        }
        for _ in range(effort.first_bytes):
            for rate in RATES[-1:] if effort.short else RATES:
                for who, first_byte in ways.items():
                    crowd.complete()
                    what = f"containerd, {rate} MiB/s, {who}: from the mark to the first byte"
                    rows.setdefault(what, []).append(first_byte(crowd, rate))
    return [Row(what, "ms", found) for what, found in rows.items()]


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


def _bare_call(crowd: Crowd, rate: int) -> float:
    """One image and one call at the crossing: what no program can be faster than."""
    node, image, before = crowd.node, crowd.unused()[0], rate * MIB
    time.sleep(SETTLED_SECONDS)

    def called(observer: Observer) -> bool:
        if observer.crossed_at is None:
            return False
        node.cri.remove_image(image)
        return came_true(lambda: observer.first_gain_at is not None, WITHIN_SECONDS)

    mark = node.filesystem.available_bytes() - before
    return _first_byte(node, mark, rate, before + 2 * rate * MIB, called)


def _by_daemon(crowd: Crowd, rate: int, directory: Path) -> float:
    """A running daemon, until the minimum reclaim is there."""
    node, before = crowd.node, rate * MIB
    mark = node.filesystem.available_bytes() - before
    configuration = configure(
        directory,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": str(RELIEF_BYTES), "imagefs.available": "0"},
        parallelRemovals=2,
    )
    most = (before + len(crowd.unused()) * ON_DISK * IMAGE_BYTES // FILLED_SHARE) // MIB * MIB
    with Daemon("--config", configuration) as daemon:
        # it has located and listed everything, and the youngest image is old enough
        time.sleep(SETTLED_SECONDS)
        found = _first_byte(node, mark, rate, most, lambda seen: seen.relieved_at is not None)
        came_true(lambda: bool(daemon.passes), WITHIN_SECONDS)
    return found


def _first_byte(
    node: RealNode, mark: int, rate: int, most_bytes: int, over: Callable[[Observer], bool]
) -> float:
    """Fills the disk by `rate` MiB/s across `mark`, until this is over; milliseconds from the mark
    to the first byte."""
    with Observer(str(node.mountpoint), mark, goal=mark + RELIEF_BYTES) as observer:
        fill = fill_bytes(node.mountpoint / "fill", 0, rate * MIB, most_bytes=most_bytes)
        came_true(lambda: over(observer), WITHIN_SECONDS, every_seconds=SAMPLE_SECONDS)
        fill.stop()
    shutil.rmtree(node.mountpoint / "fill")
    if observer.crossed_at is None or observer.first_gain_at is None:
        raise RuntimeError("the fill has not crossed the mark, or nothing was freed")
    return (observer.first_gain_at - observer.crossed_at) * 1000
