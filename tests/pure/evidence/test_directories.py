"""Which pods exist by the kubelet's directories, whether these are believed, and what holds while
they are not.

Source: kubelet, `pkg/kubelet/kubelet_volumes.go` (cleanupOrphanedPodDirs).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reclaim.containers.plan import (
    ContainerGCPolicy,
    LogEntry,
    plan_container_gc,
    plan_pod_logs,
    plan_sandbox_gc,
)
from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.states import (
    PodDirectory,
    PodState,
    PodStates,
    RootIdentity,
    Why,
    distrust_of,
)
from reclaim.kubelet.pods import KubeletPods
from reclaim.types import ContainerState, Listing, Plan, PodSandboxState, Reason
from reclaim.workers import ReadingsInTime, Workers
from signals.clock import SystemClock
from tests.pure.values import NOW_NS, SteppedClock, container, sandbox
from tests.reclaimd_process import came_true
from tests.rows import rows

Answer = TypeVar("Answer")
WHERE = "/var/lib/kubelet/pods"
HERE, THERE = RootIdentity((1, 2), (1, 3)), RootIdentity((9, 2), (9, 3))
UIDS = ("one", "two", "three", "four")
PART = re.compile(r"(\w+):(\w*)(?:@(-?\d+))?")
PARTS: dict[str, ContainerState | PodSandboxState] = {
    "runs": ContainerState.RUNNING,
    "dead": ContainerState.EXITED,
    "created": ContainerState.CREATED,
    "lost": ContainerState.UNKNOWN,
    "ready": PodSandboxState.READY,
    "unlabelled": PodSandboxState.READY,
    "sandbox": PodSandboxState.NOTREADY,
}


def held(text: str) -> Listing:
    """What the runtime holds, written as what it is, of which pod, and how many seconds old."""
    containers, sandboxes = [], []
    for what, uid, age in PART.findall(text):
        state, name, seconds = PARTS[what], f"{what}-{uid}", float(age or 3600.0)
        if isinstance(state, ContainerState):
            containers.append(container(name, state=state, pod_uid=uid, age_seconds=seconds))
        else:
            labelled = what != "unlabelled"
            sandboxes.append(
                sandbox(name, state=state, pod_uid=uid, age_seconds=seconds, labelled=labelled)
            )
    return Listing(containers=tuple(containers), sandboxes=tuple(sandboxes))


def doubted(
    states: PodStates, listing: Listing | None, believed: RootIdentity | None = None
) -> PodStates:
    """The states as they are planned with."""
    return replace(states, doubt=distrust_of(states, listing, believed, path=WHERE, now_ns=NOW_NS))


def why(states: PodStates, listing: Listing | None, believed: RootIdentity | None = None) -> str:
    """Why directories are not believed; `-` if they are."""
    doubt = doubted(states, listing, believed).doubt
    assert doubt is None or doubt.sentence.endswith(", so which pods are gone is not known")
    return "-" if doubt is None else doubt.why


@rows("""
    present | parts                   | kubelet                    | expected         | what
    one     | runs:one dead:two       | unknown                    | -                | what runs has a directory
    one     | dead:one dead:two       | unknown                    | -                | one pod is enough
    one     | sandbox:one             | unknown                    | -                | a sandbox, too
    one     | runs:one runs:two       | unknown                    | runs_without     | one runs without
    one     | runs:one runs:two@0     | unknown                    | runs_without     | however young
    one     | dead:one ready:two      | unknown                    | runs_without     | a sandbox that is ready
    one     | dead:one unlabelled:two | unknown                    | -                | that is not a kubelet's
    one     | dead:one runs:          | unknown                    | -                | nor this
    one     | dead:one lost:two       | unknown                    | -                | not known to run
    one     | dead:one created:two    | unknown                    | -                | that does not run
    -       | dead:one                | unknown                    | explains_nothing | no directory
    foreign | dead:one dead:two       | unknown                    | explains_nothing | other directories
    one     | -                       | unknown                    | nothing_held     | nothing to explain
    -       | dead:                   | unknown                    | nothing_held     | nor here
    ?       | runs:one                | unknown                    | unreadable       | no reading
    one     | ?                       | unknown                    | not_compared     | no lists
    -       | dead:one                | complete                   | -                | the kubelet says that there is none
    -       | dead:one                | complete two=over          | -                | nor this
    -       | dead:one                | complete one=over          | -                | nor one that has terminated
    -       | dead:one                | partial                    | explains_nothing | it may have one more
    -       | dead:one                | complete one=live          | explains_nothing | a live pod has a directory
    one     | dead:one dead:two       | complete two=live          | explains_nothing | one live pod at least
    one     | dead:one dead:two       | complete one=live two=live | -                | this one
    one     | dead:one                | complete one=live new=live | -                | a new pod is not held yet
    -       | runs:one                | complete                   | runs_without     | it runs all the same
    one     | dead:one runs:two       | complete one=live two=live | runs_without     | the same
