"""Bugs found in the daemon: each has the test that found it."""

from __future__ import annotations

import io
import threading
import time

import pytest

from eviction.surface.daemon import Daemon as Loop
from eviction.wording.log import Log
from signals.types import FsLayout
from tests.nodes.small_node import SmallNode
from tests.reclaimd_process import Daemon
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import dead_filesystem

pytestmark = pytest.mark.regression


def test_sigterm_beside_dead_fs_with_watching(make_small_node: SmallNodeFactory) -> None:
    """A watch that the kernel never answers holds neither the loop nor the end."""
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    conf = small.configuration(evictionHard={"nodefs.available": "20Mi"}, pollCeiling="200ms")
    with Daemon("--config", conf) as daemon:
        time.sleep(0.5)
        with dead_filesystem(str(small.images_root)):
            daemon.wait_for(lambda e: "did not answer statvfs" in e["message"])
            time.sleep(6)
            try:
                assert daemon.stop() == 0
            finally:
                daemon.process.kill()


def test_what_is_asked_before_the_loop_runs_waits_for_it(small_node: SmallNode) -> None:
    """The control socket is there first: a client must not do the work of the loop beside it."""
    node = small_node.node()
    daemon = Loop(node, Log(node.clock.wall, stream=io.StringIO()))
    client = threading.Thread(target=node.look)
    client.start()
    client.join(0.5)
    assert client.is_alive(), "it has looked by itself"
    loop = threading.Thread(target=daemon.run)
    loop.start()
    client.join(60.0)
    assert not client.is_alive()
    daemon.stop()
    loop.join(60.0)
