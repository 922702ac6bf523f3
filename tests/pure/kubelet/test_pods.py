"""The kubelet's list joined with its directories: a listed pod may be terminated, and
no pod is gone by the list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.pod_list import KubeletLate, KubeletUnavailable, NotYet
from reclaim.evidence.states import PodState, PodStates, RootIdentity
from reclaim.kubelet.pods import KubeletPods
from reclaim.types import Listing, PodSandbox, PodSandboxState
from tests.pure.values import SteppedClock

FAILURES = {"away": KubeletUnavailable("away"), "late": KubeletLate("late")}


class Kubelet:
    """A kubelet that answers with its pods, by UID and phase, or fails; it counts the requests."""

    def __init__(self, **phases: str):
        self.phases = phases
        self.source = "api"
        self.image = ""
        self.failure: KubeletUnavailable | None = None
        self.body: bytes | None = None
        self.asked = 0
        self.takes: Callable[[], None] = lambda: None

    def answer(self) -> bytes:
        """Its answer to GET /pods."""
        self.asked += 1
        self.takes()
        if self.failure is not None:
            raise self.failure
        annotations = {"kubernetes.io/config.source": self.source}
        items = [
            {
                "metadata": {"uid": uid, "annotations": annotations},
                "spec": {"containers": [{"image": self.image}]},
                "status": {"phase": phase},
            }
            for uid, phase in self.phases.items()
        ]
        return (
            self.body
            or json.dumps({"kind": "PodList", "apiVersion": "v1", "items": items}).encode()
        )


def believed_by_what_runs(pods: KubeletPods) -> PodStates:
    """What is read, compared with a runtime that runs each pod that has a directory."""
    states = pods.read()
    running = (
        PodSandbox(f"of {uid}", PodSandboxState.READY, 1, uid) for uid in states.present or ()
    )
    return pods.compared(states, Listing(sandboxes=tuple(running)))


class Node:
    """The kubelet's directories below a path, its list, and both joined."""

    def __init__(self, root: Path, *directories: str, **phases: str):
        self.root = root
        self.clock = SteppedClock()
        self.kubelet = Kubelet(**phases)
        for uid in directories:
            self.make_directory(uid)
        self.pods = KubeletPods(KubeletDirectories(str(root)), self.clock, self.kubelet.answer)

    def observed(self) -> PodStates:
        """What both say now, in the eyes of a runtime by which the directories are believed."""
        return believed_by_what_runs(self.pods)

    def make_directory(self, uid: str) -> None:
        """The kubelet makes the directory of a pod."""
        (self.root / "pods" / uid).mkdir(parents=True)


def test_a_listed_pod_has_the_state_in_the_list(tmp_path: Path) -> None:
    """Terminated or not, while its directory exists."""
    node = Node(tmp_path, "web", "job", web="Running", job="Succeeded")
    states = node.observed()
    assert states == PodStates(
        frozenset({"web", "job"}), {"web": PodState(), "job": PodState(terminated=True)}
    )
    assert states.runtime_should_be_removed("job")
    assert not states.runtime_should_be_removed("web")
    assert node.pods.list_problem is None


def test_a_pod_is_gone_when_neither_source_has_it(tmp_path: Path) -> None:
    """It exists if it has a directory, or if only the list has it."""
    node = Node(tmp_path, "web", "leaving", web="Running", coming="Pending")
    states = node.observed()
    assert [uid for uid in ("web", "leaving", "coming", "old") if states.gone(uid)] == ["old"]
    assert [uid for uid in ("web", "leaving", "coming", "old") if node.pods.gone(uid)] == ["old"]


def test_by_the_list_of_a_kubelet_that_has_just_started_no_pod_is_gone(tmp_path: Path) -> None:
    """It lists static pods only, nothing from the API server: pods with
    directories exist (k8s#112119).
    """
    node = Node(tmp_path, "static", "web", static="Running")
    node.kubelet.source = "file"
    states = node.observed()
    assert not any(
        states.gone(uid) or states.content_should_be_removed(uid) for uid in ("static", "web")
    )
    assert not states.sources_ready
    node.kubelet.phases = {}
    assert not node.observed().gone("static")


