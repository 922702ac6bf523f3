"""Pods that begin one after another while everything that nobody uses is removed again and again.

Each pod runs a random image for a moment. Its image may be gone when it comes: then the kubelet
says so, and that is the truth. What must not be: a pod whose image vanishes while it is being made,
or that waits for its sandbox's image.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.kubelet import manifests
from tests.kubelet.duel import restarts
from tests.kubelet.node import KubeletNode
from tests.real_node.loopfs import ToolError
from tests.real_node.oci import BASE, Image, random_layer
from tests.real_node.runtime import ContainerRuntimeError

MIB = 1 << 20
IMAGES = 30
EACH_SECONDS = 0.35
SETTLE_SECONDS = 180.0  # at most: three pods a second are more than a busy machine makes
ABSENT = "ErrImageNeverPull"  # the image was not there when the kubelet looked


@dataclass(frozen=True)
class Storm:
    """What became of the pods, which came within `seconds`. `ends`: how many, by `ran`, `absent`,
    or the reason for which a pod waits or failed."""

    seconds: float
    purges: int
    ends: Counter[str]
    restarted: tuple[str, ...]


def storm(node: KubeletNode, pods: int, purge: Callable[[], object], seed: int = 1) -> Storm:
    """Lets so many pods come while `purge` is called again and again on another thread."""
    images = [
        Image(f"reclaimd.test/storm:{number}", (BASE, random_layer(number, MIB)))
        for number in range(IMAGES)
    ]
    node.import_images(images)
    choice, stop, purges = random.Random(seed), threading.Event(), 0  # noqa: S311 # a repeatable order, no secret

    def purge_on() -> None:
        nonlocal purges
        while not stop.is_set():
            purge()
            purges += 1

    def bring_back() -> None:
        while not stop.wait(3.0):  # as pulls would
            with contextlib.suppress(
                ContainerRuntimeError, FileNotFoundError, ToolError
            ):  # removed again before it was whole or shown
                node.import_images(images)

    threads = [threading.Thread(target=each, daemon=True) for each in (purge_on, bring_back)]
    for thread in threads:
        thread.start()
    names = [f"storm-{number}" for number in range(pods)]
    first = time.monotonic()
    for name in names:
        began = time.monotonic()
        command = (*manifests.SHELL, "sleep 1; echo done")
        runs = manifests.container("runs", choice.choice(images).reference, command)
        node.create(manifests.pod(name, runs, restart="Never"))
        time.sleep(max(EACH_SECONDS - (time.monotonic() - began), 0.0))
    seconds = time.monotonic() - first
    with contextlib.suppress(TimeoutError):  # then some have not ended, which is told
        node.api.wait(
            "every pod has ended",
            lambda: not _underway(node, names),
            SETTLE_SECONDS,
            pause_seconds=1.0,
        )
    stop.set()
    for thread in threads:
        thread.join()
    found = node.api.pods()
    ends = Counter(_end(found[name]) for name in names)
    return Storm(
        round(seconds, 1), purges, ends, tuple(name for name in names if restarts(found[name]))
    )


def _underway(node: KubeletNode, names: list[str]) -> bool:
    pods = node.api.pods()
    return any(_end(pods[name]) not in ("ran", "absent") for name in names)


def _end(pod: dict[str, object]) -> str:
    status = pod["status"]
    assert isinstance(status, dict)
    for each in status.get("containerStatuses", ()):
        state = each["state"]
        if "running" in state or state.get("terminated", {}).get("exitCode") == 0:
            return "ran"
        if state.get("waiting", {}).get("reason") == ABSENT:
            return "absent"
        return str(next(iter(state.values())).get("reason"))
    return str(status.get("reason") or status.get("phase"))
