"""`reclaimd reclaim --room` on a real containerd: room is made before a pull, or it is
said how much is missing.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.nodes.real_node import GIB, RealNode
from tests.real_node.conftest import NodeFactory
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import MIB, configure
from tests.reclaimd_process import answer, reclaimd

SIZE = 24 * MIB


@pytest.fixture
def node(make_node: NodeFactory) -> RealNode:
    """An ext4 of 1 GiB with six unused images of 24 MiB, of which containerd
    keeps the content too.
    """
    made = make_node(GIB)
    made.import_images(
        [Image(f"reclaimd.test/old-{n}:1", (random_layer(n, SIZE),)) for n in range(6)]
    )
    time.sleep(1.1)  # old enough to go
    return made


def test_room_is_made_for_a_pull_and_no_more(node: RealNode, tmp_path: Path) -> None:
    """60 MiB more than there is: two images of 24 MiB, unpacked and packed; then an
    import of that size fits in.
    """
    file = configure(tmp_path, node)
    wanted = node.filesystem.available_bytes() + 60 * MIB
    words = (
        "reclaim",
        "--config",
        file,
        "--standalone",
        "--now",
        "--on",
        "imagefs",
        "-o",
        "json",
        "--room",
    )
    dry = reclaimd(*words, str(wanted), "--dry-run")
    assert len(node.cri.image_ids()) == 7
    assert {one["result"] for one in answer(dry)["removals"]} == {"planned"}
    process = reclaimd(*words, str(wanted))
    document = answer(process)
    assert (process.returncode, document["room"]["missing"]) == (0, 0)
    assert node.filesystem.available_bytes() >= wanted
    gone = sum(one["result"] == "removed" for one in document["removals"])
    assert gone == 2, "and no further"
    assert node.filesystem.available_bytes() - wanted < 2 * SIZE
    again = reclaimd(*words, str(wanted))
    assert (again.returncode, answer(again)["kind"]) == (0, "NothingToDo")


def test_room_that_cannot_be_made_is_exit_1(node: RealNode, tmp_path: Path) -> None:
    """More than the disk has: every unused image goes, the sandbox image stays,
    and what is missing is said.
    """
    file = configure(tmp_path, node)
    wanted = 2 * GIB
    process = reclaimd(
        "reclaim",
        "--config",
        file,
        "--standalone",
        "--now",
        "--room",
        str(wanted),
        "--on",
        "imagefs",
        "-o",
        "json",
    )
    document = answer(process)
    assert (process.returncode, document["result"]) == (1, "not_enough")
    assert document["room"]["missing"] == pytest.approx(
        wanted - node.filesystem.available_bytes(), abs=4 * MIB
    )
    assert node.cri.image_ids() == {node.sandbox_image_id}
    assert document["attribution"], "where the bytes are"
