"""While a pod is being made no image goes, and no longer than that."""

from __future__ import annotations

import pytest

from reclaim.evidence.starts import (
    AGAIN_HOLD_OFFS,
    UNFINISHED_HOLD_OFFS,
    PartAges,
    PodStarts,
    nothing_has_begun,
)
from reclaim.types import PodSandboxState
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import NOW_NS, SteppedClock, container, sandbox
from tests.rows import rows, rows_of

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

    def lists(self, container_id: str, *, attempt: int = 1, ago: float = 0.0, **of: str) -> None:
        """The runtime lists a container that was made so long ago."""
        age_seconds = NOW - self.clock.wall() + ago
        made = container(container_id, attempt=attempt, age_seconds=age_seconds)
        self.runtime.hold(made._replace(**of))  # type: ignore[arg-type] # fields as they come

    def happen(self, told: str) -> None:
        """What these words say, each with the pod that it is about (`/UID`) and how many seconds ago
        (`@`) it was: a sandbox, one without a container, the directory of the pod, that of its next
        container or of the next attempt of its first one, a container in its first run, one that was
        restarted, a pod that has run for an hour."""
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


def test_a_pod_whose_spec_the_kubelet_has_told_is_not_waited_for() -> None:
    """What it needs is known, whichever part of it is new."""
    node = Node()
    node.pods.named = frozenset({"app:1"})
    (uid,) = node.pods.named_images()
    node.happen(f"old/{uid} directory/{uid} next/{uid} empty/{uid} first/{uid}")
    assert (node.wait_seconds(), node.starts.under_way) == (0.0, False)
    node.pods.named = frozenset()
    assert node.wait_seconds() == pytest.approx(HOLD_OFF)


def test_a_container_that_is_being_made_is_waited_for_until_it_is_listed() -> None:
    """As is a sandbox until it has a container."""
    assert_waits("""
        after    | happens        | wait
                 | old            | 0
        3 x 0.11 | next@0         | 0.1
        0.11     | listed         | 0
    """)
    assert_waits("""
        after | happens      | wait
              | empty/slow@5 | 0.1
        0.11  | listed/slow  | 0
    """)


STORIES = {
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


@pytest.mark.regression
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_an_image_waits_for(story: str) -> None:
    """And when it has waited long enough."""
    assert_waits(story)


def test_an_image_waits_for_a_pod_that_began_while_there_was_patience() -> None:
    """One that began a moment after the image was first asked about is not forgotten when the
    patience is used up."""
    assert_waits("""
        after    | happens          | image   | wait
                 |                  |         | 0
                 | directory/slow@2 |         | 1
        1        |                  |         | 0.1
        30 x 0.1 |                  |         | 0.1
                 |                  | another | 0.1
    """)


def test_without_a_hold_off_no_pod_is_searched_and_two_seconds_are_the_patience() -> None:
    """Which lists that were too old use up."""
    node = Node(hold_off_seconds=0.0)
    node.happen("sandbox/new lost@1.9")
    assert (node.wait_seconds(), node.starts.patience_used_up) == (0.0, False)
    assert node.runtime.calls == []
    node.happen("lost@0.1")
    assert node.starts.patience_used_up


@pytest.mark.regression
@pytest.mark.parametrize("step_seconds", [-DAY, -3600.0, -2.0, 2.0, 3600.0, DAY])
@pytest.mark.parametrize("part", ["directory", "sandbox", "container"])
def test_a_step_of_the_wall_clock_hides_no_pod_and_makes_none_new_for_ever(
    step_seconds: float, part: str
) -> None:
    """A part is made, the clock is set, and then comes a pass: it waits for the new pod, and for
    none of the old ones after that."""
    node = Node()
    for number in range(5):
        node.sandbox_comes_up(f"old-{number}", 3600.0 + step_seconds * (number % 2))
    node.pods.begun["uid-1"] = NOW - 7200.0
    node.wait_seconds()
    node.clock.step(60.0)
    node.next_pass()
    assert node.wait_seconds() == 0.0, "all of them are old by now, whatever they are dated with"
    node.clock.step(10.0)
    match part:
        case "directory":
            node.pods.begun["uid-new"] = node.clock.wall()
        case "sandbox":
            node.sandbox_comes_up("new", 0.0)
        case "container":
            node.lists("new", sandbox_id="old-0", attempt=0)
    node.clock.step_wall(step_seconds)
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
    change      | holds | what
    -           | yes   | nothing has changed
    uid-new     | no    | a pod has begun
    uid-1/next  | no    | a container has begun
    uid-1/app   | no    | another attempt has begun
    uid-1       | yes   | a pod's directory was touched
    uid-empty   | no    | one without containers was touched
    uid-making  | no    | one with an unlisted container was touched
    !uid-1      | yes   | a pod has gone
    !uid-2/init | yes   | a container's directory has gone
""")
def test_the_last_look_discards_what_is_older_than_a_pod_or_a_container(
    change: str, holds: str
) -> None:
    """And nothing for a change that says nothing of either."""
    node = Node()
    for each in ("uid-1", "uid-2"):
        node.happen(f"old/{each}")
    node.happen("init/uid-2 directory/uid-empty@3600 directory/uid-making app/uid-making")
    node.lists("init", pod_uid="uid-2", name="init")
    before = node.pods.pod_directories()
    listed = tuple(node.runtime.containers.values())
    node.clock.step(2.0)
    uid, _, name = change.removeprefix("!").partition("/")
    if change.startswith("!"):
        del node.pods.begun_containers[uid, name or "app"]
        if not name:
            del node.pods.begun[uid]
    elif name:
        node.happen(f"{name}/{uid}")
    elif uid != "-":
        node.happen(f"directory/{uid}")
    assert nothing_has_begun(before, node.pods.pod_directories(), listed) is (holds == "yes")
