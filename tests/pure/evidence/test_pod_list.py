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
from reclaim.evidence.states import PodState
from tests.rows import rows

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


SAID = {"running": RUNNING, "ended": ENDED, "never-ran": NEVER_RAN, "backing-off": BACKING_OFF}


@rows("""
    phase     | containers                                               | elsewhere           | state              | what
    Running   | running                                                  | -                   | -                  | it runs
    Pending   | -                                                        | -                   | -                  | nothing runs yet
    Pending   | never-ran                                                | -                   | -                  | nothing has run
    Running   | ended                                                    | -                   | -                  | not terminated by the kubelet
    Unknown   | ended                                                    | -                   | -                  | no final phase
    -         | ended                                                    | -                   | -                  | no phase
    Succeeded | ended                                                    | -                   | terminated         | it is over
    Failed    | ended                                                    | -                   | terminated         | it has failed
    Failed    | never-ran                                                | init=ended          | terminated         | its second container never ran
    Failed    | -                                                        | reason=OutOfcpu     | terminated         | it was not admitted
    Failed    | running                                                  | -                   | -                  | a container runs
    Failed    | ended running                                            | -                   | -                  | one of two runs
    Failed    | backing-off                                              | -                   | -                  | it waits after a run
    Failed    | {"restartCount":1}                                       | -                   | -                  | that has run
    Failed    | {"containerID":"x://1"}                                  | -                   | -                  | that was made
    Failed    | {"started":true,"state":{"waiting":{}}}                  | -                   | -                  | that has begun
    Failed    | {"state":{"running":null,"terminated":{"exitCode":137}}} | -                   | terminated         | null is nothing
    Failed    | {"state":{"running":{},"terminated":{"exitCode":137}}}   | -                   | -                  | both
    Succeeded | ended                                                    | init=running        | -                  | an init container runs
    Succeeded | ended                                                    | ephemeral=running   | -                  | a debugger runs
    Failed    | ended                                                    | reason=Evicted      | terminated evicted | evicted
    Failed    | running                                                  | reason=Evicted      | evicted            | evicted, and it runs
    Running   | running                                                  | reason=Evicted      | -                  | evicted only if failed
    Failed    | ended                                                    | reason=NodeShutdown | terminated         | of another reason
    Running   | running                                                  | deleted             | deleted            | deleted
    Succeeded | ended                                                    | deleted             | terminated deleted | deleted, and over
""")
def test_what_a_pod_is(phase: str, containers: str, elsewhere: str, state: str) -> None:
    """Terminated only with a final phase and no container that runs or waits after a run; evicted
    only if Failed."""
    statuses = [SAID.get(word) or json.loads(word) for word in containers.split() if word != "-"]
    what, _, other = elsewhere.partition("=")
    item = pod(phase.replace("-", ""), *statuses, metadata=DELETED if what == "deleted" else None)
    if other in SAID:
        item["status"][f"{what}ContainerStatuses"] = [SAID[other]]
    elif other:
        item["status"][what] = other
    expected = PodState(**{word: True for word in state.split() if word != "-"})
    assert parse_pod_list(listed(item)).states == {UID: expected}


def test_what_is_left_out_or_null_says_nothing() -> None:
    """As Go writes empty fields."""
    for rest in (
        "}",
        ', "annotations": null}, "status": null',
        '}, "status": {"containerStatuses": null}',
    ):
        item = json.loads('{"kind": "Pod", "metadata": {"uid": "u"' + rest + "}")
        assert parse_pod_list(listed(item)).states == {"u": PodState()}


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


@rows("""
    spec                                     | where
    "none"                                   | spec is not an object
    {"containers":{}}                        | spec.containers is not a list
    {"initContainers":[null]}                | spec.initContainers[0] is null
    {"ephemeralContainers":["debug"]}        | spec.ephemeralContainers[0] is not an object
    {"containers":[{"image":1}]}             | spec.containers[0].image is not a text
    {"volumes":[{"image":"model:2"}]}        | spec.volumes[0].image is not an object
    {"volumes":[{"image":{"reference":[]}}]} | spec.volumes[0].image.reference is not a text
""")
def test_a_spec_that_cannot_be_read_makes_the_list_unusable(spec: str, where: str) -> None:
    """The image that it does not tell would look unused."""
    second = {**pod("Succeeded"), "spec": json.loads(spec)}
    assert refusal(listed(pod(), second)) == f"items[1].{where}"


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
    """Two different annotations name two pods. They terminate neither: if a terminated pod names
    the UID of another one, that one still runs, whether it is listed or not."""
    states = parse_pod_list(listed(annotated(UID, RUNNING, hash="one", mirror="two"))).states
    assert states == {UID: PodState(), "one": PodState(), "two": PodState()}
    claimant = annotated(UID, ENDED, phase="Failed", hash="victim", mirror="victim")
    victim = pod("Running", RUNNING, uid="victim")
    for answer in (listed(claimant), listed(claimant, victim), listed(victim, claimant)):
        states = parse_pod_list(answer).states
        assert states == {UID: PodState(terminated=True), "victim": PodState()}


def test_of_a_uid_that_is_listed_twice_the_more_careful_counts() -> None:
    """Terminated, deleted and evicted only if both entries are."""
    twice = [pod("Failed", ENDED, metadata=DELETED, reason="Evicted"), pod("Running", RUNNING)]
    for items in (twice, twice[::-1]):
        assert parse_pod_list(listed(*items)).states == {UID: PodState()}


