"""The kubelet's Pods API says of a pod what `GET /pods` says, or it is no list.

The answers are encoded by the field numbers in Kubernetes' own source (`tests.pods_wire`),
not by our message classes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.cri.status import CallError, Code
from reclaim.evidence.pod_list import KubeletAnswerError, parse_pod_list
from reclaim.kubelet.pods_api import LARGEST_LIST_BYTES, pod_list_of
from tests.pods_wire import POD, message, pods_answer, sized, varint
from tests.pure.evidence.test_pod_list import (
    BACKING_OFF,
    DELETED,
    ENDED,
    HASH,
    NEVER_RAN,
    RUNNING,
    SPEC,
    STATUSES,
    UID,
    annotated,
    listed,
    pod,
)

METADATA = ("name", "uid", "deletionTimestamp", "annotations")
IMAGE_ID = {
    "imageID": "sha256:" + "d" * 64,
    "containerID": "containerd://1",
    "started": True,
    "restartCount": 2,
}
containers = st.sampled_from(
    [RUNNING, ENDED, NEVER_RAN, BACKING_OFF, {**ENDED, **IMAGE_ID}, {"restartCount": 0}]
)
pods = st.builds(
    lambda phase, reason, uid, deleted, source, spec, own, init, ephemeral: (
        pod(
            phase,
            *own,
            uid=uid,
            reason=reason,
            metadata={
                **(DELETED if deleted else {}),
                "annotations": {
                    "kubernetes.io/config.source": source,
                    "kubernetes.io/config.hash": uid,
                    "mine": "\u00e9",
                },
            },
            initContainerStatuses=init,
            ephemeralContainerStatuses=ephemeral,
        )
        | {"spec": spec}
    ),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
    st.sampled_from(["", "Evicted", "NodeShutdown"]),
    st.sampled_from([UID, HASH, "other"]),
    st.booleans(),
    st.sampled_from(["", "api", "file"]),
    st.sampled_from(
        [SPEC, {}, {"containers": [{"name": "app", "image": "app:1", "command": ["run", "-x"]}]}]
    ),
    *(st.lists(containers, max_size=3),) * 3,
)


def on_the_wire(item: dict[str, Any]) -> dict[str, Any]:
    """The fields that the encoder knows."""
    metadata = {name: value for name, value in item["metadata"].items() if name in METADATA}
    volumes = [
        {"name": each["name"], "image": each.get("image")}
        for each in item["spec"].get("volumes", ())
    ]
    named = ("initContainers", "containers", "ephemeralContainers")
    spec = {
        kind: [
            {name: each[name] for name in ("name", "image", "command") if name in each}
            for each in item["spec"][kind]
        ]
        for kind in named
        if kind in item["spec"]
    }
    return {"metadata": metadata, "spec": {"volumes": volumes, **spec}, "status": item["status"]}


def _known(container: dict[str, Any]) -> dict[str, Any]:
    return {name: container[name] for name in ("name", "image", "command") if name in container}


@given(st.lists(pods, max_size=4))
def test_both_lists_say_the_same(items: list[dict[str, Any]]) -> None:
    """States, images and the proof that the API server has delivered, whatever the pods are."""
    by_socket = parse_pod_list(pod_list_of(pods_answer(*map(on_the_wire, items))))
    assert by_socket[:3] == parse_pod_list(listed(*items))[:3]


def test_every_image_that_a_spec_names_is_found() -> None:
    """Also those in messages that JSON has no level for: image volumes and ephemeral containers."""
    item = pod("Pending", **STATUSES) | {"spec": SPEC}
    found = parse_pod_list(pod_list_of(pods_answer(on_the_wire(item)))).images
    assert found == parse_pod_list(listed(item)).images
    assert {"model:2", "busybox", "mesh"} < found[UID]


def test_fields_that_are_unknown_here_are_skipped() -> None:
    """Newer kubelets have more, in the list and in a pod."""
    known = message(on_the_wire(annotated(UID, RUNNING, source="api")), POD)
    newer = known + sized(99, b"more") + varint(98 << 3) + varint(7)
    answer = sized(1, newer) + sized(2, b"a token for the next page")
    assert parse_pod_list(pod_list_of(answer)) == parse_pod_list(pod_list_of(sized(1, known)))


@pytest.mark.parametrize("entry", [b"", sized(1, b""), sized(1, sized(5, b"")), sized(2, b"")])
def test_a_pod_without_a_uid_makes_the_list_unusable(entry: bytes) -> None:
    """As in JSON: something of it was lost."""
    whole = message(on_the_wire(pod("Succeeded", ENDED)), POD)
    with pytest.raises(KubeletAnswerError, match=r"items\[1\] has no metadata.uid"):
        parse_pod_list(pod_list_of(sized(1, whole) + sized(1, entry)))


def test_a_list_without_pods() -> None:
    """It is empty, and proves nothing: no pod of the API server is in it."""
    found = parse_pod_list(pod_list_of(b""))
    assert (found.states, found.from_api_server) == ({}, False)


def test_a_list_that_is_too_long_is_none() -> None:
    """Its limit is a quarter of that of a body by HTTP, as a pod is shorter,
    and read in one piece.
    """
    with pytest.raises(CallError, match="longer than 16 MiB") as error:
        pod_list_of(sized(2, bytes(LARGEST_LIST_BYTES)))
    assert error.value.code is Code.RESOURCE_EXHAUSTED


@given(st.integers(min_value=0))
def test_a_list_cut_inside_a_pod_is_refused(at: int) -> None:
    """Only between two pods it would be another list; gRPC says how long the message is."""
    first, second = (
        pods_answer(on_the_wire(pod(uid="first"))),
        pods_answer(on_the_wire(pod("Failed", BACKING_OFF))),
    )
    with pytest.raises(CallError):
        pod_list_of(first + second[: 1 + at % (len(second) - 1)])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_refused(body: bytes) -> None:
    """Never another error, whether they are the list or a pod in it."""
    for answer in (body, sized(1, body)):
        with suppress(CallError, KubeletAnswerError):
            parse_pod_list(pod_list_of(answer))
