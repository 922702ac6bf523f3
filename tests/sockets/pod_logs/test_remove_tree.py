"""`remove_tree` removes an entry of any kind with everything below it, and nothing else: not while
directories are exchanged for symlinks, moved away, mounted on and filled again under its hands.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from tests.full_disk import without_bytes_and_inodes
from tests.rows import rows
from tests.sockets.mounts import bound, tmpfs
from tests.sockets.pod_logs.trees import Canary, before_each_call, contents, opened, plant, removed
from tests.tool import tool

NAMES = [
    *(b"\xff\xfe\x80", b"new\nline", b"\x1b[31mred", b" ", b"-rf", b"*", b"...", b"a\\b"),
    *("ü".encode(), b"x" * 255, b"0.log", b"0.log.gz"),
]
LEVELS = 3000  # Python recurses 1000 times
MIB = 1 << 20
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


def bind(stack: ExitStack, source: Path, target: Path) -> None:
    """A bind mount for the length of the test."""
    bound(str(source), str(target))
    stack.callback(unmount, str(target))


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Makes it immutable: not even root may remove or change it."""
    chattr = tool("chattr", "e2fsprogs")
    if subprocess.run([chattr, "+i", path]).returncode != 0:
        pytest.skip("needs a filesystem and the right to make a file immutable")
    try:
        yield
    finally:
        subprocess.run([chattr, "-i", path], check=True)


# ---- what goes


Tree = str | dict[bytes, Any]
LEAVES = ["file", "pipe", "socket", "hard link", "canary", "canary/file", "..", "nowhere", "itself"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(LEAVES),
    lambda below: st.dictionaries(st.sampled_from(NAMES), below, max_size=4),
    max_leaves=12,
)
"""Directories of entries, which are what they are called or else symlinks to that."""


def make(path: bytes, tree: Tree, canary: Path) -> int:
    """Makes the entry with what is below it; how many there are."""
    match tree:
        case dict():
            os.mkdir(path)
            return 1 + sum(make(path + b"/" + name, each, canary) for name, each in tree.items())
        case "hard link":
            os.link(canary / "file", path)
        case "file" | "pipe" | "socket":
            kinds = {"file": stat.S_IFREG, "pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK}
            os.mknod(path, kinds[tree] | 0o600)
        case "itself":
            os.symlink(os.path.basename(path), path)
        case target:
            os.symlink(os.fsencode(canary.parent / target), path)
    return 1


@settings(max_examples=40, deadline=None)
@given(TREES, st.sampled_from(NAMES))
def test_an_entry_goes_with_all_below_it_and_nothing_else(tree: Tree, name: bytes) -> None:
    """Of any name, which is bytes, and any kind, each as an entry: no link is followed, no pipe
    opened, and the other name of a hard link keeps its content. Names that begin like it are other
    entries; one that is missing is no failure."""
    with TemporaryDirectory() as directory:
        canary = Canary(Path(directory, "canary"))
        doomed, neighbours = os.fsencode(directory) + b"/" + name, (name[:-1] + b"~", b"0.l")
        for each in neighbours:
            make(os.fsencode(directory) + b"/" + each, {b"file": "file"}, canary.path)
        count = make(doomed, tree, canary.path)
        assert removed(directory, name) == TreeRemoval(count)
        assert removed(directory, name) == TreeRemoval()
        assert {*os.listdir(os.fsencode(directory))} == {b"canary", *neighbours}
        assert all(os.listdir(os.fsencode(directory) + b"/" + each) for each in neighbours)
        assert canary.unharmed
        assert (canary.path / "file").stat().st_nlink == 1


def test_two_names_never_print_alike() -> None:
    """A byte that is not UTF-8 is written as an escape; the text of that escape is another name."""
    assert [printable(name) for name in (b"a\xff", rb"a\xff", "ü".encode())] == [
        r"a\xff",
        r"a\\xff",
        "ü",
    ]


@pytest.mark.usefixtures("canary")
@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"../canary", b"a\0b"])
@pytest.mark.parametrize("refused", [remove_tree, unlink_files, open_beneath])
def test_a_path_is_not_a_name(
    tmp_path: Path, name: bytes, refused: Callable[[int, bytes], object]
) -> None:
    """Neither to be removed, nor opened, nor as the beginning of a name."""
    assert not is_entry_name(name)
    with opened(tmp_path) as directory, pytest.raises(ValueError, match="name of"):
        refused(directory, name)


