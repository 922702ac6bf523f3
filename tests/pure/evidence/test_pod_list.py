"""The kubelet's pod list is parsed as a whole or refused.

Source: kubelet, `pkg/kubelet/server/server.go` (getPods),
`pkg/kubelet/pod_workers.go`, `pkg/kubelet/eviction/helpers.go` (PodIsEvicted),
`pkg/kubelet/status/status_manager.go` (mergePodStatus).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.evidence.pod_list import (
    MOST_VALUES,
    KubeletAnswerError,
    parse_pod_list,
)
from reclaim.evidence.states import PodState, PodStates

UID = "6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"
# how the kubelet makes the UID of a static pod: 32 hexadecimal digits
HASH = "d4b1c9a2f00fd9e1b0b3a3c5f7a9e8d7"
DELETED = {"deletionTimestamp": "2026-11-20T09:30:00Z", "deletionGracePeriodSeconds": 30}
RUNNING = {
    "name": "app",
    "state": {"running": {"startedAt": "2026-11-20T09:00:00Z"}},
    "restartCount": 0,
}
ENDED = {"name": "app", "state": {"terminated": {"exitCode": 0}}, "restartCount": 0}
NEVER_RAN = {
    "name": "app",
    "state": {"waiting": {"reason": "PodInitializing"}},
    "restartCount": 0,
    "started": False,
}
BACKING_OFF = {
    "name": "app",
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 1}},
    "restartCount": 7,
}


def pod(
    phase: str = "Running",
    *containers: object,
    uid: str = UID,
    metadata: Mapping[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A pod as the kubelet lists it."""
    return {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": uid,
            "annotations": {},
            **(metadata or {}),
        },
        "spec": {"containers": [{"name": "app"}]},
        "status": {"phase": phase, "containerStatuses": list(containers), **status},
    }


def annotated(
    uid: str, *containers: object, phase: str = "Running", **annotations: str
) -> dict[str, Any]:
    """A pod with annotations of the kubelet, named without their prefix."""
    named = {f"kubernetes.io/config.{name}": value for name, value in annotations.items()}
    return pod(phase, *containers, uid=uid, metadata={"annotations": named})


def listed(*pods: object, **fields: object) -> bytes:
    """A whole answer."""
    return json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods), **fields}
    ).encode()


def refusal(body: bytes) -> str:
    """Why a body is no list; empty if it is one."""
    try:
        parse_pod_list(body)
    except KubeletAnswerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("item", "state"),
    [
        (pod("Running", RUNNING), PodState()),
        (pod("Pending"), PodState()),
        (pod("Pending", NEVER_RAN), PodState()),
        (pod("Running", ENDED), PodState()),
        (pod("Unknown", ENDED), PodState()),
        (pod("", ENDED), PodState()),
        (pod("Succeeded", ENDED), PodState(terminated=True)),
        (pod("Failed", ENDED), PodState(terminated=True)),
        (pod("Failed", NEVER_RAN, initContainerStatuses=[ENDED]), PodState(terminated=True)),
        (pod("Failed", reason="OutOfcpu"), PodState(terminated=True)),
        (pod("Failed", RUNNING), PodState()),
        (pod("Failed", ENDED, RUNNING), PodState()),
        (pod("Failed", BACKING_OFF), PodState()),
        (pod("Failed", {"restartCount": 1}), PodState()),
        (pod("Failed", {"containerID": "containerd://1"}), PodState()),
        (pod("Failed", {"started": True, "state": {"waiting": {}}}), PodState()),
        (
            pod("Failed", {"state": {"running": None, "terminated": {"exitCode": 137}}}),
            PodState(terminated=True),
        ),
        (pod("Failed", {"state": {"running": {}, "terminated": {"exitCode": 137}}}), PodState()),
        (pod("Succeeded", ENDED, initContainerStatuses=[RUNNING]), PodState()),
        (pod("Succeeded", ENDED, ephemeralContainerStatuses=[RUNNING]), PodState()),
        (pod("Failed", ENDED, reason="Evicted"), PodState(terminated=True, evicted=True)),
        (pod("Failed", RUNNING, reason="Evicted"), PodState(evicted=True)),
        (pod("Running", RUNNING, reason="Evicted"), PodState()),
        (pod("Failed", ENDED, reason="NodeShutdown"), PodState(terminated=True)),
        (pod("Running", RUNNING, metadata=DELETED), PodState(deleted=True)),
        (pod("Succeeded", ENDED, metadata=DELETED), PodState(terminated=True, deleted=True)),
        ({"metadata": {"uid": UID}}, PodState()),
        ({"metadata": {"uid": UID, "annotations": None}, "status": None}, PodState()),
        (
            {"kind": "Pod", "metadata": {"uid": UID}, "status": {"containerStatuses": None}},
            PodState(),
        ),
    ],
)
def test_what_a_pod_is(item: dict[str, Any], state: PodState) -> None:
    """Terminated only with a final phase and no container that runs or waits after a
    run; evicted only if Failed.
    """
    assert parse_pod_list(listed(item)).states == {UID: state}


