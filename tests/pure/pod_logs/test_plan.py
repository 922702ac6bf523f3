"""Which log directories and log symlinks are removed: the kubelet's rules, one by
one, and the stricter guards.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go` (evictPodLogsDirectories),
`helpers.go`, `legacy.go`.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.containers.plan import (
    ContainerGCPolicy,
    LogEntry,
    NoState,
    StatusAnswer,
    plan_log_symlinks,
    plan_pod_logs,
)
from reclaim.evidence.states import PodState, PodStates, Why, distrust
from reclaim.pod_logs.names import (
    container_id_of_symlink,
    container_log_location,
    is_kubelets_symlink,
    symlink_name,
    uid_of_kubelets_log_directory,
)
from reclaim.types import Action, ContainerState, Kind, Plan, Reason, Rule
from tests.pure.values import NOW_NS, SECOND_NS

UID = "6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
KUBELETS, CAUTIOUS = ContainerGCPolicy(cautious=False), ContainerGCPolicy(cautious=True)
UNKNOWN_KUBELET = PodStates(frozenset())
ID = "a1b2c3d4e5f6" + "0" * 52


def entry(name: str | bytes, age_seconds: float = 3600.0) -> LogEntry:
    """An entry of the pod log root that changed `age` seconds ago."""
    raw = name if isinstance(name, bytes) else name.encode()
    return LogEntry(raw, (1, hash(raw)), NOW_NS - int(age_seconds * SECOND_NS))


def planned(
    *entries: LogEntry,
    pods: PodStates,
    policy: ContainerGCPolicy = CAUTIOUS,
    in_runtime: frozenset[str] | None = frozenset(),
) -> Plan:
    """The plan for these entries."""
    return plan_pod_logs(entries, pods, policy, in_runtime=in_runtime, now_ns=NOW_NS)


def verdict(plan: Plan) -> tuple[Action, str, Rule]:
    """The verdict on the one object of a plan."""
    (only,) = plan.remove + plan.keep
    return only.action, only.reason, only.rule


def knows(**states: PodState) -> PodStates:
    """The states from a kubelet that lists these pods; `_` stands for `-` in a UID."""
    return PodStates(frozenset(), {uid.replace("_", "-"): state for uid, state in states.items()})


# ---- directories, as the kubelet


@pytest.mark.parametrize(
    ("state", "action", "reason"),
    [
        (PodState(), Action.KEEP, Reason.POD_ALIVE),
        (PodState(terminated=True), Action.KEEP, Reason.POD_ALIVE),
        (PodState(deleted=True), Action.KEEP, Reason.POD_ALIVE),
        (PodState(deleted=True, terminated=True), Action.REMOVE, Reason.POD_TERMINATED),
        (PodState(evicted=True), Action.REMOVE, Reason.POD_EVICTED),
    ],
)
@pytest.mark.parametrize("policy", [KUBELETS, CAUTIOUS])
def test_of_a_pod_that_the_kubelet_knows_its_word_counts(
    state: PodState, action: Action, reason: Reason, policy: ContainerGCPolicy
) -> None:
    """Content is removed when the pod was evicted, or deleted and terminated; with or without
    guards, however young the entry, and whatever the runtime has."""
    plan = planned(
        entry("ns_name_u", 0.0), pods=knows(u=state), policy=policy, in_runtime=frozenset("u")
    )
    assert verdict(plan) == (action, reason, Rule.KUBELET)


@pytest.mark.parametrize("name", ["ns_name_u", "ns_name_u.tmp"])
def test_what_the_kubelet_does_not_know_is_removed(name: str) -> None:
    """Whatever its age, a file as well as a directory, also while the runtime
    has something of the pod.
    """
    plan = planned(entry(name, 0.0), pods=knows(), policy=KUBELETS, in_runtime=frozenset({"u"}))
    assert verdict(plan) == (Action.REMOVE, Reason.POD_GONE, Rule.KUBELET)


@pytest.mark.regression
@pytest.mark.parametrize("policy", [KUBELETS, CAUTIOUS])
@pytest.mark.parametrize(
    "name", ["u", "lost+found", "a_", "b\nc", "alice", "ns_name_", "ns_name_u_x", "NS_name_u"]
)
@pytest.mark.parametrize("state", [None, PodState(evicted=True)])
def test_what_is_not_named_as_the_kubelet_names_it_is_kept(
    name: str, policy: ContainerGCPolicy, state: PodState | None
) -> None:
    """In every mode: if another directory is in the place of the root, its
    entries are somebody else's.
    """
    pods = knows() if state is None else knows(u=state)
    assert verdict(planned(entry(name), pods=pods, policy=policy)) == (
        Action.KEEP,
        Reason.NOT_KUBELETS,
        Rule.GUARD,
    )


@pytest.mark.parametrize("policy", [KUBELETS, CAUTIOUS])
def test_before_all_sources_are_ready_nothing_is_removed(policy: ContainerGCPolicy) -> None:
    """Not even what was evicted."""
    pods = PodStates(frozenset(), {"u": PodState(evicted=True)}, sources_ready=False)
    plan = planned(
        entry("ns_name_u"), entry("ns_name_v"), entry("lost+found"), pods=pods, policy=policy
    )
    assert plan.remove == ()
    assert {kept.reason for kept in plan.keep} == {Reason.HELD_OFF}


def test_a_pod_directory_speaks_against_a_kubelet_that_does_not_know_the_pod() -> None:
    """The directory is made first: the pod may be about to start."""
    plan = planned(entry("ns_name_u"), pods=PodStates(frozenset({"u"}), {}), policy=KUBELETS)
    assert verdict(plan) == (Action.KEEP, Reason.POD_ALIVE, Rule.GUARD)


# ---- directories, guarded


@pytest.mark.parametrize(
    "pods", [UNKNOWN_KUBELET, knows(other=PodState())], ids=["kubelet unknown", "cautious"]
)
@pytest.mark.parametrize(
    ("name", "age_seconds", "in_runtime", "action", "reason"),
    [
        (f"ns_name_{UID}", 3600.0, frozenset(), Action.REMOVE, Reason.POD_GONE),
        (f"ns_name_{UID}", 10.0, frozenset(), Action.REMOVE, Reason.POD_GONE),
        (f"ns_name_{UID}", 9.9, frozenset(), Action.KEEP, Reason.TOO_YOUNG),
        (f"ns_name_{UID}", -60.0, frozenset(), Action.KEEP, Reason.TOO_YOUNG),
        (f"ns_name_{UID}", 3600.0, frozenset({UID}), Action.KEEP, Reason.HAS_CONTAINERS),
        (f"ns_name_{UID}", 3600.0, None, Action.KEEP, Reason.INCOMPLETE_LISTING),
        ("lost+found", 3600.0, frozenset(), Action.KEEP, Reason.NOT_KUBELETS),
        (UID, 3600.0, frozenset(), Action.KEEP, Reason.NOT_KUBELETS),
        (f"name_{UID}", 3600.0, frozenset(), Action.KEEP, Reason.NOT_KUBELETS),
        (f"ns_name_{UID}_old", 3600.0, frozenset(), Action.KEEP, Reason.NOT_KUBELETS),
        ("ns_name_", 3600.0, frozenset(), Action.KEEP, Reason.NOT_KUBELETS),
    ],
)
def test_what_the_kubelet_has_not_told_about_is_guarded(
    pods: PodStates,
    name: str,
    age_seconds: float,
    in_runtime: frozenset[str] | None,
    action: Action,
    reason: Reason,
) -> None:
    """Removed is only a name of the kubelet's form, of a pod without directory and
    containers, 10 s unchanged.
    """
    plan = planned(entry(name, age_seconds), pods=pods, in_runtime=in_runtime)
    assert verdict(plan) == (action, reason, Rule.GUARD)


def test_too_young_says_from_when_on_it_may_be_removed() -> None:
    """An entry that changed 4 s ago may be removed in 6 s."""
    plan = planned(entry(f"ns_name_{UID}", 4.0), pods=UNKNOWN_KUBELET)
    assert plan.eligible_in_seconds == pytest.approx(6.0)


@pytest.mark.parametrize("pods", [PodStates(frozenset({UID})), PodStates(None)])
def test_a_pod_that_exists_or_may_exist_keeps_its_logs(pods: PodStates) -> None:
    """Its directory is there, or the kubelet's directories cannot be read."""
    assert verdict(planned(entry(f"ns_name_{UID}"), pods=pods)) == (
        Action.KEEP,
        Reason.POD_ALIVE,
        Rule.GUARD,
    )


