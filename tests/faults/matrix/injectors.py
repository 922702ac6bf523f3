"""For each resource of the fault matrix, what makes it fail: who comes to the daemon's own sockets;
what it reads and writes on filesystems; the process itself; single CRI methods, the runtime's socket
as a whole, and the kubelet's own list of pods.

A filesystem that hangs, is slow or fails is a real one, by FUSE; one that is full or gone is a
tmpfs. A method fails by a failpoint of the embedded runtime.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import shutil
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import grpc

from eviction.surface.control_client import NotAskedError, ask
from reclaim.types import Kind
from tests.background import Background
from tests.faults.fuse import SilentFilesystem
from tests.faults.matrix.node import MARK_BYTES, Program, livez
from tests.faults.matrix.table import HELD_SECONDS, RESOURCES, SLACK_SECONDS, Fault
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import ActThenFail, Cut, Delay, Fail, Failpoint, Hang, Pretend
from tests.nodes.small_node import MIB
from tests.pods_wire import pods_answer
from tests.ports import free_port
from tests.reclaimd_process import came_true
from tests.sockets.hostile_clients import hostile_clients
from tests.sockets.kubelet_server import FOREVER_SECONDS, KubeletServer, answer, dripping, pod_list
from tests.sockets.mounts import tmpfs
from tests.sockets.pods_api_server import PodsAPIServer
from tests.thread_limit import ThreadLimit

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench


class Injector:
    """One resource of one bench, whole until `begin`.

    `fields`: of the configuration. `from_the_start`: the fault has to begin before the program,
    whatever its name. `undo`: what ends the fault, or lets go what still hangs.
    """

    from_the_start = False

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.row = bench.row
        self.fault = bench.row.fault
        self.fields: dict[str, Any] = {}
        self.undo, self.at_last = ExitStack(), ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def prepare(self, program: Program) -> None:
        """Before the program starts: how it is started."""

    def begin(self) -> None:
        """The fault begins. The program runs already, except at `absent-at-start`."""
        raise NotImplementedError

    def end(self) -> None:
        """The fault ends."""
        self.undo.close()

    def problems(self) -> list[str]:
        """What is wrong with the resource itself after the fault, beside what
        every row promises.
        """
        return []

    def release(self) -> None:
        """Whatever still hangs is let go, and nothing is left behind. May be called twice."""
        self.undo.close()
        self.at_last.close()


# ---- its own sockets

CLIENTS = 24  # three times as many as are answered at a time
NOISE = b"\0\xff{" * 300 + b"\n\r\n\r\n"


class _Endpoint(Injector):
    """Clients that are many and silent, send a byte now and then, or garbage."""

    address: str

    def begin(self) -> None:
        """They come."""
        kind = {Fault.SLOW: "dripping", Fault.WRONG: "gone"}.get(self.fault, "silent")
        self.undo.enter_context(hostile_clients(self.address, kind, CLIENTS, NOISE))

    def problems(self) -> list[str]:
        """After the fault it answers, if there was an endpoint at the start."""
        answers = self.fault is Fault.ABSENT_AT_START or self.answers()
        return [] if answers else [f"{self.row.resource} does not answer"]

    def answers(self) -> bool:
        """Whether it does."""
        raise NotImplementedError


class ControlSocket(_Endpoint):
    """Its path may be taken or away, too."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._path = bench.directory / "control" / "control.sock"
        self.address = str(self._path)

    def begin(self) -> None:
        """By the fault."""
        if self.fault is Fault.ABSENT_AT_START:
            self._path.mkdir(parents=True, mode=0o700)
            self.undo.callback(self._path.rmdir)
        elif self.fault is Fault.ABSENT:
            away = self._path.rename(self._path.with_name("away.sock"))
            self.undo.callback(away.rename, self._path)
        else:
            super().begin()

    def answers(self) -> bool:
        """Asked for its status, unless the crowd is still there."""
        crowded = self.fault in (Fault.HANGS, Fault.SLOW)
        return crowded or came_true(self._asked, SLACK_SECONDS)

    def _asked(self) -> bool:
        try:
            return bool(ask(str(self._path), "status"))
        except NotAskedError:
            return False


