"""The kubelet's pods as an eviction looks at them: who is active, requests, limits, local volumes.

Source: Kubernetes at tag v1.36.0; each test names file and function.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.pod_eviction import EvictablePod, parse_active_pods
from reclaim.pods.pod_list import KubeletAnswerError

MIB = 1 << 20
UID = "6b6a1b0a-4bd8-4b1a-a0a3-1c5f2f0f8e11"


def container(name: str = "app", request: str = "", limit: str = "", **fields: Any) -> dict[str, Any]:
    """A container with a request and a limit of ephemeral storage."""
    resources: dict[str, Any] = {"requests": {"cpu": "100m"}, "limits": {}}
    if request:
        resources["requests"]["ephemeral-storage"] = request
    if limit:
        resources["limits"]["ephemeral-storage"] = limit
    return {"name": name, "resources": resources, **fields}


def listed(spec: dict[str, Any], phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    """A pod as a kubelet lists it."""
    annotations = {"kubernetes.io/config.source": "api", **metadata.pop("annotations", {})}
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": UID, "annotations": annotations, **metadata},
        "spec": {"containers": [container()], **spec},
        "status": {"phase": phase},
    }


def body(*items: object) -> bytes:
    """The answer to `GET /pods`."""
    return json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(items)}).encode()


def parsed(spec: dict[str, Any], **metadata: Any) -> EvictablePod:
    """The one pod of the answer."""
    (pod,) = parse_active_pods(body(listed(spec, **metadata)))
    return pod


def test_a_plain_pod() -> None:
    """Name, namespace, UID; priority 0 (PodPriority), nothing requested, nothing limited, not static."""
    assert parsed({}) == EvictablePod(uid=UID, namespace="default", name="web")


def test_a_pod_that_has_terminated_is_not_active() -> None:
    """`pkg/kubelet/kubelet_pods.go`, filterOutInactivePods: one that is being terminated is."""
    done, waiting = listed({}, "Succeeded", uid="done"), listed({}, "Pending", uid="waiting")
    stopping = listed({}, uid="stopping", deletionTimestamp="2026-11-20T09:30:00Z")
    failing = listed({}, "Failed", uid="failing")
    failing["status"]["containerStatuses"] = [{"name": "app", "state": {"running": {}}}]
    pods = parse_active_pods(body(done, waiting, stopping, failing))
    assert [(pod.uid, pod.deleted) for pod in pods] == [("waiting", False), ("stopping", True), ("failing", False)]


@pytest.mark.parametrize(
    ("annotations", "static", "mirror"),
    [
        ({"kubernetes.io/config.source": "file"}, True, False),
        ({"kubernetes.io/config.source": "http"}, True, False),
        ({"kubernetes.io/config.source": ""}, True, False),
        ({"kubernetes.io/config.source": None}, False, False),
        ({"kubernetes.io/config.mirror": "d4b1c9a2"}, False, True),
        ({"kubernetes.io/config.mirror": ""}, False, True),
    ],
)
def test_static_and_mirror_pods_are_recognised(annotations: dict[str, str], static: bool, mirror: bool) -> None:
    """`pkg/kubelet/types/pod_update.go`: IsStaticPod needs a source that is not `api`, IsMirrorPod the annotation."""
    pod = parsed({}, annotations=annotations)
    assert (pod.static, pod.mirror) == (static, mirror)


@pytest.mark.parametrize(
    ("spec", "mib"),
    [
        ({"containers": [container("a", "10Mi"), container("b", "20Mi"), container("c")]}, 30),
        ({"containers": [container("a", "10Mi")], "initContainers": [container("i", "40Mi")]}, 40),
        ({"containers": [container("a", "50Mi")], "initContainers": [container("i", "40Mi")]}, 50),
        (
            {
                "containers": [container("a", "10Mi")],
                "initContainers": [container("s", "5Mi", restartPolicy="Always"), container("i", "40Mi")],
            },
            45,  # the sidecar runs while the init container does
        ),
        (
            {
                "containers": [container("a", "10Mi")],
                "initContainers": [container("i", "40Mi"), container("s", "5Mi", restartPolicy="Always")],
            },
            40,  # the sidecar starts after the init container
        ),
        (
            {
                "containers": [container("a", "10Mi")],
                "initContainers": [container(n, "5Mi", restartPolicy="Always") for n in "st"],
            },
            20,
        ),
        ({"containers": [container("a", "10Mi")], "overhead": {"ephemeral-storage": "3Mi"}}, 13),
        ({"containers": [container("a")], "overhead": {"ephemeral-storage": "3Mi"}}, 0),
        ({"containers": [container("a", "0")], "overhead": {"ephemeral-storage": "3Mi"}}, 0),
        ({"containers": [container("a", "10Mi")], "resources": {"requests": {"memory": "1Gi"}}}, 0),
        ({"containers": [container("a", "10Mi")], "resources": {"limits": {"hugepages-2Mi": "4Mi"}}}, 0),
        ({"containers": [container("a", "10Mi")], "resources": {}}, 10),
        ({"containers": [container("a", "10Mi")], "resources": {"requests": {"ephemeral-storage": "1Gi"}}}, 10),
    ],
)
def test_the_request_of_a_pod(spec: dict[str, Any], mib: int) -> None:
    """`pkg/api/v1/resource/helpers.go`, GetResourceRequestQuantity, and AggregateContainerRequests for sidecars."""
    assert parsed(spec).request == mib * MIB


def test_a_request_is_exact() -> None:
    """Quantities are compared exactly: a thousandth of a byte stays."""
    assert parsed({"containers": [container("a", "1500m")]}).request == Fraction(3, 2)


def test_the_limit_of_a_pod() -> None:
    """PodLimits: those of its containers together, with the overhead; None where no container has one."""
    containers = [container("a", limit="10Mi"), container("b", limit="20Mi"), container("c")]
    pod = parsed({"containers": containers, "overhead": {"ephemeral-storage": "1Mi"}})
    assert pod.limit == 31 * MIB
    assert pod.container_limits == {"a": 10 * MIB, "b": 20 * MIB}
    assert parsed({}).limit is None
    assert parsed({"containers": [container("a", limit="0")]}).limit == 0


def test_the_limit_stays_where_the_pod_has_resources_of_its_own() -> None:
    """PodLimits replaces cpu, memory and huge pages only."""
    spec = {"containers": [container("a", limit="10Mi")], "resources": {"limits": {"memory": "1Gi"}}}
    assert parsed(spec).limit == 10 * MIB


def test_local_volumes() -> None:
    """localVolumeNames, IsLocalEphemeralVolume: on the node's disk; not in memory, not a secret, not a claim."""
    volumes = [
        {"name": "host", "hostPath": {"path": "/data"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "limited", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Mi"}},
        {"name": "huge", "emptyDir": {"medium": "HugePages"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "code", "gitRepo": {"repository": "https://example"}},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "down", "downwardAPI": {}},
        {"name": "token", "projected": {"sources": []}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    pod = parsed({"volumes": volumes})
    assert pod.local_volumes == ("host", "scratch", "limited", "settings", "code")
    assert pod.volume_limits == {"limited": MIB, "memory": 2 * MIB}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"priority": "high"}, "items[0].spec.priority is not a whole number between -2147483648 and 2147483647"),
        ({"priority": 2**31}, "items[0].spec.priority is not a whole number"),
        ({"priority": True}, "items[0].spec.priority is not a whole number"),
        ({"volumes": {}}, "items[0].spec.volumes is not a list"),
        ({"containers": ["app"]}, "items[0].spec.containers[0] is not an object"),
        (
            {"containers": [container("a", "10 bytes")]},
            "items[0].spec.containers[0].resources.requests.ephemeral-storage is not a Kubernetes quantity",
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": 5}}]},
            "items[0].spec.volumes[0].emptyDir.sizeLimit is not a text",
        ),
    ],
)
def test_what_is_malformed_is_named(spec: dict[str, Any], words: str) -> None:
    """The whole answer is refused; the message says where, and quotes no value."""
    with pytest.raises(KubeletAnswerError) as caught:
        parsed(spec)
    assert words in str(caught.value)
    assert "10 bytes" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("1Gi"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "resources", "requests", "emptyDir", "sizeLimit", "limits", "ephemeral-storage"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["containers", "initContainers", "volumes", "priority", "overhead", "resources"]), JSON
    )
)
def test_any_spec_is_read_or_refused(spec: dict[str, Any]) -> None:
    """Nothing else is raised, whatever the answer holds."""
    problem = ""
    try:
        assert len(parse_active_pods(body(listed(spec)))) == 1
    except KubeletAnswerError as error:
        problem = str(error)
    assert not problem or problem.startswith("items[0].spec")
