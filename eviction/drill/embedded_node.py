"""The embedded node of a drill: small filesystems, a CRI runtime on them, images and pods.

Everything above the runtime's socket is the product's own code. Filesystems are mounted in a
private mount namespace (entered as root, or with a user namespace) and end with the process: each
is a tmpfs.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Self, TypeVar

from eviction.drill.layer_store import LayerSpec
from eviction.drill.pod_directories import age_directories, begin_container
from eviction.drill.private_mounts import (
    EmbeddedNodeError,
    mount_tmpfs,
    unmount,
)
from eviction.drill.runtime import EmbeddedRuntime
from eviction.drill.scenario import (
    BALLAST,
    CONTAINER,
    INIT_CONTAINER,
    FilesystemSpec,
    ImageSpec,
    PodSpec,
    PodState,
    Scenario,
)
from eviction.drill.server import EmbeddedServer
from eviction.engine.ballast import create_ballast
from reclaim.cri.client import CriClient
from reclaim.functions.ballast import BallastRefused, BallastSettings
from reclaim.types import ImageRecord, RuntimeUnavailable
from signals.types import FilesystemRole

DEADLINE_SECONDS = 10.0
PAUSE_SECONDS = 0.05

SPACING_SECONDS = 60  # between the ages of two entries
DEAD_SECONDS = 600.0  # since the exit of dead containers
SETTLED_SECONDS = 60.0  # from the start of a pod to the exit of its newest container
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

_Answer = TypeVar("_Answer")


def until_answered(ask: Callable[[], _Answer]) -> _Answer:
    """Repeats a call that changes nothing until it is answered.

    On a busy machine the runtime may have just started. Raises RuntimeUnavailable after 10 s.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return ask()
        except RuntimeUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_SECONDS)


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
        self._disks = {role: os.path.join(self._base, str(role)) for role in self._spec.filesystems}
        nodefs = self._disks[FilesystemRole.NODEFS]
        self.root_directory = os.path.join(nodefs, "kubelet")
        self.pod_logs_directory = os.path.join(nodefs, "log", "pods")
        self.container_logs_directory = os.path.join(nodefs, "log", "containers")
        self.endpoint = f"unix://{self._base}/cri.sock"
        self.image_names: dict[str, str] = {}  # image id -> reference
        self.records: dict[str, ImageRecord] = {}  # by image id
        self.exit_codes: dict[str, int] = {}  # by id of the exited container
        self.running: dict[str, str] = {}  # pod -> container
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
            return os.path.join(self._disks[FilesystemRole.NODEFS], "ballast")
        return os.path.join(self._base, "programs", name)

    @property
    def files(self) -> set[str]:
        """The files that the configuration's functions may remove.

        `buildcache/0001`, `ballast`, and rotated logs by their paths below the pod log directory.
        """
        found = set()
        for role in self._spec.own:
            found |= {f"{role}/{name}" for name in os.listdir(self._entries(role))}
        if any(pod.rotated_logs for pod in self._spec.pods):
            found |= set(glob.iglob("*/*/*.log.*", root_dir=self.pod_logs_directory))
        if os.path.exists(self.path_of(BALLAST)):
            found.add("ballast")
        return found

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
        pods = os.path.join(self.root_directory, "pods")
        for directory in (pods, self.pod_logs_directory, self.container_logs_directory):
            os.makedirs(directory)
        for role, own in self._spec.own.items():
            os.mkdir(self._entries(role))
            for number in range(1, own.files + 1):
                path = os.path.join(self._entries(role), f"{number:04}")
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
        return os.path.join(self._disks[role], "entries")

    def _mount(self, disk: str, spec: FilesystemSpec) -> None:
        mount_tmpfs(disk, spec.size_bytes, spec.inodes)

    def _start_runtime(self) -> None:
        images = FilesystemRole.IMAGEFS
        containers = FilesystemRole.CONTAINERFS
        self.runtime = EmbeddedRuntime(
            os.path.join(self.disk(images), "runtime"),
            containers_root=os.path.join(self.disk(containers), "runtime"),
            sandbox_image=self._spec.images[0].names[0],
            **{name: value for name, value in self._spec.runtime if value is not None},
        )
        self.server = EmbeddedServer(self.runtime, f"{self._base}/cri.sock")
        self.server.start()
        self._undo.callback(self.server.stop)
        self.client = CriClient(self.endpoint)
        self._undo.callback(self.client.close)
        until_answered(self.client.version)

    def _populate(self) -> None:
        now = time.monotonic()
        for image in self._spec.images:
            for place, name in enumerate(image.names):
                self.records[self.pull(image, name)] = ImageRecord(now - image.age_seconds + place)
        for pod in self._spec.pods:
            for name in pod.names:
                self._add_pod(pod, name)
        if self._spec.rebooted:
            self.runtime.reboot()  # and the kubelet has not reacted yet
            self.exit_codes |= dict.fromkeys(self.running.values(), LOST_EXIT_CODE)

    # ---- its images and pods

    def pull(self, spec: ImageSpec, name: str) -> str:
        """Pulls one image of a spec. Returns its id. Raises OSError if it does not fit."""
        own = LayerSpec(name, spec.size_bytes, spec.files)
        shared = [LayerSpec(f"shared {spec.name}", spec.shared_bytes)] if spec.shared_bytes else []
        image_id = self.runtime.add_image([name], [*shared, own])
        self.image_names[image_id] = name
        return image_id

    def start_new_pod(self, image: str) -> None:
        """Starts a new pod. Raises EmbeddedNodeError or OSError if it does not start."""
        self._begin(self._run_sandbox("new-pod"), "new-pod", CONTAINER, image=image)

    def _run_sandbox(self, name: str) -> str:
        # before the sandbox, as in the kubelet
        os.makedirs(self._directory_of(name), exist_ok=True)
        return self.runtime.add_sandbox(name, _uid(name), self._logs_of(name))

    def _begin(
        self,
        sandbox: str,
        pod_name: str,
        name: str,
        *,
        image: str,
        attempt: int = 0,
        starts: bool = True,
    ) -> str:
        begin_container(self._directory_of(pod_name), name)
        return self.runtime.add_container(sandbox, name, image, attempt=attempt, starts=starts)

    def _directory_of(self, name: str) -> str:
        return os.path.join(self.root_directory, "pods", _uid(name))

    def _logs_of(self, name: str) -> str:
        return os.path.join(self.pod_logs_directory, f"default_{name}_{_uid(name)}")

    def _add_pod(self, spec: PodSpec, name: str) -> None:
        """Adds one pod of a spec, in its state. Raises EmbeddedNodeError or OSError."""
        if spec.state == "vanished":
            self._write_logs(name, CONTAINER, 0, spec=spec)
            return
        sandbox = self._run_sandbox(name)
        # so that the pod does not count as starting
        ran = DEAD_SECONDS + SETTLED_SECONDS
        self.runtime.age(sandbox, ran)
        self._run_containers(spec, name, sandbox)
        if spec.state == "gone":
            self.runtime.kill_sandbox(sandbox)
            shutil.rmtree(self._directory_of(name))
        else:
            age_directories(self._directory_of(name), time.time() - ran)

    def _run_containers(self, spec: PodSpec, pod_name: str, sandbox: str) -> None:
        """Makes the containers of a pod, in their states: one that runs or has exited has written
        its files."""
        last = spec.dead_copies
        # name, attempt, exit code
        copies: list[tuple[str, int, int | None]] = [
            *[(INIT_CONTAINER, 0, 0)] * (spec.state == "initialized"),
            *((CONTAINER, attempt, 1) for attempt in range(last)),
            (CONTAINER, last, EXIT_CODES.get(spec.state)),
        ]
        for name, attempt, exit_code in copies:
            starts = spec.state != "created" or exit_code is not None
            container = self._begin(
                sandbox, pod_name, name, image=spec.image, attempt=attempt, starts=starts
            )
            if not starts:
                return
            size = spec.write_bytes
            if size and self.runtime.write_to_container(container, size) < size:
                raise EmbeddedNodeError(f"what the pod {pod_name} writes does not fit")
            self._write_logs(pod_name, name, attempt, spec=spec)
            if exit_code is not None:
                self.runtime.exit_container(container, exit_code)
                # copy by copy, so the order of creation is kept
                self.runtime.age(container, DEAD_SECONDS)
                self.exit_codes[container] = exit_code
            elif spec.state == "unknown":
                self.runtime.lose_container(container)
            else:
                self.runtime.age(container, SETTLED_SECONDS)
                self.running[pod_name] = container

    def _write_logs(self, pod_name: str, name: str, attempt: int, *, spec: PodSpec) -> None:
        """Writes a container's log and its rotated logs.

        They are named as by the kubelet (container_log_manager.go).
        """
        path = self.log_files[pod_name] = os.path.join(
            self._logs_of(pod_name), name, f"{attempt}.log"
        )
        if not spec.log_bytes:
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        for age in range(spec.rotated_logs, -1, -1):  # the oldest first, and the log itself last
            at = time.time() - ROTATED_EVERY_SECONDS * age
            log = f"{path}.{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}" if age else path
            _write(log, spec.log_bytes, at)


def _write(path: str, size_bytes: int, modified: float) -> None:
    with open(path, "wb") as file:
        file.write(os.urandom(size_bytes))
    os.utime(path, (modified, modified))


def _uid(pod_name: str) -> str:
    return f"uid-{pod_name}"