class MetricsPort(_Endpoint):
    """The port may be taken, too."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.address = f"127.0.0.1:{bench.port}"

    def begin(self) -> None:
        """By the fault."""
        if self.fault is Fault.ABSENT_AT_START:
            self.undo.enter_context(socket.create_server(("127.0.0.1", self.bench.port)))
        else:
            super().begin()

    def answers(self) -> bool:
        """Asked for its health."""
        return livez(self.bench.port, SLACK_SECONDS) is not None


# ---- filesystems

SLOW_STATVFS_SECONDS = 0.3
SLOW_FILE_SECONDS = 0.5
SLOW_DIRECTORY_SECONDS = 0.05  # of each access; a list is four, and a pass reads many
HELD_OFF_SECONDS = 20.0  # the limit of a wait, which ends as soon as it can
GARBAGE = b'{"format": 1, "records": {"sha256:' + b"\0" * 100


class Statvfs(Injector):
    """The filesystem of the images as the program sees it.

    They are on the node's disk, whose size it reports.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        place = bench.directory / "images-seen"
        place.mkdir()
        mirror = SilentFilesystem(str(place), mirrored=str(bench.node.disk))
        self._filesystem = self.at_last.enter_context(mirror)
        bench.node.runtime.image_mountpoint = str(place)
        self.fields = {
            "evictionHard": {"nodefs.available": "0%", "imagefs.available": str(MARK_BYTES)}
        }

    def begin(self) -> None:
        """It fails, says nonsense, takes its time, or says nothing; at the end it answers as
        before, also what it was asked meanwhile."""
        field, value = {
            Fault.SLOW: ("delay_seconds", SLOW_STATVFS_SECONDS),
            Fault.WRONG: ("nonsense", True),
            Fault.HANGS: ("stopped", True),
            Fault.COMES_BACK: ("stopped", True),
        }.get(self.fault, ("error", errno.EIO))
        usual = getattr(self._filesystem, field)
        setattr(self._filesystem, field, value)
        self.undo.callback(setattr, self._filesystem, field, usual)


class _OnFilesystem(Injector):
    """A directory that may be on a filesystem of its own: one that hangs or is slow, a small
    one."""

    def hang(self, directory: Path, slow_seconds: float) -> None:
        """By FUSE: it hangs, or is slow."""
        slow = self.fault is Fault.SLOW
        filesystem = SilentFilesystem(str(directory), stopped=not slow)
        filesystem.delay_seconds = slow_seconds if slow else 0.0
        self.undo.enter_context(filesystem)

    def cover(self, directory: Path, size_bytes: int, inodes: int) -> None:
        """A tmpfs over it."""
        self.undo.enter_context(tmpfs(directory, size_bytes, inodes))


class StateFile(_OnFilesystem):
    """The file of image records, which the program writes, and its directory."""

    directory_name: ClassVar[str] = "state"
    file_name: ClassVar[str] = "images.json"

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._directory = bench.directory / self.directory_name
        self._directory.mkdir()
        self.file = self._directory / self.file_name
        self.from_the_start = self.row.variant == "at-start" or self.fault is Fault.WRONG

    def begin(self) -> None:
        """A file in place of its directory; a full tmpfs; a directory that hangs or
        is slow; a file of garbage, or a directory in place of the file.
        """
        match self.fault:
            case Fault.ABSENT_AT_START:
                self._directory.rmdir()
                self._directory.write_text("not a directory\n")
                self.undo.callback(self._directory.unlink)
            case Fault.ABSENT:
                self.cover(self._directory, 4096, 2)
                (self._directory / "full").write_bytes(bytes(4096))
            case Fault.WRONG if self.row.variant == "directory":
                self.file.mkdir()
                self.undo.callback(shutil.rmtree, self.file, ignore_errors=True)
            case Fault.WRONG:
                self.file.write_bytes(GARBAGE)
            case _:
                self.hang(self._directory, SLOW_FILE_SECONDS)


