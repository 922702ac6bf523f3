"""Which dead containers and sandboxes go, which stay and why, and in which order: beside the
kubelet's own rules, and in tables; and how they are removed, by a runtime that protects nothing.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go` (evictableContainers, evictContainers,
evictSandboxes), `pkg/kubelet/pod_workers.go` (ShouldPodContentBeRemoved,
ShouldPodRuntimeBeRemoved), `container_gc.go` (the policy).
"""

import re
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.containers.plan import NOT_DEAD, ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.evidence.states import PodState, PodStates
from reclaim.function import Ready, Refused
from reclaim.functions.unused_containers import DeadContainers, EmptySandboxes
from reclaim.pod_logs.names import LogPaths
from reclaim.types import (
    Action,
    Container,
    ContainerState,
    Kind,
    Listing,
    Plan,
    PodSandbox,
    PodSandboxState,
    Reason,
    RemovalFailed,
    Rule,
    Verdict,
)
from tests.pure.conftest import EXAMPLES
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import (
    NOW_NS,
    SECOND_NS,
    SteppedClock,
    container,
    pods_known,
    sandbox,
)
from tests.rows import rows

EXITED, NOTREADY = ContainerState.EXITED, PodSandboxState.NOTREADY


def planned(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, *, pressed: bool = True
) -> tuple[Plan, Plan]:
    """The plans of containers and of sandboxes. `pressed`: not of a periodic pass."""
    policy = policy._replace(evict_non_deleted_pods=pressed)
    return (
        plan_container_gc(listing, pods, policy, now_ns=NOW_NS),
        plan_sandbox_gc(listing, pods, policy, now_ns=NOW_NS),
    )


# ---- the kubelet, written once more: it knows no guards, no reasons and no order


def removable(pods: PodStates, uid: str, pressed: bool) -> bool:
    """`ShouldPodContentBeRemoved`, or `ShouldPodRuntimeBeRemoved` with the flag."""
    state = (pods.kubelet or {}).get(uid)
    if state is None:
        return uid not in (pods.present or ())
    return state.evicted or (state.terminated and (state.deleted or pressed))


def kubelet_removes(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, pressed: bool
) -> tuple[set[str], set[str]]:
    """`evictContainers` and `evictSandboxes`, of lists without equal creation times."""
    units: dict[tuple[str, str], list[Container]] = defaultdict(list)
    for one in sorted(listing.containers, key=lambda one: -one.created_at_ns):
        old_enough = one.created_at_ns <= NOW_NS - policy.min_age_seconds * SECOND_NS
        if one.state is not ContainerState.RUNNING and old_enough:
            units[one.pod_uid, one.name].append(one)
    left = list[list[Container]]()
    for (uid, _), unit in units.items():
        if not (pods.sources_ready and removable(pods, uid, pressed)):
            limit = policy.max_per_pod_container
            left.append(unit[:limit] if limit >= 0 else unit)
    limit = policy.max_containers
    if 0 <= limit < sum(map(len, left)):
        share = max(limit // len(left), 1)
        left = [unit[:share] for unit in left]
        loose = sorted((one for unit in left for one in unit), key=lambda one: -one.created_at_ns)
        left = [loose[:limit]]
    stay = {one.id for unit in left for one in unit}
    going = {one.id for unit in units.values() for one in unit} - stay
    occupied = {one.sandbox_id for one in listing.containers}
    by_pod: dict[str, list[PodSandbox]] = defaultdict(list)
    for each in sorted(listing.sandboxes, key=lambda one: -one.created_at_ns):
        by_pod[each.pod_uid].append(each)
    idle = {
        each.id
        for uid, of_pod in by_pod.items()
        for each in of_pod[not removable(pods, uid, pressed) :]
        if each.state is NOTREADY and each.id not in occupied
    }
    return going, idle


uids = st.sampled_from(["", "uid-1", "uid-2", "uid-gone"])


@st.composite
def listings(draw: st.DrawFn) -> Listing:
    """Up to 8 containers and 4 sandboxes, no two made at the same time."""
    ages = iter(draw(st.lists(st.integers(-5, 60), unique=True, min_size=12, max_size=12)))
    containers = tuple(
        container(
            f"c{number}",
            name=draw(st.sampled_from(["app", "init"])),
            state=draw(st.sampled_from([EXITED, EXITED, *ContainerState])),
            pod_uid=draw(uids),
            age_seconds=float(next(ages)),
            sandbox_id=draw(st.sampled_from(["", "s0", "s1"])),
        )
        for number in range(draw(st.integers(0, 8)))
    )
    sandboxes = tuple(
        sandbox(
            f"s{number}",
            state=draw(st.sampled_from(PodSandboxState)),
            pod_uid=draw(uids),
            age_seconds=float(next(ages)),
            labelled=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 4)))
    )
    return Listing(containers=containers, sandboxes=sandboxes)


