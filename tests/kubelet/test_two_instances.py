"""Two reclaimds on one node: the lock refuses the second; where they have two locks
they do each other no harm.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import LOGS, MIB, SETTLED, logs, make_pods_of_every_kind, statuses
from tests.kubelet.node import KubeletNode
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import Daemon, came_true, reclaimd, write_configuration

IMAGES = 12
IMAGE_BYTES = 8 * MIB  # containerd holds it twice: as a blob, and as a snapshot
BELOW = 100 * MIB  # the mark, below what is available at first
# how far below the mark the fill ends: all images are not enough, so neither comes too late
SHORT = 400 * MIB


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with a pod of each kind and images that nobody uses."""
    made = make_node()
    make_pods_of_every_kind(made)
    made.import_removable(
        [
            Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(number, IMAGE_BYTES)))
            for number in range(IMAGES)
        ]
    )
    return made


def configured(node: KubeletNode, name: str, mark: int, lock: str) -> str:
    """A configuration with this lock."""
    return str(
        write_configuration(
            node.disk.parent / f"{name}.yaml",
            **node.reclaimd_fields(),
            lockDirectory=str(node.disk.parent / lock),
            evictionHard={"imagefs.available": str(mark)},
            evictionMinimumReclaim={"imagefs.available": "0"},
        )
    )


def unused_left(node: KubeletNode) -> list[str]:
    """The images that nobody uses and that are there."""
    tags = [tag for image in node.runtime.cri.list_images() for tag in image.repo_tags]
    return [tag for tag in tags if tag.startswith("reclaimd.test/unused:")]


def test_with_one_lock_the_second_is_refused_and_with_two_no_harm_is_done(
    node: KubeletNode, tmp_path: Path
) -> None:
    """Both answer one fill; each removal succeeds, or finds that the other was first."""
    before = statuses(node, *SETTLED)
    mark = node.filesystem.available_bytes() - BELOW
    with Daemon("--config", configured(node, "first", mark, "lock")) as first:
        refused = reclaimd("run", "--config", configured(node, "second", mark, "lock"))
        assert refused.returncode == 75
        assert "another instance holds the node" in refused.stderr
        with Daemon("--config", configured(node, "second", mark, "lock-of-the-second")) as second:
            fill_bytes(node.disk / "fill", mark - SHORT, fast=True).wait(60.0)
            assert came_true(lambda: bool(first.passes and second.passes))
            assert came_true(lambda: not unused_left(node))
        records = [*first.passes, *second.passes]
    outcomes = [each for record in records for each in record["removals"]]
    assert {each["result"] for each in outcomes} <= {"removed", "already_gone"}
    assert [record["errors"] for record in records if record["errors"]] == []
    assert {each["name"].partition(":")[0] for each in outcomes if each["kind"] == "image"} == {
        "reclaimd.test/unused"
    }
    assert statuses(node, *SETTLED) == before
    assert logs(node) == {**LOGS, "prepared": "prepared is prepared\n"}