SPEC = {
    "initContainers": [
        {"name": "migrate", "image": "migrate:1"},
        {"name": "mesh", "image": "mesh", "restartPolicy": "Always"},
    ],
    "containers": [
        {"name": "app", "image": "registry.example/app@sha256:" + "a" * 64},
        {"name": "unset"},
    ],
    "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
    "volumes": [
        {"name": "model", "image": {"reference": "model:2"}},
        {"name": "tmp", "emptyDir": {}},
    ],
}
STATUSES: dict[str, Any] = {
    "containerStatuses": [
        {**RUNNING, "imageID": "registry.example/app@sha256:" + "b" * 64},
        {**NEVER_RAN, "imageID": ""},
    ],
    "initContainerStatuses": [{**ENDED, "imageID": "docker-pullable://sha256:" + "c" * 64}],
}
NEEDED = frozenset(
    {
        *("migrate:1", "mesh", "registry.example/app@sha256:" + "a" * 64, "busybox", "model:2"),
        *("registry.example/app@sha256:" + "b" * 64, "sha256:" + "c" * 64),
    }
)


@pytest.mark.parametrize(
    ("item", "needed"),
    [
        (pod("Pending", **STATUSES), NEEDED),
        (pod("Running", **STATUSES, metadata=DELETED), NEEDED),
        # a static pod without a mirror yet
        (annotated(UID, source="file", hash=UID) | {"status": STATUSES}, NEEDED),
        (pod("Failed", **STATUSES), NEEDED),  # a container of it still runs
        (pod("Failed", ENDED), None),
        (pod("Succeeded", ENDED, metadata=DELETED), None),
    ],
)
def test_a_pod_needs_what_its_spec_names_until_it_has_terminated(
    item: dict[str, Any], needed: frozenset[str] | None
) -> None:
    """All its containers, also those that are still to start, its image volumes, and the
    ids that its statuses name.
    """
    found = parse_pod_list(listed({**item, "spec": SPEC})).images
    assert found == ({} if needed is None else {UID: needed})


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ("none", "spec is not an object"),
        ({"containers": {}}, "spec.containers is not a list"),
        ({"initContainers": [None]}, "spec.initContainers[0] is null"),
        ({"ephemeralContainers": ["debug"]}, "spec.ephemeralContainers[0] is not an object"),
        ({"containers": [{"image": 1}]}, "spec.containers[0].image is not a text"),
        ({"volumes": [{"image": "model:2"}]}, "spec.volumes[0].image is not an object"),
        (
            {"volumes": [{"image": {"reference": []}}]},
            "spec.volumes[0].image.reference is not a text",
        ),
    ],
)
def test_a_spec_that_cannot_be_read_makes_the_list_unusable(spec: object, where: str) -> None:
    """The image that it does not tell would look unused."""
    assert refusal(listed(pod(), {**pod("Succeeded"), "spec": spec})) == f"items[1].{where}"


def test_an_image_is_needed_as_long_as_one_of_two_entries_of_a_pod_needs_it() -> None:
    """A UID that is listed twice, once as terminated."""
    both = (
        {**pod("Succeeded", ENDED), "spec": SPEC},
        {**pod("Pending"), "spec": {"containers": [{"image": "app:1"}]}},
    )
    assert parse_pod_list(listed(*both)).images == {UID: {"app:1"}}


def test_a_static_pod_is_known_by_the_uid_that_containers_carry() -> None:
    """That is its own hash, and an annotation of its mirror in the API, which has another UID."""
    static = annotated(HASH, ENDED, phase="Succeeded", source="file", hash=HASH)
    mirror = annotated(UID, RUNNING, source="api", hash=HASH, mirror=HASH)
    ended = PodState(terminated=True, static=True)
    assert parse_pod_list(listed(static)).states == {HASH: ended}
    assert parse_pod_list(listed(mirror)).states == {UID: PodState(), HASH: PodState()}
    assert parse_pod_list(listed(static, mirror)).states == {UID: PodState(), HASH: ended}
    assert parse_pod_list(listed(mirror, static)).states == {UID: PodState(), HASH: ended}


