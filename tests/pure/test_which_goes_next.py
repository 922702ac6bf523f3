"""Which object goes next, and why? A stranger's twenty questions over small nodes, answered from
the plans alone.
"""

from __future__ import annotations

from typing import Any

from reclaim.containers.plan import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.evidence.states import PodState, PodStates, Why, distrust
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.types import (
    Container,
    ContainerState,
    ImageRecord,
    Listing,
    PodSandboxState,
)
from tests.pure.values import NOW_NS, container, image, sandbox
from tests.rows import rows

NOW = 10_000.0  # monotonic seconds
PODS = {
    "gone": PodStates(frozenset()),
    "alive": PodStates(frozenset({"uid-1"})),
    "terminated": PodStates(frozenset({"uid-1"}), {"uid-1": PodState(terminated=True)}),
    "evicted": PodStates(frozenset({"uid-1"}), {"uid-1": PodState(evicted=True)}),
    "doubted": PodStates(frozenset(), doubt=distrust(Why.EXPLAINS_NOTHING, "/pods has no pod")),
}


def container_of(text: str) -> Container:
    """`id`, and what is not as usual: `age=100`, `state=running`, `pod=`, `name=web`, `uses=a:1`."""
    name, *words = text.split()
    fields: dict[str, Any] = dict(word.split("=") for word in words)
    pod, uses = fields.get("pod", "uid-1"), fields.get("uses")
    return container(
        name,
        name=fields.get("name", "app"),
        state=ContainerState[fields.get("state", "exited").upper()],
        pod_uid=pod,
        age_seconds=float(fields.get("age", 3600)),
        references=(uses,) if uses else (),
    )


@rows("""
    what                                                       | pods       | containers                          | sandbox_state | images        | also           | answer
    Two dead copies of one container, of a pod that lives      | alive      | old age=200; new age=100            |          |               |                | old older_copy
    One dead container of a pod that lives                     | alive      | only                                |          |               |                |
    One dead container whose pod has no directory any more     | gone       | orphan                              |          |               |                | orphan pod_gone
    The same, 5 seconds old                                    | gone       | orphan age=5                        |          |               |                |
    The same, while the directories are not believed           | doubted    | orphan                              |          |               |                |
    One of a pod that the kubelet says has terminated          | terminated | done                                |          |               |                | done pod_terminated
    One of a pod that the kubelet has evicted                  | evicted    | out                                 |          |               |                | out pod_evicted
    One that was made and has not started, of a vanished pod   | gone       | made state=created                  |          |               |                |
    A dead container that no kubelet made                      | gone       | docker pod=                         |          |               |                |
    One of a vanished pod of which another container runs      | gone       | dead; runs name=web state=running   |          |               |                |
    Two vanished pods: the older container                     | gone       | a age=100; b pod=uid-2 age=900      |          |               |                | b pod_gone
    An empty sandbox of a vanished pod                         | gone       |                                     | notready |               |                | s pod_gone
    The only sandbox of a pod that lives                       | alive      |                                     | notready |               |                |
    A ready sandbox of a vanished pod                          | gone       |                                     | ready    |               |                |
    Two unused images: the one used last is kept longer        | gone       |                                     |          | 1=9000 2=8000 |                | 2 unused
    One was used, the other never                              | gone       |                                     |          | 1=1 2         |                | 2 unused
    An unused image that was pulled a minute ago               | gone       |                                     |          | 1             | pulled just now |
    An image whose container is dead, and its pod lives        | alive      | dead uses=a:1                       |          | 1             |                |
    An unused image on the keep list                           | gone       |                                     |          | 1             | it is kept     |
    An unused image that the spec of a pod names               | gone       |                                     |          | 1             | it is named    |
""")
def test_a_stranger_can_say_which_object_goes_next(
    pods: str, containers: str, sandbox_state: str, images: str, also: str, answer: str
) -> None:
    """From what the page says of the rules, and from nothing else: the first object of the first
    plan of a row that removes anything."""
    used = dict(word.partition("=")[::2] for word in images.split())
    pause = image(99, "registry.k8s.io/pause:3.9", pinned=True)
    here = {name: image(int(name), f"{'_ab'[int(name)]}:1") for name in used}
    listing = Listing(
        (*here.values(), pause),
        tuple(container_of(each) for each in containers.split("; ") if each),
        (sandbox("s", state=PodSandboxState[sandbox_state.upper()]),) if sandbox_state else (),
        named_images=frozenset({"a:1"}) if also == "it is named" else frozenset(),
    )
    since = NOW - (60.0 if also == "pulled just now" else 86_400.0)
    records = {pause.id: ImageRecord(since, None)}
    for name, one in here.items():
        records[one.id] = ImageRecord(since, float(used[name]) if used[name] else None)
    keep = parse_keep_list(("docker.io/library/a",) if also == "it is kept" else ())
    policy = ContainerGCPolicy()
    plans = (
        plan_container_gc(listing, PODS[pods], policy, now_ns=NOW_NS),
        plan_sandbox_gc(listing, PODS[pods], policy, now_ns=NOW_NS),
        plan_image_gc(listing, records, ImageGCPolicy(keep=keep), now=NOW),
    )
    ids = {one.id: name for name, one in here.items()}
    goes = (f"{ids.get(one.id, one.id)} {one.reason}" for plan in plans for one in plan.remove)
    assert next(goes, "") == answer
