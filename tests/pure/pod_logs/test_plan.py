"""Which log directories and log symlinks are removed: the kubelet's rules, one by one, and the
stricter guards; and what is a name of a log.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go` (evictPodLogsDirectories),
`helpers.go`, `legacy.go`.
"""

from __future__ import annotations

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
from reclaim.types import ContainerState, Kind, Plan, Reason
from tests.pure.values import NOW_NS, SECOND_NS
from tests.rows import rows

ID = "a1b2c3d4e5f6" + "0" * 52
LISTED = {
    "alive": PodState(),
    "terminated": PodState(terminated=True),
    "deleted": PodState(deleted=True),
    "over": PodState(deleted=True, terminated=True),
    "evicted": PodState(evicted=True),
}
PODS = {word: PodStates(frozenset(), {"u": state}) for word, state in LISTED.items()} | {
    "unlisted": PodStates(frozenset(), {}),
    "unlisted-present": PodStates(frozenset({"u"}), {}),
    "not-ready": PodStates(frozenset(), {"u": PodState(evicted=True)}, sources_ready=False),
    "absent": PodStates(frozenset()),
    "present": PodStates(frozenset({"u"})),
    "unreadable": PodStates(None),
    "doubted": PodStates(frozenset(), doubt=distrust(Why.EXPLAINS_NOTHING, "pods is empty")),
}
"""What is known of the pod `u`: by the kubelet's list, or, without it, by directories."""


def entry(name: str | bytes, age_seconds: float = 3600.0) -> LogEntry:
    """An entry of the pod log root that changed so many seconds ago."""
    raw = name if isinstance(name, bytes) else name.encode()
    return LogEntry(raw, (1, hash(raw)), NOW_NS - int(age_seconds * SECOND_NS))


def planned(
    *entries: LogEntry, pods: PodStates, cautious: bool, in_runtime: frozenset[str] | None
) -> Plan:
    """The plan for these entries."""
    policy = ContainerGCPolicy(cautious=cautious)
    return plan_pod_logs(entries, pods, policy, in_runtime=in_runtime, now_ns=NOW_NS)


def told(plan: Plan) -> str:
    """The verdict on the one object of a plan."""
    (only,) = plan.remove + plan.keep
    return f"{'goes' if plan.remove else 'stays'}, {only.reason} ({only.rule})"


@pytest.mark.regression
@rows("""
    name        | pods             | mode          | age  | runtime | expected                          | what
    ns_name_u   | alive            | kubelet guard | 0    | u       | stays, pod_alive (kubelet)        | a pod that the kubelet lists
    ns_name_u   | terminated       | kubelet guard | 0    | u       | stays, pod_alive (kubelet)        | terminated, not deleted
    ns_name_u   | deleted          | kubelet guard | 0    | u       | stays, pod_alive (kubelet)        | deleted, not terminated
    ns_name_u   | over             | kubelet guard | 0    | u       | goes, pod_terminated (kubelet)    | deleted and terminated, however young
    ns_name_u   | evicted          | kubelet guard | 0    | u       | goes, pod_evicted (kubelet)       | evicted
    ns_name_u   | unlisted         | kubelet       | 0    | u       | goes, pod_gone (kubelet)          | not known, whatever the runtime has
    ns_name_u.x | unlisted         | kubelet       | 0    | u       | goes, pod_gone (kubelet)          | a file as well as a directory
    ns_name_u   | unlisted-present | kubelet guard | 3600 | -       | stays, pod_alive (guard)          | the pod may be about to start
    ns_name_u   | not-ready        | kubelet guard | 3600 | -       | stays, held_off (kubelet)         | not all sources have delivered
    lost+found  | not-ready        | kubelet guard | 3600 | -       | stays, held_off (kubelet)         | whatever its name
    u           | unlisted         | kubelet guard | 3600 | -       | stays, not_kubelets (guard)       | a UID alone
    lost+found  | evicted          | kubelet guard | 3600 | -       | stays, not_kubelets (guard)       | of the filesystem
    name_u      | evicted          | kubelet guard | 3600 | -       | stays, not_kubelets (guard)       | a part is missing
    ns_name_    | evicted          | kubelet guard | 3600 | -       | stays, not_kubelets (guard)       | no UID
    ns_name_u_x | evicted          | kubelet guard | 3600 | -       | stays, not_kubelets (guard)       | a part too many
    NS_name_u   | evicted          | kubelet guard | 3600 | -       | stays, not_kubelets (guard)       | no namespace
    ns_name_u   | absent           | guard         | 3600 | -       | goes, pod_gone (guard)            | gone
    ns_name_u   | unlisted         | guard         | 10   | -       | goes, pod_gone (guard)            | unchanged for 10 s
    ns_name_u   | absent           | guard         | 9.9  | -       | stays, too_young (guard)          | for less
    ns_name_u   | absent           | guard         | -60  | -       | stays, too_young (guard)          | of the future
    ns_name_u   | absent           | guard         | 3600 | u       | stays, has_containers (guard)     | the runtime has something of it
    ns_name_u   | absent           | guard         | 3600 | ?       | stays, incomplete_listing (guard) | or cannot tell
    u           | absent           | guard         | 3600 | -       | stays, not_kubelets (guard)       | no name of the kubelet's
    ns_name_u   | present          | guard         | 3600 | -       | stays, pod_alive (guard)          | its directory is there
    ns_name_u   | unreadable       | guard         | 3600 | -       | stays, pod_alive (guard)          | or cannot be read
    ns_name_u   | doubted          | guard         | 3600 | -       | stays, pod_unknown (guard)        | or is not believed
""")
def test_what_is_not_named_as_the_kubelet_names_it_is_kept(
    name: str, pods: str, mode: str, age: float, runtime: str, expected: str
) -> None:
    """Nor is what a pod may need. By the kubelet's rules, with our guards, or in both modes: if
    another directory is in the place of the root, its entries are somebody else's."""
    in_runtime = None if runtime == "?" else frozenset(runtime.replace("-", ""))
    for each in mode.split():
        plan = planned(
            entry(name, age),
            pods=PODS[pods],
            cautious=each == "guard",
            in_runtime=in_runtime,
        )
        assert told(plan) == expected


