"""A container runtime for one test: its data on the filesystem under test,
everything else outside it.

Covers: start, readiness, import of images, SIGSTOP and SIGCONT, SIGKILL and a new start on the
same data, and an end that leaves no process, mount, control group or socket behind. `containerd`
and `crio` say what differs.

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
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import grpc

from tests.real_node.cri_client import CriClient
from tests.real_node.leftovers import (
    cgroups_below,
    kill_if_there,
    processes_in,
    until,
    wait_or_kill,
)
from tests.real_node.loopfs import mounts_below, search_path, unmount
from tests.real_node.oci import ImageTar
from tests.stopped import wait_until_stopped

SANDBOX_IMAGE = "reclaimd.test/pause:1"
# the kernel stamps files by a clock that ticks every 4 ms, on some machines every 10 ms
STAMP_SECONDS = 0.012
SOCKET_PATH_LIMIT = 107  # bytes: sun_path is 108 with its closing zero (unix(7))
LONGEST_SUFFIX = len(".ttrpc")  # of the sockets beside the runtime's own


class ContainerRuntimeError(RuntimeError):
    """A runtime did not come up, or refused; the message ends with the tail of its log."""


class ContainerRuntime(ABC):
    """A runtime with its data in `root`; state, socket, configuration and log are
    in a directory of its own.

    As a context manager it is ready on entry (CRI answers Version within `ready_seconds`) and
    removed on exit, whatever happened in between. `cri` is a client on its socket; `cgroup_parent`
    the parent of everything that its pods run.
    """

    name: ClassVar[str]

    def __init__(self, root: Path, socket: str, sandbox_image: str, ready_seconds: float) -> None:
        self.root = root
        self.sandbox_image = sandbox_image
        self.ready_seconds = ready_seconds
        self.run_directory = Path(tempfile.mkdtemp(prefix="rn-"))  # short: it holds sockets
        self.socket = self.run_directory / socket
        self.log = self.run_directory / f"{self.name}.log"
        self.cgroup_parent = f"/reclaimd-{self.run_directory.name}"
        self._process: subprocess.Popen[bytes] | None = None
        if len(os.fsencode(self.socket)) + LONGEST_SUFFIX > SOCKET_PATH_LIMIT:
            self.run_directory.rmdir()
            raise ValueError(
                f"socket path {self.socket} is longer than {SOCKET_PATH_LIMIT} bytes: set a shorter"
                " TMPDIR"
            )
        self.cri = CriClient(self.socket)

    def __enter__(self) -> Self:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._configure()
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
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
        if self._process is None:
            raise ContainerRuntimeError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start it on its root and wait until CRI answers.

        ContainerRuntimeError after `ready_seconds`.
        """
        if self._process is not None:
            raise ContainerRuntimeError(f"{self.name} runs already, as process {self.pid}")
        environment = {"PATH": search_path(), "TMPDIR": str(self.run_directory / "tmp")}
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.run_directory,
            )
        self._wait_until_ready()

    def import_image(self, tar: ImageTar, keep: bool = False) -> str:
        """Bring an image in, delete its tar unless `keep`, and return its id once CRI shows it.

        ToolError when the runtime's tool refuses; ContainerRuntimeError when CRI
        does not list it within 10 s.
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
        """The id of an image that was imported, once CRI lists it.

        ContainerRuntimeError after 10 s.
        """
        deadline = time.monotonic() + 10
        while (image := self.cri.image_status(tar.reference)) is None or not tar.image_id.endswith(
            image.id
        ):
            if time.monotonic() > deadline:
                raise ContainerRuntimeError(
                    f"CRI does not show {tar.reference} 10 s after its import\n{self.log_tail()}"
                )
            time.sleep(0.01)
        return str(image.id)

    def pause(self) -> None:
        """Stop it by SIGSTOP: calls hang, pods go on. Every thread is stopped when this returns."""
        self._signal(signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """Continue it (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL; pods and data are kept. `start` starts it again."""
        self._signal(signal.SIGKILL)
        self._reap(5)

    def cgroups(self) -> list[Path]:
        """The control groups of this instance's pods, the deepest first."""
        return cgroups_below(self.cgroup_parent)

    def processes(self) -> list[int]:
        """The processes in those."""
        return processes_in(self.cgroups())

    def log_tail(self, lines: int = 30) -> str:
        """The last `lines` lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Remove all of it: pods over CRI, the runtime, monitors,
        processes, mounts, control groups.

        Safe to call twice, in any state. ToolError when a mount below its
        directories cannot be undone.
        """
        if self._process is not None:
            self.resume()
            self.remove_pods(budget_seconds=20)
            self._process.terminate()
            self._reap(10)
        self.cri.close()
        for _ in until(lambda: not self.processes() and not self.monitors(), seconds=5):
            for pid in (*self.monitors(), *self.processes()):
                kill_if_there(pid)
        for directory in (self.run_directory, self.root):
            for point in mounts_below(directory):
                unmount(point)
        for _ in until(lambda: not self.cgroups(), seconds=5):
            for group in self.cgroups():
                with contextlib.suppress(OSError):
                    group.rmdir()
        shutil.rmtree(self.run_directory, ignore_errors=True)

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

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it ended by itself. ContainerRuntimeError when none was started."""
        if self._process is None:
            raise ContainerRuntimeError(f"{self.name} is not running")
        self._process.send_signal(number)

    def _reap(self, patience_seconds: float) -> None:
        """Wait for its end, by SIGKILL when it takes longer than `patience_seconds`."""
        if self._process is None:
            return
        wait_or_kill(self._process, patience_seconds)
        self._process = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.ready_seconds
        while (
            self._process is not None
            and self._process.poll() is None
            and time.monotonic() < deadline
        ):
            try:
                self.cri.version(timeout_seconds=1.0)
            except grpc.RpcError:
                time.sleep(0.02)
            else:
                return
        raise ContainerRuntimeError(
            f"{self.name} does not answer over CRI; the end of its log:\n{self.log_tail()}"
        )
