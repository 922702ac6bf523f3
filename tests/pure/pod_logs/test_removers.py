"""Logs are checked again right before their removal, and a container's log is
removed before the container.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reclaim.containers.plan import ContainerGCPolicy, NoState
from reclaim.evidence.states import PodState, PodStates
from reclaim.function import Ready, Refused
from reclaim.functions.unused_containers import (
    DanglingLogSymlinks,
    LogDirectories,
    ask_state,
    remove_container_log,
)
from reclaim.pod_logs.names import LogPaths, symlink_name
from reclaim.services import ContainerStatus
from reclaim.types import (
    ContainerState,
    Plan,
    Reason,
    ReclaimError,
    RemovalFailed,
    Result,
    Rule,
    RuntimeUnavailable,
    Verdict,
)
from tests.pure.contexts import carried_out, context_of
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, container

UID = "6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
ID = "a1b2c3d4e5f6" + "0" * 52
GONE = Refused(result=Result.ALREADY_GONE)


class KnownPods(MemoryPods):
    """Pods of which the kubelet's list is known, so that its own rules apply."""

    def pod_states(self) -> PodStates:
        """All of them are listed."""
        return PodStates(frozenset(self.uids), dict.fromkeys(self.uids, PodState()))


class LogTree:
    """A log root with one pod that has one container, and the directory of
    symlinks; a runtime, and pods.
    """

    def __init__(self, root: Path, *living_pods: str):
        self.root = root
        self.clock = SteppedClock(at=50.0, wall_at=time.time() + 3600.0)  # an hour from now
        self.runtime = MemoryRuntime(self.clock)
        self.pods = MemoryPods(*living_pods)
        self.paths = LogPaths(str(root / "pods"), str(root / "containers"))
        self.pod = root / "pods" / f"ns_p_{UID}"
        self.log = self.pod / "app" / "0.log"
        self.links = root / "containers"
        self.link = self.links / symlink_name("p", "ns", "app", container_id=ID)
        self.log.parent.mkdir(parents=True)
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
        pods = KnownPods() if known else self.pods
        context = context_of(self.runtime, self.clock, pods, log_paths=self.paths)
        return DanglingLogSymlinks(context, self.paths.container_logs_dir)

    def plan_pods(self) -> tuple[Plan, LogDirectories]:
        """The plan of the log root, and its stage."""
        stage = self.directories()
        plan = stage.plan()
        assert plan is not None
        return plan, stage

    def plan_links(self, *, known: bool = False) -> tuple[Plan, DanglingLogSymlinks]:
        """The plan of the symlinks, and its stage."""
        stage = self.symlinks(known=known)
        return stage.plan(), stage

    def dead_link(self, *, known: bool = False) -> tuple[Verdict, DanglingLogSymlinks]:
        """The one link, which dangles and may go, and its stage."""
        self.log.unlink(missing_ok=True)
        plan, stage = self.plan_links(known=known)
        (verdict,) = plan.remove
        return verdict, stage

    def kept_links(self, *, known: bool = False) -> dict[str, str]:
        """Why each link stays, by the beginning of its name."""
        return {
            verdict.name.partition("-")[0]: verdict.reason
            for verdict in self.plan_links(known=known)[0].keep
        }

    def remove_log(self, status: ContainerStatus) -> int:
        """Removes the log of a container; how many files and links went."""
        before = self._files()
        remove_container_log(status, self.paths)
        return before - self._files()

    def _files(self) -> int:
        return sum(path.is_symlink() or not path.is_dir() for path in self.root.rglob("*"))

    def status(
        self, state: ContainerState = ContainerState.EXITED, log_path: str | None = None
    ) -> ContainerStatus:
        """What the runtime says of the container."""
        path = str(self.log) if log_path is None else log_path
        return ContainerStatus(
            ID, state, name="app", pod_name="p", pod_namespace="ns", log_path=path
        )


@pytest.fixture
def tree(tmp_path: Path) -> LogTree:
    """One pod that is gone, with its log."""
    return LogTree(tmp_path)


# ---- pod log directories


def test_the_log_directory_of_a_gone_pod_is_removed(tree: LogTree) -> None:
    """Checked, removed, absent; the link is kept, and dangles."""
    plan, remover = tree.plan_pods()
    (verdict,) = plan.remove
    assert (verdict.reason, verdict.pod_uid, verdict.id) == (Reason.POD_GONE, UID, tree.pod.name)
    assert remover.check(verdict) == Ready(50.0)
    assert remover.present(verdict)
    assert remover.remove(verdict)
    assert not remover.present(verdict)
    assert remover.check(verdict) == GONE
    assert not remover.remove(verdict)
    assert not tree.pod.exists()
    assert tree.link.is_symlink()


