"""Right before a removal everything is checked once more, because the runtime protects nothing."""

from __future__ import annotations

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
from tests.rows import rows

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

    def happen(self, what: str, *name: str) -> None:
        """Something changes, or, `slowly`, does so while a slow list is on its way."""
        match what:
            case "slowly":
                self.runtime.slow["list_containers"] = 0.3
                if name:
                    self.runtime.on_call["list_containers"] = lambda: self.happen(*name)
            case "only":
                self.runtime.containers.clear()
                self.runtime.hold(container(*name))
            case "alive":
                self.pods.uids.add("uid-1")
            case "mute":  # an answer without a status: neither dead, nor gone
                self.runtime.says_nothing = True
            case "starts":
                self.runtime.set_state("old", ContainerState.RUNNING)
            case "torn-down":
                self.runtime.sandboxes.clear()
            case "occupied":
                self.runtime.hold(container("c", sandbox_id="s"))
            case "ready":
                self.runtime.hold(sandbox("s", state=PodSandboxState.READY))


PLANNED = {"orphan": ORPHAN, "older": OLDER, "sandbox": ORPHAN_SANDBOX}


@rows("""
    what                         | planned | happens       | answer
    nothing                      | orphan  |               | 50
    nothing, of a live pod       | older   | alive         | 50
    nothing, of a sandbox        | sandbox |               | 50
    it says nothing              | orphan  | mute          | unknown_state
    its pod is there             | orphan  | alive         | pod_alive
    the pod of a sandbox         | sandbox | alive         | pod_alive
    the newer copy has gone      | older   | only old      | newest_of_live_pod
    another id begins so         | orphan  | only older    | gone
    its sandbox has gone         | sandbox | torn-down     | gone
    a sandbox is occupied        | sandbox | occupied      | has_containers
    a sandbox is ready           | sandbox | ready         | ready
    it starts during a slow list | older   | slowly starts | running
    a slow list                  | older   | slowly        | 50.3
    a slow list, of a sandbox    | sandbox | slowly        | 50.3
""")
def test_what_has_changed_since_the_plan_counts(planned: str, happens: str, answer: str) -> None:
    """A status counts for 50 ms: after a slow list it is read once more. The answer is since when
    it is ready, or why it is not."""
    node, verdict = Node(), PLANNED[planned]
    if happens:
        node.happen(*happens.split())
    stage = node.stage_of(verdict)
    match stage.check(verdict):
        case Ready(checked_at):
            found = f"{checked_at:g}"
        case refused:
            found = "gone" if refused == GONE else str(refused.reason)
    assert found == answer
    assert stage.present(verdict) is (answer != "gone")


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
