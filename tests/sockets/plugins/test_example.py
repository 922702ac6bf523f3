"""The example prunes a build cache: the files that were not used for longest, and nothing outside of its directory."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reclaim.plugins import Found
from reclaim.pod_logs.directories import opened, remove_tree
from tests.plugin_distributions import EXAMPLE, on_the_path
from tests.sockets.mounts import mounted_tmpfs, unmount

KIB = 1024
AN_HOUR = 3600.0
LEVELS = 400


class Cache:
    """A directory with files of 8 KiB of a given age, and the example's function for it."""

    def __init__(self, directory: Path, module: Any):
        self.directory = directory
        self.prune = module.PruneBuildCache({"directory": str(directory), "olderThan": "1h"})

    def file(self, name: str, age_hours: float) -> Path:
        """A file that was last written and read so long ago."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(8 * KIB))
        age(path, age_hours)
        return path

    def planned(self) -> dict[str, str]:
        """What is found, in the order of the plan: paths below the directory, and why each goes or stays."""
        return {os.path.relpath(each.id, self.directory): each.reason for each in self.prune.plan()}

    def found(self, name: str) -> Found:
        """One object of the plan."""
        (found,) = (each for each in self.prune.plan() if each.id == str(self.directory / name))
        assert isinstance(found, Found)
        return found


def age(path: Path, hours: float) -> None:
    """It was last written and read so long ago."""
    at = time.time() - hours * AN_HOUR
    os.utime(path, (at, at), follow_symlinks=False)


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    """The module as it stands in the example."""
    with on_the_path(EXAMPLE):
        yield importlib.import_module("reclaimd_prune_build_cache")


@pytest.fixture
def cache(tmp_path: Path, module: Any) -> Cache:
    """An empty cache."""
    directory = tmp_path / "cache"
    directory.mkdir()
    return Cache(directory, module)


def test_what_was_not_used_for_longest_is_first(cache: Cache) -> None:
    """Wherever it is; the young ones are at the end, and will be old enough."""
    cache.file("a/0", 2)
    cache.file("b/c/1", 9)
    cache.file("2", 5)
    cache.file("a/3", 0.5)
    assert list(cache.planned().items()) == [
        ("b/c/1", "not_used_lately"),
        ("2", "not_used_lately"),
        ("a/0", "not_used_lately"),
        ("a/3", "too_young"),
    ]
    young = cache.found("a/3")
    assert not young.remove
    assert young.eligible_in_seconds == pytest.approx(AN_HOUR / 2, abs=60)
    old = cache.found("2")
    assert (old.remove, old.size_bytes, old.eligible_in_seconds) == (True, 8 * KIB, None)
    assert old.age_seconds == pytest.approx(5 * AN_HOUR, abs=60)


def test_a_file_that_was_read_lately_is_in_use(cache: Cache) -> None:
    """It was written days ago."""
    path = cache.file("a", 50)
    os.utime(path, (time.time(), time.time() - 50 * AN_HOUR))
    assert cache.planned() == {"a": "too_young"}


def test_a_file_from_the_future_is_young(cache: Cache) -> None:
    """Whoever set the clock."""
    cache.file("a", -50)
    assert cache.planned() == {"a": "too_young"}


def test_a_file_with_another_name_frees_nothing(cache: Cache, tmp_path: Path) -> None:
    """It stays, as its bytes would."""
    os.link(cache.file("a", 5), tmp_path / "another")
    assert cache.planned() == {"a": "has_other_links"}


def test_removed_is_removed(cache: Cache) -> None:
    """Checked, removed, absent; the directory stays."""
    path = cache.file("a/b", 5)
    found = cache.found("a/b")
    assert cache.prune.check(found) is True
    assert cache.prune.present(found)
    assert cache.prune.remove(found) is True
    assert not cache.prune.present(found)
    assert not path.exists()
    assert path.parent.is_dir()
    assert cache.prune.remove(found) is False
    assert cache.prune.check(found) is False


def test_a_file_that_is_used_after_the_plan_stays(cache: Cache) -> None:
    """A build has read it."""
    path = cache.file("a", 5)
    found = cache.found("a")
    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    assert cache.prune.check(found) == "used_meanwhile"


@pytest.mark.parametrize("reuse", [True, False])
def test_another_file_of_its_name_stays(cache: Cache, reuse: bool) -> None:
    """As old, and in the place of the planned one, maybe with the inode of it."""
    path = cache.file("a", 5)
    found = cache.found("a")
    if reuse:
        path.unlink()
    else:
        path.rename(path.with_name("b"))
    cache.file("a", 4.9)
    assert cache.prune.check(found) == "changed"
    assert not cache.prune.present(found)


def test_neither_symlinks_nor_what_is_no_file_are_found(cache: Cache, tmp_path: Path) -> None:
    """A link to a file, to a directory, to nothing; a pipe."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    age(outside / "precious", 99)
    for name, target in (("file", outside / "precious"), ("directory", outside), ("nothing", tmp_path / "none")):
        (cache.directory / name).symlink_to(target)
        age(cache.directory / name, 99)
    os.mkfifo(cache.directory / "pipe")
    assert cache.planned() == {}


