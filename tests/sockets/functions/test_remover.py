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
from reclaim.functions.rotated_logs import RotatedLogs, delete_rotated_logs_function, examine
from reclaim.pod_logs.names import LogPaths
from reclaim.types import Plan, ReclaimError, ReclaimResult, RemovalFailed, Result, Verdict
from signals.types import FilesystemRole
from tests.inline import run_stages
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock
from tests.sockets.pod_logs.trees import Canary

FUNCTION = "DeleteRotatedLogs"
OLD = 1_700_000_000.0  # when every file was written; the stepped clock is years later
OLDEST, OLDER, NEWEST = (f"0.log.2023111{day}-120000" for day in (1, 2, 3))


class Logs:
    """The logs of some containers, and the function on them; the runtime is never asked."""

    def __init__(self, directory: Path):
        self.root = directory / "pods"
        self.root.mkdir()
        self.canary = Canary(directory / "canary")
        self.clock = SteppedClock()

    def container(self, pod: str, *names: str, container: str = "app") -> Path:
        """The log directory of a container with these files, of 8 KiB each and old."""
        directory = self.root / f"shop_{pod}_uid-{pod}" / container
        directory.mkdir(parents=True)
        for name in names:
            self.write(directory / name)
        return directory

    def write(self, path: Path) -> None:
        """An old file of 8 KiB."""
        path.write_bytes(os.urandom(8192))
        os.utime(path, (OLD, OLD))

    def context(self, facts: Callable[[], PassFacts]) -> ReclaimContext:
        """A node whose runtime does not answer."""
        paths = LogPaths(str(self.root), str(self.root.parent / "containers"))
        return context_of(MemoryRuntime(self.clock), self.clock, log_paths=paths, facts=facts)

    def call(self, keep: int = 1, *, dry_run: bool = False) -> ReclaimResult:
        """What a call of the function does."""
        function = delete_rotated_logs_function(FUNCTION, keep, FilesystemRole.NODEFS)
        return run_stages(self.context, self.clock, function.stages, dry_run=dry_run)

    def plan(self) -> tuple[RotatedLogs, Plan]:
        """The stage, and its plan of now."""
        stage = RotatedLogs(str(self.root), 1, self.clock)
        plan = stage.plan()
        assert plan is not None
        return stage, plan

    def first(self) -> tuple[Verdict, RotatedLogs]:
        """The first that would go."""
        stage, plan = self.plan()
        return plan.remove[0], stage


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """An empty log root."""
    return Logs(tmp_path)


def removed(result: ReclaimResult) -> list[str]:
    """Names of what went, in order."""
    return [outcome.verdict.name for outcome in result.outcomes if outcome.result is Result.REMOVED]


def test_the_oldest_go_first_and_the_newest_and_the_current_ones_stay(logs: Logs) -> None:
    """Of two containers; the sizes are those that are allocated."""
    web = logs.container("web", "0.log", NEWEST, f"{OLDER}.gz")
    db = logs.container("db", "0.log", OLDEST, NEWEST)
    result = logs.call()
    assert removed(result) == [f"shop/db/app/{OLDEST}", f"shop/web/app/{OLDER}.gz"]
    assert sorted(os.listdir(web)) == sorted(os.listdir(db)) == ["0.log", NEWEST]
    assert [outcome.verdict.size_bytes for outcome in result.outcomes] == [8192, 8192]
    assert (
        sorted(str(outcome.verdict.reason) for outcome in result.kept)
        == ["current"] * 2 + ["newest_rotated"] * 2
    )
    assert result.error == ""


def test_a_dry_run_removes_nothing(logs: Logs) -> None:
    """The same objects are planned."""
    web = logs.container("web", "0.log", NEWEST, OLDER, OLDEST)
    result = logs.call(dry_run=True)
    assert [(o.verdict.name, o.result) for o in result.outcomes] == [
        (f"shop/web/app/{OLDEST}", Result.PLANNED),
        (f"shop/web/app/{OLDER}", Result.PLANNED),
    ]
    assert len(os.listdir(web)) == 4