def test_while_the_directories_are_doubted_the_logs_of_a_pod_without_one_stay() -> None:
    """The word says that it is the doubt that keeps them; believed, the
    same directories let them go.
    """
    doubted = replace(UNKNOWN_KUBELET, doubt=distrust(Why.EXPLAINS_NOTHING, "pods is empty"))
    assert verdict(planned(entry(f"ns_name_{UID}"), pods=doubted)) == (
        Action.KEEP,
        Reason.POD_UNKNOWN,
        Rule.GUARD,
    )
    assert verdict(planned(entry(f"ns_name_{UID}"), pods=UNKNOWN_KUBELET))[0] is Action.REMOVE


@pytest.mark.parametrize(
    "name",
    [
        b"NS_name_u",
        b"ns_-name_u",
        b"ns_name._u",
        b"n.s_name_u",
        b"ns_na me_u",
        b"ns_name_\xff",
        b"ns__u",
        b"__",
    ],
)
def test_a_form_that_no_pod_has_is_not_the_kubelets(name: bytes) -> None:
    """A namespace is an RFC 1123 label, a pod's name a subdomain; neither holds an underscore."""
    assert uid_of_kubelets_log_directory(name) is None


def test_the_kubelets_own_name_is_of_its_form() -> None:
    """As it makes them."""
    assert uid_of_kubelets_log_directory(f"kube-system_etcd.node-1_{UID}".encode()) == UID