def test_every_alias_of_a_pod_is_a_pod_that_exists() -> None:
    """Two different annotations name two pods."""
    states = parse_pod_list(listed(annotated(UID, RUNNING, hash="one", mirror="two"))).states
    assert states == {UID: PodState(), "one": PodState(), "two": PodState()}
    assert not any(PodStates(frozenset(), states).gone(uid) for uid in states)


def test_an_annotation_does_not_terminate_another_pod() -> None:
    """A terminated pod names the UID of another one: that one still runs,
    whether it is listed or not.
    """
    claimant = annotated(UID, ENDED, phase="Failed", hash="victim", mirror="victim")
    victim = pod("Running", RUNNING, uid="victim")
    for answer in (listed(claimant), listed(claimant, victim), listed(victim, claimant)):
        assert parse_pod_list(answer).states == {
            UID: PodState(terminated=True),
            "victim": PodState(),
        }


def test_of_a_uid_that_is_listed_twice_the_more_careful_counts() -> None:
    """Terminated, deleted and evicted only if both entries are."""
    ended = pod("Failed", ENDED, metadata=DELETED, reason="Evicted")
    alive = pod("Running", RUNNING)
    assert parse_pod_list(listed(ended, alive)).states == {UID: PodState()}
    assert parse_pod_list(listed(alive, ended)).states == {UID: PodState()}


@pytest.mark.parametrize(
    ("items", "delivered"),
    [
        ([], False),
        ([annotated(HASH, source="file", hash=HASH)], False),
        ([annotated(HASH, source="http")], False),
        ([annotated(HASH, source="file"), annotated(UID, source="api")], True),
    ],
)
def test_the_api_server_has_delivered_when_one_of_its_pods_is_there(
    items: list[object], delivered: bool
) -> None:
    """Right after its start a kubelet lists only static pods."""
    assert parse_pod_list(listed(*items)).from_api_server is delivered


@pytest.mark.parametrize("many", [b"{},", b"[],", b"1,", b"[", b'"":{'])
def test_a_flood_of_tiny_values_is_refused_before_it_costs_memory(many: bytes) -> None:
    """64 MiB of them would take gigabytes and seconds in Python."""
    body = b'{"kind": "PodList", "apiVersion": "v1", "items": [' + many * (MOST_VALUES + 1)
    assert refusal(body) == "it is too large"