def test_a_directory_that_is_exchanged_for_a_symlink_leads_nowhere(cache: Cache, tmp_path: Path) -> None:
    """Between plan and removal the directory is moved away, and a link to another one with an old file takes its name:
    neither checked nor removed, even without a check."""
    path = cache.file("a/b", 5)
    found = cache.found("a/b")
    path.parent.rename(tmp_path / "moved")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("precious")
    age(outside / "b", 5)
    path.parent.symlink_to(outside)
    assert cache.prune.check(found) is False
    assert cache.prune.remove(found) is False
    assert (outside / "b").exists()
    assert (tmp_path / "moved" / "b").exists()


def test_a_name_that_is_a_directory_now_is_not_removed(cache: Cache) -> None:
    """unlink takes files only."""
    path = cache.file("a", 5)
    found = cache.found("a")
    path.unlink()
    (path / "b").mkdir(parents=True)
    assert cache.prune.check(found) == "changed"
    with pytest.raises(OSError, match="Is a directory"):
        cache.prune.remove(found)
    assert (path / "b").exists()


def test_a_directory_that_goes_while_it_is_read_is_none(cache: Cache) -> None:
    """The one that is read first takes the other with it: what is left is told."""
    for name in ("a/1", "b/2"):
        cache.file(name, 5)
    files = cache.prune._files()
    first = next(files)
    (other,) = {"a", "b"} - {Path(first.id).parent.name}
    shutil.rmtree(cache.directory / other)
    assert list(files) == []


def test_the_directory_itself_has_to_be_one(cache: Cache, tmp_path: Path) -> None:
    """One that is missing, a file, and a symlink are refused by the plan, each time anew."""
    cache.file("a", 5)
    moved = cache.directory.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        list(cache.prune.plan())
    cache.directory.symlink_to(moved)
    with pytest.raises(NotADirectoryError):
        list(cache.prune.plan())
    cache.directory.unlink()
    moved.rename(cache.directory)
    assert cache.planned() == {"a": "not_used_lately"}


def test_a_name_that_is_not_utf_8_is_one_like_any_other(cache: Cache) -> None:
    """Found, and removed."""
    path = cache.file(os.fsdecode(b"a\xff/b\xfe"), 5)
    found = cache.found(os.fsdecode(b"a\xff/b\xfe"))
    assert cache.prune.check(found) is True
    assert cache.prune.remove(found) is True
    assert not path.exists()


@pytest.mark.parametrize(("name", "read"), [("d", 100), ("d" * 200, 18)])
def test_a_tree_without_end_is_read_to_a_bound(cache: Cache, name: str, read: int) -> None:
    """So many levels, or so long a path: who may write the cache must not occupy the function for ever."""
    directory = os.open(cache.directory, os.O_DIRECTORY)
    for _ in range(LEVELS):
        os.mkdir(name, dir_fd=directory)
        below = os.open(name, os.O_DIRECTORY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)
    cache.file("a", 5)
    (file, file_reason), (deep, deep_reason) = cache.planned().items()
    assert (file, file_reason, deep_reason) == ("a", "not_used_lately", "too_deep")
    assert read <= deep.count("/") <= read + 1
    with opened(str(cache.directory)) as root:  # pytest cannot remove such a tree
        assert remove_tree(root, os.fsencode(name)).removed == LEVELS


def test_another_filesystem_below_is_not_entered(cache: Cache) -> None:
    """What lies there would free nothing here; it is told."""
    mounted_tmpfs(str(cache.directory / "mounted"), 1 << 20, 100)
    try:
        cache.file("mounted/b", 9)
        cache.file("a", 5)
        assert cache.planned() == {"a": "not_used_lately", "mounted": "unreadable"}
    finally:
        unmount(str(cache.directory / "mounted"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "directory is ''; allowed is an absolute path other than /, without . and .."),
        ({"directory": "/"}, "directory is '/'; allowed is"),
        ({"directory": "cache"}, "directory is 'cache'; allowed is"),
        ({"directory": "/var/cache/../lib"}, "directory is '/var/cache/../lib'; allowed is"),
        ({"directory": "/c"}, "olderThan is ''; allowed is a number with s, m, h or d, such as 36h"),
        ({"directory": "/c", "olderThan": 3600}, "olderThan is '3600'; allowed is"),
        ({"directory": "/c", "olderThan": "-1h"}, "olderThan is '-1h'; allowed is"),
        (
            {"directory": "/c", "olderThan": "1h", "dir": "/"},
            "dir is not an option; allowed are directory and olderThan",
        ),
    ],
)
def test_options_that_are_refused(module: Any, options: dict[str, Any], said: str) -> None:
    """The option, what it was, what is allowed."""
    with pytest.raises(ValueError, match="allowed") as refused:
        module.PruneBuildCache(options)
    assert str(refused.value).startswith(said)
