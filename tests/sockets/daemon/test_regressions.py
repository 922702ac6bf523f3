"""Bugs found in the daemon: each has the test that found it."""

from __future__ import annotations

import time

import pytest

from signals.types import FsLayout
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
