"""A node with a real kubelet: one small filesystem, a container runtime and the
kubelet's directories on it; reclaimd on it, and who may ask the kubelet for its pods.

`CRIO` names a CRI-O to take in the place of containerd; pinns is in the same directory. Roles and
bindings are of the cluster, which all nodes share, so each has a name of its own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubelet.api import Api, Fields
from tests.kubelet.control_plane import ControlPlane
from tests.kubelet.kubelet import (
    CONTAINER_LOG_LINKS,
    IMAGE_AGE_SECONDS,
    NODE,
    Kubelet,
    KubeletSettings,
)
from tests.real_node.containerd import Containerd
from tests.real_node.crio import Crio, crio_program
from tests.real_node.loopfs import LoopFilesystem
from tests.real_node.oci import BASE, Image, ImageTar, numbered
from tests.real_node.runtime import ContainerRuntime
from tests.reclaimd_process import answer, reclaimd, write_configuration

MIB, GIB = 1 << 20, 1 << 30
DEFAULTS = {"nodefs.available": "10%", "imagefs.available": "15%"}
"""The kubelet's own thresholds."""
INFO_SOCKET = Path("/run/crio/crio.sock")
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SERVICE_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PURGE_SECONDS = 300.0  # the limit of one pass, in which the runtime may be busy with pods
PURGE = ("reclaim", "--signal", "imagefs.available", "--all", "--now", "-o", "json")


@dataclass(frozen=True)
class KubeletNode:
    """The parts of a node that a real kubelet keeps. `kubelet` runs.

    `image_filesystem`: the runtime's own, or None.
    """

    filesystem: LoopFilesystem
    runtime: ContainerRuntime
    kubelet: Kubelet
    plane: ControlPlane
    image_filesystem: LoopFilesystem | None = None

    @property
    def api(self) -> Api:
        """A client of the API server that may do everything."""
        return self.plane.api

    @property
    def disk(self) -> Path:
        """Where the filesystem under test is mounted."""
        return self.filesystem.mountpoint

    def import_images(self, images: Sequence[Image | ImageTar]) -> list[str]:
        """Brings images in; their ids. The first given is the oldest.

        If a tar is given, it is kept.
        """
        if tars := [each for each in images if isinstance(each, ImageTar)]:
            return self.runtime.import_images(tars, keep=True)
        return self.runtime.bring(*(each for each in images if isinstance(each, Image)))

    def import_removable(self, images: Sequence[Image]) -> None:
        """Brings images in that nobody uses, and waits until they are old enough to go."""
        self.import_images(images)
        time.sleep(1.1 * IMAGE_AGE_SECONDS)

    def create(self, pod: Fields, *phases: str) -> None:
        """Makes a pod, and waits until it is in one of these phases, if any. TimeoutError."""
        self.api.create(PODS, pod)
        if phases:
            self.wait_for_phase(pod["metadata"]["name"], *phases)

    def create_all(self, phase: str, *pods: Fields) -> None:
        """Makes pods, and waits until each is in this phase. TimeoutError."""
        for pod in pods:
            self.create(pod)
        for pod in pods:
            self.wait_for_phase(pod["metadata"]["name"], phase)

    def phase(self, name: str) -> str:
        """The phase of a pod."""
        return str(self.api.get(f"{PODS}/{name}")["status"].get("phase", ""))

    def wait_for_phase(self, name: str, *phases: str) -> None:
        """Waits until a pod is in one of these phases. TimeoutError."""
        told = f"pod {name} {' or '.join(phases)}"
        self.api.wait(told, lambda: self.phase(name) in phases, 60.0)

    def statuses(self, *names: str) -> dict[str, list[Any]]:
        """Of each pod: its phase, and of each container its restarts and when it began and
        ended."""
        found = {}
        for name in names:
            pod = self.api.get(f"{PODS}/{name}")
            of_each = [
                [each["name"], each["restartCount"], each["state"]] for each in containers_of(pod)
            ]
            found[name] = [pod["status"]["phase"], of_each]
        return found

    def conditions(self) -> dict[str, bool]:
        """The conditions of the node.

        Without a network plug-in it is never Ready; pods on the host's network run.
        """
        conditions = self.api.get(f"/api/v1/nodes/{NODE}")["status"]["conditions"]
        return {each["type"]: each["status"] == "True" for each in conditions}

    def evicted(self) -> list[str]:
        """The pods that the kubelet has evicted."""
        pods = self.api.pods().items()
        return sorted(name for name, pod in pods if pod["status"].get("reason") == "Evicted")

    def asking(self, *resources: str) -> Api:
        """A client of the kubelet itself, which the API server does not reach for others on
        loopback, that may `get` these resources."""
        token = service_account(self, *resources)
        return Api(self.kubelet.endpoint, self.plane.authority.certificate, token)

    def reclaimd_fields(self) -> Fields:
        """The fields of a configuration of reclaimd for this node; no credentials."""
        return {
            "kubeletConfig": str(self.kubelet.configuration),
            "rootDirectory": str(self.kubelet.root),
            "podLogsDir": str(self.kubelet.pod_logs),
            "containerLogsDir": str(CONTAINER_LOG_LINKS),
        }

    def configured(self, **fields: object) -> str:
        """A new configuration of reclaimd for this node."""
        name = f"reclaimd-{secrets.token_hex(4)}.yaml"
        given = {**self.reclaimd_fields(), **fields}
        return str(write_configuration(self.disk.parent / name, **given))


