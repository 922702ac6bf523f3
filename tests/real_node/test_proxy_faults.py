"""A real containerd behind a proxy that misbehaves: guards hold, counts are true, and the work goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.drill.runtime.distortions import Distortion
from eviction.drill.runtime.failpoints import ActThenFail, Cut, Delay, Distort, Fail, MethodFault, When
from tests.faults.proxy import Proxy
from tests.nodes.real_node import RealNode
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd

MIB = 1 << 20
SPARE = 3
LONGEST_SECONDS = 30.0


class Behind:
    """A node with a running pod and three spare images, its containerd behind a proxy."""

    def __init__(self, node: RealNode, directory: Path) -> None:
        self.node = node
        self.proxy = Proxy(str(node.containerd.socket), str(node.containerd.run_directory / "p.sock"))
        self.failpoints = self.proxy.failpoints
        app = node.import_image(Image("reclaimd.test/app:1", (BASE, random_layer(99, MIB))))
        node.kubelet.admit_pod("web-uid")
        sandbox = node.kubelet.run_pod("web", "web-uid")
        self.running = node.kubelet.run_container(sandbox, "app", app, SLEEP_FOR_EVER)
        self.protected = {app, node.sandbox_image_id}
        self.spare = [
            node.import_image(Image(f"reclaimd.test/spare/{number}:1", (random_layer(number, 8 * MIB),)))
            for number in range(SPARE)
        ]
        time.sleep(1.1)  # then they are old enough
        mark = node.filesystem.available_bytes() + 256 * MIB  # more than all of them: every one goes
        self.configuration = configure(
            directory,
            node,
            containerRuntimeEndpoint=self.proxy.endpoint,
            evictionHard={"nodefs.available": str(mark)},
            evictionMinimumReclaim={"nodefs.available": "0"},
        )

    def spare_left(self) -> set[str]:
        """The spare images that are still there, by containerd itself."""
        return set(self.spare) & self.node.cri.image_ids()

    def reclaim(self) -> Any:
        """One pass of the hook; its record."""
        return answer(reclaimd("reclaim", "--config", self.configuration, "-o", "json"))

    def assert_guarded(self) -> None:
        """What runs still runs, and its image and that of sandboxes are there."""
        assert self.node.kubelet.state_of(self.running) == 1
        assert self.protected <= self.node.cri.image_ids()


@pytest.fixture
def behind(containerd_on_ext4: RealNode, tmp_path: Path) -> Iterator[Behind]:
    """The node with its proxy, serving."""
    made = Behind(containerd_on_ext4, tmp_path)
    with made.proxy:
        yield made
        made.failpoints.clear()


def results(record: Any) -> dict[str, str]:
    """Image id -> what the record says became of it."""
    return {each["id"]: each["result"] for each in record["removals"] if each["kind"] == "image"}


def test_the_proxy_passes_everything_on(behind: Behind) -> None:
    """Without a fault the pass is that of the runtime itself: three images go, nothing else, and calls are counted."""
    record = behind.reclaim()
    assert results(record) == dict.fromkeys(behind.spare, "removed")
    assert behind.spare_left() == set()
    assert behind.failpoints.calls["RemoveImage"] == SPARE
    behind.assert_guarded()


def test_removals_that_time_out_after_they_were_done_count_as_done(behind: Behind) -> None:
    """An error is not a failure: DEADLINE_EXCEEDED of each, all are absent, and all are counted, once."""
    behind.failpoints["RemoveImage"] = ActThenFail(grpc.StatusCode.DEADLINE_EXCEEDED, "context deadline exceeded")
    record = behind.reclaim()
    assert behind.spare_left() == set()
    assert results(record) == dict.fromkeys(behind.spare, "removed")
    assert all("deadline" in each["error"] for each in record["removals"] if each["kind"] == "image")
    sizes = sum(each["size"] for each in record["removals"] if each["kind"] == "image")
    assert record["nominal"]["bytes"] == sizes
    assert behind.failpoints.calls["RemoveImage"] == SPARE, "none is tried twice"
    behind.assert_guarded()


@pytest.mark.parametrize("method", ["ListContainers", "ListImages"])
def test_a_list_that_is_cut_licenses_nothing_and_the_next_pass_does_the_work(behind: Behind, method: str) -> None:
    """Half of a list and an error: no image goes; when the lists are whole again all three go."""
    behind.failpoints[method] = Cut(grpc.StatusCode.INTERNAL, "stream terminated by RST_STREAM")
    record = behind.reclaim()
    assert behind.spare_left() == set(behind.spare)
    assert results(record) == {}
    assert "RST_STREAM" in record["reason"]
    behind.failpoints.clear()
    assert results(behind.reclaim()) == dict.fromkeys(behind.spare, "removed")
    behind.assert_guarded()


def test_a_container_that_is_listed_twice_or_without_a_name_stays(behind: Behind) -> None:
    """The dead copy of a live pod stays, whatever the list makes of it."""
    kubelet = behind.node.kubelet
    kubelet.admit_pod("job-uid")
    sandbox = kubelet.run_pod("job", "job-uid")
    dead = [kubelet.run_container(sandbox, name, "reclaimd.test/app:1", ("/bin/true",)) for name in ("init", "job")]
    for container in dead:
        kubelet.wait_exited(container)
    for how in (Distortion.DUPLICATE_ENTRIES, Distortion.EMPTY_NAMES, Distortion.SHORT_IDS):
        behind.failpoints["ListContainers"] = Distort(how)
        behind.reclaim()
        assert {each.id for each in behind.node.cri.list_containers()} >= {*dead, behind.running}
    behind.assert_guarded()


def test_statuses_that_are_late_delay_the_work_and_change_nothing(behind: Behind) -> None:
    """0.3 s late each; a status is as old as its answer, so the dead container of a gone pod goes all the same."""
    kubelet = behind.node.kubelet
    kubelet.admit_pod("gone-uid")
    sandbox = kubelet.run_pod("gone", "gone-uid")
    dead = kubelet.run_container(sandbox, "app", "reclaimd.test/app:1", ("/bin/true",))
    kubelet.wait_exited(dead)
    kubelet.end_pod(sandbox)
    time.sleep(11.0)  # from 10 s on what a pod left behind is its own no more
    behind.failpoints["ContainerStatus"] = Delay(0.3)
    record = behind.reclaim()
    assert {each["id"]: each["result"] for each in record["removals"] if each["kind"] == "container"} == {
        dead: "removed"
    }
    assert dead not in {each.id for each in behind.node.cri.list_containers()}
    behind.assert_guarded()


def test_bursts_of_unavailable_are_waited_out_by_the_daemon(behind: Behind) -> None:
    """Every method fails for 1.5 s, then now and then: the daemon goes on until all three images have gone."""
    for number, method in enumerate(("ListContainers", "ListImages", "ListPodSandbox", "ImageStatus", "RemoveImage")):
        lost = Fail(grpc.StatusCode.UNAVAILABLE, "error reading from server: EOF")
        behind.failpoints.add(MethodFault(method, lost, When(for_seconds=1.5)))
        behind.failpoints.add(MethodFault(method, lost, When(after_seconds=1.5, probability=0.2, seed=number)))
    with Daemon("--config", behind.configuration) as daemon:
        assert came_true(lambda: not behind.spare_left())
        behind.failpoints.clear()
        assert daemon.process.poll() is None
        assert not daemon.said("NOT AN EVENT"), "every line is one JSON object"
        assert not daemon.said("Error"), "no defect came to light"
        told = [o["id"] for p in daemon.passes for o in p["removals"] if o["result"] == "removed"]
        assert sorted(told) == sorted(set(told)), "nothing is counted twice"
        assert daemon.stop() == 0
    behind.assert_guarded()
