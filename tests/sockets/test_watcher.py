"""The watcher on real directories: a hint that makes a look earlier, and that nothing can make noisy or dead."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from signals.watcher import FsWatcher

from ..reclaimd_process import came_true


class Looks:
    """Counts the looks that were asked for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        """One more."""
        self.count += 1


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def watched(tmp_path: Path, looks: Looks) -> Iterator[tuple[FsWatcher, Path]]:
    """A started watcher of one directory."""
    directory = tmp_path / "watched"
    directory.mkdir()
    watcher = FsWatcher([str(directory)], looks)
    watcher.start()
    assert watcher.problem is None
    yield watcher, directory
    watcher.stop()


def settled(watcher: FsWatcher, looks: Looks) -> int:
    """How many looks were asked for, once no event has come for half a second."""
    events = -1
    while watcher.events_total != events:
        events = watcher.events_total
        time.sleep(0.5)
    return looks.count


def seen(looks: Looks, after: int = 0) -> bool:
    """Whether a look was asked for within patience."""
    return came_true(lambda: looks.count > after)


def makes_a_file(directory: Path) -> None:
    (directory / "file").touch()


def makes_a_directory(directory: Path) -> None:
    (directory / "snapshot").mkdir()


def moves_a_file_in(directory: Path) -> None:
    other = directory.parent / "moved"
    other.touch()
    other.rename(directory / "moved")


def makes_a_name_that_is_not_utf_8(directory: Path) -> None:
    os.mkdir(os.path.join(os.fsencode(directory), b"\xff\xfe\n\x80"))


def makes_the_longest_name(directory: Path) -> None:
    (directory / ("x" * 255)).touch()


@pytest.mark.parametrize(
    "make",
    [makes_a_file, makes_a_directory, moves_a_file_in, makes_a_name_that_is_not_utf_8, makes_the_longest_name],
)
def test_something_made_in_a_directory_asks_for_a_look(
    watched: tuple[FsWatcher, Path], looks: Looks, make: object
) -> None:
    """A new file, directory or arrival, whatever its name: names are not decoded."""
    watcher, directory = watched
    assert callable(make)
    make(directory)
    assert seen(looks)
    assert watcher.events_total >= 1


def test_one_name_that_is_not_utf_8_does_not_end_the_watching(watched: tuple[FsWatcher, Path], looks: Looks) -> None:
    """pyinotify's own notifier dies of such a name; here the next event is seen as well."""
    _, directory = watched
    makes_a_name_that_is_not_utf_8(directory)
    assert seen(looks)
    after = looks.count
    time.sleep(0.05)
    makes_a_file(directory)
    assert seen(looks, after)


def test_nothing_happening_asks_for_nothing(watched: tuple[FsWatcher, Path], looks: Looks) -> None:
    """Reading, writing to an existing file and what happens one level down are no events."""
    watcher, directory = watched
    makes_a_directory(directory)
    assert seen(looks)
    before = settled(watcher, looks)
    (directory / "snapshot" / "deep").touch()
    os.listdir(directory)
    time.sleep(0.2)
    assert looks.count == before


def test_a_directory_that_is_missing_is_armed_when_it_appears(tmp_path: Path, looks: Looks) -> None:
    """The runtime's directories may come after the agent: they are tried again every 5 s."""
    directory = tmp_path / "later"
    watcher = FsWatcher([str(directory)], looks)
    watcher.start()
    try:
        assert watcher.watched == frozenset()
        directory.mkdir()
        assert came_true(lambda: watcher.watched == {str(directory)})
        makes_a_file(directory)
        assert seen(looks)
    finally:
        watcher.stop()