class HistoryFile(StateFile):
    """The history of passes and removals."""

    directory_name = file_name = "history"


class PauseFile(StateFile):
    """A pause that outlives the daemon; it is read at the start."""

    file_name = "images.json.pause"

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.from_the_start = True
        self._problems: list[str] | None = None

    def end(self) -> None:
        """There is no pause."""
        self.problems()
        super().end()
        self.file.unlink(missing_ok=True)

    def problems(self) -> list[str]:
        """Whether the program holds off while a pause may be in force, and
        what has gone all the same.
        """
        if self._problems is None and self.fault is not Fault.SLOW:
            log, held_off = self.bench.program.log, b"held off: paused until "
            holds = came_true(lambda: held_off in log.read_bytes(), HELD_OFF_SECONDS)
            time.sleep(HELD_SECONDS[Fault.WRONG])
            removed = len(self.bench.node.removed_at(Kind.IMAGE))
            self._problems = [] if holds else ["it does not hold off"]
            if removed:
                self._problems.append(f"images went although a pause may be in force: {removed}")
        return self._problems or []


class KubeletDirectories(_OnFilesystem):
    """`<rootDirectory>/pods`: away, empty, another node's, without permission, or
    on a filesystem that hangs.
    """

    def begin(self) -> None:
        """By the fault, and for `wrong` by the row's variant."""
        pods = self.bench.node.root_directory / "pods"
        match self.fault:
            case Fault.HANGS | Fault.SLOW | Fault.COMES_BACK:
                self.hang(pods, SLOW_DIRECTORY_SECONDS)
            case Fault.WRONG if self.row.variant != "replaced":
                # over them, as a disk that is mounted late
                self.cover(pods, MIB, 100)
                for number in range(3 if self.row.variant == "foreign" else 0):
                    (pods / f"uid-foreign-{number}").mkdir()
            case _:
                away = pods.rename(pods.with_name("away"))
                self.undo.callback(away.rename, pods)
                if self.fault is Fault.WRONG:
                    pods.mkdir()
                    self.undo.callback(pods.rmdir)


# ---- the process

# fewer than any process has open: no new one can be made, and those there are go on
FEW_DESCRIPTORS = 4
FEW_AT_START = 10
ALL_MEMORY = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
USUAL_BYTES, SLOW_BYTES = 65536, 64
SLOW_READ_SECONDS = 0.1


class Threads(Injector):
    """No thread starts: a reached `pids.max`."""

    _limit: ThreadLimit | None = None
    _forbidden = False

    def prepare(self, program: Program) -> None:
        """It may be limited before it runs."""
        if self.fault is Fault.ABSENT_AT_START:
            program.limit = self._limited

    def _limited(self, pid: int) -> None:
        self.at_last.close()
        self._limit = self.at_last.enter_context(ThreadLimit(pid))
        if self._forbidden:
            self._limit.forbid()

    def begin(self) -> None:
        """No thread starts from now on, or from the start of the program on."""
        self._forbidden = True
        if self.fault is not Fault.ABSENT_AT_START:
            self._limited(self.bench.program.pid)

    def end(self) -> None:
        """They start again."""
        self._forbidden = False
        if self._limit is not None:
            self._limit.lift()


