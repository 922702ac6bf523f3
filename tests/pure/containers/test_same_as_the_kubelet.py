"""With the kubelet's own state the plans are the kubelet's; without it nothing goes
that the kubelet would keep.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go`, written once more in `kubelet_gc`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reclaim.containers.plan import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.evidence.states import PodState, PodStates
from reclaim.types import ContainerState, Listing, PodSandboxState, Rule
from tests.pure.kubelet_gc import kubelet_removes_containers, kubelet_removes_sandboxes
from tests.pure.values import NOW_NS, container, sandbox

uids = st.sampled_from(["", "uid-1", "uid-2", "uid-gone"])
ages = st.lists(st.integers(-5, 60), unique=True, min_size=12, max_size=12)


@st.composite
def listings(draw: st.DrawFn) -> Listing:
    """Up to 8 containers and 4 sandboxes, no two made at the same time."""
    times = iter(draw(ages))
    containers = tuple(
        container(
            f"c{number}",
            name=draw(st.sampled_from(["app", "init"])),
            state=draw(
                st.sampled_from([ContainerState.EXITED, ContainerState.EXITED, *ContainerState])
            ),
            pod_uid=draw(uids),
            age_seconds=float(next(times)),
            sandbox_id=draw(st.sampled_from(["", "s0", "s1"])),
        )
        for number in range(draw(st.integers(0, 8)))
    )
    sandboxes = tuple(
        sandbox(
            f"s{number}",
            state=draw(st.sampled_from(PodSandboxState)),
            pod_uid=draw(uids),
            age_seconds=float(next(times)),
        )
        for number in range(draw(st.integers(0, 4)))
    )
    return Listing(containers=containers, sandboxes=sandboxes)


states = st.builds(
    PodState,
    terminated=st.booleans(),
    deleted=st.booleans(),
    evicted=st.booleans(),
    static=st.booleans(),
)
known = st.builds(
    PodStates,
    present=st.frozensets(uids),
    kubelet=st.dictionaries(st.sampled_from(["uid-1", "uid-2"]), states),
    sources_ready=st.booleans(),
)
policies = st.builds(
    ContainerGCPolicy,
    min_age_seconds=st.sampled_from([0.0, 0.0, 20.0]),
    max_per_pod_container=st.integers(-1, 3),
    max_containers=st.integers(-1, 6),
)


@given(listings(), known, policies, st.booleans())
def test_with_the_kubelets_state_the_plans_are_the_kubelets(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, evict_non_deleted_pods: bool
) -> None:
    """Containers and sandboxes, under pressure and periodically; each verdict says that
    the rule is the kubelet's.
    """
    plan = plan_container_gc(
        listing, pods, replace(policy, evict_non_deleted_pods=evict_non_deleted_pods), now_ns=NOW_NS
    )
    assert {v.id for v in plan.remove} == kubelet_removes_containers(
        listing, pods, policy, evict_non_deleted_pods
    )
    sandboxes = plan_sandbox_gc(
        listing, pods, replace(policy, evict_non_deleted_pods=evict_non_deleted_pods), now_ns=NOW_NS
    )
    assert {v.id for v in sandboxes.remove} == kubelet_removes_sandboxes(
        listing, pods, evict_non_deleted_pods
    )
    verdicts = (*plan.remove, *plan.keep, *sandboxes.remove, *sandboxes.keep)
    assert {verdict.rule for verdict in verdicts} <= {Rule.KUBELET}
    assert len(verdicts) == len(listing.containers) + len(listing.sandboxes)


@given(listings(), known, policies, st.booleans(), st.booleans())
def test_with_the_guards_nothing_is_removed_that_the_kubelet_would_keep(
    listing: Listing,
    pods: PodStates,
    policy: ContainerGCPolicy,
    evict_non_deleted_pods: bool,
    cautious: bool,
) -> None:
    """Cautious, or without the kubelet's state (its pods are then those with a directory).

    Each kept object says whose rule keeps it.
    """
    truth = (
        pods if cautious else PodStates(pods.present, dict.fromkeys(pods.present or (), PodState()))
    )
    seen = pods if cautious else PodStates(pods.present)
    guarded = replace(policy, cautious=cautious)
    plan = plan_container_gc(
        listing,
        seen,
        replace(guarded, evict_non_deleted_pods=evict_non_deleted_pods),
        now_ns=NOW_NS,
    )
    going = {verdict.id for verdict in plan.remove}
    kubelets = kubelet_removes_containers(listing, truth, policy, evict_non_deleted_pods)
    assert going <= kubelets
    sandboxes = plan_sandbox_gc(
        listing,
        seen,
        replace(guarded, evict_non_deleted_pods=evict_non_deleted_pods),
        now_ns=NOW_NS,
    )
    idle = {verdict.id for verdict in sandboxes.remove}
    idle_to_kubelet = kubelet_removes_sandboxes(listing, truth, evict_non_deleted_pods)
    assert idle <= idle_to_kubelet
    if cautious:
        assert {
            verdict.id for verdict in plan.keep if verdict.rule is Rule.GUARD
        } == kubelets - going
        by_guard = {verdict.id for verdict in sandboxes.keep if verdict.rule is Rule.GUARD}
        assert idle_to_kubelet - idle <= by_guard


@given(listings(), known, policies, st.booleans(), st.randoms())
def test_the_order_of_the_listing_changes_nothing(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, cautious: bool, random: Random
) -> None:
    """With the kubelet's state too, and never does a container go that runs."""
    policy = replace(policy, cautious=cautious)
    other = replace(
        listing,
        containers=tuple(random.sample(listing.containers, len(listing.containers))),
        sandboxes=tuple(random.sample(listing.sandboxes, len(listing.sandboxes))),
    )
    for make in (plan_container_gc, plan_sandbox_gc):
        assert make(other, pods, policy, now_ns=NOW_NS) == make(
            listing, pods, policy, now_ns=NOW_NS
        )
    running = {one.id for one in listing.containers if one.state is ContainerState.RUNNING}
    assert not running & {
        verdict.id for verdict in plan_container_gc(listing, pods, policy, now_ns=NOW_NS).remove
    }