def test_a_directory_that_is_removed_and_made_again_is_armed_again(
    watched: tuple[FsWatcher, Path], looks: Looks, tmp_path: Path
) -> None:
    """inotify falls silent with the old directory; the new one is watched, at the latest with the next event."""
    watcher, directory = watched
    other = tmp_path / "other"
    other.mkdir()
    watcher.watch([str(directory), str(other)])
    assert came_true(lambda: len(watcher.watched) == 2)
    directory.rmdir()
    assert came_true(lambda: watcher.watched == {str(other)})
    directory.mkdir()
    makes_a_file(other)
    assert came_true(lambda: len(watcher.watched) == 2)
    after = looks.count
    makes_a_file(directory)
    assert seen(looks, after)


def test_a_directory_that_is_replaced_by_another_is_armed_again(watched: tuple[FsWatcher, Path], looks: Looks) -> None:
    """Renamed away, the kernel would go on watching it under its new path; the one at the old path counts."""
    watcher, directory = watched
    directory.rename(directory.parent / "away")
    directory.mkdir()
    assert seen(looks), "the move itself asks for a look"
    assert came_true(lambda: watcher.watched == {str(directory)})
    after = settled(watcher, looks)
    (directory.parent / "away" / "file").touch()
    time.sleep(0.2)
    assert looks.count == after, "the one that was moved is not watched any more"
    makes_a_file(directory)
    assert seen(looks, after)


def test_a_new_set_of_directories_replaces_the_old_one(
    watched: tuple[FsWatcher, Path], looks: Looks, tmp_path: Path
) -> None:
    """When the runtime says where its images are, that is watched from then on, and the old place is not."""
    watcher, old = watched
    new = tmp_path / "new"
    new.mkdir()
    watcher.watch([str(new)])
    assert came_true(lambda: watcher.watched == {str(new)})
    before = settled(watcher, looks)
    makes_a_file(old)
    time.sleep(0.2)
    assert looks.count == before
    makes_a_file(new)
    assert seen(looks, before)


def test_two_paths_to_one_directory_are_one_watch(tmp_path: Path, looks: Looks) -> None:
    """The kernel knows one watch for both; taking one path away leaves the other watched."""
    real, alias = tmp_path / "real", tmp_path / "alias"
    real.mkdir()
    alias.symlink_to(real)
    watcher = FsWatcher([str(real), str(alias)], looks)
    watcher.start()
    try:
        assert watcher.watched == {str(real), str(alias)}
        watcher.watch([str(real)])
        assert came_true(lambda: watcher.watched == {str(real)})
        makes_a_file(real)
        assert seen(looks)
    finally:
        watcher.stop()


def test_a_file_in_place_of_a_directory_is_not_watched(tmp_path: Path, looks: Looks) -> None:
    """Only directories are watched; a file, a loop of links and a path below a file are as good as missing."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    watcher = FsWatcher([str(tmp_path / name) for name in ("file", "loop", "file/below")], looks)
    watcher.start()
    try:
        assert (watcher.watched, watcher.problem) == (frozenset(), None)
    finally:
        watcher.stop()


def test_a_storm_of_20_000_creations_is_drained_without_a_storm_of_looks(
    watched: tuple[FsWatcher, Path], looks: Looks
) -> None:
    """At most 200 looks a second are asked for, the queue may overflow, and afterwards the watcher still works."""
    watcher, directory = watched
    began = time.monotonic()
    for number in range(20_000):
        os.close(os.open(directory / f"f{number}", os.O_CREAT | os.O_WRONLY))
    assert came_true(lambda: watcher.events_total >= 10_000)
    settled(watcher, looks)
    took = time.monotonic() - began
    assert looks.count <= 200 * took + 2
    after = looks.count
    makes_a_file(directory)
    assert seen(looks, after)


def test_stop_may_come_twice_and_without_a_start(tmp_path: Path, looks: Looks) -> None:
    """The thread and the descriptors are gone after the first, and a second one changes nothing."""
    never = FsWatcher([str(tmp_path)], looks)
    never.stop()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    watcher = FsWatcher([str(tmp_path)], looks)
    watcher.start()
    assert threading.active_count() == threads + 1
    for _ in range(2):
        watcher.stop()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors)
    watcher.watch([str(tmp_path / "more")])
