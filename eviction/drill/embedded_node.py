"""The embedded node of a drill: small filesystems, a CRI runtime on them, images and pods.

Everything above the runtime's socket is the product's own code. Filesystems are mounted in a
private mount namespace (entered as root, or with a user namespace) and end with the process: each
is a tmpfs.
"""

import glob
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from os.path import join
from typing import Self

from eviction.drill.private_mounts import EmbeddedNodeError, mount_tmpfs, unmount
from eviction.drill.runtime import EmbeddedRuntime, EmbeddedServer, LayerSpec, exited, write_file
from eviction.drill.scenario import (
    BALLAST,
    CONTAINER,
    FILE,
    INIT_CONTAINER,
    LOG,
    FilesystemSpec,
    ImageSpec,
    PodSpec,
    PodState,
    Scenario,
)
from eviction.engine.ballast import create_ballast
from reclaim.cri import cri_pb2
from reclaim.cri.client import CriClient
from reclaim.cri.inventory import retried
from reclaim.functions.ballast import BallastRefused, BallastSettings
from reclaim.types import ImageRecord, RuntimeUnavailable
from signals.types import FilesystemRole

SPACING_SECONDS = 60  # between the ages of two entries
DEAD_SECONDS = 600  # since the exit of dead containers
SETTLED_SECONDS = 60  # from the start of a pod to the exit of its newest container
ROTATED_EVERY_SECONDS = 600.0
LOST_EXIT_CODE = 255  # reported by a runtime for a container that did not survive a reboot

FREES = """\
[ "$1" = plan ] && exit 1
left=${RECLAIMD_MISSING_BYTES:-0}
for file in $(ls -tr "$entries"); do
    [ "$left" -gt 0 ] || break
    left=$((left - $(stat -c %s "$entries/$file")))
    rm -- "$entries/$file"
done
"""
BODIES = {
    "frees": FREES,
    "hangs": "trap '' TERM\nwhile :; do sleep 1; done\n",
    "lies": "echo freed everything\n",
    "fails": "echo cannot >&2\nexit 3\n",
    "floods": "while :; do echo too many words; done\n",
    "leaves": "sleep 600 &\nexit 0\n",
}

# Of the states in which the last container of a pod has exited.
EXIT_CODES: Mapping[PodState, int] = {"completed": 0, "crashed": 1, "gone": 1}
# Of those in which it neither runs nor has exited, its state in CRI.
STATES: Mapping[PodState, int] = {
    "created": cri_pb2.CONTAINER_CREATED,
    "unknown": cri_pb2.CONTAINER_UNKNOWN,
}