""")
def test_directories_are_believed_while_they_explain_what_the_runtime_holds(
    present: str, parts: str, kubelet: str, expected: str
) -> None:
    """All that runs, and one pod at least. What is not a kubelet's needs no directory and proves
    none. A complete list explains that nothing has a directory."""
    listing = None if parts == "?" else held(parts)
    complete, *listed = kubelet.split()
    words = (each.split("=") for each in listed)
    states = {uid: PodState(terminated=state == "over") for uid, state in words}
    read = PodStates(
        None if present == "?" else frozenset(present.replace("-", "").split()),
        None if complete == "unknown" else states,
        sources_ready=complete != "partial",
        identity=HERE,
    )
    assert why(read, listing) == expected


@rows("""
    parts        | expected  | what
    dead:one     | exchanged | nothing runs
    runs:one@9   | exchanged | for less than 10 s
    runs:one@-60 | exchanged | in the future
    runs:one@10  | -         | for 10 s
    ready:one    | -         | a sandbox, too
""")
def test_other_directories_must_explain_what_has_run_for_a_while(parts: str, expected: str) -> None:
    """The directories that were believed before need not. What is undated proves nothing."""
    states = PodStates(frozenset({"one"}), identity=HERE)
    assert why(states, held(parts), THERE) == expected
    assert why(states, held(parts), HERE) == "-"
    undated = held("runs:one").containers[0]._replace(created_at_ns=0)
    assert why(states, Listing(containers=(undated,)), THERE) == Why.EXCHANGED


def test_the_sentence_names_pod_and_directory() -> None:
    """One sentence, with the first pod and how many more; a runtime may report the longest names."""
    (one, *others) = held("runs:one runs:two dead:three").containers
    for name in ("a", "a" * 10**6):
        named = one._replace(pod_name=name)
        doubt = doubted(PodStates(frozenset({"three"})), Listing(containers=(named, *others))).doubt
        assert doubt is not None
        told, _, rest = doubt.sentence.partition(" (and 1 more) ")
        assert told.startswith(f"the pod default/{name[:60]}")
        assert rest == f"runs without a directory in {WHERE}, so which pods are gone is not known"
        assert len(told) < 400


# ---- while they are not believed

uids = st.sampled_from(UIDS)
parts = st.lists(
    st.builds(
        "{}:{}@{}".format,
        st.sampled_from(["dead", "dead", "dead", "sandbox", "created", "lost", "runs", "ready"]),
        st.sampled_from(["", *UIDS]),
        st.integers(0, 7200),
    ),
    max_size=5,
    unique_by=lambda each: each.partition("@")[0],
).map(" ".join)
directories = st.builds(
    PodStates,
    present=st.sampled_from([None, *[frozenset(UIDS[:3])] * 4]) | st.frozensets(uids),
    kubelet=st.none()
    | st.dictionaries(uids, st.builds(PodState, st.booleans(), st.booleans(), st.booleans())),
    sources_ready=st.booleans(),
    identity=st.sampled_from([HERE, THERE]),
)
policies = st.builds(
    partial(ContainerGCPolicy),  # of a named tuple it would draw all fields
    max_per_pod_container=st.integers(-1, 2),
    max_containers=st.integers(-1, 4),
    cautious=st.booleans(),
    evict_non_deleted_pods=st.booleans(),
)


@given(directories, parts, st.sampled_from([None, HERE, THERE]), policies)
@example(PodStates(frozenset()), "runs:one dead:two", None, ContainerGCPolicy())
@example(PodStates(frozenset({"three"}), {}), "runs:one dead:two", None, ContainerGCPolicy())
def test_nothing_is_gone_while_something_runs_without_its_directory(
    states: PodStates, holds: str, believed: RootIdentity | None, policy: ContainerGCPolicy
) -> None:
    """Neither by the states, nor in any of the three plans; and a doubt only keeps: whatever goes
    with it would go without it, or as soon as it is old enough. What is left of pods of which
    nothing is known counts towards no limit, so that nothing else goes in its place."""
    listing = held(holds)
    pods = doubted(states, listing, believed)
    present = states.present or frozenset()
    running = {
        each.pod_uid
        for each in listing.parts
        if each.pod_uid and each.state in (ContainerState.RUNNING, PodSandboxState.READY)
    }
    entries = [LogEntry(f"default_pod_{uid}".encode(), (1, 1), 0) for uid in UIDS]
    assert pods.doubt is not None or running <= present
    planners: list[Callable[[PodStates], Plan]] = [
        lambda pods: plan_container_gc(listing, pods, policy, now_ns=NOW_NS),
        lambda pods: plan_sandbox_gc(listing, pods, policy, now_ns=NOW_NS),
        lambda pods: plan_pod_logs(entries, pods, policy, in_runtime=frozenset(), now_ns=NOW_NS),
    ]
    for make in planners:
        made, certain = make(pods), make(states)
        gone = {each.pod_uid for each in made.remove if each.reason == Reason.POD_GONE}
        assert gone.isdisjoint(present | running)
        if pods.doubt is not None:
            assert gone == set()
            assert not any(pods.gone(uid) for uid in ("", *UIDS))
        going = {each.id for each in certain.remove}
        going |= {each.id for each in certain.keep if each.reason == Reason.TOO_YOUNG}
        assert {each.id for each in made.remove} <= going


@given(st.frozensets(uids, min_size=1), parts)
def test_the_right_directories_are_believed_again(present: frozenset[str], holds: str) -> None:
    """After any change of the root, as soon as a pod runs in the new one and nothing runs outside
    it: never for ever in doubt."""
    inside = " ".join(each for each in holds.split() if PART.findall(each)[0][1] in present)
    states = PodStates(present, identity=HERE)
    assert why(states, held(f"{inside} runs:{min(present)}@10"), THERE) == "-"


# ---- states, and directories on a disk


def test_a_pod_is_gone_when_it_is_known_not_to_exist() -> None:
    """Not when nothing is known, and never the empty UID. Of two observations the more careful
    counts: a pod exists if it is in either, nothing is known if either is unknown, and readings of
    two directories are no reading."""
    a, none, empty = (PodStates(each) for each in (frozenset("a"), None, frozenset[str]()))
    assert [each.gone("b") for each in (a, none, empty)] == [True, False, True]
    assert not a.gone("a")
    assert not empty.gone("")
    assert a.merge(PodStates(frozenset("b"))) == PodStates(frozenset("ab"))
    assert [a.merge(none), none.merge(a), empty.merge(empty)] == [none, none, empty]
    merged = replace(a, identity=HERE).merge(replace(a, identity=THERE))
    assert merged.present is None
    assert merged.doubt is not None
    assert not merged.gone("b")


def test_a_hostile_uid_never_counts_as_gone(tmp_path: Path) -> None:
    """A UID comes from the runtime: one that is no plain name of a file belongs to no pod, neither
    for the plan nor right before a removal."""
    (tmp_path / "pods" / "web").mkdir(parents=True)
    source = KubeletDirectories(str(tmp_path))
    pods = KubeletPods(source, SteppedClock())
    assert pods.compared(pods.read(), held("ready:web")).doubt is None
    assert pods.gone("other")
    names = [".", "..", "../pods", "a/b", "/etc", "nothing/.."]
    for uid in (*names, "", "a\0b", "a b", "\ud800", "x" * 256):
        assert (uid, pods.gone(uid), source.pod_states().gone(uid)) == (uid, False, False)


@pytest.mark.parametrize("what", ["missing", "a file"])
def test_without_the_directory_of_pods_no_pod_is_gone(tmp_path: Path, what: str) -> None:
    """A wrong root directory, or a node without a kubelet, licenses nothing; the sentence has the
    system's own words. Reading creates nothing."""
    if what == "a file":
        (tmp_path / "pods").touch()
    source = KubeletDirectories(str(tmp_path))
    states = source.pod_states()
    assert (states, states.gone("a"), source.pod_directories()) == (PodStates(None), False, None)
    assert states.doubt is not None
    error = "Not a directory" if what == "a file" else "No such file or directory"
    assert (
        states.doubt.sentence
        == f"{tmp_path}/pods cannot be read ({error}), so which pods are gone is not known"
    )
    assert len(list(tmp_path.iterdir())) == (what == "a file")


