"""Calls over one HTTP/2 connection, without a socket: however the bytes are
cut, and however a call ends.
"""

from __future__ import annotations

import struct

import hpack
import pytest
from hyperframe.frame import (
    GoAwayFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    WindowUpdateFrame,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.cri.channel import LARGEST_MESSAGE_BYTES, UNSENT_BYTES, Http2Client, ProtocolBroken
from reclaim.cri.status import Code
from reclaim.types import NEVER
from tests.hostile_http2 import GREETING, STATUS, TRAILERS, data, headers, raw
from tests.http2_server import HEADER, INITIAL_WINDOW, OK, PREFACE, Server, prefixed

METHOD = "/runtime.v1.RuntimeService/Version"


def converse(client: Http2Client, server: Server, sizes: list[int]) -> None:
    """Passes bytes to and fro, cut into pieces of these sizes, until both are silent."""
    turn = 0
    while True:
        up, down = bytes(client.out), server.h2.data_to_send()
        client.out.clear()
        if not up and not down:
            return
        if up:
            server.take(up)
        place = 0
        while place < len(down):
            size = sizes[turn % len(sizes)]
            client.receive(down[place : place + size])
            place, turn = place + size, turn + 1


messages = st.binary(max_size=50) | st.integers(0, 200_000)  # a number: so many zeros


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(messages, st.lists(messages, max_size=3)), min_size=1, max_size=4),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=4),
    st.sampled_from([0, 5000, 65535, 2**31 - 1]),
    st.none() | st.integers(0, 255),
)
def test_calls_are_asked_and_answered_however_the_bytes_are_cut(
    calls: list[tuple[bytes | int, list[bytes | int]]],
    sizes: list[int],
    window: int,
    padding: int | None,
) -> None:
    """Requests longer than the server's windows, answers of several messages,
    padded, on one connection.
    """
    client, server = Http2Client(), Server(window, padding=padding)
    converse(client, server, sizes)  # the greeting, which is waited for before anything is asked
    for request, answers in (
        (bytes(request), [*map(bytes, answers)]) for request, answers in calls
    ):
        server.answers.append(answers)
        client.ask(METHOD, request, 10.0)
        converse(client, server, sizes)
        if window == 0 and len(server.asked) == 0:
            assert ending(client) is None, "not a byte may be sent before the window is opened"
            server.h2.update_settings({INITIAL_WINDOW: 70_000})
            converse(client, server, sizes)
        assert ending(client) == (Code.OK, "")
        assert client.messages == answers
        assert not client.leaving
    assert [body for _, body in server.asked] == [prefixed(bytes(request)) for request, _ in calls]
    headers, _ = server.asked[-1]
    expected = {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": "localhost",
        "te": "trailers",
    }
    assert expected.items() <= headers.items()
    assert headers["content-type"] == "application/grpc"
    assert headers["grpc-timeout"] == "10000m"


def test_the_server_is_told_a_deadline_that_is_not_before_ours() -> None:
    """In whole milliseconds, rounded up: a server that ends the call a
    moment earlier would cancel it.
    """
    client, server = Http2Client(), Server(answers=[[b""]])
    client.ask(METHOD, b"", 0.0501)
    converse(client, server, [100])
    assert server.asked[0][0]["grpc-timeout"] == "51m"


def test_a_call_without_a_deadline_says_none() -> None:
    """A removal: the runtime must not cancel it."""
    client, server = Http2Client(), Server(answers=[[b""]])
    client.ask(METHOD, b"", NEVER)
    converse(client, server, [100])
    assert "grpc-timeout" not in server.asked[0][0]


def ending(client: Http2Client) -> tuple[Code, str] | None:
    """How the call ended; None while it goes on."""
    return None if client.ended is None else (client.ended.code, client.ended.details)


def greeted() -> Http2Client:
    """A client that has seen the server's settings, with one call under way on stream 1."""
    client = Http2Client()
    assert client.out.startswith(PREFACE)
    client.receive(GREETING)
    assert client.greeted
    client.ask(METHOD, b"question", NEVER)
    client.out.clear()
    return client


