"""The remover takes an entry with everything below it, of whatever kind, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reclaim.pod_logs.openat2 import OpenBeneath, is_entry_name, open_by_comparison, open_by_openat2
from reclaim.pod_logs.remove_tree import BATCH, FAILURES_TOLD, Failure, Removal, printable, remove_tree, unlink_files
from tests.sockets.trees import Canary, contents, open_descriptors, opened, plant, removed

WAYS = [open_by_openat2, open_by_comparison]
_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS, _FS_IMMUTABLE_FL = 0x80086601, 0x40086602, 0x10
_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    """A directory outside of everything that is removed."""
    made = Canary(tmp_path / "canary")
    yield made
    assert made.unharmed


def story(name: str, directory: Path, *arguments: str) -> dict[str, Any]:
    """What a story of `tree_child` says."""
    command = [sys.executable, "-m", "tests.sockets.tree_child", name, str(directory), *arguments]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    return told


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Nobody may remove or change it, not even root."""

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


@pytest.mark.parametrize("how", WAYS)
def test_a_tree_goes_and_its_neighbours_stay(tmp_path: Path, how: OpenBeneath) -> None:
    """One entry by its whole name: 3 directories and 3 files; names that begin like it are others."""
    plant(tmp_path, "pod/app/0.log", "pod/app/0.log.gz", "pod/side/1.log", "pod2/file", "po", "pod.log")
    assert removed(tmp_path, "pod", how) == Removal(6)
    assert contents(tmp_path) == {"po": "po", "pod.log": "pod.log", "pod2": None, "pod2/file": "pod2/file"}


@pytest.mark.parametrize("how", WAYS)
def test_every_kind_of_entry_goes_as_an_entry(tmp_path: Path, canary: Canary, how: OpenBeneath) -> None:
    """Files, hard links, symlinks to a file, a directory, nothing and themselves, a pipe and a socket: 10 and the top.

    The other name of a hard link keeps its content; nothing is opened, so the pipe does not block.
    """
    top = tmp_path / "top"
    plant(top, "file")
    os.link(canary.path / "file", top / "hard")
    for name, target in (("to-file", "file"), ("to-directory", "directory"), ("up", ".."), ("dangling", "no")):
        (top / name).symlink_to(canary.path / target)
    (top / "loop").symlink_to("loop")
    (top / "relative").symlink_to("../canary")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(top / "socket"))
    assert removed(tmp_path, "top", how) == Removal(11)
    assert not top.exists()
    assert (canary.path / "file").stat().st_nlink == 1


@_ROOT
def test_device_nodes_go_without_being_opened(tmp_path: Path) -> None:
    """A character and a block device of numbers that no driver has."""
    (tmp_path / "top").mkdir()
    try:
        os.mknod(tmp_path / "top" / "character", stat.S_IFCHR | 0o600, os.makedev(251, 250))
        os.mknod(tmp_path / "top" / "block", stat.S_IFBLK | 0o600, os.makedev(251, 250))
    except PermissionError as error:
        pytest.skip(f"needs device nodes: {error.strerror}")
    assert removed(tmp_path, "top") == Removal(3)


@pytest.mark.parametrize(
    "name",
    [b"\xff\xfe\x80", b"new\nline", b"\x1b[31mred", b" ", b"-rf", b"*", b"...", b"a\\b", "ü".encode(), b"x" * 255],
)
def test_a_name_is_bytes(tmp_path: Path, name: bytes) -> None:
    """As a directory, as a file in it and as the entry itself: 1 and 1."""
    os.makedirs(os.path.join(os.fsencode(tmp_path), name))
    os.close(os.open(os.path.join(os.fsencode(tmp_path), name, name), os.O_CREAT | os.O_WRONLY))
    assert removed(tmp_path, name) == Removal(2)
    assert list(tmp_path.iterdir()) == []


def test_two_names_never_print_alike() -> None:
    """A byte that is not UTF-8 is written as an escape; the text of that escape is another name."""
    assert [printable(name) for name in (b"a\xff", rb"a\xff", "ü".encode())] == [r"a\xff", r"a\\xff", "ü"]


@pytest.mark.parametrize("how", WAYS)
def test_symlinks_at_every_level_lead_nowhere(tmp_path: Path, canary: Canary, how: OpenBeneath) -> None:
    """The entry itself, and each of 20 levels below another one: links to a directory with files in it."""
    at = tmp_path / "top"
    for level in range(20):
        at.mkdir()
        (at / "a-link").symlink_to(canary.path)
        (at / "z-link").symlink_to(os.path.relpath(canary.path / "directory", at))
        at /= str(level)
    (tmp_path / "link").symlink_to(canary.path)
    assert removed(tmp_path, "link", how) == Removal(1)
    assert removed(tmp_path, "top", how) == Removal(60)
    assert list(tmp_path.iterdir()) == [canary.path]


