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
from reclaim.types import Plan, ReclaimError, ReclaimResult, RemovalFailed, Result
from signals.types import FilesystemRole
from tests.inline import run_stages
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock
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

    def call(self, keep: int = 1, *, dry_run: bool = False) -> ReclaimResult:
        """What a call of the function does."""
        function = delete_rotated_logs_function("DeleteRotatedLogs", keep, FilesystemRole.NODEFS)
        return run_stages(self.context, self.clock, function.stages, dry_run=dry_run)

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


def test_the_oldest_go_first_and_the_newest_and_the_current_ones_stay(logs: Logs) -> None:
    """Of two containers, with what is allocated as their sizes; a dry run plans the same."""
    web = logs.container("web", "0.log", NEWEST, f"{OLDER}.gz")
    db = logs.container("db", "0.log", OLDEST, NEWEST)
    os.truncate(db / OLDEST, 1 << 30)
    os.utime(db / OLDEST, OLD)
    for dry_run, became in ((True, Result.PLANNED), (False, Result.REMOVED)):
        assert len(os.listdir(web)) == len(os.listdir(db)) == 3
        result = logs.call(dry_run=dry_run)
        assert [(o.verdict.name, o.verdict.size_bytes, o.result) for o in result.outcomes] == [
            (f"shop/db/app/{OLDEST}", 8192, became),
            (f"shop/web/app/{OLDER}.gz", 8192, became),
        ]
        assert [reason for reason, _ in kept(result)] == ["current"] * 2 + ["newest_rotated"] * 2
        assert result.error == ""
    assert sorted(os.listdir(web)) == sorted(os.listdir(db)) == ["0.log", NEWEST]


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
    result = logs.call(keep=0)
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
    app = logs.container("web", OLDER)
    (app / OLDEST).hardlink_to(app / OLDER)
    write(app.parent / OLDEST)
    os.mkdir(os.fsencode(app.parent) + b"/\xfe")
    write(app / os.fsdecode(b"0.log.\xff"))
    result = logs.call(keep=0)
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


def replaced(log: Path, _: Path) -> None:
    """Another file has its name."""
    log.rename(log.with_name("moved"))
    write(log)


def a_symlink_now(log: Path, canary: Path) -> None:
    """A symlink to something else has its name."""
    log.unlink()
    log.symlink_to(canary / "file")


def of_another_pod(log: Path, canary: Path) -> None:
    """Another directory has its pod's name, with a log of its own."""
    log.parent.parent.rename(canary.with_name("moved"))
    log.parent.mkdir(parents=True)
    write(log)


def written(log: Path, _: Path) -> None:
    """The container still writes to it."""
    with log.open("ab") as file:
        file.write(b"a line\n")


def being_compressed(log: Path, _: Path) -> None:
    """The kubelet has begun to compress it."""
    log.with_name(f"{log.name}.tmp").touch()


Change = Callable[[Path, Path], None]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced, "replaced"),
        (a_symlink_now, "replaced"),
        (of_another_pod, "replaced"),
        (written, "being_rotated"),
        (being_compressed, "being_rotated"),
    ],
)
def test_what_changed_since_the_plan_stays(logs: Logs, change: Change, reason: str) -> None:
    """The check refuses it with the reason, and so does the removal."""
    log = logs.container("web", "0.log", NEWEST, OLDEST) / OLDEST
    stage, plan = logs.plan()
    change(log, logs.canary.path)
    assert stage.check(plan.remove[0]) == Refused(reason)
    with pytest.raises(RemovalFailed, match=f"changed at the last moment: {reason}"):
        stage.remove(plan.remove[0])
    assert os.path.lexists(log)
    assert logs.canary.unharmed


def test_a_compression_that_was_left_behind_and_goes_on_keeps_its_log(logs: Logs) -> None:
    """The kubelet began anew in the same temporary file since the plan."""
    web = logs.container("web", "0.log", NEWEST, OLDEST, f"{OLDEST}.tmp")
    stage, plan = logs.plan()
    assert [verdict.reason for verdict in plan.remove] == ["rotated", "left_behind"]
    assert isinstance(stage.check(plan.remove[0]), Ready)
    (web / f"{OLDEST}.tmp").write_bytes(b"anew")
    assert [stage.check(verdict) for verdict in plan.remove] == [Refused("being_rotated")] * 2


def moved_behind_a_symlink(directory: Path, canary: Path) -> None:
    """To a directory with files of the same names."""
    shutil.copytree(directory, canary / "theirs")
    directory.rename(canary / "moved")
    directory.symlink_to(canary / "theirs")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda log, _: log.unlink(), id="the log is gone"),
        pytest.param(lambda log, _: shutil.rmtree(log.parent.parent), id="the pod is gone"),
        pytest.param(
            lambda log, canary: moved_behind_a_symlink(log.parent, canary),
            id="its container's directory is a symlink",
        ),
        pytest.param(
            lambda log, canary: moved_behind_a_symlink(log.parent.parent, canary),
            id="its pod's directory is a symlink",
        ),
    ],
)
def test_a_directory_that_became_a_symlink_is_not_followed(logs: Logs, change: Change) -> None:
    """The log counts as gone, as one that is; of the files behind the symlink all stay."""
    log = logs.container("web", "0.log", NEWEST, OLDEST) / OLDEST
    stage, plan = logs.plan()
    (verdict,) = plan.remove
    change(log, logs.canary.path)
    before = set(logs.canary.path.rglob("*"))
    assert stage.check(verdict) == GONE
    assert stage.remove(verdict) is False
    assert not stage.present(verdict)
    assert set(logs.canary.path.rglob("*")) == before
