"""Whether the kubelet's directories are believed: a table of cases, and what
holds for all of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reclaim.containers.plan import (
    ContainerGCPolicy,
    LogEntry,
    plan_container_gc,
    plan_pod_logs,
    plan_sandbox_gc,
)
from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.states import PodState, PodStates, RootIdentity, Why, distrust_of
from reclaim.kubelet.pods import KubeletPods
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState, Reason
from tests.pure.values import NOW_NS, SteppedClock, container, sandbox

WHERE = "/var/lib/kubelet/pods"
HERE, THERE = RootIdentity((1, 2), (1, 3)), RootIdentity((9, 2), (9, 3))
UIDS = ("one", "two", "three", "four")
EXITED, RUNNING = ContainerState.EXITED, ContainerState.RUNNING
READY, NOTREADY = PodSandboxState.READY, PodSandboxState.NOTREADY
LIVE, OVER = PodState(), PodState(terminated=True)


def held(*objects: Container | PodSandbox) -> Listing:
    """What the runtime holds."""
    return Listing(
        containers=tuple(each for each in objects if isinstance(each, Container)),
        sandboxes=tuple(each for each in objects if isinstance(each, PodSandbox)),
    )


def runs(uid: str, age_seconds: float = 3600.0) -> Container:
    """A container that runs."""
    return container(f"c-{uid}", state=RUNNING, pod_uid=uid, age_seconds=age_seconds)


def dead(uid: str) -> Container:
    """A container that has exited."""
    return container(f"d-{uid}", pod_uid=uid)


def why(
    present: str | None,
    listing: Listing | None,
    believed: RootIdentity | None = None,
    **states: object,
) -> str:
    """Why the directories of these pods, written with spaces, are not believed;
    empty if they are.
    """
    read = PodStates(None if present is None else frozenset(present.split()), identity=HERE)
    found = distrust_of(replace(read, **states), listing, believed, path=WHERE, now_ns=NOW_NS)  # type: ignore[arg-type] # fields
    assert found is None or found.sentence.endswith(", so which pods are gone is not known")
    return "" if found is None else found.why


@pytest.mark.parametrize(
    ("present", "objects", "expected"),
    [
        ("one", [runs("one"), dead("two")], ""),
        ("one", [dead("one"), dead("two")], ""),
        ("one", [sandbox("s", pod_uid="one")], ""),
        ("one", [runs("one"), runs("two")], Why.RUNS_WITHOUT),
        ("one", [runs("one"), runs("two", age_seconds=0.0)], Why.RUNS_WITHOUT),
        ("one", [dead("one"), sandbox("s", state=READY, pod_uid="two")], Why.RUNS_WITHOUT),
        ("one", [dead("one"), sandbox("s", state=READY, pod_uid="two", labelled=False)], ""),
        ("one", [dead("one"), runs("")], ""),
        ("one", [dead("one"), container("c", state=ContainerState.UNKNOWN, pod_uid="two")], ""),
        ("one", [dead("one"), container("c", state=ContainerState.CREATED, pod_uid="two")], ""),
        ("", [dead("one")], Why.EXPLAINS_NOTHING),
        ("foreign", [dead("one"), dead("two")], Why.EXPLAINS_NOTHING),
        ("one", [], Why.NOTHING_HELD),
        ("", [], Why.NOTHING_HELD),
        ("", [dead("")], Why.NOTHING_HELD),
    ],
)
def test_directories_are_believed_while_they_explain_what_the_runtime_holds(
    present: str, objects: list[Container | PodSandbox], expected: str
) -> None:
    """All that runs, and one pod at least.

    What is not a kubelet's needs no directory and proves none.
    """
    assert why(present, held(*objects)) == expected


def test_without_directories_or_lists_nothing_is_believed() -> None:
    """Neither can stand for the other."""
    assert why(None, held(runs("one"))) == Why.UNREADABLE
    assert why("one", None) == Why.NOT_COMPARED


@pytest.mark.parametrize(
    ("present", "objects", "kubelet", "complete", "expected"),
    [
        ("", [dead("one")], {}, True, ""),
        ("", [dead("one")], {"two": OVER}, True, ""),
        ("", [dead("one")], {"one": OVER}, True, ""),
        ("", [dead("one")], {}, False, Why.EXPLAINS_NOTHING),
        ("", [dead("one")], {"one": LIVE}, True, Why.EXPLAINS_NOTHING),
        ("one", [dead("one"), dead("two")], {"two": LIVE}, True, Why.EXPLAINS_NOTHING),
        ("one", [dead("one"), dead("two")], {"one": LIVE, "two": LIVE}, True, ""),
        ("one", [dead("one")], {"one": LIVE, "new": LIVE}, True, ""),
        ("", [runs("one")], {}, True, Why.RUNS_WITHOUT),
        ("one", [dead("one"), runs("two")], {"one": LIVE, "two": LIVE}, True, Why.RUNS_WITHOUT),
    ],
)
def test_the_kubelets_list_explains_and_contradicts(
    present: str,
    objects: list[Container | PodSandbox],
    kubelet: dict[str, PodState],
    complete: bool,
    expected: str,
) -> None:
    """A complete list explains that nothing has a directory; live pods of it that are
    held have one, one at least.
    """
    assert why(present, held(*objects), kubelet=kubelet, sources_ready=complete) == expected


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([dead("one")], Why.EXCHANGED),
        ([runs("one", age_seconds=9.0)], Why.EXCHANGED),
        ([runs("one", age_seconds=-60.0)], Why.EXCHANGED),
        ([runs("one")._replace(created_at_ns=0)], Why.EXCHANGED),
        ([runs("one", age_seconds=10.0)], ""),
        ([sandbox("s", state=READY, pod_uid="one")], ""),
    ],
)
def test_other_directories_must_explain_what_has_run_for_a_while(
    objects: list[Container | PodSandbox], expected: str
) -> None:
    """At least 10 s. The directories that were believed before need not."""
    assert why("one", held(*objects), THERE) == expected
    assert why("one", held(*objects), HERE) == ""


def test_the_sentence_names_pod_and_directory() -> None:
    """One sentence, with the first pod and how many more."""
    listing = held(
        runs("one")._replace(pod_name="web"), runs("two")._replace(pod_name="api"), dead("three")
    )
    long = distrust_of(
        PodStates(frozenset()),
        held(runs("one")._replace(pod_name="x" * 10**6)),
        None,
        path=WHERE,
        now_ns=NOW_NS,
    )
    assert long is not None
    assert len(long.sentence) < 500
    found = distrust_of(PodStates(frozenset({"three"})), listing, None, path=WHERE, now_ns=NOW_NS)
    assert found is not None
    assert (
        found.sentence
        == "the pod default/api (and 1 more) runs without a directory in /var/lib/kubelet/pods, "
        "so which pods are gone is not known"
    )


uids = st.sampled_from(UIDS)
ages = st.floats(0.0, 7200.0)
containers = st.builds(
    lambda number, uid, state, age: container(
        f"c{number}", pod_uid=uid, state=state, age_seconds=age
    ),
    st.integers(0, 99),
    st.sampled_from(("", *UIDS)),
    st.sampled_from(ContainerState),
    ages,
)
sandboxes = st.builds(
    lambda number, uid, state, age: sandbox(
        f"s{number}", pod_uid=uid, state=state, age_seconds=age
    ),
    st.integers(0, 99),
    uids,
    st.sampled_from(PodSandboxState),
    ages,
)
listings = st.builds(
    lambda c, s: Listing(containers=tuple(c), sandboxes=tuple(s)),
    st.lists(containers, max_size=6, unique_by=lambda each: each.id),
    st.lists(sandboxes, max_size=6, unique_by=lambda each: each.id),
)
lists = st.none() | st.dictionaries(
    uids, st.builds(PodState, st.booleans(), st.booleans(), st.booleans())
)
directories = st.builds(
    PodStates,
    present=st.none() | st.frozensets(uids),
    kubelet=lists,
    sources_ready=st.booleans(),
    identity=st.sampled_from([HERE, THERE]),
)
policies = st.builds(
    ContainerGCPolicy,
    max_per_pod_container=st.integers(-1, 2),
    max_containers=st.integers(-1, 4),
    cautious=st.booleans(),
)


def running(listing: Listing) -> set[str]:
    """The UIDs of the kubelet's pods of which something runs."""
    of_containers = {
        each.pod_uid for each in listing.containers if each.state is RUNNING and each.pod_uid
    }
    return of_containers | {each.pod_uid for each in listing.sandboxes if each.state is READY}


