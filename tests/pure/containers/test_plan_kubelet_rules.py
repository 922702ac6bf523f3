"""The rules and worked examples of the kubelet's container garbage collection,
with its own state known.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go` (evictableContainers, evictContainers,
evictSandboxes), `pkg/kubelet/pod_workers.go` (ShouldPodContentBeRemoved,
ShouldPodRuntimeBeRemoved), `container_gc.go` (the policy).
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from reclaim.containers.plan import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.evidence.states import PodState, PodStates
from reclaim.types import Container, ContainerState, Listing, Plan, PodSandboxState, Reason
from tests.pure.values import NOW_NS, container, sandbox

RUNNING, TERMINATED = PodState(), PodState(terminated=True)
DELETED = PodState(terminated=True, deleted=True)
TERMINATING = PodState(deleted=True)
EVICTED = PodState(evicted=True)
LIVE = PodStates(frozenset(), {"pod": RUNNING})
UNIT = re.compile(r"([A-Z])(\d+)")


def dead(names: str) -> Listing:
    """Containers of one live pod, written as unit and creation time: `A1 A2 B5`."""
    found = [(unit, int(time)) for unit, time in UNIT.findall(names)]
    return Listing(
        containers=tuple(one(f"{unit}{time}", name=unit, age=100 - time) for unit, time in found)
    )


def one(
    container_id: str,
    *,
    name: str = "app",
    uid: str = "pod",
    age: float = 100,
    state: str = "EXITED",
    of: str = "",
) -> Container:
    """One container of a pod."""
    return container(
        container_id,
        name=name,
        pod_uid=uid,
        age_seconds=float(age),
        state=ContainerState(state),
        sandbox_id=of,
    )


def removed(plan: Plan) -> str:
    """What goes, in order."""
    return " ".join(verdict.id for verdict in plan.remove)


def kept(plan: Plan) -> str:
    """What stays, by name."""
    return " ".join(sorted(verdict.id for verdict in plan.keep))


@pytest.mark.parametrize(
    ("per_container", "per_node", "containers", "going", "staying"),
    [
        pytest.param(
            2,
            3,
            "A1 A2 A3 A4 B5",
            "A1 A2",
            "A3 A4 B5",
            id="B: the oldest beyond MaxPerPodContainer",
        ),
        pytest.param(
            -1,
            4,
            "A1 A2 A3 A4 A5 B6 C7",
            "A1 A2 A3 A4",
            "A5 B6 C7",
            id="C: the share is rounded down, three stay of four",
        ),
        pytest.param(
            1, 2, "A10 B20 C30", "A10", "B20 C30", id="D: MaxContainers beats MaxPerPodContainer"
        ),
        pytest.param(1, 0, "A1 B2", "A1 B2", "", id="D: none is kept on the node"),
        pytest.param(0, -1, "A1 A2", "A1 A2", "", id="B: none is kept of a container"),
        pytest.param(-1, -1, "A1 A2 B3", "", "A1 A2 B3", id="negative numbers are no limit"),
        pytest.param(
            -1, 0, "A1 A2 B3", "A1 A2 B3", "", id="MaxContainers 0 without a limit of each: all go"
        ),
        pytest.param(
            -1,
            6,
            "A1 A2 A3 A4 B5 B6 B7 B8",
            "A1 B5",
            "A2 A3 A4 B6 B7 B8",
            id="C: a share of three each",
        ),
        pytest.param(
            3, 4, "A1 A2 A3 B4 B5 C6", "A1 A2 B4", "A3 B5 C6", id="C may remove more than needed"
        ),
    ],
)
def test_steps_b_c_and_d_of_evict_containers(
    per_container: int, per_node: int, containers: str, going: str, staying: str
) -> None:
    """Names are evict units, numbers are creation times; all are old enough and of a live pod."""
    policy = ContainerGCPolicy(max_per_pod_container=per_container, max_containers=per_node)
    plan = plan_container_gc(dead(containers), LIVE, policy, now_ns=NOW_NS)
    assert (removed(plan), kept(plan)) == (going, staying)


@pytest.mark.parametrize(
    ("state", "under_pressure", "periodically"),
    [
        pytest.param(RUNNING, False, False, id="live"),
        pytest.param(TERMINATED, True, False, id="terminated, not deleted"),
        pytest.param(DELETED, True, True, id="deleted and terminated"),
        pytest.param(TERMINATING, False, False, id="deleted, still terminating"),
        pytest.param(EVICTED, True, True, id="evicted, still terminating"),
        pytest.param(None, True, True, id="not known to a worker"),
    ],
)
def test_step_a_sweeps_pods_whose_content_or_runtime_should_be_removed(
    state: PodState | None, under_pressure: bool, periodically: bool
) -> None:
    """The runtime question counts only with the flag, which only pressure sets;
    sandboxes answer to the same.
    """
    pods = PodStates(frozenset(), {} if state is None else {"pod": state})
    listing = Listing(containers=(one("c"),))
    empty = Listing(sandboxes=(sandbox("s", pod_uid="pod"),))
    for flag, goes in ((True, under_pressure), (False, periodically)):
        swept = plan_container_gc(
            listing, pods, ContainerGCPolicy(evict_non_deleted_pods=flag), now_ns=NOW_NS
        )
        assert (removed(swept) == "c") is goes
        swept = plan_sandbox_gc(
            empty, pods, ContainerGCPolicy(evict_non_deleted_pods=flag), now_ns=NOW_NS
        )
        assert (removed(swept) == "s") is goes


@pytest.mark.regression
@pytest.mark.parametrize(
    ("cautious", "going", "left"), [(True, "old", "new"), (False, "old new", "")]
)
def test_a_static_pod_that_has_terminated_keeps_its_newest_copy_and_sandbox(
    cautious: bool, going: str, left: str
) -> None:
    """A kubelet that restarts would run it again.

    Only where all is to go as the kubelet does it do they go.
    """
    pods = PodStates(frozenset({"pod"}), {"pod": PodState(terminated=True, static=True)})
    policy = ContainerGCPolicy(cautious=cautious)
    plan = plan_container_gc(
        Listing(containers=(one("old", age=200), one("new"))), pods, policy, now_ns=NOW_NS
    )
    assert (removed(plan), kept(plan)) == (going, left)
    assert [verdict.reason for verdict in plan.keep] == [Reason.NEWEST_OF_LIVE_POD] * cautious
    empty = Listing(
        sandboxes=(sandbox("old", pod_uid="pod", age_seconds=9e4), sandbox("new", pod_uid="pod"))
    )
    assert removed(plan_sandbox_gc(empty, pods, policy, now_ns=NOW_NS)) == going


def test_while_sources_are_not_ready_step_a_is_skipped_and_b_to_d_run() -> None:
    """Containers of deleted pods fall under the limits only; for sandboxes
    there is no such condition.
    """
    pods = PodStates(frozenset(), {}, sources_ready=False)
    assert (
        removed(plan_container_gc(dead("A1 A2 A3"), pods, ContainerGCPolicy(), now_ns=NOW_NS))
        == "A1 A2"
    )
    empty = Listing(sandboxes=(sandbox("s", pod_uid="pod"),))
    assert removed(plan_sandbox_gc(empty, pods, ContainerGCPolicy(), now_ns=NOW_NS)) == "s"


def test_checklist_1_created_containers_are_evictable() -> None:
    """With MaxPerPodContainer 0 one that is about to start can be removed; a
    cautious policy keeps it.
    """
    listing = Listing(containers=(one("about-to-start", state="CREATED"),))
    policy = ContainerGCPolicy(max_per_pod_container=0)
    assert removed(plan_container_gc(listing, LIVE, policy, now_ns=NOW_NS)) == "about-to-start"
    assert (
        kept(plan_container_gc(listing, LIVE, replace(policy, cautious=True), now_ns=NOW_NS))
        == "about-to-start"
    )


def test_an_unknown_container_is_evictable_and_a_running_one_never() -> None:
    """UNKNOWN is in the plan, with its state, as it has to be stopped first."""
    listing = Listing(
        containers=(one("u", state="UNKNOWN", uid="gone"), one("r", state="RUNNING", uid="gone"))
    )
    plan = plan_container_gc(listing, LIVE, ContainerGCPolicy(), now_ns=NOW_NS)
    assert [(v.id, v.state) for v in plan.remove] == [("u", ContainerState.UNKNOWN)]


@pytest.mark.parametrize(("age", "goes"), [(59, ""), (60, "old"), (61, "old")])
def test_checklist_2_creation_exactly_min_age_ago_is_evictable(age: float, goes: str) -> None:
    """Age counts from creation, not from exit."""
    listing = Listing(containers=(one("old", uid="gone", age=age),))
    assert (
        removed(
            plan_container_gc(listing, LIVE, ContainerGCPolicy(min_age_seconds=60), now_ns=NOW_NS)
        )
        == goes
    )


def test_checklist_3_a_young_container_of_a_deleted_pod_is_kept_with_its_sandbox() -> None:
    """The sandbox is active as long as any container names it."""
    listing = Listing(
        containers=(one("young", uid="gone", age=5, of="s"),),
        sandboxes=(sandbox("s", pod_uid="gone"),),
    )
    policy = ContainerGCPolicy(min_age_seconds=60)
    plan = plan_container_gc(listing, LIVE, policy, now_ns=NOW_NS)
    assert [(v.id, v.reason, v.eligible_in_seconds) for v in plan.keep] == [
        ("young", Reason.TOO_YOUNG, 55.0)
    ]
    assert removed(plan_sandbox_gc(listing, LIVE, policy, now_ns=NOW_NS)) == ""


def test_young_containers_count_nowhere() -> None:
    """Neither for the copies of a container nor for those of the node, nor
    does their unit get a share.
    """
    young = (one("young", name="A", age=1), one("younger", name="Z", age=0.5))
    listing = Listing(containers=(*dead("A1 A2 A3 B4").containers, *young))
    policy = ContainerGCPolicy(min_age_seconds=60, max_per_pod_container=-1, max_containers=2)
    assert removed(plan_container_gc(listing, LIVE, policy, now_ns=NOW_NS)) == "A1 A2"


def test_checklist_5_under_pressure_terminated_pods_lose_all_and_running_pods_keep_their_share() -> (
    None
):
    """Two pods, three dead copies each."""
    copies = [one(f"{uid}-{n}", uid=uid, age=90 - n) for uid in ("done", "pod") for n in range(3)]
    pods = PodStates(frozenset(), {"pod": RUNNING, "done": TERMINATED})
    listing = Listing(containers=tuple(copies))
    assert (
        removed(plan_container_gc(listing, pods, ContainerGCPolicy(), now_ns=NOW_NS))
        == "done-0 done-1 done-2 pod-0 pod-1"
    )
    periodic = plan_container_gc(
        listing, pods, ContainerGCPolicy(evict_non_deleted_pods=False), now_ns=NOW_NS
    )
    assert removed(periodic) == "done-0 pod-0 done-1 pod-1"


def test_checklist_6_a_container_without_a_pod_uid_counts_as_one_of_a_removed_pod() -> None:
    """A cautious policy leaves it alone."""
    listing = Listing(containers=(one("by-hand", uid=""),))
    assert (
        removed(plan_container_gc(listing, LIVE, ContainerGCPolicy(), now_ns=NOW_NS)) == "by-hand"
    )
    assert (
        kept(plan_container_gc(listing, LIVE, ContainerGCPolicy(cautious=True), now_ns=NOW_NS))
        == "by-hand"
    )


def test_the_attempt_number_plays_no_part() -> None:
    """Newest is by creation time."""
    listing = Listing(
        containers=(
            one("first", age=50)._replace(attempt=7),
            one("second", age=40)._replace(attempt=2),
        )
    )
    assert removed(plan_container_gc(listing, LIVE, ContainerGCPolicy(), now_ns=NOW_NS)) == "first"


@pytest.mark.parametrize(
    ("state", "flag", "going"),
    [
        (RUNNING, True, ""),
        (TERMINATED, False, ""),
        (TERMINATED, True, "s"),
        (DELETED, False, "s"),
    ],
)
def test_checklist_9_the_newest_sandbox_of_an_existing_pod_is_kept(
    state: PodState, flag: bool, going: str
) -> None:
    """Dead and empty as it is; of a terminated pod it goes under pressure only."""
    pods = PodStates(frozenset(), {"pod": state})
    listing = Listing(sandboxes=(sandbox("s", pod_uid="pod"),))
    plan = plan_sandbox_gc(
        listing, pods, ContainerGCPolicy(evict_non_deleted_pods=flag), now_ns=NOW_NS
    )
    assert removed(plan) == going


def test_checklist_10_and_12_a_ready_sandbox_of_a_deleted_pod_is_kept() -> None:
    """READY is what a sandbox without a state on the wire is, too."""
    listing = Listing(sandboxes=(sandbox("s", pod_uid="gone", state=PodSandboxState.READY),))
    assert removed(plan_sandbox_gc(listing, LIVE, ContainerGCPolicy(), now_ns=NOW_NS)) == ""


def test_that_the_newest_sandbox_is_ready_does_not_protect_older_dead_ones() -> None:
    """They go, oldest first, at any age."""
    trio = (
        sandbox("new", pod_uid="pod", age_seconds=0.1, state=PodSandboxState.READY),
        sandbox("old", pod_uid="pod", age_seconds=0.2),
        sandbox("older", pod_uid="pod", age_seconds=0.3),
    )
    assert (
        removed(plan_sandbox_gc(Listing(sandboxes=trio), LIVE, ContainerGCPolicy(), now_ns=NOW_NS))
        == "older old"
    )


def test_the_guards_keep_one_copy_whatever_the_limits_say() -> None:
    """Without the kubelet's state:

    MaxContainers 0 takes what is older, never the newest of a pod that may exist.
    """
    policy = ContainerGCPolicy(max_per_pod_container=-1, max_containers=0)
    plan = plan_container_gc(
        dead("A1 A2 A3 B4"), PodStates(frozenset({"pod"})), policy, now_ns=NOW_NS
    )
    assert (removed(plan), kept(plan)) == ("A1 A2", "A3 B4")
    assert {(verdict.reason, verdict.superseded_by) for verdict in plan.remove} == {
        (Reason.OVER_LIMIT, "A3")
    }
