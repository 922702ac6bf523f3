"""The rules in which container runtimes differ, as values. `FullRuntime` follows one set of them.

Sources: github.com/containerd/containerd internal/cri/server (container_list.go,
images/image_remove.go). For CRI-O: github.com/cri-o/cri-o server/image_remove.go, image_status.go,
image_fs_info.go, internal/storage/image.go and internal/ociartifact/artifact.go, cri-o/cri-o issue
7143 (image_ref is a repository digest), github.com/containers/container-libs storage (an image in
use is not deleted; before a deletion the new list is written beside the old one, and a full
filesystem has no room for it). The rules of 1.36 as run on 1.37.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Dialect:
    """The rules of one runtime and version.

    `fills_image_id`: Container.image_id is set. `pins_sandbox_image`: the sandbox image is listed
    as pinned. `reports_sandbox_image`: the verbose Status names it. `*_space_delay_seconds`: the
    space of a removed object is freed that much later, or by the next removal that frees at once,
    whichever is first; a thread may wait for it until `force_gc`. `largest_answer_bytes`: larger
    answers fail with RESOURCE_EXHAUSTED.
    """

    runtime_name: str
    runtime_version: str
    fills_image_id: bool = True
    pins_sandbox_image: bool = True
    reports_sandbox_image: bool = True
    container_space_delay_seconds: float = 0.0
    image_space_delay_seconds: float = 0.0
    largest_answer_bytes: int = 256 << 20

    @property
    def is_cri_o(self) -> bool:
        """Whether the rules are CRI-O's, all of which differ from containerd's.

        In ListContainers `image_ref` is a repository digest if the image has one, and not its id.
        Ids of images are 64 hex digits without a leading "sha256:". RemoveImage with a name removes
        that name, and the image only with its last name; it fails for a container's image. Nothing
        can be removed while the filesystem of images has no free block or no free inode. A name
        without a registry, or what is no name, fails. ImageFsInfo names a directory beside that of
        the layers, and counts nothing else.

        There may be OCI artifacts, whose id is the digest of their manifest. Each of their
        names is listed as one image, and removed by its repository and that digest;
        RemoveImage with the id succeeds and does nothing, and ImageStatus with the id of one
        with several names finds nothing.
        """
        return self.runtime_name == "cri-o"


CONTAINERD_2 = Dialect("containerd", "2.3.4", reports_sandbox_image=False)
CONTAINERD_2_0 = replace(
    CONTAINERD_2, runtime_version="2.0.4", fills_image_id=False, image_space_delay_seconds=0.1
)
"""containerd 2.0.0 to 2.0.4 answer RemoveImage before the space is free; 2.0 to
2.2 leave `image_id` empty.
"""
CONTAINERD_1_6 = Dialect("containerd", "1.6.20", fills_image_id=False, pins_sandbox_image=False)
"""1.7 pins the sandbox image."""
CRI_O_1_31 = Dialect("cri-o", "1.31.0")
CRI_O_1_28 = replace(CRI_O_1_31, runtime_version="1.28.4", fills_image_id=False)
"""CRI has had the field `image_id` since Kubernetes 1.29."""
CRI_O_1_36 = replace(CRI_O_1_31, runtime_version="1.36.0")
"""CRI-O has had artifacts since 1.33. Up to 1.35 all are pinned."""

DIALECTS = {
    "containerd-1.6": CONTAINERD_1_6,
    "containerd-2.0": CONTAINERD_2_0,
    "containerd-2": CONTAINERD_2,
    "cri-o-1.28": CRI_O_1_28,
    "cri-o": CRI_O_1_31,
    "cri-o-1.36": CRI_O_1_36,
}
