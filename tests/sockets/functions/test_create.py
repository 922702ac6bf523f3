"""Ballast is made whole or not at all, takes the place of nothing, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from eviction.engine.ballast import create_ballast, read_ballast
from reclaim.functions.ballast import BallastRefused, BallastSettings

MIB = 1 << 20
SIZE = 4 * MIB
PLENTY = 1 << 40


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that only this user may write."""
    made = tmp_path / "kubelet"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture
def settings(directory: Path) -> BallastSettings:
    """A ballast of 4 MiB in it."""
    return BallastSettings(str(directory / "ballast"), SIZE)


def only_sets_the_size(descriptor: int, _: int, size_bytes: int) -> None:
    """What fallocate does on ZFS: it succeeds, and no block is taken."""
    os.ftruncate(descriptor, size_bytes)


def is_not_offered(_: int, __: int, ___: int) -> None:
    """A filesystem without fallocate, under a C library that does not emulate it."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def finds_no_space(descriptor: int, _: int, __: int) -> None:
    """The room was taken by others since it was looked at."""
    os.write(descriptor, bytes(MIB))
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refusal(settings: BallastSettings, **options: object) -> str:
    """The sentence by which it is not made."""
    with pytest.raises(BallastRefused) as refused:
        create_ballast(settings, **options)  # type: ignore[arg-type] # passed on as they come
    return str(refused.value)


def test_its_bytes_are_taken_and_nobody_else_may_touch_it(
    settings: BallastSettings, directory: Path
) -> None:
    """A file of one name, mode 0600, with all its blocks; nothing else is left in the directory."""
    ballast, made = create_ballast(settings)
    status = (directory / "ballast").lstat()
    assert (made, ballast.problem, ballast.allocated_bytes) == (True, "", SIZE)
    assert (status.st_size, status.st_nlink, oct(status.st_mode)) == (SIZE, 1, "0o100600")
    assert status.st_blocks * 512 >= SIZE
    assert os.listdir(directory) == ["ballast"]
    assert read_ballast(settings) == ballast


def test_a_whole_one_that_is_there_is_left_as_it_is(
    settings: BallastSettings, directory: Path
) -> None:
    """Made twice it is one file."""
    create_ballast(settings)
    before = (directory / "ballast").lstat()
    ballast, made = create_ballast(settings)
    assert (made, ballast.problem) == (False, "")
    assert (directory / "ballast").lstat() == before


@pytest.mark.parametrize(
    ("allocate", "words"),
    [
        (only_sets_the_size, "is not made: it is sparse: 0 of its "),
        (is_not_offered, "cannot be made: Operation not supported"),
    ],
)
def test_where_allocation_takes_no_blocks_it_is_not_made(
    settings: BallastSettings,
    directory: Path,
    allocate: Callable[[int, int, int], None],
    words: str,
) -> None:
    """Nothing else would prove that its bytes are there to be freed."""
    assert f"{settings.path} {words}" in refusal(settings, allocate=allocate)
    assert os.listdir(directory) == []


def another_size(path: Path) -> None:
    """One byte more."""
    path.write_bytes(bytes(SIZE + 1))
    path.chmod(0o600)


def a_symlink(path: Path) -> None:
    """To a file that would do."""
    target = path.with_name("target")
    target.write_bytes(os.urandom(SIZE))
    target.chmod(0o600)
    path.symlink_to(target)


def a_directory(path: Path) -> None:
    """Empty."""
    path.mkdir()


def a_fifo(path: Path) -> None:
    """Opening it to read would wait for a writer."""
    os.mkfifo(path, 0o600)


def hard_linked(path: Path) -> None:
    """It has a second name."""
    path.write_bytes(os.urandom(SIZE))
    path.chmod(0o600)
    path.with_name("second").hardlink_to(path)


def somebody_elses(path: Path) -> None:
    """It belongs to another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    path.write_bytes(os.urandom(SIZE))
    path.chmod(0o600)
    os.chown(path, 12345, 12345)


def writable_by_others(path: Path) -> None:
    """Whoever may write it may put something into it."""
    path.write_bytes(os.urandom(SIZE))
    path.chmod(0o666)


def sparse(path: Path) -> None:
    """Its size takes nothing."""
    path.touch(0o600)
    os.truncate(path, SIZE)


