"""What directory trees occupy: counted like `du`, within a time limit, never across a mount."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from eviction.survey.trees import TimeLimit, Tree, TreeUsage, count_trees, mounts_below
from reclaim.workers import Workers
from signals.clock import SystemClock
from tests.pure.values import KIB, SteppedClock


def by_suffix(names: Sequence[str]) -> str:
    return os.path.splitext(names[-1])[1] or "none"


def measured(root: Path, limit_seconds: float = 5.0) -> TreeUsage:
    return count_trees(
        [Tree(str(root), by_suffix)], TimeLimit(Workers("test", 1), SystemClock(), limit_seconds)
    )[0]


def test_a_tree_is_counted_by_class_as_du_counts_it(tmp_path: Path) -> None:
    """Allocated bytes of files and directories below the root; the sum is du's
    less the root's own.
    """
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one.log").write_bytes(b"x" * 100 * KIB)
    (tmp_path / "a" / "b" / "two.log").write_bytes(b"x" * 10 * KIB)
    (tmp_path / "three.gz").write_bytes(b"x")
    with open(tmp_path / "sparse.log", "wb") as sparse:
        sparse.truncate(1 << 30)
    found = measured(tmp_path)
    assert found.complete
    sizes = found.bytes_by_class
    assert 110 * KIB <= sizes[".log"] <= 150 * KIB, "a sparse file takes nothing"
    du = subprocess.run(
        ["du", "-s", "-B1", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert found.total_bytes + tmp_path.stat().st_blocks * 512 == int(du.stdout.split()[0])


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    """Snapshots share files by hard links: the bytes are there once."""
    (tmp_path / "one.log").write_bytes(b"x" * 64 * KIB)
    os.link(tmp_path / "one.log", tmp_path / "two.log")
    assert measured(tmp_path).total_bytes < 100 * KIB


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A symlink to `/`, and one to itself."""
    (tmp_path / "all").symlink_to("/")
    (tmp_path / "loop").symlink_to("loop")
    found = measured(tmp_path)
    assert found.complete
    assert found.total_bytes < 64 * KIB


def test_a_tree_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    """No device, no bytes, no error."""
    assert measured(tmp_path / "nowhere") == TreeUsage()


def test_what_is_mounted_below_is_left_out_and_never_touched(tmp_path: Path) -> None:
    """The kernel's table of mounts says what it is; names with spaces have escapes there."""
    table = tmp_path / "mountinfo"
    (tmp_path / "root" / "far away").mkdir(parents=True)
    (tmp_path / "root" / "far away" / "big").write_bytes(b"x" * 64 * KIB)
    (tmp_path / "root" / "near").write_bytes(b"x")
    point = str(tmp_path / "root" / "far away").replace(" ", "\\040")
    table.write_text(
        f"36 35 98:0 / {point} rw - nfs server:/ rw\n37 35 98:0 / /elsewhere rw - ext4 x"
        " rw\nnonsense\n"
    )
    assert mounts_below(str(tmp_path / "root"), str(table)) == {str(tmp_path / "root" / "far away")}
    found = count_trees(
        [Tree(str(tmp_path / "root"), by_suffix)],
        TimeLimit(Workers("test", 1), SystemClock(), 5.0),
        str(table),
    )[0]
    assert found.complete
    assert found.total_bytes < 64 * KIB
    assert mounts_below("/", str(tmp_path / "no table")) == frozenset()


def test_of_several_mounts_at_one_point_the_last_one_counts(tmp_path: Path) -> None:
    """A directory is mounted on itself over a disk of its own: it is part of the tree."""
    table = tmp_path / "mountinfo"
    there = tmp_path / "store" / "overlay"
    disk, itself = (
        f"{number} 36 {what} {there} rw - ext4 x rw\n"
        for number, what in ((37, "99:0 /"), (38, "98:0 /store/overlay"))
    )
    outer = f"36 35 98:0 / {tmp_path} rw - ext4 x rw\n"
    for last, elsewhere in ((disk + itself, set()), (itself + disk, {str(there)})):
        table.write_text(outer + last)
        assert mounts_below(str(tmp_path / "store"), str(table)) == elsewhere


@pytest.mark.parametrize(
    ("device", "root", "counts"), [("98:0", "/store/overlay", True), ("98:0", "/other", False)]
)
def test_a_directory_that_is_mounted_on_itself_is_part_of_the_tree(
    tmp_path: Path, device: str, root: str, *, counts: bool
) -> None:
    """As CRI-O mounts its layers; another directory of the same filesystem is elsewhere, too."""
    table, store = tmp_path / "mountinfo", tmp_path / "store"
    (store / "overlay").mkdir(parents=True)
    (store / "overlay" / "layer").write_bytes(b"x" * 64 * KIB)
    table.write_text(
        f"36 35 98:0 / {tmp_path} rw - ext4 x rw\n37 36 {device} {root} {store / 'overlay'} rw -"
        " ext4 x rw\n"
    )
    assert mounts_below(str(store), str(table)) == (
        frozenset() if counts else {str(store / "overlay")}
    )
    found = count_trees(
        [Tree(str(store))], TimeLimit(Workers("test", 1), SystemClock(), 5.0), str(table)
    )[0]
    assert (found.total_bytes >= 64 * KIB) is counts


def test_when_time_is_up_the_rest_is_not_counted(tmp_path: Path) -> None:
    """A thousand files and no time: some are counted, and the result is marked as incomplete."""
    for number in range(1000):
        (tmp_path / str(number)).write_bytes(b"x")
    clock = SteppedClock()
    found = count_trees(
        [Tree(str(tmp_path), by_suffix)], TimeLimit(Workers("test", 1), clock, 0.0)
    )[0]
    assert not found.complete
    assert found.total_bytes < sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir())


def test_a_tree_that_never_answers_costs_the_limit_and_no_more(tmp_path: Path) -> None:
    """The classifier hangs as a dead filesystem would: the first caller waits for
    the limit, the next one not.
    """
    (tmp_path / "first").touch()
    go_on, asked = threading.Event(), threading.Event()

    def hanging(_: Sequence[str]) -> str:
        asked.set()
        go_on.wait(30.0)
        return "late"

    clock = SystemClock()
    limit = TimeLimit(Workers("test", 1), clock, 0.1)
    began = clock.monotonic()
    assert not count_trees([Tree(str(tmp_path), hanging)], limit)[0].complete
    assert asked.is_set()
    assert count_trees([Tree(str(tmp_path), hanging)], limit) == [TreeUsage()]
    assert clock.monotonic() - began < 20.0, "the tree hangs for 30 s"
    go_on.set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_cannot_be_read_makes_the_result_incomplete(tmp_path: Path) -> None:
    """What may not be read is not counted, and the result says so."""
    (tmp_path / "closed").mkdir(mode=0)
    assert not measured(tmp_path).complete
    (tmp_path / "closed").chmod(0o700)
