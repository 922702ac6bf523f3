"""`remove_tree` removes an entry of any kind with everything below it, and nothing else."""

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

from reclaim.pod_logs.directories import (
    BATCH,
    TreeRemoval,
    open_beneath,
    remove_tree,
    unlink_files,
)
from reclaim.pod_logs.names import is_entry_name, printable
from tests.descriptors import no_descriptor_left, open_descriptors
from tests.sockets.pod_logs.trees import Canary, contents, opened, plant, removed

_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS, _FS_IMMUTABLE_FL = 0x80086601, 0x40086602, 0x10
LEVELS = 10_000
_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    """A directory outside of everything that is removed."""
    made = Canary(tmp_path / "canary")
    yield made
    assert made.unharmed


def run_child(name: str, directory: Path, *arguments: str) -> dict[str, Any]:
    """The JSON that a scenario of `remover_child` prints."""
    command = [
        sys.executable,
        "-m",
        "tests.sockets.pod_logs.remover_child",
        name,
        str(directory),
        *arguments,
    ]
    result: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    )
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


def test_a_tree_is_removed_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    """One entry by its whole name:

    3 directories and 3 files; names that begin like it are other entries.
    """
    plant(
        tmp_path,
        "pod/app/0.log",
        "pod/app/0.log.gz",
        "pod/side/1.log",
        "pod2/file",
        "po",
        "pod.log",
    )
    assert removed(tmp_path, "pod") == TreeRemoval(6)
    assert contents(tmp_path) == {
        "po": "po",
        "pod.log": "pod.log",
        "pod2": None,
        "pod2/file": "pod2/file",
    }


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


@_ROOT
def test_device_nodes_go_without_being_opened(tmp_path: Path) -> None:
    """A character and a block device of numbers that no driver has."""
    (tmp_path / "top").mkdir()
    try:
        os.mknod(tmp_path / "top" / "character", stat.S_IFCHR | 0o600, os.makedev(251, 250))
        os.mknod(tmp_path / "top" / "block", stat.S_IFBLK | 0o600, os.makedev(251, 250))
    except PermissionError as error:
        pytest.skip(f"needs device nodes: {error.strerror}")
    assert removed(tmp_path, "top") == TreeRemoval(3)


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


def test_symlinks_at_every_level_lead_nowhere(tmp_path: Path, canary: Canary) -> None:
    """The entry itself, and each of 20 levels below another one: links to a
    directory with files in it.
    """
    at = tmp_path / "top"
    for level in range(20):
        at.mkdir()
        (at / "a-link").symlink_to(canary.path)
        (at / "z-link").symlink_to(os.path.relpath(canary.path / "directory", at))
        at /= str(level)
    (tmp_path / "link").symlink_to(canary.path)
    assert removed(tmp_path, "link") == TreeRemoval(1)
    assert removed(tmp_path, "top") == TreeRemoval(60)
    assert list(tmp_path.iterdir()) == [canary.path]


def test_a_file_in_the_place_of_a_directory_is_removed(tmp_path: Path) -> None:
    """The kubelet treats files in the log root like directories."""
    plant(tmp_path, "lost")
    assert removed(tmp_path, "lost") == TreeRemoval(1)


def test_what_is_not_there_is_nothing_removed(tmp_path: Path) -> None:
    """A missing entry is no failure."""
    assert removed(tmp_path, "absent") == TreeRemoval()


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
    """An immutable file is kept with the two directories above it; 3 other entries are removed."""
    plant(tmp_path, "top/a/kept", "top/a/b/file", "top/z")
    with no_descriptor_left(), immutable(tmp_path / "top/a/kept"):
        result = removed(tmp_path, "top")
        assert result == TreeRemoval(3, 1, "top/a/kept: Operation not permitted")
        assert contents(tmp_path) == {"top": None, "top/a": None, "top/a/kept": "top/a/kept"}
    assert removed(tmp_path, "top") == TreeRemoval(3)


@_ROOT
def test_many_failures_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    """An immutable directory of 40 files and 40 directories: all are kept, one
    is named, by a short path.
    """
    deep = "top/" + "/".join(["x" * 100] * 4)
    for number in range(40):
        plant(tmp_path, f"{deep}/file-{number}", f"{deep}/directory-{number}/")
    with immutable(tmp_path / deep):
        result = removed(tmp_path, "top")
    assert (result.removed, result.failed) == (0, 80)
    assert result.failure.startswith("top/x")
    assert len(result.failure.partition(":")[0]) <= 203
    assert result.sentence == f"{result.failure}, and 79 more"
    assert removed(tmp_path, "top").failed == 0


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


def test_one_step_beneath_is_a_directory_and_nothing_else(tmp_path: Path) -> None:
    """Each other kind of entry is an error that says so; nothing is followed and nothing blocks."""
    plant(tmp_path, "directory/", "file")
    (tmp_path / "link").symlink_to("directory")
    os.mkfifo(tmp_path / "pipe")
    no_directory = {errno.ENOTDIR, errno.ELOOP}
    with opened(tmp_path) as directory:
        os.close(open_beneath(directory, b"directory"))
        for name, codes in (
            (b"file", no_directory),
            (b"link", no_directory),
            (b"pipe", no_directory),
            (b"absent", {errno.ENOENT}),
        ):
            with pytest.raises(OSError, match=name.decode()) as refusal:
                open_beneath(directory, name)
            assert refusal.value.errno in codes


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


@_ROOT
def test_a_file_that_cannot_be_removed_is_named_and_its_neighbours_are_removed(
    tmp_path: Path,
) -> None:
    """Of three files of the prefix one is immutable; it is tried in each round, and listed once."""
    plant(tmp_path, "0.log", "0.log.1", "0.log.2")
    with immutable(tmp_path / "0.log.1"), opened(tmp_path) as directory:
        assert unlink_files(directory, b"0.log") == TreeRemoval(
            2, 1, "0.log.1: Operation not permitted"
        )
    assert os.listdir(tmp_path) == ["0.log.1"]
