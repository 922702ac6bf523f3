"""The watcher on real directories: it makes an observation earlier, and neither storms nor odd
names stop it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from signals.interval import MIN_NOTIFY_SECONDS
from signals.watcher import FsWatcher
from tests.descriptors import no_descriptor_left
from tests.reclaimd_process import came_true
from tests.rows import rows
from tests.sockets.foreign import happens

NOT_UTF_8 = os.fsdecode(b"\xff\xfe\n\x80")
A_WHILE = 0.2  # seconds in which a notification would come


class Watched:
    """A watcher of one directory that is there and one that is not, which counts its calls."""

    def __init__(self, root: Path) -> None:
        self.directory, self.later = root / "watched", root / "later"
        self.directory.mkdir()
        self.count = 0
        self.watcher = FsWatcher([str(self.directory), str(self.later)], self.called, 1.0)
        self.watcher.start()
        assert self.watcher.problem is None

    def called(self) -> None:
        self.count += 1

    def settled(self) -> int:
        """How often it has called, once it has not for half a second."""
        count = -1
        while self.count != count:
            count = self.count
            time.sleep(0.5)
        return count

    def notices(self, action: Callable[[], object]) -> bool:
        """Whether this notifies."""
        before = self.count
        action()
        return came_true(lambda: self.count > before)

    def ignores(self, action: Callable[[], object]) -> bool:
        """Whether this does not."""
        before = self.settled()
        action()
        time.sleep(A_WHILE)
        return self.count == before

    def watches(self, *paths: Path) -> bool:
        """Whether these are watched, sooner or later, and no others."""
        return came_true(lambda: self.watcher.watched == set(map(str, paths)))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.watcher.stop()


@rows(r"""
    made
    : >file
    mkdir snapshot
    mkdir "$(printf '\377\376\n\200')"
    : >"$(printf %0255d)"
    : >../other; mv ../other .
""")
def test_something_created_in_a_directory_notifies(watched: Watched, made: str) -> None:
    """A file or directory that is created or moved there, whatever its name: names are not decoded."""
    assert watched.notices(lambda: happens(made, watched.directory))


def test_one_name_that_is_not_utf_8_does_not_end_the_watching(watched: Watched) -> None:
    """pyinotify's own notifier fails on such a name; here the next event notifies as well."""
    for name in (NOT_UTF_8, "file"):
        assert watched.notices((watched.directory / name).mkdir)


def test_what_is_no_creation_does_not_notify(watched: Watched) -> None:
    """Listing the directory, and a file that is created one level down."""
    snapshot = watched.directory / "snapshot"
    assert watched.notices(snapshot.mkdir)
    assert watched.ignores((snapshot / "deep").touch)
    assert watched.ignores(lambda: os.listdir(watched.directory))


def test_a_directory_is_watched_when_it_appears_and_again_when_it_was_replaced(
    watched: Watched,
) -> None:
    """The runtime's directories may be created after the start. inotify stops with a directory that
    is removed, and goes on with one that is renamed: what is at the path is watched."""
    directory, later, away = watched.directory, watched.later, watched.directory.parent / "away"
    assert watched.watches(directory)
    later.mkdir()
    assert watched.watches(directory, later)
    directory.rmdir()
    assert watched.watches(later)
    directory.mkdir()
    assert watched.notices((later / "file").touch)
    assert watched.watches(directory, later)
    assert watched.notices((directory / "file").touch)

    def replaced() -> None:
        directory.rename(away)
        directory.mkdir()

    assert watched.notices(replaced), "the move itself notifies"
    assert watched.watches(directory, later)
    assert watched.ignores((away / "another").touch)
    assert watched.notices((directory / "file").touch)


def test_a_new_set_of_directories_replaces_the_old_one(watched: Watched) -> None:
    """When the runtime says where its images are, that is watched from then on. Two paths to one
    directory are one watch of the kernel, which stays if one is taken away; what is no directory is
    as if it were missing."""
    root, new, alias = watched.directory.parent, watched.later, watched.directory.parent / "alias"
    new.mkdir()
    alias.symlink_to(new)
    (root / "loop").symlink_to("loop")
    (root / "file").touch()
    others = [root / "loop", root / "file", root / "file" / "below"]
    watched.watcher.watch(map(str, [new, alias, *others]))
    assert watched.watches(new, alias)
    watched.watcher.watch([str(new)])
    assert watched.watches(new)
    assert watched.ignores((watched.directory / "file").touch)
    assert watched.notices((new / "file").touch)


def test_a_storm_of_20_000_creations_is_drained_without_a_storm_of_calls(watched: Watched) -> None:
    """At most four calls a second; the queue may overflow, and the watcher still works afterwards."""
    began = time.monotonic()
    for number in range(20_000):
        os.close(os.open(watched.directory / f"f{number}", os.O_CREAT | os.O_WRONLY))
    watched.settled()
    took = time.monotonic() - began
    assert 1 <= watched.count <= took / MIN_NOTIFY_SECONDS + 1
    assert watched.notices((watched.directory / "file").touch)


def test_stop_may_come_twice_and_without_a_start(tmp_path: Path) -> None:
    """The thread and the descriptors are gone after the first, and a second one changes nothing."""
    FsWatcher([str(tmp_path)], lambda: None, 1.0).stop()
    threads = set(threading.enumerate())
    with no_descriptor_left():
        watcher = Watched(tmp_path).watcher
        assert len(set(threading.enumerate()) - threads) == 1
        for _ in range(2):
            watcher.stop()
        assert set(threading.enumerate()) <= threads
    watcher.watch([str(tmp_path / "more")])
