"""A real containerd behind a faulty proxy: guards hold, the record is true, and a
later pass does the rest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.configuration.effective import load
from eviction.engine.node import Node
from tests.faults.proxy import Proxy
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import ActThenFail, Cut, Delay, Fail
from tests.nodes.later import Later
from tests.nodes.method_faults import MethodFault, When, arm
from tests.nodes.real_node import GIB, RealNode, running_node
from tests.nodes.small_node import relieve
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image, random_layer, write_images
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, reclaimd_here

MIB = 1 << 20
UNUSED_IMAGES = 3
LONGEST_SECONDS = 30.0


class SharedNode:
    """A node with a running pod, for all tests of this file; three unused images
    are imported before each.
    """

    def __init__(self, node: RealNode, outside: Path) -> None:
        self.node = node
        app = node.import_image(Image("reclaimd.test/app:1", (BASE, random_layer(99, MIB))))
        node.kubelet.admit_pod("web-uid")
        self._sandbox = node.kubelet.run_pod("web", "web-uid")
        self.running = node.kubelet.run_container(self._sandbox, "app", app, SLEEP_FOR_EVER)
        self.protected = {app, node.sandbox_image_id}
        self._tars = write_images(
            [
                Image(f"reclaimd.test/unused/{n}:1", (random_layer(n, 2 * MIB),))
                for n in range(UNUSED_IMAGES)
            ],
            outside,
        )
        self.unused = [tar.image_id for tar in self._tars]

    def populate(self) -> None:
        """Import the unused images; then the node is as every test expects it."""
        self.node.containerd.import_images(self._tars, keep=True)
        assert self.node.cri.image_ids() == {*self.unused, *self.protected}
        assert {each.id for each in self.node.cri.list_containers()} == {self.running}
        assert {each.id for each in self.node.cri.list_sandboxes()} == {self._sandbox.id}
        assert os.listdir(self.node.kubelet.root_dir / "pods") == [self._sandbox.uid]

    def tidy(self) -> None:
        """Remove the pods that a test has added."""
        for sandbox in self.node.cri.list_sandboxes():
            if sandbox.id != self._sandbox.id:
                self.node.cri.stop_sandbox(sandbox.id)
                self.node.cri.remove_sandbox(sandbox.id)
                shutil.rmtree(
                    self.node.kubelet.pod_directory(sandbox.metadata.uid), ignore_errors=True
                )


class ProxiedNode:
    """The node, its containerd behind a proxy."""

    def __init__(self, shared: SharedNode, directory: Path) -> None:
        self.node = node = shared.node
        self.running, self.protected, self.unused = shared.running, shared.protected, shared.unused
        socket = node.containerd.run_directory / f"{directory.name[-30:]}.sock"
        self.proxy = Proxy(str(node.containerd.socket), str(socket))
        self.failpoints = self.proxy.failpoints
        # more than all of them free: every one is removed
        mark = node.filesystem.available_bytes() + 256 * MIB
        self.configuration = configure(
            directory,
            node,
            containerRuntimeEndpoint=self.proxy.endpoint,
            evictionHard={"nodefs.available": str(mark)},
            evictionMinimumReclaim={"nodefs.available": "0"},
            imageMinimumGCAge="0s",
        )

    def unused_left(self) -> set[str]:
        """The unused images that containerd itself still lists."""
        return set(self.unused) & self.node.cri.image_ids()

    def reclaim(self) -> Any:
        """One `reclaimd reclaim`; its record."""
        return answer(reclaimd_here("reclaim", "--config", self.configuration, "-o", "json"))

    def assert_guarded(self) -> None:
        """The running container still runs, and its image and the sandbox image are there."""
        assert self.node.kubelet.state_of(self.running) == 1
        assert self.protected <= self.node.cri.image_ids()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedNode]:
    """The node of this file; nothing is done to it but through the runtime."""
    outside = tmp_path_factory.mktemp("images")
    with running_node(tmp_path_factory.mktemp("shared"), GIB) as node:
        yield SharedNode(node, outside)


@pytest.fixture
def proxied(shared: SharedNode, tmp_path: Path) -> Iterator[ProxiedNode]:
    """The node with its proxy, serving."""
    shared.populate()
    made = ProxiedNode(shared, tmp_path)
    with made.proxy:
        yield made
        made.failpoints.clear()
    shared.tidy()


def results(record: Any) -> dict[str, str]:
    """Image id -> its result in the record."""
    return {each["id"]: each["result"] for each in record["removals"] if each["kind"] == "image"}


def test_the_proxy_passes_everything_on(proxied: ProxiedNode) -> None:
    """Without a fault the pass removes the three images and nothing else, and calls are counted."""
    record = answer(reclaimd("reclaim", "--config", proxied.configuration, "-o", "json"))
    assert results(record) == dict.fromkeys(proxied.unused, "removed")
    assert proxied.unused_left() == set()
    assert proxied.failpoints.calls["RemoveImage"] == UNUSED_IMAGES
    proxied.assert_guarded()


def test_lists_too_large_for_one_message_come_as_streams_or_not_at_all(
    proxied: ProxiedNode,
) -> None:
    """containerd streams them since 2.4 (KEP-5825), and the pass removes the three images and
    nothing else. An older one does not, and nothing is removed."""
    for method in ("ListContainers", "ListPodSandbox", "ListImages"):
        proxied.failpoints[method] = Fail(
            grpc.StatusCode.RESOURCE_EXHAUSTED, "a message larger than max"
        )
    process = reclaimd("reclaim", "--config", proxied.configuration, "-o", "json")
    if streams_lists(proxied.node):
        assert results(answer(process)) == dict.fromkeys(proxied.unused, "removed")
        assert proxied.unused_left() == set()
    else:
        assert "failed with RESOURCE_EXHAUSTED: a message larger than max" in process.stdout
        assert proxied.unused_left() == set(proxied.unused)
    proxied.assert_guarded()


def streams_lists(node: RealNode) -> bool:
    """Whether its containerd has the streaming variants of the list calls."""
    major, minor = node.cri.version().runtime_version.lstrip("v").split(".")[:2]
    return (int(major), int(minor)) >= (2, 4)


def test_removals_that_time_out_after_they_were_done_count_as_done(proxied: ProxiedNode) -> None:
    """Every removal acts and fails with DEADLINE_EXCEEDED: each absent
    image counts as removed, once.
    """
    proxied.failpoints["RemoveImage"] = ActThenFail(
        grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded"
    )
    record = proxied.reclaim()
    assert proxied.unused_left() == set()
    assert results(record) == dict.fromkeys(proxied.unused, "removed")
    assert all(
        "deadline" in each["error"] for each in record["removals"] if each["kind"] == "image"
    )
    sizes = sum(each["size"] for each in record["removals"] if each["kind"] == "image")
    assert record["nominal"]["bytes"] == sizes
    assert proxied.failpoints.calls["RemoveImage"] == UNUSED_IMAGES, "none is tried twice"
    proxied.assert_guarded()


@pytest.mark.parametrize("method", ["ListContainers", "ListImages"])
def test_a_cut_list_removes_nothing_and_the_next_pass_removes_all(
    proxied: ProxiedNode, method: str
) -> None:
    """After half of a list and an error no image is removed; with whole lists all three are."""
    proxied.failpoints[method] = Cut(grpc.StatusCode.INTERNAL, "stream terminated by RST_STREAM")
    record = proxied.reclaim()
    assert proxied.unused_left() == set(proxied.unused)
    assert results(record) == {}
    assert "RST_STREAM" in record["reason"]
    proxied.failpoints.clear()
    assert results(proxied.reclaim()) == dict.fromkeys(proxied.unused, "removed")
    proxied.assert_guarded()


def test_a_container_that_is_listed_twice_or_without_a_name_is_kept(proxied: ProxiedNode) -> None:
    """The dead copy of a live pod is kept, however the list distorts it."""
    kubelet = proxied.node.kubelet
    kubelet.admit_pod("job-uid")
    sandbox = kubelet.run_pod("job", "job-uid")
    dead = [
        kubelet.run_container(sandbox, name, "reclaimd.test/app:1", ("/bin/true",))
        for name in ("init", "job")
    ]
    for container in dead:
        kubelet.wait_exited(container)
    for how in (Distortion.DUPLICATE_ENTRIES, Distortion.EMPTY_NAMES, Distortion.SHORT_IDS):
        proxied.failpoints["ListContainers"] = Distort(how)
        proxied.reclaim()
        assert {each.id for each in proxied.node.cri.list_containers()} >= {*dead, proxied.running}
    proxied.assert_guarded()


def test_late_statuses_delay_a_pass_and_do_not_change_it(proxied: ProxiedNode) -> None:
    """Each is 0.3 s late; a status counts from its answer, so the dead container of a
    deleted pod is still removed.
    """
    kubelet = proxied.node.kubelet
    kubelet.admit_pod("gone-uid")
    sandbox = kubelet.run_pod("gone", "gone-uid")
    dead = kubelet.run_container(sandbox, "app", "reclaimd.test/app:1", ("/bin/true",))
    kubelet.wait_exited(dead)
    kubelet.end_pod(sandbox)
    proxied.failpoints["ContainerStatus"] = Delay(0.3)
    node = Node(load(proxied.configuration, {}, {}), clock=Later())
    try:
        record = relieve(node)
    finally:
        node.close()
    assert {
        each.verdict.id: str(each.result)
        for each in record.removals
        if each.verdict.kind == "container"
    } == {dead: "removed"}
    assert dead not in {each.id for each in proxied.node.cri.list_containers()}
    proxied.assert_guarded()


def test_the_daemon_goes_on_through_bursts_of_unavailable(proxied: ProxiedNode) -> None:
    """Every method fails for 1.5 s, then at random: the daemon goes on until all
    three images are removed.
    """
    for number, method in enumerate(
        ("ListContainers", "ListImages", "ListPodSandbox", "ImageStatus", "RemoveImage")
    ):
        lost = Fail(grpc.StatusCode.UNAVAILABLE, "error reading from server: EOF")
        arm(proxied.failpoints, MethodFault(method, lost, When(for_seconds=1.5)))
        arm(
            proxied.failpoints,
            MethodFault(method, lost, When(after_seconds=1.5, probability=0.2, seed=number)),
        )
    with Daemon("--config", proxied.configuration) as daemon:
        assert came_true(lambda: not proxied.unused_left())
        proxied.failpoints.clear()
        assert daemon.process.poll() is None
        assert not daemon.logged("NOT AN EVENT"), "every line is one JSON object"
        assert not daemon.logged("Error"), "no exception was logged"
        reported = [
            o["id"] for p in daemon.passes for o in p["removals"] if o["result"] == "removed"
        ]
        assert sorted(reported) == sorted(set(reported)), "nothing is counted twice"
        assert daemon.stop() == 0
    proxied.assert_guarded()