def purged(file: str, command: Sequence[str] = PURGE) -> Any:
    """The record of a pass to the end of the row, which has to succeed."""
    done = reclaimd(*command, "--config", file, timeout_seconds=PURGE_SECONDS)
    assert done.returncode == 0, done.stderr
    record = answer(done)
    assert {each["result"] for each in record["removals"]} <= {"removed", "already_gone"}, record
    return record


def pod_of(container: Any) -> str:
    """The name of the pod of a container or sandbox, as the runtime lists it."""
    return str(container.labels.get("io.kubernetes.pod.name", ""))


def containers_of(pod: Fields) -> list[Fields]:
    """The statuses of a pod's containers, init containers first."""
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def restarts(pod: Fields) -> int:
    """How often containers of a pod have been started again."""
    return sum(each["restartCount"] for each in containers_of(pod))


def unused(count: int, size_bytes: int, first: int = 0) -> list[Image]:
    """Images that nobody uses, `reclaimd.test/unused:0` and so on."""
    return numbered("reclaimd.test/unused:{}", count, size_bytes, BASE, first=first)


# ---- who may ask


def service_account(node: KubeletNode, *resources: str) -> str:
    """A new service account whose role is `get` on these resources of the cluster
    (none: no role); its token.
    """
    name = f"asks-{secrets.token_hex(4)}"
    node.api.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}})
    if resources:
        allow_get({"kind": "ServiceAccount", "name": name, "namespace": "default"}, node, resources)
    return node.plane.service_account_token(name)