def test_a_sparse_log_is_as_large_as_what_it_takes(logs: Logs) -> None:
    """Not as its size says."""
    web = logs.container("web", "0.log", NEWEST, OLDEST)
    os.truncate(web / OLDEST, 1 << 30)
    os.utime(web / OLDEST, (OLD, OLD))
    (outcome,) = logs.call().outcomes
    assert outcome.verdict.size_bytes == 8192


def test_symlinks_are_neither_followed_nor_removed(logs: Logs) -> None:
    """In the place of a pod's directory, of a container's, and of a log."""
    rotated = logs.canary.path / "app"
    rotated.mkdir()
    for name in (NEWEST, OLDEST):
        logs.write(rotated / name)
    (logs.root / "shop_linked_uid-linked").symlink_to(logs.canary.path)
    pod = logs.container("web", "0.log", NEWEST).parent
    (pod / "linked").symlink_to(rotated)
    (pod / "app" / OLDEST).symlink_to(rotated / OLDEST)
    result = logs.call(keep=0)
    assert removed(result) == [f"shop/web/app/{NEWEST}"]
    assert sorted(str(o.verdict.reason) for o in result.kept) == ["current", *["not_kubelets"] * 3]
    assert sorted(os.listdir(rotated)) == [OLDEST, NEWEST]
    assert (pod / "app" / OLDEST).is_symlink()


def test_what_is_not_the_kubelets_is_not_entered(logs: Logs) -> None:
    """Directories of other names, and a file in the place of a container's directory."""
    for name in ("lost+found", "web", "a_b_c_d"):
        (logs.root / name / "app").mkdir(parents=True)
        logs.write(logs.root / name / "app" / OLDEST)
    pod = logs.container("web", "0.log").parent
    logs.write(pod / OLDEST)
    result = logs.call(keep=0)
    assert result.outcomes == ()
    assert sorted(o.verdict.id for o in result.kept if o.verdict.reason == "not_kubelets") == [
        "a_b_c_d", "lost+found", f"shop_web_uid-web/{OLDEST}", "web",
    ]  # fmt: skip


def test_a_log_with_a_second_name_stays(logs: Logs) -> None:
    """Unlinking it would free nothing."""
    web = logs.container("web", "0.log", NEWEST, OLDER)
    (web / OLDEST).hardlink_to(web / OLDER)
    assert logs.call().outcomes == ()


def test_without_a_log_root_there_is_nothing_to_plan(logs: Logs) -> None:
    """It is no error under pressure; one that cannot be read is."""
    logs.root.rmdir()
    result = logs.call()
    assert (result.outcomes, result.kept, result.error) == ((), (), "")
    logs.root.write_text("a file")
    assert logs.call().error == f"{logs.root} cannot be read: Not a directory"


def test_what_is_wrong_on_this_machine_is_said_at_the_start(logs: Logs, tmp_path: Path) -> None:
    """A root that is not there, and one that is a symlink."""
    examine(str(logs.root))
    with pytest.raises(ReclaimError) as refused:
        examine(str(tmp_path / "absent"))
    sentence = (
        f"the rotated logs below {tmp_path}/absent cannot be removed: No such file or directory"
    )
    assert str(refused.value) == sentence
    (tmp_path / "linked").symlink_to(logs.root)
    with pytest.raises(ReclaimError, match="it is a symlink, which is not followed"):
        examine(str(tmp_path / "linked"))


# ---- what changes between plan and removal


def replaced(path: Path, _: Path) -> None:
    """Another file has its name."""
    path.rename(path.with_name("moved"))
    path.write_bytes(os.urandom(8192))
    os.utime(path, (OLD, OLD))


def a_symlink_now(path: Path, canary: Path) -> None:
    """A symlink to something else has its name."""
    path.unlink()
    path.symlink_to(canary / "file")


def written(path: Path, _: Path) -> None:
    """The container still writes to it."""
    with path.open("ab") as file:
        file.write(b"a line\n")


