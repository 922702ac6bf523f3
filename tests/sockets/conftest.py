"""Fixtures of this ring: a bare embedded runtime, small nodes on real small filesystems, and a
stage for stories on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nodes.bare_runtime import BareRuntime
from tests.nodes.small_node import SmallNode
from tests.sockets.mounts import tmpfs
from tests.sockets.stage import Stage

SmallNodeFactory = Callable[..., SmallNode]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BareRuntime]:
    """A bare embedded runtime behind its socket."""
    made = BareRuntime(tmp_path)
    yield made
    made.close()


@pytest.fixture
def make_small_node(tmp_path: Path) -> Iterator[SmallNodeFactory]:
    """A factory of small nodes, closed after the test; its arguments are those of SmallNode after the
    directory, which is in memory: no test waits for a disk that others use.
    """
    with ExitStack() as stack:

        def make(*arguments: object, **options: object) -> SmallNode:
            directory = tmp_path / f"n{len(list(tmp_path.glob('n*')))}"
            stack.enter_context(tmpfs(directory, 1 << 28, 10_000))
            small = SmallNode(directory, *arguments, **options)  # type: ignore[arg-type] # passed on as they come
            stack.callback(small.close)
            return small

        yield make


@pytest.fixture
def small_node(make_small_node: SmallNodeFactory) -> SmallNode:
    """A small node with one filesystem for everything."""
    return make_small_node()


@pytest.fixture
def stage(small_node: SmallNode, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A small node for the story that is named as the test."""
    name = request.function.__name__.removeprefix("test_")
    made = Stage(small_node, request.path.with_name("expected") / f"{name}.txt")
    yield made
    made.close()