class EmbeddedNode:
    """The node of a scenario, while its `with` block lasts.

    `mounted`: the result of `enter_private_mounts`, called while the process had one thread.
    Entering the block raises EmbeddedNodeError if the node cannot be built.
    """

    kind = "tmpfs"

    def __init__(self, scenario: Scenario, mounted: str):
        self.scenario = scenario
        self._spec = scenario.node
        self._mounted = mounted
        self._undo = ExitStack()
        self._base = tempfile.mkdtemp(prefix="reclaimd-drill-")
        self._disks = {role: join(self._base, str(role)) for role in self._spec.filesystems}
        nodefs = self._disks[FilesystemRole.NODEFS]
        self.root_directory = join(nodefs, "kubelet")
        self.pod_logs_directory = join(nodefs, "log", "pods")
        self.container_logs_directory = join(nodefs, "log", "containers")
        self.endpoint = f"unix://{self._base}/cri.sock"
        self.image_names: dict[str, str] = {}  # image id -> reference
        self.records: dict[str, ImageRecord] = {}  # by image id
        self.exit_codes: dict[str, int] = {}  # by id of the exited container
        self.containers: dict[str, str] = {}  # pod -> its newest container
        self.log_files: dict[str, str] = {}  # by pod

    def __enter__(self) -> Self:
        with self._undo:
            self._undo.callback(shutil.rmtree, self._base, ignore_errors=True)
            try:
                self._make_filesystems()
                self._start_runtime()
                self._populate()
            except (BallastRefused, RuntimeUnavailable, OSError) as error:
                raise EmbeddedNodeError(
                    f"the node of the scenario cannot be built: {error}"
                ) from error
            self._undo = self._undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def path_of(self, name: str) -> str:
        """The path of an added filesystem, of a function's program, or of the ballast."""
        if name in self._spec.own:
            return self._disks[FilesystemRole(name)]
        if name == BALLAST:
            return join(self._disks[FilesystemRole.NODEFS], "ballast")
        return join(self._base, "programs", name)

    @property
    def paths(self) -> set[tuple[str, str]]:
        """Kind and name of the log directories, and of the files that the configuration's functions
        may remove: `buildcache/0001`, `ballast`, and rotated logs by their paths below the pod log
        directory."""
        files = [
            f"{role}/{name}" for role in self._spec.own for name in os.listdir(self._entries(role))
        ]
        if any(pod.rotated_logs for pod in self._spec.pods):
            files += glob.iglob("*/*/*.log.*", root_dir=self.pod_logs_directory)
        if os.path.exists(self.path_of(BALLAST)):
            files.append("ballast")
        return {(FILE, name) for name in files} | {
            (LOG, name) for name in os.listdir(self.pod_logs_directory)
        }

    def disk(self, role: FilesystemRole) -> str:
        """The root of the filesystem that a role is on."""
        return self._disks[self._spec.role(role)]

    def describe(self) -> str:
        """The filesystems in one phrase."""
        return f"{self.kind}, mounted {self._mounted}"

    def _make_filesystems(self) -> None:
        """Makes the filesystems, the kubelet's directories, and what functions need."""
        for role, spec in self._spec.filesystems.items():
            os.mkdir(self._disks[role])
            self._undo.callback(unmount, self._disks[role])
            self._mount(self._disks[role], spec)
        for directory in (
            join(self.root_directory, "pods"),
            self.pod_logs_directory,
            self.container_logs_directory,
        ):
            os.makedirs(directory)
        for role, own in self._spec.own.items():
            os.mkdir(self._entries(role))
            for number in range(1, own.files + 1):
                path = join(self._entries(role), f"{number:04}")
                age = SPACING_SECONDS * (own.files + 1 - number)  # the oldest first
                _write(path, own.file_bytes, time.time() - age)
        os.mkdir(self.path_of(""))
        for function in self._spec.functions:
            if function.does is not None:
                entries = self._entries(FilesystemRole(function.frees or FilesystemRole.NODEFS))
                with open(self.path_of(function.name), "x", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\nentries={entries}\n{BODIES[function.does]}")
                    os.chmod(file.fileno(), 0o700)
            elif function.name == BALLAST:
                create_ballast(BallastSettings(self.path_of(BALLAST), function.size or 0), 0)

    def _entries(self, role: FilesystemRole) -> str:
        """The directory of the entries on a filesystem that the configuration adds."""
        return join(self._disks[role], "entries")

    def _mount(self, disk: str, spec: FilesystemSpec) -> None:
        mount_tmpfs(disk, spec.size_bytes, spec.inodes)

    def _start_runtime(self) -> None:
        images, containers = (
            join(self.disk(role), "runtime")
            for role in (FilesystemRole.IMAGEFS, FilesystemRole.CONTAINERFS)
        )
        self.runtime = EmbeddedRuntime(
            images,
            containers_root=containers,
            sandbox_image=self._spec.images[0].names[0],
            **{name: value for name, value in self._spec.runtime if value is not None},
        )
        self.server = EmbeddedServer(self.runtime, f"{self._base}/cri.sock")
        self.server.start()
        self._undo.callback(self.server.stop)
        self.client = CriClient(self.endpoint)
        self._undo.callback(self.client.close)
        retried(self.client.version)

    def _populate(self) -> None:
        now = time.monotonic()
        for image in self._spec.images:
            for place, name in enumerate(image.names):
                self.records[self.pull(image, name)] = ImageRecord(now - image.age_seconds + place)
        for pod in self._spec.pods:
            for name in pod.names:
                if pod.state == "vanished":
                    self._write_logs(name, CONTAINER, 0, spec=pod)
                else:
                    self._add_pod(pod, name)

    # ---- its images and pods

    def pull(self, spec: ImageSpec, name: str) -> str:
        """Pulls one image of a spec. Returns its id. Raises OSError if it does not fit."""
        own = LayerSpec(name, spec.size_bytes, spec.files)
        shared = [LayerSpec(f"shared {spec.name}", spec.shared_bytes)] if spec.shared_bytes else []
        image_id = self.runtime.add_image([name], [*shared, own])
        self.image_names[image_id] = name
        return image_id

    def new_pod_problem(self) -> str:
        """Starts a new pod. Returns why it did not start; empty if it did."""
        images = [pod.image for pod in self._spec.pods if pod.known_to_kubelet]
        directory = self._directory_of("new-pod")
        try:
            os.makedirs(directory)  # before the sandbox, as in the kubelet
            sandbox = self.runtime.add_sandbox("new-pod", "uid-new-pod")
            begin_container(directory, CONTAINER)
            self.runtime.add_container(
                sandbox, CONTAINER, [*images, self._spec.images[0].names[0]][0]
            )
        except (EmbeddedNodeError, OSError) as error:
            return str(error)
        return ""

    def _directory_of(self, pod_name: str) -> str:
        return join(self.root_directory, "pods", f"uid-{pod_name}")

    def _add_pod(self, spec: PodSpec, pod_name: str) -> None:
        """Adds one pod of a spec, in its state. Raises EmbeddedNodeError or OSError."""
        gone = spec.state == "gone"
        ready = not gone and not self._spec.rebooted
        directory = self._directory_of(pod_name)
        os.makedirs(directory)
        # so that the pod does not count as starting
        began = time.time() - DEAD_SECONDS - SETTLED_SECONDS
        sandbox = self.runtime.add_sandbox(
            pod_name,
            f"uid-{pod_name}",
            state=cri_pb2.SANDBOX_READY if ready else cri_pb2.SANDBOX_NOTREADY,
            created_at=round(began * 1e9),
        )
        self._add_containers(spec, pod_name, sandbox)
        if gone:
            shutil.rmtree(directory)
        else:
            age_directories(directory, began)

    def _add_containers(self, spec: PodSpec, pod_name: str, sandbox: str) -> None:
        """Makes the containers of a pod, in their states: one that runs or has exited has written
        its files."""
        last = spec.dead_copies
        # the kubelet has not reacted yet
        lost = LOST_EXIT_CODE if self._spec.rebooted and spec.state != "created" else None
        # name, attempt, exit code
        copies: list[tuple[str, int, int | None]] = [
            *[(INIT_CONTAINER, 0, 0)] * (spec.state == "initialized"),
            *((CONTAINER, attempt, 1) for attempt in range(last)),
            (CONTAINER, last, EXIT_CODES.get(spec.state, lost)),
        ]
        for name, attempt, exit_code in copies:
            age = {None: SETTLED_SECONDS, LOST_EXIT_CODE: 0}.get(exit_code, DEAD_SECONDS)
            at = time.time_ns() - age * 10**9
            fields = {
                "created_at": at,
                "started_at": at,
                "state": STATES.get(spec.state, cri_pb2.CONTAINER_RUNNING),
            }
            if exit_code is not None:
                fields |= exited(exit_code, at)
            begin_container(self._directory_of(pod_name), name)
            container = self.runtime.add_container(
                sandbox,
                name,
                spec.image,
                attempt=attempt,
                log_path=self._log_path(pod_name, name, attempt),
                writes=spec.write_bytes if fields["state"] else 0,
                **fields,
            )
            self.containers[pod_name] = container
            if exit_code is not None:
                self.exit_codes[container] = exit_code
            if fields["state"]:
                self._write_logs(pod_name, name, attempt, spec=spec)

    def _log_path(self, pod_name: str, name: str, attempt: int) -> str:
        return join(
            self.pod_logs_directory, f"default_{pod_name}_uid-{pod_name}", name, f"{attempt}.log"
        )

    def _write_logs(self, pod_name: str, name: str, attempt: int, *, spec: PodSpec) -> None:
        """Writes a container's log and its rotated logs.

        They are named as by the kubelet (container_log_manager.go).
        """
        path = self.log_files[pod_name] = self._log_path(pod_name, name, attempt)
        if not spec.log_bytes:
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for age in range(spec.rotated_logs, -1, -1):  # the oldest first, and the log itself last
            at = time.time() - ROTATED_EVERY_SECONDS * age
            log = f"{path}.{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}" if age else path
            _write(log, spec.log_bytes, at)


def _write(path: str, size_bytes: int, modified: float) -> None:
    write_file(path, size_bytes)
    os.utime(path, (modified, modified))


def begin_container(pod_directory: str, name: str) -> str:
    """What the kubelet makes right before it creates a container, if the pod's directory is there:
    the container's own, and in it a file for this attempt
    (`pkg/kubelet/kuberuntime/kuberuntime_container.go`, makeMounts). Returns the directory."""
    directory = join(pod_directory, "containers", name)
    if os.path.isdir(pod_directory):
        os.makedirs(directory, exist_ok=True)
        with open(join(directory, uuid.uuid4().hex[:8]), "xb"):
            pass
    return directory


def age_directories(pod_directory: str, at: float) -> None:
    """The directories of this pod and its containers were last changed at `at` (wall seconds)."""
    for path in (*glob.glob(join(pod_directory, "containers", "*")), pod_directory):
        os.utime(path, (at, at))
