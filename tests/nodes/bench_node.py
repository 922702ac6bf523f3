"""The node on which every responder is measured: one containerd on a loop-mounted ext4, its
population, and one fill.

After each fill the removed images are imported again, so that every responder has the same node.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.bench.effort import Population
from tests.bench.measure import MIB, Observer
from tests.bench.responders import Disk, Responder
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.containerd import NAMESPACE
from tests.real_node.fill import Fill, fill_bytes
from tests.real_node.loopfs import run_tool
from tests.real_node.oci import (
    BASE,
    Image,
    ImageTar,
    random_layer,
    write_image,
    write_images,
)
from tests.reclaimd_process import came_true

DISK_BYTES = 8 * GIB
HEADROOM_BYTES = 288 * MIB  # between what is available and the mark, before a fill
LEAD_SECONDS = 0.5  # from the beginning of the paced fill to the mark
SETTLED_SECONDS = 0.5  # by then a daemon that was `HEADROOM_BYTES` away has polled again
MARGIN_BYTES = 2 * GIB  # below the mark: where the fill ends by itself
CONTAINERS_A_POD = 20
AFTER_SECONDS = 10.0
SHOWN_SECONDS = 2.0  # CRI hears of an import by an event
RESTORE_SECONDS = 240.0
_REMOVE_IMAGE = re.compile(
    r'^time="(?P<second>[^.Z"]+)(?P<fraction>\.[0-9]+)Z" level=info msg="RemoveImage [^ ]+"$',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Crossing:
    """One fill across the mark: milliseconds from the crossing to the first removal in containerd's
    log, to the first byte freed and to the minimum reclaim. None: did not happen in time."""

    sent: float | None
    first_byte: float | None
    relieved: float | None


class BenchNode:
    """A node with its population. `tars` holds each image, so that it can be brought back."""

    def __init__(self, node: RealNode, population: Population, tars: Path):
        self.node = node
        self.population = population
        self._tars = tars
        self._images: dict[str, ImageTar] = {}
        self._all = tars

    def populate(self) -> None:
        """Images by one import, then containers that are never started: they
        are listed and kept.
        """
        images = [
            Image(
                f"reclaimd.test/bench/{number}:1",
                (random_layer(number, self.population.image_bytes),),
            )
            for number in range(self.population.images)
        ]
        (self._tars / "each").mkdir()
        self._all = write_images(images, self._tars)[0].path
        for image in images:
            tar = write_image(image, self._tars / "each")
            self._images[tar.image_id] = tar
        self._import(self._all)
        app = self.node.import_image(Image("reclaimd.test/bench/app:1", (BASE,)))
        for pod in range(0, self.population.containers, CONTAINERS_A_POD):
            sandbox = self.node.kubelet.pod(f"pod-{pod}")
            for number in range(min(CONTAINERS_A_POD, self.population.containers - pod)):
                self.node.kubelet.create_container(sandbox, f"c{number}", app)
        time.sleep(1.1)  # the images are a second old, which the configuration asks for

    def _import(self, tar: Path) -> None:
        imported = ("--namespace", NAMESPACE, "images", "import", tar)
        run_tool(
            "ctr",
            "--address",
            self.node.containerd.socket,
            *imported,
            timeout_seconds=RESTORE_SECONDS,
        )

    def restore(self) -> None:
        """Brings back what was removed, until CRI shows all of it."""
        deadline = time.monotonic() + RESTORE_SECONDS
        while missing := self._images.keys() - self.node.cri.image_ids():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(missing)} images that were imported again are not there")
            # one import of all is faster than one of each
            few = len(missing) < len(self._images) / 4
            for tar in (
                [self._images[image_id].path for image_id in missing] if few else [self._all]
            ):
                self._import(tar)
            came_true(lambda: self._images.keys() <= self.node.cri.image_ids(), SHOWN_SECONDS)

    def unused(self) -> list[str]:
        """The ids of the images that may be removed."""
        return list(self._images)

    def disk(self) -> Disk:
        """The mark, `HEADROOM_BYTES` below what is available on the populated node."""
        mark = self.node.filesystem.available_bytes() - HEADROOM_BYTES
        return Disk(str(self.node.mountpoint), mark, mark + self.population.relief_bytes)

    def cross(
        self,
        disk: Disk,
        rate_mib: int,
        wait_seconds: float,
        responder: Responder | None = None,
        finished: Callable[[], bool] = lambda: True,
    ) -> Crossing:
        """One fill at this rate, from just above the mark until relief, until the responder has
        returned, or for `wait_seconds`; `responder` None: a daemon runs, and `finished` says when
        its pass is over. The disk is as before afterwards."""
        rate, log = rate_mib * MIB, self.node.containerd.log
        log_bytes = log.stat().st_size
        fills: list[Fill] = []
        ended = threading.Event()
        thread = None
        try:
            ahead = fill_bytes(
                self.node.mountpoint / "ahead", disk.mark + int(rate * LEAD_SECONDS), fast=True
            )
            fills.append(ahead)
            ahead.wait(30.0)
            time.sleep(SETTLED_SECONDS)
            with Observer(disk.path, disk.mark, goal=disk.goal) as observer:
                if responder is not None:
                    thread = threading.Thread(
                        target=responder.respond, args=(disk, self.unused(), ended)
                    )
                    thread.start()
                fills.append(
                    fill_bytes(
                        self.node.mountpoint / "fill", max(disk.mark - MARGIN_BYTES, 0), rate
                    )
                )
                came_true(
                    lambda: observer.relieved_at is not None or _has_ended(thread), wait_seconds
                )
                fills[-1].stop()
        finally:
            ended.set()
            if thread is not None:
                thread.join()
            for fill in fills:
                fill.remove()
        if not came_true(finished, AFTER_SECONDS):
            raise RuntimeError("the daemon has logged no pass")
        sent_at = _first_removal(log, log_bytes)
        self.restore()
        return _crossing(observer, sent_at)


def _has_ended(thread: threading.Thread | None) -> bool:
    return thread is not None and not thread.is_alive()


def _first_removal(log: Path, log_bytes: int) -> float | None:
    """When containerd began the first RemoveImage in its log after `log_bytes`
    bytes; monotonic seconds.
    """
    with open(log, "rb") as file:
        file.seek(log_bytes)
        found = _REMOVE_IMAGE.search(file.read().decode(errors="replace"))
    if found is None:
        return None
    wall = datetime.fromisoformat(found["second"] + "+00:00").timestamp() + float(found["fraction"])
    return wall - time.time() + time.monotonic()


def _crossing(observer: Observer, sent_at: float | None) -> Crossing:
    if observer.crossed_at is None:
        raise RuntimeError("the fill never reached the mark")

    def since(then: float | None) -> float | None:
        return (
            None
            if then is None or observer.crossed_at is None
            else (then - observer.crossed_at) * 1000
        )

    return Crossing(since(sent_at), since(observer.first_gain_at), since(observer.relieved_at))


@contextmanager
def populated_node(population: Population) -> Iterator[BenchNode]:
    """A populated node, removed afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        tempfile.TemporaryDirectory(prefix="bench-tars-") as tars,
        running_node(Path(directory), DISK_BYTES) as node,
    ):
        made = BenchNode(node, population, Path(tars))
        made.populate()
        yield made