def test_the_directories_of_pods_and_of_their_containers_tell_when_they_changed_last(
    tmp_path: Path,
) -> None:
    """What lies deeper does not count, nor what is no directory; a dangling link is a pod."""
    pods = tmp_path / "pods"
    for path, when in (
        ("a/containers/init/deeper", 1.0),
        ("a/containers/init", 110.0),
        ("a/containers/app", 120.0),
        ("a", 100.0),
        ("b", 300.0),
    ):
        (pods / path).mkdir(parents=True, exist_ok=True)
        os.utime(pods / path, (when, when))
    (pods / "a" / "containers" / "file").touch()
    found = KubeletDirectories(str(tmp_path)).pod_directories()
    assert found == {
        "a": PodDirectory(100.0, {"init": 110.0, "app": 120.0}),
        "b": PodDirectory(300.0),
    }
    (pods / "c").symlink_to("/nowhere")
    assert KubeletDirectories(str(tmp_path)).pod_states() == PodStates(frozenset("abc"))


@pytest.mark.parametrize("place", ["a", "a/containers", "a/containers/app"])
def test_no_symlink_is_followed_to_the_directory_of_a_container(tmp_path: Path, place: str) -> None:
    """One in the place of a pod or a container has no containers; one in the place of all
    containers makes the look unknown, as nobody can tell what is being made there."""
    real = tmp_path / "real"
    (real / "containers" / "app").mkdir(parents=True)
    link = tmp_path / "pods" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(real if place == "a" else real / "containers")
    found = KubeletDirectories(str(tmp_path)).pod_directories()
    if place == "a/containers":
        assert found is None
    else:
        assert found is not None
        assert not found["a"].containers


