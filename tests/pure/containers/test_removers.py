"""Right before a removal everything is checked once more, because the runtime protects nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reclaim.containers.plan import NOT_DEAD
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
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, container, sandbox

ORPHAN = Verdict(Kind.CONTAINER, "old", "old", Action.REMOVE, Reason.POD_GONE, pod_uid="uid-1")
OLDER = ORPHAN._replace(reason=Reason.OLDER_COPY, superseded_by="new")
UNKNOWN = ORPHAN._replace(state=ContainerState.UNKNOWN)
ORPHAN_SANDBOX = ORPHAN._replace(kind=Kind.SANDBOX, id="s")


class Node:
    """A runtime in memory with two dead copies of a container, of which the older has a log, and
    a dead sandbox."""

    def __init__(self, directory: Path = Path("/nowhere")):
        self.clock = SteppedClock(at=50.0)
        self.runtime = MemoryRuntime(self.clock)
        self.pods = MemoryPods()
        self.log = directory / "pods" / "ns_pod_uid-1" / "app" / "0.log"
        if directory.is_dir():
            self.log.parent.mkdir(parents=True)
            self.log.write_text("a line\n")
            self.runtime.log_paths["old"] = str(self.log)
        self.runtime.hold(
            container("old", age_seconds=200.0), container("new", age_seconds=100.0), sandbox("s")
        )
        context = context_of(
            self.runtime,
            self.clock,
            self.pods,
            log_paths=LogPaths(str(directory / "pods"), str(directory / "containers")),
        )
        self.containers, self.sandboxes = DeadContainers(context), EmptySandboxes(context)

    def stage_of(self, verdict: Verdict) -> DeadContainers | EmptySandboxes:
        """Which removes it."""
        return self.containers if verdict.kind is Kind.CONTAINER else self.sandboxes

    def only(self, name: str) -> None:
        """Instead of the two there is only this container."""
        self.runtime.containers.clear()
        self.runtime.hold(container(name))

    def alive(self) -> None:
        """The pod is there again."""
        self.pods.uids.add("uid-1")

    def when(self, call: str, do: Callable[[], object]) -> None:
        """Something happens while a slow call is under way."""
        self.runtime.slow[call] = 0.3
        self.runtime.on_call[call] = do


def says_nothing(node: Node) -> None:
    """An answer without a status: neither dead, nor gone."""
    node.runtime.says_nothing = True


CHANGES: dict[str, tuple[Callable[[Node], object], Verdict, Ready | Refused]] = {
    "nothing": (lambda _: None, ORPHAN, Ready(50.0)),
    "nothing, of a live pod": (lambda node: node.alive(), OLDER, Ready(50.0)),
    "nothing, of a sandbox": (lambda _: None, ORPHAN_SANDBOX, Ready(50.0)),
    "it says nothing": (says_nothing, ORPHAN, Refused(Reason.UNKNOWN_STATE)),
    "its pod is there": (lambda node: node.alive(), ORPHAN, Refused(Reason.POD_ALIVE)),
    "the pod of a sandbox": (lambda node: node.alive(), ORPHAN_SANDBOX, Refused(Reason.POD_ALIVE)),
    "the newer copy has gone": (
        lambda node: node.only("old"),
        OLDER,
        Refused(Reason.NEWEST_OF_LIVE_POD),
    ),
    "another id begins so": (lambda node: node.only("older"), ORPHAN, GONE),
    "its sandbox has gone": (lambda node: node.runtime.sandboxes.clear(), ORPHAN_SANDBOX, GONE),
    "a sandbox is occupied": (
        lambda node: node.runtime.hold(container("c", sandbox_id="s")),
        ORPHAN_SANDBOX,
        Refused(Reason.HAS_CONTAINERS),
    ),
    "a sandbox is ready": (
        lambda node: node.runtime.hold(sandbox("s", state=PodSandboxState.READY)),
        ORPHAN_SANDBOX,
        Refused(Reason.READY),
    ),
    "it starts during a slow list": (
        lambda node: node.when(
            "list_containers", lambda: node.runtime.set_state("old", ContainerState.RUNNING)
        ),
        OLDER,
        Refused(Reason.RUNNING),
    ),
    "a slow list": (lambda node: node.when("list_containers", lambda: None), OLDER, Ready(50.3)),
    "a slow list, of a sandbox": (
        lambda node: node.when("list_containers", lambda: None),
        ORPHAN_SANDBOX,
        Ready(50.3),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_since_the_plan_counts(change: str) -> None:
    """A status counts for 50 ms: after a slow list it is read once more."""
    happens, verdict, answer = CHANGES[change]
    node = Node()
    happens(node)
    stage = node.stage_of(verdict)
    found = stage.check(verdict)
    if isinstance(answer, Ready):
        assert isinstance(found, Ready)
        assert found.checked_at == pytest.approx(answer.checked_at)
    else:
        assert found == answer
    assert stage.present(verdict) is (answer != GONE)


def test_without_an_answer_of_the_runtime_nothing_is_ready() -> None:
    """A check that could not be made permits nothing."""
    node = Node()
    node.runtime.away = True
    for verdict in (ORPHAN, ORPHAN_SANDBOX):
        with pytest.raises(RuntimeUnavailable):
            node.stage_of(verdict).check(verdict)


@pytest.mark.parametrize("planned", [ContainerState.EXITED, *list(NOT_DEAD)[1:]])
def test_a_container_that_is_not_exited_is_removed_only_if_planned_in_its_state(
    planned: ContainerState,
) -> None:
    """A plan of the kubelet's own rules may name CREATED and UNKNOWN; any other state by now, and
    it stays."""
    node = Node()
    for now in ContainerState:
        node.runtime.set_state("old", now)
        allowed = now in (planned, ContainerState.EXITED)
        found = node.containers.check(ORPHAN._replace(state=planned))
        assert found == (Ready(50.0) if allowed else Refused(NOT_DEAD[now]))


@pytest.mark.parametrize(
    ("verdict", "calls"),
    [
        (ORPHAN, ["remove_container old"]),
        (UNKNOWN, ["stop_container old 2", "container_status", "remove_container old"]),
        (ORPHAN_SANDBOX, ["stop_pod_sandbox s", "remove_pod_sandbox s"]),
    ],
    ids=["a container", "one that must have exited", "a sandbox frees its network"],
)
def test_a_removal_is_one_call_with_the_whole_id(
    tmp_path: Path, verdict: Verdict, calls: list[str]
) -> None:
    """Stopped first where that is needed; the log goes before the container, and not before it is
    known to have exited (kubelet: removeContainer in kuberuntime_container.go). Then it is
    absent."""
    node, there = Node(tmp_path), list[bool]()
    if verdict is UNKNOWN:
        node.runtime.set_state("old", ContainerState.UNKNOWN)
    stage = node.stage_of(verdict)
    stage.check(verdict)
    node.runtime.calls.clear()
    for call in ("stop_container old 2", "remove_container old"):
        node.runtime.on_call[call] = lambda: there.append(node.log.exists())
    stage.remove(verdict)
    assert node.runtime.calls == calls
    assert there == {ORPHAN: [False], UNKNOWN: [True, False]}.get(verdict, [])
    assert not stage.present(verdict)


def test_a_container_whose_log_cannot_be_deleted_is_kept(tmp_path: Path) -> None:
    """The next pass tries again."""
    node = Node(tmp_path)
    node.containers.check(ORPHAN)
    node.log.unlink()
    node.log.parent.rmdir()
    node.log.parent.write_text("")
    with pytest.raises(RemovalFailed, match="the log of old is kept: Not a directory"):
        node.containers.remove(ORPHAN)
    assert node.containers.present(ORPHAN)


def test_an_unknown_container_that_does_not_stop_is_kept() -> None:
    """Nothing is removed that has not exited."""
    node = Node()
    node.runtime.stops = False
    node.runtime.set_state("old", ContainerState.UNKNOWN)
    node.containers.check(UNKNOWN)
    with pytest.raises(RemovalFailed, match="it was stopped, but is UNKNOWN"):
        node.containers.remove(UNKNOWN)
    assert node.containers.present(UNKNOWN)


@pytest.mark.regression
def test_looks_at_directories_that_are_slower_than_a_status_may_be_old_keep_no_container() -> None:
    """60 ms each: the status is read once more after the look, and both the container and its
    sandbox go."""
    node = Node()
    node.pods.on_look = lambda: node.clock.step(0.06)
    for verdict in (ORPHAN, ORPHAN_SANDBOX):
        (outcome,) = carried_out(Plan((verdict,)), node.stage_of(verdict), node.clock)
        assert outcome.result is Result.REMOVED