def test_a_pod_that_has_appeared_again_keeps_its_log(tree: LogTree) -> None:
    """Its directory is checked right before the removal."""
    plan, remover = tree.plan_pods()
    tree.pods.uids.add(UID)
    assert remover.check(plan.remove[0]) == Refused(Reason.POD_ALIVE)


def test_a_log_directory_that_was_touched_since_the_plan_is_kept(tree: LogTree) -> None:
    """Another process made a file in it."""
    plan, remover = tree.plan_pods()
    (tree.pod / "new").mkdir()
    assert remover.check(plan.remove[0]) == Refused(Reason.TOO_YOUNG)


def test_another_directory_of_the_name_is_kept(tree: LogTree) -> None:
    """It is not the planned one: check and removal refuse it, and the planned
    one counts as absent.
    """
    plan, remover = tree.plan_pods()
    (verdict,) = plan.remove
    tree.pod.rename(tree.pod.with_name("moved"))
    tree.pod.mkdir()
    assert remover.check(verdict) == Refused(Reason.TOO_YOUNG)
    with pytest.raises(RemovalFailed, match="changed at the last moment"):
        remover.remove(verdict)
    assert not remover.present(verdict)
    assert tree.pod.is_dir()


@pytest.mark.parametrize(("dry_run", "result"), [(False, Result.REMOVED), (True, Result.PLANNED)])
def test_a_pass_removes_it(tree: LogTree, dry_run: bool, result: Result) -> None:
    """A dry run is the same without the one call."""
    (outcome,) = carried_out(*tree.plan_pods(), tree.clock, dry_run=dry_run)
    assert outcome.result is result
    assert tree.pod.exists() is dry_run


def test_names_that_are_not_utf_8_are_distinguished_and_removed(tree: LogTree) -> None:
    """By the kubelet's rules, which remove every unknown name: entries are
    distinguished by bytes.
    """
    for name in (b"ns_p_\xff", rb"ns_p_\xff"):
        os.mkdir(os.path.join(os.fsencode(tree.paths.pod_logs_dir), name))
    plan, remover = tree.plan_pods()
    verdicts = plan.remove + plan.keep
    assert len({verdict.id for verdict in verdicts}) == 3
    for verdict in verdicts:
        assert remover.remove(verdict)
    assert os.listdir(tree.paths.pod_logs_dir) == []


def test_a_log_root_that_cannot_be_read_says_so(tree: LogTree) -> None:
    """Missing, or not a directory: the kubelet fails the stage, too."""
    plan, remover = tree.plan_pods()
    tree.pod.parent.rename(tree.pod.parent.with_name("elsewhere"))
    with pytest.raises(ReclaimError, match="No such file"):
        tree.directories().plan()
    assert remover.check(plan.remove[0]) == GONE
    Path(tree.paths.pod_logs_dir).write_text("")
    with pytest.raises(ReclaimError, match="Not a directory"):
        tree.directories().plan()
    assert remover.check(plan.remove[0]) == Refused(Reason.UNREADABLE)
    with pytest.raises(RuntimeUnavailable):
        remover.present(plan.remove[0])
    with pytest.raises(RemovalFailed):
        remover.remove(plan.remove[0])


@pytest.mark.regression
@pytest.mark.parametrize("when", ["before the plan", "after the plan", "after the check"])
def test_a_log_root_that_is_a_symlink_is_not_followed(
    tree: LogTree, tmp_path: Path, when: str
) -> None:
    """Neither for the plan, nor for the check, nor for the removal, although an entry
    of that name is behind it.
    """
    plan, remover = tree.plan_pods()
    (verdict,) = plan.remove
    if when == "after the check":
        assert remover.check(verdict) == Ready(50.0)
    tree.pod.parent.rename(tmp_path / "elsewhere")
    Path(tree.paths.pod_logs_dir).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReclaimError, match="it is a symlink, which is not followed"):
        tree.directories().plan()
    if when == "after the plan":
        assert remover.check(verdict) == GONE
    assert not remover.remove(verdict)
    assert tree.remove_log(tree.status()) == 1, "the link alone"
    assert (tmp_path / "elsewhere" / tree.pod.name / "app" / "0.log").exists()