# ---- directories, properties

_names = st.sampled_from(
    ["ns_a_u1", "ns_b_u2", "ns_c_u3", "u1", "lost+found", "ns_d_u4_x", "ns_e_"]
) | st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12)
_uids = st.sampled_from(["u1", "u2", "u3", "u4", "x", "", "lost+found"])
_states = st.builds(PodState, st.booleans(), st.booleans(), st.booleans())
_pods = st.builds(
    PodStates,
    st.none() | st.frozensets(_uids),
    st.none() | st.dictionaries(_uids, _states),
    st.booleans(),
)


@given(
    st.lists(_names, unique=True),
    _pods,
    st.booleans(),
    st.none() | st.frozensets(_uids),
    st.randoms(),
)
def test_a_live_pod_never_loses_its_log_and_order_changes_nothing(
    names: list[str],
    pods: PodStates,
    cautious: bool,
    in_runtime: frozenset[str] | None,
    chance: random.Random,
) -> None:
    """Whatever is known: nothing is removed of a pod with a directory, or one that the
    kubelet lists as still active. Every entry has one verdict; both parts come by name,
    however the entries came."""
    entries = [entry(name, chance.uniform(0, 20)) for name in names]
    plan = planned(
        *entries, pods=pods, policy=ContainerGCPolicy(cautious=cautious), in_runtime=in_runtime
    )
    for removed in plan.remove:
        state = (pods.kubelet or {}).get(removed.pod_uid)
        assert pods.sources_ready
        assert pods.content_should_be_removed(removed.pod_uid)
        assert state is not None or removed.pod_uid not in (pods.present or ())
        if state is None and (cautious or pods.kubelet is None):
            assert in_runtime is not None
            assert removed.pod_uid not in in_runtime
            assert (removed.age_seconds or 0.0) >= 10.0
    assert sorted(v.id for v in plan.remove + plan.keep) == sorted(e.id for e in entries)
    by_name = [e.id for e in sorted(entries, key=lambda e: e.name)]
    assert [v.id for v in plan.remove] == [i for i in by_name if i in {v.id for v in plan.remove}]
    chance.shuffle(entries)
    assert (
        planned(
            *entries, pods=pods, policy=ContainerGCPolicy(cautious=cautious), in_runtime=in_runtime
        )
        == plan
    )


# ---- symlinks


def link(name: str = f"p_ns_app-{ID}.log", kept: Reason | None = None) -> LogEntry:
    """A log symlink of a container; it leads nowhere, if nothing else is said."""
    target = f"/var/log/pods/ns_p_{UID}/app/0.log".encode()
    return LogEntry(name.encode(), (1, 2), NOW_NS, target, kept, UID)


