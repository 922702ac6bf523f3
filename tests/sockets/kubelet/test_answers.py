"""Answers to `GET /pods` that are no pod list: other statuses, parts, single bytes over
a long time, and garbage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.evidence.pod_list import KubeletLate, KubeletUnavailable
from reclaim.kubelet.client import LARGEST_BODY_BYTES, KubeletEndpoint, ask_kubelet
from tests.sockets.kubelet_server import (
    FOREVER_SECONDS,
    MARGIN_SECONDS,
    PODS,
    SHORT_SECONDS,
    KubeletServer,
    Step,
    answer,
    chunked,
    dripping,
    refused,
)

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
LATE: dict[str, Callable[[], Iterator[Step]]] = {
    "silence": lambda: iter([FOREVER_SECONDS]),
    "a head that drips": lambda: iter(dripping(HEAD * 50, 0.05)),
    "a body that drips": lambda: iter([answer(PODS)[:-20], *dripping(PODS[-20:], 0.05)]),
    "chunks that drip": lambda: iter([chunked(end=b""), *dripping(b"1\r\nx\r\n" * 100, 0.02)]),
    "an end that does not come": lambda: iter([chunked(PODS, end=b""), FOREVER_SECONDS]),
    "headers without end": lambda: iter([HEAD, *dripping(b"X: y\r\n" * 90, 0.02), FOREVER_SECONDS]),
    "continue without end": lambda: iter([b"HTTP/1.1 100 Continue\r\n\r\n", 0.02] * 500),
}


def test_an_answer_in_chunks_is_put_together() -> None:
    """Go sends long answers in chunks."""
    with KubeletServer(chunked(PODS[:10], PODS[10:])) as kubelet:
        assert ask_kubelet(KubeletEndpoint(kubelet.url)) == PODS


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "400 Bad Request: is this an https port?"),
        (401, "401 Unauthorized: it accepts tokens only with authentication.webhook.enabled"),
        (403, "403 Forbidden: is the identity allowed to get nodes/proxy"),
        (404, "404 Not Found: is this the kubelet's port?"),
        (500, "500 Internal Server Error"),
        (204, "204 No Content"),
        (206, "206 Partial Content"),
    ],
)
def test_a_status_that_is_not_200_is_no_answer(status: int, words: str) -> None:
    """Not even with a list of pods in it; the message says what to check."""
    with KubeletServer(answer(PODS, status)) as kubelet:
        error = refused(KubeletEndpoint(kubelet.url))
        assert f"the kubelet at {kubelet.url} answered {words}" in str(error)
    assert not isinstance(error, KubeletLate)


def test_a_redirect_is_not_followed() -> None:
    """No request is sent to the other address."""
    with KubeletServer(answer(PODS)) as elsewhere:
        moved = answer(b"", 302, {"Location": f"{elsewhere.url}/pods"})
        with KubeletServer(moved) as kubelet:
            assert "302 Found: redirects are not followed" in str(
                refused(KubeletEndpoint(kubelet.url))
            )
        assert elsewhere.requests == []


@pytest.mark.parametrize("script", LATE)
def test_the_deadline_is_for_all_of_the_answer(script: str) -> None:
    """It is 0.3 s: then the request ends as late, whatever arrives in the meantime."""
    with KubeletServer() as kubelet:
        kubelet.script = LATE[script]()
        began = time.monotonic()
        error = refused(KubeletEndpoint(kubelet.url), SHORT_SECONDS)
        assert SHORT_SECONDS <= time.monotonic() - began < SHORT_SECONDS + MARGIN_SECONDS
    assert isinstance(error, KubeletLate)
    assert str(error).endswith("gave no complete answer within 0.3 s")


def test_a_line_does_not_extend_the_deadline() -> None:
    """A byte every 0.2 s for more than a minute, and a deadline of 0.3 s, which does not
    begin anew with each byte.
    """
    with KubeletServer(0.2, *dripping(HEAD + b"X: " + b"y" * 300, 0.2)) as kubelet:
        began = time.monotonic()
        assert isinstance(refused(KubeletEndpoint(kubelet.url), SHORT_SECONDS), KubeletLate)
        assert time.monotonic() - began < SHORT_SECONDS + MARGIN_SECONDS


@pytest.mark.parametrize(
    "cut",
    [
        answer(PODS)[:-1],
        answer(PODS)[: -len(PODS)],
        chunked(PODS, end=b""),
        chunked(PODS)[:-12],
        HEAD,
        HEAD + b"Content-Length: 10",
        HEAD + b"\r\n" + PODS,
        b"",
    ],
    ids=[
        "last byte",
        "whole body",
        "last chunk",
        "inside a chunk",
        "inside the head",
        "inside a header",
        "no end announced",
        "everything",
    ],
)
def test_an_answer_that_ends_early_is_none(cut: bytes) -> None:
    """The length that was announced has to arrive."""
    with KubeletServer(cut) as kubelet:
        assert not isinstance(refused(KubeletEndpoint(kubelet.url)), KubeletLate)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_is_at_most_64_mib(announced: bool) -> None:
    """One byte more is refused, whether its length was announced or it came in chunks."""
    whole = f"Content-Length: {LARGEST_BODY_BYTES + 1}\r\n\r\n".encode()
    head, chunk_head, chunk_end = (
        (whole, b"", b"") if announced else (CHUNKED, b"100000\r\n", b"\r\n")
    )
    mebibytes: list[Step] = [chunk_head + bytes(1 << 20) + chunk_end] * (LARGEST_BODY_BYTES >> 20)
    last = b"x" if announced else b"1\r\nx\r\n0\r\n\r\n"
    with KubeletServer(HEAD + head, *mebibytes, last) as kubelet:
        assert "more than 64 MiB" in str(refused(KubeletEndpoint(kubelet.url), 30.0))


def test_garbage_is_no_answer() -> None:
    """Any bytes at all: an answer or a refusal, never anything else."""
    starts = st.sampled_from(
        [
            b"",
            b"HTTP/1.1 ",
            HEAD,
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
            HEAD + b"Content-Length: ",
        ]
    )
    with KubeletServer() as kubelet:
        endpoint = KubeletEndpoint(kubelet.url)

        @settings(max_examples=60, deadline=None, database=None)
        @given(starts, st.binary(max_size=60))
        def any_bytes(start: bytes, rest: bytes) -> None:
            kubelet.script = [start + rest]
            try:
                body = ask_kubelet(endpoint)
            except KubeletUnavailable:
                return
            assert len(body) <= len(rest)

        any_bytes()