FOREIGN = [
    (another_size, "it has 4194305 bytes, and the ballast has 4194304"),
    (a_symlink, "it is not a regular file"),
    (a_directory, "it is not a regular file"),
    (a_fifo, "it is not a regular file"),
    (hard_linked, "it has 2 hard links, so unlinking it frees nothing"),
    (somebody_elses, "it belongs to uid 12345; allowed is root's"),
    (writable_by_others, "every user may write it (mode 0666); allowed is at most 0755"),
    (sparse, "it is sparse: 0 of its 4194304 bytes are allocated"),
]


@pytest.mark.parametrize(
    ("plant", "words"), FOREIGN, ids=lambda each: getattr(each, "__name__", "")
)
def test_what_has_its_name_and_is_not_the_ballast_is_refused_and_stays(
    settings: BallastSettings, directory: Path, plant: Callable[[Path], None], words: str
) -> None:
    """By name, with what it is and what is allowed."""
    plant(directory / "ballast")
    before = {path.name: path.lstat() for path in directory.iterdir()}
    assert refusal(settings) == f"{settings.path} is not the ballast: {words}"
    assert {path.name: path.lstat() for path in directory.iterdir()} == before


def test_a_directory_in_which_others_could_replace_the_ballast_is_refused(
    settings: BallastSettings, directory: Path
) -> None:
    """They could put another file in its place."""
    directory.chmod(0o777)
    assert f"every user may write its directory {directory} (mode 0777)" in refusal(settings)
    assert os.listdir(directory) == []


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """It is not made."""
    settings = BallastSettings(str(tmp_path / "absent" / "ballast"), SIZE)
    assert refusal(settings) == f"{settings.path} cannot be made: No such file or directory"


def test_without_room_for_it_twice_nothing_is_allocated(directory: Path) -> None:
    """A size of more than half of what is available, and a size that leaves less than the mark."""
    found = os.statvfs(directory)
    available = found.f_bavail * found.f_frsize
    large = BallastSettings(str(directory / "ballast"), available * 3 // 4)
    assert "it needs twice its size above the mark of " in refusal(large)
    small = BallastSettings(str(directory / "ballast"), SIZE)
    assert "above the mark of " in refusal(small, mark_bytes=available * 2)
    assert os.listdir(directory) == []


def test_a_process_that_dies_while_it_makes_it_leaves_nothing(
    settings: BallastSettings, directory: Path
) -> None:
    """It has no name, whether nothing or half of it was taken when the process was killed."""
    for taken in (0, SIZE // 2):
        child = os.fork()
        if not child:
            create_ballast(settings, allocate=partial(dies, taken))
            os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert os.listdir(directory) == []
    assert create_ballast(settings)[1]


def dies(taken: int, descriptor: int, _: int, __: int) -> None:
    """The process is killed after so many bytes were allocated."""
    os.posix_fallocate(descriptor, 0, max(taken, 1))
    os.kill(os.getpid(), signal.SIGKILL)


def test_one_of_two_makes_it(settings: BallastSettings, directory: Path) -> None:
    """The second comes while the first allocates, and is faster; what the first
    has made is gone.
    """

    def allocate(descriptor: int, offset: int, size_bytes: int) -> None:
        assert create_ballast(settings)[1]
        os.posix_fallocate(descriptor, offset, size_bytes)

    assert refusal(settings, allocate=allocate) == f"{settings.path} cannot be made: File exists"
    assert os.listdir(directory) == ["ballast"]
    ballast = read_ballast(settings)
    assert ballast is not None
    assert ballast.problem == ""


def test_a_file_that_got_its_name_meanwhile_stays(
    settings: BallastSettings, directory: Path
) -> None:
    """It is not replaced by the one that was made."""

    def allocate(descriptor: int, offset: int, size_bytes: int) -> None:
        os.posix_fallocate(descriptor, offset, size_bytes)
        (directory / "ballast").write_text("theirs")

    assert refusal(settings, allocate=allocate) == f"{settings.path} cannot be made: File exists"
    assert os.listdir(directory) == ["ballast"]
    assert (directory / "ballast").read_text() == "theirs"


def test_where_the_room_runs_out_nothing_is_left(
    settings: BallastSettings, directory: Path
) -> None:
    """Not half of it either."""
    assert (
        refusal(settings, allocate=finds_no_space)
        == f"{settings.path} cannot be made: No space left on device"
    )
    assert os.listdir(directory) == []


def test_when_pressure_comes_what_there_is_of_it_is_removed(
    settings: BallastSettings, directory: Path
) -> None:
    """It came while its bytes were allocated."""
    sentence = refusal(settings, abandoned=lambda: True)
    assert sentence == f"{settings.path} is not made: the disk came under pressure meanwhile"
    assert os.listdir(directory) == []
