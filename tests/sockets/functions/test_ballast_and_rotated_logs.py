"""Ballast is made whole or not at all, takes the place of nothing, and leaves nothing behind; what
is unlinked is the ballast that was planned, and nothing that took its name. Rotated logs go as
planned; what changed since stays, and nothing outside of the log directories is touched.
"""

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
from typing import Any

import pytest

from eviction.decision.thresholds import highest_mark
from eviction.engine.ballast import create_ballast, read_ballast
from eviction.engine.node import Node
from eviction.surface.kept_files import BallastKeeper
from eviction.types import Decision, NodeCondition
from eviction.wording.log import Log
from reclaim.function import GONE, PassFacts, Ready, ReclaimContext, Refused
from reclaim.functions.ballast import (
    BallastRefused,
    BallastRelease,
    BallastSettings,
    examine,
    release_ballast_function,
    remove_ballast,
)
from reclaim.functions.rotated_logs import RotatedLogs, delete_rotated_logs_function
from reclaim.pod_logs.directories import examine_directory
from reclaim.pod_logs.names import LogPaths
from reclaim.types import Plan, ReclaimError, ReclaimResult, RemovalFailed, Verdict
from reclaim.workers import NoThread, Task, Workers
from signals.types import FilesystemRole, Signal
from tests.inline import run_stages
from tests.nodes.small_node import SmallNode
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, SteppedClock
from tests.rows import rows
from tests.sockets.foreign import happens
from tests.sockets.pod_logs.trees import Canary

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


def refusal(settings: BallastSettings, by: Any = create_ballast, **options: object) -> str:
    """The sentence by which it is not made, or refused by another."""
    with pytest.raises(BallastRefused) as refused:
        by(settings, **options)
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


def called(settings: BallastSettings) -> ReclaimResult:
    """What a call of the function does."""
    clock = SteppedClock()
    function = release_ballast_function("ReleaseBallast", settings, FilesystemRole.NODEFS)
    context = partial(context_of, MemoryRuntime(clock), clock)
    return run_stages(lambda facts: context(facts=facts), clock, function.stages)


@rows("""
    changed                                        | words
    echo >>ballast                                 | it has 4194305 bytes, and the ballast has 4194304
    mv ballast target; ln -s target ballast        | it is not a regular file
    rm ballast; mkdir ballast                      | it is not a regular file
    rm ballast; mkfifo -m 600 ballast              | it is not a regular file
    ln ballast second                              | it has 2 hard links, so unlinking it frees nothing
    chown 12345 ballast                            | it belongs to uid 12345; allowed is root's
    chmod 666 ballast                              | every user may write it (mode 0666); allowed is at most 0755
    truncate -s 0 ballast; truncate -s 4M ballast  | it is sparse: 0 of its 4194304 bytes are allocated
""")
def test_what_has_its_name_and_is_not_the_ballast_is_refused_and_stays(
    made: BallastSettings, directory: Path, changed: str, words: str
) -> None:
    """With what it is and what is allowed, wherever it is looked at: when it is made, at the start,
    by the command, and in a pass; one that is sparse can be removed."""
    happens(changed, directory)
    before = seen(directory)
    sentence = f"{made.path} is not the ballast: {words}"
    assert refusal(made) == sentence
    if "sparse" not in words:
        result = called(made)
        assert (result.outcomes, result.error) == ((), sentence)
        assert refusal(made, examine) == refusal(made, remove_ballast) == sentence
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
    sentence = f"{settings.path} cannot be looked for: No such file or directory"
    assert refusal(settings, examine) == sentence
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
        ({"abandoned": lambda: True}, "is not made: the disk came under pressure meanwhile"),
        ({"mark_bytes": 1 << 60}, "is not made: "),
    ],
    ids=["sparse", "not offered", "no space", "pressure", "no room above the mark"],
)
def test_what_is_not_whole_is_not_made_and_nothing_of_it_is_left(
    settings: BallastSettings, directory: Path, options: dict[str, object], words: str
) -> None:
    """Nothing but its blocks would prove that its bytes are there to be freed."""
    sentence = refusal(settings, **options)
    assert sentence.startswith(f"{settings.path} {words}")
    assert ("it needs twice its size above the mark of " in sentence) is ("mark_bytes" in options)
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


def test_what_got_its_name_meanwhile_stays(settings: BallastSettings, directory: Path) -> None:
    """There was a second maker; what the first has made is gone."""
    before: dict[str, os.stat_result] = {}

    def allocate(descriptor: int, offset: int, size_bytes: int) -> None:
        os.posix_fallocate(descriptor, offset, size_bytes)
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


