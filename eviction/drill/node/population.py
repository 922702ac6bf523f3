"""The images and pods of the embedded node, made as a runtime and a kubelet make them."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field

from eviction.drill.node.pod_maker import PodMaker
from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.runtime import EmbeddedRuntime
from eviction.drill.scenario import CONTAINER, INIT_CONTAINER, ImageSpec, PodSpec, PodState
from reclaim.types import ImageRecord

SETTLED_SECONDS = 60.0  # a pod began this long before its newest container ended
ROTATED_EVERY_SECONDS = 600.0
LOST_EXIT_CODE = 255  # the exit code that a runtime reports for a container that did not survive a reboot


@dataclass(slots=True)
class Population:
    """Images and pods of a node.

    `image_names`: id -> reference. `layers`: reference -> layers, the lowest first. `records`: id of an image -> its
    record. `exit_codes`: id of an exited container -> exit code. `running`, `log_files`: by pod.
    """

    runtime: EmbeddedRuntime
    maker: PodMaker
    root_directory: str
    log_directory: str
    image_names: dict[str, str] = field(default_factory=dict)
    layers: dict[str, tuple[LayerSpec, ...]] = field(default_factory=dict)
    records: dict[str, ImageRecord] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    log_files: dict[str, str] = field(default_factory=dict)

    def add_images(self, spec: ImageSpec) -> None:
        """Adds images, known for as long as the spec says. Raises EmbeddedNodeError if they do not fit."""
        now = time.monotonic()
        for place, name in enumerate(spec.names):
            image_id = self.pull(spec, name)
            self.records[image_id] = ImageRecord(now - spec.age_seconds + place)

    def pull(self, spec: ImageSpec, name: str) -> str:
        """Pulls one new image of a spec. Returns its id. Raises EmbeddedNodeError if it does not fit."""
        own = LayerSpec(name, spec.size_bytes, spec.files)
        shared = [LayerSpec(f"shared {spec.name}", spec.shared_bytes)] if spec.shared_bytes else []
        image_id = self.runtime.add_image([name], [*shared, own], pinned=spec.pinned)
        self.image_names[image_id] = name
        self.layers[name] = (*shared, own)
        return image_id

    def start_new_pod(self, image: str) -> None:
        """Starts a new pod. Raises RuntimeUnavailable with the runtime's own message."""
        sandbox = self._run_sandbox("new-pod")
        self.maker.run_container(sandbox, ("new-pod", _uid("new-pod")), CONTAINER, image)

    def reboot(self) -> None:
        """The node reboots: every container has ended, and the kubelet has not acted on it yet."""
        self.runtime.reboot()
        self.exit_codes |= dict.fromkeys(self.running.values(), LOST_EXIT_CODE)

    def _run_sandbox(self, name: str) -> str:
        os.makedirs(self._directory_of(name), exist_ok=True)  # before the sandbox, as the kubelet does it
        return self.maker.run_pod(name, _uid(name), self._logs_of(name))

    def _directory_of(self, name: str) -> str:
        return os.path.join(self.root_directory, "pods", _uid(name))

    def _logs_of(self, name: str) -> str:
        return os.path.join(self.log_directory, f"default_{name}_{_uid(name)}")

    def add_pod(self, spec: PodSpec, name: str) -> None:
        """Adds one pod of a spec, in its state. Raises EmbeddedNodeError or RuntimeUnavailable."""
        if spec.state is PodState.VANISHED:
            self._write_logs(name, CONTAINER, 0, spec)
            return
        sandbox = self._run_sandbox(name)
        began = time.time() - spec.dead_seconds - SETTLED_SECONDS  # so that the pod does not count as being started
        self.runtime.age(sandbox, spec.dead_seconds + SETTLED_SECONDS)
        os.utime(self._directory_of(name), (began, began))
        if spec.state is PodState.INITIALIZED:
            self._exit(self._container(sandbox, name, spec, INIT_CONTAINER, 0), 0, spec)
        for attempt in range(spec.dead_copies):
            self._exit(self._container(sandbox, name, spec, CONTAINER, attempt), 1, spec)
        if spec.state is PodState.CREATED:
            self.maker.create_container(sandbox, (name, _uid(name)), CONTAINER, spec.image, spec.dead_copies)
            return
        last = self._container(sandbox, name, spec, CONTAINER, spec.dead_copies)
        match spec.state:
            case PodState.RUNNING | PodState.INITIALIZED:
                self.runtime.age(last, SETTLED_SECONDS)
                self.running[name] = last
            case PodState.UNKNOWN:
                self.runtime.lose_container(last)
            case PodState.COMPLETED:
                self._exit(last, 0, spec)
            case PodState.CRASHED | PodState.GONE:
                self._exit(last, 1, spec)
        if spec.state is PodState.GONE:
            self.runtime.kill_sandbox(sandbox)
            shutil.rmtree(self._directory_of(name))

    def _container(self, sandbox: str, pod_name: str, spec: PodSpec, name: str, attempt: int) -> str:
        container = self.maker.run_container(sandbox, (pod_name, _uid(pod_name)), name, spec.image, attempt)
        if spec.write_bytes and self.runtime.write_to_container(container, spec.write_bytes) < spec.write_bytes:
            raise EmbeddedNodeError(f"what the pod {pod_name} has to write does not fit")
        self._write_logs(pod_name, name, attempt, spec)
        return container

    def _write_logs(self, pod_name: str, name: str, attempt: int, spec: PodSpec) -> None:
        """The log of a container, and what the kubelet has rotated of it (kubelet, container_log_manager.go)."""
        path = self.log_files[pod_name] = os.path.join(self._logs_of(pod_name), name, f"{attempt}.log")
        if not spec.log_bytes:
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for age in range(spec.rotated_logs, -1, -1):  # the oldest first, and at last the log itself
            at = time.time() - ROTATED_EVERY_SECONDS * age
            log = f"{path}.{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}" if age else path
            with open(log, "wb") as file:
                file.write(os.urandom(spec.log_bytes))
            os.utime(log, (at, at))

    def _exit(self, container_id: str, exit_code: int, spec: PodSpec) -> None:
        self.runtime.exit_container(container_id, exit_code)
        self.runtime.age(container_id, spec.dead_seconds)  # called in order, so the order of creation is kept
        self.exit_codes[container_id] = exit_code


def _uid(pod_name: str) -> str:
    return f"uid-{pod_name}"
