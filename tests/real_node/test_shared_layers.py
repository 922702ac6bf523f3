"""What a plan promises of images that share most of their layers, and what
a real runtime frees then.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.conftest import NodeFactory
from tests.real_node.crio import crio_program
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image, Layer, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import answer, reclaimd_here

MIB = 1 << 20
BUILDS = 8
SHARED, OWN = 18, 2  # MiB: nine tenths of an image are shared
SETTLE_SECONDS = 1.0


def available(node: RealNode) -> int:
    """Bytes on the disk, once everything that was written has its place."""
    os.sync()
    found = os.statvfs(node.mountpoint)
    return found.f_bavail * found.f_frsize


def bring_in(node: RealNode, family: str, first: int, base: Layer) -> list[str]:
    """Builds on one base; their ids."""
    return [
        node.import_image(
            Image(
                f"reclaimd.test/{family}:{number}", (base, random_layer(first + number, OWN * MIB))
            )
        )
        for number in range(BUILDS)
    ]


def errors(node: RealNode, directory: Path, order: str) -> tuple[float, float]:
    """By how much, in parts of what was freed, the sizes of the runtime and what a plan
    promises are wrong, image by image. A container runs on one base, which stays; the other
    goes with the last image on it."""
    held, free = (random_layer(number, SHARED * MIB) for number in (1, 2))
    app = node.import_image(Image("reclaimd.test/app:1", (BASE, held)))
    node.kubelet.admit_pod("uid")
    node.kubelet.run_container(
        node.kubelet.run_pod("app", "uid"), "app", "reclaimd.test/app:1", SLEEP_FOR_EVER
    )
    beside = [
        node.import_image(
            Image(f"reclaimd.test/beside:{n}", (BASE, held, random_layer(10 + n, OWN * MIB)))
        )
        for n in range(BUILDS)
    ]
    gone = bring_in(node, "gone", 30, free)
    time.sleep(SETTLE_SECONDS)
    configuration = configure(directory, node, imageOrder=order, stateFile="")
    planned = answer(reclaimd_here("plan", "--config", configuration, "-o", "json"))["removals"]
    images: dict[str, dict[str, Any]] = {
        each["id"]: each for each in planned if each["kind"] == "image"
    }
    assert images.keys() == {*beside, *gone}
    nominal = promised = freed = 0
    for image_id, image in images.items():  # in their order
        before = available(node)
        node.cri.remove_image(image_id)
        gained = available(node) - before
        freed += gained
        nominal += abs(image["size"] - gained)
        promised += abs(image["frees"] - gained)
    assert app in node.cri.image_ids()
    total = sum(image["frees"] for image in images.values())
    print(
        f"{order}: {len(images)} images of {sum(i['size'] for i in images.values()) / MIB:.1f} MiB"
        f" as the runtime counts them; promised {total / MIB:.1f} MiB, freed {freed / MIB:.1f} MiB;"
        f" error, image by image: of sizes {nominal / freed:.1%}, of the promise"
        f" {promised / freed:.1%}"
    )
    assert total == pytest.approx(freed, rel=0.1)
    return nominal / freed, promised / freed


@pytest.mark.parametrize("order", ["lru", "cost"])
def test_a_plan_promises_what_images_do_not_share(
    make_node: NodeFactory, tmp_path: Path, order: str
) -> None:
    """On a containerd: within a tenth, where the sizes are wrong by more than all that is freed."""
    by_size, promised = errors(make_node(GIB), tmp_path, order)
    assert promised < 0.1 < 1.0 < by_size


def test_a_plan_on_a_crio_promises_what_images_do_not_share(tmp_path: Path) -> None:
    """By the files of its storage."""
    with running_node(tmp_path / "node", GIB, crio=crio_program()) as node:
        by_size, promised = errors(node, tmp_path, "lru")
    assert promised < 0.1 < by_size
