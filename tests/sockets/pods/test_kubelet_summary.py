"""Requests for the kubelet's summary of statistics over real connections."""

from __future__ import annotations

import time

import pytest

from eviction.configuration.kubelet_client import STATS_SUMMARY, KubeletEndpoint, ask_kubelet
from reclaim.pods.pod_list import KubeletUnavailable
from tests.sockets.kubelet_server import (
    FOREVER_SECONDS,
    MARGIN_SECONDS,
    PODS,
    SHORT_SECONDS,
    KubeletServer,
    answer,
    chunked,
)

SUMMARY = b'{"node": {"nodeName": "node-1"}, "pods": []}'


def test_the_summary_has_a_path_of_its_own() -> None:
    """One GET each, in chunks or with a length, and the bodies unchanged."""
    with KubeletServer(answer(PODS)) as kubelet:
        kubelet.by_path["/stats/summary"] = [chunked(SUMMARY[:9], SUMMARY[9:])]
        endpoint = KubeletEndpoint(kubelet.url)
        assert (ask_kubelet(endpoint), ask_kubelet(endpoint, MARGIN_SECONDS, STATS_SUMMARY)) == (PODS, SUMMARY)
        assert [request.split("\r\n")[0] for request in kubelet.requests] == [
            "GET /pods HTTP/1.1",
            "GET /stats/summary HTTP/1.1",
        ]


def test_a_refusal_names_the_permission_for_the_summary() -> None:
    """`/stats/*` is `nodes/stats`, and `nodes/proxy` does not include it."""
    with (
        KubeletServer(
            answer(b"Forbidden (user=a, verb=get, resource=nodes, subresource(s)=[stats])\n", 403)
        ) as kubelet,
        pytest.raises(KubeletUnavailable) as caught,
    ):
        ask_kubelet(KubeletEndpoint(kubelet.url), MARGIN_SECONDS, STATS_SUMMARY)
    assert "403 Forbidden: is the identity allowed to get nodes/stats" in str(caught.value)


def test_the_deadline_holds_for_the_summary() -> None:
    """It is 0.3 s, and the kubelet says nothing."""
    began = time.monotonic()
    with KubeletServer(FOREVER_SECONDS) as kubelet, pytest.raises(KubeletUnavailable) as caught:
        ask_kubelet(KubeletEndpoint(kubelet.url), SHORT_SECONDS, STATS_SUMMARY)
    assert time.monotonic() - began < MARGIN_SECONDS
    assert caught.value.late
