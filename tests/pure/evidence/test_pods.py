"""Which pods exist by the kubelet's directories, whether these are believed, and what holds while
they are not; and that while a pod is being made no image goes, and no longer than that.

Source: kubelet, `pkg/kubelet/kubelet_volumes.go` (cleanupOrphanedPodDirs).
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
from reclaim.evidence.starts import (
    AGAIN_HOLD_OFFS,
    UNFINISHED_HOLD_OFFS,
    PartAges,
    PodStarts,
    nothing_has_begun,
)
from reclaim.evidence.states import (
    PodDirectories,
    PodDirectory,
    PodState,
    PodStates,
    RootIdentity,
    Why,
    distrust_of,
)
from reclaim.kubelet.pods import KubeletPods
from reclaim.types import ContainerState, Listing, Plan, PodSandboxState, Reason
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import NOW_NS, SteppedClock, container, sandbox
from tests.rows import rows, rows_of

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
    """One sentence, with the first pod and how many more; a runtime may report the longest
    names."""
    (one, *others) = held("runs:one runs:two dead:three").containers
    named = one._replace(pod_name="a" * 10**6)
    doubt = doubted(PodStates(frozenset({"three"})), Listing(containers=(named, *others))).doubt
    assert doubt is not None
    told, _, rest = doubt.sentence.partition(" (and 1 more) ")
    assert told.startswith(f"the pod default/{'a' * 60}")
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


def test_without_the_directory_of_pods_no_pod_is_gone(tmp_path: Path) -> None:
    """A wrong root directory, or a node without a kubelet, licenses nothing; the sentence has the
    system's own words. Reading creates nothing."""
    source = KubeletDirectories(str(tmp_path))
    for error in ("No such file or directory", "Not a directory"):
        states = source.pod_states()
        assert (states.present, states.gone("a"), source.pod_directories()) == (None, False, None)
        assert states.doubt is not None
        assert states.doubt.sentence.startswith(f"{tmp_path}/pods cannot be read ({error}), so ")
        (tmp_path / "pods").touch()


@rows("""
    tree                                                                             | told                                          | what
    a/containers/init/deeper@1 a/containers/init@110 a/containers/app@120 a@100 b@300 | {a: [100, {init: 110, app: 120}], b: [300, {}]} | what lies deeper does not count
    a/containers/file@1 a@100 b>nowhere@5                                            | {a: [100, {}], b: [5, {}]}                    | nor what is no directory; a dangling link is a pod
    a>real@7                                                                         | {a: [7, {}]}                                  | a link in the place of a pod
    a/containers/app>real@7 a@100                                                    | {a: [100, {}]}                                | or of a container has no containers
    a/containers>real@7 a@100                                                        | null                                          | nobody can tell what is being made there
""")
def test_the_directories_of_pods_and_of_their_containers_tell_when_they_changed_last(
    tmp_path: Path, tree: str, told: Any
) -> None:
    """No link is followed (`>`: to where)."""
    (tmp_path / "real" / "containers" / "app").mkdir(parents=True)
    for part in tree.split():
        name, _, at = part.partition("@")
        name, _, target = name.partition(">")
        place = tmp_path / "pods" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if target:
            place.symlink_to(tmp_path / target)
        elif place.name == "file":
            place.touch()
        else:
            place.mkdir(exist_ok=True)
        os.utime(place, (float(at), float(at)), follow_symlinks=False)
    pods = KubeletDirectories(str(tmp_path))
    expected = told and {uid: PodDirectory(*each) for uid, each in told.items()}
    assert pods.pod_directories() == expected
    assert pods.pod_states() == PodStates(frozenset(part[0] for part in tree.split()))


# ---- one look for all who ask


def test_who_asked_while_a_look_was_under_way_gets_a_later_one(tmp_path: Path) -> None:
    """It may have read the directories already, as a look takes a second here; then a pod's
    appears."""

    class Slow(KubeletDirectories):
        """Directories on a slow disk."""

        def pod_directories(self) -> PodDirectories | None:
            """As they were when it began."""
            found = super().pod_directories()
            clock.step(1.0)
            return found

    clock = SteppedClock(at=1000.0)
    pods = KubeletPods(Slow(str(tmp_path)), clock)
    (tmp_path / "pods").mkdir()
    assert pods.pod_directories() == {}
    (tmp_path / "pods" / "uid-1").mkdir()
    assert pods.pod_directories(999.9) == {}
    assert [*(pods.pod_directories(1000.5) or ())] == ["uid-1"]


