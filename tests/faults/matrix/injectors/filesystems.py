"""What the program reads and writes on filesystems: `statvfs` of the images, the state file,
the kubelet's directories.

A filesystem that hangs, is slow or fails is a real one, by FUSE; one that
is full or gone is a tmpfs.
"""

from __future__ import annotations

import errno
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from eviction.drill.runtime.private_mounts import unmount
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.mirror_filesystem import MirrorFilesystem
from tests.faults.matrix.rows import HELD_SECONDS, Fault, Kind
from tests.nodes.small_node import MIB
from tests.reclaimd_process import came_true
from tests.sockets.mounts import mounted_tmpfs

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench

SLOW_STATVFS_SECONDS = 0.3
SLOW_FILE_SECONDS = 0.5
HELD_OFF_SECONDS = 20.0  # the limit of a wait, which ends as soon as it can
SLOW_DIRECTORY_SECONDS = 0.05  # of each access; a list is four, and a pass reads many
GARBAGE = b'{"format": 1, "records": {"sha256:' + b"\0" * 100


class Statvfs(Injector):
    """The filesystem of the images as the program sees it.

    They are on the node's disk, whose size it reports.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        place = bench.directory / "images-seen"
        place.mkdir()
        self._filesystem = MirrorFilesystem(str(place), str(bench.node.disk))
        self._filesystem.__enter__()
        bench.node.runtime.image_mountpoint = str(place)
        marks = bench.mark_text
        self.fields = {"evictionHard": {"nodefs.available": "0%", "imagefs.available": marks}}

    def begin(self) -> None:
        """It fails, says nonsense, takes its time, or says nothing."""
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self._filesystem.error = errno.EIO
            case Fault.SLOW:
                self._filesystem.delay_seconds = SLOW_STATVFS_SECONDS
            case Fault.WRONG:
                self._filesystem.nonsense = True
            case Fault.HANGS | Fault.COMES_BACK:
                self._filesystem.stopped = True

    def end(self) -> None:
        """It answers as before, also what it was asked meanwhile."""
        self._filesystem.error, self._filesystem.nonsense, self._filesystem.stopped = (
            0,
            False,
            False,
        )

    def release(self) -> None:
        """Every call that hangs fails."""
        self._filesystem.abort()


class _OwnFile(Injector):
    """A file that the program writes, and its directory."""

    directory_name: ClassVar[str]
    file_name: ClassVar[str]

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._directory = bench.directory / self.directory_name
        self._directory.mkdir()
        self._filesystem: MirrorFilesystem | None = None
        self._mounted = False
        self.from_the_start = self.row.variant == "at-start" or self.fault is Fault.WRONG

    def begin(self) -> None:
        """A file in place of its directory; a full tmpfs; a directory that hangs or
        is slow; a file of garbage.
        """
        match self.fault:
            case Fault.ABSENT_AT_START:
                self._directory.rmdir()
                self._directory.write_text("not a directory\n")
            case Fault.ABSENT:
                mounted_tmpfs(str(self._directory), 4096, 2)
                self._mounted = True
                (self._directory / "full").write_bytes(bytes(4096))
            case Fault.WRONG if self.row.variant == "directory":
                (self._directory / self.file_name).mkdir()
            case Fault.WRONG:
                (self._directory / self.file_name).write_bytes(GARBAGE)
            case Fault.HANGS | Fault.SLOW | Fault.COMES_BACK:
                self._filesystem = MirrorFilesystem(
                    str(self._directory), stopped=self.fault is not Fault.SLOW
                )
                self._filesystem.delay_seconds = (
                    SLOW_FILE_SECONDS if self.fault is Fault.SLOW else 0.0
                )
                self._filesystem.__enter__()

    def end(self) -> None:
        """It can be written."""
        self.release()
        if self._directory.is_file():
            self._directory.unlink()
        shutil.rmtree(self._directory / self.file_name, ignore_errors=True)

    def release(self) -> None:
        """Nothing is mounted."""
        if self._filesystem is not None:
            self._filesystem.abort()
        if self._mounted:
            unmount(str(self._directory))
            self._mounted = False


class StateFile(_OwnFile):
    """The file of image records."""

    directory_name = "state"
    file_name = "images.json"


class PauseFile(_OwnFile):
    """A pause that outlives the daemon; it is read at the start."""

    directory_name = "state"
    file_name = "images.json.pause"

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.from_the_start = True
        self._problems: list[str] | None = None

    def end(self) -> None:
        """There is no pause."""
        self.problems()
        super().end()
        with suppress(FileNotFoundError):
            (self._directory / self.file_name).unlink()

    def problems(self) -> list[str]:
        """Whether the program holds off while a pause may be in force, and
        what has gone all the same.
        """
        if self._problems is None and self.fault is not Fault.SLOW:
            log = self.bench.program.log
            holds = came_true(
                lambda: b"held off: paused until " in log.read_bytes(), HELD_OFF_SECONDS
            )
            time.sleep(HELD_SECONDS[Fault.WRONG])
            removed = self.bench.node.removed_at(Kind.IMAGE)
            self._problems = [] if holds else ["it does not hold off"]
            self._problems += [
                f"images went although a pause may be in force: {len(removed)}"
            ] * bool(removed)
        return self._problems or []


class HistoryFile(_OwnFile):
    """The history of passes and removals."""

    directory_name = file_name = "history"


class KubeletDirectories(Injector):
    """`<rootDirectory>/pods`: away, empty, another node's, without permission, or
    on a filesystem that hangs.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._pods = bench.node.pods_directory
        self._away = self._pods.with_name("away")
        self._filesystem: MirrorFilesystem | None = None
        self._mounted = False

    def begin(self) -> None:
        """By the fault, and for `wrong` by the row's variant."""
        match self.fault:
            case Fault.ABSENT_AT_START | Fault.ABSENT:
                self._pods.rename(self._away)
            case Fault.HANGS | Fault.SLOW | Fault.COMES_BACK:
                self._filesystem = MirrorFilesystem(
                    str(self._pods), stopped=self.fault is not Fault.SLOW
                )
                self._filesystem.delay_seconds = (
                    SLOW_DIRECTORY_SECONDS if self.fault is Fault.SLOW else 0.0
                )
                self._filesystem.__enter__()
            case Fault.WRONG if self.row.variant == "replaced":
                self._pods.rename(self._away)
                self._pods.mkdir()
            case Fault.WRONG:
                # over them, as a disk that is mounted late
                mounted_tmpfs(str(self._pods), MIB, 100)
                self._mounted = True
                if self.row.variant == "foreign":
                    for number in range(3):
                        (self._pods / f"uid-foreign-{number}").mkdir()

    def end(self) -> None:
        """They are there again."""
        self.release()
        if self._away.exists():
            with suppress(FileNotFoundError):
                self._pods.rmdir()
            self._away.rename(self._pods)

    def release(self) -> None:
        """Nothing is mounted over them."""
        if self._filesystem is not None:
            self._filesystem.abort()
        if self._mounted:
            unmount(str(self._pods))
            self._mounted = False