class Descriptors(Injector):
    """No descriptor can be made: RLIMIT_NOFILE below what is open, which goes on. `used-up`: as
    many as are open, so that one can be made for each that is closed; and the runtime restarts, so
    that all connections to it have to be made anew."""

    _few = False

    def prepare(self, program: Program) -> None:
        """It may be limited before it runs."""
        if self.fault is Fault.ABSENT_AT_START:
            program.limit = self._limited

    def _limited(self, pid: int) -> None:
        if self._few:
            self._allow(pid, FEW_AT_START)

    def _allow(self, pid: int, most: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))

    def begin(self) -> None:
        """None can be made from now on; at the start: a few."""
        self._few = True
        if self.fault is not Fault.ABSENT_AT_START:
            pid = self.bench.program.pid
            used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
            used_up = self.row.variant == "used-up"
            self._allow(pid, used if used_up else FEW_DESCRIPTORS)
            if used_up:
                self.bench.node.server.stop()
                self.bench.node.server.start()

    def end(self) -> None:
        """As many as usual."""
        self._few = False
        if self.bench.program.code is None:
            usual = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            self._allow(self.bench.program.pid, usual)


class MessageMemory(Injector):
    """Messages of many MiB, and (unless the fault is `wrong`) hardly any memory for them:

    RLIMIT_AS.
    """

    def begin(self) -> None:
        """Each name in the lists has a MiB."""
        for method in ("ListImages", "ListContainers"):
            self.bench.node.failpoints[method] = Distort(Distortion.HUGE_NAMES)
        self.at_last.callback(self.bench.node.failpoints.clear)
        if self.fault is not Fault.WRONG:
            pid = self.bench.program.pid
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + 2 * MIB
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def end(self) -> None:
        """As before."""
        resource.prlimit(self.bench.program.pid, resource.RLIMIT_AS, ALL_MEMORY)
        self.at_last.close()


class _Reader(Background):
    """Reads a pipe into a file; as fast as it comes, slowly, or not at all."""

    def __init__(self, descriptor: int, copy: Path) -> None:
        super().__init__("log reader")
        self._descriptor = descriptor
        self._copy = copy
        self.bytes, self.pause = USUAL_BYTES, 0.0

    def _run(self) -> None:
        with self._copy.open("ab", buffering=0) as copy:
            while not self._over.is_set():
                if self.pause:
                    self._over.wait(self.pause)
                if not self.bytes:
                    continue
                ready, _, _ = select.select([self._descriptor], [], [], SLOW_READ_SECONDS)
                with suppress(BlockingIOError):
                    data = os.read(self._descriptor, self.bytes) if ready else b""
                    copy.write(data)
                    if ready and not data:  # no writer yet, or no more
                        self._over.wait(SLOW_READ_SECONDS)