def test_a_pod_is_gone_only_in_the_directories_that_are_meant(tmp_path: Path) -> None:
    """Root and `pods` both count, by device and inode: another root, and another `pods` in it, are
    others."""
    root = tmp_path / "root"
    (root / "pods" / "web").mkdir(parents=True)
    source = KubeletDirectories(str(root))
    pods, seen = KubeletPods(source, SteppedClock()), set()

    def exchanged(*moves: tuple[Path, Path]) -> None:
        """Until the next comparison nothing is gone."""
        for one, other in moves:
            one.rename(other)
        (root / "pods" / "web").mkdir(parents=True, exist_ok=True)
        assert not pods.gone("a")

    exchanged()
    for moves in (
        [],
        [(root / "pods", tmp_path / "pods")],
        [(root, tmp_path / "old")],
    ):
        exchanged(*moves)
        assert pods.compared(pods.read(), held("ready:web")).doubt is None
        assert pods.gone("a")
        seen.add(source.pod_states().identity)
    assert len(seen - {None}) == 3


# ---- a disk that does not answer


class Disk(ReadingsInTime):
    """Reads a disk that can stop to answer: each reading then hangs until it answers again.
    `first`: only the first, which has read already."""

    def __init__(self, within_seconds: float, *, first: bool = False) -> None:
        self.workers = Workers("directories", 4)
        self.answers, self.begun = threading.Event(), threading.Event()
        self.hung = 0
        self._first = first
        super().__init__(self.workers, within_seconds)

    def __call__(self, read: Callable[[], Answer], /) -> Answer:
        """One reading."""

        def when_it_answers() -> Answer:
            found = read() if self._first else None
            hangs = not (self._first and self.begun.is_set())
            self.begun.set()
            self.hung += not self.answers.is_set()
            assert not hangs or self.answers.wait(60.0)
            return read() if found is None else found

        return super().__call__(when_it_answers)


@pytest.mark.regression
def test_directories_that_do_not_answer_are_unknown_and_are_asked_once(tmp_path: Path) -> None:
    """No pod counts as gone, and only the first reading waits. When the disk answers again, all is
    as before."""
    (tmp_path / "pods" / "uid-1").mkdir(parents=True)
    disk = Disk(0.05)
    source = KubeletDirectories(str(tmp_path), disk)
    for word in ("it did not answer within 0.05 s", "an earlier reading has not been answered yet"):
        states = source.pod_states()
        assert (states.present, states.identity, states.gone("uid-2")) == (None, None, False)
        assert states.doubt is not None
        assert states.doubt.sentence.startswith(f"{tmp_path}/pods cannot be read ({word})")
    assert source.pod_directories() is None
    assert disk.hung == 1
    disk.answers.set()
    assert came_true(lambda: source.pod_states().present == frozenset({"uid-1"}))
    assert source.pod_states().gone("uid-2")
    disk.workers.close()


def test_who_asks_while_a_look_is_under_way_gets_a_later_one(tmp_path: Path) -> None:
    """Three removals ask for the directories of pods while a look has read them already: then a
    pod's appears."""
    (tmp_path / "pods").mkdir()
    disk = Disk(60.0, first=True)
    pods = KubeletPods(KubeletDirectories(str(tmp_path), disk), SystemClock())
    found: list[set[str]] = []
    asking = [
        threading.Thread(target=lambda: found.append(set(pods.pod_directories() or ())))
        for _ in range(4)
    ]
    asking[0].start()
    assert disk.begun.wait(60.0)
    (tmp_path / "pods" / "uid-1").mkdir()
    for thread in asking[1:]:
        thread.start()
    disk.answers.set()
    for thread in asking:
        thread.join(60.0)
    assert sorted(found, key=len) == [set(), {"uid-1"}, {"uid-1"}, {"uid-1"}]
    disk.workers.close()
