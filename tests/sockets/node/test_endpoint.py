"""Where no endpoint is configured: which socket is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nodes.small_node import SmallNode


@pytest.mark.regression
def test_a_socket_that_comes_after_the_start_is_found(small_node: SmallNode, tmp_path: Path) -> None:
    """At the start there is none, so the first usual place is named; the runtime then listens at the second one."""
    first, second = f"unix://{tmp_path}/first.sock", f"unix://{tmp_path}/second.sock"
    node = small_node.node(containerRuntimeEndpoint="", usual_endpoints=(first, second))
    node.prepare()
    problem = node.locate()
    assert problem is not None
    assert problem.startswith(f"{first}: no connection for ImageFsInfo")
    (tmp_path / "second.sock").symlink_to(small_node.server.socket_path)
    assert node.locate() is None
    assert node.endpoint.runtime == second
    assert node.summary.paths.imagefs is not None


def test_a_runtime_that_has_answered_is_not_exchanged_for_another_one(small_node: SmallNode, tmp_path: Path) -> None:
    """Its socket is gone for a moment, and that of another runtime is there: lists of two runtimes would be mixed."""
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    first.symlink_to(small_node.server.socket_path)
    node = small_node.node(containerRuntimeEndpoint="", usual_endpoints=(f"unix://{first}", f"unix://{second}"))
    assert node.locate() is None
    first.rename(second)
    node.locate()
    assert node.endpoint.runtime == f"unix://{first}"