@pytest.mark.regression
def test_a_directory_of_links_that_is_a_symlink_is_not_followed(
    tree: LogTree, tmp_path: Path
) -> None:
    """As if it did not exist."""
    verdict, remover = tree.dead_link()
    tree.links.rename(tmp_path / "elsewhere")
    tree.links.symlink_to(tmp_path / "elsewhere")
    assert tree.plan_links(known=True)[0] == tree.plan_links()[0] == Plan()
    assert remover.check(verdict) == GONE
    assert not remover.remove(verdict)
    assert tree.remove_log(tree.status()) == 0
    assert (tmp_path / "elsewhere" / tree.link.name).is_symlink()


# ---- log symlinks


def test_a_dangling_link_of_an_unknown_container_is_removed(tree: LogTree) -> None:
    """The container is asked about, the link checked, removed, absent."""
    verdict, remover = tree.dead_link()
    assert (verdict.id, verdict.pod_uid, verdict.reason) == (tree.link.name, UID, Reason.DANGLING)
    assert remover.check(verdict) == Ready(50.0)
    assert remover.present(verdict)
    assert remover.remove(verdict)
    assert not tree.link.is_symlink()
    assert not remover.present(verdict)
    assert remover.check(verdict) == GONE
    assert not remover.remove(verdict)


def test_only_dangling_symlinks_named_log_are_planned(tree: LogTree) -> None:
    """Kept: a file, a directory, a link of another name, one to a target elsewhere
    and one to an existing log.
    """
    (tree.links / f"file-{ID}.log").write_text("")
    (tree.links / f"directory-{ID}.log").mkdir()
    (tree.links / f"other-{ID}.txt").symlink_to("/nowhere")
    (tree.links / f"foreign-{ID}.log").symlink_to("/nowhere")
    (tree.links / f"relative-{ID}.log").symlink_to("../pods/a/b/0.log")
    (tree.links / f"climbing-{ID}.log").symlink_to(f"{tree.paths.pod_logs_dir}/../../a/0.log")
    (tree.links / f"loop-{ID}.log").symlink_to(tree.links / f"loop-{ID}.log")
    foreign = dict.fromkeys(("foreign", "relative", "climbing", "loop"), Reason.NOT_KUBELETS)
    assert tree.kept_links() == foreign | {"p_ns_app": Reason.TARGET_EXISTS}
    kubelets = dict.fromkeys(("foreign", "relative", "climbing"), Reason.NOT_KUBELETS)
    expected = kubelets | {"loop": Reason.UNREADABLE, "p_ns_app": Reason.TARGET_EXISTS}
    assert tree.kept_links(known=True) == expected


@pytest.mark.parametrize(("known", "goes"), [(False, False), (True, True)])
def test_a_link_of_an_earlier_log_root_goes_by_the_kubelets_rules_alone(
    tree: LogTree, known: bool, goes: bool
) -> None:
    """A guard does not even follow it."""
    earlier = tree.links / symlink_name("q", "ns", "app", container_id=ID)
    earlier.symlink_to("/nowhere/ns_q_u/app/0.log")
    plan, _ = tree.plan_links(known=known)
    assert [verdict.id for verdict in plan.remove] == [earlier.name] * goes


@pytest.mark.regression
@pytest.mark.parametrize("known", [False, True])
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
def test_a_link_that_is_not_named_as_the_kubelet_names_it_is_kept(
    tree: LogTree, name: str, known: bool
) -> None:
    """In every mode, and the runtime is not asked about it."""
    tree.link.rename(tree.links / name)
    tree.log.unlink()
    plan, _ = tree.plan_links(known=known)
    assert [(verdict.reason, verdict.rule) for verdict in plan.keep] == [
        (Reason.NOT_KUBELETS, Rule.GUARD)
    ]
    assert plan.remove == ()
    assert tree.runtime.calls == []


def test_a_link_of_a_container_that_runs_by_now_is_kept(tree: LogTree) -> None:
    """Its log is being rotated, whatever the state was when the plan was made."""
    verdict, remover = tree.dead_link()
    tree.runtime.hold(container(ID, state=ContainerState.RUNNING))
    assert remover.check(verdict) == Refused(Reason.ROTATING)
    tree.runtime.set_state(ID, ContainerState.EXITED)
    assert remover.check(verdict) == Ready(50.0)


def test_a_link_whose_log_is_back_is_kept(tree: LogTree) -> None:
    """The runtime has opened it anew: both the check and the removal itself notice."""
    verdict, remover = tree.dead_link()
    tree.log.write_text("")
    assert remover.check(verdict) == Refused(Reason.TARGET_EXISTS)
    with pytest.raises(RemovalFailed, match="target_exists"):
        remover.remove(verdict)
    assert tree.link.is_symlink()


