"""From the crossing to the first byte where 500 dead containers could go before the first image:
the functions of the row one after another, as the kubelet calls them, and side by side.

On an embedded node, so that it runs everywhere. Its containers hold nothing, so the first
byte is the first image's, by the ledger of the runtime; the crossing is an independent
observer's. A fill begins a second before the mark. With `RECLAIMD_BESIDE` another
installation is measured on the same nodes, too.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from signals.types import FsLayout
from tests.bench.beside import VARIABLE, known_to_both
from tests.bench.effort import Effort
from tests.bench.managers import ONE_AFTER_ANOTHER, SIDE_BY_SIDE
from tests.bench.measure import SAMPLE_SECONDS, Observer, Row
from tests.nodes.real_node import GIB
from tests.nodes.small_node import AN_HOUR, MIB, SmallNode
from tests.real_node.fill import fill_bytes
from tests.reclaimd_process import Daemon, came_true

RATES = (100, 400)
IMAGE_BYTES = 2 * MIB
FILLED_BEFORE_SECONDS = 1.0  # from the start of the fill to the mark
FILLED_SHARE = 4  # so far below the mark the fill would get without relief, as a part of the images
RELIEF_BYTES = 16 * MIB
COPIES = 5  # dead ones of a container that may go; the newest stays
GONE_A_POD = 25
WITHIN_SECONDS = 60.0

Value = tuple[str, str, float]
"""What was measured, its unit, the value."""


def first_byte(effort: Effort) -> list[Row]:
    """Each crossing on a node of its own; the orders in turns."""
    programs: dict[str, Callable[[str], Daemon]] = {
        order: lambda configuration, order=order: Daemon(  # type: ignore[misc] # mypy does not infer the default
            "--config",
            configuration,
            program=order,
            before=(sys.executable, "-m", "tests.bench.managers"),
        )
        for order in (ONE_AFTER_ANOTHER, SIDE_BY_SIDE)
    }
    other = os.environ.get(VARIABLE)
    if other:
        programs["the other"] = lambda configuration: Daemon(
            "--config", known_to_both(configuration), "--no-watch", program=other
        )
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for rate in RATES[-1:] if effort.short else RATES:
        for _ in range(effort.first_bytes):
            for who, daemon in programs.items():
                for what, unit, value in _crossing(effort, rate, daemon):
                    values[
                        f"{effort.dead} dead containers, {rate} MiB/s, {who}: {what}", unit
                    ].append(value)
    return [Row(what, unit, found) for (what, unit), found in values.items()]


def _crossing(effort: Effort, rate: int, daemon: Callable[[str], Daemon]) -> Iterator[Value]:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        small = SmallNode(
            Path(directory), FsLayout.SINGLE, size_bytes=effort.large.images * IMAGE_BYTES + GIB
        )
        try:
            _populate(small, effort.dead, effort.large.images)
            yield from _crossed(small, rate, daemon)
        finally:
            small.close()


def _populate(small: SmallNode, dead: int, images: int) -> None:
    """Half of the dead containers are of pods that are gone, half are older
    copies in pods that live.
    """
    small.add_images(images, IMAGE_BYTES)
    for number in range(dead // 2 // GONE_A_POD):
        pod = small.run_pod(f"gone-{number}")
        for each in range(GONE_A_POD):
            small.exited(pod, name=f"job-{each}")
        small.vanish(pod)
    for number in range(dead // 2 // COPIES):
        pod = small.run_pod(f"crashed-{number}")
        for attempt in range(COPIES + 1):
            small.exited(pod, attempt=attempt)
        small.runtime.age(pod.sandbox_id, AN_HOUR)


def fill_until(
    seen: Callable[[Observer], bool], disk: Path, mark: int, rate: int, most_bytes: int
) -> Observer:
    """Fills a disk by `rate` MiB/s across `mark`, until an observer has
    seen this of it; what it saw.
    """
    with Observer(str(disk), mark, goal=mark + RELIEF_BYTES) as observer:
        fill = fill_bytes(disk / "fill", 0, rate * MIB, most_bytes=most_bytes)
        came_true(lambda: seen(observer), WITHIN_SECONDS, every_seconds=SAMPLE_SECONDS)
        fill.stop()
    return observer


def relieved(observer: Observer) -> bool:
    """Whether the minimum reclaim is there."""
    return observer.relieved_at is not None


def _crossed(small: SmallNode, rate: int, daemon: Callable[[str], Daemon]) -> Iterator[Value]:
    headroom = int(FILLED_BEFORE_SECONDS * rate) * MIB
    mark = small.available() - headroom
    configuration = small.configuration(
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": str(RELIEF_BYTES), "imagefs.available": "0"},
        parallelRemovals=2,
    )
    images = len(small.images())
    most = (headroom + images * IMAGE_BYTES // FILLED_SHARE) // MIB * MIB
    with daemon(configuration) as running:
        time.sleep(0.5)  # it has located and listed everything
        began = time.time() - time.monotonic()
        observer = fill_until(relieved, small.disk, mark, rate, most)
        came_true(lambda: bool(running.passes), WITHIN_SECONDS)
        beyond = small.available() - mark - RELIEF_BYTES
    if observer.crossed_at is None:
        raise RuntimeError("the fill has not crossed the mark")
    crossed = began + observer.crossed_at
    freed = [each.wall_seconds for each in small.runtime.removals if each.kind == "image"]
    if freed:
        yield "crossing to the first byte", "ms", (freed[0] - crossed) * 1000
    if observer.relieved_at is not None:
        yield (
            "crossing to the minimum reclaim",
            "ms",
            (observer.relieved_at - observer.crossed_at) * 1000,
        )
    yield "images lost", "images", images - len(small.images())
    yield "containers lost", "containers", len(small.removed("container"))
    yield "freed beyond the minimum reclaim", "MiB", max(beyond, 0) / MIB