def being_compressed(path: Path, _: Path) -> None:
    """The kubelet has begun to compress it."""
    path.with_name(f"{path.name}.tmp").write_bytes(b"")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced, "replaced"),
        (a_symlink_now, "replaced"),
        (written, "being_rotated"),
        (being_compressed, "being_rotated"),
    ],
)
def test_what_changed_since_the_plan_stays(
    logs: Logs, change: Callable[[Path, Path], None], reason: str
) -> None:
    """The check refuses it with the reason, and so does the removal."""
    web = logs.container("web", "0.log", NEWEST, OLDEST)
    verdict, stage = logs.first()
    change(web / OLDEST, logs.canary.path)
    assert stage.check(verdict) == Refused(reason)
    with pytest.raises(RemovalFailed, match=f"changed at the last moment: {reason}"):
        stage.remove(verdict)
    assert os.path.lexists(web / OLDEST)
    assert logs.canary.unharmed


def test_a_compression_that_was_left_behind_and_goes_on_keeps_its_log(logs: Logs) -> None:
    """The kubelet began anew in the same temporary file since the plan."""
    web = logs.container("web", "0.log", NEWEST, OLDEST, f"{OLDEST}.tmp")
    stage, plan = logs.plan()
    assert [verdict.reason for verdict in plan.remove] == ["rotated", "left_behind"]
    assert isinstance(stage.check(plan.remove[0]), Ready)
    (web / f"{OLDEST}.tmp").write_bytes(b"anew")
    assert [stage.check(verdict) for verdict in plan.remove] == [Refused("being_rotated")] * 2


@pytest.mark.parametrize("level", ["pod", "container"])
def test_a_directory_that_became_a_symlink_is_not_followed(logs: Logs, level: str) -> None:
    """To a directory with files of the same names, whose logs all stay."""
    web = logs.container("web", "0.log", NEWEST, OLDEST)
    verdict, stage = logs.first()
    theirs = logs.canary.path / "theirs"
    shutil.copytree(logs.root / "shop_web_uid-web", theirs)
    moved = web if level == "container" else web.parent
    moved.rename(logs.root.parent / "moved")
    moved.symlink_to(theirs / "app" if level == "container" else theirs)
    assert stage.check(verdict) == GONE
    assert stage.remove(verdict) is False
    assert not stage.present(verdict)
    assert sorted(os.listdir(theirs / "app")) == ["0.log", OLDEST, NEWEST]


def test_another_directory_of_its_name_is_not_the_planned_one(logs: Logs) -> None:
    """With a file of the same name, which stays."""
    web = logs.container("web", "0.log", NEWEST, OLDEST)
    verdict, stage = logs.first()
    web.parent.rename(logs.root.parent / "moved")
    again = logs.container("web", "0.log", NEWEST, OLDEST)
    assert stage.check(verdict) == Refused("replaced")
    with pytest.raises(RemovalFailed):
        stage.remove(verdict)
    assert not stage.present(verdict)
    assert sorted(os.listdir(again)) == ["0.log", OLDEST, NEWEST]


def test_what_the_kubelet_removed_meanwhile_is_gone(logs: Logs) -> None:
    """The log alone, or the whole pod."""
    web = logs.container("web", "0.log", NEWEST, OLDER, OLDEST)
    stage, plan = logs.plan()
    first, second = plan.remove
    (web / OLDEST).unlink()
    assert stage.check(first) == GONE
    shutil.rmtree(web.parent)
    assert stage.check(second) == GONE
    assert stage.remove(second) is False
    assert not stage.present(second)


def test_names_that_are_not_text_are_kept(logs: Logs) -> None:
    """Bytes that are not UTF-8, below a pod's directory and below a container's."""
    web = os.fsencode(logs.container("web", "0.log", NEWEST))
    with open(os.path.join(web, b"0.log.\xff"), "wb"):
        pass
    os.mkdir(os.path.join(os.path.dirname(web), b"\xfe"))
    result = logs.call()
    assert result.outcomes == ()
    assert "shop_web_uid-web/app/0.log.\\xff" in {outcome.verdict.id for outcome in result.kept}
