"""Pods are made from idle images while those are being reclaimed, on a real containerd.

Whatever images are removed meanwhile, a pod whose image is there when the kubelet calls ImageStatus is created, runs,
and keeps its image. If the image was removed before that call a kubelet would pull it again; here such a round is
counted as "gone before".
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import ToolError
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image, ImageTar, Layer, write_image
from tests.real_node.pods import Sandbox
from tests.real_node.runtime import ContainerRuntimeError
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon

ROUNDS, ROUNDS_OF_SOAK = 6, 300
IMAGES = 6
RUNNING = 1
OLD_ENOUGH_SECONDS = 0.2
LONGEST_IDLE_SECONDS = 1.6  # removals wait for 1 s after each pod


class Races:
    """A node under pressure that nothing relieves, so that its daemon removes every idle image."""

    def __init__(self, node: RealNode, outside: Path, seed: int) -> None:
        self.node = node
        self.chance = random.Random(seed)  # noqa: S311 # a repeatable sequence, no secret
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._tars: list[ImageTar] = [
            write_image(Image(f"reclaimd.test/idle/{number}:1", (BASE, Layer(number, (("data", 4096),)))), outside)
            for number in range(IMAGES)
        ]

    def round(self, number: int) -> None:
        """Imports an idle image; after a moment a pod is made from it, in a kubelet's order."""
        node, kubelet = self.node, self.node.kubelet
        tar = self.chance.choice(self._tars)
        uid = f"race-{number}-uid"
        if node.cri.image_status(tar.image_id) is None:
            try:
                node.containerd.import_image(tar, keep=True)  # as a pull would: it is idle from here on
            except (
                ToolError,
                ContainerRuntimeError,
            ):  # it, or its base layer, was reclaimed before the import was over
                self.counts["not pulled"] += 1
        time.sleep(self.chance.uniform(0.0, LONGEST_IDLE_SECONDS))
        kubelet.admit_pod(uid)
        sandbox = kubelet.run_pod(f"race-{number}", uid)
        if node.cri.image_status(tar.reference) is None:  # as the kubelet checks
            self.counts["gone before"] += 1
        else:
            self._create(sandbox, tar)
        node.cri.stop_sandbox(sandbox.id)
        node.cri.remove_sandbox(sandbox.id)
        kubelet.forget_pod(uid)

    def _create(self, sandbox: Sandbox, tar: ImageTar) -> None:
        kubelet, cri = self.node.kubelet, self.node.cri
        try:
            container = kubelet.run_container(sandbox, "app", tar.reference, SLEEP_FOR_EVER)
        except grpc.RpcError as error:
            self.wrong.append(f"{tar.reference}: {error.details()}")
            return
        self.counts["made"] += 1
        time.sleep(self.chance.uniform(0.0, 0.2))
        if kubelet.state_of(container) != RUNNING:
            self.wrong.append(f"{tar.reference}: the container does not run")
        if tar.image_id not in cri.image_ids():
            self.wrong.append(f"{tar.reference}: the container runs and its image is gone")


@contextmanager
def races(node: RealNode, directory: Path, seed: int) -> Iterator[Races]:
    """The daemon runs until the block ends."""
    configuration = configure(
        directory,
        node,
        evictionHard={"nodefs.available": "100Gi"},
        imageMinimumGCAge=f"{OLD_ENOUGH_SECONDS}s",
        pollCeiling="20ms",
    )
    with TemporaryDirectory(prefix="rn-image-") as outside, Daemon("--config", configuration) as daemon:
        made = Races(node, Path(outside), seed)
        yield made
        assert daemon.process.poll() is None
        made.counts["removed"] = sum(
            each["removals_by_result"].get("image", {}).get("removed", 0) for each in daemon.passes
        )


def raced(node: RealNode, directory: Path, rounds: int, seed: int) -> Races:
    """Runs `rounds` rounds; nothing went wrong in any, and images were removed meanwhile."""
    with races(node, directory, seed) as made:
        for number in range(rounds):
            made.round(number)
    assert made.wrong == []
    assert made.counts["removed"] > 0, "images were reclaimed meanwhile"
    assert made.counts["made"] > rounds // 10
    return made


def test_pods_are_made_from_idle_images_all_through_reclaim(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """In a few rounds every pod that is created runs, also if its image is removed at the same moment."""
    raced(containerd_on_ext4, tmp_path, ROUNDS, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_pods_are_made_from_idle_images_all_through_reclaim_300_times(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """300 rounds with a new seed each time, which is printed with the counts."""
    seed = time.time_ns()
    made = raced(containerd_on_ext4, tmp_path, ROUNDS_OF_SOAK, seed)
    print(f"seed {seed}; {ROUNDS_OF_SOAK} rounds of a race: {dict(made.counts)}")