def test_a_file_in_the_place_of_a_directory_goes(tmp_path: Path) -> None:
    """The kubelet treats files in the log root like directories."""
    plant(tmp_path, "lost")
    assert removed(tmp_path, "lost") == Removal(1)


def test_what_is_not_there_is_nothing_removed(tmp_path: Path) -> None:
    """And no failure."""
    assert removed(tmp_path, "absent") == Removal()


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"../canary", b"a\0b"])
def test_a_path_is_not_a_name(tmp_path: Path, canary: Canary, name: bytes) -> None:
    """Neither to be removed, nor opened, nor as the beginning of a name."""
    assert not is_entry_name(name)
    refusing: list[Callable[[int, bytes], object]] = [remove_tree, unlink_files, *WAYS]
    with opened(tmp_path) as directory:
        for refused in refusing:
            with pytest.raises(ValueError, match="name of"):
                refused(directory, name)


@pytest.mark.parametrize(("how", "levels"), [(open_by_openat2, 10_000), (open_by_comparison, 1_000)])
def test_depth_costs_no_recursion_and_few_descriptors(tmp_path: Path, how: OpenBeneath, levels: int) -> None:
    """10 000 directories in each other with a file in each (1 000 where mounts are compared).

    At most 80 descriptors are open at a time, none afterwards.
    """
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(levels):
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
        return how(directory, name)

    assert removed(tmp_path, "deeper", counted) == Removal(2 * levels)
    assert list(tmp_path.iterdir()) == []
    assert 8 < most <= 80
    assert calls < 8 * levels
    assert open_descriptors() <= before


def test_a_wide_directory_is_taken_in_batches(tmp_path: Path) -> None:
    """More subdirectories than are remembered at a time, and files beside them."""
    top = tmp_path / "top"
    top.mkdir()
    for number in range(BATCH + 200):
        os.mkdir(top / str(number))
    for number in range(200):
        os.mkfifo(top / f"file-{number}")
    assert removed(tmp_path, "top") == Removal(BATCH + 200 + 200 + 1)


@_ROOT
@pytest.mark.parametrize("how", WAYS)
def test_what_cannot_go_is_named_and_the_rest_goes(tmp_path: Path, how: OpenBeneath) -> None:
    """A file that is immutable stays, with the two directories that hold it; 3 other entries go."""
    plant(tmp_path, "top/a/kept", "top/a/b/file", "top/z")
    before = open_descriptors()
    with immutable(tmp_path / "top/a/kept"):
        told = removed(tmp_path, "top", how)
        assert told == Removal(3, 1, (Failure("top/a/kept", os.strerror(errno.EPERM)),))
        assert told.sentence == "top/a/kept: Operation not permitted"
        assert contents(tmp_path) == {"top": None, "top/a": None, "top/a/kept": "top/a/kept"}
    assert open_descriptors() == before
    assert removed(tmp_path, "top", how) == Removal(3)


@_ROOT
def test_many_failures_are_counted_and_a_few_are_told(tmp_path: Path) -> None:
    """An immutable directory of 40 files and 40 directories: all stay, 16 are named, and their path stays short."""
    deep = "top/" + "/".join(["x" * 100] * 4)
    for number in range(40):
        plant(tmp_path, f"{deep}/file-{number}", f"{deep}/directory-{number}/")
    with immutable(tmp_path / deep):
        told = removed(tmp_path, "top")
    assert (told.removed, told.failed, len(told.failures)) == (0, 80, FAILURES_TOLD)
    assert all(len(failure.path) <= 203 and failure.path.startswith("top/x") for failure in told.failures)
    assert told.sentence.endswith(", and 79 more")
    assert removed(tmp_path, "top").failed == 0


