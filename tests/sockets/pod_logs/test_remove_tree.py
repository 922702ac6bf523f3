"""`remove_tree` removes an entry of any kind with everything below it, and nothing else: not while
directories are exchanged for symlinks, moved away, mounted on and filled again under its hands.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import mmap
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.private_mounts import unmount
from reclaim.pod_logs.directories import (
    BATCH,
    DEEPEST,
    ROUNDS,
    TreeRemoval,
    open_beneath,
    remove_tree,
    unlink_files,
)
from reclaim.pod_logs.names import is_entry_name, printable
from tests.descriptors import no_descriptor_left, open_descriptors
from tests.sockets.mounts import bound, mounted_tmpfs
from tests.sockets.pod_logs.remover_child import PAIRS
from tests.sockets.pod_logs.trees import Canary, contents, opened, plant, removed

_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS, _FS_IMMUTABLE_FL = 0x80086601, 0x40086602, 0x10
LEVELS = 3000  # Python recurses 1000 times
MIB = 1 << 20
SWAPS, SWAPS_OF_SOAK = 20_000, 100_000
SWAPS_BEFORE_A_STEP = 64
PATIENCE_SECONDS = 90.0
CROSSING = "is not known to be on the same filesystem and mount"
_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    """A directory outside of everything that is removed."""
    made = Canary(tmp_path / "canary")
    yield made
    assert made.unharmed


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Undone after the test, the last first: mounts."""
    with ExitStack() as made:
        yield made


def tmpfs(stack: ExitStack, directory: Path, size_bytes: int = MIB, inodes: int = 100) -> Path:
    """A tmpfs for the length of the test."""
    mounted_tmpfs(str(directory), size_bytes, inodes)
    stack.callback(unmount, str(directory))
    return directory


def bind(stack: ExitStack, source: Path, target: Path) -> None:
    """A bind mount for the length of the test."""
    bound(str(source), str(target))
    stack.callback(unmount, str(target))


def child(scenario: str, directory: Path, *arguments: str) -> list[str]:
    """The command of a scenario of `remover_child`."""
    module = "tests.sockets.pod_logs.remover_child"
    return [sys.executable, "-m", module, scenario, str(directory), *arguments]


