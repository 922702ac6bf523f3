"""What can happen on a node, each as one small step: between two passes, and between two calls of a pass.

A step takes the world and a number that chooses the object. It returns whether anything happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from eviction.drill.runtime.runtime import Container, Sandbox
from eviction.drill.scenario import RestartPolicy
from reclaim.cri import cri_pb2 as pb
from tests.model.kubelet import Pod
from tests.model.world import IMAGES, KEPT_TAG, KIB, World

Step = Callable[[World, int], bool]
Thing = TypeVar("Thing")
MOST_PODS = 5
STEPS_TO_RUN = 6  # log directory, sandbox, perhaps the pulls, container, start
POLICIES = (RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE, RestartPolicy.NEVER)
SECONDS = (0.06, 1.2, 3.0, 11.0, 30.0, 125.0, 700.0)


def one_of(things: Sequence[Thing], pick: int) -> Thing | None:
    """The element that a number picks, None of an empty sequence."""
    return things[pick % len(things)] if things else None


def _running(world: World) -> list[Container]:
    return [
        each
        for pod in world.kubelet.pods
        for each in world.runtime.containers_of(pod)
        if each.state == pb.CONTAINER_RUNNING
    ]


def _sandboxes(world: World) -> list[Sandbox]:
    return [each for pod in world.kubelet.pods for each in world.runtime.sandboxes_of(pod)]


def _live(world: World) -> list[Pod]:
    return [pod for pod in world.kubelet.pods.values() if not pod.over]


def pod_is_created(world: World, pick: int) -> bool:
    """A pod is admitted: its directory is there, and nothing else of it yet."""
    if len(world.kubelet.pods) >= MOST_PODS:
        return pod_is_deleted(world, pick)
    logs = world.canary.directory if pick % 11 == 0 else None
    _admit(world, pick, pick // 2 % 3, volume=pick % 2 == 0, by_digest=pick // 13 % 2 == 0, logs=logs)
    return True


def _admit(world: World, pick: int, inits: int, *, volume: bool, by_digest: bool, logs: Path | None = None) -> Pod:
    image, other = IMAGES[pick % len(IMAGES)], IMAGES[(pick + 1) % len(IMAGES)]
    mounts = volume and world.runtime.mounts_images
    images = image, IMAGES[(pick + 2) % len(IMAGES)]
    pod = world.kubelet.admit(images, other if mounts else "", POLICIES[pick // 7 % 3], inits, logs)
    pod.by_digest = by_digest
    return pod


def pod_runs(world: World, pick: int, *, volume: bool, by_digest: bool, inits: int = 0) -> None:
    """A pod is admitted and its first container runs, whatever else is there."""
    pod = _admit(world, pick, inits, volume=volume, by_digest=by_digest)
    for _ in range(STEPS_TO_RUN):
        world.kubelet.sync(pod)


def pod_begins_and_runs(world: World, pick: int) -> bool:
    """A pod begins and runs at once: its directory, its sandbox and its containers, between two calls of a pass."""
    if len(world.kubelet.pods) >= MOST_PODS:
        return pod_is_deleted(world, pick)
    pod_runs(world, pick, volume=pick % 2 == 0, by_digest=pick // 13 % 2 == 0)
    return True


def kubelet_syncs(world: World, pick: int) -> bool:
    """The kubelet takes its next step for a pod."""
    pod = one_of(list(world.kubelet.pods.values()), pick)
    if pod is None:
        return pod_is_created(world, pick)
    world.kubelet.sync(pod)
    return True


def kubelet_syncs_all(world: World, pick: int) -> bool:
    """The kubelet takes a step or two for every pod."""
    for pod in list(world.kubelet.pods.values()) * (1 + pick % 3):
        world.kubelet.sync(pod)
    return bool(world.kubelet.pods) or pod_is_created(world, pick)


def next_container_begins(world: World, pick: int) -> bool:
    """A pod that is not new begins its next container: what ran first ends well, and the kubelet goes on at once."""
    pods = [pod for pod in _live(world) if world.runtime.containers_of(pod.uid)]
    pod = one_of(pods, pick)
    if pod is None:
        return pod_begins_and_runs(world, pick)
    before = len(world.runtime.containers_of(pod.uid))
    for container in world.runtime.containers_of(pod.uid):
        if container.state == pb.CONTAINER_RUNNING and container.metadata.name in pod.spec.init_containers:
            world.kubelet.ended(container, 0)
    for _ in range(STEPS_TO_RUN):
        world.kubelet.sync(pod)
    return len(world.runtime.containers_of(pod.uid)) > before


def container_ends(world: World, pick: int) -> bool:
    """A container exits with 0 or 1: an init container, a job, a crash."""
    container = one_of(_running(world), pick)
    if container is None:
        return kubelet_syncs_all(world, 2)
    world.kubelet.ended(container, 1 if pick // 5 % 3 == 0 else 0)
    return True


def container_writes(world: World, pick: int) -> bool:
    """A container writes into its layer; its log is rotated."""
    container = one_of(_running(world), pick)
    if container is None:
        return kubelet_syncs_all(world, 2)
    files = 1 + pick % 2
    for _ in range(files):
        world.runtime.write_to_container(container.id, (1 + pick % 9) * 4 * KIB // files)
    if pick % 4 == 0:
        world.kubelet.rotate(container)
    return True


def container_is_lost(world: World, pick: int) -> bool:
    """The runtime no longer knows the state of a container."""
    container = one_of(_running(world), pick)
    if container is not None:
        world.runtime.lose_container(container.id)
    return container is not None


def sandbox_dies(world: World, pick: int) -> bool:
    """A sandbox is no longer ready; its containers may run on."""
    sandbox = one_of(_sandboxes(world), pick)
    if sandbox is not None:
        world.runtime.kill_sandbox(sandbox.id)
    return sandbox is not None


def pod_is_deleted(world: World, pick: int) -> bool:
    """A pod is deleted, or evicted; the kubelet begins to wind it up."""
    pod = one_of(list(world.kubelet.pods.values()), pick)
    if pod is None:
        return pod_is_created(world, pick)
    if pick // 3 % 4 == 0 and not pod.over:
        pod.phase, pod.reason = "Failed", "Evicted"
    else:
        pod.deleting = True
    for _ in range(pick % 7):
        world.kubelet.sync(pod)
    return True


def pod_directory_is_removed(world: World, pick: int) -> bool:
    """The kubelet's directory of a pod is removed by hand while its containers run on."""
    pod = one_of(list(world.kubelet.pods.values()), pick)
    if pod is not None:
        world.kubelet.forget(pod)
    return pod is not None