@rows("""
    what                        | changed
    another that would do       | mv ballast moved; head -c 4M /dev/urandom >ballast; chmod 600 ballast
    a symlink that leads to it  | mv ballast moved; ln -s moved ballast
    a second name               | ln ballast moved
    others may replace it       | chmod 777 .
""")
def test_what_changed_between_plan_and_removal_stays(
    made: BallastSettings, directory: Path, changed: str
) -> None:
    """The check refuses it, and where it changes after the check, the removal does."""
    stage, verdict = planned(made)
    happens(changed, directory)
    before = seen(directory)
    assert stage.check(verdict) == Refused("replaced")
    with pytest.raises(RemovalFailed):
        stage.remove(verdict)
    assert seen(directory) == before


def test_what_somebody_else_removed_is_gone(made: BallastSettings) -> None:
    """Before the plan, before the check, and between check and call. Another file of its name, made anew after the
    removal, does not make the removal a failed one."""
    stage, verdict = planned(made)
    assert isinstance(stage.check(verdict), Ready)
    assert stage.present(verdict)
    with open(made.path, "rb"):  # so that the new file cannot get its inode
        os.unlink(made.path)
        examine(made)
        assert called(made).outcomes == ()
        assert stage.check(verdict) == GONE
        assert stage.remove(verdict) is False
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
    """At pressure and without room nothing is done, nor when no thread can be had; then it is made,
    logged once, and looked for each 5 minutes.
    """
    kept = Kept(small_node, ballast)
    assert not kept.hears(0.0, decision=PRESSURE)
    assert not kept.hears(1.0, room=2 * SIZE - 1)
    kept.workers.limit = 0
    assert not kept.hears(2.0)
    kept.workers.limit = 1
    assert not kept.hears(301.9)
    assert (ballast.exists(), kept.log.getvalue()) == (False, "")
    assert kept.makes(302.0, room=2 * SIZE)
    ballast.unlink()
    assert [kept.makes(now) for now in (601.9, 602.0, 902.0)] == [False, True, True]
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


@pytest.mark.parametrize("ends", [False, True])
def test_at_pressure_and_when_the_daemon_ends_what_is_made_is_given_up(
    small_node: SmallNode, ballast: Path, ends: bool
) -> None:
    """Its thread removes what there is of it. However long a disk that hangs takes, no other is
    begun, and pressure that comes then is not forgotten."""
    kept = Kept(small_node, ballast)
    assert kept.hears(0.0)
    if ends:
        kept.keeper.close()
    else:
        assert not kept.hears(9999.0, decision=PRESSURE)
        assert not kept.hears(99999.0)
    kept.workers.waiting.pop()()
    assert not ballast.exists()
    assert ends or "the disk came under pressure meanwhile" in kept.log.getvalue()
    assert ends or kept.hears(999999.0)


# ---- rotated logs

OLD = (1_700_000_000.0,) * 2  # when every file was written; the stepped clock is years later
OLDEST, OLDER, NEWEST = (f"0.log.2023111{day}-120000" for day in (1, 2, 3))


def write(path: Path) -> None:
    """An old file of 8 KiB."""
    path.write_bytes(os.urandom(8192))
    os.utime(path, OLD)


class Logs:
    """The logs of some containers, and the function on them; the runtime is never asked."""

    def __init__(self, directory: Path):
        self.root = directory / "pods"
        self.root.mkdir()
        self.canary = Canary(directory / "canary")
        self.clock = SteppedClock()

    def container(self, pod: str, *names: str) -> Path:
        """The log directory of a container with these files."""
        directory = self.root / f"shop_{pod}_uid-{pod}" / "app"
        directory.mkdir(parents=True)
        for name in names:
            write(directory / name)
        return directory

    def context(self, facts: Callable[[], PassFacts]) -> ReclaimContext:
        """A node whose runtime does not answer."""
        paths = LogPaths(str(self.root), str(self.root.parent / "containers"))
        return context_of(MemoryRuntime(self.clock), self.clock, log_paths=paths, facts=facts)

    def call(self) -> ReclaimResult:
        """What a call of the function does that keeps no rotated log."""
        function = delete_rotated_logs_function("DeleteRotatedLogs", 0, FilesystemRole.NODEFS)
        return run_stages(self.context, self.clock, function.stages)

    def plan(self) -> tuple[RotatedLogs, Plan]:
        """The stage, and its plan of now."""
        stage = RotatedLogs(str(self.root), 1, self.clock)
        plan = stage.plan()
        assert plan is not None
        return stage, plan


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """An empty log root."""
    return Logs(tmp_path)


def kept(result: ReclaimResult) -> list[tuple[str, str]]:
    """What stays, and why."""
    return sorted((str(each.verdict.reason), each.verdict.id) for each in result.kept)


def test_symlinks_are_neither_followed_nor_removed(logs: Logs) -> None:
    """In the place of a pod's directory, of a container's, and of a log."""
    rotated = logs.canary.path / "app"
    rotated.mkdir()
    for name in (NEWEST, OLDEST):
        write(rotated / name)
    (logs.root / "shop_linked_uid-linked").symlink_to(logs.canary.path)
    pod = logs.container("web", "0.log", NEWEST).parent
    (pod / "linked").symlink_to(rotated)
    (pod / "app" / OLDEST).symlink_to(rotated / OLDEST)
    result = logs.call()
    assert [outcome.verdict.name for outcome in result.outcomes] == [f"shop/web/app/{NEWEST}"]
    assert [reason for reason, _ in kept(result)] == ["current", *["not_kubelets"] * 3]
    assert sorted(os.listdir(rotated)) == [OLDEST, NEWEST]
    assert (pod / "app" / OLDEST).is_symlink()