def link_verdict(
    one: LogEntry, answer: StatusAnswer | None, *, guarded: bool = True
) -> tuple[Action, str, Rule]:
    """The verdict on a link after this answer of ContainerStatus; None: no request was sent."""
    answers = {} if answer is None else {container_id_of_symlink(one.name): answer}
    return verdict(plan_log_symlinks([one], answers, guarded=guarded))


@pytest.mark.parametrize(
    ("answer", "action", "reason"),
    [
        (NoState.NO_CONTAINER, Action.REMOVE, Reason.DANGLING),
        (NoState.NO_STATUS, Action.KEEP, Reason.UNKNOWN_STATE),
        (ContainerState.EXITED, Action.REMOVE, Reason.DANGLING),
        (ContainerState.RUNNING, Action.KEEP, Reason.ROTATING),
        (ContainerState.CREATED, Action.KEEP, Reason.ROTATING),
        (ContainerState.UNKNOWN, Action.KEEP, Reason.ROTATING),
    ],
)
@pytest.mark.parametrize("guarded", [False, True])
def test_a_dangling_link_is_removed_by_the_state_of_its_container(
    answer: StatusAnswer, action: Action, reason: Reason, guarded: bool
) -> None:
    """Unless it has exited or is unknown its log may be rotating; an answer
    without a status keeps the link.
    """
    assert link_verdict(link(), answer, guarded=guarded) == (action, reason, Rule.KUBELET)


def test_by_the_kubelets_rules_any_error_removes_the_link() -> None:
    """A guard keeps it: the runtime may only be down."""
    assert link_verdict(link(), NoState.ERROR, guarded=False) == (
        Action.REMOVE,
        Reason.DANGLING,
        Rule.KUBELET,
    )
    assert link_verdict(link(), NoState.ERROR) == (
        Action.KEEP,
        Reason.INCOMPLETE_LISTING,
        Rule.GUARD,
    )


@pytest.mark.parametrize("guarded", [False, True])
def test_without_an_answer_a_link_is_kept(guarded: bool) -> None:
    """A request that was not sent is no error of the runtime."""
    expected = (Action.KEEP, Reason.INCOMPLETE_LISTING, Rule.GUARD)
    assert link_verdict(link(), None, guarded=guarded) == expected


@pytest.mark.regression
@pytest.mark.parametrize(
    "name",
    [
        "short.log",
        "syslog.log",
        f"app-{ID}.log",
        f"p_app-{ID}.log",
        f"P_ns_app-{ID}.log",
        f"_ns_app-{ID}.log",
    ],
)
def test_a_link_that_no_kubelet_has_named_is_not_of_its_form(name: str) -> None:
    """Neither is a shorter one, nor one of another spelling."""
    assert not is_kubelets_symlink(name.encode())


@pytest.mark.parametrize(
    ("kept", "rule"),
    [
        (Reason.TARGET_EXISTS, Rule.KUBELET),
        (Reason.UNREADABLE, Rule.KUBELET),
        (Reason.NOT_KUBELETS, Rule.GUARD),
    ],
)
def test_a_link_that_is_not_dangling_is_kept(kept: Reason, rule: Rule) -> None:
    """Its target exists, or that cannot be known, or the link is not the kubelet's."""
    assert link_verdict(link(kept=kept), ContainerState.EXITED, guarded=False) == (
        Action.KEEP,
        kept,
        rule,
    )


@pytest.mark.parametrize(
    "name", ["x" * 251 + ".log", "x" * 243 + "-sidecar.log", "x" * 250 + "-.log"]
)
def test_a_name_of_full_length_may_end_in_anything(name: str) -> None:
    """Cut at 255 bytes its end may be a part of a container's name, or nothing is left of the id:
    "no such container" then proves nothing."""
    cut = link(name)
    assert is_kubelets_symlink(cut.name)
    assert link_verdict(cut, NoState.NO_CONTAINER) == (
        Action.KEEP,
        Reason.UNKNOWN_STATE,
        Rule.GUARD,
    )
    assert link_verdict(cut, NoState.NO_CONTAINER, guarded=False)[:2] == (
        Action.REMOVE,
        Reason.DANGLING,
    )