@_ROOT
def test_a_directory_that_may_not_be_read_goes_if_it_is_empty(tmp_path: Path) -> None:
    """Root without capabilities, and no mode is changed: the full one stays and is named, the rest goes."""
    plant(tmp_path, "doomed/empty/", "doomed/full/file", "doomed/z/file")
    for name in ("empty", "full"):
        (tmp_path / "doomed" / name).chmod(0)
    told = story("without_capabilities", tmp_path)
    assert (told["removed"], told["failed"]) == (3, 1)
    assert told["failures"] == [{"path": "doomed/full", "error": os.strerror(errno.EACCES)}]
    assert stat.S_IMODE((tmp_path / "doomed" / "full").stat().st_mode) == 0
    assert (tmp_path / "doomed" / "full" / "file").exists()


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM])
def test_where_openat2_is_refused_it_goes_step_by_step(tmp_path: Path, canary: Canary, refusal: int) -> None:
    """An old kernel says ENOSYS, an old seccomp profile EPERM; a real filter says it here."""
    plant(tmp_path, "doomed/a/file")
    (tmp_path / "doomed/a/link").symlink_to(canary.path)
    told = story("without_openat2", tmp_path, str(refusal))
    assert told == {"refused": errno.errorcode[refusal], "removed": 4, "failed": 0, "failures": []}


@_ROOT
def test_where_mounts_cannot_be_told_apart_no_directory_is_entered(tmp_path: Path) -> None:
    """Neither openat2 nor /proc: the directory stays and it is said why; a bind mount could be in it."""
    plant(tmp_path, "doomed/a/file")
    told = story("without_openat2_and_proc", tmp_path, str(errno.ENOSYS))
    assert (told["removed"], told["failed"]) == (0, 1)
    assert "mounts cannot be told apart" in told["failures"][0]["error"]
    assert (tmp_path / "doomed/a/file").exists()


def test_only_the_inode_that_was_meant_goes(tmp_path: Path) -> None:
    """Another directory, or file, that has the name by now stays and is a failure."""
    plant(tmp_path, "meant/file", "other/file", "note")
    meant = (tmp_path / "meant").stat()
    with opened(tmp_path) as directory:
        for name in (b"other", b"note"):
            told = remove_tree(directory, name, (meant.st_dev, meant.st_ino))
            assert told == Removal(0, 1, (Failure(name.decode(), "is not the entry any more that was to go"),))
        assert remove_tree(directory, b"meant", (meant.st_dev, meant.st_ino)) == Removal(2)
        assert remove_tree(directory, b"meant", (meant.st_dev, meant.st_ino)) == Removal()
    assert contents(tmp_path) == {"note": "note", "other": None, "other/file": "other/file"}


@pytest.mark.parametrize("how", WAYS)
def test_one_step_beneath_is_a_directory_and_nothing_else(tmp_path: Path, how: OpenBeneath) -> None:
    """Each other kind of entry is an error that says so; nothing is followed and nothing blocks."""
    plant(tmp_path, "directory/", "file")
    (tmp_path / "link").symlink_to("directory")
    os.mkfifo(tmp_path / "pipe")
    no_directory = {errno.ENOTDIR, errno.ELOOP}
    with opened(tmp_path) as directory:
        os.close(how(directory, b"directory"))
        for name, codes in (
            (b"file", no_directory),
            (b"link", no_directory),
            (b"pipe", no_directory),
            (b"absent", {errno.ENOENT}),
        ):
            with pytest.raises(OSError, match=name.decode()) as refusal:
                how(directory, name)
            assert refusal.value.errno in codes


def test_files_go_by_a_literal_prefix(tmp_path: Path, canary: Canary) -> None:
    """A log with its rotated, compressed and temporary copies; neither 10.log, nor what a pattern would match."""
    going = ["0.log", "0.log.20261121-101112", "0.log.20261121-101112.gz", "0.log.20261121-101112.tmp"]
    staying = ["10.log", "1.log", "0.lo", "0xlog", "a0.log", "0.log.directory/file"]
    plant(tmp_path / "app", *going, *staying)
    (tmp_path / "app" / "0.log.link").symlink_to(canary.path / "file")
    with opened(tmp_path / "app") as directory:
        assert unlink_files(directory, b"0.log") == Removal(len(going) + 1)
        assert unlink_files(directory, b"[0-9]*") == Removal()
    assert sorted(os.listdir(tmp_path / "app")) == sorted(name.partition("/")[0] for name in staying)


@_ROOT
def test_a_file_that_cannot_go_is_named_and_its_neighbours_go(tmp_path: Path) -> None:
    """Of three files of the prefix one is immutable; it is tried at each look, and told once."""
    plant(tmp_path, "0.log", "0.log.1", "0.log.2")
    with immutable(tmp_path / "0.log.1"), opened(tmp_path) as directory:
        assert unlink_files(directory, b"0.log") == Removal(2, 1, (Failure("0.log.1", os.strerror(errno.EPERM)),))
    assert os.listdir(tmp_path) == ["0.log.1"]