def test_the_sources_are_ready_once_a_pod_of_the_api_server_is_listed(tmp_path: Path) -> None:
    """Not with an empty list."""
    node = Node(tmp_path, "web")
    assert not node.observed().sources_ready
    node.kubelet.phases = {"web": "Running"}
    assert node.observed().sources_ready


def test_without_directories_nothing_is_known(tmp_path: Path) -> None:
    """A root directory that is wrong or cannot be read: no request is sent."""
    node = Node(tmp_path, job="Succeeded")
    assert node.observed() == PodStates(None, None)
    assert node.kubelet.asked == 0
    assert "directory of pods cannot be read" in str(node.pods.list_problem)
    assert not node.pods.gone("old")


def test_a_kubelet_that_does_not_answer_leaves_the_directories(tmp_path: Path) -> None:
    """A pod without a directory is gone, nothing more is known; with the reason, until
    the kubelet answers again.
    """
    node = Node(tmp_path, "job", job="Succeeded")
    node.kubelet.failure = KubeletUnavailable("the kubelet refuses connections")
    states = node.observed()
    assert states == PodStates(frozenset({"job"}), None)
    assert not states.runtime_should_be_removed("job")
    assert states.gone("old")
    assert node.pods.list_problem == "the kubelet refuses connections"
    node.kubelet.failure = None
    assert node.observed().known
    assert node.pods.list_problem is None


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b'{"kind": "PodList", "apiVersion": "v1", "items": [{}]}']
)
def test_a_malformed_answer_makes_the_list_unknown(tmp_path: Path, body: bytes) -> None:
    """As a whole, never in part."""
    node = Node(tmp_path, "job")
    node.kubelet.body = body
    assert node.observed() == PodStates(frozenset({"job"}), None)
    assert str(node.pods.list_problem).startswith("the kubelet's list of pods is not used: it")


def test_one_observation_without_an_answer_makes_both_unknown(tmp_path: Path) -> None:
    """Before and after the runtime's lists: what only one of them has licenses no removal."""
    node = Node(tmp_path, "job", job="Succeeded")
    before = node.observed()
    node.kubelet.failure = KubeletUnavailable("away")
    merged = before.merge(node.observed())
    assert not merged.known
    assert not merged.runtime_should_be_removed("job")


def test_after_a_late_answer_no_request_is_sent_for_four_times_as_long(tmp_path: Path) -> None:
    """It took 2 s: for 8 s the state is unknown at once, with the same reason;
    then a request is sent again.
    """
    node = Node(tmp_path, "job", job="Succeeded")
    node.kubelet.failure = KubeletLate("the kubelet gave no complete answer within 2 s")
    node.kubelet.takes = lambda: node.clock.step(2.0)
    node.observed()
    node.kubelet.failure = None
    node.clock.step(7.9)
    assert not node.observed().known
    assert node.pods.list_problem == "the kubelet gave no complete answer within 2 s"
    assert node.kubelet.asked == 1
    node.clock.step(0.1)
    assert node.observed().known
    assert node.kubelet.asked == 2


def test_after_not_yet_no_request_is_sent_for_1_second(tmp_path: Path) -> None:
    """Until the next list the state is unknown, and what the last one named still counts."""
    node = Node(tmp_path, "web", web="Running")
    node.kubelet.image = "web:1"
    node.observed()
    node.kubelet.failure = NotYet("not yet")
    for seconds, asked in ((0.0, 2), (0.9, 2), (0.1, 3)):
        node.clock.step(seconds)
        states = node.observed()
        assert (states.known, node.pods.list_problem, node.kubelet.asked) == (
            False,
            "not yet",
            asked,
        )
        assert not states.gone("web")
        assert node.pods.named_images() == {"web": {"web:1"}}
    node.kubelet.failure = None
    node.clock.step(1.0)
    assert node.observed().known


def test_after_a_failure_at_once_the_next_request_is_sent(tmp_path: Path) -> None:
    """A refused connection costs no time."""
    node = Node(tmp_path, "job")
    node.kubelet.failure = KubeletUnavailable("refused")
    node.observed()
    node.observed()
    assert node.kubelet.asked == 2


def test_right_before_a_removal_the_directory_is_checked_again(tmp_path: Path) -> None:
    """A static pod that has come back since the observation is not gone; no request is sent."""
    node = Node(tmp_path, "web", web="Running")
    assert node.observed().gone("static")
    assert node.pods.gone("static")
    node.make_directory("static")
    assert not node.pods.gone("static")
    assert node.kubelet.asked == 1


