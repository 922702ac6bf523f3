"""A container runtime for one test: its data on the filesystem under test,
everything else outside it.

Covers: start, readiness, import of images, SIGSTOP and SIGCONT, SIGKILL and a new start on the
same data, and an end that leaves no process, mount, control group or socket behind. `containerd`
and `crio` say what differs. What is left is found by a name that belongs to one instance only (a
path in its directory, its cgroup parent), so that removing it never touches another runtime on the
same machine.

Does not cover: networks (pods use the host's), registries (none but a test's own is contacted).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Self

import grpc

from tests.real_node.cri_client import CriClient
from tests.real_node.loopfs import mounts_below, search_path, unmount
from tests.real_node.oci import BASE, Image, ImageTar, write_images
from tests.reclaimd_process import came_true
from tests.stopped import wait_until_stopped

SANDBOX_IMAGE = "reclaimd.test/pause:1"
CGROUP_ROOT = Path("/sys/fs/cgroup")
# the kernel stamps files by a clock that ticks every 4 ms, on some machines every 10 ms
STAMP_SECONDS = 0.012
READY_SECONDS = 30.0
END_SECONDS = 30.0


class ContainerRuntimeError(RuntimeError):
    """A runtime did not come up, or refused; the message ends with the tail of its log."""


class ContainerRuntime(ABC):
    """A runtime with its data in `root`; state, socket, configuration and log are
    in a directory of its own.

    As a context manager it is ready on entry (CRI answers Version, the sandbox image is there) and
    removed on exit, whatever happened in between. `cri` is a client on its socket; `cgroup_parent` the parent of everything
    that its pods run.
    """

    name: ClassVar[str]
    sandbox_image = SANDBOX_IMAGE

    def __init__(self, root: Path, socket: str) -> None:
        self.root = root
        self.run_directory = Path(tempfile.mkdtemp(prefix="rn-"))  # short: it holds sockets
        self.socket = self.run_directory / socket
        self.log = self.run_directory / f"{self.name}.log"
        self.cgroup_parent = f"/reclaimd-{self.run_directory.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self.cri = CriClient(self.socket)

    def __enter__(self) -> Self:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._configure()
            self.start()
            (self.sandbox_image_id,) = self.bring(Image(SANDBOX_IMAGE, (BASE,)))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _configure(self) -> None:
        """Write the configuration, and make the directories that it names (`tmp`
        is the runtime's TMPDIR).
        """

    @abstractmethod
    def _command(self) -> list[str]:
        """What starts the runtime."""

    @abstractmethod
    def _bring_in(self, tars: Sequence[ImageTar]) -> None:
        """Import images, all of which are in one tar. ToolError when the runtime's tool refuses."""

    @abstractmethod
    def age_stamp(self, image_id: str) -> Path:
        """The file or directory of the runtime's that says by its times when an image came."""

    @abstractmethod
    def speaks_plainly_to(self, registry: str) -> None:
        """It pulls from a registry at this address of the loopback by plain HTTP."""

    @abstractmethod
    def monitors(self) -> list[int]:
        """The process ids of what stands between this instance and its containers, outliving it."""

    @property
    def pid(self) -> int:
        """The process id of the running runtime. ContainerRuntimeError when none runs."""
        return self._running().pid

    def start(self) -> None:
        """Start it on its root and wait until CRI answers. ContainerRuntimeError."""
        environment = {"PATH": search_path(), "TMPDIR": str(self.run_directory / "tmp")}
        with open(self.log, "ab") as log:
            process = self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.run_directory,
            )
        deadline = time.monotonic() + READY_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                self.cri.version(timeout_seconds=1.0)
            except grpc.RpcError:
                time.sleep(0.02)
            else:
                return
        raise ContainerRuntimeError(f"{self.name} does not answer over CRI\n{self._log_tail()}")

    def bring(self, *images: Image) -> list[str]:
        """Write images outside the filesystem under test and bring them in; their ids. The first
        given is the oldest. Errors as of `import_image`."""
        with tempfile.TemporaryDirectory(prefix="rn-image-") as outside:
            return self.import_images(write_images(images, Path(outside)))

    def import_image(self, tar: ImageTar, keep: bool = False) -> str:
        """Bring an image in, delete its tar unless `keep`, and return its id once CRI shows it.

        ToolError when the runtime's tool refuses; ContainerRuntimeError when CRI
        does not list it within a minute.
        """
        return self.import_images([tar], keep)[0]

    def import_images(self, tars: Sequence[ImageTar], keep: bool = False) -> list[str]:
        """Bring all images of one tar (`write_images`) in at once; errors as of `import_image`.

        Their ages differ in the order given, as if they had been imported one after the other: what
        tells the age is touched once more, further apart than the clock ticks that stamps files.
        """
        try:
            self._bring_in(tars)
        finally:
            if not keep:
                tars[0].path.unlink()
        ids = [self._shown(tar) for tar in tars]
        for image_id in ids if len(ids) > 1 else ():
            os.utime(self.age_stamp(image_id))
            time.sleep(STAMP_SECONDS)
        return ids

    def _shown(self, tar: ImageTar) -> str:
        """The id of an image that was imported, once CRI lists it. ContainerRuntimeError."""
        found: list[str] = []

        def is_shown() -> bool:
            image = self.cri.image_status(tar.reference)
            found[:] = [image.id] if image is not None and tar.image_id.endswith(image.id) else []
            return bool(found)

        if not came_true(is_shown):
            raise ContainerRuntimeError(f"CRI does not show {tar.reference}\n{self._log_tail()}")
        return found[0]

    def pause(self) -> None:
        """Stop it by SIGSTOP: calls hang, pods go on. Every thread is stopped when this returns."""
        self._running().send_signal(signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """Continue it (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL; pods and data are kept. `start` starts it again."""
        self._running().kill()
        self._reap()

    def cgroups(self) -> list[Path]:
        """The control groups of this instance's pods, the deepest first, in every hierarchy."""
        roots = (CGROUP_ROOT, *CGROUP_ROOT.iterdir()) if CGROUP_ROOT.is_dir() else ()
        tops = (point / self.cgroup_parent[1:] for point in roots)
        return [Path(at) for top in tops for at, _, _ in os.walk(top, topdown=False)]

    def processes(self) -> set[int]:
        """The processes in those."""
        return {
            int(pid)
            for group in self.cgroups()
            for pid in read_text(group / "cgroup.procs").split()
        }

    def stop(self) -> None:
        """Remove all of it: pods over CRI, the runtime, monitors,
        processes, mounts, control groups.

        Safe to call twice, in any state. ToolError when a mount below its directories cannot be
        undone, ContainerRuntimeError when something else is left.
        """
        if self._process is not None:
            self.resume()
            self.remove_pods(budget_seconds=20)
            self._process.terminate()
            self._reap()
        self.cri.close()

        def none_is_left() -> bool:
            for pid in (left := {*self.monitors(), *self.processes()}):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        ended = came_true(none_is_left, END_SECONDS, every_seconds=0.02)
        for directory in (self.run_directory, self.root):
            for point in mounts_below(directory):
                unmount(point)

        def no_group_is_left() -> bool:
            for group in self.cgroups():
                with contextlib.suppress(OSError):
                    group.rmdir()
            return not self.cgroups()

        ended &= came_true(no_group_is_left, END_SECONDS, every_seconds=0.02)
        shutil.rmtree(self.run_directory, ignore_errors=True)
        if not ended or self.run_directory.exists():
            raise ContainerRuntimeError(
                f"of {self.name} processes, control groups or files are left"
            )

    def remove_pods(self, budget_seconds: float) -> None:
        """Kill, stop and remove every pod, as far as the runtime answers; the rest is
        killed by process id later.
        """
        deadline = time.monotonic() + budget_seconds
        ends = (
            # else CRI-O waits 10 s for what ignores SIGTERM
            (self.cri.list_containers, self.cri.kill_container),
            (self.cri.list_sandboxes, self.cri.stop_sandbox),
            (self.cri.list_sandboxes, self.cri.remove_sandbox),
        )
        with contextlib.suppress(grpc.RpcError):
            for listed, end in ends:
                for each in listed():
                    if (left := deadline - time.monotonic()) <= 0:
                        return
                    with contextlib.suppress(grpc.RpcError):
                        end(each.id, left)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ContainerRuntimeError(f"{self.name} is not running")
        return self._process

    def _reap(self) -> None:
        """Wait for its end, by SIGKILL when it takes longer than 10 s."""
        wait_or_kill(self._running())
        self._process = None

    def _log_tail(self) -> str:
        return "\n".join(read_text(self.log).splitlines()[-30:])


def wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Waits for the end of a process, by SIGKILL when it takes longer than 10 s."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def processes_with(option: str, value: Path) -> list[int]:
    """The process ids of those whose command line has this option with this value."""
    pair = (option, str(value))
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and pair in pairwise(read_text(entry / "cmdline").split("\0"))
    ]


def read_text(file: Path) -> str:
    """The text of a file, empty when it is gone."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