NOW = NOW_NS / 1e9
HOLD_OFF = 1.0
DAY = 86_400.0


class Node:
    """A runtime with one sandbox that is not ready, and a clock that stands at NOW."""

    def __init__(self, hold_off_seconds: float = HOLD_OFF) -> None:
        self.clock = SteppedClock(at=50.0, wall_at=NOW)
        self.runtime = MemoryRuntime(self.clock)
        self.runtime.hold(sandbox("dead", state=PodSandboxState.NOTREADY, age_seconds=0.1))
        self.pods = MemoryPods("uid-1")
        self.part_ages = PartAges(self.clock)
        self.urgent = False
        self._hold_off_seconds = hold_off_seconds
        self.next_pass()

    def next_pass(self) -> None:
        """Another pass begins, with what the last one has seen."""
        self.starts = PodStarts(
            self.runtime.list_pod_sandboxes,
            self.pods,
            self.clock,
            self._hold_off_seconds,
            self.part_ages,
            lambda: self.urgent,
        )

    def sandbox_comes_up(
        self, sandbox_id: str, ago: float, *, occupied: bool = True, uid: str = "uid-1"
    ) -> None:
        """A ready sandbox that was made so long ago, with a container that is not in its first
        run."""
        age_seconds = NOW - self.clock.wall() + ago
        self.runtime.hold(
            sandbox(sandbox_id, state=PodSandboxState.READY, pod_uid=uid, age_seconds=age_seconds)
        )
        if occupied:
            self.lists(f"in {sandbox_id}", sandbox_id=sandbox_id, ago=3600.0)

    def wait_seconds(self, image: str = "image") -> float:
        """As asked before the removal of an image, with the containers of this moment."""
        return self.starts.wait_seconds(tuple(self.runtime.containers.values()), image)

    def lists(self, container_id: str, *, attempt: int = 1, ago: float = 0.0, **of: Any) -> None:
        """The runtime lists a container that was made so long ago."""
        age_seconds = NOW - self.clock.wall() + ago
        made = container(container_id, attempt=attempt, age_seconds=age_seconds)
        self.runtime.hold(made._replace(**of))

    def happen(self, told: str) -> None:
        """What these words say, each with the pod that it is about (`/UID`) and how many seconds
        ago (`@`) it was: a sandbox, one without a container, the directory of the pod, that of its
        next container or of the next attempt of its first one, a container in its first run, one
        that was restarted, a pod that has run for an hour."""
        for word in told.split():
            what, _, ago = word.partition("@")
            what, _, uid = what.partition("/")
            self._happens(what, uid or "uid-1", float(ago or 0))

    def _happens(self, what: str, uid: str, ago: float) -> None:
        at = self.clock.wall() - ago
        match what:
            case "sandbox" | "empty":
                self.sandbox_comes_up(f"of {uid}", ago, uid=uid, occupied=what == "sandbox")
            case "directory":
                self.pods.begun[uid] = at
            case "gone":
                del self.pods.begun[uid]
            case "ended":
                del self.pods.begun_containers[uid, "init"]
            case "app" | "next" | "init":
                self.pods.begun_containers[uid, what] = at
            case "first" | "restarted":
                attempt = int(what == "restarted")
                self.lists("c", attempt=attempt, ago=ago, sandbox_id=f"of {uid}", pod_uid=uid)
            case "listed":
                self.lists(f"{uid} next", pod_uid=uid, name="next", sandbox_id=f"of {uid}")
            case "old":
                self.happen(f"empty/{uid}@3600 directory/{uid}@3600 app/{uid}@3600")
                self.lists(f"{uid} app", pod_uid=uid, name="app", sandbox_id=f"of {uid}")
            case "pass":
                self.next_pass()
            case "set":
                self.clock.step_wall(ago)
            case "lost":
                self.starts.lost(ago)
            case "told":
                self.pods.named = frozenset({"app:1"})
            case "urgent":
                self.urgent = True
            case "stream":  # pods keep beginning, and finish
                while not self.starts.patience_used_up:
                    self.sandbox_comes_up(f"one at {self.clock.wall()}", 0.0)
                    self.clock.step(self.wait_seconds("another image"))
                self.clock.step(HOLD_OFF)
            case _:
                raise AssertionError(f"it is not known what {what} means")


