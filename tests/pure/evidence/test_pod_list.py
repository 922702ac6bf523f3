"""The kubelet's pod list is parsed as a whole or refused.

Source: kubelet, `pkg/kubelet/server/server.go` (getPods),
`pkg/kubelet/pod_workers.go`, `pkg/kubelet/eviction/helpers.go` (PodIsEvicted),
`pkg/kubelet/status/status_manager.go` (mergePodStatus).
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
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
DELETED = {"deletionTimestamp": "2026-11-20T09:30:00Z", "deletionGracePeriodSeconds": 30}
SAID = yaml.safe_load("""
    running: {name: app, state: {running: {startedAt: "2026-11-20T09:00:00Z"}}, restartCount: 0}
    ended: {name: app, state: {terminated: {exitCode: 0}}, restartCount: 0}
    never-ran:
        name: app
        state: {waiting: {reason: PodInitializing}}
        restartCount: 0
        started: false
    backing-off:
        name: app
        state: {waiting: {reason: CrashLoopBackOff}}
        lastState: {terminated: {exitCode: 1}}
        restartCount: 7
""")
"""Statuses of a container, as the kubelet lists them."""
RUNNING, ENDED = SAID["running"], SAID["ended"]


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
    """Terminated only with a final phase and no container that runs or waits after a run: until
    then it needs its images; evicted only if Failed."""
    statuses = [SAID.get(word) or json.loads(word) for word in containers.split() if word != "-"]
    what, _, other = elsewhere.partition("=")
    item = pod(phase.replace("-", ""), *statuses, metadata=DELETED if what == "deleted" else None)
    if other in SAID:
        item["status"][f"{what}ContainerStatuses"] = [SAID[other]]
    elif other:
        item["status"][what] = other
    expected = PodState(**{word: True for word in state.split() if word != "-"})
    found = parse_pod_list(listed({**item, "spec": SPEC}))
    assert (found.states, UID in found.images) == ({UID: expected}, not expected.terminated)


def test_what_is_left_out_or_null_says_nothing() -> None:
    """As Go writes empty fields, and an empty list."""
    for none in (list[object](), None):
        assert parse_pod_list(listed(items=none)).states == {}
    for rest in (
        "}",
        ', "annotations": null}, "status": null',
        '}, "status": {"containerStatuses": null}',
    ):
        item = json.loads('{"kind": "Pod", "metadata": {"uid": "u"' + rest + "}")
        assert parse_pod_list(listed(item)).states == {"u": PodState()}


SPEC = yaml.safe_load(f"""
    initContainers:
        - {{name: migrate, image: "migrate:1"}}
        - {{name: mesh, image: mesh, restartPolicy: Always}}
    containers:
        - {{name: app, image: "registry.example/app@sha256:{"a" * 64}"}}
        - {{name: unset}}
    ephemeralContainers: [{{name: debug, image: busybox}}]
    volumes:
        - {{name: model, image: {{reference: "model:2"}}}}
        - {{name: tmp, emptyDir: {{}}}}
""")
STATUSES = yaml.safe_load(f"""
    containerStatuses:
        - {{name: app, state: {{running: {{}}}}, imageID: "registry.example/app@sha256:{"b" * 64}"}}
        - {{name: app, state: {{waiting: {{}}}}, imageID: ""}}
    initContainerStatuses:
        - {{name: app, state: {{terminated: {{}}}}, imageID: "docker-pullable://sha256:{"c" * 64}"}}