@pytest.mark.parametrize(
    ("trailers", "code", "details"),
    [
        (
            [("grpc-status", "5"), ("grpc-message", "no such image")],
            Code.NOT_FOUND,
            "no such image",
        ),
        ([("grpc-status", "2"), ("grpc-message", "100%25 of %C3%A4")], Code.UNKNOWN, "100% of ä"),
        ([("grpc-status", "2"), ("grpc-message", "%zz %ff")], Code.UNKNOWN, "%zz \ufffd"),
        ([("grpc-status", "14")], Code.UNAVAILABLE, ""),
        ([("grpc-status", "17")], Code.UNKNOWN, ""),
        ([("grpc-status", "-1")], Code.UNKNOWN, ""),
        ([("grpc-status", "")], Code.UNKNOWN, ""),
        ([("x", "y")], Code.UNKNOWN, "an answer without grpc-status, HTTP status 200"),
    ],
)
def test_how_a_call_ended_is_in_its_trailers(
    trailers: list[tuple[str, str]], code: Code, details: str
) -> None:
    """With a header of their own before them, or alone in one frame."""
    client = greeted()
    client.receive(STATUS + headers(trailers, "END_STREAM"))
    assert ending(client) == (code, details)
    assert not client.leaving
    client.ask(METHOD, b"", NEVER)
    client.receive(headers([*HEADER, *trailers], "END_STREAM", stream=3))
    assert ending(client) == (code, details)


@pytest.mark.parametrize(
    ("status", "code"),
    [("404", Code.UNIMPLEMENTED), ("503", Code.UNKNOWN), ("500", Code.UNKNOWN)],
)
def test_a_server_of_http_that_is_none_of_grpc_is_told_by_its_status(
    status: str, code: Code
) -> None:
    """As the mapping of gRPC has it."""
    client = greeted()
    client.receive(headers([(":status", status)], "END_STREAM"))
    assert client.ended is not None
    assert client.ended.code is code


def test_an_interim_answer_is_not_the_answer() -> None:
    """103 and the like: what counts comes after."""
    client = greeted()
    client.receive(headers([(":status", "103"), ("grpc-status", "5")]) + STATUS + TRAILERS)
    assert ending(client) == (Code.OK, "")


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (RstStreamFrame(1, 8).serialize(), Code.CANCELLED, "HTTP/2 error 8"),
        (RstStreamFrame(1, 7).serialize(), Code.UNAVAILABLE, "HTTP/2 error 7"),
        (RstStreamFrame(1, 0).serialize(), Code.INTERNAL, "HTTP/2 error 0"),
        (GoAwayFrame(0, 0, 11, b"calm").serialize(), Code.UNAVAILABLE, "GOAWAY .* calm"),
        (STATUS + data(prefixed(b"x"), "END_STREAM"), Code.UNKNOWN, "without grpc-status"),
        (STATUS + data(b"\1\0\0\0\0"), Code.INTERNAL, "compressed"),
        (STATUS + data(b"\0" * 3) + TRAILERS, Code.INTERNAL, "within a message"),
        (
            STATUS + data(struct.pack(">BL", 0, LARGEST_MESSAGE_BYTES + 1)),
            Code.RESOURCE_EXHAUSTED,
            "a message of 100663297 bytes, 100663296 are allowed",
        ),
    ],
)
def test_a_call_that_ends_badly_says_how(said: bytes, code: Code, words: str) -> None:
    """The code that gRPC gives to it, and a sentence."""
    client = greeted()
    client.receive(said)
    assert client.ended is not None
    assert client.ended.code is code
    with pytest.raises(type(client.ended), match=words):
        raise client.ended


def test_a_goodbye_lets_the_call_end_that_it_covers() -> None:
    """A graceful stop: the answer still comes, and the next call needs another connection."""
    client = greeted()
    client.receive(GoAwayFrame(0, 2**31 - 1).serialize())
    assert ending(client) is None
    assert client.leaving
    client.receive(STATUS + data(prefixed(b"answer")) + TRAILERS)
    assert ending(client) == (Code.OK, "")
    assert client.messages == [b"answer"]


def test_a_ping_is_answered_and_an_answer_to_none_is_not() -> None:
    """Or the server takes us for dead."""
    client = greeted()
    client.receive(
        PingFrame(0, b"12345678").serialize() + PingFrame(0, b"87654321", flags=["ACK"]).serialize()
    )
    assert bytes(client.out) == PingFrame(0, b"12345678", flags=["ACK"]).serialize()