AGAIN = AGAIN_HOLD_OFFS * HOLD_OFF
UNFINISHED = UNFINISHED_HOLD_OFFS * HOLD_OFF


def assert_waits(story: str) -> None:
    """On each line some seconds go by, then something happens, and how long an image has to wait is
    asked; `30 x 0.1`: thirty times."""
    node = Node()
    for row in rows_of(story):
        times, _, seconds = row["after"].rpartition(" x ")
        for _ in range(int(times or 1)):
            node.clock.step(float(seconds or 0))
            node.happen(row["happens"])
            wait = node.wait_seconds(row.get("image") or "image")
            assert wait == pytest.approx(float(row["wait"])), row
            assert node.starts.under_way is (wait > 0 or row.get("under way") == "yes")


@rows("""
    parts                       | wait | what
    sandbox@3600 directory@60   | 0    | all is old, or not ready
    sandbox@0.25                | 0.75 | a sandbox has come up
    sandbox@0.75 directory@0.25 | 0.75 | the younger of both counts
    sandbox@-30 directory@-30   | 1    | it is dated in the future
    empty@5                     | 0.1  | a sandbox without a container
    empty@30                    | 0    | for half a minute
    directory/new@5             | 0.1  | a directory without a sandbox
    directory/new@30            | 0    | it waits for its volumes
    sandbox@60 first@0.25       | 0.75 | a second container may come
    sandbox@60 restarted@0.25   | 0    | a restart says nothing of that
    old next@0                  | 0.1  | a container is being made
    old next@30                 | 0    | it is stuck
    old app@-0.5                | 0    | clocks may differ by a second
    old app@-1.5                | 0.1  | another attempt
    told old/uid-named directory/uid-named next/uid-named empty/uid-named first/uid-named | 0 | what the kubelet has told is known
    old/uid-named directory/uid-named | 1 | it has not
""")
def test_how_long_an_image_waits(parts: str, wait: float) -> None:
    """For a pod that begins: the rest of the hold-off, until it has taken its image; for one that
    lacks its next part a moment, again and again."""
    node = Node()
    node.happen(parts)
    assert node.wait_seconds() == pytest.approx(wait)
    assert node.starts.under_way is (wait > 0)
    if wait > AGAIN:
        node.clock.step(wait + 0.01)
        assert node.wait_seconds() <= AGAIN, "that wait is over then"


