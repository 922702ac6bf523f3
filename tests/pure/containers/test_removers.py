"""Right before a removal everything is checked once more, because the runtime protects nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from reclaim.function import GONE, Ready, Refused
from reclaim.functions.unused_containers import DeadContainers, EmptySandboxes
from reclaim.pod_logs.names import LogPaths
from reclaim.types import (
    Action,
    ContainerState,
    Kind,
    Plan,
    PodSandboxState,
    Reason,
    RemovalFailed,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from tests.pure.contexts import carried_out, context_of
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime, SlowPods
from tests.pure.values import SteppedClock, container, sandbox


def verdict(kind: Kind, object_id: str, reason: Reason, superseded_by: str = "") -> Verdict:
    """What the plan said of an object, all of one pod."""
    return Verdict(
        kind,
        object_id,
        object_id,
        Action.REMOVE,
        reason,
        pod_uid="uid-1",
        superseded_by=superseded_by,
    )


OLDER = verdict(Kind.CONTAINER, "old", Reason.OLDER_COPY, superseded_by="new")
ORPHAN = verdict(Kind.CONTAINER, "old", Reason.POD_GONE)
ORPHAN_SANDBOX = verdict(Kind.SANDBOX, "s", Reason.POD_GONE)


class Node:
    """A runtime in memory with two dead copies of a container and a dead sandbox."""

    def __init__(self, *living_pods: str):
        self.clock = SteppedClock(at=50.0)
        self.runtime = MemoryRuntime(self.clock)
        self.pods = MemoryPods(*living_pods)
        self.log_paths = LogPaths("/nowhere/pods", "/nowhere/containers")
        self.runtime.hold(
            container("old", age_seconds=200.0), container("new", age_seconds=100.0), sandbox("s")
        )

    def containers(self) -> DeadContainers:
        """The stage over containers."""
        return DeadContainers(
            context_of(self.runtime, self.clock, self.pods, log_paths=self.log_paths)
        )

    def log_of_old(self, directory: Path) -> Path:
        """Gives the container `old` a log."""
        log = directory / "ns_pod_uid-1" / "app" / "0.log"
        log.parent.mkdir(parents=True)
        log.write_text("a line\n")
        self.log_paths = LogPaths(str(directory), "/nowhere/containers")
        self.runtime.log_paths["old"] = str(log)
        return log

    def sandboxes(self) -> EmptySandboxes:
        """The stage over sandboxes."""
        return EmptySandboxes(context_of(self.runtime, self.clock, self.pods))


def test_a_dead_container_may_go_as_of_its_status() -> None:
    """The status was read just now, at 50 s."""
    assert Node().containers().check(ORPHAN) == Ready(50.0)
    assert Node("uid-1").containers().check(OLDER) == Ready(50.0)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ContainerState.RUNNING, Reason.RUNNING),
        (ContainerState.CREATED, Reason.CREATED),
        (ContainerState.UNKNOWN, Reason.UNKNOWN_STATE),
    ],
)
def test_a_container_that_is_not_exited_by_now_is_kept(
    state: ContainerState, reason: Reason
) -> None:
    """Whatever the list had said."""
    node = Node()
    node.runtime.set_state("old", state)
    assert node.containers().check(ORPHAN) == Refused(reason)


def test_an_answer_without_a_status_says_nothing() -> None:
    """Neither that the container is dead, nor that it is gone."""
    node = Node()
    node.runtime.says_nothing = True
    assert node.containers().check(ORPHAN) == Refused(Reason.UNKNOWN_STATE)
    assert node.containers().present(ORPHAN)


def test_a_pod_that_has_appeared_again_keeps_its_parts() -> None:
    """Containers and sandboxes; that is asked last, when the runtime has
    answered everything else.
    """
    node = Node("uid-1")
    assert node.containers().check(ORPHAN) == Refused(Reason.POD_ALIVE)
    node.runtime.containers.clear()
    assert node.sandboxes().check(ORPHAN_SANDBOX) == Refused(Reason.POD_ALIVE)


def test_an_older_copy_is_kept_when_the_newer_one_is_gone() -> None:
    """Else the last memory that the container has run would go."""
    node = Node("uid-1")
    del node.runtime.containers["new"]
    assert node.containers().check(OLDER) == Refused(Reason.NEWEST_OF_LIVE_POD)


def test_the_beginning_of_an_id_is_not_the_id() -> None:
    """A runtime that answers for `older` when asked for `old` does not have `old`."""
    node = Node()
    node.runtime.containers.clear()
    node.runtime.hold(container("older"))
    assert node.containers().check(ORPHAN) == GONE
    assert not node.containers().present(ORPHAN)


def test_a_removal_is_one_call_with_the_whole_id() -> None:
    """Of a sandbox two: it is stopped first, which frees its network."""
    node = Node()
    containers = node.containers()
    containers.check(ORPHAN)
    node.runtime.calls.clear()
    containers.remove(ORPHAN)
    node.sandboxes().remove(ORPHAN_SANDBOX)
    assert node.runtime.calls == [
        "remove_container old",
        "stop_pod_sandbox s",
        "remove_pod_sandbox s",
    ]


def test_what_was_removed_is_absent() -> None:
    """Present before, absent after, for each kind."""
    node = Node()
    for remover, one in ((node.containers(), ORPHAN), (node.sandboxes(), ORPHAN_SANDBOX)):
        assert remover.present(one)
        remover.check(one)
        remover.remove(one)
        assert not remover.present(one)


def test_the_log_is_removed_before_the_container(tmp_path: Path) -> None:
    """Kubelet: removeContainer (kuberuntime_container.go) cleans the log files first."""
    node = Node()
    log = node.log_of_old(tmp_path)
    remover = node.containers()
    remover.check(ORPHAN)
    there: list[bool] = []
    node.runtime.on_call["remove_container old"] = lambda: there.append(log.exists())
    remover.remove(ORPHAN)
    assert there == [False]


def test_a_container_whose_log_cannot_be_deleted_is_kept(tmp_path: Path) -> None:
    """The next pass tries again."""
    node = Node()
    log = node.log_of_old(tmp_path)
    remover = node.containers()
    remover.check(ORPHAN)
    log.unlink()
    log.parent.rmdir()
    log.parent.write_text("")
    with pytest.raises(RemovalFailed, match="the log of old is kept: Not a directory"):
        remover.remove(ORPHAN)
    assert remover.present(ORPHAN)


@pytest.mark.parametrize("state", [ContainerState.CREATED, ContainerState.UNKNOWN])
def test_a_container_that_is_not_exited_is_removed_only_if_planned_in_its_state(
    state: ContainerState,
) -> None:
    """A plan of the kubelet's own rules may name CREATED and UNKNOWN; any other
    state by now, and it stays.
    """
    node = Node()
    planned = ORPHAN._replace(state=state)
    for now in ContainerState:
        node.runtime.set_state("old", now)
        allowed = now in (state, ContainerState.EXITED)
        assert isinstance(node.containers().check(planned), Ready) is allowed


def test_an_unknown_container_is_stopped_and_must_have_exited(tmp_path: Path) -> None:
    """With the grace period that its status names; the log and the container go only then."""
    node = Node()
    log = node.log_of_old(tmp_path)
    node.runtime.set_state("old", ContainerState.UNKNOWN)
    remover = node.containers()
    planned = ORPHAN._replace(state=ContainerState.UNKNOWN)
    remover.check(planned)
    node.runtime.calls.clear()
    there: list[bool] = []
    for call in ("container_status", "remove_container old"):
        node.runtime.on_call[call] = lambda: there.append(log.exists())
    remover.remove(planned)
    assert node.runtime.calls == [
        "stop_container old 2",
        "container_status",
        "remove_container old",
    ]
    assert there == [True, False]


def test_an_unknown_container_that_does_not_stop_is_kept() -> None:
    """Nothing is removed that has not exited."""
    node = Node()
    node.runtime.stops = False
    node.runtime.set_state("old", ContainerState.UNKNOWN)
    remover = node.containers()
    planned = ORPHAN._replace(state=ContainerState.UNKNOWN)
    remover.check(planned)
    with pytest.raises(RemovalFailed, match="it was stopped, but is UNKNOWN"):
        remover.remove(planned)
    assert remover.present(planned)


def test_a_dead_empty_sandbox_may_go() -> None:
    """Its containers were asked for just now."""
    assert Node().sandboxes().check(ORPHAN_SANDBOX) == Ready(50.0)


def test_a_sandbox_that_is_ready_or_occupied_by_now_is_kept() -> None:
    """A container of any state occupies it: the runtime would take it along."""
    node = Node()
    node.runtime.hold(container("c", sandbox_id="s"))
    assert node.sandboxes().check(ORPHAN_SANDBOX) == Refused(Reason.HAS_CONTAINERS)
    node.runtime.hold(sandbox("s", state=PodSandboxState.READY))
    assert node.sandboxes().check(ORPHAN_SANDBOX) == Refused(Reason.READY)


def test_what_is_gone_by_now_is_gone_already() -> None:
    """Another program removed it first."""
    node = Node()
    node.runtime.containers.clear()
    node.runtime.sandboxes.clear()
    assert node.containers().check(ORPHAN) == GONE
    assert node.sandboxes().check(ORPHAN_SANDBOX) == GONE


def test_without_an_answer_of_the_runtime_nothing_is_ready() -> None:
    """A check that could not be made permits nothing."""
    node = Node()
    node.runtime.away = True
    for remover, one in ((node.containers(), ORPHAN), (node.sandboxes(), ORPHAN_SANDBOX)):
        with pytest.raises(RuntimeUnavailable):
            remover.check(one)


def test_a_slow_list_does_not_make_the_status_too_old() -> None:
    """Under pressure a list may take longer than the 50 ms that a status counts: then the
    status is read once more.
    """
    node = Node("uid-1")
    node.runtime.slow["list_containers"] = 0.3
    for remover, one in ((node.containers(), OLDER), (node.sandboxes(), ORPHAN_SANDBOX)):
        if one is ORPHAN_SANDBOX:
            node.runtime.containers.clear()
            node.pods.uids.clear()
        assert remover.check(one) == Ready(node.clock.monotonic())


@pytest.mark.regression
def test_looks_at_directories_that_are_slower_than_a_status_may_be_old_keep_no_container() -> None:
    """60 ms each: the status is read once more after the look, and both the
    container and its sandbox go.
    """
    node = Node()
    node.pods = SlowPods(node.clock, 0.06)
    node.runtime.containers.pop("new")
    for remover, one in ((node.containers(), ORPHAN), (node.sandboxes(), ORPHAN_SANDBOX)):
        (outcome,) = carried_out(Plan((one,)), remover, node.clock)
        assert outcome.result is Result.REMOVED


def test_a_container_started_during_a_slow_list_is_kept() -> None:
    """By the second status, which is the one that counts."""
    node = Node("uid-1")
    node.runtime.slow["list_containers"] = 0.3
    node.runtime.on_call["list_containers"] = lambda: node.runtime.set_state(
        "old", ContainerState.RUNNING
    )
    assert node.containers().check(OLDER) == Refused(Reason.RUNNING)