def test_links_come_by_name() -> None:
    """In whatever order they were read."""
    links = [link(f"{letter}_ns_app-{ID}.log") for letter in "cab"]
    plan = plan_log_symlinks(links, {ID: ContainerState.EXITED}, guarded=True)
    assert [(v.kind, v.name[0], v.pod_uid) for v in plan.remove] == [
        (Kind.LOG_SYMLINK, c, UID) for c in "abc"
    ]


# ---- names


@pytest.mark.parametrize(
    ("name", "container_id"),
    [
        (f"p_ns_app-{ID}.log", ID),
        ("p-x_ns_app-a1b2c3.log", "a1b2c3"),
        ("p_ns_app-a1b2c.log", "a1b2c"),
        ("p_ns_app-.log", ""),
    ],
)
def test_the_id_is_what_follows_the_last_dash_of_the_name(name: str, container_id: str) -> None:
    """It may be a part of an id, or nothing."""
    assert container_id_of_symlink(name.encode()) == container_id


def test_a_symlink_is_named_for_pod_namespace_container_and_id() -> None:
    """And its name is cut to 251 bytes before `.log`, from the end of the id on."""
    assert symlink_name("p", "ns", "app", container_id=ID) == f"p_ns_app-{ID}.log"
    whole = "p" * 180 + "_ns_app-" + ID
    assert symlink_name("p" * 180, "ns", "app", container_id=ID) == whole[:251] + ".log"
    assert len(symlink_name("p" * 180, "ns", "app", container_id=ID)) == 255
    assert symlink_name("p" * 179, "ns", "app", container_id=ID) == "p" * 179 + f"_ns_app-{ID}.log"


def test_a_log_is_a_number_in_a_directory_in_a_directory_of_the_root() -> None:
    """Also below a root that is written with a slash at its end."""
    place = (b"ns_p_u", b"app", b"12.log")
    for root in ("/var/log/pods", "/var/log/pods/"):
        assert container_log_location("/var/log/pods/ns_p_u/app/12.log", root) == place


@pytest.mark.parametrize(
    "log_path",
    [
        "",
        "0.log",
        "ns_p_u/app/0.log",
        "/",
        "/0.log",
        "/var/log/pods",
        "/var/log/pods/",
        "/var/log/pods/ns_p_u/0.log",
        "/var/log/pods/ns_p_u/app/deep/0.log",
        "/var/log/pods/ns_p_u/app/",
        "/var/log/pods/ns_p_u/app/app.log",
        "/var/log/pods/ns_p_u/app/0.log.gz",
        "/var/log/pods/ns_p_u/app/.log",
        "/var/log/pods/ns_p_u/app/0.log\n",
        "/var/log/pods/ns_p_u/../0.log",
        "/var/log/pods/../app/0.log",
        "/var/log/pods/./app/0.log",
        "/var/log/pods//app/0.log",
        "//var/log/pods/ns_p_u/app/0.log",
        "/var/log/podsx/ns_p_u/app/0.log",
        "/etc/ns_p_u/app/0.log",
        "/var/log/pods/ns_p_u/*/0.log",
        "/var/log/pods/ns_p_?/app/0.log",
        "/var/log/pods/ns_p_[u]/app/0.log",
        "/var/log/pods/ns_p_u\\/app/0.log",
        "/var/log/pods/ns_p_u\0/app/0.log",
        "/var/log/pods/\ud800/app/0.log",
    ],
)
def test_any_other_path_means_that_there_are_no_log_files(log_path: str) -> None:
    """An empty, relative or climbing path, one with characters of a pattern,
    one that is not of a log.
    """
    assert container_log_location(log_path, "/var/log/pods") is None


@pytest.mark.parametrize("root", ["", "var/log/pods", "."])
def test_below_a_relative_root_there_is_nothing(root: str) -> None:
    """Nothing depends on the working directory."""
    assert container_log_location(f"{root}/ns_p_u/app/0.log", root) is None
    assert container_log_location("ns_p_u/app/0.log", root) is None


@given(st.text(st.sampled_from("./*\\0ab_log\n"), max_size=40))
def test_no_path_ever_leads_out_of_the_root(tail: str) -> None:
    """Whatever a runtime reports: three names of entries, or nothing."""
    place = container_log_location("/r/" + tail, "/r")
    if place is not None:
        assert "/r/" + tail == "/r/" + b"/".join(place).decode()
        assert all(name not in (b"", b".", b"..") and b"/" not in name for name in place)
