"""Bugs found in a pass over a node: each has the test that found it."""

from __future__ import annotations

import time

import pytest

from signals.types import FsLayout, Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import IMAGES, MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true, reclaimd
from tests.sockets.conftest import SmallNodeFactory

pytestmark = pytest.mark.regression


def test_split_nodefs_does_not_starve_imagefs(make_small_node: SmallNodeFactory) -> None:
    """Pressure that freed nothing makes room for another row, which can be relieved."""
    small = make_small_node(FsLayout.SPLIT)
    small.add_images(4)
    small.run(small.run_pod("web"))
    conf = small.configuration(
        Signal.IMAGEFS_AVAILABLE, above=MIB, evictionHard={"nodefs.available": str(62 * MIB)}
    )
    small.fill(30 * MIB)
    with Daemon("--config", conf):
        assert came_true(lambda: bool(small.removed("image")))


def test_reclaim_with_unreadable_nodefs_is_4(small_node: SmallNode) -> None:
    """A threshold that cannot be judged is not clear."""
    small_node.add_images(1)
    conf = small_node.configuration(
        rootDirectory="/nowhere", evictionHard={"nodefs.available": "10%"}
    )
    p = reclaimd("reclaim", "--config", conf)
    assert p.returncode == 4, p.stdout


def test_held_off_is_logged_once(small_node: SmallNode) -> None:
    """The countdown in the sentence does not make it news every second."""
    small_node.add_images(1)
    conf = small_node.configuration(Signal.NODEFS_AVAILABLE, above=MIB, holdOffAfterStart="5m")
    with Daemon("--config", conf) as daemon:
        daemon.wait_for(lambda e: e["message"].startswith("held off"))
        time.sleep(4)
        assert sum(e["message"].startswith("held off") for e in daemon.events) == 1


def test_what_is_written_meanwhile_is_no_negative_gain(small_node: SmallNode) -> None:
    """4 MiB go while 8 MiB are written: the record says that 0 bytes were gained, and how
    many were written beyond.
    """
    small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    small_node.failpoints["RemoveImage"] = Hang()
    with small_node.relieving(small_node.node(), IMAGES) as going:
        small_node.wait_for("RemoveImage")
        small_node.fill(8 * MIB)
        small_node.failpoints.clear()
        record = going.result()
    assert len(small_node.removed("image")) == 1
    assert record.measured.bytes == 0
    assert 3 * MIB < record.written_meanwhile.bytes < 5 * MIB