def test_a_form_that_no_pod_has_is_not_the_kubelets() -> None:
    """A namespace is an RFC 1123 label, a pod's name a subdomain; neither holds an underscore."""
    for name in (
        *b"ns_-name_u ns_name._u n.s_name_u ns__u".split(),
        b"ns_na me_u",
        b"n_a_\xff",
        b"b\nc",
    ):
        assert uid_of_kubelets_log_directory(name) is None
    assert uid_of_kubelets_log_directory(b"kube-system_etcd.node-1_u-1") == "u-1"


# ---- symlinks


def link(name: str = f"p_ns_app-{ID}.log", kept: Reason | None = None) -> LogEntry:
    """A log symlink of a container; it leads nowhere, if nothing else is said."""
    return LogEntry(name.encode(), (1, 2), NOW_NS, b"/var/log/pods/ns_p_u/app/0.log", kept, "u")


ANSWERS: dict[str, StatusAnswer] = {answer.value: answer for answer in (*NoState, *ContainerState)}


@rows("""
    answer               | guarded                           | kubelet                           | what
    no_container         | goes, dangling (kubelet)          | goes, dangling (kubelet)          | the container is gone
    EXITED               | goes, dangling (kubelet)          | goes, dangling (kubelet)          | it has exited
    RUNNING              | stays, rotating (kubelet)         | stays, rotating (kubelet)         | its log may be rotating
    CREATED              | stays, rotating (kubelet)         | stays, rotating (kubelet)         | as well
    UNKNOWN              | stays, rotating (kubelet)         | stays, rotating (kubelet)         | as well
    no_status            | stays, unknown_state (kubelet)    | stays, unknown_state (kubelet)    | an answer without a status
    error                | stays, incomplete_listing (guard) | goes, dangling (kubelet)          | the runtime may only be down
    none                 | stays, incomplete_listing (guard) | stays, incomplete_listing (guard) | it was not asked
    EXITED target_exists | stays, target_exists (kubelet)    | stays, target_exists (kubelet)    | it leads somewhere
    EXITED unreadable    | stays, unreadable (kubelet)       | stays, unreadable (kubelet)       | that is not known
    EXITED not_kubelets  | stays, not_kubelets (guard)       | stays, not_kubelets (guard)       | it is not the kubelet's
""")
def test_a_dangling_link_is_removed_by_the_state_of_its_container(
    answer: str, guarded: str, kubelet: str
) -> None:
    """Unless it has exited or is unknown its log may be rotating."""
    said, *kept = answer.split()
    one = link(kept=Reason(kept[0]) if kept else None)
    answers = {ID: ANSWERS[said]} if said in ANSWERS else {}
    for expected, guards in ((guarded, True), (kubelet, False)):
        assert told(plan_log_symlinks([one], answers, guarded=guards)) == expected