def compared(states: PodStates, listing: Listing, believed: RootIdentity | None) -> PodStates:
    """The states as they are planned with."""
    return replace(states, doubt=distrust_of(states, listing, believed, path=WHERE, now_ns=NOW_NS))


@given(directories, listings, st.sampled_from([None, HERE, THERE]), policies, st.booleans())
@example(
    PodStates(frozenset(), None), held(runs("one"), dead("two")), None, ContainerGCPolicy(), True
)
@example(
    PodStates(frozenset({"three"}), {}),
    held(runs("one"), dead("two")),
    None,
    ContainerGCPolicy(),
    True,
)
def test_nothing_is_gone_while_something_runs_without_its_directory(
    states: PodStates,
    listing: Listing,
    believed: RootIdentity | None,
    policy: ContainerGCPolicy,
    pressed: bool,
) -> None:
    """For no containers, sandboxes and directories: neither by the states, nor
    in any of the three plans.
    """
    pods = compared(states, listing, believed)
    lost = running(listing) - (states.present or frozenset())
    entries = [LogEntry(f"default_pod_{uid}".encode(), (1, 1), 0) for uid in UIDS]
    plans = [
        plan_container_gc(
            listing, pods, replace(policy, evict_non_deleted_pods=pressed), now_ns=NOW_NS
        ),
        plan_sandbox_gc(
            listing, pods, replace(policy, evict_non_deleted_pods=pressed), now_ns=NOW_NS
        ),
        plan_pod_logs(entries, pods, policy, in_runtime=frozenset(), now_ns=NOW_NS),
    ]
    gone = [
        verdict for plan in plans for verdict in plan.remove if verdict.reason == Reason.POD_GONE
    ]
    if lost or pods.doubt is not None:
        assert pods.doubt is not None
        assert not any(pods.gone(uid) for uid in ("", *UIDS))
        assert gone == []
    for verdict in gone:
        assert verdict.pod_uid not in (states.present or ())
        assert verdict.pod_uid not in running(listing)


