"""A lane for each filesystem: what is slow on one delays no other.

A filesystem of the configuration's own is relieved by a program; by the order of events,
so that no clock decides.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eviction.cli.client import ask_daemon
from eviction.drill.runtime.private_mounts import unmount
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.dialect import Dialect
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.program.scripts import script

IN_VAIN_SECONDS = 8.0  # less than the deadline of a list
PAUSE_SECONDS = 0.1  # as long as a client takes to start


class Cache:
    """A filesystem beside the kubelet's, which a program relieves."""

    def __init__(self, directory: Path) -> None:
        self.disk = directory / "cache"
        mounted_tmpfs(str(self.disk), 16 * MIB, 100)
        (directory / "bin").mkdir()
        self.fields: dict[str, Any] = {
            "filesystems": [{"name": "cache", "path": str(self.disk)}],
            "reclaimFunctions": [
                {
                    "name": "prune",
                    "exec": [script(directory / "bin", f"rm -f {self.disk}/*")],
                    "frees": "cache",
                    "plan": False,
                    "timeout": "60s",
                }
            ],
            "reclaimTable": {"cache.available": ["prune"]},
            "evictionHard": {"cache.available": "8Mi"},
        }

    def fill(self) -> None:
        """4 MiB below its mark."""
        (self.disk / "grown").write_bytes(os.urandom(12 * MIB))

    def relieved(self) -> bool:
        """Whether the program has removed what had grown."""
        return not list(self.disk.iterdir())


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    """A filesystem of 16 MiB with a mark of 8 MiB."""
    made = Cache(tmp_path)
    try:
        yield made
    finally:
        unmount(str(made.disk))


class Held:
    """A runtime in front of a node's own: once `hangs` is set it answers no list of containers
    until the cache was relieved, or was not in time. `relieved`: which of the two."""

    def __init__(self, small: SmallNode, cache: Cache, directory: Path):
        self._cache = cache
        self.hangs, self.held = threading.Event(), threading.Event()
        self.relieved: list[bool] = []
        answers = {"ListContainers": self._hold}
        self.dialect = Dialect(small.server.target, str(directory / "held.sock"), answers)

    def _hold(self, _: Any) -> None:
        if self.hangs.is_set():
            self.held.set()
            self.relieved.append(came_true(self._cache.relieved, IN_VAIN_SECONDS))


def test_a_filesystem_is_relieved_while_the_containers_of_another_cannot_be_listed(
    small_node: SmallNode, tmp_path: Path, cache: Cache
) -> None:
    """The pass of the kubelet's filesystem waits for ListContainers, which is answered
    when the cache was relieved.
    """
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    held = Held(small_node, cache, tmp_path)
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=-2 * MIB,
        containerRuntimeEndpoint=held.dialect.endpoint,
        **cache.fields,
    )
    with held.dialect, Daemon("--config", file):
        small_node.wait_for("ListPodSandbox", 1)
        held.hangs.set()
        small_node.fill(4 * MIB)
        assert held.held.wait(60.0)
        cache.fill()
        assert came_true(lambda: bool(held.relieved))
        assert held.relieved[0]


@contextmanager
def client(file: str) -> Iterator[None]:
    """One that asks for one dry run after the other, by what the command
    `reclaim` does before all else.
    """
    stop = threading.Event()
    words = ["--dry-run", "--signal", "imagefs.available", "--config", file]

    def ask() -> None:
        while not stop.wait(PAUSE_SECONDS):
            ask_daemon("reclaim", words)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        stop.set()
        asking.join()


def test_a_filesystem_is_relieved_while_twenty_clients_ask_for_dry_runs(
    small_node: SmallNode, tmp_path: Path, cache: Cache
) -> None:
    """Their lists are answered only when the cache was relieved."""
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    held = Held(small_node, cache, tmp_path)
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=-2 * MIB,
        containerRuntimeEndpoint=held.dialect.endpoint,
        controlSocket=str(tmp_path / "control" / "socket"),
        **cache.fields,
    )
    with held.dialect, Daemon("--config", file), ExitStack() as clients:
        small_node.wait_for("ListContainers", 1)  # the first refresh; the next one is in a minute
        held.hangs.set()
        for _ in range(20):
            clients.enter_context(client(file))
        assert held.held.wait(60.0)
        cache.fill()
        assert came_true(lambda: bool(held.relieved))
        assert held.relieved[0]
        held.hangs.clear()