STORIES = {
    "a container that is being made is waited for until it is listed": """
        after    | happens        | wait
                 | old            | 0
        3 x 0.11 | next@0         | 0.1
        0.11     | listed         | 0
    """,
    "a sandbox until it has a container": """
        after | happens      | wait
              | empty/slow@5 | 0.1
        0.11  | listed/slow  | 0
    """,
    "a pod that began a moment after the image was first asked about is not forgotten": """
        after    | happens          | image   | wait
                 |                  |         | 0
                 | directory/slow@2 |         | 1
        1        |                  |         | 0.1
        30 x 0.1 |                  |         | 0.1
                 |                  | another | 0.1
    """,
    "what was missing in the look before is as old as its date says": """
        after | happens           | wait
              |                   | 0
        60    | pass sandbox@0.25 | 0.75
    """,
    "however old that is": """
        after | happens         | wait
              |                 | 0
        60    | pass sandbox@59 | 0
    """,
    "if it can be true: else as old as its first sight": """
        after | happens           | wait
              |                   | 0
        60    | pass sandbox@3600 | 1
    """,
    "a clock that is set back makes no known part new again": """
        after | happens                     | wait
              | sandbox@3600 directory@3600 | 0
              | set@-3599.9 pass            | 0
    """,
    "in all no pass waits longer than twice the hold-off; relief comes first": """
        after | happens     | wait | under way
              | sandbox/new | 1    |
        0.25  |             | 0.75 |
        0.75  | sandbox/b   | 1    |
        1     | sandbox/c   | 0    | yes
    """,
    "lists that are read after a wait are part of it": """
        after | happens     | wait
              | sandbox/new | 1
        1.3   | sandbox/b   | 0.7
    """,
    "what is lost to lists that were too old costs patience": """
        after | happens               | wait
              | sandbox/new lost@1.75 | 0.25
    """,
    "with minutes left a network that takes 3 s to set up costs no image": """
        after    | happens                 | wait | under way
                 | stream directory/slow@2 | 0.1  |
        29 x 0.1 |                         | 0.1  |
        0.11     | empty/slow              | 0.1  |
        0.11     | next/slow               | 0.1  |
        0.11     | listed/slow             | 0    | yes
    """,
    "where it is urgent relief comes first, but for a moment": """
        after | happens                        | wait | under way
              | stream urgent directory/slow@2 | 0.1  |
        0.1   |                                | 0    | yes
        0.1   | empty/slow                     | 0    | yes
        0.11  | first/slow                     | 0    | yes
    """,
    "no image waits for pods that begin after it was asked about": """
        after | happens              | image    | wait | under way
              | stream directory/0@2 |          | 0.1  |
        0.11  | directory/1@2        |          | 0.1  |
        0.11  | directory/2@2 gone/0 |          | 0    | yes
              |                      | a second | 0.1  |
    """,
    "an image waits half a minute at most": """
        after     | happens                 | wait | under way
                  | stream directory/slow@2 | 0.1  |
        297 x 0.1 | directory/slow@2        | 0.1  |
        0.5       | directory/slow@2        | 0    | yes
    """,
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_an_image_waits_for(story: str) -> None:
    """And when it has waited long enough."""
    assert_waits(story)


def test_without_a_hold_off_no_pod_is_searched_and_two_seconds_are_the_patience() -> None:
    """Which lists that were too old use up."""
    node = Node(hold_off_seconds=0.0)
    node.happen("sandbox/new lost@1.9")
    assert (node.wait_seconds(), node.starts.patience_used_up) == (0.0, False)
    assert node.runtime.calls == []
    node.happen("lost@0.1")
    assert node.starts.patience_used_up


@pytest.mark.parametrize("step_seconds", [-DAY, -3600.0, -2.0, 2.0, 3600.0, DAY])
@pytest.mark.parametrize("part", ["directory/new", "sandbox/new", "first/a"])
def test_a_step_of_the_wall_clock_hides_no_pod_and_makes_none_new_for_ever(
    step_seconds: float, part: str
) -> None:
    """A part is made, the clock is set, and then comes a pass: it waits for the new pod, and for
    none of the old ones after that."""
    node = Node()
    node.happen(f"sandbox/a@3600 sandbox/b@{3600 + step_seconds} directory@7200")
    node.wait_seconds()
    node.clock.step(60.0)
    node.next_pass()
    assert node.wait_seconds() == 0.0, "all of them are old by now, whatever they are dated with"
    node.clock.step(10.0)
    node.happen(f"{part} set@{step_seconds}")
    node.clock.step(0.25)
    node.next_pass()
    wait = node.wait_seconds()
    assert 0.75 <= wait <= HOLD_OFF, "it was made 0.25 s ago"
    node.clock.step(wait + 0.01)
    assert node.wait_seconds() <= AGAIN
    node.clock.step(UNFINISHED)
    node.next_pass()
    assert node.wait_seconds() == 0.0


# ---- what the last look says


@rows("""
    happens              | holds | what
                         | yes   | nothing has changed
    directory/new        |       | a pod has begun
    next/uid-1           |       | a container has begun
    app/uid-1            |       | another attempt has begun
    directory/uid-1      | yes   | a pod's directory was touched
    directory/uid-empty  |       | one without containers was touched
    directory/uid-making |       | one with an unlisted container was touched
    gone/uid-1           | yes   | a pod has gone
    ended/uid-2          | yes   | a container's directory has gone
""")
def test_the_last_look_discards_what_is_older_than_a_pod_or_a_container(
    happens: str, holds: bool
) -> None:
    """And nothing for a change that says nothing of either."""
    node = Node()
    node.happen("old/uid-1 old/uid-2 init/uid-2 directory/uid-empty@3600")
    node.happen("directory/uid-making app/uid-making")
    node.lists("init", pod_uid="uid-2", name="init")
    before = node.pods.pod_directories()
    listed = tuple(node.runtime.containers.values())
    node.clock.step(2.0)
    node.happen(happens)
    assert nothing_has_begun(before, node.pods.pod_directories(), listed) is holds
