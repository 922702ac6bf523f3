"""A node with a crowded disk: live pods, dead copies of containers, a dead pod,
and twenty unused images.

Every object is known by its role, so a test can name what must be removed and what must be kept.
"""

from dataclasses import dataclass

from tests.nodes.real_node import RealNode
from tests.real_node.oci import BASE, Image, Layer, many_files_layer, random_layer

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
    running_containers: tuple[str, ...]
    init_container: str  # exited with 0 in the first running pod: its newest (and only) copy
    crashed_older: str  # attempt 0 of a pod that is alive
    crashed_newest: str  # attempt 1
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
    layers = [random_layer(1000 + position, size_bytes)]
    if position == SMALL_FILES_POSITION:
        each_bytes = max(1, size_bytes // 4 // SMALL_FILES)
        layers = [many_files_layer(1000 + position, SMALL_FILES, each_bytes)]
    for pair, members in enumerate(SHARING_PAIRS):
        if position in members:
            own = random_layer(1000 + position, size_bytes - size_bytes // 2)
            layers = [random_layer(2000 + pair, size_bytes // 2), own]
    return Image(f"reclaimd.test/unused/{position:02d}:1", tuple(layers))


def build_crowded_node(node: RealNode, image_bytes: int = 3 * MIB) -> CrowdedNode:
    """Crowd `node`: the pods first, then the unused images.

    `image_bytes` is the size of the layers of one unused image; containerd keeps the blob and the
    unpacked layer, so the disk holds about twice that. ToolError when the disk is too small.
    """
    kubelet = node.kubelet
    app, init = node.import_images(
        [
            Image(f"reclaimd.test/{name}:1", (BASE, Layer(seed, ((f"{name}/data.bin", MIB),))))
            for seed, name in ((1, "app"), (2, "init"))
        ]
    )
    pods = kubelet.pod("web-0"), kubelet.pod("web-1")
    init_container = kubelet.run_to_end(pods[0], "init", init)
    running = tuple(kubelet.run_container(pod, "web", app) for pod in pods)
    crashed, fails = kubelet.pod("crasher-0"), ("/bin/false",)
    older, newest = (
        kubelet.run_to_end(crashed, "worker", app, fails, attempt) for attempt in range(2)
    )
    dead = kubelet.pod("job-0")
    dead_container = kubelet.run_to_end(dead, "job", app)
    kubelet.end_pod(dead)
    images = tuple(
        node.import_images([unused_image(each, image_bytes) for each in range(UNUSED_IMAGES)])
    )
    return CrowdedNode(
        node=node,
        sandbox_image=node.sandbox_image_id,
        app_image=app,
        init_image=init,
        unused_images=images,
        small_files_image=images[SMALL_FILES_POSITION],
        running_containers=running,
        init_container=init_container,
        crashed_older=older,
        crashed_newest=newest,
        dead_sandbox=dead.id,
        dead_container=dead_container,
    )
