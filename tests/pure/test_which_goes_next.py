"""Which object goes next, and why? A stranger's twenty questions over small nodes,
answered from the plans alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from reclaim.containers.plan import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.evidence.states import PodState, PodStates, Why, distrust
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.types import (
    Container,
    ContainerState,
    Image,
    ImageRecord,
    Listing,
    PodSandbox,
    PodSandboxState,
    Reason,
    Verdict,
)
from tests.pure.values import NOW_NS, container, image, image_id, sandbox

NOW = 10_000.0  # monotonic seconds
PAUSE = image(99, "registry.k8s.io/pause:3.9", pinned=True)
GONE = PodStates(frozenset())
ALIVE = PodStates(frozenset({"uid-1"}))


@dataclass(frozen=True)
class SmallNode:
    """What a stranger sees.

    `known_for`: seconds since each image was first seen, a day if it is not named.
    """

    containers: tuple[Container, ...] = ()
    sandboxes: tuple[PodSandbox, ...] = ()
    images: tuple[Image, ...] = ()
    pods: PodStates = GONE
    last_used: Mapping[int, float] = field(default_factory=dict)
    known_for: Mapping[int, float] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()


def goes_next(node: SmallNode) -> tuple[str, str] | None:
    """The next object of a row of containers and images, and the reason: the first one of the first
    plan that removes anything. None: nothing may go."""
    listing = Listing(
        (*node.images, PAUSE), node.containers, node.sandboxes, named_images=node.named
    )
    records = {
        one.id: ImageRecord(NOW - node.known_for.get(number, 86_400.0), node.last_used.get(number))
        for number, one in (
            (int(one.id.removeprefix("sha256:")[:8], 16), one) for one in listing.images
        )
    }
    policy = ImageGCPolicy(keep=parse_keep_list(node.keep))
    plans = (
        plan_container_gc(listing, node.pods, ContainerGCPolicy(), now_ns=NOW_NS),
        plan_sandbox_gc(listing, node.pods, ContainerGCPolicy(), now_ns=NOW_NS),
        plan_image_gc(listing, records, policy, now=NOW),
    )
    first: Verdict | None = next((verdict for plan in plans for verdict in plan.remove), None)
    return None if first is None else (first.id, str(first.reason))


RUNNING, CREATED = ContainerState.RUNNING, ContainerState.CREATED
KUBELET_SAYS = PodStates(frozenset({"uid-1"}), {"uid-1": PodState(terminated=True)})
EVICTED = PodStates(frozenset({"uid-1"}), {"uid-1": PodState(evicted=True)})
DOUBTED = PodStates(
    frozenset(), doubt=distrust(Why.EXPLAINS_NOTHING, "/var/lib/kubelet/pods has no pod")
)

QUESTIONS = {
    "Two dead copies of one container, of a pod that lives.": (
        SmallNode(
            containers=(container("old", age_seconds=200), container("new", age_seconds=100)),
            pods=ALIVE,
        ),
        ("old", Reason.OLDER_COPY),
    ),
    "One dead container of a pod that lives.": (
        SmallNode(containers=(container("only"),), pods=ALIVE),
        None,
    ),
    "One dead container whose pod has no directory any more.": (
        SmallNode(containers=(container("orphan"),)),
        ("orphan", Reason.POD_GONE),
    ),
    "The same, 5 seconds old.": (SmallNode(containers=(container("orphan", age_seconds=5),)), None),
    "The same, while the kubelet's directories are not believed.": (
        SmallNode(containers=(container("orphan"),), pods=DOUBTED),
        None,
    ),
    "A dead container of a pod that the kubelet says has terminated.": (
        SmallNode(containers=(container("done"),), pods=KUBELET_SAYS),
        ("done", Reason.POD_TERMINATED),
    ),
    "A dead container of a pod that the kubelet has evicted.": (
        SmallNode(containers=(container("out"),), pods=EVICTED),
        ("out", Reason.POD_EVICTED),
    ),
    "A container that was made and has not started, of a vanished pod.": (
        SmallNode(containers=(container("made", state=CREATED),)),
        None,
    ),
    "A dead container that no kubelet made.": (
        SmallNode(containers=(container("docker", pod_uid=""),)),
        None,
    ),
    "A dead container of a vanished pod of which another container runs.": (
        SmallNode(containers=(container("dead"), container("runs", name="web", state=RUNNING))),
        None,
    ),
    "Two vanished pods: the older container.": (
        SmallNode(
            containers=(
                container("a", age_seconds=100),
                container("b", pod_uid="uid-2", age_seconds=900),
            )
        ),
        ("b", Reason.POD_GONE),
    ),
    "An empty sandbox of a vanished pod.": (
        SmallNode(sandboxes=(sandbox("s"),)),
        ("s", Reason.POD_GONE),
    ),
    "The only sandbox of a pod that lives.": (
        SmallNode(sandboxes=(sandbox("s"),), pods=ALIVE),
        None,
    ),
    "A ready sandbox of a vanished pod.": (
        SmallNode(sandboxes=(sandbox("s", state=PodSandboxState.READY),)),
        None,
    ),
    "Two unused images: the one that was used last is kept longer.": (
        SmallNode(images=(image(1, "a:1"), image(2, "b:1")), last_used={1: 9_000.0, 2: 8_000.0}),
        (image_id(2), Reason.UNUSED),
    ),
    "One was used, the other never.": (
        SmallNode(images=(image(1, "a:1"), image(2, "b:1")), last_used={1: 1.0}),
        (image_id(2), Reason.UNUSED),
    ),
    "An unused image that was pulled a minute ago.": (
        SmallNode(images=(image(1, "a:1"),), known_for={1: 60.0}),
        None,
    ),
    "An image whose container is dead, and its pod lives.": (
        SmallNode(
            containers=(container("dead", references=("a:1",)),),
            images=(image(1, "a:1"),),
            pods=ALIVE,
        ),
        None,
    ),
    "An unused image on the keep-list.": (
        SmallNode(images=(image(1, "a:1"),), keep=("docker.io/library/a",)),
        None,
    ),
    "An unused image that the spec of a pod names.": (
        SmallNode(images=(image(1, "a:1"),), named=frozenset({"a:1"})),
        None,
    ),
}


@pytest.mark.parametrize(("node", "answer"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_stranger_can_say_which_object_goes_next(
    node: SmallNode, answer: tuple[str, str] | None
) -> None:
    """From what the page says of the rules, and from nothing else."""
    assert goes_next(node) == answer


def test_there_are_twenty_questions() -> None:
    """Of containers, sandboxes and images."""
    assert len(QUESTIONS) == 20