def test_another_link_of_the_name_is_kept(tree: LogTree) -> None:
    """One with another target, although that does not exist either; and a file."""
    verdict, remover = tree.dead_link()
    tree.link.unlink()
    tree.link.symlink_to(tree.log.with_name("1.log"))
    assert remover.check(verdict) == Refused(Reason.TOO_YOUNG)
    with pytest.raises(RemovalFailed):
        remover.remove(verdict)
    assert not remover.present(verdict)
    tree.link.unlink()
    tree.link.write_text("")
    assert remover.check(verdict) == GONE
    assert not remover.remove(verdict)
    assert tree.link.exists()


def test_a_pass_removes_dead_links_and_no_others(tree: LogTree) -> None:
    """Three links of containers that are unknown, exited and running."""
    tree.log.unlink()
    for number, state in ((1, ContainerState.EXITED), (2, ContainerState.RUNNING)):
        container_id = f"{number}" * 64
        tree.runtime.hold(container(container_id, state=state))
        (tree.links / symlink_name("p", "ns", "app", container_id=container_id)).symlink_to(
            tree.log
        )
    plan, remover = tree.plan_links()
    assert [verdict.reason for verdict in plan.keep] == [Reason.ROTATING]
    outcomes = carried_out(Plan(plan.remove), remover, tree.clock)
    assert [outcome.result for outcome in outcomes] == [Result.REMOVED, Result.REMOVED]
    assert os.listdir(tree.links) == [symlink_name("p", "ns", "app", container_id="2" * 64)]


def test_a_runtime_that_is_down_keeps_the_links(tree: LogTree) -> None:
    """In the plan and right before; by the kubelet's rules any error counts as
    "no such container".
    """
    verdict, stage = tree.dead_link()
    _, kubelets = tree.dead_link(known=True)
    tree.runtime.away = True
    assert stage.check(verdict) == Refused(Reason.INCOMPLETE_LISTING)
    assert kubelets.check(verdict) == Ready(50.0)
    plan, _ = tree.plan_links()
    assert [kept.reason for kept in plan.keep] == [Reason.INCOMPLETE_LISTING]


@pytest.mark.parametrize(("known", "going"), [(False, 0), (True, 2)])
def test_after_two_errors_no_more_requests_are_sent(tree: LogTree, known: bool, going: int) -> None:
    """Of 5 dangling links two are asked for.

    The others have no answer, and are kept by the kubelet's rules too.
    """
    for number in range(5):
        (tree.links / f"p_ns_app-{number}{ID[1:]}.log").symlink_to(tree.log.with_name("9.log"))
    tree.runtime.away = True
    plan, _ = tree.plan_links(known=known)
    assert tree.runtime.calls == ["container_status"] * 2
    assert len(plan.remove) == going


def test_two_links_of_one_container_are_asked_for_once(tree: LogTree) -> None:
    """By the id in their names."""
    tree.runtime.hold(container(ID))
    (tree.links / symlink_name("q", "ns", "app", container_id=ID)).symlink_to(tree.log)
    tree.log.unlink()
    plan, _ = tree.plan_links()
    assert len(plan.remove) == 2
    assert tree.runtime.calls == ["container_status"]


def test_the_beginning_of_an_id_may_be_asked_for(tree: LogTree) -> None:
    """Only for reading; a text that is too short causes no request, an answer about
    another container is none.
    """
    tree.runtime.hold(container(ID))
    assert ask_state(tree.runtime, ID[:6]) is ContainerState.EXITED
    assert ask_state(tree.runtime, "feedfeed") is NoState.NO_CONTAINER
    tree.runtime.says_nothing = True
    assert ask_state(tree.runtime, ID) is NoState.NO_STATUS
    tree.runtime.calls.clear()
    assert ask_state(tree.runtime, ID[:5]) is ask_state(tree.runtime, "") is NoState.NO_CONTAINER
    assert tree.runtime.calls == []


def test_without_a_directory_of_links_there_are_none(tree: LogTree) -> None:
    """As the kubelet's pattern matches nothing."""
    verdict, remover = tree.dead_link()
    tree.link.unlink()
    tree.links.rmdir()
    assert tree.plan_links()[0] == Plan()
    assert remover.check(verdict) == GONE
    assert not remover.present(verdict)


# ---- a container's log