def allow_group(node: KubeletNode, group: str, *resources: str) -> Callable[[], None]:
    """Lets everybody whose certificate names this group `get` these resources; what
    is returned takes it back.
    """
    subject = {"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
    return allow_get(subject, node, resources)


def allow_get(
    subject: dict[str, str], node: KubeletNode, resources: Sequence[str]
) -> Callable[[], None]:
    """The same for any subject."""
    name = f"gets-{secrets.token_hex(4)}"
    rule = {"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    head = {"metadata": {"name": name}}
    node.api.create(f"{RBAC}/clusterroles", {**head, "rules": [rule]})
    bound = {**head, "roleRef": role, "subjects": [subject]}
    node.api.create(f"{RBAC}/clusterrolebindings", bound)

    def take_back() -> None:
        for kind in ("clusterrolebindings", "clusterroles"):
            node.api.delete(f"{RBAC}/{kind}/{name}")

    return take_back


def token_fields(node: KubeletNode, *resources: str) -> Fields:
    """The fields of a configuration of reclaimd that asks the kubelet as a new service account,
    which may `get` these resources."""
    file = node.disk.parent / f"token-{secrets.token_hex(4)}"
    file.touch(mode=0o600)
    file.write_text(service_account(node, *resources) + "\n")
    return {**endpoint_fields(node), "kubeletTokenFile": str(file)}


def certificate_fields(node: KubeletNode, group: str, *resources: str) -> Fields:
    """The same, with a new client certificate of this group, which may `get` these resources."""
    allow_group(node, group, *resources)
    certificate, key = node.plane.authority.sign("reclaimd.test:agent", group)
    files = {"kubeletCertificateFile": str(certificate), "kubeletKeyFile": str(key)}
    return {**endpoint_fields(node), **files}


def kubelet_fields(node: KubeletNode) -> Fields:
    """The same, with whatever is allowed to: for tests that are not about the access."""
    return token_fields(node, "nodes/pods", "nodes/proxy")


def endpoint_fields(node: KubeletNode) -> dict[str, str]:
    """Where the kubelet is asked."""
    authority = str(node.plane.authority.certificate)
    return {"kubeletEndpoint": node.kubelet.endpoint, "kubeletCAFile": authority}


# ---- making one


@contextmanager
def kubelet_node(
    directory: Path,
    plane: ControlPlane,
    settings: KubeletSettings,
    size_bytes: int = 2 * GIB,
    fstype: str = "ext4",
    images: Sequence[Image | ImageTar] = (),
    image_size_bytes: int = 0,
    *,
    split: bool = False,
) -> Iterator[KubeletNode]:
    """A node of this cluster, registered; all of it is gone on exit, and the node object too.

    `image_size_bytes`: of a second filesystem for all of the runtime, as with a dedicated imagefs;
    0: there is none. `split`: only the images are on the second one, the writable layers on the
    first: CRI-O can do that. `images`: there before the kubelet starts, which sees them then; later
    ones it sees after 5 minutes at the latest.
    """
    with ExitStack() as stack:
        filesystem = stack.enter_context(LoopFilesystem(directory, size_bytes, fstype))
        disk = store = filesystem.mountpoint
        image_filesystem = None
        if image_size_bytes:
            image_filesystem = LoopFilesystem(directory / "images", image_size_bytes, fstype)
            store = stack.enter_context(image_filesystem).mountpoint
        root, crio = (disk if split else store) / "runtime", crio_program()
        images_alone = store / "images" if split else None
        runtime: ContainerRuntime = (
            Containerd(root) if crio is None else Crio(root, crio, images_alone)
        )
        stack.enter_context(runtime)
        if crio is not None:
            stack.enter_context(found_by_cadvisor(runtime))
        kubelet = Kubelet(directory / "kubelet", disk, runtime, plane=plane, settings=settings)
        stack.callback(kubelet.close)
        stack.callback(runtime.remove_pods, 20.0)
        stack.callback(kubelet.stop)
        node = KubeletNode(filesystem, runtime, kubelet, plane, image_filesystem)
        stack.callback(_forget, plane.api)
        if images:
            node.import_images(images)
        kubelet.start()
        plane.api.wait("the node has registered", lambda: bool(node.conditions()), 60.0)
        yield node


@contextmanager
def found_by_cadvisor(crio: ContainerRuntime) -> Iterator[None]:
    """A CRI-O is there where the kubelet asks it for its places by HTTP, which no setting moves,
    while the `with` block lasts
    (https://github.com/google/cadvisor/blob/v0.56.2/container/crio/client.go). FileExistsError if
    the machine has one of its own."""
    INFO_SOCKET.parent.mkdir()
    try:
        INFO_SOCKET.symlink_to(crio.socket)
        yield
    finally:
        INFO_SOCKET.unlink(missing_ok=True)
        INFO_SOCKET.parent.rmdir()


def _forget(api: Api) -> None:
    for name in api.pods():
        api.delete(f"{PODS}/{name}", grace_seconds=0)
    api.delete(f"/api/v1/nodes/{NODE}")
