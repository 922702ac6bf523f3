"""Rotated logs go as planned; what changed since stays, and nothing outside of the
log directories is touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reclaim.function import GONE, PassFacts, Ready, ReclaimContext, Refused
from reclaim.functions.rotated_logs import RotatedLogs, delete_rotated_logs_function
from reclaim.pod_logs.directories import examine_directory
from reclaim.pod_logs.names import LogPaths
from reclaim.types import Plan, ReclaimError, ReclaimResult, RemovalFailed
from signals.types import FilesystemRole
from tests.inline import run_stages
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock
from tests.rows import rows
from tests.sockets.pod_logs.trees import Canary

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
    what                                    | change             | answer
    another file has its name               | replaced           | replaced
    a symlink has its name                  | symlink            | replaced
    another directory has its pod's name    | another pod        | replaced
    its container still writes to it        | written            | being_rotated
    the kubelet has begun to compress it    | compressed         | being_rotated
    it is gone                              | gone               | gone
    its pod is gone                         | pod gone           | gone
    its container's directory is a symlink  | container a symlink | gone
    its pod's directory is a symlink        | pod a symlink      | gone
""")
def test_what_changed_since_the_plan_stays(logs: Logs, change: str, answer: str) -> None:
    """The check refuses it with the reason, and so does the removal. A directory that became a
    symlink is not followed: the log counts as gone, and of the files behind it all stay."""
    log = logs.container("web", "0.log", NEWEST, OLDEST) / OLDEST
    container, pod, canary = log.parent, log.parent.parent, logs.canary.path
    stage, plan = logs.plan()
    (verdict,) = plan.remove
    match change:
        case "replaced":
            log.rename(log.with_name("moved"))
            write(log)
        case "symlink":
            log.unlink()
            log.symlink_to(canary / "file")
        case "another pod":
            pod.rename(canary.with_name("moved"))
            container.mkdir(parents=True)
            write(log)
        case "written":
            log.write_bytes(b"a line\n")
        case "compressed":
            log.with_name(f"{log.name}.tmp").touch()
        case "gone":
            log.unlink()
        case "pod gone":
            shutil.rmtree(pod)
        case _:
            linked = container if "container" in change else pod
            shutil.copytree(linked, canary / "theirs")
            linked.rename(canary / "moved")
            linked.symlink_to(canary / "theirs")
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
