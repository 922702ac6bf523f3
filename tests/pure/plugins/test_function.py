"""A plugin is planned, checked, removed and reported as any function is, whatever it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from reclaim.execution.executor import Executor
from reclaim.execution.removals import Removals
from reclaim.plugins import CHANGED, Found, PluginFailed, plugin_function
from reclaim.types import Reason, ReclaimResult, Result
from signals.types import FilesystemRole
from tests.pure.execution.test_parked import Heard, RunningClock
from tests.pure.plugins.shelf import Shelf, call, raised
from tests.pure.store import Disk
from tests.pure.values import MIB, SteppedClock, SteppedEvent

PATIENCE_SECONDS = 0.05


def called(plugin: Any, *, wanted_mib: int | None = None, **options: Any) -> ReclaimResult:
    """One call of the plugin's function. `wanted_mib`: the disk is relieved once so many crates have gone."""
    clock = SteppedClock()
    disk = Disk(clock, 0 if wanted_mib is None else wanted_mib * MIB)
    executor = Executor(Removals(clock, SteppedEvent(clock), 1), parallel=1, **options)
    function = plugin_function("DustShelf", plugin, FilesystemRole.NODEFS)
    if wanted_mib is None:
        return call(executor, clock, function)
    take = plugin.remove

    def remove(found: Found) -> None:
        take(found)
        disk.free(MIB)

    plugin.remove = remove
    return call(executor, clock, function, disk.measure)


def results(result: ReclaimResult) -> dict[str, Result | None]:
    """How each object ended that was begun."""
    return {outcome.verdict.id: outcome.result for outcome in result.outcomes}


def reasons(result: ReclaimResult) -> dict[str, str]:
    """Why each object was kept."""
    return {outcome.verdict.id: str(outcome.verdict.reason) for outcome in result.kept}


def test_its_objects_go_in_its_order_until_the_disk_is_relieved() -> None:
    """Two of three that may go: the third is not needed, and the fragile one stays."""
    shelf = Shelf(["c", "kept", "a", "b"])
    result = called(shelf, wanted_mib=2)
    assert shelf.removed == ["c", "a"]
    assert results(result) == {"c": Result.REMOVED, "a": Result.REMOVED}
    assert reasons(result) == {"kept": "fragile", "b": Reason.RELIEVED}
    assert (result.nominal_bytes, result.relieved, result.error) == (2 * MIB, True, "")
    assert [outcome.freed_bytes for outcome in result.outcomes] == [MIB, MIB]


def test_a_dry_run_plans_and_checks_and_never_removes() -> None:
    """Every crate that may go is planned."""
    shelf = Shelf(["a", "b", "kept"], checks={"b": lambda: "just_bought"})
    result = called(shelf, dry_run=True)
    assert results(result) == {"a": Result.PLANNED}
    assert reasons(result) == {"kept": "fragile", "b": "just_bought"}
    assert shelf.removed == []


def test_its_entry_of_the_table_says_what_it_removes_and_where() -> None:
    """Kinds are labels of metrics; a dry run credits what it promises to its filesystem."""
    entry = plugin_function("DustShelf", Shelf(()), FilesystemRole("buildcache"))
    assert (entry.name, entry.frees, entry.kinds, entry.cooldown_seconds) == (
        "DustShelf",
        "buildcache",
        ("crate", "box"),
        0.0,
    )


def test_a_plugin_without_kinds_makes_no_entry() -> None:
    """Not when the disk is full."""
    shelf = Shelf(())
    shelf.kinds = ()  # type: ignore[assignment]
    with pytest.raises(PluginFailed, match=r"its kinds are \(\);"):
        plugin_function("DustShelf", shelf, FilesystemRole.NODEFS)


# ---- plans that fail


class Planning(Shelf):
    """A shelf whose plan is what a test says."""

    def __init__(self, planned: Callable[[], Any]):
        super().__init__(["a"])
        self._planned = planned

    def plan(self) -> Iterable[Found]:
        """As the test says."""
        return self._planned()  # type: ignore[no-any-return]


def breaks_off() -> Iterator[Found]:
    """One object, and then an error."""
    yield Found("a", True, "dusty")
    raise PermissionError(13, "Permission denied", "/shelf")