def test_what_is_not_the_kubelets_is_not_entered(logs: Logs) -> None:
    """Directories of other names, a file in the place of a container's directory, names that are
    not text, and a log with a second name, whose unlinking would free nothing."""
    for name in ("lost+found", "web", "a_b_c_d"):
        (logs.root / name / "app").mkdir(parents=True)
        write(logs.root / name / "app" / OLDEST)
    app = logs.container("web", "0.log", OLDER)
    (app / OLDEST).hardlink_to(app / OLDER)
    write(app.parent / OLDEST)
    os.mkdir(os.fsencode(app.parent) + b"/\xfe")
    write(app / os.fsdecode(b"0.log.\xff"))
    result = logs.call()
    assert result.outcomes == ()
    pod = "shop_web_uid-web"
    assert {each for reason, each in kept(result) if reason == "not_kubelets"} >= {
        "a_b_c_d",
        "lost+found",
        f"{pod}/{OLDEST}",
        f"{pod}/app/0.log.\\xff",
        "web",
    }


def test_a_log_root_that_is_not_there_or_cannot_be_read(logs: Logs) -> None:
    """Under pressure it is no error that there is none; at the start it is, and so is a symlink."""
    examine_directory(str(logs.root), "the rotated logs")
    logs.root.rmdir()
    result = logs.call()
    assert (result.outcomes, result.kept, result.error) == ((), (), "")
    told = f"the rotated logs below {logs.root} cannot be removed: "
    with pytest.raises(ReclaimError, match=f"^{told}No such file or directory$"):
        examine_directory(str(logs.root), "the rotated logs")
    logs.root.symlink_to(logs.canary.path)
    with pytest.raises(ReclaimError, match="it is a symlink, which is not followed"):
        examine_directory(str(logs.root), "the rotated logs")
    logs.root.unlink()
    logs.root.write_text("a file")
    assert logs.call().error == f"{logs.root} cannot be read: Not a directory"


# ---- what changes between plan and removal


@rows("""
    what                                   | changed                                                                 | answer
    another file has its name              | mv $LOG moved; cp -p moved $LOG                                         | replaced
    a symlink has its name                 | rm $LOG; ln -s $CANARY/file $LOG                                        | replaced
    another directory has its pod's name   | mv $POD moved; cp -a moved $POD                                         | replaced
    its container still writes to it       | echo a line >$LOG                                                       | being_rotated
    the kubelet has begun to compress it   | touch $LOG.tmp                                                          | being_rotated
    it is gone                             | rm $LOG                                                                 | gone
    its pod is gone                        | rm -r $POD                                                              | gone
    its container's directory is a symlink | cp -a $POD/app $CANARY/theirs; mv $POD/app moved; ln -s $CANARY/theirs $POD/app | gone
    its pod's directory is a symlink       | cp -a $POD $CANARY/theirs; mv $POD moved; ln -s $CANARY/theirs $POD     | gone
""")
def test_what_changed_since_the_plan_stays(logs: Logs, changed: str, answer: str) -> None:
    """The check refuses it with the reason, and so does the removal. A directory that became a
    symlink is not followed: the log counts as gone, and of the files behind it all stay."""
    log = logs.container("web", "0.log", NEWEST, OLDEST) / OLDEST
    stage, plan = logs.plan()
    (verdict,) = plan.remove
    happens(changed, logs.root.parent, LOG=log, POD=log.parent.parent, CANARY=logs.canary.path)
    before = set(logs.root.parent.rglob("*"))
    if answer == "gone":
        assert stage.check(verdict) == GONE
        assert stage.remove(verdict) is False
        assert not stage.present(verdict)
    else:
        assert stage.check(verdict) == Refused(answer)
        with pytest.raises(RemovalFailed, match=f"changed at the last moment: {answer}"):
            stage.remove(verdict)
    assert set(logs.root.parent.rglob("*")) == before


def test_a_compression_that_was_left_behind_and_goes_on_keeps_its_log(logs: Logs) -> None:
    """The kubelet began anew in the same temporary file since the plan."""
    web = logs.container("web", "0.log", NEWEST, OLDEST, f"{OLDEST}.tmp")
    stage, plan = logs.plan()
    assert [verdict.reason for verdict in plan.remove] == ["rotated", "left_behind"]
    assert isinstance(stage.check(plan.remove[0]), Ready)
    (web / f"{OLDEST}.tmp").write_bytes(b"anew")
    assert [stage.check(verdict) for verdict in plan.remove] == [Refused("being_rotated")] * 2
