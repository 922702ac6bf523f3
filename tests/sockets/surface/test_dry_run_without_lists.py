"""A dry run on a runtime that does not list: an answer that is not known is not "nothing"."""

from __future__ import annotations

import grpc
import pytest

from signals.types import Signal
from tests.nodes.faults import Fail
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import answer, reclaimd_here

REFUSED = "the lists are refused"


@pytest.mark.regression
@pytest.mark.parametrize(
    "options", [(), ("--signal", "imagefs.available")], ids=["under pressure", "on request"]
)
def test_a_dry_run_that_cannot_list_exits_with_3(
    small_node: SmallNode, options: tuple[str, ...]
) -> None:
    """As the run itself would, with the runtime's error in place of a plan."""
    small_node.add_images(2)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=6 * MIB)
    for method in ("ListContainers", "ListImages", "ListPodSandbox"):
        small_node.failpoints[method] = Fail(grpc.StatusCode.UNKNOWN, REFUSED)
    ended = reclaimd_here("reclaim", "--config", file, "--dry-run", "--standalone", *options)
    assert ended.returncode == 3
    assert f"failed: unix://{small_node.server.socket_path}: List" in ended.stdout
    assert REFUSED in ended.stdout
    assert "would remove" not in ended.stdout


@pytest.mark.regression
def test_a_dry_run_of_which_one_stage_can_list_says_what_is_missing_and_exits_with_3(
    small_node: SmallNode,
) -> None:
    """The containers are known, the images are not: what would go is a part of the
    answer, and said to be one.
    """
    dead = small_node.gone_pod("gone")
    small_node.add_images(2)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=6 * MIB)
    small_node.failpoints["ListImages"] = Fail(grpc.StatusCode.UNKNOWN, REFUSED)
    ended = reclaimd_here("reclaim", "--config", file, "--dry-run", "--standalone", "-o", "json")
    record = answer(ended)
    assert ended.returncode == 3
    assert record["result"] == "dry_run"
    assert [each["id"] for each in record["removals"] if each["kind"] == "container"] == [dead]
    assert REFUSED in record["reason"]
    assert REFUSED in record["errors"][0]
    assert small_node.removed() == []
