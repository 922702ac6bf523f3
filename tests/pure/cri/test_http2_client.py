"""Calls over one HTTP/2 connection, without a socket: however the bytes are cut, and however a call
ends."""

from __future__ import annotations

import struct

import hpack
import pytest
from hyperframe.frame import (
    GoAwayFrame,
    PingFrame,
    PriorityFrame,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.cri.channel import Http2Client
from reclaim.cri.status import Code
from reclaim.types import NEVER
from tests.hostile_http2 import GREETING, STATUS, TRAILERS, data, headers, raw
from tests.http2_server import HEADER, INITIAL_WINDOW, PREFACE, Server, prefixed
from tests.rows import rows

METHOD = "/runtime.v1.RuntimeService/Version"
PING = PingFrame(0, b"12345678")
ANSWER = STATUS + data(prefixed(b"x")) + TRAILERS


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


def asks(client: Http2Client, *said: bytes) -> tuple[Code, str] | None:
    """One more call, and what the server says to it on stream 3."""
    client.ask(METHOD, b"", NEVER)
    client.receive(b"".join(said))
    return ending(client)


messages = st.binary(max_size=50) | st.integers(0, 70_000)  # a number: so many zeros


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
    """Requests longer than the server's windows, answers of several messages, padded, on one
    connection. Not a byte is sent before the window is opened."""
    client, server = Http2Client(), Server(window, padding=padding)
    converse(client, server, sizes)  # the greeting, which is waited for before anything is asked
    for request, answers in (
        (bytes(request), [*map(bytes, answers)]) for request, answers in calls
    ):
        server.answers.append(answers)
        client.ask(METHOD, request, 10.0)
        converse(client, server, sizes)
        if window == 0 and len(server.asked) == 0:
            assert ending(client) is None
            server.h2.update_settings({INITIAL_WINDOW: 70_000})
            converse(client, server, sizes)
        assert ending(client) == (Code.OK, "")
        assert client.messages == answers
        assert not client.leaving
    assert [body for _, body in server.asked] == [prefixed(bytes(request)) for request, _ in calls]
    last, _ = server.asked[-1]
    of_http = {":method": "POST", ":scheme": "http", ":path": METHOD, ":authority": "localhost"}
    of_grpc = {"te": "trailers", "content-type": "application/grpc", "grpc-timeout": "10000m"}
    assert {**of_http, **of_grpc}.items() <= last.items()


@rows("""
    seconds | told
    0.0501  | 51m
    inf     |
""")
def test_the_server_is_told_a_deadline_that_is_not_before_ours(
    seconds: float, told: str | None
) -> None:
    """In whole milliseconds, rounded up: a server that ends the call a moment earlier would cancel
    it. A removal has none: the runtime must not cancel it."""
    client, server = Http2Client(), Server(answers=[[b""]])
    client.ask(METHOD, b"", seconds)
    converse(client, server, [100])
    assert server.asked[0][0].get("grpc-timeout") == told


@rows("""
    status | message             | code        | details
    5      | no such image       | NOT_FOUND   | no such image
    2      | 100%25 of %C3%A4    | UNKNOWN     | 100% of ä
    2      | %zz %ff             | UNKNOWN     | %zz �
    14     |                     | UNAVAILABLE |
    17     |                     | UNKNOWN     |
    -1     |                     | UNKNOWN     |
           |                     | UNKNOWN     |
    none   |                     | UNKNOWN     | an answer without grpc-status, HTTP status 200
""")
def test_how_a_call_ended_is_in_its_trailers(
    status: str, message: str, code: Code, details: str
) -> None:
    """With a header of their own before them, also after an interim one, or alone in one frame."""
    client = greeted()
    told = [("x", "y") if status == "none" else ("grpc-status", status), ("grpc-message", message)]
    interim = headers([(":status", "103"), ("grpc-status", "5")])
    client.receive(interim + STATUS + headers(told, "END_STREAM"))
    assert (ending(client), client.leaving) == ((code, details), False)
    assert asks(client, headers([*HEADER, *told], "END_STREAM", stream=3)) == (code, details)


@rows("""
    status | code
    404    | UNIMPLEMENTED
    503    | UNKNOWN
    500    | UNKNOWN
""")
def test_an_answer_that_is_not_grpc_is_told_by_its_status(status: str, code: Code) -> None:
    """What else ends a call badly, `hostile_http2` sends."""
    client = greeted()
    client.receive(headers([(":status", status)], "END_STREAM"))
    assert client.ended is not None
    assert (client.ended.code, status in str(client.ended)) == (code, True)


BLOCK = hpack.Encoder().encode(HEADER)


@pytest.mark.parametrize(
    ("said", "leaving"),
    [
        # a graceful stop: the answer still comes, and the next call needs another connection
        ([GoAwayFrame(0, 2**31 - 1).serialize(), ANSWER], True),
        # whatever follows it: a removal that was carried out did not fail; the connection goes
        ([ANSWER + data(b"nonsense", stream=5)], True),
        # headers that are padded, weighted and continued
        (
            [
                raw(1, 0x8 | 0x20, 1, bytes((4,)) + b"\0\0\0\0\7" + BLOCK[:2] + bytes(4)),
                raw(9, 0, 1, BLOCK[2:5]),
                raw(9, 4, 1, BLOCK[5:]) + PriorityFrame(1, depends_on=0).serialize(),
                data(prefixed(b"x")) + TRAILERS,
            ],
            False,
        ),
    ],
)
def test_an_answer_that_has_come_stands(said: list[bytes], leaving: bool) -> None:
    """However it is said, and whatever else."""
    client = greeted()
    for each in said:
        assert ending(client) is None
        client.receive(each)
    assert (ending(client), client.leaving) == ((Code.OK, ""), leaving)
    assert client.messages == [b"x"]


def test_a_ping_is_answered_and_an_answer_to_none_is_not() -> None:
    """Or the server takes us for dead."""
    client = greeted()
    client.receive(PING.serialize() + PingFrame(0, b"87654321", flags=["ACK"]).serialize())
    assert bytes(client.out) == PingFrame(0, PING.opaque_data, flags=["ACK"]).serialize()


def test_a_request_that_the_server_does_not_want_whole_costs_the_connection() -> None:
    """Its answer came before its end: our half of the stream would stay open."""
    client = Http2Client()
    client.receive(raw(4, 0, 0, struct.pack(">HL", 4, 10)))
    client.ask(METHOD, bytes(1000), NEVER)
    client.receive(headers([*HEADER, ("grpc-status", "8")], "END_STREAM"))
    assert client.ended is not None
    assert client.leaving