class LogFile(Injector):
    """Standard error: closed, on a full disk, a pipe that nobody reads, one that is
    read slowly, one for reading.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._small = bench.directory / "small"
        self._pipe = bench.directory / "log-pipe"

    def _opened(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self.at_last.callback(os.close, descriptor)
        return descriptor

    def prepare(self, program: Program) -> None:
        """The daemon gets the standard error that can fail."""
        match self.fault:
            case Fault.ABSENT_AT_START:
                program.before = ("sh", "-c", 'exec "$0" "$@" 2>&-')
            case Fault.ABSENT:
                self.at_last.enter_context(tmpfs(self._small, 256 << 10, 100))
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                program.stderr = self._opened(self._small / "log", flags)
            case Fault.WRONG:
                program.stderr = self._opened(Path("/dev/null"), os.O_RDONLY)
            case _:
                os.mkfifo(self._pipe)
                reading = self._opened(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
                self._reader = self.at_last.enter_context(_Reader(reading, program.log))
                program.stderr = self._opened(self._pipe, os.O_WRONLY)

    def begin(self) -> None:
        """It takes no line more, or hardly any."""
        if self.fault is Fault.ABSENT:
            rest = self._small / "rest"
            with suppress(OSError), rest.open("wb", buffering=0) as file:
                while file.write(bytes(4096)) == 4096:
                    pass
            self.undo.callback(rest.unlink)
        elif self._pipe.exists():
            slow = self.fault is Fault.SLOW
            self._reader.bytes, self._reader.pause = SLOW_BYTES if slow else 0, SLOW_READ_SECONDS
            filler = self._opened(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            for size in (4096, 1):  # full to the last byte, so that the next line already waits
                with suppress(BlockingIOError):
                    while True:
                        os.write(filler, b"\n" * size)
            self.undo.callback(self._go_on)

    def _go_on(self) -> None:
        self._reader.bytes, self._reader.pause = USUAL_BYTES, 0.0


# ---- the runtime and the kubelet

SLOW_ANSWER_SECONDS = 0.3  # of an answer that comes in time
DRIP_SECONDS = 0.05
BEYOND_RELIEF_BYTES = 14 << 20  # more than all unused images have

FAILPOINTS: dict[str, Failpoint] = {
    Fault.ABSENT_AT_START: Fail(grpc.StatusCode.UNIMPLEMENTED, "not there yet"),
    Fault.ABSENT: Fail(grpc.StatusCode.UNAVAILABLE, "not there"),
    Fault.HANGS: Hang(),
    Fault.SLOW: Delay(SLOW_ANSWER_SECONDS),
    Fault.COMES_BACK: Hang(),
    "pretend": Pretend(),
    "cut": Cut(),
    "acts and fails": ActThenFail(grpc.StatusCode.DEADLINE_EXCEEDED),
    "hangs once": Hang(times=1),
}
"""By fault, or by how a row says that its method fails; another word is a distortion."""


class Method(Injector):
    """One method of the runtime; the resource is its name."""

    def begin(self) -> None:
        """From now on calls of the method fail. One that is asked once for each connection: after a
        restart."""
        failpoints, how = self.bench.node.failpoints, self.row.how or self.fault
        self._asked_before = failpoints.calls[self.row.resource]
        point = FAILPOINTS[how] if how in FAILPOINTS else Distort(Distortion(how))
        failpoints[self.row.resource] = point
        self.undo.callback(failpoints.clear)
        if self.row.resource in ("Version", "Status"):
            self.bench.node.server.stop()
            self.bench.node.server.start()

    def problems(self) -> list[str]:
        """The method was asked under the fault: else the row says nothing."""
        asked = self.bench.node.failpoints.calls[self.row.resource] > self._asked_before
        return [] if asked else [f"{self.row.resource} was never asked"]


class SandboxMethod(Method):
    """Asked at the end of a row. In a hurry with images that are enough a pass does not come so
    far, unless `extent: all` is configured."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.fields = {"extent": "all"}


