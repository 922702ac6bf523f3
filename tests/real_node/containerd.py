"""A containerd for one test: its data on the filesystem under test, everything else outside it.

Covers: start, readiness, import of images, SIGSTOP and SIGCONT, SIGKILL and a new start on the same data, and an end
that leaves no process, mount, control group or socket behind.

Does not cover: networks (pods use the host's), registries (none is contacted).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from tests.real_node.containerd_config import write_configuration
from tests.real_node.cri_client import CriClient
from tests.real_node.leftovers import (
    cgroups_below,
    kill_if_there,
    processes_in,
    shim_sockets_named_in,
    shims_of,
    until,
)
from tests.real_node.loopfs import find_tool, mounts_below, run_tool, search_path, unmount
from tests.real_node.oci import ImageTar
from tests.stopped import wait_until_stopped

NAMESPACE = "k8s.io"
SANDBOX_IMAGE = "reclaimd.test/pause:1"
STAMP_SECONDS = 0.012  # the kernel stamps files by a clock that ticks every 4 ms, on some machines every 10 ms
SOCKET_PATH_LIMIT = 107  # bytes: sun_path is 108 with its closing zero (unix(7))


class ContainerdError(RuntimeError):
    """containerd did not come up, or refused; the message ends with the tail of its log."""


class Containerd:
    """A containerd with its data in `root`; state, socket, configuration and log are in a directory of its own.

    As a context manager it is ready on entry (CRI answers Version within `ready_seconds`) and removed on exit, whatever
    happened in between. `cri` is a client on its socket; `cgroup_parent` the parent of everything that its pods run.
    """

    def __init__(self, root: Path, sandbox_image: str = SANDBOX_IMAGE, ready_seconds: float = 30.0) -> None:
        self.root = root
        self.sandbox_image = sandbox_image
        self.ready_seconds = ready_seconds
        self.run_directory = Path(tempfile.mkdtemp(prefix="rn-"))  # short: it holds sockets
        self.state = self.run_directory / "state"
        self.socket = self.run_directory / "c.sock"
        self.log = self.run_directory / "containerd.log"
        self.cgroup_parent = f"/reclaimd-{self.run_directory.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._shim_sockets: set[Path] = set()
        if len(os.fsencode(self.socket)) + len(".ttrpc") > SOCKET_PATH_LIMIT:
            self.run_directory.rmdir()
            raise ValueError(
                f"socket path {self.socket} is longer than {SOCKET_PATH_LIMIT} bytes: set a shorter TMPDIR"
            )
        self.cri = CriClient(self.socket)

    def __enter__(self) -> Self:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            write_configuration(self.run_directory, self.root, self.sandbox_image)
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running containerd. ContainerdError when none runs."""
        if self._process is None:
            raise ContainerdError("containerd is not running")
        return self._process.pid

    def start(self) -> None:
        """Start containerd on its root and wait until CRI answers. ContainerdError after `ready_seconds`."""
        if self._process is not None:
            raise ContainerdError(f"containerd runs already, as process {self.pid}")
        environment = {"PATH": search_path(), "TMPDIR": str(self.run_directory / "tmp")}
        command = [find_tool("containerd") or "containerd", "--config", str(self.run_directory / "config.toml")]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.run_directory
            )
        self._wait_until_ready()

    def import_image(self, tar: ImageTar, keep: bool = False) -> str:
        """Bring an image in, delete its tar unless `keep`, and return its id once CRI shows it.

        ToolError when ctr refuses; ContainerdError when CRI does not list it within 10 s (it learns by event).
        """
        return self.import_images([tar], keep)[0]

    def import_images(self, tars: Sequence[ImageTar], keep: bool = False) -> list[str]:
        """Bring all images of one tar (`write_images`) in by one import; errors as of `import_image`.

        Their ages differ in the order given, as if they had been imported one after the other: what tells the age is
        when the image's blob changed, and the blobs are touched once more, further apart than the clock ticks that
        stamps files.
        """
        (path,) = {tar.path for tar in tars}
        try:
            run_tool("ctr", "--address", self.socket, "--namespace", NAMESPACE, "images", "import", path)
        finally:
            if not keep:
                path.unlink()
        ids = [self._shown(tar) for tar in tars]
        for image_id in ids if len(ids) > 1 else ():
            os.utime(self.blob(image_id))
            time.sleep(STAMP_SECONDS)
        return ids

    def blob(self, image_id: str) -> Path:
        """The file of containerd's content store that an image id names: the image's configuration."""
        blobs = self.root / "io.containerd.content.v1.content" / "blobs" / "sha256"
        return blobs / image_id.removeprefix("sha256:")

    def _shown(self, tar: ImageTar) -> str:
        """The id of an image that was imported, once CRI lists it. ContainerdError after 10 s."""
        deadline = time.monotonic() + 10
        while (image := self.cri.image_status(tar.image_id)) is None or tar.reference not in image.repo_tags:
            if time.monotonic() > deadline:
                raise ContainerdError(f"CRI does not show {tar.reference} 10 s after its import\n{self.log_tail()}")
            time.sleep(0.01)
        return str(image.id)

    def pause(self) -> None:
        """Stop containerd by SIGSTOP: calls hang, pods go on. Every thread is stopped when this returns."""
        self._signal(signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """Continue it (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End containerd with SIGKILL; shims, pods and data are kept. `start` starts it again."""
        self._signal(signal.SIGKILL)
        self._reap(5)

    def shims(self) -> list[int]:
        """The process ids of this instance's shims."""
        return shims_of(self.socket)

    def shim_sockets(self) -> set[Path]:
        """The sockets of this instance's shims."""
        return shim_sockets_named_in(self.state)

    def cgroups(self) -> list[Path]:
        """The control groups of this instance's pods, the deepest first."""
        return cgroups_below(self.cgroup_parent)

    def log_tail(self, lines: int = 30) -> str:
        """The last `lines` lines of containerd's log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Remove all of it: pods over CRI, containerd, shims, processes, mounts, control groups.

        Safe to call twice, in any state. ToolError when a mount below its directories cannot be undone.
        """
        self._shim_sockets |= self.shim_sockets()
        if self._process is not None:
            self.resume()
            self.remove_pods(budget_seconds=20)
            self._process.terminate()
            self._reap(10)
        self.cri.close()
        for pid in self.shims():
            kill_if_there(pid)
        for _ in until(lambda: not self._contained() and not self.shims(), seconds=5):
            for pid in self._contained():
                kill_if_there(pid)
        for directory in (self.state, self.run_directory, self.root):
            for point in mounts_below(directory):
                unmount(point)
        for _ in until(lambda: not self.cgroups(), seconds=5):
            for group in self.cgroups():
                with contextlib.suppress(OSError):
                    group.rmdir()
        for path in self._shim_sockets:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.run_directory, ignore_errors=True)

    def remove_pods(self, budget_seconds: float) -> None:
        """Stop and remove every pod, as far as the runtime answers; the rest is killed by process id afterwards."""
        deadline = time.monotonic() + budget_seconds
        with contextlib.suppress(grpc.RpcError):
            for sandbox in self.cri.list_sandboxes():
                if (left := deadline - time.monotonic()) <= 0:
                    return
                with contextlib.suppress(grpc.RpcError):
                    self.cri.stop_sandbox(sandbox.id, left)
                    self.cri.remove_sandbox(sandbox.id, left)

    def _contained(self) -> list[int]:
        """The processes in our control groups."""
        return processes_in(self.cgroups())

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal, unless containerd ended by itself. ContainerdError when none was started."""
        if self._process is None:
            raise ContainerdError("containerd is not running")
        self._process.send_signal(number)

    def _reap(self, patience_seconds: float) -> None:
        """Wait for containerd's end, by SIGKILL when it takes longer than `patience_seconds`."""
        if self._process is None:
            return
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.ready_seconds
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            try:
                self.cri.version(timeout_seconds=1.0)
            except grpc.RpcError:
                time.sleep(0.02)
            else:
                return
        raise ContainerdError(f"containerd does not answer over CRI; the end of its log:\n{self.log_tail()}")