def run_child(name: str, directory: Path) -> dict[str, Any]:
    """The JSON that a scenario prints."""
    done = subprocess.run(child(name, directory), check=True, capture_output=True, timeout=60)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Makes it immutable: not even root may remove or change it."""

    def flag(on: bool) -> None:
        file = os.open(path, os.O_RDONLY)
        try:
            flags = struct.unpack("l", fcntl.ioctl(file, _FS_IOC_GETFLAGS, struct.pack("l", 0)))[0]
            flags = flags | _FS_IMMUTABLE_FL if on else flags & ~_FS_IMMUTABLE_FL
            fcntl.ioctl(file, _FS_IOC_SETFLAGS, struct.pack("l", flags))
        finally:
            os.close(file)

    try:
        flag(True)
    except OSError as error:
        pytest.skip(f"needs a filesystem and the right to make a file immutable: {error.strerror}")
    try:
        yield
    finally:
        flag(False)


# ---- what goes


def test_a_tree_is_removed_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    """One entry by its whole name: 3 directories and 3 files; names that begin like it are other
    entries. A file goes as well, as the kubelet treats files in the log root like directories; a
    missing entry is no failure."""
    plant(
        tmp_path, "pod/app/0.log", "pod/app/0.log.gz", "pod/side/1.log", "pod2/file", "po", "p.log"
    )
    assert removed(tmp_path, "pod") == TreeRemoval(6)
    assert contents(tmp_path).keys() == {"po", "p.log", "pod2", "pod2/file"}
    assert removed(tmp_path, "po") == TreeRemoval(1)
    assert removed(tmp_path, "po") == TreeRemoval()


def test_every_kind_of_entry_is_removed_as_an_entry(tmp_path: Path, canary: Canary) -> None:
    """Files, hard links, symlinks to a file, a directory, nothing and themselves, a pipe and
    a socket: 10 and the top.

    The other name of a hard link keeps its content; nothing is opened, so the pipe does not block.
    """
    top = tmp_path / "top"
    plant(top, "file")
    os.link(canary.path / "file", top / "hard")
    for name, target in (
        ("to-file", "file"),
        ("to-directory", "directory"),
        ("up", ".."),
        ("dangling", "no"),
    ):
        (top / name).symlink_to(canary.path / target)
    (top / "loop").symlink_to("loop")
    (top / "relative").symlink_to("../canary")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(top / "socket"))
    assert removed(tmp_path, "top") == TreeRemoval(11)
    assert not top.exists()
    assert (canary.path / "file").stat().st_nlink == 1


@pytest.mark.parametrize(
    "name",
    [
        b"\xff\xfe\x80",
        b"new\nline",
        b"\x1b[31mred",
        b" ",
        b"-rf",
        b"*",
        b"...",
        b"a\\b",
        "ü".encode(),
        b"x" * 255,
    ],
)
def test_a_name_is_bytes(tmp_path: Path, name: bytes) -> None:
    """As a directory, as a file in it and as the entry itself: 1 and 1."""
    os.makedirs(os.path.join(os.fsencode(tmp_path), name))
    os.close(os.open(os.path.join(os.fsencode(tmp_path), name, name), os.O_CREAT | os.O_WRONLY))
    assert removed(tmp_path, name) == TreeRemoval(2)
    assert list(tmp_path.iterdir()) == []


def test_two_names_never_print_alike() -> None:
    """A byte that is not UTF-8 is written as an escape; the text of that escape is another name."""
    assert [printable(name) for name in (b"a\xff", rb"a\xff", "ü".encode())] == [
        r"a\xff",
        r"a\\xff",
        "ü",
    ]


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"../canary", b"a\0b"])
def test_a_path_is_not_a_name(tmp_path: Path, canary: Canary, name: bytes) -> None:
    """Neither to be removed, nor opened, nor as the beginning of a name."""
    assert not is_entry_name(name)
    refusing: list[Callable[[int, bytes], object]] = [remove_tree, unlink_files, open_beneath]
    with opened(tmp_path) as directory:
        for refused in refusing:
            with pytest.raises(ValueError, match="name of"):
                refused(directory, name)


def test_depth_costs_no_recursion_and_few_descriptors(tmp_path: Path) -> None:
    """10 000 directories in each other with a file in each.

    At most 3 descriptors are open at a time, none afterwards.
    """
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(at)
        at = below
    os.close(at)
    before, most, calls = open_descriptors(), 0, 0

    def counted(directory: int, name: bytes) -> int:
        nonlocal most, calls
        calls += 1
        if calls % 100 == 0:
            most = max(most, open_descriptors() - before)
        return open_beneath(directory, name)

    with no_descriptor_left():
        assert removed(tmp_path, "deeper", counted) == TreeRemoval(2 * LEVELS)
    assert list(tmp_path.iterdir()) == []
    assert 0 < most <= 3
    assert calls < 8 * LEVELS


def test_a_wide_directory_is_taken_in_batches(tmp_path: Path) -> None:
    """More subdirectories than are remembered at a time, and files beside them."""
    top = tmp_path / "top"
    top.mkdir()
    for number in range(BATCH + 200):
        os.mkdir(top / str(number))
    for number in range(200):
        os.mkfifo(top / f"file-{number}")
    assert removed(tmp_path, "top") == TreeRemoval(BATCH + 200 + 200 + 1)


@_ROOT
def test_what_cannot_be_removed_is_named_and_the_rest_is_removed(tmp_path: Path) -> None:
    """An immutable file is kept with the two directories above it; 3 other entries are removed. Of
    single files it is tried once, and its neighbours go."""
    plant(tmp_path, "top/a/kept", "top/a/b/file", "top/z", "top/a/kept.1", "top/a/kept.2")
    with no_descriptor_left(), immutable(tmp_path / "top/a/kept"):
        with opened(tmp_path / "top/a") as directory:
            assert unlink_files(directory, b"kept") == TreeRemoval(
                2, 1, "kept: Operation not permitted"
            )
        assert removed(tmp_path, "top") == TreeRemoval(3, 1, "top/a/kept: Operation not permitted")
        assert contents(tmp_path) == {"top": None, "top/a": None, "top/a/kept": "top/a/kept"}
    assert removed(tmp_path, "top") == TreeRemoval(3)


@_ROOT
def test_many_failures_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    """An immutable directory of 4 files and 4 directories: all are kept, one is named, by a short
    path."""
    deep = "top/" + "/".join(["x" * 100] * 4)
    plant(tmp_path, *(f"{deep}/file-{n}" for n in range(4)), *(f"{deep}/{n}/" for n in range(4)))
    with immutable(tmp_path / deep):
        result = removed(tmp_path, "top")
    assert (result.removed, result.failed) == (0, 8)
    assert result.failure.startswith("top/x")
    assert len(result.failure.partition(":")[0]) <= 203
    assert result.sentence == f"{result.failure}, and 7 more"


@_ROOT
def test_a_directory_that_may_not_be_read_is_removed_if_it_is_empty(tmp_path: Path) -> None:
    """Root without capabilities; no mode is changed: the full one is kept and
    listed, the rest is removed.
    """
    plant(tmp_path, "doomed/empty/", "doomed/full/file", "doomed/z/file")
    for name in ("empty", "full"):
        (tmp_path / "doomed" / name).chmod(0)
    result = run_child("without_capabilities", tmp_path)
    assert (result["removed"], result["failed"]) == (3, 1)
    assert result["failure"] == f"doomed/full: {os.strerror(errno.EACCES)}"
    assert stat.S_IMODE((tmp_path / "doomed" / "full").stat().st_mode) == 0
    assert (tmp_path / "doomed" / "full" / "file").exists()


@_ROOT
def test_where_mounts_are_unknown_no_directory_is_entered(tmp_path: Path) -> None:
    """Without /proc the directory is kept, with the reason: it could be a bind mount."""
    plant(tmp_path, "doomed/a/file")
    result = run_child("without_proc", tmp_path)
    assert (result["removed"], result["failed"]) == (0, 1)
    assert result["failure"] == "doomed: is not known to be on the same filesystem and mount"
    assert (tmp_path / "doomed/a/file").exists()


def test_only_the_inode_that_was_meant_is_removed(tmp_path: Path) -> None:
    """Another directory or file that has the name by now is kept and is a failure."""
    plant(tmp_path, "meant/file", "other/file", "note")
    meant = (tmp_path / "meant").stat()
    with opened(tmp_path) as directory:
        for name in (b"other", b"note"):
            result = remove_tree(directory, name, (meant.st_dev, meant.st_ino))
            another = f"{name.decode()}: is another entry now, not the one that was planned"
            assert result == TreeRemoval(0, 1, another)
        assert remove_tree(directory, b"meant", (meant.st_dev, meant.st_ino)) == TreeRemoval(2)
        assert remove_tree(directory, b"meant", (meant.st_dev, meant.st_ino)) == TreeRemoval()
    assert contents(tmp_path) == {"note": "note", "other": None, "other/file": "other/file"}


def test_files_go_by_a_literal_prefix(tmp_path: Path, canary: Canary) -> None:
    """A log with its rotated, compressed and temporary copies; neither 10.log, nor
    what a pattern would match.
    """
    going = [
        "0.log",
        "0.log.20261121-101112",
        "0.log.20261121-101112.gz",
        "0.log.20261121-101112.tmp",
    ]
    staying = ["10.log", "1.log", "0.lo", "0xlog", "a0.log", "0.log.directory/file"]
    plant(tmp_path / "app", *going, *staying)
    (tmp_path / "app" / "0.log.link").symlink_to(canary.path / "file")
    with opened(tmp_path / "app") as directory:
        assert unlink_files(directory, b"0.log") == TreeRemoval(len(going) + 1)
        assert unlink_files(directory, b"[0-9]*") == TreeRemoval()
    assert sorted(os.listdir(tmp_path / "app")) == sorted(
        name.partition("/")[0] for name in staying
    )


# ---- under attack


@contextmanager
def attacker(directory: Path, counter: Path) -> Iterator[Callable[[], int]]:
    """A process that swaps; the function returns how often it has."""
    counter.write_bytes(bytes(8))
    with open(counter, "rb") as file, mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ) as shared:
        process = subprocess.Popen(child("swap", directory, str(counter)))
        try:
            yield lambda: int(struct.unpack("=q", shared[:8])[0])
        finally:
            process.kill()
            process.wait()


def plant_pairs(arena: Path, canary: Path) -> None:
    """Directories with files and directories in them, and outside as many symlinks to the canary
    to be exchanged with them.

    Made under other names than the attacker knows: this test itself would follow the symlinks.
    """
    for number in range(PAIRS):
        directory = arena / "planted" / str(number) / "directory"
        # the canary has a directory and a file of these names too
        os.makedirs(directory / "directory")
        for name in ("file", "directory/file", "other"):
            (directory / name).touch()
        for below in range(4):
            os.mkdir(directory / str(below))
    (arena / "links").mkdir()
    for number in range(PAIRS):
        (arena / "links" / str(number)).symlink_to(canary)
    (arena / "links").rename(arena / "outside")
    (arena / "planted").rename(arena / "doomed")


def clear(arena: Path) -> None:
    """Moves what the attacker has moved outside out of its reach."""
    (arena / "outside").rename(arena / "moved")
    shutil.rmtree(arena / "moved")


def swapping(arena: Path) -> bool:
    """Whether any pair is left to be swapped."""
    return any(
        os.path.lexists(arena / "doomed" / str(number) / "directory") for number in range(PAIRS)
    )


def remove_what_is_swapped(tmp_path: Path, canary: Canary, times: int) -> None:
    """Another process exchanges directories and symlinks to the canary, so many times
    while the remover is at work.

    Before it opens a directory, which it has seen to be one, the remover waits for the next swaps,
    so that they come in between on a busy machine too. The tree is made anew as often as it takes;
    each time all of it goes.
    """
    arena = tmp_path / "arena"
    mounted_tmpfs(str(arena), 64 << 20, 10_000)
    swaps, rounds, fooled, deadline = 0, 0, 0, time.monotonic() + PATIENCE_SECONDS
    try:
        with (
            no_descriptor_left(),
            attacker(arena, tmp_path / "counter") as swapped,
            opened(arena) as directory,
        ):

            def late(beneath: int, name: bytes) -> int:
                nonlocal fooled
                enough = swapped() + SWAPS_BEFORE_A_STEP
                while swapped() < enough and swapping(arena) and time.monotonic() < deadline:
                    time.sleep(0.0001)
                try:
                    return open_beneath(beneath, name)
                except OSError as error:
                    fooled += error.errno in (errno.ELOOP, errno.ENOTDIR)
                    raise

            while (swaps < times or fooled <= rounds) and time.monotonic() < deadline:
                plant_pairs(arena, canary.path)
                begun = swapped()
                result = remove_tree(directory, b"doomed", open_directory=late)
                swaps += swapped() - begun
                rounds += 1
                assert result.failed == 0, result.sentence
                assert os.listdir(arena) == ["outside"]
                assert canary.unharmed
                clear(arena)
    finally:
        unmount(str(arena))
    # a symlink was there, several times in each tree, where a directory had been listed
    assert fooled > rounds
    assert swaps >= times, f"only {swaps} swaps in {rounds} rounds"


def test_a_directory_swapped_for_a_symlink_twenty_thousand_times(
    tmp_path: Path, canary: Canary
) -> None:
    """The canary is unharmed, and each time all of the tree goes."""
    remove_what_is_swapped(tmp_path, canary, SWAPS)


@pytest.mark.soak
def test_a_directory_swapped_for_a_symlink_a_hundred_thousand_times(
    tmp_path: Path, canary: Canary
) -> None:
    """The same, for as long as 100 000 exchanges take."""
    remove_what_is_swapped(tmp_path, canary, SWAPS_OF_SOAK)


class Interruption:
    """Opens as `open_beneath` does, and does something right after the directory
    of a name was opened, once.
    """

    def __init__(self, name: bytes, act: Callable[[], None]):
        self._name = name
        self._act = act
        self.done = False

    def __call__(self, directory: int, name: bytes) -> int:
        """An `OpenBeneath`."""
        descriptor = open_beneath(directory, name)
        if name == self._name and not self.done:
            self.done = True
            self._act()
        return descriptor


@pytest.mark.parametrize("moved", ["top/a", "top/a/b", "top/a/b/c"])
@pytest.mark.parametrize(
    "replaced", [False, True], ids=["moved", "moved, and a symlink in its place"]
)
def test_a_directory_that_is_moved_away_takes_its_content_along(
    tmp_path: Path, canary: Canary, moved: str, replaced: bool
) -> None:
    """Moved beside the canary while the lowest of `top/a/b/c` is entered: from then on it
    is left alone, and nothing of what is around its new place is touched. All that is
    still below `top` goes."""
    plant(tmp_path, "top/a/b/c/file", "top/a/b/file", "top/a/file", "top/y/file")
    away = tmp_path / "away"
    plant(away, "file", "c/file", "b/c/file")

    def move() -> None:
        os.rename(tmp_path / moved, away / "moved")
        if replaced:
            (tmp_path / moved).symlink_to(canary.path)

    expected = contents(tmp_path / moved)
    interruption = Interruption(b"c", move)
    result = removed(tmp_path, "top", interruption)
    assert interruption.done
    assert result.failed == 0
    assert not (tmp_path / "top").exists()
    assert contents(away / "moved").items() <= expected.items()
    assert (away / "moved" / Path("top/a/b/c/file").relative_to(moved)).exists()
    assert {"file", "c/file", "b/c/file"} <= contents(away).keys()


def test_a_directory_far_up_that_was_moved_is_noticed_on_the_way_back(
    tmp_path: Path, canary: Canary
) -> None:
    """Level 20 of 200 is moved when level 200 is entered, and a symlink put in its place.

    The lowest directories, which were to go, go; the way back is not found any more, so the rest of
    what was moved stays where it is, and nothing else there is touched.
    """
    levels = [f"d{number}" for number in range(200)]
    plant(tmp_path, "/".join(levels) + "/file")
    far = tmp_path.joinpath(*levels[:21])

    def move() -> None:
        os.rename(far, canary.path / "moved")
        far.symlink_to(canary.path)

    result = removed(tmp_path, "d0", Interruption(b"d199", move))
    assert result.failed == 0
    assert not (tmp_path / "d0").exists()
    assert (canary.path / "moved").exists()
    for path in sorted((canary.path / "moved").rglob("*"), reverse=True):
        assert path.is_dir()
        path.rmdir()
    (canary.path / "moved").rmdir()


def test_what_appears_meanwhile_is_removed_too(tmp_path: Path) -> None:
    """A file and a directory that are made while their directory is being emptied."""
    plant(tmp_path, "top/a/b/file")
    interruption = Interruption(b"b", lambda: plant(tmp_path, "top/a/late", "top/later/file"))
    assert removed(tmp_path, "top", interruption) == TreeRemoval(7)
    assert list(tmp_path.iterdir()) == []


def test_somebody_who_keeps_filling_does_not_hold_it_for_ever(tmp_path: Path) -> None:
    """Each time that a directory is emptied something appears in it: after 200
    rounds it is kept and named.
    """
    plant(tmp_path, "top/a/0/", "top/z")
    made = 0

    def filling(directory: int, name: bytes) -> int:
        nonlocal made
        descriptor = open_beneath(directory, name)
        if name.isdigit():
            made += 1
            os.mkdir(b"%d" % made, dir_fd=directory)
        return descriptor

    result = removed(tmp_path, "top", filling)
    assert made == ROUNDS
    assert result == TreeRemoval(ROUNDS + 1, 1, "top/a: keeps changing")
    assert contents(tmp_path) == {"top": None, "top/a": None, f"top/a/{made}": None}


def test_somebody_who_keeps_digging_does_not_hold_it_for_ever(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Each directory that is entered gets another one in it: the removal ends at 20 000 levels, with
    that reason."""
    arena = tmpfs(stack, tmp_path / "arena", 64 * MIB, DEEPEST + 100)
    entered = 0

    def digging(directory: int, name: bytes) -> int:
        nonlocal entered
        descriptor = open_beneath(directory, name)
        if entered < DEEPEST:
            entered += 1
            os.mkdir("deeper", dir_fd=descriptor)
        return descriptor

    (arena / "deeper").mkdir()
    result = removed(arena, "deeper", digging)
    assert result.failed == 1
    assert result.failure.endswith(": is more than 20000 levels deep")


