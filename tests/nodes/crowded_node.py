"""A node with a crowded disk: live pods, dead copies of containers, a dead pod,
and twenty unused images.

Every object is known by its role, so a test can name what must be removed and what must be kept.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from tests.nodes.real_node import RealNode
from tests.real_node.oci import BASE, SLEEP_FOR_EVER, Image, Layer, many_files_layer, random_layer
from tests.real_node.pods import Sandbox

MIB = 1 << 20
UNUSED_IMAGES = 20
SHARING_PAIRS = ((2, 3), (8, 9), (14, 15))  # positions whose images share their lower layer
SMALL_FILES_POSITION = 5
SMALL_FILES = 600


@dataclass(frozen=True)
class CrowdedNode:
    """The ids of a crowded node, by role. `unused_images` is in the order of age, oldest first.

    Live pods have a directory below the kubelet's root; the dead pod has none,
    and its sandbox is NOTREADY.
    """

    node: RealNode
    sandbox_image: str
    app_image: str  # used by the running, the crashed and the dead pod
    init_image: str  # used only by a dead init container of a live pod
    unused_images: tuple[str, ...]
    small_files_image: str  # one of the unused: 600 files
    sharing_images: tuple[tuple[str, str], ...]  # unused, by pairs with a common layer
    running_uids: tuple[str, str]
    running_sandboxes: tuple[str, str]
    running_containers: tuple[str, str]
    init_container: str  # exited with 0 in the first running pod: its newest (and only) copy
    crashed_uid: str
    crashed_sandbox: str  # READY, its pod is alive
    crashed_older: str  # attempt 0
    crashed_newest: str  # attempt 1
    dead_uid: str
    dead_sandbox: str  # NOTREADY, its pod is gone
    dead_container: str

    def protected_images(self) -> frozenset[str]:
        """The images that nothing may remove while the live pods are there."""
        return frozenset({self.sandbox_image, self.app_image, self.init_image})

    def protected_containers(self) -> frozenset[str]:
        """The containers that nothing may remove while the live pods are there."""
        return frozenset({*self.running_containers, self.init_container, self.crashed_newest})


def unused_image(position: int, size_bytes: int) -> Image:
    """The recipe of the unused image at `position`; its layers hold about `size_bytes` in all."""
    reference = f"reclaimd.test/unused/{position:02d}:1"
    if position == SMALL_FILES_POSITION:
        return Image(
            reference,
            (
                many_files_layer(
                    1000 + position, SMALL_FILES, max(1, size_bytes // 4 // SMALL_FILES)
                ),
            ),
        )
    for pair, members in enumerate(SHARING_PAIRS):
        if position in members:
            own = random_layer(1000 + position, size_bytes - size_bytes // 2)
            return Image(reference, (random_layer(2000 + pair, size_bytes // 2), own))
    return Image(reference, (random_layer(1000 + position, size_bytes),))


def build_crowded_node(
    node: RealNode, image_bytes: int = 3 * MIB, app_bytes: int = MIB, unused: int = UNUSED_IMAGES
) -> CrowdedNode:
    """Crowd `node`: the pods first, then the unused images.

    `image_bytes` is the size of the layers of one unused image; containerd keeps the blob and the
    unpacked layer, so the disk holds about twice that. `unused` must reach beyond the positions
    that share layers (at least 16). ValueError otherwise; ToolError when the disk is too small.
    """
    if unused <= max(max(pair) for pair in SHARING_PAIRS):
        raise ValueError(f"{unused} unused images: the pairs that share a layer need at least 16")
    app_layer = Layer(1, (("app/data.bin", app_bytes),))
    init_layer = Layer(2, (("init/data.bin", app_bytes),))
    app, init = node.import_images(
        [
            Image("reclaimd.test/app:1", (BASE, app_layer)),
            Image("reclaimd.test/init:1", (BASE, init_layer)),
        ]
    )

    first, second = admit_and_run(node, "web-0"), admit_and_run(node, "web-1")
    init_container = run_to_end(node, first, "init", init, "exit 0")
    running = tuple(
        node.kubelet.run_container(pod, "web", app, SLEEP_FOR_EVER) for pod in (first, second)
    )

    crashed = admit_and_run(node, "crasher-0")
    older = run_to_end(node, crashed, "worker", app, "exit 1", attempt=0)
    newest = run_to_end(node, crashed, "worker", app, "exit 1", attempt=1)

    dead = admit_and_run(node, "job-0")
    dead_container = run_to_end(node, dead, "job", app, "exit 0")
    node.kubelet.end_pod(dead)

    images = tuple(
        node.import_images([unused_image(position, image_bytes) for position in range(unused)])
    )
    return CrowdedNode(
        node=node,
        sandbox_image=node.sandbox_image_id,
        app_image=app,
        init_image=init,
        unused_images=images,
        small_files_image=images[SMALL_FILES_POSITION],
        sharing_images=tuple((images[one], images[other]) for one, other in SHARING_PAIRS),
        running_uids=(first.uid, second.uid),
        running_sandboxes=(first.id, second.id),
        running_containers=(running[0], running[1]),
        init_container=init_container,
        crashed_uid=crashed.uid,
        crashed_sandbox=crashed.id,
        crashed_older=older,
        crashed_newest=newest,
        dead_uid=dead.uid,
        dead_sandbox=dead.id,
        dead_container=dead_container,
    )


def admit_and_run(node: RealNode, name: str) -> Sandbox:
    """A new pod in the kubelet's order: directory, then sandbox.

    Its UID follows from its name, so logs read alike.
    """
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.reclaimd.test"))
    node.kubelet.admit_pod(uid)
    return node.kubelet.run_pod(name, uid)


def run_to_end(
    node: RealNode, sandbox: Sandbox, name: str, image: str, script: str, attempt: int = 0
) -> str:
    """Run `script` in a container and wait for its end; return the id of the dead copy."""
    container_id = node.kubelet.run_container(
        sandbox, name, image, ("/bin/sh", "-c", script), attempt
    )
    node.kubelet.wait_exited(container_id)
    return container_id
