"""Logs are checked again right before their removal, and what is a container's log goes with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from reclaim.containers.plan import ContainerGCPolicy
from reclaim.evidence.states import PodState, PodStates
from reclaim.function import Ready, Refused
from reclaim.functions.unused_containers import (
    DanglingLogSymlinks,
    LogDirectories,
    remove_container_log,
)
from reclaim.pod_logs.names import LogPaths, symlink_name
from reclaim.types import (
    ContainerState,
    ContainerStatus,
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
from tests.pure.values import SteppedClock, container
from tests.rows import rows

ID = "a1b2c3d4e5f6" + "0" * 52
GONE = Refused(result=Result.ALREADY_GONE)
Stage = LogDirectories | DanglingLogSymlinks


class KnownPods(MemoryPods):
    """Pods of which the kubelet's list is known, so that its own rules apply."""

    def pod_states(self) -> PodStates:
        """All of them are listed."""
        return PodStates(frozenset(self.uids), dict.fromkeys(self.uids, PodState()))


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
        pods = KnownPods() if known else self.pods
        context = context_of(self.runtime, self.clock, pods, log_paths=self.paths)
        return DanglingLogSymlinks(context, self.paths.container_logs_dir)

    def dead(self, stage: Stage) -> tuple[Verdict, Stage]:
        """The one object of a plan, which may go, and the stage; the link dangles."""
        if isinstance(stage, DanglingLogSymlinks):
            self.log.unlink(missing_ok=True)
        plan = stage.plan()
        assert plan is not None
        (verdict,) = plan.remove
        return verdict, stage

    def happens(self, what: str, where: str = "") -> None:
        """Something changes: a file, the pod, its container or the runtime."""
        places = {"root": self.pod.parent, "pod": self.pod, "pod/new": self.pod / "new"}
        places |= {"log": self.log, "link": self.link, "links": self.links}
        match what:
            case "move":
                replaced(places[where])
            case "touch":
                places[where].touch()
            case "mkdir":
                places[where].mkdir()
            case "dangle":
                places[where].symlink_to(self.app / "1.log")
            case "alive":
                self.pods.uids.add("u")
            case "away":
                self.runtime.away = True
            case "RUNNING" | "EXITED":
                self.runtime.hold(container(ID, state=ContainerState(what)))

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
    planned     | happens                | answer             | removal | what
    pod         | -                      | -                  | gone    | nothing
    link        | -                      | -                  | gone    | nothing to a link
    pod         | alive                  | pod_alive          | gone    | the pod is there
    pod         | touch pod/new          | too_young          | kept    | a file was made
    pod         | move pod, mkdir pod    | too_young          | kept    | another directory
    pod         | move root              | -                  | nothing | no root
    pod         | move root, touch root  | unreadable         | kept    | a file for a root
    link        | RUNNING                | rotating           | gone    | it runs
    link        | EXITED                 | -                  | gone    | it has exited
    link        | touch log              | target_exists      | kept    | its log is back
    link        | move link, dangle link | too_young          | kept    | another link
    link        | move link, touch link  | -                  | nothing | a file for a link
    link        | move links             | -                  | nothing | no directory of links
    link        | away                   | incomplete_listing | gone    | the runtime is down
    link, known | away                   | -                  | gone    | to the kubelet it has no container
""")
def test_what_has_changed_since_the_plan_stays_there(
    tree: LogTree, planned: str, happens: str, answer: str, removal: str
) -> None:
    """Checked right before its removal; by which it is looked at once more, without a question to
    anybody: what is there by then under the name is not touched. What has not changed goes, once."""
    verdict, stage = tree.dead(STAGES[planned](tree))
    path = tree.pod if planned == "pod" else tree.link
    assert stage.present(verdict)
    for action in happens.split(", "):
        tree.happens(*action.split())
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


@pytest.mark.regression
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


@pytest.mark.regression
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
    existing log. One of an earlier root goes by the kubelet's rules alone: a guard does not even
    follow it."""
    (tree.links / f"file-{ID}.log").touch()
    (tree.links / f"directory-{ID}.log").mkdir()
    for name, target in {
        f"other-{ID}.txt": "/nowhere",
        f"foreign-{ID}.log": "/nowhere",
        f"relative-{ID}.log": "../pods/a/b/0.log",
        f"climbing-{ID}.log": f"{tree.paths.pod_logs_dir}/../../a/0.log",
        f"loop-{ID}.log": str(tree.links / f"loop-{ID}.log"),
    }.items():
        (tree.links / name).symlink_to(target)
    expected = dict.fromkeys(("foreign", "relative", "climbing", "loop"), Reason.NOT_KUBELETS)
    expected["p_ns_app"] = Reason.TARGET_EXISTS
    assert tree.why_kept() == expected
    assert tree.why_kept(known=True) == {**expected, "loop": Reason.UNREADABLE}
    earlier = symlink_name("q", "ns", "app", container_id=ID)
    (tree.links / earlier).symlink_to("/nowhere/ns_q_u/app/0.log")
    for known in (False, True):
        plan = tree.symlinks(known=known).plan()
        assert [verdict.id for verdict in plan.remove] == [earlier] * known


@pytest.mark.regression
@pytest.mark.parametrize("known", [False, True])
def test_a_link_that_is_not_named_as_the_kubelet_names_it_is_kept(
    tree: LogTree, known: bool
) -> None:
    """In every mode, and the runtime is not asked about it."""
    tree.link.unlink()
    tree.dangle("short.log", f"app-{ID}.log", f"P_ns_app-{ID}.log")
    plan = tree.symlinks(known=known).plan()
    assert {verdict.reason for verdict in plan.keep} == {Reason.NOT_KUBELETS}
    assert (len(plan.keep), tree.runtime.calls) == (3, [])


@pytest.mark.parametrize("known", [False, True])
def test_after_two_errors_no_more_requests_are_sent(tree: LogTree, known: bool) -> None:
    """Of 5 dangling links two are asked for. The others have no answer, and are kept by the
    kubelet's rules too, to which an error counts as "no such container". Two links of one container
    are asked for once."""
    tree.dangle(symlink_name("q", "ns", "app", container_id=ID))
    assert len(tree.symlinks(known=known).plan().remove) == 2
    assert tree.runtime.calls.count("container_status") == 1
    tree.dangle(*(f"p_ns_app-{number}{ID[1:]}.log" for number in range(5)))
    tree.runtime.away = True
    tree.runtime.calls.clear()
    plan = tree.symlinks(known=known).plan()
    assert tree.runtime.calls == ["container_status"] * 2
    assert len(plan.remove) == 2 * known


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


@pytest.mark.parametrize(
    "log_path", ["", "0.log", "*", "/", "../pods/a/b/0.log", "R/../x/y/0.log", "R/*/app/0.log"]
)
def test_a_hostile_log_path_means_no_log_files(
    tree: LogTree, monkeypatch: pytest.MonkeyPatch, log_path: str
) -> None:
    """Nothing is deleted, not in the working directory either, and the container may be removed."""
    monkeypatch.chdir(tree.app)
    assert tree.remove_log(log_path=log_path.replace("R", tree.paths.pod_logs_dir)) == 0
    assert tree.log.exists()
    assert tree.link.is_symlink()


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
    one. Labels come from the client that made the container: a hostile name names no link."""
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