@pytest.mark.parametrize("items", [[], None])
def test_a_node_without_pods(items: object) -> None:
    """An empty list, which Go writes as null."""
    assert parse_pod_list(listed(items=items)).states == {}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "it is not JSON, or cut short"),
        (listed(pod())[:-1], "it is not JSON, or cut short"),
        (listed(pod()) + b"{}", "it is not JSON, or cut short"),
        (listed(pod()).decode().encode("utf-16"), "it is not JSON, or cut short"),
        (b"[" * 100_000, "it is not JSON, or cut short"),
        (b"1" * 10_000, "it is not JSON, or cut short"),
        (b"null", "it is not an object"),
        (b"[]", "it is not an object"),
        (b"{}", "it is not a v1 PodList"),
        (listed(kind="Status"), "it is not a v1 PodList"),
        (listed(kind="List"), "it is not a v1 PodList"),
        (listed(apiVersion="v2"), "it is not a v1 PodList"),
        (b'{"kind": "PodList", "apiVersion": "v1"}', "it has no items"),
        (listed(metadata={"continue": "more"}), "it is only a part of the list"),
        (listed(items={}), "items is not a list"),
        (listed(items="x"), "items is not a list"),
        (listed(None), "items[0] is null"),
        (listed(pod(), "x"), "items[1] is not an object"),
        (listed({"kind": "Node", "metadata": {"uid": UID}}), "items[0] is not a Pod"),
        (listed({}), "items[0] has no metadata.uid"),
        (listed(pod(), {"metadata": {}}), "items[1] has no metadata.uid"),
        (listed(pod(uid="")), "items[0] has no metadata.uid"),
        (listed({"metadata": {"uid": 5}}), "items[0].metadata.uid is not a text"),
        (listed({"metadata": []}), "items[0].metadata is not an object"),
        (
            listed(pod(metadata={"deletionTimestamp": 5})),
            "items[0].metadata.deletionTimestamp is not a text",
        ),
        (
            listed(pod(metadata={"annotations": []})),
            "items[0].metadata.annotations is not an object",
        ),
        (
            listed(annotated(UID, hash=5)),  # type: ignore[arg-type] # wrong on purpose
            "items[0].metadata.annotations.kubernetes.io/config.hash is not a text",
        ),
        (listed({"metadata": {"uid": UID}, "status": []}), "items[0].status is not an object"),
        (listed(pod(phase=True)), "items[0].status.phase is not a text"),  # type: ignore[arg-type] # wrong on purpose
        (listed(pod(reason=[])), "items[0].status.reason is not a text"),
        (listed(pod(containerStatuses={})), "items[0].status.containerStatuses is not a list"),
        (listed(pod("Running", "x")), "items[0].status.containerStatuses[0] is not an object"),
        (
            listed(pod("Running", {"state": []})),
            "items[0].status.containerStatuses[0].state is not an object",
        ),
        (
            listed(pod("Running", {"state": {"terminated": True}})),
            "items[0].status.containerStatuses[0].state.terminated is not an object",
        ),
        (
            listed(pod("Failed", {"lastState": 1})),
            "items[0].status.containerStatuses[0].lastState is not an object",
        ),
        (
            listed(pod("Failed", {"restartCount": "0"})),
            "items[0].status.containerStatuses[0].restartCount is not a whole number",
        ),
        (
            listed(pod("Failed", {"restartCount": False})),
            "items[0].status.containerStatuses[0].restartCount is not a whole number",
        ),
        (
            listed(pod("Failed", {"started": 0})),
            "items[0].status.containerStatuses[0].started is not true or false",
        ),
        (
            listed(pod("Failed", {"containerID": 1})),
            "items[0].status.containerStatuses[0].containerID is not a text",
        ),
        (
            listed(pod("Failed", {"started": "no"})),
            "items[0].status.containerStatuses[0].started is not true or false",
        ),
    ],
)
def test_what_is_not_a_whole_list_is_refused(body: bytes, why: str) -> None:
    """With the place of the fault; valid pods beside an invalid one do not count."""
    with pytest.raises(KubeletAnswerError) as caught:
        parse_pod_list(body)
    assert str(caught.value) == why


WORDS = """kind PodList apiVersion v1 items metadata uid status phase Failed Succeeded containerStatuses state running
waiting terminated annotations kubernetes.io/config.hash deletionTimestamp reason Evicted lastState restartCount"""
words = st.sampled_from(WORDS.split())
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | words,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(words | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=30,
)


@given(documents)
def test_any_json_is_a_list_or_refused(document: object) -> None:
    """Never another error; and the message is printable on a terminal and in a log."""
    for body in (
        json.dumps(document).encode(),
        listed(document),
        listed(pod("Failed", document, reason=document)),
    ):
        assert refusal(body).isprintable()


def test_a_refusal_repeats_no_key() -> None:
    """Not even that of an unknown state."""
    assert (
        refusal(listed(pod("Failed", {"state": {"\x1b[31m": 5, "waiting": 5}})))
        == "items[0].status.containerStatuses[0].state.waiting is not an object"
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_refused(body: bytes) -> None:
    """Never another error."""
    with pytest.raises(KubeletAnswerError):
        parse_pod_list(body)


@given(
    st.lists(st.sampled_from(["Running", "Failed", "Succeeded"]), max_size=6),
    st.integers(0, 6),
    documents,
)
def test_a_list_is_never_read_in_part(phases: list[str], at: int, intruder: object) -> None:
    """With anything among valid pods, either all of them are in the result, or there is none."""
    items: list[object] = [
        pod(phase, ENDED, uid=f"uid-{index}") for index, phase in enumerate(phases)
    ]
    items.insert(at, intruder)
    try:
        states = parse_pod_list(listed(*items)).states
    except KubeletAnswerError:
        return
    assert {f"uid-{index}" for index in range(len(phases))} <= set(states)


@given(st.integers(min_value=0))
def test_a_list_cut_anywhere_is_refused(at: int) -> None:
    """Only with its last byte it is complete."""
    body = listed(pod("Succeeded", ENDED), pod(uid="other"))
    with pytest.raises(KubeletAnswerError):
        parse_pod_list(body[: at % len(body)])