def test_a_request_that_the_server_does_not_want_whole_costs_the_connection() -> None:
    """Its answer came before its end: our half of the stream would stay open."""
    client = Http2Client()
    client.receive(raw(4, 0, 0, struct.pack(">HL", 4, 10)))
    client.ask(METHOD, bytes(1000), NEVER)
    client.receive(headers([*HEADER, ("grpc-status", "8")], "END_STREAM"))
    assert client.ended is not None
    assert client.leaving


def test_late_frames_of_an_older_call_do_not_disturb_the_next() -> None:
    """Windows and resets of stream 1 while stream 3 is under way."""
    client = greeted()
    client.receive(STATUS + TRAILERS)
    client.ask(METHOD, b"", NEVER)
    client.receive(WindowUpdateFrame(1, 5).serialize() + RstStreamFrame(1, 0).serialize())
    assert ending(client) is None
    answer = (
        headers(HEADER, stream=3)
        + data(prefixed(b"x"), stream=3)
        + headers(OK, "END_STREAM", stream=3)
    )
    client.receive(answer)
    assert client.messages == [b"x"]


def test_headers_may_be_padded_weighted_and_continued() -> None:
    """All that the format allows beside the fields themselves."""
    block = hpack.Encoder().encode(HEADER)
    first = bytes((4,)) + b"\0\0\0\0\7" + block[:2] + bytes(4)
    client = greeted()
    client.receive(raw(1, 0x8 | 0x20, 1, first))  # PADDED and PRIORITY
    client.receive(raw(9, 0, 1, block[2:5]))
    client.receive(raw(9, 4, 1, block[5:]) + PriorityFrame(1, depends_on=0).serialize())
    client.receive(TRAILERS)
    assert ending(client) == (Code.OK, "")


def test_what_does_not_speak_http2_is_recognised_by_its_first_bytes() -> None:
    """A web server at the socket, say. Nothing is asked of it."""
    with pytest.raises(ProtocolBroken, match=r"does not speak HTTP/2: b'HTTP/1\.1 400 Bad Request"):
        Http2Client().receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_server_that_has_used_its_windows_up_is_given_more() -> None:
    """As what came is read, of the stream and of the connection: else a long list, or
    an old daemon, would stop.
    """
    client = greeted()
    client.receive(STATUS)
    client.out.clear()
    piece = data(prefixed(bytes(16384 - 5)))
    opened = {0: 0, 1: 0}
    for _ in range(40 * 1024 * 1024 // 16384):
        client.receive(piece)
        client.messages.clear()
        while client.out:
            size, kind, stream = int.from_bytes(client.out[:3], "big"), client.out[3], client.out[8]
            assert kind == 8, "a window"
            opened[stream] += int.from_bytes(client.out[9:13], "big")
            del client.out[: 9 + size]
    assert min(opened.values()) >= 24 * 1024 * 1024


def test_an_answer_that_has_come_stands_whatever_follows_it() -> None:
    """A removal that was carried out did not fail; the connection goes."""
    client = greeted()
    client.receive(STATUS + data(prefixed(b"x")) + TRAILERS + data(b"nonsense", stream=5))
    assert ending(client) == (Code.OK, "")
    assert client.messages == [b"x"]
    assert client.leaving


def test_what_waits_to_be_sent_is_limited_over_all_calls() -> None:
    """A server that answers blindly and reads nothing is not written for without end."""
    client = greeted()
    pings = PingFrame(0, b"12345678").serialize() * 1000
    for number in range(1, 100, 2):
        client.receive(
            pings + headers(HEADER, stream=number) + headers(OK, "END_STREAM", stream=number)
        )
        if client.leaving:
            break
        client.ask(METHOD, b"", NEVER)
    assert client.leaving
    assert len(client.out) < UNSENT_BYTES + 2 * len(pings)


def test_a_connection_is_given_up_after_a_thousand_calls() -> None:
    """What is remembered of each call does not grow with the age of the daemon."""
    client, server = Http2Client(), Server()
    converse(client, server, [65536])
    for _ in range(999):
        client.ask(METHOD, b"", NEVER)
        converse(client, server, [65536])
        assert not client.leaving
    client.ask(METHOD, b"", NEVER)
    assert client.leaving
    converse(client, server, [65536])
    assert ending(client) == (Code.OK, "")