@pytest.mark.parametrize("sources", ["", "file", "http", "file api"])
def test_the_api_server_has_delivered_when_one_of_its_pods_is_there(sources: str) -> None:
    """Right after its start a kubelet lists only static pods."""
    items = [annotated(source, source=source, hash=source) for source in sources.split()]
    assert parse_pod_list(listed(*items)).from_api_server is ("api" in sources)


@pytest.mark.parametrize("many", [b"{},", b"[],", b"1,", b"[", b'"":{'])
def test_a_flood_of_tiny_values_is_refused_before_it_costs_memory(many: bytes) -> None:
    """64 MiB of them would take gigabytes and seconds in Python."""
    body = b'{"kind": "PodList", "apiVersion": "v1", "items": [' + many * (MOST_VALUES + 1)
    assert refusal(body) == "it is too large"


@pytest.mark.parametrize("items", [[], None])
def test_a_node_without_pods(items: object) -> None:
    """An empty list, which Go writes as null."""
    assert parse_pod_list(listed(items=items)).states == {}


@rows("""
    body                                                          | why
                                                                  | it is not JSON, or cut short
    LIST{}                                                        | it is not JSON, or cut short
    UTF-16                                                        | it is not JSON, or cut short
    DEEP                                                          | it is not JSON, or cut short
    LONG                                                          | it is not JSON, or cut short
    null                                                          | it is not an object
    []                                                            | it is not an object
    {}                                                            | it is not a v1 PodList
    {"kind": "List", "apiVersion": "v1", "items": []}             | it is not a v1 PodList
    {"kind": "PodList", "apiVersion": "v2", "items": []}          | it is not a v1 PodList
    {"kind": "PodList", "apiVersion": "v1"}                       | it has no items
    {"kind": "PodList", "apiVersion": "v1", "items": {}}          | items is not a list
    {"kind": "PodList", "apiVersion": "v1", "items": "x"}         | items is not a list
    {"kind": "PodList", "apiVersion": "v1", "items": [], "metadata": {"continue": "x"}} | it is only a part of the list
""")
def test_what_is_not_a_whole_list_is_refused(body: str, why: str) -> None:
    """In a sentence."""
    whole = listed(pod()).decode()
    text = body.replace("LIST{", f"{whole}{{").replace("DEEP", "[" * 100_000)
    given = text.replace("LONG", "1" * 10_000).encode()
    assert refusal(whole.encode("utf-16") if body == "UTF-16" else given) == why


@rows("""
    item                                                         | why
    null                                                         | is null
    "x"                                                          | is not an object
    {"kind":"Node","metadata":{"uid":"u"}}                       | is not a Pod
    {}                                                           | has no metadata.uid
    {"metadata":{}}                                              | has no metadata.uid
    {"metadata":{"uid":""}}                                      | has no metadata.uid
    {"metadata":{"uid":5}}                                       | .metadata.uid is not a text
    {"metadata":[]}                                              | .metadata is not an object
    {"metadata":{"uid":"u","deletionTimestamp":5}}               | .metadata.deletionTimestamp is not a text
    {"metadata":{"uid":"u","annotations":[]}}                    | .metadata.annotations is not an object
    {"metadata":{"uid":"u","annotations":{"kubernetes.io/config.hash":5}}} | .metadata.annotations.kubernetes.io/config.hash is not a text
    {"metadata":{"uid":"u"},"status":[]}                         | .status is not an object
    {"phase":true}                                               | .status.phase is not a text
    {"reason":[]}                                                | .status.reason is not a text
    {"containerStatuses":{}}                                     | .status.containerStatuses is not a list
    ["x"]                                                        | .status.containerStatuses[0] is not an object
    [{"state":[]}]                                               | .status.containerStatuses[0].state is not an object
    [{"state":{"terminated":true}}]                              | .status.containerStatuses[0].state.terminated is not an object
    [{"state":{"\\u001b[31m":5,"waiting":5}}]                    | .status.containerStatuses[0].state.waiting is not an object
    [{"lastState":1}]                                            | .status.containerStatuses[0].lastState is not an object
    [{"restartCount":"0"}]                                       | .status.containerStatuses[0].restartCount is not a whole number
    [{"restartCount":false}]                                     | .status.containerStatuses[0].restartCount is not a whole number
    [{"started":0}]                                              | .status.containerStatuses[0].started is not true or false
    [{"started":"no"}]                                           | .status.containerStatuses[0].started is not true or false
    [{"containerID":1}]                                          | .status.containerStatuses[0].containerID is not a text
""")
def test_a_pod_that_cannot_be_read_makes_the_list_unusable(item: str, why: str) -> None:
    """With the place of the fault; valid pods beside an invalid one do not count. Written as a pod,
    as the status of one that has failed, or as its containers' statuses."""
    given = json.loads(item)
    if isinstance(given, list):
        given = pod("Failed", *given)
    elif isinstance(given, dict) and given and "metadata" not in given:
        given = {**pod(), "status": given}
    place = "items[1]" if why.startswith(".") else "items[1] "
    assert refusal(listed(pod(), given)) == place + why


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


@given(st.integers(min_value=0), st.binary(max_size=200))
def test_a_list_cut_anywhere_is_refused(at: int, noise: bytes) -> None:
    """Only with its last byte it is complete; and so are bytes that are none."""
    body = listed(pod("Succeeded", ENDED), pod(uid="other"))
    assert refusal(body[: at % len(body)])
    assert refusal(noise)