class StopContainer(Method):
    """Asked only for a container whose state is not known, and only with the
    kubelet's list and `extent: all`.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        kubelet = KubeletServer(answer(pod_list(*bench.node.pods())))
        self.at_last.callback(kubelet.close)
        self.fields = {"extent": "all", "kubeletEndpoint": kubelet.url}
        bench.pressure.unknown_containers = True


class ListContainerStats(Method):
    """Asked only after a pass that was not enough, to explain it: so at first
    no removal is enough.
    """

    from_the_start = True

    def begin(self) -> None:
        """The method fails, and for a moment no removal is enough."""
        super().begin()
        self.bench.pressure.extra_bytes = BEYOND_RELIEF_BYTES
        threading.Thread(target=self._be_modest, daemon=True).start()

    def _be_modest(self) -> None:
        self.bench.node.failpoints.wait_for_calls("ListContainerStats", 1, 60.0)
        self.bench.pressure.extra_bytes = 0
        with suppress(FileNotFoundError):
            os.truncate(self.bench.node.disk / "grown", 0)


class RuntimeSocket(Injector):
    """The socket of the runtime: gone with the runtime, not accepting, or speaking something
    else."""

    def begin(self) -> None:
        """The runtime stops; what is in its place depends on the fault. It is back at the end, with
        everything that it had."""
        server = self.bench.node.server
        server.stop()
        self.undo.callback(server.start)
        if self.fault in (Fault.ABSENT, Fault.ABSENT_AT_START):
            return
        with suppress(FileNotFoundError):
            os.unlink(server.socket_path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(server.socket_path)
        os.chmod(server.socket_path, 0o600)
        listener.listen(128)
        self.undo.callback(os.unlink, server.socket_path)
        self.undo.callback(listener.close)
        if self.fault is Fault.WRONG:
            impostor = threading.Thread(target=self._misspeak, args=(listener,), daemon=True)
            impostor.start()
            self.undo.callback(impostor.join)
            self.undo.callback(listener.shutdown, socket.SHUT_RDWR)

    def _misspeak(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


class KubeletAPI(Injector):
    """A kubelet that knows the live pods of the node; `kubeletEndpoint` names it."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._port = free_port()
        self._whole = answer(pod_list(*bench.node.pods()))
        self._serve()
        self.fields = {"kubeletEndpoint": f"http://127.0.0.1:{self._port}"}

    def _serve(self) -> None:
        self._server = KubeletServer(self._whole, port=self._port)
        self.at_last.callback(self._server.close)

    def begin(self) -> None:
        """Nobody listens; it says nothing, is late, or lists other pods;
        `dripping`: a byte now and then.
        """
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self.at_last.close()
                self.undo.callback(self._serve)
                return
            case Fault.HANGS | Fault.COMES_BACK:
                script: list[bytes | float] = [FOREVER_SECONDS]
            case Fault.SLOW if self.row.variant == "dripping":
                script = list(dripping(self._whole, DRIP_SECONDS))
            case Fault.SLOW:
                script = [SLOW_ANSWER_SECONDS, self._whole]
            case _ if self.row.variant == "empty":
                script = [answer(pod_list())]
            case _:
                script = [answer(b'{"kind": "PodList", "items": [' + b"[" * 5000)]
        self._server.script = script
        self.undo.callback(setattr, self._server, "script", [self._whole])


class KubeletSocket(Injector):
    """A kubelet that serves the live pods of the node at its own socket;
    `kubeletEndpoint` names it.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._root = bench.directory / "k"  # the path of a socket is short
        self._whole = pods_answer(*bench.node.pods())
        self._serve()
        self.fields = {"kubeletEndpoint": f"unix://{self._root}/pods-api/pods-api.sock"}

    def _serve(self) -> None:
        self._server = self.at_last.enter_context(PodsAPIServer(self._root, self._whole))

    def begin(self) -> None:
        """Nobody listens; it says nothing, is late, or lists other pods."""
        server = self._server
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self.at_last.close()
                self.undo.callback(self._serve)
            case Fault.HANGS | Fault.COMES_BACK:
                server.answer = None
            case Fault.SLOW:
                server.delay_seconds = SLOW_ANSWER_SECONDS
            case _:
                empty = self.row.variant == "empty"
                server.answer = pods_answer() if empty else self._whole[:-1]
        self.undo.callback(setattr, server, "answer", self._whole)


INJECTORS: dict[str, type[Injector]] = {
    **{name: Method for name in RESOURCES if name[0].isupper()},
    **dict.fromkeys(("PodSandboxStatus", "StopPodSandbox", "RemovePodSandbox"), SandboxMethod),
    "StopContainer": StopContainer,
    "ListContainerStats": ListContainerStats,
    "thread-start": Threads,
    "descriptor": Descriptors,
    "message-memory": MessageMemory,
    "statvfs": Statvfs,
    "runtime-socket": RuntimeSocket,
    "log": LogFile,
    "state-file": StateFile,
    "pause-file": PauseFile,
    "history-file": HistoryFile,
    "control-socket": ControlSocket,
    "metrics-port": MetricsPort,
    "kubelet-directories": KubeletDirectories,
    "kubelet-api": KubeletAPI,
    "kubelet-socket": KubeletSocket,
}
