"""Before each removal the object is checked once more; afterwards it is asked whether it is gone."""

from __future__ import annotations

import pytest

from reclaim.execution.removals import Refused
from reclaim.types import Reason, Result
from tests.pure.store import Site, reasons, results
from tests.pure.values import MIB


def test_an_error_whose_object_is_gone_counts_as_removed() -> None:
    """A call that timed out may have removed it nevertheless; the error is kept for people."""
    site = Site(1, wanted_mib=10)
    site.store.errors["a"] = "deadline exceeded"
    (outcome,) = site.execute().outcomes
    assert (outcome.result, outcome.error, outcome.freed_bytes) == (Result.REMOVED, "deadline exceeded", 10 * MIB)


@pytest.mark.parametrize(("error", "said"), [("busy", "busy"), ("", "the runtime reported success but still has it")])
def test_an_object_that_is_still_there_counts_as_failed(error: str, said: str) -> None:
    """Whatever the call answered; the next object is tried."""
    site = Site(2, wanted_mib=10)
    site.store.stuck.add("a")
    if error:
        site.store.errors["a"] = error
    executed = site.execute()
    assert results(executed) == {"a": Result.FAILED, "b": Result.REMOVED}
    assert executed.outcomes[0].error == said
    assert executed.relieved


@pytest.mark.parametrize("before_the_call", [True, False])
def test_a_runtime_that_does_not_answer_ends_the_plan(before_the_call: bool) -> None:
    """The rest is kept: nothing is removed without a check, and a check needs answers."""
    site = Site(3, wanted_mib=100)
    (site.store.silent_checks if before_the_call else site.store.silent_presence).add("b")
    executed = site.execute()
    assert results(executed) == {"a": Result.REMOVED, "b": Result.UNANSWERED}
    assert reasons(executed) == {"c": Reason.INCOMPLETE_LISTING}
    assert executed.error.startswith("the runtime ")
    assert site.store.sent == (["a"] if before_the_call else ["a", "b"])


@pytest.mark.parametrize(
    ("refused", "result", "reason"),
    [
        (Refused(Reason.RUNNING), None, Reason.RUNNING),
        (Refused(Reason.POD_ALIVE), None, Reason.POD_ALIVE),
        (Refused(Reason.IN_USE, Result.IN_USE), Result.IN_USE, Reason.IN_USE),
    ],
)
def test_what_the_last_check_refuses_is_kept_with_its_reason(
    refused: Refused, result: Result | None, reason: Reason
) -> None:
    """Nothing is sent for it, and the next object is tried."""
    site = Site(2, wanted_mib=10)
    site.store.refused["a"] = refused
    executed = site.execute()
    assert site.store.sent == ["b"]
    assert reasons(executed) == {"a": reason}
    assert [outcome.result for outcome in executed.kept] == [result]


def test_what_is_gone_already_frees_nothing_of_ours() -> None:
    """An object that another program removed counts 0 bytes."""
    site = Site(2, wanted_mib=10)
    site.store.refused["a"] = Refused(result=Result.ALREADY_GONE)
    executed = site.execute()
    assert results(executed) == {"a": Result.ALREADY_GONE, "b": Result.REMOVED}
    assert executed.outcomes[0].freed_bytes == 0


def test_a_check_that_is_too_old_is_repeated() -> None:
    """Twenty checks of which none is younger than 1 s when the call would be sent: nothing is sent, and the others get
    their turn."""
    site = Site(2, wanted_mib=10)
    site.store.check_seconds = 1.5
    executed = site.execute()
    assert (site.store.checked, site.store.sent) == (["a"] * 20 + ["b"] * 20, [])
    assert results(executed) == {"a": Result.FAILED, "b": Result.FAILED}
    assert executed.error == ""
    assert (
        executed.outcomes[0].error
        == "none of its 20 checks was fresher than 1 s, and of after the last container began, when the removal was to "
        "be sent"
    )


def test_a_check_grows_old_while_the_filesystems_are_looked_at() -> None:
    """One that hangs takes 2 s the first time: the object is checked once more."""
    site, looks = Site(1, wanted_mib=10), [1.5]

    def moved() -> bool:
        site.clock.step(looks.pop() if looks else 0.0)
        return False

    site.executor.moved = moved
    assert results(site.execute()) == {"a": Result.REMOVED}
    assert site.store.checked == ["a", "a"]


def test_an_object_that_has_to_wait_is_checked_again_and_removed_then() -> None:
    """However often it has to wait: a wait is not a check that was too old."""
    site = Site(1, wanted_mib=10)
    site.store.waits["a"] = [1.0] * 40
    began = site.clock.monotonic()
    assert results(site.execute()) == {"a": Result.REMOVED}
    assert site.clock.monotonic() - began >= 40
    assert len(site.store.checked) == 41


def test_a_stop_ends_the_wait_and_the_object_is_kept() -> None:
    """SIGTERM does not wait for a pod that is being made."""
    site = Site(2, wanted_mib=20)
    site.store.waits["a"] = [1.0]
    site.store.on_check = lambda _: site.stopping.set()
    executed = site.execute()
    assert site.store.sent == []
    assert reasons(executed) == {"a": Reason.STOPPING, "b": Reason.STOPPING}
