"""What the program reads and writes on filesystems: `statvfs` of the images, its own files,
the kubelet's directories.

A filesystem that hangs, is slow or fails is a real one, by FUSE; one that
is full or gone is a tmpfs.
"""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from eviction.drill.private_mounts import unmount
from reclaim.types import Kind
from tests.faults.fuse import SilentFilesystem
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.node import MARK_BYTES
from tests.faults.matrix.table import HELD_SECONDS, Fault
from tests.nodes.small_node import MIB
from tests.reclaimd_process import came_true
from tests.sockets.mounts import mounted_tmpfs

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench

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
        mounted_tmpfs(str(directory), size_bytes, inodes)
        self.undo.callback(unmount, str(directory))


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