@pytest.mark.parametrize("end", ["x" * 8, "-sidecar", "xxxxxxx-"])
def test_a_name_of_full_length_may_end_in_anything(end: str) -> None:
    """Cut at 255 bytes its end may be a part of a container's name, or nothing is left of the id:
    "no such container" then proves nothing."""
    cut = link("x" * (251 - len(end)) + end + ".log")
    assert is_kubelets_symlink(cut.name)
    answers: dict[str, StatusAnswer] = {container_id_of_symlink(cut.name): NoState.NO_CONTAINER}
    for guarded, expected in (
        (True, "stays, unknown_state (guard)"),
        (False, "goes, dangling (kubelet)"),
    ):
        assert told(plan_log_symlinks([cut], answers, guarded=guarded)) == expected


def test_links_come_by_name() -> None:
    """In whatever order they were read."""
    links = [link(f"{letter}_ns_app-{ID}.log") for letter in "cab"]
    plan = plan_log_symlinks(links, {ID: ContainerState.EXITED}, guarded=True)
    found = [(each.kind, each.name[0], each.pod_uid) for each in plan.remove]
    assert found == [(Kind.LOG_SYMLINK, letter, "u") for letter in "abc"]


# ---- names


@pytest.mark.regression
@rows("""
    name                  | container_id | what
    p_ns_app-a1b2c3d4.log | a1b2c3d4     | an id
    p-x_ns_app-a1b2c3.log | a1b2c3       | a part of it
    p_ns_app-a1b2c.log    | -            | too short
    p_ns_app-.log         | -            | nothing
    short.log             | -            | no name of a link
    app-a1b2c3.log        | -            | no pod
    p_app-a1b2c3.log      | -            | no namespace
    P_ns_app-a1b2c3.log   | -            | another spelling
    _ns_app-a1b2c3.log    | -            | an empty pod
""")
def test_a_link_that_no_kubelet_has_named_is_not_of_its_form(name: str, container_id: str) -> None:
    """The id is what follows the last dash."""
    assert is_kubelets_symlink(name.encode()) is (container_id != "-")
    if container_id != "-":
        assert container_id_of_symlink(name.encode()) == container_id


@pytest.mark.parametrize("length", [1, 179, 180, 250])
def test_a_symlink_is_named_for_pod_namespace_container_and_id(length: int) -> None:
    """And its name is cut to 251 bytes before `.log`, from the end of the id on."""
    whole = f"{'p' * length}_ns_app-{ID}"
    assert symlink_name("p" * length, "ns", "app", container_id=ID) == whole[:251] + ".log"


def test_a_log_is_a_number_in_a_directory_in_a_directory_of_the_root() -> None:
    """Also below a root that is written with a slash at its end; below a relative root there is
    nothing, as nothing depends on the working directory."""
    for root in ("/var/log/pods", "/var/log/pods/"):
        place = container_log_location("/var/log/pods/ns_p_u/app/12.log", root)
        assert place == (b"ns_p_u", b"app", b"12.log")
    for root in ("", "var/log/pods", "."):
        assert container_log_location(f"{root}/ns_p_u/app/0.log", root) is None
        assert container_log_location("ns_p_u/app/0.log", root) is None


OTHERS = r"""0.log ns_p_u/app/0.log / /0.log R R/ R/ns_p_u/0.log R/ns_p_u/app/deep/0.log R/ns_p_u/app/
    R/ns_p_u/app/app.log R/ns_p_u/app/0.log.gz R/ns_p_u/app/.log R/ns_p_u/../0.log R/../app/0.log
    R/./app/0.log R//app/0.log /R/ns_p_u/app/0.log Rx/ns_p_u/app/0.log /etc/ns_p_u/app/0.log
    R/ns_p_u/*/0.log R/ns_p_?/app/0.log R/ns_p_[u]/app/0.log R/ns_p_u\/app/0.log"""


@pytest.mark.parametrize(
    "log_path",
    [*OTHERS.split(), "", "R/ns_p_u/app/0.log\n", "R/ns_p_u\0/app/0.log", "R/\ud800/app/0.log"],
)
def test_any_other_path_means_that_there_are_no_log_files(log_path: str) -> None:
    """An empty, relative or climbing path, one with characters of a pattern, one that is not of a
    log. `R` is the root."""
    assert container_log_location(log_path.replace("R", "/var/log/pods"), "/var/log/pods") is None


@given(st.text(st.sampled_from("./*\\0ab_log\n"), max_size=40))
def test_no_path_ever_leads_out_of_the_root(tail: str) -> None:
    """Whatever a runtime reports: three names of entries, or nothing."""
    place = container_log_location("/r/" + tail, "/r")
    if place is not None:
        assert "/r/" + tail == "/r/" + b"/".join(place).decode()
        assert all(name not in (b"", b".", b"..") and b"/" not in name for name in place)
