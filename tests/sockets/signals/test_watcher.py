"""The watcher on real directories: it makes an observation earlier, and neither
storms nor odd names stop it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from signals.interval import MIN_NOTIFY_SECONDS
from signals.watcher import FsWatcher
from tests.descriptors import no_descriptor_left
from tests.reclaimd_process import came_true

REARM_SECONDS = 1.0


class Notifications:
    """Counts the calls of the watcher."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        """One more."""
        self.count += 1


@pytest.fixture
def notified() -> Notifications:
    return Notifications()


@pytest.fixture
def watched(tmp_path: Path, notified: Notifications) -> Iterator[tuple[FsWatcher, Path]]:
    """A started watcher of one directory."""
    directory = tmp_path / "watched"
    directory.mkdir()
    watcher = FsWatcher([str(directory)], notified, REARM_SECONDS)
    watcher.start()
    assert watcher.problem is None
    yield watcher, directory
    watcher.stop()


def settled(notified: Notifications) -> int:
    """How often the watcher has called, once it has not for half a second."""
    count = -1
    while notified.count != count:
        count = notified.count
        time.sleep(0.5)
    return count


def seen(notified: Notifications, after: int = 0) -> bool:
    """Whether the watcher calls more than `after` times."""
    return came_true(lambda: notified.count > after)


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
    [
        makes_a_file,
        makes_a_directory,
        moves_a_file_in,
        makes_a_name_that_is_not_utf_8,
        makes_the_longest_name,
    ],
)
def test_something_created_in_a_directory_notifies(
    watched: tuple[FsWatcher, Path], notified: Notifications, make: object
) -> None:
    """A file or directory that is created or moved there, whatever its name:
    names are not decoded.
    """
    _, directory = watched
    assert callable(make)
    make(directory)
    assert seen(notified)


def test_one_name_that_is_not_utf_8_does_not_end_the_watching(
    watched: tuple[FsWatcher, Path], notified: Notifications
) -> None:
    """pyinotify's own notifier fails on such a name; here the next event notifies as well."""
    _, directory = watched
    makes_a_name_that_is_not_utf_8(directory)
    assert seen(notified)
    after = notified.count
    time.sleep(0.05)
    makes_a_file(directory)
    assert seen(notified, after)


def test_what_is_no_creation_does_not_notify(
    watched: tuple[FsWatcher, Path], notified: Notifications
) -> None:
    """Listing the directory, and a file that is created one level down."""
    _, directory = watched
    makes_a_directory(directory)
    assert seen(notified)
    before = settled(notified)
    (directory / "snapshot" / "deep").touch()
    os.listdir(directory)
    time.sleep(0.2)
    assert notified.count == before


def test_a_directory_that_is_missing_is_watched_when_it_appears(
    tmp_path: Path, notified: Notifications
) -> None:
    """The runtime's directories may be created after the start: they are tried again."""
    directory = tmp_path / "later"
    watcher = FsWatcher([str(directory)], notified, REARM_SECONDS)
    watcher.start()
    try:
        assert watcher.watched == frozenset()
        directory.mkdir()
        assert came_true(lambda: watcher.watched == {str(directory)})
        makes_a_file(directory)
        assert seen(notified)
    finally:
        watcher.stop()


def test_a_directory_that_is_removed_and_created_again_is_watched_again(
    watched: tuple[FsWatcher, Path], notified: Notifications, tmp_path: Path
) -> None:
    """inotify stops with the old directory; the new one is watched at the
    latest after the next event.
    """
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
    after = notified.count
    makes_a_file(directory)
    assert seen(notified, after)


def test_a_directory_that_is_replaced_by_another_is_watched_again(
    watched: tuple[FsWatcher, Path], notified: Notifications
) -> None:
    """The kernel goes on watching a renamed directory under its new path; the one at the
    old path must be watched.
    """
    watcher, directory = watched
    directory.rename(directory.parent / "away")
    directory.mkdir()
    assert seen(notified), "the move itself notifies"
    assert came_true(lambda: watcher.watched == {str(directory)})
    after = settled(notified)
    (directory.parent / "away" / "file").touch()
    time.sleep(0.2)
    assert notified.count == after, "the one that was moved is no longer watched"
    makes_a_file(directory)
    assert seen(notified, after)


def test_a_new_set_of_directories_replaces_the_old_one(
    watched: tuple[FsWatcher, Path], notified: Notifications, tmp_path: Path
) -> None:
    """When the runtime says where its images are, that is watched from then on, and
    the old directory no longer.
    """
    watcher, old = watched
    new = tmp_path / "new"
    new.mkdir()
    watcher.watch([str(new)])
    assert came_true(lambda: watcher.watched == {str(new)})
    before = settled(notified)
    makes_a_file(old)
    time.sleep(0.2)
    assert notified.count == before
    makes_a_file(new)
    assert seen(notified, before)


def test_two_paths_to_one_directory_are_one_watch(tmp_path: Path, notified: Notifications) -> None:
    """The kernel has one watch for both; if one path is taken away, the other is still watched."""
    real, alias = tmp_path / "real", tmp_path / "alias"
    real.mkdir()
    alias.symlink_to(real)
    watcher = FsWatcher([str(real), str(alias)], notified, REARM_SECONDS)
    watcher.start()
    try:
        assert watcher.watched == {str(real), str(alias)}
        watcher.watch([str(real)])
        assert came_true(lambda: watcher.watched == {str(real)})
        makes_a_file(real)
        assert seen(notified)
    finally:
        watcher.stop()


def test_a_file_in_place_of_a_directory_is_not_watched(
    tmp_path: Path, notified: Notifications
) -> None:
    """A file, a loop of links and a path below a file are treated as missing."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    watcher = FsWatcher(
        [str(tmp_path / name) for name in ("file", "loop", "file/below")], notified, REARM_SECONDS
    )
    watcher.start()
    try:
        assert (watcher.watched, watcher.problem) == (frozenset(), None)
    finally:
        watcher.stop()


def test_a_storm_of_20_000_creations_is_drained_without_a_storm_of_calls(
    watched: tuple[FsWatcher, Path], notified: Notifications
) -> None:
    """At most four calls a second; the queue may overflow, and the watcher
    still works afterwards.
    """
    _, directory = watched
    began = time.monotonic()
    for number in range(20_000):
        os.close(os.open(directory / f"f{number}", os.O_CREAT | os.O_WRONLY))
    settled(notified)
    took = time.monotonic() - began
    assert 1 <= notified.count <= took / MIN_NOTIFY_SECONDS + 1
    after = notified.count
    makes_a_file(directory)
    assert seen(notified, after)


def test_stop_may_come_twice_and_without_a_start(tmp_path: Path, notified: Notifications) -> None:
    """The thread and the descriptors are gone after the first, and a second one changes nothing."""
    never = FsWatcher([str(tmp_path)], notified, REARM_SECONDS)
    never.stop()
    threads = set(threading.enumerate())
    with no_descriptor_left():
        watcher = FsWatcher([str(tmp_path)], notified, REARM_SECONDS)
        watcher.start()
        assert len(set(threading.enumerate()) - threads) == 1
        for _ in range(2):
            watcher.stop()
        assert set(threading.enumerate()) <= threads
    watcher.watch([str(tmp_path / "more")])
