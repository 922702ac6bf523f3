"""Where no endpoint is configured: which socket is used."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from eviction.engine.view import NodeView
from eviction.surface.check import CheckOptions, check
from tests.nodes.small_node import SmallNode


@pytest.mark.regression
def test_a_socket_that_comes_after_the_start_is_found(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """At the start there is none, so the first usual place is named; the runtime then
    listens at the second one.
    """
    first, second = f"unix://{tmp_path}/first.sock", f"unix://{tmp_path}/second.sock"
    node = small_node.node(containerRuntimeEndpoint="", usual_endpoints=(first, second))
    node.prepare()
    problem = node.locate()
    assert problem is not None
    assert problem.startswith(f"{first}: ImageFsInfo failed with UNAVAILABLE")
    (tmp_path / "second.sock").symlink_to(small_node.server.socket_path)
    assert node.locate() is None
    assert node.endpoint.runtime == second
    assert node.summary.paths.imagefs is not None


def test_a_runtime_that_has_answered_is_not_exchanged_for_another_one(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """Its socket is gone for a moment, and that of another runtime is there: lists of
    two runtimes would be mixed.
    """
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    first.symlink_to(small_node.server.socket_path)
    node = small_node.node(
        containerRuntimeEndpoint="", usual_endpoints=(f"unix://{first}", f"unix://{second}")
    )
    assert node.locate() is None
    first.rename(second)
    node.locate()
    assert node.endpoint.runtime == f"unix://{first}"


def view(*usual: Path) -> NodeView:
    """A node without a configured endpoint."""
    configuration = load(None, {}, {"kubeletConfig": "", "rootDirectory": str(usual[0].parent)})
    return NodeView(configuration, usual_endpoints=[f"unix://{path}" for path in usual])


@pytest.mark.regression
def test_only_a_socket_that_exists_was_found(tmp_path: Path) -> None:
    """A file of that name is none.

    Where none is found, it is said which were tried, once for all filesystems.
    """
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    first.write_text("")
    node = view(first, second)
    tried = f"no endpoint configured, and no socket found; tried unix://{first}, unix://{second}"
    assert (node.endpoint.found, node.endpoint.remark) == (False, tried)
    problem = node.locate()
    assert problem is not None
    assert problem.endswith(f"({tried})")
    lines = check(node, CheckOptions()).lines
    assert lines[-1] == f"runtime: {tried}"
    assert [line for line in lines if "not readable" in line] == [
        f"imagefs, containerfs: not readable: {problem}"
    ]
    node.close()


def test_a_socket_that_exists_is_found(tmp_path: Path) -> None:
    """The first one in the usual order that is a socket."""
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(second))
        node = view(first, second)
        assert node.endpoint.found
        assert node.endpoint.remark == f"no endpoint configured; using unix://{second}"
        assert (
            check(node, CheckOptions()).lines[-1]
            == f"runtime: no endpoint configured; using unix://{second}"
        )
        node.close()