@settings(max_examples=500)
@given(directories, listings, st.sampled_from([None, HERE, THERE]), policies)
def test_a_doubt_only_keeps(
    states: PodStates, listing: Listing, believed: RootIdentity | None, policy: ContainerGCPolicy
) -> None:
    """Whatever goes with a doubt would go without it, or as soon as it is old enough.
    What is left of pods of which nothing is known counts towards no limit, so that
    nothing else goes in its place."""
    pods = compared(states, listing, believed)
    for planner in (plan_container_gc, plan_sandbox_gc):
        doubted, certain = (
            planner(listing, each, replace(policy, evict_non_deleted_pods=True), now_ns=NOW_NS)
            for each in (pods, states)
        )
        young = {verdict.id for verdict in certain.keep if verdict.reason == Reason.TOO_YOUNG}
        assert {verdict.id for verdict in doubted.remove} <= {
            verdict.id for verdict in certain.remove
        } | young
        assert all(
            verdict.reason != Reason.POD_GONE
            for verdict in doubted.remove
            if pods.doubt is not None
        )


@given(st.frozensets(uids, min_size=1), listings, ages)
def test_the_right_directories_are_believed_again(
    present: frozenset[str], listing: Listing, age: float
) -> None:
    """After any change of the root, as soon as a pod runs in the new one and nothing runs outside
    it: never for ever in doubt."""
    inside = Listing(
        containers=tuple(each for each in listing.containers if each.pod_uid in present),
        sandboxes=tuple(each for each in listing.sandboxes if each.pod_uid in present),
    )
    settled = runs(min(present), age_seconds=10.0 + age)
    assert (
        why(" ".join(present), replace(inside, containers=(*inside.containers, settled)), THERE)
        == ""
    )


