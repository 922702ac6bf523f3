"""What hangs on a real containerd: a removal, which is waited for while the others
relieve the disk, or a shim.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reclaim.cri.client import CriClient
from reclaim.types import AnsweredLate, RuntimeUnavailable
from tests.faults.proxy import Proxy
from tests.nodes.faults import Hang
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image, random_layer, write_images
from tests.real_node.runtime import SANDBOX_IMAGE
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here
from tests.stopped import stopped

MIB = 1 << 20
IMAGES = 6
IMAGE_MIB = 8
PATIENCE_SECONDS = 2.0
PROMISED_SECONDS = 2.0  # beyond the patience
SLACK = 10.0  # times as long may it take on a busy machine
RUN_AND_END = ("/bin/sleep", "0")


class DeadCopyNode:
    """A node with a running pod in which two copies of a container are dead, so that the older one
    may go, and six images that nobody uses."""

    def __init__(self, node: RealNode, directory: Path):
        self.node = node
        kubelet = node.kubelet
        self.app = node.import_image(Image("reclaimd.test/app:1", (BASE, random_layer(99, MIB))))
        kubelet.admit_pod("web-uid")
        sandbox = kubelet.run_pod("web", "web-uid")
        self.running = kubelet.run_container(sandbox, "app", self.app, SLEEP_FOR_EVER)
        self.dead = [
            kubelet.run_container(sandbox, "job", self.app, RUN_AND_END, attempt)
            for attempt in range(2)
        ]
        for each in self.dead:
            kubelet.wait_exited(each)
        layers = [(random_layer(number, IMAGE_MIB * MIB),) for number in range(IMAGES)]
        tars = write_images(
            [
                Image(f"reclaimd.test/unused/{number}:1", layer)
                for number, layer in enumerate(layers)
            ],
            directory,
        )
        self.unused = set(node.containerd.import_images(tars))
        self.proxy = Proxy(
            str(node.containerd.socket), str(node.containerd.run_directory / "proxy.sock")
        )

    def relieved(self, directory: Path) -> tuple[Daemon, float]:
        """A daemon under pressure that about half of the images relieve, and how
        long it took to relieve it.
        """
        mark = self.node.filesystem.available_bytes() + IMAGES // 2 * IMAGE_MIB * MIB
        configuration = configure(
            directory,
            self.node,
            containerRuntimeEndpoint=self.proxy.endpoint,
            evictionHard={"nodefs.available": str(mark)},
            evictionMinimumReclaim={"nodefs.available": "0"},
            imageMinimumGCAge="0s",
            removalPatience=f"{PATIENCE_SECONDS:g}s",
        )
        daemon = Daemon("--config", configuration)
        daemon.__enter__()
        began = time.monotonic()
        came_true(lambda: self.node.filesystem.available_bytes() >= mark)
        return daemon, time.monotonic() - began

    def assert_guarded(self) -> None:
        """What must stay is there, and it was the images that relieved the
        disk, not all of them.
        """
        kubelet, images = self.node.kubelet, self.node.cri.image_ids()
        assert kubelet.state_of(self.running) == 1
        assert self.dead[1] in {each.id for each in self.node.cri.list_containers()}
        assert {self.app, self.node.sandbox_image_id} <= images
        assert 1 <= len(self.unused & images) < IMAGES


@pytest.fixture
def dead_copy_node(tmp_path: Path) -> Iterator[DeadCopyNode]:
    """The node, gone after the test."""
    with running_node(tmp_path / "node", GIB) as node:
        made = DeadCopyNode(node, tmp_path)
        with made.proxy:
            yield made
            made.proxy.failpoints.clear()


def copies(made: DeadCopyNode) -> set[str]:
    """The dead copies that are left."""
    return set(made.dead) & {each.id for each in made.node.cri.list_containers()}


@pytest.mark.regression
def test_a_container_whose_removal_hangs_holds_up_nothing_else(
    dead_copy_node: DeadCopyNode, tmp_path: Path
) -> None:
    """RemoveContainer is not answered: after the patience images go; when it is
    answered at last, that is told.
    """
    made = dead_copy_node
    made.proxy.failpoints["RemoveContainer"] = Hang()
    daemon, seconds = made.relieved(tmp_path)
    try:
        assert seconds < (PATIENCE_SECONDS + PROMISED_SECONDS) * SLACK
        assert daemon.logged("is not answered; it is waited for")
        made.assert_guarded()
        assert copies(made) == set(made.dead)
        made.proxy.failpoints.clear()
        assert came_true(lambda: copies(made) == {made.dead[1]})
        daemon.wait_for(lambda event: "the parked removal has ended" in event["message"])
    finally:
        daemon.__exit__(None, None, None)
    print(
        f"relieved {seconds:.2f} s after the start of the daemon; the patience was"
        f" {PATIENCE_SECONDS:g} s"
    )


def test_a_shim_that_is_stopped_while_its_container_is_removed_holds_up_nothing_else(
    dead_copy_node: DeadCopyNode, tmp_path: Path
) -> None:
    """SIGSTOP for the shim of the pod: whatever that does to the removal of its dead
    copy, images relieve the disk.
    """
    made = dead_copy_node
    shims = made.node.containerd.monitors()
    for shim in shims:
        os.kill(shim, signal.SIGSTOP)
    try:
        daemon, seconds = made.relieved(tmp_path)
        daemon.__exit__(None, None, None)
    finally:
        for shim in shims:
            os.kill(shim, signal.SIGCONT)
    assert seconds < (PATIENCE_SECONDS + PROMISED_SECONDS) * SLACK
    made.assert_guarded()
    print(
        f"relieved {seconds:.2f} s after the start of the daemon; the patience was"
        f" {PATIENCE_SECONDS:g} s"
    )


@pytest.mark.regression
def test_a_shim_that_hangs_keeps_no_unused_image(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """containerd asks it for the status of its sandbox, which would say which image the sandbox was
    made from. That is known: by the configuration (1.x), or by the pin (2.x, whose status does not
    contain the configuration of images).
    """
    node = containerd_on_ext4
    node.kubelet.admit_pod("web-uid")
    sandbox = node.kubelet.run_pod("web", "web-uid")
    node.kubelet.run_container(sandbox, "app", node.sandbox_image_id, SLEEP_FOR_EVER)
    spare = node.import_image(Image("reclaimd.test/spare:1", (random_layer(1, MIB),)))
    configuration = configure(tmp_path, node, stateFile="", imageMinimumGCAge="0s")
    (shim,) = node.containerd.monitors()
    with stopped(shim):
        planned = answer(reclaimd_here("plan", "--config", configuration, "-o", "json"))
    assert [each["id"] for each in planned["removals"]] == [spare]


@pytest.mark.regression
def test_a_deadline_that_containerd_sees_first_has_passed_too(containerd_on_ext4: RealNode) -> None:
    """At the deadline containerd resets the call, which had ended as cancelled; or it
    answers without the shim.
    """
    node = containerd_on_ext4
    node.kubelet.admit_pod("web-uid")
    sandbox = node.kubelet.run_pod("web", "web-uid")
    (shim,) = node.containerd.monitors()
    with closing(CriClient(str(node.containerd.socket))) as client, stopped(shim):
        for _ in range(50):
            try:
                answered, late = client.image_of_sandbox(sandbox.id, 0.02), False
            except RuntimeUnavailable as error:
                answered, late = str(error), isinstance(error, AnsweredLate)
            assert late or answered == SANDBOX_IMAGE