def miscounts() -> Iterator[Found]:
    """One object, and then one of negative size."""
    yield Found("a", True, "dusty")
    yield Found("b", True, "dusty", size_bytes=-1)


@pytest.mark.parametrize(
    ("planned", "error"),
    [
        (raised(RuntimeError("no ladder")), "DustShelf cannot plan: RuntimeError: no ladder"),
        (raised(SystemExit(1)), "DustShelf cannot plan: SystemExit: 1"),
        (raised(MemoryError()), "DustShelf cannot plan: MemoryError: it says nothing more"),
        (breaks_off, "DustShelf cannot plan: PermissionError: [Errno 13] Permission denied: '/shelf'"),
        (lambda: None, "DustShelf cannot plan: TypeError: 'NoneType' object is not iterable"),
        (
            miscounts,
            "DustShelf cannot plan: ValueError: size_bytes of object 'b' is -1; allowed is None, or an int",
        ),
        (lambda: [Found("a", True, "dusty")] * 2, "DustShelf cannot plan: two objects of its plan have the id 'a'"),
        (
            lambda: ["a"],
            "DustShelf cannot plan: an object of its plan is 'a'; allowed is reclaim.plugins.Found",
        ),
    ],
)
def test_a_plan_that_fails_is_the_error_of_its_function_and_removes_nothing(
    planned: Callable[[], Any], error: str
) -> None:
    """One sentence; what it had named before stays."""
    shelf = Planning(planned)
    result = called(shelf)
    assert (result.outcomes, result.kept, shelf.removed) == ((), (), [])
    assert result.error.startswith(error)


class Hasty(Removals):
    """The removals of a node that leaves a reading behind after a twentieth of a second without progress, not after a
    minute."""

    def __init__(self, clock: SteppedClock):
        self.heard = Heard()
        super().__init__(clock, threading.Event(), 1, self.heard)
        self.hangs_seconds = 0.05

    def pass_(self) -> Executor:
        """The executor of one more pass."""
        return Executor(self, patience_seconds=PATIENCE_SECONDS, parallel=1)


def test_a_plan_that_hangs_is_left_behind_and_the_next_function_goes_on() -> None:
    """No later pass begins it again before it has ended."""
    let_go, times = threading.Event(), 0

    def hang() -> list[Found]:
        nonlocal times
        times += 1
        assert let_go.wait(60.0)
        return []

    clock = RunningClock()
    node, shelf = Hasty(clock), Shelf(["a"])
    for why in ("it did not answer within 0.05 s", "an earlier reading has not been answered yet"):
        result = call(node.pass_(), clock, plugin_function("Hangs", Planning(hang), FilesystemRole.NODEFS))
        assert result.error == f"Hangs, stage 1 cannot plan: {why}"
    assert times == 1
    assert results(call(node.pass_(), clock, plugin_function("DustShelf", shelf, FilesystemRole.NODEFS))) == {
        "a": Result.REMOVED
    }
    let_go.set()
    node.workers.close()


# ---- single objects that fail


def test_a_plugins_removal_that_hangs_is_parked_and_the_others_go_on() -> None:
    """It is waited for all the same; until it has ended it is left out."""
    let_go = threading.Event()
    clock = RunningClock()
    node = Hasty(clock)
    shelf = Shelf(["a", "b"], removals={"a": lambda: let_go.wait(60.0)}, presences={"a": lambda: not let_go.is_set()})
    function = plugin_function("DustShelf", shelf, FilesystemRole.NODEFS)
    assert results(call(node.pass_(), clock, function)) == {"a": Result.PARKED, "b": Result.REMOVED}
    assert reasons(call(node.pass_(), clock, function)) == {"a": Reason.BEING_REMOVED}
    let_go.set()
    assert node.wait(60.0)
    assert [outcome.result for outcome in node.heard.has_ended] == [Result.REMOVED]
    node.workers.close()


