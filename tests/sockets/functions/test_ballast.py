"""Ballast is made whole or not at all, takes the place of nothing, and leaves nothing behind; what
is unlinked is the ballast that was planned, and nothing that took its name."""

from __future__ import annotations

import errno
import io
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from eviction.decision.thresholds import highest_mark
from eviction.engine.ballast import create_ballast, read_ballast
from eviction.engine.node import Node
from eviction.surface.kept_files import BallastKeeper
from eviction.types import Decision, NodeCondition
from eviction.wording.log import Log
from reclaim.function import GONE, Ready, Refused
from reclaim.functions.ballast import (
    BallastRefused,
    BallastRelease,
    BallastSettings,
    examine,
    release_ballast_function,
    remove_ballast,
)
from reclaim.types import ReclaimResult, RemovalFailed, Result, Verdict
from reclaim.workers import NoThread, Task, Workers
from signals.types import FilesystemRole, Signal
from tests.inline import run_stages
from tests.nodes.small_node import SmallNode
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, SteppedClock

SIZE = 4 * MIB
CALM = Decision(frozenset(), (), None, (), None)
PRESSURE = CALM._replace(conditions=frozenset({NodeCondition.DISK_PRESSURE}))


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


@pytest.fixture
def made(settings: BallastSettings) -> BallastSettings:
    """One that is there."""
    assert create_ballast(settings)[1]
    return settings


def refusal(settings: BallastSettings, **options: object) -> str:
    """The sentence by which it is not made."""
    with pytest.raises(BallastRefused) as refused:
        create_ballast(settings, **options)  # type: ignore[arg-type] # passed on as they come
    return str(refused.value)


def seen(directory: Path) -> dict[str, os.stat_result]:
    """What is there."""
    return {path.name: path.lstat() for path in directory.iterdir()}


def test_its_bytes_are_taken_and_nobody_else_may_touch_it(
    settings: BallastSettings, directory: Path
) -> None:
    """A file of one name, mode 0600, with all its blocks; made twice it is one file."""
    ballast, made = create_ballast(settings)
    before = seen(directory)
    (status,) = before.values()
    assert (made, ballast.problem, ballast.allocated_bytes) == (True, "", SIZE)
    assert (status.st_size, status.st_nlink, oct(status.st_mode)) == (SIZE, 1, "0o100600")
    assert status.st_blocks * 512 >= SIZE
    assert read_ballast(settings) == ballast
    assert create_ballast(settings) == (ballast, False)
    assert seen(directory) == before


# ---- what is not the ballast


def other(path: Path, size: int = SIZE, mode: int = 0o600) -> Path:
    """A file that is not sparse."""
    path.write_bytes(os.urandom(size))
    path.chmod(mode)
    return path


