"""Nothing outside is touched while directories are exchanged for symlinks, moved away and filled
again under the remover's hands; and nothing inside is left."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eviction.drill.runtime.private_mounts import unmount
from reclaim.pod_logs.directories import (
    DEEPEST,
    ROUNDS,
    TreeRemoval,
    open_beneath,
    remove_tree,
)
from tests.descriptors import no_descriptor_left
from tests.sockets.mounts import mounted_tmpfs
from tests.sockets.pod_logs.remover_child import PAIRS
from tests.sockets.pod_logs.trees import Canary, contents, opened, plant, removed

SWAPS, SWAPS_OF_SOAK = 20_000, 100_000
SWAPS_BEFORE_A_STEP = 64
PATIENCE_SECONDS = 90.0


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    """A directory outside of everything that is removed."""
    made = Canary(tmp_path / "canary")
    yield made
    assert made.unharmed


@contextmanager
def attacker(directory: Path, counter: Path) -> Iterator[Callable[[], int]]:
    """A process that swaps; the function returns how often it has."""
    counter.write_bytes(bytes(8))
    command = [
        sys.executable,
        "-m",
        "tests.sockets.pod_logs.remover_child",
        "swap",
        str(directory),
        str(counter),
    ]
    with open(counter, "rb") as file, mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ) as shared:
        process = subprocess.Popen(command)
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

            while swaps < times and time.monotonic() < deadline:
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


def test_a_directory_that_is_moved_into_the_canary_does_not_lead_there(
    tmp_path: Path, canary: Canary
) -> None:
    """`..` of the entered directory is the canary by then: nothing of either is removed."""
    plant(tmp_path, "top/a/b/file", "top/z")
    interruption = Interruption(b"b", lambda: os.rename(tmp_path / "top/a/b", canary.path / "b"))
    assert removed(tmp_path, "top", interruption) == TreeRemoval(3)
    assert contents(canary.path / "b") == {"file": "top/a/b/file"}
    (canary.path / "b/file").unlink()
    (canary.path / "b").rmdir()


def test_a_directory_that_gets_another_name_beside_itself_goes_under_that_name(
    tmp_path: Path, canary: Canary
) -> None:
    """It is renamed when it is entered, and a symlink put in its place: both go, and
    nothing that the link leads to.
    """
    plant(tmp_path, "top/a/b/file", "top/a/b/c/file", "top/z")

    def rename() -> None:
        os.rename(tmp_path / "top/a/b", tmp_path / "top/a/renamed")
        (tmp_path / "top/a/b").symlink_to(canary.path)

    assert removed(tmp_path, "top", Interruption(b"b", rename)) == TreeRemoval(8)
    assert list(tmp_path.iterdir()) == [canary.path]


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


def test_somebody_who_keeps_digging_does_not_hold_it_for_ever(tmp_path: Path) -> None:
    """Each directory that is entered gets another one in it: the removal ends at 20 000
    levels, with that reason.
    """
    arena = tmp_path / "arena"
    mounted_tmpfs(str(arena), 64 << 20, DEEPEST + 100)
    entered = 0

    def digging(directory: int, name: bytes) -> int:
        nonlocal entered
        descriptor = open_beneath(directory, name)
        if entered < DEEPEST:
            entered += 1
            os.mkdir("deeper", dir_fd=descriptor)
        return descriptor

    try:
        (arena / "deeper").mkdir()
        result = removed(arena, "deeper", digging)
        assert result.failed == 1
        assert result.failure.endswith(": is more than 20000 levels deep")
    finally:
        unmount(str(arena))