def test_what_its_check_refuses_is_kept_with_its_word() -> None:
    """Or has changed, or is gone already."""
    shelf = Shelf(
        ["a", "b", "c", "d"],
        checks={"a": lambda: "just_bought", "b": lambda: False, "c": lambda: False},
        presences={"c": lambda: False},
    )
    result = called(shelf)
    assert reasons(result) == {"a": "just_bought", "b": CHANGED}
    assert results(result) == {"c": Result.ALREADY_GONE, "d": Result.REMOVED}
    assert shelf.removed == ["d"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (raised(OSError(5, "Input/output error")), "its check failed: OSError: [Errno 5] Input/output error"),
        (raised(SystemExit()), "its check failed: SystemExit: it says nothing more"),
        (lambda: None, "its check answered None; allowed are True, False and one of at most 32 "),
        (lambda: 1, "its check answered 1; allowed are True, False and one of at most 32 "),
        (lambda: "Not now", "its check answered 'Not now'; allowed are True, False and one of at most 32 "),
    ],
)
def test_a_check_that_fails_fails_its_object_alone(answer: Callable[[], Any], error: str) -> None:
    """Nothing is sent for it, and the next one goes."""
    shelf = Shelf(["a", "b"], checks={"a": answer})
    result = called(shelf)
    assert results(result) == {"a": Result.FAILED, "b": Result.REMOVED}
    assert result.outcomes[0].error.startswith(error)
    assert shelf.removed == ["b"]


def test_words_of_checks_without_end_are_refused() -> None:
    """With that of its plan there are 32; the next one is none, and those that were said before still are."""
    names = [f"n{number}" for number in range(34)]
    words = {name: f"because_of_{name}" for name in names} | {"n33": "because_of_n0"}
    result = called(Shelf(names, checks={name: partial(str, word) for name, word in words.items()}))
    assert results(result) == {"n31": Result.FAILED, "n32": Result.FAILED}
    assert reasons(result) == {name: word for name, word in words.items() if name not in ("n31", "n32")}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (raised(OSError(30, "Read-only file system")), "its removal failed: OSError: [Errno 30] Read-only file system"),
        (raised(SystemExit(2)), "its removal failed: SystemExit: 2"),
        (lambda: 0, "its removal answered 0; allowed are None, True and False"),
        (lambda: True, "the runtime reported success but still has it"),
    ],
)
def test_a_removal_that_fails_fails_its_object_alone(answer: Callable[[], Any], error: str) -> None:
    """The crate is still there."""
    result = called(Shelf(["a", "b"], removals={"a": answer}))
    assert results(result) == {"a": Result.FAILED, "b": Result.REMOVED}
    assert result.outcomes[0].error == error


def test_a_removal_that_fails_after_it_has_removed_counts_as_one() -> None:
    """What is gone is gone."""
    shelf = Shelf(["a"], removals={"a": raised(TimeoutError("late"))}, presences={"a": lambda: False})
    (outcome,) = called(shelf).outcomes
    assert (outcome.result, outcome.error) == (Result.REMOVED, "its removal failed: TimeoutError: late")


def test_what_had_gone_before_its_removal_is_not_its() -> None:
    """Somebody else was faster."""
    shelf = Shelf(["a"], removals={"a": lambda: False}, presences={"a": lambda: False})
    assert results(called(shelf)) == {"a": Result.ALREADY_GONE}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (raised(OSError("shut")), "whether a is gone cannot be told: OSError: shut"),
        (lambda: "no", "whether a is gone cannot be told: its present() answered 'no'; allowed are True and False"),
    ],
)
def test_where_it_cannot_be_told_whether_an_object_is_gone_no_other_goes(answer: Callable[[], Any], error: str) -> None:
    """As for a runtime that does not answer."""
    shelf = Shelf(["a", "b"], presences={"a": answer})
    result = called(shelf)
    assert results(result) == {"a": Result.UNANSWERED}
    assert reasons(result) == {"b": Reason.INCOMPLETE_LISTING}
    assert (result.error, shelf.removed) == (error, ["a"])


def test_a_check_that_takes_longer_than_it_holds_is_none() -> None:
    """It is asked again a few times, and nothing is removed by it: a failure of that object alone."""
    clock = SteppedClock()
    executor = Executor(Removals(clock, SteppedEvent(clock), 1), parallel=1)

    def slow() -> bool:
        clock.step(1.1)
        return True

    shelf = Shelf(["a"], checks={"a": slow})
    result = call(executor, clock, plugin_function("DustShelf", shelf, FilesystemRole.NODEFS))
    assert results(result) == {"a": Result.FAILED}
    assert "fresher than 1 s" in result.outcomes[0].error
    assert shelf.removed == []