def test_a_pod_that_has_left_both_is_gone(tmp_path: Path) -> None:
    """Only the last observation counts; nothing of the one before is remembered."""
    node = Node(tmp_path, "other", web="Running")
    node.observed()
    assert not node.pods.gone("web")
    node.kubelet.phases = {}
    node.observed()
    assert node.pods.gone("web")


@pytest.mark.parametrize("uid", ["", "../..", "a/b", "\0"])
def test_an_invalid_uid_is_not_gone_right_before_a_removal(tmp_path: Path, uid: str) -> None:
    """Whatever the plan said: no directory proves it."""
    node = Node(tmp_path, "web", web="Running")
    node.observed()
    assert not node.pods.gone(uid)


def named_by(node: Node, since: float | None = None) -> set[str]:
    """What the specs of all its pods name."""
    return {image for images in node.pods.named_images(since).values() for image in images}


@pytest.mark.parametrize("how", ["away", "late", "garbage"])
def test_what_the_last_list_named_counts_while_none_can_be_had(tmp_path: Path, how: str) -> None:
    """It only keeps images: for each pod as long as it has a directory, and until the next list."""
    node = Node(tmp_path, "web", "other", web="Pending", other="Pending")
    node.kubelet.image = "app:1"
    assert named_by(node) == {"app:1"}
    node.kubelet.failure = FAILURES.get(how)
    node.kubelet.body = b"{"
    node.clock.step(60.0)
    assert not node.observed().known
    assert named_by(node) == {"app:1"}
    (node.root / "pods" / "web").rmdir()
    node.clock.step(60.0)
    assert named_by(node) == {"app:1"}, "the other pod needs it too"
    (node.root / "pods" / "other").rmdir()
    node.clock.step(60.0)
    assert named_by(node) == set()


def test_a_list_tells_for_a_second_what_specs_name(tmp_path: Path) -> None:
    """Then it is read anew, and at once where it must be later than a given moment."""
    node = Node(tmp_path, "web", web="Pending")
    node.observed()
    node.kubelet.image = "app:1"
    assert named_by(node) == set()
    assert node.kubelet.asked == 1
    node.clock.step(0.5)
    assert named_by(node, since=node.clock.monotonic()) == {"app:1"}
    node.kubelet.phases = {"web": "Succeeded"}
    node.clock.step(1.0)
    assert named_by(node) == {"app:1"}
    node.clock.step(0.1)
    assert named_by(node) == set()
    assert node.kubelet.asked == 3


uids = st.sampled_from(["one", "two", "three", "four"])


@given(
    st.frozensets(uids) | st.none(),
    st.dictionaries(uids, st.sampled_from(["Running", "Succeeded", "Failed"])),
    st.sampled_from(["answers", "away", "late", "garbage"]),
    uids,
)
def test_the_list_never_makes_more_pods_gone(
    present: frozenset[str] | None, phases: dict[str, str], how: str, uid: str
) -> None:
    """A pod that is gone with it is gone by the directories too; a pod that it
    terminates, it lists as terminated.
    """
    kubelet = Kubelet(**phases)
    kubelet.failure = FAILURES.get(how)
    kubelet.body = b"{" if how == "garbage" else None
    clock = SteppedClock()
    pods = KubeletPods(Directories(present), clock, kubelet.answer)
    states = believed_by_what_runs(pods)
    assert states.known is (how == "answers" and present is not None)
    assert (pods.list_problem is None) is states.known
    alone = PodStates(present)
    assert not states.gone(uid) or alone.gone(uid)
    assert not pods.gone(uid) or alone.gone(uid)
    if states.runtime_should_be_removed(uid) and not alone.gone(uid):
        assert phases[uid] in ("Succeeded", "Failed")


class Directories(KubeletDirectories):
    """The kubelet's directories in memory."""

    def __init__(self, present: frozenset[str] | None):
        super().__init__("/var/lib/kubelet")
        self._present = present

    def pod_states(self) -> PodStates:
        """All directories."""
        return PodStates(self._present, identity=RootIdentity((1, 1), (1, 2)))
