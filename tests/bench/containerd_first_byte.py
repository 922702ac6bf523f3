"""From the crossing to the first byte on a real containerd with as many dead containers and unused images as in
`first_byte`: what the runtime's own answers and its garbage collection leave of it.

The first byte is the filesystem's, by an independent observer: a removal that is answered has not freed anything yet.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.first_byte import (
    FILLED_SHARE,
    HEADROOM_BYTES,
    IMAGE_BYTES,
    RATES,
    RELIEF_BYTES,
    Value,
    fill_until_relieved,
)
from tests.bench.measure import MIB, Row
from tests.nodes.crowded_node import admit_and_run, run_to_end
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.oci import BASE, Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon

DISK_BYTES = 4 * GIB
PODS = 10  # half of them are gone
COPIES = 5  # of each container
MADE_AT_ONCE = 4
IMPORTED_AT_ONCE = 20
ON_DISK = 2  # containerd keeps what it imported and what it unpacked


def containerd_first_byte(effort: Effort) -> list[Row]:
    """All crossings on one node, the rates in turns. What was removed is brought back after each."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, running_node(Path(name), DISK_BYTES) as node:
        _add_dead_containers(node, effort.dead)
        numbers = count()
        for _ in range(effort.crossings):
            for rate in RATES[-1:] if effort.short else RATES:
                _add_images(node, effort.large.images - _unused(node), numbers)
                for what, unit, value in _crossed(node, Path(name), rate, effort.large.images):
                    values[f"containerd, {effort.dead} dead containers, {rate} MiB/s: {what}", unit].append(value)
    return [Row(what, unit, found) for (what, unit), found in values.items()]


def _add_dead_containers(node: RealNode, dead: int) -> None:
    app = node.import_image(Image("reclaimd.test/app:1", (BASE,)))
    pods = [admit_and_run(node, f"pod-{number}") for number in range(PODS)]

    def one(number: int) -> None:
        copy, attempt = divmod(number // PODS, COPIES)
        run_to_end(node, pods[number % PODS], f"container-{copy}", app, "exit 0", attempt)

    with ThreadPoolExecutor(MADE_AT_ONCE) as pool:
        list(pool.map(one, range(dead)))
    for pod in pods[: PODS // 2]:
        node.kubelet.end_pod(pod)


def _unused(node: RealNode) -> int:
    return sum(any("/unused/" in tag for tag in image.repo_tags) for image in node.cri.list_images())


def _add_images(node: RealNode, missing: int, numbers: Iterator[int]) -> None:
    new = [next(numbers) for _ in range(missing)]
    for begin in range(0, missing, IMPORTED_AT_ONCE):
        some: Sequence[int] = new[begin : begin + IMPORTED_AT_ONCE]
        node.import_images([Image(f"reclaimd.test/unused/{one}:1", (random_layer(one, IMAGE_BYTES),)) for one in some])


def _crossed(node: RealNode, directory: Path, rate: int, images: int) -> Iterator[Value]:
    mark = node.filesystem.available_bytes() - HEADROOM_BYTES
    configuration = configure(
        directory,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": str(RELIEF_BYTES), "imagefs.available": "0"},
        parallelRemovals=2,
    )
    containers = len(node.cri.list_containers())
    most = (HEADROOM_BYTES + images * ON_DISK * IMAGE_BYTES // FILLED_SHARE) // MIB * MIB
    with Daemon("--config", configuration) as daemon:
        time.sleep(1.5)  # it has located and listed everything, and the youngest image is old enough
        observer = fill_until_relieved(daemon, node.mountpoint, mark, rate, most)
    shutil.rmtree(node.mountpoint / "fill")
    if observer.crossed_at is None or observer.first_gain_at is None or observer.relieved_at is None:
        raise RuntimeError("the fill has not crossed the mark, or nothing has relieved the node")
    yield "crossing to the first byte", "ms", (observer.first_gain_at - observer.crossed_at) * 1000
    yield "crossing to the minimum reclaim", "ms", (observer.relieved_at - observer.crossed_at) * 1000
    yield "images lost", "images", images - _unused(node)
    yield "containers lost", "containers", containers - len(node.cri.list_containers())
