"""Whole processes: `reclaimd --help`, and `reclaimd reclaim` from exec to the first removal, by the
daemon and standalone."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from signals.types import Signal
from tests.bench.effort import Effort
from tests.bench.measure import Row
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, answer, came_true, reclaimd

IMAGES = 40
PODS = 10
WITHIN_SECONDS = 30.0


def start_up(effort: Effort) -> list[Row]:
    """The start, and hooks on an embedded node with 40 images and 10 pods; until the runtime
    receives the removal."""
    help_ms, asking, alone = list[float](), list[float](), list[float]()
    for _ in range(effort.hooks):
        began = time.perf_counter()
        subprocess.run([PROGRAM, "--help"], check=True, capture_output=True)
        help_ms.append((time.perf_counter() - began) * 1000)
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        small = SmallNode(Path(directory), size_bytes=400 * MIB)
        try:
            for number in range(PODS):
                small.run(small.run_pod(f"pod-{number}"))
            small.add_images(IMAGES, MIB)
            configuration = small.configuration(
                evictionHard={"nodefs.available": "1"},
                controlSocket=f"{directory}/run/control.sock",
                holdOffAfterStart="1h",
            )
            with located_daemon(configuration):
                asking += [one_hook(small, configuration) for _ in range(effort.hooks)]
            alone += [one_hook(small, configuration, "--standalone") for _ in range(effort.hooks)]
        finally:
            small.close()
    hook = "embedded node: hook, exec to the first removal"
    return [
        Row("reclaimd --help", "ms", help_ms),
        Row(f"{hook}, asking the daemon", "ms", asking),
        Row(f"{hook}, standalone", "ms", alone),
    ]


def one_hook(small: SmallNode, configuration: str, *arguments: str) -> float:
    """Milliseconds until the runtime received the removal of one image."""
    mark = small.available() + MIB
    before, received = small.failpoints.calls["RemoveImage"], list[float]()

    def wait_for_removal() -> None:
        if small.failpoints.wait_for_calls("RemoveImage", before + 1, WITHIN_SECONDS):
            received.append(time.monotonic())

    listener = threading.Thread(target=wait_for_removal)
    listener.start()
    began = time.monotonic()
    command = [PROGRAM, "reclaim", "--config", configuration, "--now", *arguments]
    asked = ("--signal", str(Signal.NODEFS_AVAILABLE), "--until", str(mark))
    subprocess.run([*command, *asked], env=ENVIRONMENT, capture_output=True, check=True)
    listener.join()
    small.add_image(f"registry.example/again/{before}:1", MIB)
    return (received[0] - began) * 1000


@contextmanager
def located_daemon(
    configuration: str, *options: str, before: tuple[str, ...] = ()
) -> Iterator[Daemon]:
    """A daemon that has located the images. `before`: a program that starts it."""
    status = ("status", "--config", configuration, "-o", "json")
    with Daemon("--config", configuration, *options, before=before) as daemon:
        assert came_true(lambda: answer(reclaimd(*status))["layout"] is not None, WITHIN_SECONDS)
        yield daemon
