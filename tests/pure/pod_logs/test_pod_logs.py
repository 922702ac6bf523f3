"""Which log directories and log symlinks are removed: the kubelet's rules, one by one, and the
stricter guards; what is a name of a log; and how they are removed, also with their container.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go` (evictPodLogsDirectories),
`helpers.go`, `legacy.go`.
"""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

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
from reclaim.evidence.states import PodStates, Why, distrust
from reclaim.function import Ready, Refused
from reclaim.functions.unused_containers import (
    DanglingLogSymlinks,
    LogDirectories,
    remove_container_log,
)
from reclaim.pod_logs.names import (
    LogPaths,
    container_id_of_symlink,
    container_log_location,
    is_kubelets_symlink,
    symlink_name,
    uid_of_kubelets_log_directory,
)
from reclaim.types import (
    ContainerState,
    ContainerStatus,
    Kind,
    Plan,
    Reason,
    ReclaimError,
    RemovalFailed,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import NOW_NS, SECOND_NS, SteppedClock, container, pods_known
from tests.rows import rows

ID = "a1b2c3d4e5f6" + "0" * 52
DOUBT = distrust(Why.EXPLAINS_NOTHING, "pods is empty")
PODS = {**pods_known("u"), "doubted": PodStates(frozenset(), doubt=DOUBT)}


def entry(name: str | bytes, age_seconds: float = 3600.0) -> LogEntry:
    """An entry of the pod log root that changed so many seconds ago."""
    raw = name if isinstance(name, bytes) else name.encode()
    return LogEntry(raw, (1, hash(raw)), NOW_NS - int(age_seconds * SECOND_NS))


def told(plan: Plan) -> str:
    """The verdict on the one object of a plan."""
    (only,) = plan.remove + plan.keep
    return f"{'goes' if plan.remove else 'stays'}, {only.reason} ({only.rule})"


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
        policy, entries = ContainerGCPolicy(cautious=each == "guard"), [entry(name, age)]
        plan = plan_pod_logs(entries, PODS[pods], policy, in_runtime=in_runtime, now_ns=NOW_NS)
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


# ---- names


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


GONE = Refused(result=Result.ALREADY_GONE)
Stage = LogDirectories | DanglingLogSymlinks


class LogTree:
    """A log root with one pod that is gone and has one container, and the directory of symlinks; a
    runtime, and pods."""

    def __init__(self, root: Path):
        self.root = root
        self.clock = SteppedClock(at=50.0, wall_at=time.time() + 3600.0)  # an hour from now
        self.runtime = MemoryRuntime(self.clock)
        self.pods = MemoryPods()
        self.paths = LogPaths(str(root / "pods"), str(root / "containers"))
        self.pod, self.links = root / "pods" / "ns_p_u", root / "containers"
        self.app = self.pod / "app"
        self.log = self.app / "0.log"
        self.link = self.links / symlink_name("p", "ns", "app", container_id=ID)
        self.app.mkdir(parents=True)
        self.links.mkdir()
        self.log.write_text("a line\n")
        self.link.symlink_to(self.log)

    def directories(self) -> LogDirectories:
        """The stage over log directories, of a periodic pass."""
        policy = ContainerGCPolicy(evict_non_deleted_pods=False)
        context = context_of(
            self.runtime, self.clock, self.pods, log_paths=self.paths, containers=policy
        )
        return LogDirectories(context, self.paths.pod_logs_dir)

    def symlinks(self, *, known: bool = False) -> DanglingLogSymlinks:
        """The stage over log symlinks. `known`: by the kubelet's rules, without the guards."""
        self.pods.listed = known
        context = context_of(self.runtime, self.clock, self.pods, log_paths=self.paths)
        return DanglingLogSymlinks(context, self.paths.container_logs_dir)

    def dead(self, stage: Stage) -> tuple[Verdict, Stage]:
        """The one object of a plan, which may go, and the stage; the link dangles."""
        if isinstance(stage, DanglingLogSymlinks):
            self.log.unlink(missing_ok=True)
        plan = stage.plan()
        assert plan is not None
        (verdict,) = plan.remove
        return verdict, stage

    def happens(self, what: str) -> None:
        """To the pod, its container or the runtime; else it is a command for a shell."""
        match what:
            case "alive":
                self.pods.uids.add("u")
            case "away":
                self.runtime.away = True
            case "RUNNING" | "EXITED":
                self.runtime.hold(container(ID, state=ContainerState(what)))
            case _:
                names = {**os.environ, "LINK": str(self.link), "APP": str(self.app), "ID": ID}
                subprocess.run(["sh", "-ec", what], cwd=self.root, env=names, check=True)

    def why_kept(self, *, known: bool = False) -> dict[str, str]:
        """Why each link stays, by the beginning of its name."""
        plan = self.symlinks(known=known).plan()
        return {each.name.partition("-")[0]: each.reason for each in plan.keep}

    def dangle(self, *names: str) -> None:
        """Links with these names to the log, which does not exist."""
        self.log.unlink(missing_ok=True)
        for name in names:
            (self.links / name).symlink_to(self.log)

    def remove_log(self, **fields: str | ContainerState) -> int:
        """Removes the log of a container of which the runtime says this; how many files and links
        went."""
        status = ContainerStatus(
            ID,
            ContainerState.EXITED,
            name="app",
            pod_name="p",
            pod_namespace="ns",
            log_path=str(self.log),
        )
        before = self._files()
        remove_container_log(status._replace(**fields), self.paths)  # type: ignore[arg-type] # fields as they come
        return before - self._files()

    def _files(self) -> int:
        return sum(path.is_symlink() or not path.is_dir() for path in self.root.rglob("*"))


@pytest.fixture
def tree(tmp_path: Path) -> LogTree:
    """One pod that is gone, with its log."""
    return LogTree(tmp_path)


# ---- what has changed since the plan


def replaced(path: Path, how: Callable[[Path], object] = lambda _: None) -> None:
    """It is moved away, and something else may have the name now."""
    path.rename(path.with_name(f"moved {path.name}"))
    how(path)


STAGES: dict[str, Callable[[LogTree], Stage]] = {
    "pod": LogTree.directories,
    "link": LogTree.symlinks,
    "link, known": lambda tree: tree.symlinks(known=True),
}


@rows("""
    planned     | happens                                             | answer             | removal | what
    pod         | true                                                | -                  | gone    | nothing
    link        | true                                                | -                  | gone    | nothing to a link
    pod         | alive                                               | pod_alive          | gone    | the pod is there
    pod         | touch pods/ns_p_u/new                               | too_young          | kept    | a file was made
    pod         | mv pods/ns_p_u pods/x; mkdir pods/ns_p_u            | too_young          | kept    | another directory
    pod         | mv pods x                                           | -                  | nothing | no root
    pod         | mv pods x; touch pods                               | unreadable         | kept    | a file for a root
    link        | RUNNING                                             | rotating           | gone    | it runs
    link        | EXITED                                              | -                  | gone    | it has exited
    link        | touch pods/ns_p_u/app/0.log                         | target_exists      | kept    | its log is back
    link        | mv $LINK x; ln -s $PWD/pods/ns_p_u/app/1.log $LINK  | too_young          | kept    | another link
    link        | mv $LINK x; touch $LINK                             | -                  | nothing | a file for a link
    link        | mv containers x                                     | -                  | nothing | no directory of links
    link        | away                                                | incomplete_listing | gone    | the runtime is down
    link, known | away                                                | -                  | gone    | to the kubelet it has no container
""")
def test_what_has_changed_since_the_plan_stays_there(
    tree: LogTree, planned: str, happens: str, answer: str, removal: str
) -> None:
    """Checked right before its removal; by which it is looked at once more, without a question to
    anybody: what is there by then under the name is not touched. What has not changed goes,
    once."""
    verdict, stage = tree.dead(STAGES[planned](tree))
    path = tree.pod if planned == "pod" else tree.link
    assert stage.present(verdict)
    tree.happens(happens)
    there = os.path.lexists(path)
    kept = Refused(Reason(answer)) if answer != "-" else Ready(50.0)
    assert stage.check(verdict) == (GONE if removal == "nothing" else kept)
    found = "kept"
    with suppress(RemovalFailed):
        found = "gone" if stage.remove(verdict) else "nothing"
    assert found == removal
    assert os.path.lexists(path) is (there and removal != "gone")
    if removal == "gone":
        assert not stage.present(verdict)
        assert not stage.remove(verdict)


def test_a_log_root_that_cannot_be_read_says_so(tree: LogTree) -> None:
    """Missing, or not a directory: the kubelet fails the stage, too. Without a directory of links
    there are none, as the kubelet's pattern matches nothing."""
    verdict, stage = tree.dead(tree.directories())
    replaced(tree.root / "pods")
    with pytest.raises(ReclaimError, match="No such file"):
        tree.directories().plan()
    (tree.root / "pods").touch()
    with pytest.raises(ReclaimError, match="Not a directory"):
        tree.directories().plan()
    with pytest.raises(RuntimeUnavailable):
        stage.present(verdict)
    replaced(tree.links)
    assert tree.symlinks().plan() == Plan()


@pytest.mark.parametrize("when", ["before the plan", "after the plan", "after the check"])
def test_a_log_root_that_is_a_symlink_is_not_followed(tree: LogTree, when: str) -> None:
    """Neither for the plan, nor for the check, nor for the removal, although an entry of that name
    is behind it."""
    verdict, stage = tree.dead(tree.directories())
    if when == "after the check":
        assert stage.check(verdict) == Ready(50.0)
    replaced(tree.root / "pods", lambda root: root.symlink_to(tree.root / "moved pods"))
    with pytest.raises(ReclaimError, match="it is a symlink, which is not followed"):
        tree.directories().plan()
    if when == "after the plan":
        assert stage.check(verdict) == GONE
    assert not stage.remove(verdict)
    assert tree.remove_log() == 1, "the link alone"
    assert (tree.root / "moved pods" / "ns_p_u" / "app" / "0.log").exists()


def test_a_directory_of_links_that_is_a_symlink_is_not_followed(tree: LogTree) -> None:
    """As if it did not exist."""
    verdict, stage = tree.dead(tree.symlinks())
    replaced(tree.links, lambda links: links.symlink_to(tree.root / "moved containers"))
    for known in (False, True):
        assert tree.symlinks(known=known).plan() == Plan()
    assert stage.check(verdict) == GONE
    assert not stage.remove(verdict)
    assert tree.remove_log() == 0
    assert (tree.root / "moved containers" / tree.link.name).is_symlink()


# ---- whole passes


def test_only_dangling_symlinks_named_log_are_planned(tree: LogTree) -> None:
    """Kept: a file, a directory, a link of another name, one to a target elsewhere and one to an
    existing log; the runtime is asked about none. One of an earlier root goes by the kubelet's
    rules alone: a guard does not even follow it."""
    tree.happens("""
        cd containers
        touch file-$ID.log
        mkdir directory-$ID.log
        ln -s /nowhere other-$ID.txt
        ln -s /nowhere foreign-$ID.log
        ln -s ../pods/a/b/0.log relative-$ID.log
        ln -s $APP/../../../../a/0.log climbing-$ID.log
        ln -s $PWD/loop-$ID.log loop-$ID.log
        for name in short.log app-$ID.log P_ns_app-$ID.log; do ln -s $APP/1.log $name; done
    """)
    names = "foreign relative climbing loop short.log app P_ns_app"
    expected = dict.fromkeys(names.split(), Reason.NOT_KUBELETS)
    expected["p_ns_app"] = Reason.TARGET_EXISTS
    assert tree.why_kept() == expected
    assert tree.why_kept(known=True) == {**expected, "loop": Reason.UNREADABLE}
    assert tree.runtime.calls == []
    earlier = symlink_name("q", "ns", "app", container_id=ID)
    (tree.links / earlier).symlink_to("/nowhere/ns_q_u/app/0.log")
    for known in (False, True):
        plan = tree.symlinks(known=known).plan()
        assert [verdict.id for verdict in plan.remove] == [earlier] * known


@pytest.mark.parametrize("known", [False, True])
def test_after_two_errors_no_more_requests_are_sent(tree: LogTree, known: bool) -> None:
    """Of 5 dangling links two are asked for. The others have no answer, and are kept by the
    kubelet's rules too, to which an error counts as "no such container". Two links of one container
    are asked for once."""
    tree.dangle(symlink_name("q", "ns", "app", container_id=ID))
    assert [each.name[0] for each in tree.symlinks(known=known).plan().remove] == ["p", "q"]
    assert tree.runtime.calls.count("container_status") == 1
    tree.dangle(*(f"p_ns_app-{number}{ID[1:]}.log" for number in range(5)))
    tree.runtime.away = True
    tree.runtime.calls.clear()
    plan = tree.symlinks(known=known).plan()
    assert tree.runtime.calls == ["container_status"] * 2
    assert len(plan.remove) == 2 * known
    assert {(each.kind, each.pod_uid) for each in plan.keep} == {(Kind.LOG_SYMLINK, "u")}


# ---- a container's log


def test_a_containers_log_is_removed_with_its_copies_and_its_link(tree: LogTree) -> None:
    """Current, rotated, compressed, temporary, and the symlink: 5; the log of the next attempt is
    kept. Not of a container that has not exited. Missing directories are no error."""
    for name in ("0.log.1", "0.log.2.gz", "0.log.3.tmp", "1.log", "10.log"):
        (tree.app / name).touch()
    for state in set(ContainerState) - {ContainerState.EXITED}:
        assert tree.remove_log(state=state) == 0
    assert tree.remove_log() == 5
    assert sorted(os.listdir(tree.app)) == ["1.log", "10.log"]
    assert not tree.link.is_symlink()
    replaced(tree.links)
    for gone in (tree.app, tree.pod, tree.root / "pods"):
        replaced(gone)
        assert tree.remove_log() == 0


@pytest.mark.parametrize("which", ["pod", "app", "log"])
def test_no_symlink_on_the_way_to_a_log_is_followed(tree: LogTree, which: str) -> None:
    """In the place of the pod's directory, or the container's, it keeps the container, as does a
    file; in the place of the log, as with cri-dockerd, it goes without what it leads to."""
    elsewhere = tree.root / "elsewhere"
    (elsewhere / "app").mkdir(parents=True)
    canaries = [elsewhere / "0.log", elsewhere / "app" / "0.log"]
    for canary in canaries:
        canary.write_text("canary")
    at = {"pod": tree.pod, "app": tree.app, "log": tree.log}[which]
    replaced(at, lambda path: path.symlink_to(canaries[0] if which == "log" else elsewhere))
    if which == "log":
        assert tree.remove_log() == 2
    else:
        with pytest.raises(RemovalFailed, match="is kept"):
            tree.remove_log()
        at.unlink()
        at.touch()
        with pytest.raises(RemovalFailed):
            tree.remove_log()
        assert tree.link.is_symlink()
    assert {canary.read_text() for canary in canaries} == {"canary"}


def test_only_a_link_to_this_very_log_is_removed_with_it(tree: LogTree) -> None:
    """Two containers with the longest names share the name of a link, which belongs to the other
    one. Labels come from the client that made the container: a hostile name names no link, and a
    hostile path no log."""
    for log_path in ("", "0.log", "../pods/a/b/0.log", f"{tree.paths.pod_logs_dir}/*/app/0.log"):
        assert tree.remove_log(log_path=log_path) == 0
    for pod_name in ("../p", "a/b", "p\0"):
        assert tree.remove_log(pod_name=pod_name) == 1
        tree.log.touch()
    assert tree.link.is_symlink()
    replaced(tree.link, lambda link: link.symlink_to(tree.app / "1.log"))
    assert tree.remove_log() == 1
    assert tree.link.is_symlink()
    tree.link.unlink()
    tree.link.touch()
    assert tree.remove_log() == 0