known = st.builds(
    PodStates,
    present=st.frozensets(uids),
    kubelet=st.dictionaries(
        st.sampled_from(["uid-1", "uid-2"]),
        st.builds(PodState, st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    ),
    sources_ready=st.booleans(),
)
policies = st.builds(
    partial(ContainerGCPolicy),  # of a named tuple it would draw all fields
    min_age_seconds=st.sampled_from([0.0, 0.0, 20.0]),
    max_per_pod_container=st.integers(-1, 3),
    max_containers=st.integers(-1, 6),
)


@given(
    listings(),
    known,
    policies,
    st.booleans(),
    st.sampled_from([*["exact"] * 3, "cautious", "blind", "lost"]),
)
@settings(max_examples=3 * EXAMPLES)
def test_the_plans_are_the_kubelets_without_what_the_guards_keep(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, pressed: bool, how: str
) -> None:
    """Containers and sandboxes, under pressure and periodically: exactly the kubelet's, by its own
    rules. With guards, or without the kubelet's state (its pods are then those with a directory),
    or without directories, nothing goes that it would keep. What goes then has exited, is a
    kubelet's, and leaves a newer copy of a pod that may exist; of a pod that is gone nothing may
    run, and it has settled. Each kept object says whose rule keeps it."""
    listed = how in ("exact", "cautious")
    present = None if how == "lost" else pods.present
    seen = pods if listed else PodStates(present)
    alive = dict.fromkeys(
        ["uid-1", "uid-2", "uid-gone"] if how == "lost" else present or (), PodState()
    )
    truth = pods if listed else PodStates(present, alive)
    plans = planned(listing, seen, policy._replace(cautious=how == "cautious"), pressed=pressed)
    kubelets = kubelet_removes(listing, truth, policy, pressed)
    objects = {one.id: one for one in listing.parts}
    verdicts = [verdict for plan in plans for verdict in (*plan.remove, *plan.keep)]
    assert sorted(verdict.id for verdict in verdicts) == sorted(objects)
    kinds = {verdict.id[0]: verdict.kind for verdict in verdicts}
    assert kinds.items() <= {"c": Kind.CONTAINER, "s": Kind.SANDBOX}.items()
    running = {one.pod_uid for one in listing.parts if one.state not in (EXITED, NOTREADY)}
    occupied = {one.sandbox_id for one in listing.containers}
    for plan, by_kubelet in zip(plans, kubelets, strict=True):
        going = {verdict.id for verdict in plan.remove}
        assert going <= by_kubelet
        by_guard = {verdict.id for verdict in plan.keep if verdict.rule is Rule.GUARD}
        assert not listed or by_kubelet - going <= by_guard
        if how == "exact":
            assert {verdict.rule for verdict in (*plan.remove, *plan.keep)} <= {Rule.KUBELET}
            continue
        for verdict in plan.remove:
            one = objects[verdict.id]
            assert one.state in (EXITED, NOTREADY)
            assert one.pod_uid
            assert isinstance(one, Container) or (one.labelled and one.id not in occupied)
            if verdict.reason is Reason.POD_GONE:
                assert seen.gone(one.pod_uid)
                assert one.pod_uid not in running
                assert NOW_NS - one.created_at_ns >= 10 * SECOND_NS
            if isinstance(one, Container) and verdict.reason in (
                Reason.OLDER_COPY,
                Reason.OVER_LIMIT,
            ):
                assert verdict.superseded_by in objects.keys() - going
                assert objects[verdict.superseded_by].created_at_ns > one.created_at_ns


# ---- in words

PODS = pods_known("pod")
PARTS = re.compile(r"(-?[A-Z])(\d+)([rcu]?)")
LETTERS = {"": EXITED} | {
    state.value[0].lower(): state for state in ContainerState if state is not EXITED
}


def dead(text: str) -> tuple[Container, ...]:
    """Containers of one pod, written as unit and creation time, 100 being now: `A1 A2r B5`. A
    letter is a state other than EXITED; a minus stands for a container without a pod."""
    return tuple(
        container(
            f"{unit}{time}{letter}",
            name=unit,
            pod_uid="" if unit.startswith("-") else "pod",
            age_seconds=100.0 - int(time),
            state=LETTERS[letter],
        )
        for unit, time, letter in PARTS.findall(text)
    )


def told(plan: Plan) -> str:
    """What goes, in order, and why the rest stays."""
    goes = " ".join(verdict.id for verdict in plan.remove)
    stays = defaultdict[str, list[str]](list)
    for verdict in sorted(plan.keep, key=lambda verdict: verdict.id):
        stays[verdict.reason].append(verdict.id)
    return "; ".join([goes, *(f"{reason}: {' '.join(stays[reason])}" for reason in sorted(stays))])


@rows("""
    pods       | limits  | containers              | expected                                                     | what
    present    | 1 -1    | A1 A2 A3 B4 B5 C6       | A1 A2 B4; newest_of_live_pod: A3 B5 C6                       | of each the newest copy
    present    | -1 -1   | A1 A2                   | ; newest_of_live_pod: A2; within_limit: A1                   | no limit
    present    | 0 -1    | A1 A2                   | A1; newest_of_live_pod: A2                                   | 0 keeps one nevertheless
    present    | 2 -1    | A1 A2 A3                | A1; newest_of_live_pod: A3; within_limit: A2                 | two copies
    present    | -1 0    | A1 A2 A3 B4             | A1 A2; newest_of_live_pod: A3 B4                             | whatever the limits say
    unreadable | 1 -1    | A1 A2                   | A1; newest_of_live_pod: A2                                   | directories say nothing
    present    | 1 -1    | A1 A2r A3c A4u A5       | A1; created: A3c; newest_of_live_pod: A5; running: A2r; unknown_state: A4u | only EXITED is dead
    absent     | 1 -1    | A1 A2r A3               | A1; newest_of_live_pod: A3; running: A2r                     | something of the pod runs
    absent     | 1 -1    | A1 A3 A2                | A1 A2 A3                                                     | a pod that is gone
    present    | 1 -1    | -A1 -A2                 | ; not_kubelets: -A1 -A2                                      | made by hand
    absent     | 1 -1    | A90 A91 A160            | A90; too_young: A160 A91                                     | settled for 10 s, none in the future
    present    | 1 -1 60 | A1 A30 A95 A99          | A1; newest_of_live_pod: A99; too_young: A95; within_limit: A30 | young ones do not count
    absent     | 1 -1 60 | A40 A41                 | A40; too_young: A41                                          | the minimum age is inclusive
    alive      | 2 3     | A1 A2 A3 A4 B5          | A1 A2; newest_of_live_pod: A4 B5; within_limit: A3           | B: the oldest beyond the limit
    alive      | -1 4    | A1 A2 A3 A4 A5 B6 C7    | A1 A2 A3 A4; newest_of_live_pod: A5 B6 C7                    | C: the share is rounded down
    alive      | -1 6    | A1 A2 A3 A4 B5 B6 B7 B8 | A1 B5; newest_of_live_pod: A4 B8; within_limit: A2 A3 B6 B7  | C: a share of three
    alive      | 3 4     | A1 A2 A3 B4 B5 C6       | A1 A2 B4; newest_of_live_pod: A3 B5 C6                       | C may remove more than needed
    alive      | 1 2     | A10 B20 C30             | A10; newest_of_live_pod: B20 C30                             | D beats B
    alive      | 1 0     | A1 B2                   | A1 B2                                                        | D: none is kept on the node
    alive      | 0 -1    | A1 A2c A3u A4r          | A1 A2c A3u; running: A4r                                     | CREATED and UNKNOWN are evictable
    alive      | 1 -1    | -A1                     | -A1                                                          | no pod is a removed pod
    alive      | -1 2 60 | A1 A2 A3 B4 A99 C99     | A1 A2; newest_of_live_pod: B4; too_young: A99 C99; within_limit: A3 | young ones count nowhere
    not-ready  | 1 -1    | A1 A2 A3                | A1 A2; newest_of_live_pod: A3                                | step A is skipped
""")
def test_what_becomes_of_the_dead_containers_of_a_pod(
    pods: str, limits: str, containers: str, expected: str
) -> None:
    """Limits are of copies of a container, of dead ones on the node, and the minimum age. With the
    kubelet's state known its rules apply, A to D; without it the guards."""
    copies, node, *age = map(int, limits.split())
    policy = ContainerGCPolicy(float(sum(age)), copies, node)
    plan, _ = planned(Listing(containers=dead(containers)), PODS[pods], policy)
    assert told(plan) == expected


def test_what_a_verdict_says() -> None:
    """How long what is too young has to wait; the state of what has to be stopped first. The
    attempt number plays no part but among equals, and a container without a creation time is
    young. Which limit a copy goes for."""
    equal = [container(f"{9 - each}", attempt=each, pod_uid="pod") for each in (1, 2, 0)]
    undated = [each._replace(created_at_ns=0) for each in dead("A1")]
    young, lost, copies, new = (
        planned(Listing(containers=tuple(containers)), PODS[pods], ContainerGCPolicy())[0]
        for pods, containers in (
            ("absent", dead("A96")),
            ("unlisted", dead("A1u")),
            ("present", equal),
            ("absent", undated),
        )
    )
    assert young.eligible_in_seconds == pytest.approx(6.0)
    assert [each.state for each in lost.remove] == [ContainerState.UNKNOWN]
    assert (told(copies), told(new)) == ("8 9; newest_of_live_pod: 7", "; too_young: A1")
    listing = Listing(containers=dead("A1 A2 A3 A4 A5 B6 C7"))
    for limits, reason in (((1, -1), Reason.OLDER_COPY), ((-1, 4), Reason.OVER_LIMIT)):
        plan, _ = planned(listing, PODS["alive"], ContainerGCPolicy(0.0, *limits))
        assert [each.reason for each in plan.remove] == [reason] * 4


def test_a_static_pod_that_has_terminated_keeps_its_newest_copy_and_sandbox() -> None:
    """A kubelet that restarts would run it again. Only where all is to go as the kubelet does it do
    they go."""
    pair = (sandbox("old", pod_uid="pod", age_seconds=9e4), sandbox("new", pod_uid="pod"))
    listing = Listing(containers=dead("A1 A2"), sandboxes=pair)
    plans = planned(listing, PODS["static"], ContainerGCPolicy(cautious=True))
    assert [told(plan) for plan in plans] == [
        "A1; newest_of_live_pod: A2",
        "old; newest_sandbox: new",
    ]


@rows("""
    pods       | sandboxes | expected                 | what
    present    | S1 S2     | S1; newest_sandbox: S2   | of a pod that may exist all but the newest
    unreadable | S1 S2     | S1; newest_sandbox: S2   | nothing is known
    absent     | S2 S1     | S1 S2                    | of a pod that is gone all, oldest first
    absent     | S1 S91    | S1; too_young: S91       | settled for 10 s
    absent     | S1r       | ; ready: S1r             | READY
    absent     | S1 A2c    | ; newest_sandbox: S1     | something of the pod may start
    absent     | O1 A2     | ; has_containers: O1     | it holds a container
    absent     | U1        | ; not_kubelets: U1       | without the kubelet's labels
    absent     | -S1       | ; not_kubelets: -S1      | without a pod
    alive      | S98 S99   | S98; newest_sandbox: S99 | at any age
    alive      | S1 S2 S3r | S1 S2; ready: S3r        | a ready one protects no others
    unlisted   | S1r       | ; ready: S1r             | of a deleted pod neither
    not-ready  | S1        | S1                       | though not all sources are ready
""")
def test_what_becomes_of_the_sandboxes_of_a_pod(pods: str, sandboxes: str, expected: str) -> None:
    """Written as containers are: `r` is READY, `O` is occupied, `U` has no labels, `A` is a
    container."""
    made = tuple(
        sandbox(
            f"{kind}{time}{letter}",
            pod_uid="" if kind.startswith("-") else "pod",
            age_seconds=100.0 - int(time),
            state=PodSandboxState.READY if letter else NOTREADY,
            labelled=kind != "U",
        )
        for kind, time, letter in PARTS.findall(sandboxes)
        if kind != "A"
    )
    containers = tuple(
        each._replace(sandbox_id="O1") for each in dead(sandboxes) if each.name == "A"
    )
    listing = Listing(containers=containers, sandboxes=made)
    _, plan = planned(listing, PODS[pods], ContainerGCPolicy())
    assert told(plan) == expected


ORPHAN = Verdict(Kind.CONTAINER, "old", "old", Action.REMOVE, Reason.POD_GONE, pod_uid="uid-1")
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


def test_a_status_counts_for_50_ms() -> None:
    """After a look at directories that took longer it is read once more."""
    node = Node()
    node.pods.on_look = lambda: node.clock.step(0.06)
    for verdict in (ORPHAN, ORPHAN_SANDBOX):
        began = node.clock.monotonic()
        assert node.stage_of(verdict).check(verdict) == Ready(began + 0.06)


def test_a_sandbox_that_is_occupied_or_ready_by_now_stays() -> None:
    """Whatever was planned."""
    node = Node()
    node.runtime.hold(container("c", sandbox_id="s"))
    assert node.sandboxes.check(ORPHAN_SANDBOX) == Refused(Reason.HAS_CONTAINERS)
    node.runtime.hold(sandbox("s", state=PodSandboxState.READY))
    assert node.sandboxes.check(ORPHAN_SANDBOX) == Refused(Reason.READY)


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


@rows("""
    what                        | planned | calls                                                       | log
    a container                 | EXITED  | remove_container old                                        | gone
    one that must have exited   | UNKNOWN | stop_container old 2, container_status, remove_container old | there gone
    a sandbox frees its network |         | stop_pod_sandbox s, remove_pod_sandbox s                    |
""")
def test_a_removal_is_one_call_with_the_whole_id(
    tmp_path: Path, planned: ContainerState | None, calls: str, log: str
) -> None:
    """Stopped first where that is needed; the log goes before the container, and not before it is
    known to have exited (kubelet: removeContainer in kuberuntime_container.go). Then it is
    absent."""
    node, seen, verdict = Node(tmp_path), list[str](), ORPHAN_SANDBOX
    if planned is not None:
        node.runtime.set_state("old", planned)
        verdict = ORPHAN._replace(state=planned)
    stage = node.stage_of(verdict)
    stage.check(verdict)
    node.runtime.calls.clear()
    for call in ("stop_container old 2", "remove_container old"):
        node.runtime.on_call[call] = lambda: seen.append("there" if node.log.exists() else "gone")
    stage.remove(verdict)
    assert (", ".join(node.runtime.calls), " ".join(seen)) == (calls, log)
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
