"""What this ring's own tools leave on the machine: nothing, whatever happened to a runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nodes.real_node import running_node
from tests.real_node.conftest import what_is_missing
from tests.real_node.containerd import Containerd
from tests.real_node.crio import crio_program, crio_tools
from tests.real_node.fill import fill_bytes
from tests.real_node.loopfs import MIB, loop_devices_of, mounts_below

pytestmark = pytest.mark.house("tests/real_node")


@pytest.mark.parametrize("how", ["killed", "paused", "full"])
@pytest.mark.parametrize("runtime", ["containerd", "crio"])
def test_nothing_is_left_behind(tmp_path: Path, runtime: str, how: str) -> None:
    """After a node with a running pod, no mount, loop device, shim, control group, socket or file
    of it remains. A pod outlives a SIGKILL of its runtime."""
    of_crio = runtime == "crio"
    if of_crio and (sentence := what_is_missing(crio_tools())):
        pytest.skip(sentence)
    program = crio_program() if of_crio else None
    with running_node(tmp_path / "node", 512 * MIB, crio=program) as node:
        made, app = node.containerd, node.sandbox_image_id
        container = node.kubelet.run_container(node.kubelet.pod("web"), "web", app)
        sockets = made.shim_sockets() if isinstance(made, Containerd) else set()
        assert all(path.exists() for path in sockets)
        assert bool(sockets) is not of_crio
        made.kill()
        if how != "killed":
            made.start()
            assert node.kubelet.runs(container)
            assert len(made.monitors()) == 1
        if how == "paused":
            made.pause()
        elif how == "full":
            fill_bytes(node.mountpoint / "fill", 0, fast=True).wait(60)
    assert (made.monitors(), made.cgroups()) == ([], [])
    assert not any(path.exists() for path in (*sockets, made.run_directory))
    assert mounts_below(tmp_path) == []
    assert loop_devices_of(node.filesystem.image) == []
    assert list((tmp_path / "node").iterdir()) == []
