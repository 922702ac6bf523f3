"""Nothing goes here that the kubelet's own garbage collection would keep.

The kubelet's rules are written out once more (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, in the mode that eviction
calls), with its default minimum age of 0 and creation times that differ.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from reclaim.container_gc import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.pods import PodStates
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState
from tests.pure.values import NOW_NS, container, sandbox

PODS = PodStates(frozenset({"uid-1", "uid-2"}))


def kubelet_removes_containers(listing: Listing, max_per_pod_container: int) -> set[str]:
    """Evict units of what does not run; whole units of vanished pods, and the oldest beyond the limit of others."""
    units: dict[tuple[str, str], list[Container]] = defaultdict(list)
    for one in listing.containers:
        if one.state is not ContainerState.RUNNING and one.created_at_ns <= NOW_NS:
            units[one.pod_uid, one.name].append(one)
    going: set[str] = set()
    for (uid, _), unit in units.items():
        newest_first = sorted(unit, key=lambda one: one.created_at_ns, reverse=True)
        if uid not in (PODS.present or ()):
            going |= {one.id for one in unit}
        elif max_per_pod_container >= 0:
            going |= {one.id for one in newest_first[max_per_pod_container:]}
    return going


def kubelet_removes_sandboxes(listing: Listing) -> set[str]:
    """Inactive ones: of vanished pods all, of others all but the newest."""
    occupied = {one.sandbox_id for one in listing.containers}
    pods: dict[str, list[PodSandbox]] = defaultdict(list)
    for one in listing.sandboxes:
        pods[one.pod_uid].append(one)
    going: set[str] = set()
    for uid, of_pod in pods.items():
        newest_first = sorted(of_pod, key=lambda one: one.created_at_ns, reverse=True)
        candidates = newest_first if uid not in (PODS.present or ()) else newest_first[1:]
        going |= {s.id for s in candidates if s.state is PodSandboxState.NOTREADY and s.id not in occupied}
    return going


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
            state=draw(st.sampled_from([ContainerState.EXITED, ContainerState.EXITED, *ContainerState])),
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


@given(listings(), st.integers(-1, 3))
def test_every_container_that_goes_the_kubelet_would_remove(listing: Listing, limit: int) -> None:
    """Whatever the number of dead copies to keep."""
    made = plan_container_gc(listing, PODS, ContainerGCPolicy(max_per_pod_container=limit), NOW_NS)
    assert {verdict.id for verdict in made.remove} <= kubelet_removes_containers(listing, limit)


@given(listings())
def test_every_sandbox_that_goes_the_kubelet_would_remove(listing: Listing) -> None:
    """Active ones and the newest of a living pod stay in both."""
    made = plan_sandbox_gc(listing, PODS, ContainerGCPolicy(), NOW_NS)
    assert {verdict.id for verdict in made.remove} <= kubelet_removes_sandboxes(listing)