""")
NEEDED = frozenset(
    f"""migrate:1 mesh registry.example/app@sha256:{"a" * 64} busybox model:2
    registry.example/app@sha256:{"b" * 64} sha256:{"c" * 64}""".split()
)


def test_a_pod_needs_what_its_spec_names() -> None:
    """All its containers, also those that are still to start, its image volumes, and the ids that
    its statuses name; a static pod, too, that has no mirror yet."""
    static = annotated(UID, source="file", hash=UID) | {"status": STATUSES}
    for item in (pod("Pending", **STATUSES), static):
        assert parse_pod_list(listed({**item, "spec": SPEC})).images == {UID: NEEDED}


def test_an_image_is_needed_as_long_as_one_of_two_entries_of_a_pod_needs_it() -> None:
    """A UID that is listed twice, once as terminated."""
    both = (
        {**pod("Succeeded", ENDED), "spec": SPEC},
        {**pod("Pending"), "spec": {"containers": [{"image": "app:1"}]}},
    )
    assert parse_pod_list(listed(*both)).images == {UID: {"app:1"}}


@rows("""
    pods                                                                | states                             | api | what
    s Succeeded ended source=file hash=s                                | s=terminated+static                |     | a static pod is known by its hash, which containers carry
    m Running running source=api hash=s mirror=s                        | m= s=                              | yes | its mirror in the API has another UID
    s Succeeded ended source=file hash=s; m Running running source=api hash=s mirror=s | m= s=terminated+static | yes | both
    m Running running hash=one mirror=two                               | m= one= two=                       |     | two annotations name two pods
    m Failed ended hash=victim mirror=victim                            | m=terminated victim=               |     | what a pod names it does not terminate
    m Failed ended hash=victim mirror=victim; victim Running running    | m=terminated victim=               |     | whether it is listed
    u Failed ended deleted evicted; u Running running                   | u=                                 |     | of a UID that is listed twice the more careful counts
    u Failed ended deleted evicted; u Failed ended deleted evicted      | u=terminated+deleted+evicted       |     | only if both are
    h Running running source=http hash=h                                | h=static                           |     | right after its start a kubelet lists only static pods
    f Running running source=file hash=f; a Running running source=api  | f=static a=                        | yes | the API server has delivered
""")
def test_every_alias_of_a_pod_is_a_pod_that_exists(pods: str, states: str, api: bool) -> None:
    """In whatever order they are listed: UID, phase, containers, annotations of the kubelet."""
    items = []
    for text in pods.split("; "):
        uid, phase, said, *named = text.split()
        item = annotated(
            uid, SAID[said], phase=phase, **dict(each.split("=") for each in named if "=" in each)
        )
        if "deleted" in named:
            item["metadata"] |= DELETED
            item["status"]["reason"] = "Evicted"
        items.append(item)
    expected = {
        uid: PodState(**{word: True for word in words.split("+") if word})
        for uid, _, words in (each.partition("=") for each in states.split())
    }
    for listing in (items, items[::-1]):
        found = parse_pod_list(listed(*listing))
        assert (found.states, found.from_api_server) == (expected, api)


@pytest.mark.parametrize("many", [b"{},", b"[],", b"1,", b"[", b'"":{'])
def test_a_flood_of_tiny_values_is_refused_before_it_costs_memory(many: bytes) -> None:
    """64 MiB of them would take gigabytes and seconds in Python."""
    body = b'{"kind": "PodList", "apiVersion": "v1", "items": [' + many * (MOST_VALUES + 1)
    assert refusal(body) == "it is too large"


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
    {"spec":"none"}                                              | .spec is not an object
    {"spec":{"containers":{}}}                                   | .spec.containers is not a list
    {"spec":{"initContainers":[null]}}                           | .spec.initContainers[0] is null
    {"spec":{"ephemeralContainers":["debug"]}}                   | .spec.ephemeralContainers[0] is not an object
    {"spec":{"containers":[{"image":1}]}}                        | .spec.containers[0].image is not a text
    {"spec":{"volumes":[{"image":"model:2"}]}}                   | .spec.volumes[0].image is not an object
    {"spec":{"volumes":[{"image":{"reference":[]}}]}}            | .spec.volumes[0].image.reference is not a text
""")
def test_a_pod_that_cannot_be_read_makes_the_list_unusable(item: str, why: str) -> None:
    """With the place of the fault; valid pods beside an invalid one do not count, and an image that
    is not told would look unused. Written as a pod, as the spec of one that is over, as its status,
    or as its containers' statuses."""
    given = json.loads(item)
    if isinstance(given, list):
        given = pod("Failed", *given)
    elif "spec" in (given or ()):
        given = {**pod("Succeeded"), **given}
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


@given(documents, st.integers(min_value=0), st.binary(max_size=200))
def test_any_json_is_a_list_or_refused(document: object, at: int, noise: bytes) -> None:
    """Never another error; and the message is printable on a terminal and in a log. Only with its
    last byte a list is complete; and bytes that are none are refused, too."""
    whole = listed(pod("Succeeded", ENDED), pod(uid="other"))
    documents = (
        json.dumps(document).encode(),
        listed(document),
        listed(pod("Failed", document, reason=document)),
    )
    cut = whole[: at % len(whole)]
    assert all(refusal(body).isprintable() for body in (*documents, cut, noise))
    assert refusal(cut)
    assert refusal(noise)
