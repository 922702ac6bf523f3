"""A kubelet in small steps: it makes a pod in the kubelet's order, so that a pass may run between any two steps.

The directory of the pod first, then the log directory, the sandbox, each container created and then started, its log
and the symlink to it; init containers one after the other before the others. Which containers it starts is decided by
its restart rule (`tests.restart_rule`) from what the runtime still lists. A pod that is deleted is stopped, and its
directory is removed last; its dead containers, its sandbox and its logs are left to the garbage collection.

Sources: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_manager.go` (computePodActions), `pkg/kubelet/kubelet.go`
(SyncPod),
`pkg/kubelet/kubelet_volumes.go` (cleanupOrphanedPodDirs).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.runtime import Container
from eviction.drill.scenario import RestartPolicy
from reclaim.cri import cri_pb2 as pb
from reclaim.cri.convert import CONTAINER_NAME_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL, UID_LABEL
from reclaim.pod_logs.names import symlink_name
from reclaim.pods.pod_list import CONFIG_SOURCE
from tests.model.ledger import Since
from tests.model.root_directory import RootDirectory
from tests.model.truth import BY_DIGEST, TrueRuntime
from tests.restart_rule import PodSpec, would_start

LOG_BYTES = 700
INIT, APP, SIDE = "init", "app", "side"


@dataclass(slots=True)
class Pod:
    """A pod of the kubelet's. `init_image`: of its init containers. `log_directory`: where its logs are. `phase` is
    empty until the pod is over. `by_digest`: it names its image by the digest that the image has when a container is
    made. `begun`: when its directory was made, under an empty name, and those of containers, by their ids, as far as
    reclaimd could see that."""

    name: str
    spec: PodSpec
    image: str
    init_image: str
    volume: str
    log_directory: Path
    deleting: bool = False
    phase: str = ""
    reason: str = ""
    done: set[str] = field(default_factory=set)
    by_digest: bool = False
    begun: dict[str, Since] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """The UID."""
        return self.spec.uid

    @property
    def over(self) -> bool:
        """Whether nothing of it is started any more."""
        return self.deleting or bool(self.phase)


class Kubelet:
    """The kubelet of one node. `wrong`: steps that it had to take and never should have."""

    def __init__(self, runtime: TrueRuntime, root: RootDirectory, logs: Path, pull: Callable[[str], object]) -> None:
        self.runtime = runtime
        self.root = root
        self._pull = pull
        self.pods: dict[str, Pod] = {}
        self.wrong: list[str] = []
        self.pod_logs = logs / "pods"
        self.container_logs = logs / "containers"
        self.pod_logs.mkdir(parents=True)
        self.container_logs.mkdir()
        self._made = 0
        runtime.restarts = self.would_start
        runtime.pod_exists = self.pods.__contains__
        runtime.begun = self.begun
        runtime.forgotten = self.forgotten

    def begun(self, container: Container) -> tuple[Since, ...]:
        """When the directories of a container and of its pod were made, if reclaimd can see them."""
        pod = self.pods.get(self.runtime.uid_of(container))
        if pod is None or self.root.disguise is not None:
            return ()
        return tuple(pod.begun[each] for each in ("", container.id) if each in pod.begun)

    def _begins(self, pod: Pod, container_id: str = "") -> None:
        if self.root.disguise is None:
            pod.begun[container_id] = self.runtime.now()
            self.runtime.beginnings.append(self.runtime.now())

    def forgotten(self, uid: str, name: str) -> None:
        """That a container is done is not known any more, by no fault of reclaimd's."""
        if uid in self.pods:
            self.pods[uid].done.discard(name)

    def would_start(self, uid: str, without: str = "") -> frozenset[str]:
        """The containers of a pod that the restart rule would start; none of a pod that is over or forgotten.

        `without`: as if the container of this id were not there.
        """
        pod = self.pods.get(uid)
        if pod is None or pod.over:
            return frozenset()
        return would_start(pod.spec, self.runtime.copies(uid, without))

    def admit(
        self, images: tuple[str, str], volume: str, policy: RestartPolicy, inits: int, logs: Path | None = None
    ) -> Pod:
        """A new pod with its directory. `images`: of its containers, and of init containers. `logs`: a log directory
        that no kubelet would choose."""
        self._made += 1
        name, uid = f"p{self._made}", f"uid-{self._made}"
        spec = PodSpec(uid, (APP, SIDE)[: 1 + self._made % 2], tuple(f"{INIT}{n}" for n in range(inits)), policy)
        directory = logs or self.pod_logs / f"default_{name}_{uid}"
        pod = self.pods[uid] = Pod(name, spec, *images, volume, directory)
        self.root.add(uid)
        self._begins(pod)
        return pod

    def sync(self, pod: Pod) -> None:
        """The kubelet's next step for a pod; none if the pod is in its desired state."""
        if pod.uid not in self.pods:
            return
        if pod.over:
            self._wind_up(pod)
        elif not pod.log_directory.exists():
            pod.log_directory.mkdir(parents=True)
        else:
            self._run(pod)

    def _wind_up(self, pod: Pod) -> None:
        sandboxes = self.runtime.sandboxes_of(pod.uid)
        alive = [each for each in self.runtime.containers_of(pod.uid) if _is(each, "RUNNING", "UNKNOWN")]
        if alive:
            self.runtime.stop_container(pb.StopContainerRequest(container_id=alive[0].id))
        elif ready := [each for each in sandboxes if each.state == pb.SANDBOX_READY]:
            self.runtime.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id=ready[0].id))
        elif pod.deleting:
            self.forget(pod)

    def forget(self, pod: Pod) -> None:
        """Removes the directory of a pod and all that the kubelet knows of it."""
        self.root.remove(pod.uid)
        del self.pods[pod.uid]

    def _run(self, pod: Pod) -> None:
        newest: dict[str, Container] = {}
        for container in reversed(self.runtime.containers_of(pod.uid)):
            newest[container.metadata.name] = container
        ready = [each for each in self.runtime.sandboxes_of(pod.uid) if each.state == pb.SANDBOX_READY]
        waiting = [
            each
            for each in newest.values()
            if ready and self.runtime.sandbox_of(each) == ready[0].id and _is(each, "CREATED")
        ]
        if waiting:
            self._start(pod, waiting[0])
            return
        starts = self.would_start(pod.uid)
        if not starts:
            self._check_for_the_end(pod, newest)
        elif not ready:
            self._run_sandbox(pod)
        else:
            self._next(pod, starts, newest, ready[0].id)

    def _next(self, pod: Pod, starts: frozenset[str], newest: dict[str, Container], sandbox_id: str) -> None:
        inits = [name for name in pod.spec.init_containers if name in starts]
        running = [name for name in pod.spec.init_containers if name in newest and _is(newest[name], "RUNNING")]
        if inits or running:
            for name in inits[: 0 if running else 1]:
                self._create(pod, name, newest.get(name), sandbox_id)
            return
        name = min(starts)
        self._create(pod, name, newest.get(name), sandbox_id)

    def _run_sandbox(self, pod: Pod) -> None:
        labels = {UID_LABEL: pod.uid, POD_NAME_LABEL: pod.name, POD_NAMESPACE_LABEL: "default"}
        before = self.runtime.sandboxes_of(pod.uid)
        attempt = before[0].metadata.attempt + 1 if before else 0
        metadata = pb.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace="default", attempt=attempt)
        config = pb.PodSandboxConfig(metadata=metadata, log_directory=str(pod.log_directory), labels=labels)
        try:
            self.runtime.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))
        except EmbeddedNodeError as error:
            self.wrong.append(f"no sandbox for {pod.name}: {error}")

    def _create(self, pod: Pod, name: str, before: Container | None, sandbox_id: str) -> None:
        """CreateContainer, by the ids of its images. If one is missing it is only pulled, and the next step creates."""
        if name in pod.done:
            self.wrong.append(f"{pod.name}/{name} was done, and runs again")
        image = pod.init_image if name in pod.spec.init_containers else pod.image
        needed = [reference for reference in (image, pod.volume) if reference]
        specs = [pb.ImageSpec(image=self.runtime.id_of(each), user_specified_image=each) for each in needed]
        missing = [spec.user_specified_image for spec in specs if not spec.image]
        for reference in missing:
            self._pull(reference)
        if missing:
            return
        self.root.begin_container(pod.uid, name, self.runtime.wall_seconds())
        attempt = before.metadata.attempt + 1 if before is not None else 0
        labels = {UID_LABEL: pod.uid, POD_NAME_LABEL: pod.name, POD_NAMESPACE_LABEL: "default"}
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=attempt),
            image=specs[0],
            labels={**labels, CONTAINER_NAME_LABEL: name},
            annotations={BY_DIGEST: self.runtime.digest_of(specs[0].image, image)} if pod.by_digest else {},
            log_path=f"{name}/{attempt}.log",
            mounts=[pb.Mount(container_path="/v", image=spec) for spec in specs[1:]],
        )
        made = self.runtime.create_container(pb.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config))
        self._begins(pod, made.container_id)

    def _start(self, pod: Pod, container: Container) -> None:
        self.runtime.start_container(pb.StartContainerRequest(container_id=container.id))
        log = Path(container.log_path)
        if self._is_ours(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"x" * LOG_BYTES)
        name = symlink_name(pod.name, "default", container.metadata.name, container.id)
        (self.container_logs / name).symlink_to(log)

    def _check_for_the_end(self, pod: Pod, newest: dict[str, Container]) -> None:
        if all(name in newest and _is(newest[name], "EXITED") for name in pod.spec.containers):
            pod.phase = "Succeeded" if all(newest[n].exit_code == 0 for n in pod.spec.containers) else "Failed"

    def ended(self, container: Container, exit_code: int) -> None:
        """A container's process has ended by itself."""
        uid, name = container.labels[UID_LABEL], container.metadata.name
        self.runtime.exit_container(container.id, exit_code)
        pod = self.pods.get(uid)
        if pod is not None and not pod.over and name not in self.would_start(uid):
            pod.done.add(name)

    def rotate(self, container: Container) -> None:
        """A log is renamed, and written anew."""
        log = Path(container.log_path)
        if self._is_ours(log) and log.exists():
            log.rename(f"{log}.20261121-120000")
            log.write_bytes(b"y" * LOG_BYTES)

    def _is_ours(self, log: Path) -> bool:
        return log.is_relative_to(self.pod_logs)

    def missing_logs(self) -> list[str]:
        """Newest copies of pods that are not over whose log, or the symlink to it, is not there."""
        wrong = []
        for pod in self.pods.values():
            seen: set[str] = set()
            for each in self.runtime.containers_of(pod.uid) if not pod.over else ():
                name = each.metadata.name
                if name in seen or not self._is_ours(Path(each.log_path)):
                    continue
                if each.id in self.runtime.log_goes:  # it was an older copy then
                    seen.add(name)
                    continue
                if each.started_at or self.runtime.licence.exact:  # to the kubelet one that is CREATED is the newest
                    seen.add(name)
                if not each.started_at:
                    continue
                link = self.container_logs / symlink_name(pod.name, "default", name, each.id)
                wrong += [f"{path} is gone" for path in (each.log_path, link) if not Path(path).is_file()]
        return wrong

    def pod_list(self) -> bytes:
        """The answer to GET /pods."""
        items: list[Any] = []
        for pod in self.pods.values():
            running = {
                each.metadata.name
                for each in self.runtime.containers_of(pod.uid)
                if _is(each, "RUNNING", "UNKNOWN", "CREATED")
            }
            states = [
                {"name": name, "state": {"running" if name in running else "terminated": {}}}
                for name in (*pod.spec.init_containers, *pod.spec.containers)
            ]
            metadata: dict[str, Any] = {"uid": pod.uid, "name": pod.name, "annotations": {CONFIG_SOURCE: "api"}}
            if pod.deleting:
                metadata["deletionTimestamp"] = "2026-11-21T12:00:00Z"
            status = {"phase": pod.phase or "Running", "reason": pod.reason, "containerStatuses": states}
            items.append({"metadata": metadata, "status": status})
        return json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}).encode()


def _is(container: Container, *states: str) -> bool:
    return pb.ContainerState.Name(container.state).removeprefix("CONTAINER_") in states