def test_a_containers_log_is_removed_with_its_copies_and_its_link(tree: LogTree) -> None:
    """Current, rotated, compressed, temporary, and the symlink:

    5; the log of the next attempt is kept.
    """
    for name in (
        "0.log.20261121-101112",
        "0.log.20261121-091011.gz",
        "0.log.20261121-081011.tmp",
        "1.log",
        "10.log",
    ):
        (tree.log.parent / name).write_text("")
    assert tree.remove_log(tree.status()) == 5
    assert sorted(os.listdir(tree.log.parent)) == ["1.log", "10.log"]
    assert not tree.link.is_symlink()
    assert tree.remove_log(tree.status()) == 0


@pytest.mark.parametrize(
    "state", [ContainerState.RUNNING, ContainerState.CREATED, ContainerState.UNKNOWN]
)
def test_the_log_of_a_container_that_has_not_exited_is_kept(
    tree: LogTree, state: ContainerState
) -> None:
    """Whatever becomes of the container."""
    assert tree.remove_log(tree.status(state)) == 0
    assert tree.log.exists()


@pytest.mark.parametrize(
    "log_path",
    ["", "0.log", "*", "/", "../pods/a/b/0.log", "{root}/../x/y/0.log", "{root}/*/app/0.log"],
)
def test_a_hostile_log_path_means_no_log_files(
    tree: LogTree, monkeypatch: pytest.MonkeyPatch, log_path: str
) -> None:
    """Nothing is deleted, not in the working directory either, and the container may be removed."""
    monkeypatch.chdir(tree.log.parent)
    assert tree.remove_log(tree.status(log_path=log_path.format(root=tree.paths.pod_logs_dir))) == 0
    assert tree.log.exists()
    assert tree.link.is_symlink()


@pytest.mark.parametrize("which", ["pod", "app"])
def test_a_symlink_on_the_way_to_a_log_keeps_the_container(
    tree: LogTree, tmp_path: Path, which: str
) -> None:
    """The pod's directory, or the container's: its target is untouched, and the removal fails."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "app").mkdir(parents=True)
    for canary in (elsewhere / "0.log", elsewhere / "app" / "0.log"):
        canary.write_text("canary")
    replaced = tree.pod if which == "pod" else tree.pod / "app"
    replaced.rename(tmp_path / "moved")
    replaced.symlink_to(elsewhere)
    with pytest.raises(RemovalFailed, match="is kept"):
        tree.remove_log(tree.status())
    assert (
        (elsewhere / "0.log").read_text() == (elsewhere / "app" / "0.log").read_text() == "canary"
    )
    assert tree.link.is_symlink()


def test_a_log_that_is_a_symlink_is_removed_without_what_it_leads_to(
    tree: LogTree, tmp_path: Path
) -> None:
    """As with cri-dockerd, where the log is a link to one of Docker's files."""
    (tmp_path / "docker.log").write_text("docker's")
    tree.log.unlink()
    tree.log.symlink_to(tmp_path / "docker.log")
    assert tree.remove_log(tree.status()) == 2
    assert (tmp_path / "docker.log").read_text() == "docker's"


def test_only_a_link_to_this_very_log_is_removed_with_it(tree: LogTree) -> None:
    """Two containers with the longest names share the name of a link, which
    belongs to the other one.
    """
    tree.link.unlink()
    tree.link.symlink_to(tree.log.with_name("1.log"))
    assert tree.remove_log(tree.status()) == 1
    assert tree.link.is_symlink()
    tree.link.unlink()
    tree.link.write_text("")
    assert tree.remove_log(tree.status()) == 0
    assert tree.link.exists()


@pytest.mark.parametrize("pod_name", ["../p", "a/b", "p\0"])
def test_a_hostile_pod_name_names_no_link(tree: LogTree, pod_name: str) -> None:
    """Labels come from the client that made the container; the log itself is removed."""
    container_status = tree.status()._replace(pod_name=pod_name)
    assert tree.remove_log(container_status) == 1
    assert tree.link.is_symlink()


def test_missing_directories_are_no_error(tree: LogTree) -> None:
    """Nothing is left of the log: the container may be removed."""
    tree.log.unlink()
    tree.log.parent.rmdir()
    tree.link.unlink()
    tree.links.rmdir()
    assert tree.remove_log(tree.status()) == 0
    tree.pod.rmdir()
    tree.pod.parent.rmdir()
    assert tree.remove_log(tree.status()) == 0


def test_a_log_that_cannot_be_read_keeps_the_container(tree: LogTree) -> None:
    """A file in the place of the container's directory is an error, and the link
    is kept for the next pass.
    """
    tree.log.unlink()
    tree.log.parent.rmdir()
    tree.log.parent.write_text("")
    with pytest.raises(RemovalFailed):
        tree.remove_log(tree.status())
    assert tree.link.is_symlink()