class Source(KubeletDirectories):
    """The kubelet's directories in memory, which a test exchanges."""

    def __init__(self, *uids: str):
        super().__init__("/var/lib/kubelet")
        self.present: frozenset[str] | None = frozenset(uids)
        self.at: RootIdentity | None = HERE

    def pod_states(self) -> PodStates:
        """All."""
        return PodStates(self.present, identity=self.at)


class Kept:
    """A provider over such a source."""

    def __init__(self) -> None:
        self.source = Source("one")
        self.pods = KubeletPods(self.source, SteppedClock())

    def compare(self, *objects: Container | PodSandbox) -> PodStates:
        """One comparison."""
        return self.pods.compared(self.pods.read().merge(self.pods.read()), held(*objects))

    @property
    def why(self) -> str:
        """Why there is a doubt; empty if there is none."""
        return "" if self.pods.doubt is None else self.pods.doubt.why


def test_before_the_first_comparison_nothing_is_gone() -> None:
    """Neither in the list of all nor one by one."""
    kept = Kept()
    assert kept.why == Why.NOT_COMPARED
    assert not kept.pods.pod_states().gone("two")
    assert not kept.pods.gone("two")
    assert kept.compare(runs("one")).gone("two")
    assert kept.pods.pod_states().gone("two")
    assert kept.pods.gone("two")


@pytest.mark.parametrize("at", [THERE, None])
def test_a_check_in_other_directories_is_a_doubt(at: RootIdentity | None) -> None:
    """Belief was given on one root.

    On another, or on none, no pod is gone until the first is back and compared.
    """
    kept = Kept()
    kept.compare(runs("one"))
    kept.source.at = at
    assert not kept.pods.pod_states().gone("two")
    assert not kept.pods.gone("two")
    assert kept.why == (Why.EXCHANGED if at else Why.UNREADABLE)
    kept.source.at = HERE
    assert not kept.pods.gone("two")
    assert kept.compare(dead("one")).gone("two")
    assert kept.pods.gone("two")


def test_a_pod_that_has_appeared_is_no_doubt() -> None:
    """The directories are still the same."""
    kept = Kept()
    kept.compare(runs("one"))
    assert not kept.pods.gone("one")
    assert kept.why == ""


def test_a_doubt_stays_until_the_next_comparison() -> None:
    """Missing lists neither give belief nor take it; what was read with them is not believed."""
    kept = Kept()
    assert kept.pods.compared(kept.pods.read(), None).doubt is not None
    kept.compare(runs("one"), runs("two"))
    assert kept.why == Why.RUNS_WITHOUT
    kept.compare(runs("one"))
    assert kept.why == ""
    assert not kept.pods.compared(kept.pods.read(), None).gone("two")
    assert kept.why == ""


def test_directories_that_are_exchanged_between_two_readings_are_unknown() -> None:
    """A list from the one and a list from the other are no list."""
    kept = Kept()
    before = kept.pods.read()
    kept.source.at = THERE
    both = kept.pods.compared(before.merge(kept.pods.read()), held(runs("one")))
    assert both.doubt is not None
    assert both.doubt.why == Why.EXCHANGED
    assert not both.gone("two")