# ---- mounts


def fill(directory: Path) -> None:
    """Takes every page and every inode of the filesystem."""
    with contextlib.suppress(OSError), open(directory / "app/0.log", "wb", buffering=0) as log:
        while log.write(bytes(4096)):
            pass
    with contextlib.suppress(OSError):
        for number in itertools.count():
            os.mkfifo(directory / f"side/{number}")


@pytest.mark.parametrize("same", [False, True], ids=["a tmpfs", "a bind mount"])
def test_another_filesystem_in_the_tree_is_left_unchanged(
    tmp_path: Path, stack: ExitStack, same: bool
) -> None:
    """Two levels down: it is kept as it is with the directories above it, 3 other entries are
    removed. Of a bind mount of the same filesystem only the mount id differs. The entry itself may
    be one, too."""
    plant(tmp_path, "top/a/file", "top/z/file")
    mounted = tmp_path / "top/a/mounted"
    if same:
        canary = Canary(tmp_path / "canary")
        mounted.mkdir()
        bind(stack, canary.path, mounted)
        assert mounted.stat().st_dev == (tmp_path / "top").stat().st_dev
    else:
        canary = Canary(tmpfs(stack, mounted))
    assert removed(tmp_path, "top") == TreeRemoval(3, 1, f"top/a/mounted: {CROSSING}")
    assert removed(mounted.parent, "mounted") == TreeRemoval(0, 1, f"mounted: {CROSSING}")
    assert canary.unharmed


