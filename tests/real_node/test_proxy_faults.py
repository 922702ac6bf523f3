"""A real containerd behind a faulty proxy: guards hold, the record is true, and a
later pass does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.faults.proxy import Proxy
from tests.nodes.faults import ActThenFail, Cut, Fail, Failpoint, Hang
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.real_node.loopfs import MIB
from tests.real_node.oci import BASE, Image, random_layer, write_images
from tests.real_node.steps import configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here

UNUSED_IMAGES = 3
APP = "reclaimd.test/app:1"


class SharedNode:
    """A node with a running pod, for all tests of this file; three unused images
    are imported before each.
    """

    def __init__(self, node: RealNode, outside: Path) -> None:
        self.node = node
        app = node.import_image(Image(APP, (BASE, random_layer(99, MIB))))
        self.pod = node.kubelet.pod("web")
        self.running = node.kubelet.run_container(self.pod, "app", app)
        self.protected = {app, node.sandbox_image_id}
        recipes = [
            Image(f"reclaimd.test/unused/{n}:1", (random_layer(n, 2 * MIB),))
            for n in range(UNUSED_IMAGES)
        ]
        self.tars = write_images(recipes, outside)
        self.unused = [tar.image_id for tar in self.tars]


class ProxiedNode:
    """The node, its containerd behind a proxy."""

    def __init__(self, shared: SharedNode, directory: Path) -> None:
        self.node, self.shared = shared.node, shared
        self.kubelet, self.unused = shared.node.kubelet, shared.unused
        shared.node.containerd.import_images(shared.tars, keep=True)
        assert self.node.cri.image_ids() == {*shared.unused, *shared.protected}
        assert self.node.cri.container_ids() == {shared.running}
        socket = self.node.containerd.run_directory / f"{directory.name[-30:]}.sock"
        self.proxy = Proxy(str(self.node.containerd.socket), str(socket))
        self.failpoints = self.proxy.failpoints
        self.configuration = configure(
            directory,
            self.node,
            containerRuntimeEndpoint=self.proxy.endpoint,
            # more than all of them free: every one is removed
            nodefs=self.node.filesystem.available_bytes() + 256 * MIB,
            imageMinimumGCAge="0s",
            removalPatience="2s",
        )

    def unused_left(self) -> set[str]:
        """The unused images that containerd itself still lists."""
        return set(self.unused) & self.node.cri.image_ids()

    def reclaim(self) -> Any:
        """One `reclaimd reclaim`; its record."""
        return answer(reclaimd_here("reclaim", "--config", self.configuration, "-o", "json"))

    def tidy(self) -> None:
        """Removes the pods that a test has added. The first one has run all the while, and its
        image and the sandbox image are there."""
        assert self.kubelet.runs(self.shared.running)
        assert self.shared.protected <= self.node.cri.image_ids()
        for sandbox in self.node.cri.list_sandboxes():
            if sandbox.id != self.shared.pod.id:
                self.node.cri.stop_sandbox(sandbox.id)
                self.node.cri.remove_sandbox(sandbox.id)
                self.kubelet.forget_pod(sandbox.metadata.uid)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedNode]:
    """The node of this file; nothing is done to it but through the runtime."""
    outside = tmp_path_factory.mktemp("images")
    with running_node(tmp_path_factory.mktemp("shared"), GIB) as node:
        yield SharedNode(node, outside)


@pytest.fixture
def proxied(shared: SharedNode, tmp_path: Path) -> Iterator[ProxiedNode]:
    """The node with its proxy, serving."""
    made = ProxiedNode(shared, tmp_path)
    with made.proxy:
        yield made
        made.failpoints.clear()
    made.tidy()


def streams_lists(node: RealNode) -> bool:
    """Whether its containerd has the streaming variants of the list calls."""
    major, minor = node.cri.version().runtime_version.lstrip("v").split(".")[:2]
    return (int(major), int(minor)) >= (2, 4)


TOO_LARGE = Fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "a message larger than max")
CUT = Cut(grpc.StatusCode.INTERNAL, "stream terminated by RST_STREAM")
LATE = ActThenFail(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        pytest.param({}, None, id="none: the proxy passes everything on"),
        pytest.param({"RemoveImage": LATE}, None, id="removals that fail after they were done"),
        pytest.param({"ListContainers": CUT}, "RST_STREAM", id="half of the containers"),
        pytest.param({"ListImages": CUT}, "RST_STREAM", id="half of the images"),
        # containerd streams them since 2.4 (KEP-5825)
        pytest.param(
            dict.fromkeys(("ListContainers", "ListPodSandbox", "ListImages"), TOO_LARGE),
            "failed with RESOURCE_EXHAUSTED: a message larger than max",
            id="lists too large for one message",
        ),
    ],
)
def test_all_that_may_go_goes_once_or_nothing_does_and_the_next_pass_removes_all(
    proxied: ProxiedNode, faults: dict[str, Failpoint], told: str | None
) -> None:
    """Nothing where a list is not whole; an image that is absent after an error counts as removed,
    and is not tried twice."""
    proxied.failpoints.update(faults)
    record = proxied.reclaim()
    if told is not None and not (TOO_LARGE in faults.values() and streams_lists(proxied.node)):
        assert told in record["reason"]
        assert (record["removals"], proxied.unused_left()) == ([], set(proxied.unused))
        proxied.failpoints.clear()
        record = proxied.reclaim()
    images = [each for each in record["removals"] if each["kind"] == "image"]
    assert {each["id"]: each["result"] for each in images} == dict.fromkeys(
        proxied.unused, "removed"
    )
    assert record["nominal"]["bytes"] == sum(each["size"] for each in images)
    assert all(
        ("deadline" in (each["error"] or "")) is (LATE in faults.values()) for each in images
    )
    assert proxied.unused_left() == set()
    assert proxied.failpoints.calls["RemoveImage"] == UNUSED_IMAGES


@pytest.mark.regression
def test_a_container_whose_removal_hangs_holds_up_nothing_else(proxied: ProxiedNode) -> None:
    """RemoveContainer is not answered: after the patience images go; when it is
    answered at last, that is told.
    """
    pod = proxied.kubelet.pod("job")
    older, newest = (proxied.kubelet.run_to_end(pod, "job", APP, attempt=n) for n in range(2))
    proxied.failpoints["RemoveContainer"] = Hang()
    with Daemon("--config", proxied.configuration) as daemon:
        assert came_true(lambda: not proxied.unused_left())
        assert daemon.logged("is not answered; it is waited for")
        assert {older, newest} < proxied.node.cri.container_ids()
        proxied.failpoints.clear()
        assert came_true(lambda: older not in proxied.node.cri.container_ids())
        daemon.wait_for(lambda event: "the parked removal has ended" in event["message"])
    assert newest in proxied.node.cri.container_ids()
