"""The kubelet's summary is parsed as a whole or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.pod_eviction import ContainerUsage, FsUsage, PodUsage, parse_stats_summary
from reclaim.pods.pod_list import MOST_VALUES, KubeletAnswerError

NODE = {"nodeName": "node-1", "startTime": "2026-11-20T08:00:00Z"}


def usage(used_bytes: int, inodes_used: int) -> dict[str, Any]:
    """FsStats as a kubelet writes them."""
    return {
        "time": "2026-11-20T09:00:00Z",
        "availableBytes": 10**9,
        "capacityBytes": 2 * 10**9,
        "usedBytes": used_bytes,
        "inodesFree": 1000,
        "inodes": 2000,
        "inodesUsed": inodes_used,
    }


def of_pod(**fields: Any) -> dict[str, Any]:
    """PodStats as a kubelet writes them."""
    reference = {"name": "web", "namespace": "default", "uid": "uid-1"}
    return {"podRef": reference, "startTime": "2026-11-20T08:00:00Z", "containers": [], **fields}


def summary(*pods: object, **fields: Any) -> bytes:
    """The answer to `GET /stats/summary`."""
    return json.dumps({"node": NODE, "pods": list(pods), **fields}).encode()


def test_a_pod_with_containers_and_volumes() -> None:
    """Writable layers and logs by container, volumes by name, and the kubelet's own total."""
    containers = [
        {"name": "app", "rootfs": usage(10, 1), "logs": usage(20, 2), "cpu": {"usageNanoCores": 5}},
        {"name": "starting", "startTime": None},
    ]
    pod = of_pod(
        containers=containers,
        volume=[{"name": "scratch", **usage(30, 3)}, {"name": "empty"}],
        **{"ephemeral-storage": usage(60, 6)},
    )
    assert parse_stats_summary(summary(pod)) == {
        "uid-1": PodUsage(
            (ContainerUsage("app", FsUsage(10, 1), FsUsage(20, 2)), ContainerUsage("starting")),
            {"scratch": FsUsage(30, 3), "empty": FsUsage()},
            FsUsage(60, 6),
        )
    }


def test_a_node_without_pods() -> None:
    """`pods` may be empty or null."""
    assert parse_stats_summary(summary()) == parse_stats_summary(summary(pods=None)) == {}


def test_of_a_pod_that_is_there_twice_the_last_counts_and_of_a_volume_the_first() -> None:
    """`pkg/kubelet/eviction/helpers.go`: cachedStatsFunc overwrites, podLocalVolumeUsage breaks at the first."""
    volumes = [{"name": "scratch", **usage(1, 1)}, {"name": "scratch", **usage(2, 2)}]
    found = parse_stats_summary(summary(of_pod(), of_pod(volume=volumes)))
    assert found["uid-1"].volumes == {"scratch": FsUsage(1, 1)}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "it is not JSON, or cut short"),
        (summary(of_pod())[:-3], "it is not JSON, or cut short"),
        (b"\xff{}", "it is not JSON, or cut short"),
        (b"[" * 100_000, "it is not JSON, or cut short"),
        (b'{"node": {"nodeName": "n"}, "pods": [' + b"9" * 5000 + b"]}", "it is not JSON, or cut short"),
        (b"[" + b"," * MOST_VALUES, "it is too large"),
        (b"[]", "it is not an object"),
        (b"{}", "node is not there"),
        (b'{"kind": "PodList", "items": []}', "node is not there"),
        (summary("web"), "pods[0] is not an object"),
        (summary(pods={}), "pods is not a list"),
        (summary({"podRef": {}}), "pods[0].podRef.uid is not there"),
        (summary(of_pod(containers=[{"name": 5}])), "pods[0].containers[0].name is not a text"),
        (summary(of_pod(volume=[{"usedBytes": -1}])), "pods[0].volume[0].usedBytes is not a whole number between 0"),
        (summary(of_pod(volume=[{"usedBytes": 2**64}])), "pods[0].volume[0].usedBytes is not a whole number"),
        (summary(of_pod(volume=[{"inodesUsed": 1.5}])), "pods[0].volume[0].inodesUsed is not a whole number"),
        (summary(of_pod(volume=[{"inodesUsed": True}])), "pods[0].volume[0].inodesUsed is not a whole number"),
        (summary(of_pod(**{"ephemeral-storage": 5})), "pods[0].ephemeral-storage is not an object"),
    ],
)
def test_what_is_no_summary_is_refused(body: bytes, words: str) -> None:
    """As a whole, in one clause that says where."""
    with pytest.raises(KubeletAnswerError) as caught:
        parse_stats_summary(body)
    assert str(caught.value).startswith(words)


def test_the_largest_number_of_a_kubelet_is_read() -> None:
    """Its numbers are unsigned, of 64 bits."""
    found = parse_stats_summary(summary(of_pod(volume=[{"name": "v", "usedBytes": 2**64 - 1}])))
    assert found["uid-1"].volumes["v"].used_bytes == 2**64 - 1


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    """Nothing else is raised."""
    with pytest.raises(KubeletAnswerError):
        parse_stats_summary(body)