def test_a_mount_that_appears_on_the_way_back_is_not_entered(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Something is mounted on `top/a` while `top/a/b` is emptied:

    `..` leads into it, and is not followed.
    """
    plant(tmp_path, "top/a/b/file", "top/z")
    canary = Canary(tmp_path / "canary")

    def mounting(directory: int, name: bytes) -> int:
        descriptor = open_beneath(directory, name)
        if name == b"b":
            bind(stack, canary.path, tmp_path / "top/a")
        return descriptor

    assert removed(tmp_path, "top", mounting).failure == f"top/a: {CROSSING}"
    assert canary.unharmed


def test_a_tree_on_a_mount_of_its_own_is_removed(tmp_path: Path, stack: ExitStack) -> None:
    """A log root that is a filesystem of its own, or a bind mount, is where the removal
    begins: no mount is crossed.
    """
    root = tmpfs(stack, tmp_path / "root")
    bind(stack, root, root)
    plant(root, "pod/app/0.log")
    assert removed(root, "pod") == TreeRemoval(3)


def test_without_a_free_byte_or_inode_it_works(tmp_path: Path, stack: ExitStack) -> None:
    """A tmpfs filled to the last page and inode: trees and single files are removed,
    and the space is free again.
    """
    disk = tmpfs(stack, tmp_path / "disk", MIB, 64)
    plant(disk, "pod/app/0.log", "pod/app/0.log.20261121-101112", "pod/side/")
    fill(disk / "pod")
    full = os.statvfs(disk)
    assert (full.f_bavail, full.f_favail) == (0, 0)
    with opened(disk / "pod/app") as directory:
        assert unlink_files(directory, b"0.log.2") == TreeRemoval(1)
    assert os.statvfs(disk).f_favail == 1
    (disk / "again").touch()
    result = removed(disk, "pod")
    assert result.failed == 0
    assert contents(disk) == {"again": ""}
    assert os.statvfs(disk).f_bavail == full.f_blocks
