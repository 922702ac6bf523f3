"""What is unlinked is the ballast that was planned, and nothing that took its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eviction.engine.ballast import create_ballast
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
from signals.types import FilesystemRole
from tests.inline import run_stages
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import SteppedClock
from tests.sockets.functions.test_create import FOREIGN, SIZE, sparse

RELEASE = "ReleaseBallast"


@pytest.fixture
def settings(tmp_path: Path) -> BallastSettings:
    """A ballast of 4 MiB that was made."""
    made = BallastSettings(str(tmp_path / "ballast"), SIZE)
    create_ballast(made)
    return made


def called(settings: BallastSettings, *, dry_run: bool = False) -> ReclaimResult:
    """What a call of the function does."""
    clock = SteppedClock()
    function = release_ballast_function(RELEASE, settings, FilesystemRole.NODEFS)
    return run_stages(
        lambda facts: context_of(MemoryRuntime(clock), clock, facts=facts),
        clock,
        function.stages,
        dry_run=dry_run,
    )


def planned(settings: BallastSettings) -> tuple[BallastRelease, Verdict]:
    """The stage, and what it has planned: the file that is there."""
    stage = BallastRelease(settings, SteppedClock())
    plan = stage.plan()
    assert plan is not None
    (verdict,) = plan.remove
    return stage, verdict


def test_it_is_unlinked_with_what_is_allocated_as_its_size(settings: BallastSettings) -> None:
    """One object, removed."""
    allocated = os.stat(settings.path).st_blocks * 512
    result = called(settings)
    assert [(o.verdict.id, o.verdict.size_bytes, o.result) for o in result.outcomes] == [
        (settings.path, allocated, Result.REMOVED)
    ]
    assert (result.error, os.path.lexists(settings.path)) == ("", False)


def test_a_dry_run_leaves_it(settings: BallastSettings) -> None:
    """It is planned."""
    result = called(settings, dry_run=True)
    assert [outcome.result for outcome in result.outcomes] == [Result.PLANNED]
    assert result.nominal_bytes >= SIZE
    assert os.path.lexists(settings.path)


def test_where_there_is_none_nothing_is_planned(settings: BallastSettings) -> None:
    """It was released before: no object and no error."""
    os.unlink(settings.path)
    result = called(settings)
    assert (result.outcomes, result.kept, result.error) == ((), (), "")


@pytest.mark.parametrize(
    ("plant", "words"),
    [each for each in FOREIGN if each[0] is not sparse],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_not_the_ballast_stays_and_the_function_says_so(
    settings: BallastSettings, plant: Callable[[Path], None], words: str
) -> None:
    """In one sentence, which the record of the pass has; the command and the check
    at the start say the same.
    """
    os.unlink(settings.path)
    plant(Path(settings.path))
    sentence = f"{settings.path} is not the ballast: {words}"
    result = called(settings)
    assert (result.outcomes, result.error) == ((), sentence)
    for look in (examine, remove_ballast):
        with pytest.raises(BallastRefused) as refused:
            look(settings)
        assert str(refused.value) == sentence
    assert os.path.lexists(settings.path)


def same_size(path: Path) -> None:
    """Another file that would do as ballast."""
    path.rename(path.with_name("moved"))
    path.write_bytes(os.urandom(SIZE))
    path.chmod(0o600)


def a_symlink_to_it(path: Path) -> None:
    """The ballast was moved, and a symlink leads to it."""
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def linked(path: Path) -> None:
    """It got a second name, so that unlinking one frees nothing."""
    path.with_name("moved").hardlink_to(path)


@pytest.mark.parametrize("change", [same_size, a_symlink_to_it, linked])
def test_what_changed_between_plan_and_removal_stays(
    settings: BallastSettings, change: Callable[[Path], None]
) -> None:
    """The check refuses it, and where it changes after the check, the removal does."""
    stage, verdict = planned(settings)
    change(Path(settings.path))
    assert stage.check(verdict) == Refused("replaced")
    with pytest.raises(RemovalFailed):
        stage.remove(verdict)
    assert sorted(os.listdir(os.path.dirname(settings.path))) == ["ballast", "moved"]


def test_what_others_may_write_meanwhile_is_not_touched(settings: BallastSettings) -> None:
    """Its directory was opened to all after the plan."""
    stage, verdict = planned(settings)
    Path(settings.path).parent.chmod(0o777)
    assert stage.check(verdict) == Refused("replaced")
    with pytest.raises(RemovalFailed, match="every user may write its directory"):
        stage.remove(verdict)
    assert os.path.lexists(settings.path)


def test_what_somebody_else_removed_is_gone(settings: BallastSettings) -> None:
    """Before the check, and between check and call."""
    stage, verdict = planned(settings)
    assert isinstance(stage.check(verdict), Ready)
    assert stage.present(verdict)
    os.unlink(settings.path)
    assert stage.check(verdict) == GONE
    assert stage.remove(verdict) is False
    assert not stage.present(verdict)


def test_another_file_of_its_name_is_not_the_planned_one(settings: BallastSettings) -> None:
    """Made anew after the removal, it does not make the removal a failed one."""
    stage, verdict = planned(settings)
    held = os.open(settings.path, os.O_RDONLY)  # so that the new file cannot get its inode
    try:
        assert stage.remove(verdict) is True
        create_ballast(settings)
        assert not stage.present(verdict)
    finally:
        os.close(held)


def test_what_is_wrong_on_this_machine_is_said_at_the_start(
    settings: BallastSettings, tmp_path: Path
) -> None:
    """Nothing for a ballast that is there, or that was released; a directory
    that is not there is named.
    """
    examine(settings)
    os.unlink(settings.path)
    examine(settings)
    absent = BallastSettings(str(tmp_path / "absent" / "ballast"), SIZE)
    with pytest.raises(BallastRefused) as refused:
        examine(absent)
    assert str(refused.value) == f"{absent.path} cannot be looked for: No such file or directory"
