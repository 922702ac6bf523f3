"""Which dead containers and sandboxes go, which stay and why, and in which order.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.containers.plan import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.evidence.states import PodStates
from reclaim.types import (
    Action,
    Container,
    ContainerState,
    Kind,
    Listing,
    Plan,
    PodSandboxState,
    Reason,
    Verdict,
)
from tests.pure.values import NOW_NS, container, image, sandbox

ALIVE = PodStates(frozenset({"uid-1", "uid-2"}))
EMPTY = PodStates(frozenset())
UNKNOWN = PodStates(None)
POLICY = ContainerGCPolicy()
DEAD_OR_NOT = [ContainerState.RUNNING, ContainerState.CREATED, ContainerState.UNKNOWN]


def plan(
    *containers: Container, pods: PodStates = ALIVE, policy: ContainerGCPolicy = POLICY
) -> Plan:
    """The plan for these containers."""
    return plan_container_gc(Listing(containers=containers), pods, policy, now_ns=NOW_NS)


def removed(made: Plan) -> list[str]:
    """The ids of what goes, in order."""
    return [verdict.id for verdict in made.remove]


def kept(made: Plan) -> dict[str, str]:
    """Why each kept object stays."""
    return {verdict.id: verdict.reason for verdict in made.keep}


def copies(count: int, name: str = "app", pod_uid: str = "uid-1") -> list[Container]:
    """Dead copies of one container, the first the oldest."""
    return [
        container(f"{name}-{n}", name=name, pod_uid=pod_uid, age_seconds=1000.0 - n, attempt=n)
        for n in range(count)
    ]


def test_of_each_container_of_a_pod_the_newest_dead_copy_is_kept() -> None:
    """Older copies go, oldest first; each knows the newer one that must still be there."""
    made = plan(*copies(3), *copies(2, name="sidecar"), *copies(1, pod_uid="uid-2", name="other"))
    assert removed(made) == ["app-0", "sidecar-0", "app-1"]
    assert [verdict.superseded_by for verdict in made.remove] == ["app-2", "sidecar-1", "app-2"]
    assert {verdict.reason for verdict in made.remove} == {Reason.OLDER_COPY}
    assert set(kept(made).values()) == {Reason.NEWEST_OF_LIVE_POD}


@pytest.mark.parametrize(
    ("limit", "gone"),
    [
        (-1, []),
        (0, ["app-0", "app-1", "app-2"]),
        (1, ["app-0", "app-1", "app-2"]),
        (2, ["app-0", "app-1"]),
        (9, []),
    ],
)
def test_so_many_dead_copies_stay(limit: int, gone: list[str]) -> None:
    """A negative number keeps all; 0 keeps one nevertheless: it is how the
    kubelet knows that it has run.
    """
    made = plan(*copies(4), policy=ContainerGCPolicy(max_per_pod_container=limit))
    assert removed(made) == gone
    assert kept(made)["app-3"] is Reason.NEWEST_OF_LIVE_POD


def test_what_is_within_the_limit_says_so() -> None:
    """The second of two copies to keep is within the limit, not the newest."""
    made = plan(*copies(3), policy=ContainerGCPolicy(max_per_pod_container=2))
    assert kept(made) == {"app-2": Reason.NEWEST_OF_LIVE_POD, "app-1": Reason.WITHIN_LIMIT}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ContainerState.RUNNING, Reason.RUNNING),
        (ContainerState.CREATED, Reason.CREATED),
        (ContainerState.UNKNOWN, Reason.UNKNOWN_STATE),
    ],
)
@pytest.mark.parametrize("pods", [ALIVE, EMPTY, UNKNOWN])
def test_only_an_exited_container_is_dead(
    state: ContainerState, reason: Reason, pods: PodStates
) -> None:
    """Running, created and unknown ones stay, and with them every part of
    their pod counts as alive.
    """
    living = container("living", state=state, age_seconds=10_000.0)
    made = plan(living, *copies(2), pods=pods)
    assert kept(made) == {"living": reason, "app-1": Reason.NEWEST_OF_LIVE_POD}


@pytest.mark.parametrize("pods", [ALIVE, EMPTY, UNKNOWN])
def test_the_plan_keeps_what_carries_no_pod_uid(pods: PodStates) -> None:
    """Made by hand, not by a kubelet."""
    made = plan(*copies(3, pod_uid=""), pods=pods)
    assert made.remove == ()
    assert set(kept(made).values()) == {Reason.NOT_KUBELETS}


def test_of_a_deleted_pod_everything_is_removed() -> None:
    """Before the older copies of others, oldest first."""
    made = plan(*copies(2), *copies(2, name="orphan", pod_uid="uid-gone"))
    assert removed(made) == ["orphan-0", "orphan-1", "app-0"]
    assert [verdict.reason for verdict in made.remove] == [
        Reason.POD_GONE,
        Reason.POD_GONE,
        Reason.OLDER_COPY,
    ]
    assert [verdict.superseded_by for verdict in made.remove] == ["", "", "app-1"]


def test_of_a_pod_with_a_ready_sandbox_nothing_is_an_orphan() -> None:
    """Its directory may be missing: as long as something of it lives, its
    newest dead copy stays.
    """
    ready = sandbox("s", pod_uid="uid-gone", state=PodSandboxState.READY)
    listing = Listing(containers=tuple(copies(2, pod_uid="uid-gone")), sandboxes=(ready,))
    made = plan_container_gc(listing, EMPTY, POLICY, now_ns=NOW_NS)
    assert (removed(made), kept(made)) == (["app-0"], {"app-1": Reason.NEWEST_OF_LIVE_POD})


def test_without_knowledge_of_pods_no_pod_is_gone() -> None:
    """Directories that cannot be read say nothing."""
    assert removed(plan(*copies(2), pods=UNKNOWN)) == ["app-0"]


@pytest.mark.parametrize(("age_seconds", "goes"), [(9.9, False), (10.0, True)])
def test_the_parts_of_a_vanished_pod_settle_for_10_s(age_seconds: float, goes: bool) -> None:
    """At exactly 10 s they may go; before, the plan says how long they have to wait."""
    made = plan(container("c", age_seconds=age_seconds), pods=EMPTY)
    assert (removed(made) == ["c"]) is goes
    assert (made.eligible_in_seconds is None) is goes
    if not goes:
        assert kept(made) == {"c": Reason.TOO_YOUNG}
        assert made.eligible_in_seconds == pytest.approx(0.1)


@pytest.mark.parametrize(("age_seconds", "goes"), [(59.0, False), (60.0, True), (61.0, True)])
@pytest.mark.parametrize("pods", [ALIVE, EMPTY])
def test_the_minimum_age_counts_from_creation_and_is_inclusive(
    age_seconds: float, goes: bool, pods: PodStates
) -> None:
    """With a minimum age of 60 s, of living and of vanished pods alike."""
    policy = ContainerGCPolicy(min_age_seconds=60.0, max_per_pod_container=0)
    made = plan(
        container("old", age_seconds=age_seconds),
        container("new", age_seconds=1.0),
        pods=pods,
        policy=policy,
    )
    assert (removed(made) == ["old"]) is goes


def test_young_containers_do_not_count_against_the_number_to_keep() -> None:
    """As in the kubelet: of those that are old enough the newest one stays, however
    many younger ones there are.
    """
    policy = ContainerGCPolicy(min_age_seconds=60.0)
    ages = {"oldest": 200.0, "old": 100.0, "young": 5.0, "newest": 1.0}
    made = plan(*(container(name, age_seconds=age) for name, age in ages.items()), policy=policy)
    assert removed(made) == ["oldest"]
    assert kept(made) == {
        "old": Reason.WITHIN_LIMIT,
        "young": Reason.TOO_YOUNG,
        "newest": Reason.NEWEST_OF_LIVE_POD,
    }


def test_a_container_without_a_creation_time_is_young() -> None:
    """Its age is not known, so no age has been reached, not even of a vanished pod."""
    made = plan(container("c")._replace(created_at_ns=0), pods=EMPTY)
    assert kept(made) == {"c": Reason.TOO_YOUNG}


def test_a_container_of_the_future_is_too_young() -> None:
    """A clock that was set back makes nothing old."""
    made = plan(*(container(f"c-{n}", age_seconds=-60.0 * n) for n in (1, 2)), pods=EMPTY)
    assert set(kept(made).values()) == {Reason.TOO_YOUNG}


def test_equal_creation_times_go_by_attempt_then_by_id() -> None:
    """The newest is then the one of the latest attempt."""
    made = plan(container("b", attempt=1), container("a", attempt=2), container("c", attempt=0))
    assert (removed(made), list(kept(made))) == (["b", "c"], ["a"])


containers = st.lists(
    st.builds(
        container,
        st.sampled_from([f"c{n}" for n in range(12)]),
        name=st.sampled_from(["app", "init"]),
        state=st.sampled_from([ContainerState.EXITED] * 5 + DEAD_OR_NOT),
        pod_uid=st.sampled_from(["", "uid-1", "uid-2", "uid-gone", "../.."]),
        age_seconds=st.integers(-5, 60).map(float),
        attempt=st.integers(0, 2),
        sandbox_id=st.sampled_from(["", "s0", "s1"]),
    ),
    unique_by=lambda one: one.id,
).map(tuple)
sandboxes = st.lists(
    st.builds(
        sandbox,
        st.sampled_from([f"s{n}" for n in range(8)]),
        state=st.sampled_from(PodSandboxState),
        pod_uid=st.sampled_from(["", "uid-1", "uid-2", "uid-gone"]),
        age_seconds=st.integers(-5, 60).map(float),
        labelled=st.booleans(),
    ),
    unique_by=lambda one: one.id,
).map(tuple)
listings = st.builds(Listing, containers=containers, sandboxes=sandboxes)
states = st.sampled_from([ALIVE, EMPTY, UNKNOWN])
policies = st.builds(
    ContainerGCPolicy,
    min_age_seconds=st.sampled_from([0.0, 30.0]),
    max_per_pod_container=st.integers(-1, 3),
    max_containers=st.integers(-1, 6),
)


@given(listings, states, policies)
def test_no_live_container_and_no_newest_copy_is_removed(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy
) -> None:
    """Each container has one verdict; what goes is EXITED and a kubelet's; of a pod that
    may exist one copy stays.
    """
    made = plan_container_gc(listing, pods, policy, now_ns=NOW_NS)
    by_id = {one.id: one for one in listing.containers}
    assert sorted([*removed(made), *kept(made)]) == sorted(by_id)
    going = set(removed(made))
    for verdict in made.remove:
        one = by_id[verdict.id]
        assert one.state is ContainerState.EXITED
        assert one.pod_uid
        assert NOW_NS - one.created_at_ns >= policy.min_age_seconds * 1e9
        if not pods.gone(one.pod_uid):
            unit = [c for c in by_id.values() if (c.pod_uid, c.name) == (one.pod_uid, one.name)]
            dead = [c for c in unit if c.state is ContainerState.EXITED]
            assert max(dead, key=lambda c: c.created_at_ns).created_at_ns >= one.created_at_ns
            assert verdict.superseded_by in {c.id for c in dead} - going


@given(listings, states, policies, st.randoms())
def test_the_order_of_the_listing_changes_nothing(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, random: Random
) -> None:
    """Neither for containers nor for sandboxes."""
    shuffled = (
        random.sample(listing.containers, len(listing.containers)),
        random.sample(listing.sandboxes, len(listing.sandboxes)),
    )
    other = replace(listing, containers=tuple(shuffled[0]), sandboxes=tuple(shuffled[1]))
    for make in (plan_container_gc, plan_sandbox_gc):
        assert make(other, pods, policy, now_ns=NOW_NS) == make(
            listing, pods, policy, now_ns=NOW_NS
        )


@given(listings, states, policies)
def test_no_sandbox_is_removed_that_is_ready_occupied_or_the_newest_of_its_pod(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy
) -> None:
    """Unless the pod is gone, and then only when it has settled."""
    made = plan_sandbox_gc(listing, pods, policy, now_ns=NOW_NS)
    by_id = {one.id: one for one in listing.sandboxes}
    assert sorted([*removed(made), *kept(made)]) == sorted(by_id)
    for verdict in made.remove:
        one = by_id[verdict.id]
        assert one.state is PodSandboxState.NOTREADY
        assert one.pod_uid
        assert one.labelled
        assert one.id not in {c.sandbox_id for c in listing.containers}
        newer = [
            s
            for s in by_id.values()
            if s.pod_uid == one.pod_uid and s.created_at_ns >= one.created_at_ns
        ]
        assert len(newer) > 1 or pods.gone(one.pod_uid)
        assert verdict.reason is not Reason.POD_GONE or (verdict.age_seconds or 0.0) >= 10.0


@pytest.mark.parametrize(
    ("pods", "going"),
    [
        (ALIVE, ["empty-old"]),
        (UNKNOWN, ["empty-old"]),
        (EMPTY, ["empty-old", "empty-new"]),
    ],
)
def test_empty_sandboxes_of_a_pod(pods: PodStates, going: list[str]) -> None:
    """Of a pod that may exist all but the newest go; of a pod that is gone all, oldest first."""
    pair = (sandbox("empty-new", age_seconds=100.0), sandbox("empty-old", age_seconds=200.0))
    assert removed(plan_sandbox_gc(Listing(sandboxes=pair), pods, POLICY, now_ns=NOW_NS)) == going


@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        (Listing(sandboxes=(sandbox("s", state=PodSandboxState.READY),)), Reason.READY),
        (
            Listing(containers=(container("c", sandbox_id="s"),), sandboxes=(sandbox("s"),)),
            Reason.HAS_CONTAINERS,
        ),
        (Listing(sandboxes=(sandbox("s", labelled=False),)), Reason.NOT_KUBELETS),
        (Listing(sandboxes=(sandbox("s", pod_uid=""),)), Reason.NOT_KUBELETS),
        (Listing(sandboxes=(sandbox("s", age_seconds=9.0),)), Reason.TOO_YOUNG),
        (
            Listing(
                containers=(container("c", state=ContainerState.CREATED),),
                sandboxes=(sandbox("s"),),
            ),
            Reason.NEWEST_SANDBOX,
        ),
    ],
)
def test_a_sandbox_of_a_vanished_pod_is_kept(listing: Listing, reason: Reason) -> None:
    """When it is ready, holds a container of any state, is not a kubelet's, is younger
    than 10 s, or its pod lives.
    """
    assert kept(plan_sandbox_gc(listing, EMPTY, POLICY, now_ns=NOW_NS)) == {"s": reason}


def test_a_listing_without_what_was_planned() -> None:
    """Each kind by its own ids: a container and an image of one id are two things."""
    listing = Listing((image(1),), (container("x"), container("y")), (sandbox("x"),))
    planned = [Verdict(Kind.CONTAINER, "x", "x", Action.REMOVE, Reason.POD_GONE)]
    assert listing.without(planned) == replace(listing, containers=(listing.containers[1],))
    assert listing.without([]) == listing