def somebody_elses(path: Path) -> None:
    """It belongs to another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    os.chown(other(path), 12345, 12345)


def sparse(path: Path) -> None:
    """Its size takes nothing."""
    path.touch(0o600)
    os.truncate(path, SIZE)


NO_FILE = "it is not a regular file"
FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "another size": (
        lambda path: other(path, SIZE + 1),
        "it has 4194305 bytes, and the ballast has 4194304",
    ),
    "a symlink": (lambda path: path.symlink_to(other(path.with_name("target"))), NO_FILE),
    "a directory": (lambda path: path.mkdir(), NO_FILE),
    "a fifo, which waits for a writer": (lambda path: os.mkfifo(path, 0o600), NO_FILE),
    "a second name": (
        lambda path: path.with_name("second").hardlink_to(other(path)),
        "it has 2 hard links, so unlinking it frees nothing",
    ),
    "somebody else's": (somebody_elses, "it belongs to uid 12345; allowed is root's"),
    "others may write it": (
        lambda path: other(path, mode=0o666),
        "every user may write it (mode 0666); allowed is at most 0755",
    ),
    "sparse": (sparse, "it is sparse: 0 of its 4194304 bytes are allocated"),
}


def called(settings: BallastSettings, *, dry_run: bool = False) -> ReclaimResult:
    """What a call of the function does."""
    clock = SteppedClock()
    function = release_ballast_function("ReleaseBallast", settings, FilesystemRole.NODEFS)
    return run_stages(
        lambda facts: context_of(MemoryRuntime(clock), clock, facts=facts),
        clock,
        function.stages,
        dry_run=dry_run,
    )


@pytest.mark.parametrize("name", FOREIGN)
def test_what_has_its_name_and_is_not_the_ballast_is_refused_and_stays(
    settings: BallastSettings, directory: Path, name: str
) -> None:
    """With what it is and what is allowed, wherever it is looked at: when it is made, at the start,
    by the command, and in a pass; one that is sparse can be removed."""
    plant, words = FOREIGN[name]
    plant(directory / "ballast")
    before = seen(directory)
    sentence = f"{settings.path} is not the ballast: {words}"
    assert refusal(settings) == sentence
    if name != "sparse":
        result = called(settings)
        assert (result.outcomes, result.error) == ((), sentence)
        for look in (examine, remove_ballast):
            with pytest.raises(BallastRefused) as refused:
                look(settings)
            assert str(refused.value) == sentence
    assert seen(directory) == before


def test_a_directory_in_which_others_could_replace_the_ballast_is_refused(
    settings: BallastSettings, directory: Path
) -> None:
    """They could put another file in its place."""
    directory.chmod(0o777)
    assert f"every user may write its directory {directory} (mode 0777)" in refusal(settings)
    assert os.listdir(directory) == []


def test_a_directory_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    """At the start as well; a ballast that is not there was released, and is no problem."""
    settings = BallastSettings(str(tmp_path / "absent" / "ballast"), SIZE)
    assert refusal(settings) == f"{settings.path} cannot be made: No such file or directory"
    with pytest.raises(BallastRefused) as refused:
        examine(settings)
    assert str(refused.value) == f"{settings.path} cannot be looked for: No such file or directory"
    assert os.listdir(tmp_path) == []


# ---- what happens while it is made


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allocate": only_sets_the_size}, "is not made: it is sparse: 0 of its "),
        ({"allocate": is_not_offered}, "cannot be made: Operation not supported"),
        ({"allocate": finds_no_space}, "cannot be made: No space left on device"),
        (
            {"abandoned": lambda: True},
            "is not made: the disk came under pressure meanwhile",
        ),
    ],
    ids=["sparse", "not offered", "no space", "pressure"],
)
def test_what_is_not_whole_is_not_made_and_nothing_of_it_is_left(
    settings: BallastSettings, directory: Path, options: dict[str, object], words: str
) -> None:
    """Nothing but its blocks would prove that its bytes are there to be freed."""
    assert refusal(settings, **options).startswith(f"{settings.path} {words}")
    assert os.listdir(directory) == []


def test_without_room_for_it_twice_nothing_is_allocated(directory: Path) -> None:
    """A size of more than half of what is available, and a size that leaves less than the mark."""
    found = os.statvfs(directory)
    available = found.f_bavail * found.f_frsize
    large = BallastSettings(str(directory / "ballast"), available * 3 // 4)
    assert "it needs twice its size above the mark of " in refusal(large)
    small = BallastSettings(str(directory / "ballast"), SIZE)
    assert "above the mark of " in refusal(small, mark_bytes=available * 2)
    assert os.listdir(directory) == []


def test_what_others_take_meanwhile_must_leave_the_mark(small_node: SmallNode) -> None:
    """There was room for it twice over above 16 MiB when it was begun, and now it is
    less: nothing of it is left.
    """
    settings = BallastSettings(str(small_node.disk / "ballast"), SIZE)
    there: list[str] = []

    def allocate(descriptor: int, offset: int, size_bytes: int) -> None:
        os.posix_fallocate(descriptor, offset, size_bytes)
        small_node.fill(small_node.available() - 15 * MIB)
        there.extend(os.listdir(small_node.disk))

    sentence = refusal(settings, mark_bytes=16 * MIB, allocate=allocate)
    assert "others took the space meanwhile" in sentence
    assert os.listdir(small_node.disk) == there


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


@pytest.mark.parametrize("theirs", [True, False], ids=["another file", "a second maker"])
def test_what_got_its_name_meanwhile_stays(
    settings: BallastSettings, directory: Path, theirs: bool
) -> None:
    """What the first has made is gone."""
    before: dict[str, os.stat_result] = {}

    def allocate(descriptor: int, offset: int, size_bytes: int) -> None:
        os.posix_fallocate(descriptor, offset, size_bytes)
        if theirs:
            (directory / "ballast").write_text("theirs")
        else:
            assert create_ballast(settings)[1]
        before.update(seen(directory))

    assert refusal(settings, allocate=allocate) == f"{settings.path} cannot be made: File exists"
    assert seen(directory) == before


# ---- its release


def planned(settings: BallastSettings) -> tuple[BallastRelease, Verdict]:
    """The stage, and what it has planned: the file that is there."""
    stage = BallastRelease(settings, SteppedClock())
    plan = stage.plan()
    assert plan is not None
    (verdict,) = plan.remove
    return stage, verdict


def test_it_is_unlinked_with_what_is_allocated_as_its_size(made: BallastSettings) -> None:
    """One object, planned in a dry run and then removed; where there is none nothing is planned."""
    examine(made)
    for dry_run, result in ((True, Result.PLANNED), (False, Result.REMOVED)):
        assert os.path.lexists(made.path)
        (outcome,) = called(made, dry_run=dry_run).outcomes
        assert (outcome.verdict.id, outcome.verdict.size_bytes) == (made.path, SIZE)
        assert outcome.result is result
    assert not os.path.lexists(made.path)
    examine(made)
    nothing = called(made)
    assert (nothing.outcomes, nothing.kept, nothing.error) == ((), (), "")


def same_size(path: Path) -> None:
    """Another file that would do as ballast."""
    other(path.rename(path.with_name("moved")).with_name("ballast"))


def a_symlink_to_it(path: Path) -> None:
    """The ballast was moved, and a symlink leads to it."""
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def linked(path: Path) -> None:
    """It got a second name, so that unlinking one frees nothing."""
    path.with_name("moved").hardlink_to(path)


def opened_to_all(path: Path) -> None:
    """Others may replace it now."""
    path.parent.chmod(0o777)


@pytest.mark.parametrize("change", [same_size, a_symlink_to_it, linked, opened_to_all])
def test_what_changed_between_plan_and_removal_stays(
    made: BallastSettings, directory: Path, change: Callable[[Path], None]
) -> None:
    """The check refuses it, and where it changes after the check, the removal does."""
    stage, verdict = planned(made)
    change(directory / "ballast")
    before = seen(directory)
    assert stage.check(verdict) == Refused("replaced")
    with pytest.raises(RemovalFailed):
        stage.remove(verdict)
    assert seen(directory) == before


def test_what_somebody_else_removed_is_gone(made: BallastSettings) -> None:
    """Before the check, and between check and call."""
    stage, verdict = planned(made)
    assert isinstance(stage.check(verdict), Ready)
    assert stage.present(verdict)
    os.unlink(made.path)
    assert stage.check(verdict) == GONE
    assert stage.remove(verdict) is False
    assert not stage.present(verdict)


def test_another_file_of_its_name_is_not_the_planned_one(made: BallastSettings) -> None:
    """Made anew after the removal, it does not make the removal a failed one."""
    stage, verdict = planned(made)
    with open(made.path, "rb"):  # so that the new file cannot get its inode
        assert stage.remove(verdict) is True
        create_ballast(made)
        assert not stage.present(verdict)


# ---- a keeper makes it again, when there is room and never at pressure, on a thread of its own


@pytest.fixture
def ballast(small_node: SmallNode) -> Path:
    """Where the ballast is to be."""
    return small_node.disk / "ballast"


class ByHand(Workers):
    """Threads that do a task when a test says so, one at a time, or none (`limit` 0)."""

    def __init__(self) -> None:
        super().__init__("ballast", 1)
        self.waiting: list[Task] = []

    def run(self, task: Task, announce: Callable[[], object] = lambda: None) -> None:
        """Takes one at a time."""
        if len(self.waiting) >= self.limit:
            raise NoThread("its thread is at work")
        self.waiting.append(task)


class Kept:
    """A keeper of a ballast of 4 MiB on a node with 40 MiB more than its mark, and what it has
    logged."""

    def __init__(self, small: SmallNode, ballast: Path, **options: object):
        functions = [{"name": "ReleaseBallast", "file": str(ballast), "size": "4Mi"}]
        options.setdefault("reclaimFunctions", functions)
        self.node: Node = small.node(Signal.NODEFS_AVAILABLE, -40 * MIB, **options)
        self.workers = ByHand()
        self.log = io.StringIO()
        self.keeper = BallastKeeper(self.node, Log(time.time, stream=self.log), self.workers)

    def hears(self, now: float, *, room: int = 1 << 40, decision: Decision = CALM) -> bool:
        """Has it hear an observation with so much available above the mark; whether it has begun."""
        seen, before = self.node.summary.observe(), len(self.workers.waiting)
        identity, stats = seen.filesystems[FilesystemRole.NODEFS]
        mark = highest_mark(self.node.thresholds(seen.layout), seen, FilesystemRole.NODEFS)
        assert mark > 0
        found = {FilesystemRole.NODEFS: (identity, replace(stats, available_bytes=mark + room))}
        self.keeper.observed(seen._replace(time=now, filesystems=found), decision)
        return len(self.workers.waiting) > before

    def makes(self, now: float, room: int = 1 << 40) -> bool:
        """The same; what was begun is done."""
        begun = self.hears(now, room=room)
        if begun:
            self.workers.waiting.pop()()
        return begun


def test_it_is_made_again_when_there_is_room_and_never_at_pressure(
    small_node: SmallNode, ballast: Path
) -> None:
    """At pressure and without room nothing is done; then it is made, logged once, and
    looked for each 5 minutes.
    """
    kept = Kept(small_node, ballast)
    assert not kept.hears(0.0, decision=PRESSURE)
    assert not kept.hears(1.0, room=2 * SIZE - 1)
    assert (ballast.exists(), kept.log.getvalue()) == (False, "")
    assert kept.makes(2.0, room=2 * SIZE)
    ballast.unlink()
    assert [kept.makes(now) for now in (301.9, 302.0, 602.0)] == [False, True, True]
    assert ballast.stat().st_size == SIZE
    assert kept.log.getvalue().count(f"the ballast {ballast} of 4.0MiB is there again") == 2


def test_what_keeps_it_from_being_made_is_logged(small_node: SmallNode, ballast: Path) -> None:
    """Each time, in one sentence."""
    ballast.mkdir()
    kept = Kept(small_node, ballast)
    assert kept.makes(0.0)
    assert kept.makes(300.0)
    told = f"the ballast is not made again: {ballast} is not the ballast: it is not a regular file"
    assert kept.log.getvalue().count(told) == 2


@pytest.mark.parametrize("options", [{"dry_run": True}, {"reclaimFunctions": []}])
def test_in_a_dry_run_and_without_a_ballast_nothing_is_made(
    small_node: SmallNode, ballast: Path, options: dict[str, object]
) -> None:
    """Although there is room."""
    assert not Kept(small_node, ballast, **options).hears(0.0)


def test_while_one_is_made_no_other_is_begun(small_node: SmallNode, ballast: Path) -> None:
    """However long a disk that hangs takes; pressure that comes then is not forgotten."""
    kept = Kept(small_node, ballast)
    assert kept.hears(0.0)
    assert not kept.hears(9999.0, decision=PRESSURE)
    assert not kept.hears(99999.0)
    kept.workers.waiting.pop()()
    assert f"{ballast} is not made: the disk came under pressure meanwhile" in kept.log.getvalue()
    assert not ballast.exists()
    assert kept.hears(999999.0)


def test_when_the_daemon_ends_what_is_made_is_given_up(
    small_node: SmallNode, ballast: Path
) -> None:
    """Its thread removes what there is of it."""
    kept = Kept(small_node, ballast)
    assert kept.hears(0.0)
    kept.keeper.close()
    kept.workers.waiting.pop()()
    assert not ballast.exists()


def test_without_a_thread_it_is_tried_again_later(small_node: SmallNode, ballast: Path) -> None:
    """The limit of processes is reached."""
    kept = Kept(small_node, ballast)
    kept.workers.limit = 0
    assert not kept.hears(0.0)
    kept.workers.limit = 1
    assert not kept.hears(299.0)
    assert kept.makes(600.0)
    assert ballast.exists()
