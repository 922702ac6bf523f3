"""Every test of this ring needs a real node; where none can be built, all
are skipped with the reason.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.crio import crio_program
from tests.real_node.loopfs import ToolError, find_tool, mounted, run_tool

HERE = "tests/real_node/"
TOOLS = (
    *("runc", "busybox", "mount", "umount", "losetup"),
    *("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"),
)
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
    here = [item for item in items if item.nodeid.startswith(HERE)]
    for item in here:
        item.add_marker(pytest.mark.real_node)
        if sentence := what_is_missing():
            item.add_marker(pytest.mark.skip(reason=sentence))
    if crio_program() is None and (on_a_crio := [item for item in here if "crio" in item.nodeid]):
        config.hook.pytest_deselected(items=on_a_crio)
        items[:] = [item for item in items if item not in on_a_crio]


def on(*kinds: str) -> pytest.MarkDecorator:
    """A test with the fixture `disk`, on each of these."""
    return pytest.mark.parametrize("disk", kinds, indirect=True)


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small filesystem: its type, and options of its mount (with `=`) and of mkfs (without)."""
    fstype, *words = request.param.split()
    options = tuple(word for word in words if "=" in word)
    made = (word for word in words if word not in options)
    with mounted(tmp_path, fstype, *made, options=options) as point:
        yield point


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[NodeFactory]:
    """A factory:

    `make_node(size_bytes=1 GiB, runtime="containerd", **options of running_node)` is a running
    node, gone after the test.
    """
    with ExitStack() as stack:

        def make(size_bytes: int = GIB, runtime: str = "containerd", **options: Any) -> RealNode:
            directory = tmp_path / f"node{len(list(tmp_path.glob('node*')))}"
            program = crio_program() if runtime == "crio" else None
            made = functools.partial(running_node, directory, size_bytes, crio=program)
            return stack.enter_context(made(**options))

        yield make


@pytest.fixture
def containerd(make_node: NodeFactory) -> RealNode:
    """A running node on an ext4 of 1 GiB with nothing but the sandbox image."""
    return make_node()


@pytest.fixture(params=["containerd", "crio"])
def node(request: pytest.FixtureRequest, make_node: NodeFactory) -> RealNode:
    """The same, and with a CRI-O if there is one."""
    return make_node(runtime=request.param)