def kubelet_collects(world: World, pick: int) -> bool:
    """The kubelet's own garbage collection takes a dead container of a pod that is gone, or an unused image."""
    dead = [
        each
        for each in list(world.runtime.every_container())
        if each.state == pb.CONTAINER_EXITED and world.runtime.uid_of(each) not in world.kubelet.pods
    ]
    container = one_of(dead, pick)
    if container is not None and pick % 2:
        world.runtime.remove_container(pb.RemoveContainerRequest(container_id=container.id))
        return True
    unused = [each for each in world.runtime.all_images() if not world.runtime.users_of(each)]
    image = one_of([each for each in unused if world.runtime.sandbox_image not in each.tags], pick)
    if image is not None:
        world.runtime.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=image.id)))
    return image is not None


def dead_container_is_removed_by_hand(world: World, pick: int) -> bool:
    """A dead container is removed by hand, even the newest copy; the model no longer counts it as done."""
    container = one_of([each for each in world.runtime.every_container() if each.state == pb.CONTAINER_EXITED], pick)
    if container is not None:
        world.runtime.remove_container(pb.RemoveContainerRequest(container_id=container.id))
        pod = world.kubelet.pods.get(world.runtime.uid_of(container))
        if pod is not None:
            pod.done.discard(container.metadata.name)
    return container is not None


def image_is_pulled(world: World, pick: int) -> bool:
    """An image is pulled; or a pull begins, and ends later."""
    name = IMAGES[pick % len(IMAGES)]
    if pick // 6 % 3:
        world.pull(name)
    elif pick % 2:
        world.runtime.begin_pull([name], world.layers(name))
    else:
        world.runtime.end_pull()
    return True


def image_is_tagged(world: World, pick: int) -> bool:
    """An image gets one more tag, which another may lose: one that the keep-list names, or that of another image."""
    images = [each for each in world.runtime.all_images() if world.runtime.sandbox_image not in each.tags]
    image = one_of(images, pick)
    if image is not None:
        world.runtime.retag(image.id, KEPT_TAG if pick % 2 else IMAGES[pick // 5 % len(IMAGES)])
    return image is not None


def image_is_pinned(world: World, pick: int) -> bool:
    """An image is pinned, or no longer."""
    image = one_of(world.runtime.all_images(), pick)
    if image is not None:
        world.runtime.pin(image.id, pick % 3 != 0)
    return image is not None


def time_passes(world: World, pick: int) -> bool:
    """Some seconds, or minutes."""
    world.clock.step(SECONDS[pick % len(SECONDS)])
    return True


def node_reboots(world: World, pick: int) -> bool:
    """Every sandbox is NOTREADY, and everything that ran has exited."""
    world.runtime.reboot()
    return True


BETWEEN_CALLS: tuple[Step, ...] = (
    pod_is_created,
    pod_begins_and_runs,
    pod_begins_and_runs,
    next_container_begins,
    next_container_begins,
    kubelet_syncs,
    kubelet_syncs_all,
    kubelet_syncs_all,
    container_ends,
    container_writes,
    container_is_lost,
    sandbox_dies,
    pod_is_deleted,
    pod_directory_is_removed,
    kubelet_collects,
    dead_container_is_removed_by_hand,
    image_is_pulled,
    image_is_tagged,
    image_is_tagged,
    image_is_pinned,
    time_passes,
    node_reboots,
)
