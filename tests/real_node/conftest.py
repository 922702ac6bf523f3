"""Every test of this ring needs a real node; where none can be built, all
are skipped with the reason.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nodes.crowded_node import CrowdedNode, build_crowded_node
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.crio import crio_program
from tests.real_node.loopfs import ToolError, find_tool, run_tool

HERE = "tests/real_node/"
TOOLS = ("runc", "busybox", "mkfs.ext4", "mount", "umount", "losetup")
CONTAINERD_TOOLS = ("containerd", "ctr")

NodeFactory = Callable[..., RealNode]


@functools.cache
def what_is_missing(runtime_tools: tuple[str, ...] = CONTAINERD_TOOLS) -> str | None:
    """One sentence that names what this machine lacks for a real node with this runtime, or None.

    Cached.
    """
    missing = [] if os.geteuid() == 0 else ["root"]
    missing += [tool for tool in (*runtime_tools, *TOOLS) if find_tool(tool) is None]
    named = os.environ.get("CONTAINERD")
    if (
        "containerd" in runtime_tools
        and named
        and find_tool("containerd") != str(Path(named).resolve())
    ):
        missing.append(f"program containerd at CONTAINERD={named}")
    if not missing:
        try:
            run_tool("losetup", "--find")
        except ToolError:
            missing.append("a loop device")
    return f"a real node cannot be built here: no {', no '.join(missing)}" if missing else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this directory, and skip it where something is missing. Those on a CRI-O,
    which Debian lacks, are left out unless `CRIO=` names one."""
    if crio_program() is None:
        on_a_crio = [
            item for item in items if item.nodeid.startswith(HERE) and "crio" in item.nodeid
        ]
        config.hook.pytest_deselected(items=on_a_crio)
        items[:] = [item for item in items if item not in on_a_crio]
    for item in items:
        if not item.nodeid.startswith(HERE):
            continue
        item.add_marker(pytest.mark.real_node)
        if sentence := what_is_missing():
            item.add_marker(pytest.mark.skip(reason=sentence))


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[NodeFactory]:
    """A factory:

    `make_node(size_bytes=2 GiB, inodes=None, fstype="ext4")` is a running
    node, gone after the test.
    """
    with ExitStack() as stack:

        def make(
            size_bytes: int = 2 * GIB, inodes: int | None = None, fstype: str = "ext4"
        ) -> RealNode:
            if find_tool(f"mkfs.{fstype}") is None:
                pytest.skip(f"a real node cannot be built here: no mkfs.{fstype}")
            directory = tmp_path / f"node{len(list(tmp_path.glob('node*')))}"
            return stack.enter_context(running_node(directory, size_bytes, inodes, fstype))

        yield make


@pytest.fixture
def containerd_on_ext4(make_node: NodeFactory) -> RealNode:
    """A running node on an ext4 of 1 GiB with nothing but the sandbox image."""
    return make_node(GIB)


@pytest.fixture
def crowded_node(make_node: NodeFactory) -> CrowdedNode:
    """The crowded node on an ext4 of 256 MiB, about half of it in use."""
    return build_crowded_node(make_node(GIB // 4))


@pytest.fixture(params=["containerd", "crio"])
def node(
    request: pytest.FixtureRequest, make_node: NodeFactory, tmp_path: Path
) -> Iterator[RealNode]:
    """A node on an ext4 of 1 GiB, with containerd, and with a CRI-O if there is one."""
    if request.param == "containerd":
        yield make_node(GIB)
        return
    with running_node(tmp_path / "node", GIB, crio=crio_program()) as running:
        yield running