def test_depth_costs_no_recursion_and_few_descriptors(tmp_path: Path) -> None:
    """3000 directories in each other with a file in each.

    At most 3 descriptors are open at a time, none afterwards.
    """
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.mkfifo("file", dir_fd=below)
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
    """More subdirectories than are remembered at a time, and a file beside them."""
    plant(tmp_path, "top/file", *(f"top/{number}/" for number in range(BATCH + 200)))
    assert removed(tmp_path, "top") == TreeRemoval(BATCH + 202)


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
@rows("""
    scenario                    | goes | failure
    remove_without_capabilities | 3    | doomed/full: Permission denied
    remove_without_proc         | 0    | doomed: is not known to be on the same filesystem and mount
""")
def test_a_directory_that_cannot_be_looked_into_stays_and_is_named(
    tmp_path: Path, scenario: str, goes: int, failure: str
) -> None:
    """To root without capabilities, which changes no mode, one that may not be read goes only if it
    is empty; where mounts are unknown as there is no /proc none is entered: each could be a bind
    mount."""
    plant(tmp_path, "doomed/empty/", "doomed/full/file", "doomed/z/file")
    for name in ("empty", "full"):
        (tmp_path / "doomed" / name).chmod(0)
    command = [sys.executable, "-m", "tests.sockets.namespace_child", scenario, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    result = json.loads(done.stdout)
    assert (result["removed"], result["failed"], result["failure"]) == (goes, 1, failure)
    assert stat.S_IMODE((tmp_path / "doomed" / "full").stat().st_mode) == 0
    assert (tmp_path / "doomed" / "full" / "file").exists()


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
    app = tmp_path / "app"
    copies = (f"0.log{ending}" for ending in ("", ".20261121-101112", ".gz", ".tmp"))
    plant(app, *copies, "10.log", "1.log", "0.lo", "0xlog", "a0.log", "0.log.directory/file")
    (app / "0.log.link").symlink_to(canary.path / "file")
    with opened(app) as directory:
        assert unlink_files(directory, b"0.log") == TreeRemoval(5)
        assert unlink_files(directory, b"[0-9]*") == TreeRemoval()
    left = {"10.log", "1.log", "0.lo", "0xlog", "a0.log", "0.log.directory"}
    assert {*os.listdir(app)} == left


# ---- under attack


@pytest.mark.parametrize("times", [2000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_directories_are_swapped_for_symlinks_all_the_while(
    tmp_path: Path, canary: Canary, times: int
) -> None:
    """Right before each call of the remover one of eight directories with files and directories in
    it is exchanged for a symlink to the canary, or back, so many times: the canary is unharmed, and
    all of the tree goes. It is made anew as often as it takes."""
    # the canary has a directory and a file of these names too
    names = ("file", "directory/file", "other", "0/", "1/", "2/", "3/")
    dice, swaps, fooled = random.Random(5), 0, 0  # noqa: S311 # repeatable on purpose

    def swap() -> None:
        nonlocal swaps
        number = str(dice.randrange(8))
        one, other = arena / "doomed" / number / "directory", arena / "outside" / number
        with suppress(FileNotFoundError):  # it has gone
            one.rename(arena / "aside")
            other.rename(one)
            (arena / "aside").rename(other)
            swaps += 1

    def counted(beneath: int, name: bytes) -> int:
        nonlocal fooled
        try:
            return open_beneath(beneath, name)
        except OSError as error:
            fooled += error.errno in (errno.ELOOP, errno.ENOTDIR)
            raise

    while swaps < times:
        arena = tmp_path / "arena"
        plant(
            arena, "outside/", *(f"doomed/{n}/directory/{name}" for n in range(8) for name in names)
        )
        for number in range(8):
            (arena / "outside" / str(number)).symlink_to(canary.path)
        with no_descriptor_left(), opened(arena) as directory, before_each_call(swap):
            result = remove_tree(directory, b"doomed", open_directory=counted)
        assert result.failed == 0, result.sentence
        assert os.listdir(arena) == ["outside"]
        assert canary.unharmed
        shutil.rmtree(arena)
    assert fooled, "a symlink was there where a directory had been listed"


class Interruption:
    """Opens as `open_beneath` does, and does something right after the directory
    of a name was opened, once.
    """

    def __init__(self, name: bytes, act: Callable[[], None]):
        self._name, self._act, self.done = name, act, False

    def __call__(self, directory: int, name: bytes) -> int:
        """An `OpenBeneath`."""
        descriptor = open_beneath(directory, name)
        if name == self._name and not self.done:
            self.done = True
            self._act()
        return descriptor


@pytest.mark.parametrize("moved", ["top/a", "top/a/b", "top/a/b/c"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_that_is_moved_away_takes_its_content_along(
    tmp_path: Path, canary: Canary, moved: str, replaced: bool
) -> None:
    """Moved beside the canary while the lowest of `top/a/b/c` is entered, with or without a symlink
    in its place: from then on it is left alone, and nothing of what is around its new place is
    touched. All that is still below `top` goes."""
    plant(tmp_path, "top/a/b/c/file", "top/a/b/file", "top/a/file", "top/y/file")
    away = tmp_path / "away"
    plant(away, "file", "c/file", "b/c/file")

    def move() -> None:
        os.rename(tmp_path / moved, away / "moved")
        if replaced:
            (tmp_path / moved).symlink_to(canary.path)

    expected = contents(tmp_path / moved)
    assert removed(tmp_path, "top", Interruption(b"c", move)).failed == 0
    assert not (tmp_path / "top").exists()
    assert contents(away / "moved").items() <= expected.items()
    assert (away / "moved" / Path("top/a/b/c/file").relative_to(moved)).exists()
    assert {"file", "c/file", "b/c/file"} <= contents(away).keys()


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
    arena = stack.enter_context(tmpfs(tmp_path / "arena", 64 * MIB, DEEPEST + 100))
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


@pytest.mark.parametrize("same", [False, True], ids=["a tmpfs", "a bind mount"])
def test_another_filesystem_in_the_tree_is_left_unchanged(
    tmp_path: Path, stack: ExitStack, same: bool
) -> None:
    """Two levels down: it is kept as it is with the directories above it, 3 other entries are
    removed. Of a bind mount of the same filesystem only the mount id differs. The entry itself may
    be one, too."""
    plant(tmp_path, "top/a/file", "top/z/file", "top/a/mounted/")
    mounted = tmp_path / "top/a/mounted"
    place = tmp_path / "canary" if same else stack.enter_context(tmpfs(mounted, MIB, 100))
    canary = Canary(place)
    if same:
        bind(stack, canary.path, mounted)
        assert mounted.stat().st_dev == (tmp_path / "top").stat().st_dev
    assert removed(tmp_path, "top") == TreeRemoval(3, 1, f"top/a/mounted: {CROSSING}")
    assert removed(mounted.parent, "mounted") == TreeRemoval(0, 1, f"mounted: {CROSSING}")
    assert canary.unharmed


def test_a_mount_that_appears_on_the_way_back_is_not_entered(
    tmp_path: Path, stack: ExitStack, canary: Canary
) -> None:
    """Something is mounted on `top/a` while `top/a/b` is emptied:

    `..` leads into it, and is not followed.
    """
    plant(tmp_path, "top/a/b/file", "top/z")
    mounting = Interruption(b"b", lambda: bind(stack, canary.path, tmp_path / "top/a"))
    assert removed(tmp_path, "top", mounting).failure == f"top/a: {CROSSING}"


def test_without_a_free_byte_or_inode_it_works(tmp_path: Path, stack: ExitStack) -> None:
    """A tmpfs filled to the last page and inode: trees and single files are removed,
    and the space is free again.
    """
    disk = stack.enter_context(tmpfs(tmp_path / "disk", MIB, 64))
    plant(disk, "pod/app/0.log", "pod/app/0.log.20261121-101112")
    with without_bytes_and_inodes(disk / "pod"):
        with opened(disk / "pod/app") as directory:
            assert unlink_files(directory, b"0.log.2") == TreeRemoval(1)
        assert os.statvfs(disk).f_favail == 1
        assert removed(disk, "pod").failed == 0
        assert os.statvfs(disk).f_bfree == os.statvfs(disk).f_blocks
