"""A runtime that is replaced by another version while the agent runs: what
it can do is asked again.

containerd has image volumes since 2.1, and only the status of a container names such an image.
Containers survive the replacement of their runtime, and so does the agent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reclaim.cri import cri_pb2 as pb
from signals.types import Signal
from tests.nodes.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_31, Dialect
from tests.nodes.faults import Hang
from tests.nodes.small_node import IMAGES, MIB, Pod, SmallNode, reason_of, relieve
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.conftest import SmallNodeFactory

DATA = "registry.example/data:1"
WITHOUT_IMAGE_VOLUMES = replace(CONTAINERD_2, runtime_version="1.7.27")
BEFORE_IMAGE_VOLUMES = replace(CONTAINERD_2, runtime_version="2.0.4")


def swap(small: SmallNode, dialect: Dialect) -> None:
    """Replaces the stopped runtime by another version, which has the same
    objects and the same socket.
    """
    small.runtime.dialect = dialect


def mounting(small: SmallNode, pod: Pod) -> str:
    """A running container that mounts the image DATA, without a call over the socket."""
    mount = pb.Mount(container_path="/data", image=pb.ImageSpec(image=DATA))
    container = small.create(pod, mounts=[mount])
    small.start(container)
    return container


@pytest.mark.regression
@pytest.mark.parametrize(
    "old", [CONTAINERD_1_6, WITHOUT_IMAGE_VOLUMES, BEFORE_IMAGE_VOLUMES], ids=["1.6", "1.7", "2.0"]
)
def test_an_image_volume_is_kept_when_the_runtime_was_replaced_by_one_that_has_them(
    make_small_node: SmallNodeFactory, old: Dialect
) -> None:
    """What a runtime can do is not remembered beyond its connection."""
    small = make_small_node(dialect=old)
    data = small.add_image(DATA)
    pod = small.run_pod("web")
    small.run(pod)
    node = small.node()
    node.detection.images()
    small.server.stop()
    swap(small, CONTAINERD_2)
    small.server.start()
    mounting(small, pod)
    record = relieve(node, IMAGES)
    assert data in small.images()
    assert reason_of(record, data) == "in_use"


@pytest.mark.regression
def test_a_running_daemon_keeps_an_image_volume_of_the_runtime_that_replaced_another(
    make_small_node: SmallNodeFactory, tmp_path: Path
) -> None:
    """The same in a daemon that has asked the old runtime, and relieves pressure on the new one."""
    small = make_small_node(dialect=WITHOUT_IMAGE_VOLUMES)
    data, old = small.add_image(DATA), small.add_image("registry.example/old:1")
    pod = small.run_pod("web")
    small.run(pod)
    records = tmp_path / "images.json"
    configuration = small.configuration(
        Signal.NODEFS_AVAILABLE, above=-8 * MIB, extent="all", stateFile=str(records)
    )
    with Daemon("--config", configuration) as daemon:
        assert came_true(records.exists), "it has listed the images of the old runtime"
        small.server.stop()
        swap(small, CONTAINERD_2)
        small.server.start()
        mounting(small, pod)
        small.fill(9 * MIB)
        daemon.wait_for(lambda event: event.get("result") in ("satisfied", "not_enough"))
        assert daemon.stop() == 0
    assert old in small.removed("image")
    assert data in small.images()


@pytest.mark.regression
@pytest.mark.parametrize(
    "method", ["ListImages", "ListContainers", "ListPodSandbox", "ImageStatus"]
)
def test_a_list_of_the_new_runtime_is_not_judged_by_the_version_of_the_old_one(
    make_small_node: SmallNodeFactory, method: str
) -> None:
    """Replaced while the lists are read: what was asked before does not hold
    for what is listed after.
    """
    small = make_small_node(dialect=WITHOUT_IMAGE_VOLUMES)
    data = small.add_image(DATA)
    pod = small.run_pod("web")
    small.run(pod)
    node = small.node()
    node.detection.images()
    small.failpoints[method] = Hang(times=1)
    asked = small.failpoints.calls[method]
    with small.relieving(node, IMAGES) as going:
        small.wait_for(method, asked + 1)
        small.server.stop()
        swap(small, CONTAINERD_2)
        mounting(small, pod)
        small.server.start()
        going.result()
    assert data in small.images()
    assert reason_of(relieve(node, IMAGES), data) == "in_use", (
        "the next pass goes by the new runtime alone"
    )


@pytest.mark.regression
@pytest.mark.parametrize("what", ["the version", "the sandbox image"])
def test_a_runtime_that_is_replaced_during_a_pass_ends_its_removal_of_images(
    make_small_node: SmallNodeFactory, what: str
) -> None:
    """The plan was made by what the old one said: whose image is mounted,
    and which one new pods need.
    """
    small = make_small_node(
        dialect=WITHOUT_IMAGE_VOLUMES, pins_sandbox_image=False, reports_sandbox_image=True
    )
    data = small.add_image(DATA)
    pod = small.run_pod("web")  # it has no container yet, so removals wait
    node = small.node(holdOffForNewPods="1s")
    node.detection.images()
    asked = small.failpoints.calls["ListPodSandbox"]
    with small.relieving(node, IMAGES) as going:
        # of the plan, and right before the first removal
        small.wait_for("ListPodSandbox", asked + 2)
        small.server.stop()
        if what == "the version":
            swap(small, CONTAINERD_2)
            mounting(small, pod)
        else:
            small.runtime.sandbox_image = DATA
        small.server.start()
        going.result()
    assert data in small.images()


@pytest.mark.regression
def test_an_image_volume_is_kept_when_the_runtime_was_taken_back_to_one_without_them(
    make_small_node: SmallNodeFactory,
) -> None:
    """A container runs on with its volume when its runtime is replaced by an older one:
    what is known of it stays.
    """
    small = make_small_node(dialect=CONTAINERD_2)
    data = small.add_image(DATA)
    mounting(small, small.run_pod("web"))
    node = small.node()
    node.detection.images()
    small.server.stop()
    swap(small, WITHOUT_IMAGE_VOLUMES)
    small.server.start()
    relieve(node, IMAGES)
    assert data in small.images()


@pytest.mark.regression
def test_a_cold_start_keeps_an_image_volume_after_a_step_back_to_containerd_2_0(
    make_small_node: SmallNodeFactory,
) -> None:
    """2.0 mounts no images, but it knows the field, and the container that 2.1 has made runs on."""
    small = make_small_node(dialect=CONTAINERD_2)
    data = small.add_image(DATA)
    mounting(small, small.run_pod("web"))
    small.server.stop()
    swap(small, BEFORE_IMAGE_VOLUMES)
    small.server.start()
    relieve(small.node(), IMAGES)
    assert data in small.images()


def test_what_another_runtime_did_not_say_is_asked_again(make_small_node: SmallNodeFactory) -> None:
    """That a container mounts nothing is remembered of the runtime that has said it."""
    small = make_small_node(dialect=CRI_O_1_31)
    pod = small.run_pod("web")
    container = small.run(pod)
    node = small.node()
    node.detection.images()
    asked = small.failpoints.calls["ContainerStatus"]
    node.detection.images()
    assert small.failpoints.calls["ContainerStatus"] == asked, "the same runtime is not asked twice"
    small.server.stop()
    swap(small, CONTAINERD_2)
    small.server.start()
    node.detection.images()
    assert small.failpoints.calls["ContainerStatus"] == asked + 1
    assert container in small.containers()
