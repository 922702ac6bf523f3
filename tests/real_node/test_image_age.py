"""How old an image is to a process that has no record of it: as old as CRI's
namespace of containerd has it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import run_tool
from tests.real_node.oci import Image, random_layer, write_image
from tests.real_node.test_relief import configure
from tests.reclaimd_process import answer, reclaimd_here

MIB = 1 << 20
BEFORE_SECONDS = 3.0  # for so long another namespace has had the content


def planned(node: RealNode, directory: Path, image_id: str, **fields: object) -> dict[str, Any]:
    """What a plan says of an image. No state file remembers anything."""
    process = reclaimd_here(
        "plan", "--config", configure(directory, node, stateFile="", **fields), "-o", "json"
    )
    found = answer(process)
    (one,) = [each for each in (*found["removals"], *found["kept"]) if each["id"] == image_id]
    return dict(one)


@pytest.mark.regression
def test_content_that_another_namespace_brought_makes_no_image_old(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """The namespaces of containerd share their content: its files say when
    anybody has brought it.
    """
    node = containerd_on_ext4
    tar = write_image(Image("reclaimd.test/shared:1", (random_layer(1, MIB),)), tmp_path)
    run_tool(
        "ctr",
        "--address",
        node.containerd.socket,
        "--namespace",
        "other",
        "images",
        "import",
        tar.path,
    )
    time.sleep(BEFORE_SECONDS)
    began = time.time()
    image_id = node.containerd.import_image(tar)
    assert os.lstat(node.containerd.age_stamp(image_id)).st_ctime < began - BEFORE_SECONDS + 1.0, (
        "the content is shared"
    )
    one = planned(node, tmp_path, image_id, imageMinimumGCAge="1h")
    assert one["reason"] == "too_young"
    assert one["age_seconds"] <= time.time() - began + 0.1
    run_tool(
        "ctr",
        "--address",
        node.containerd.socket,
        "--namespace",
        "other",
        "images",
        "rm",
        tar.reference,
    )


def test_an_image_is_as_old_as_containerd_says_to_a_command_without_records(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """It may go at once, by a rule that is not the kubelet's: a kubelet that has
    listed it now would keep it.
    """
    node = containerd_on_ext4
    image_id = node.import_image(Image("reclaimd.test/spare:1", (random_layer(2, MIB),)))
    time.sleep(2.0)
    one = planned(node, tmp_path, image_id, imageMinimumGCAge="2s")
    assert (one["verdict"], one["reason"], one["rule"]) == ("remove", "unused", "guard")
    assert one["age_seconds"] >= 2.0
