"""`reclaimd reclaim` as a whole process: from exec to the first removal, by
the daemon and standalone.
"""

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
from tests.bench.measure import Observer, Row, command_milliseconds
from tests.nodes.real_node import GIB, running_node
from tests.nodes.small_node import MIB, SmallNode
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, answer, came_true, reclaimd

IMAGES = 40
PODS = 10
WITHIN_SECONDS = 30.0


def hooks(effort: Effort) -> list[Row]:
    """On the embedded node: 40 images, 10 pods; until the runtime receives the removal."""
    return [
        Row(
            "embedded node: hook, exec to the first removal, asking the daemon",
            "ms",
            _embedded(effort.hooks, alone=False),
        ),
        Row(
            "embedded node: hook, exec to the first removal, standalone",
            "ms",
            _embedded(effort.hooks, alone=True),
        ),
    ]


def _embedded(runs: int, *, alone: bool) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        small = SmallNode(Path(directory), size_bytes=400 * MIB)
        try:
            for number in range(PODS):
                small.run(small.run_pod(f"pod-{number}"))
            small.add_images(IMAGES, MIB)
            configuration = control_configuration(small, directory)
            if alone:
                return [one_hook(small, configuration, "--standalone") for _ in range(runs)]
            with located_daemon(configuration):
                return [one_hook(small, configuration) for _ in range(runs)]
        finally:
            small.close()


def control_configuration(small: SmallNode, directory: str) -> str:
    """A configuration with a control socket, and marks that are far away."""
    hard = {"nodefs.available": "1"}
    control = f"{directory}/run/control.sock"
    return small.configuration(evictionHard=hard, controlSocket=control, holdOffAfterStart="1h")


def asking(effort: Effort) -> list[Row]:
    """`reclaimd check` as a whole process that asks a running daemon."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        small = SmallNode(Path(directory))
        try:
            configuration = small.configuration(
                controlSocket=f"{directory}/run/control.sock", holdOffAfterStart="1h"
            )
            with located_daemon(configuration):
                taken = command_milliseconds(
                    [PROGRAM, "check", "--config", configuration], effort.hooks
                )
        finally:
            small.close()
    return [Row("reclaimd check, asking the daemon", "ms", taken)]


def one_hook(
    small: SmallNode, configuration: str, *arguments: str, program: str = PROGRAM
) -> float:
    """Milliseconds until the runtime received the removal of one image."""
    mark = small.available() + MIB
    before, received = small.failpoints.calls["RemoveImage"], []

    def wait_for_removal() -> None:
        if small.failpoints.wait_for_calls("RemoveImage", before + 1, WITHIN_SECONDS):
            received.append(time.monotonic())

    listener = threading.Thread(target=wait_for_removal)
    listener.start()
    began = time.monotonic()
    _hook(configuration, Signal.NODEFS_AVAILABLE, mark, *arguments, program=program)
    listener.join()
    small.add_image(f"registry.example/again/{before}:1", MIB)
    return (received[0] - began) * 1000


def real_hooks(effort: Effort) -> list[Row]:
    """On a real containerd: until an independent observer sees the first byte come
    back, the removal included.
    """
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        running_node(Path(directory), 4 * GIB) as node,
    ):
        fields = {"controlSocket": f"{directory}/run/control.sock", "holdOffAfterStart": "1h"}
        configuration = configure(Path(directory), node, **fields)
        for arguments in ((), ("--standalone",)):
            for number in range(effort.hooks):
                node.import_image(
                    Image(f"reclaimd.test/hook/{number}:1", (random_layer(number, 4 * MIB),))
                )
            time.sleep(1.1)
            taken = []
            with located_daemon(configuration):
                for _ in range(effort.hooks):
                    mark = node.filesystem.available_bytes() + MIB
                    with Observer(str(node.mountpoint), mark) as observer:
                        began = time.monotonic()
                        _hook(configuration, Signal.IMAGEFS_AVAILABLE, mark, *arguments)
                        came_true(lambda: observer.first_gain_at is not None, WITHIN_SECONDS)
                    assert observer.first_gain_at is not None
                    taken.append((observer.first_gain_at - began) * 1000)
            how = "standalone" if arguments else "asking the daemon"
            rows.append(Row(f"containerd: hook, exec to the first byte freed, {how}", "ms", taken))
    return rows


def _hook(
    configuration: str, signal: Signal, mark: int, *arguments: str, program: str = PROGRAM
) -> None:
    command = [
        program,
        "reclaim",
        "--config",
        configuration,
        "--now",
        "--signal",
        str(signal),
        "--until",
        str(mark),
    ]
    subprocess.run([*command, *arguments], env=ENVIRONMENT, capture_output=True, check=True)


@contextmanager
def located_daemon(configuration: str, program: str = PROGRAM) -> Iterator[None]:
    """A daemon that has located the images."""
    with Daemon("--config", configuration, program=program):
        status = ["status", "--config", configuration, "-o", "json"]
        assert came_true(lambda: answer(reclaimd(*status))["layout"] is not None, WITHIN_SECONDS)
        yield
