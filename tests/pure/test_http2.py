"""A conversation over HTTP/2: with another implementation of it, with what breaks its rules, with any bytes."""

from __future__ import annotations

import contextlib
import struct

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.cri.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    LARGEST_MESSAGE_BYTES,
    PADDED,
    PREFACE,
    PRIORITY,
    BrokenConversation,
    Conversation,
    Kind,
    frame,
)
from reclaim.cri.status import Code
from tests.http2_server import HEADER, INITIAL_WINDOW, OK, Server, prefixed

METHOD = "/runtime.v1.RuntimeService/Version"


def converse(client: Conversation, server: Server, sizes: list[int]) -> None:
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
    calls: list[tuple[bytes | int, list[bytes | int]]], sizes: list[int], window: int, padding: int | None
) -> None:
    """Requests longer than the server's windows, answers of several messages, padded, on one connection."""
    client, server = Conversation(), Server(window, padding=padding)
    converse(client, server, sizes)  # the greeting, which is waited for before anything is asked
    for request, answers in ((bytes(request), [*map(bytes, answers)]) for request, answers in calls):
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
    expected = {":method": "POST", ":scheme": "http", ":path": METHOD, ":authority": "localhost", "te": "trailers"}
    assert expected.items() <= headers.items()
    assert headers["content-type"] == "application/grpc"
    assert headers["grpc-timeout"] == "10000m"


def test_a_call_without_a_deadline_says_none() -> None:
    """A removal: the runtime must not cancel it."""
    client, server = Conversation(), Server(answers=[[b""]])
    client.ask(METHOD, b"", None)
    converse(client, server, [100])
    assert "grpc-timeout" not in server.asked[0][0]


def ending(client: Conversation) -> tuple[Code, str] | None:
    """How the call ended; None while it goes on."""
    return None if client.ended is None else (client.ended.code, client.ended.details)


def greeted() -> Conversation:
    """A client that has seen the server's settings, with one call under way on stream 1."""
    client = Conversation()
    assert client.out.startswith(PREFACE)
    client.receive(frame(Kind.SETTINGS, 0, 0, b""))
    assert client.greeted
    client.ask(METHOD, b"question", None)
    client.out.clear()
    return client


def headers(fields: list[tuple[str, str]], flags: int = END_HEADERS, stream: int = 1) -> bytes:
    """A header frame, by another implementation, that changes no table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return frame(Kind.HEADERS, flags, stream, encoder.encode(fields))


STATUS = headers(HEADER)
LAST = END_HEADERS | END_STREAM


@pytest.mark.parametrize(
    ("trailers", "code", "details"),
    [
        ([("grpc-status", "5"), ("grpc-message", "no such image")], Code.NOT_FOUND, "no such image"),
        ([("grpc-status", "2"), ("grpc-message", "100%25 of %C3%A4")], Code.UNKNOWN, "100% of ä"),
        ([("grpc-status", "2"), ("grpc-message", "%zz %ff")], Code.UNKNOWN, "%zz \ufffd"),
        ([("grpc-status", "14")], Code.UNAVAILABLE, ""),
        ([("grpc-status", "17")], Code.UNKNOWN, ""),
        ([("grpc-status", "-1")], Code.UNKNOWN, ""),
        ([("grpc-status", "")], Code.UNKNOWN, ""),
        ([("x", "y")], Code.UNKNOWN, "an answer without a status of gRPC, HTTP status 200"),
    ],
)
def test_how_a_call_ended_is_in_its_trailers(trailers: list[tuple[str, str]], code: Code, details: str) -> None:
    """With a header of their own before them, or alone in one frame."""
    client = greeted()
    client.receive(STATUS + headers(trailers, LAST))
    assert ending(client) == (code, details)
    assert not client.leaving
    client.ask(METHOD, b"", None)
    client.receive(headers([*HEADER, *trailers], LAST, stream=3))
    assert ending(client) == (code, details)


@pytest.mark.parametrize(
    ("status", "code"),
    [("400", Code.INTERNAL), ("404", Code.UNIMPLEMENTED), ("503", Code.UNAVAILABLE), ("500", Code.UNKNOWN)],
)
def test_a_server_of_http_that_is_none_of_grpc_is_told_by_its_status(status: str, code: Code) -> None:
    """As the mapping of gRPC has it."""
    client = greeted()
    client.receive(headers([(":status", status)], LAST))
    assert client.ended is not None
    assert client.ended.code is code


def test_an_interim_answer_is_not_the_answer() -> None:
    """103 and the like: what counts comes after."""
    client = greeted()
    client.receive(headers([(":status", "103"), ("grpc-status", "5")]) + STATUS + headers(OK, LAST))
    assert ending(client) == (Code.OK, "")


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (frame(Kind.RST_STREAM, 0, 1, struct.pack(">L", 8)), Code.CANCELLED, "HTTP/2 error 8"),
        (frame(Kind.RST_STREAM, 0, 1, struct.pack(">L", 7)), Code.UNAVAILABLE, "HTTP/2 error 7"),
        (frame(Kind.RST_STREAM, 0, 1, struct.pack(">L", 0)), Code.INTERNAL, "HTTP/2 error 0"),
        (frame(Kind.GOAWAY, 0, 0, struct.pack(">LL", 0, 11) + b"calm"), Code.UNAVAILABLE, "goodbye .* calm"),
        (STATUS + frame(Kind.DATA, END_STREAM, 1, prefixed(b"x")), Code.UNKNOWN, "ended without a status"),
        (STATUS + frame(Kind.DATA, 0, 1, b"\1\0\0\0\0"), Code.INTERNAL, "compressed"),
        (STATUS + frame(Kind.DATA, 0, 1, b"\0" * 3) + headers(OK, LAST), Code.INTERNAL, "within a message"),
        (
            STATUS + frame(Kind.DATA, 0, 1, struct.pack(">BL", 0, LARGEST_MESSAGE_BYTES + 1)),
            Code.RESOURCE_EXHAUSTED,
            "a message of 268435457 bytes, 268435456 are allowed",
        ),
    ],
)
def test_a_call_that_ends_badly_says_how(data: bytes, code: Code, words: str) -> None:
    """The code that gRPC gives to it, and a sentence."""
    client = greeted()
    client.receive(data)
    assert client.ended is not None
    assert client.ended.code is code
    with pytest.raises(type(client.ended), match=words):
        raise client.ended


def test_a_goodbye_lets_the_call_end_that_it_covers() -> None:
    """A graceful stop: the answer still comes, and the next call needs another connection."""
    client = greeted()
    client.receive(frame(Kind.GOAWAY, 0, 0, struct.pack(">LL", 2**31 - 1, 0)))
    assert ending(client) is None
    assert client.leaving
    client.receive(STATUS + frame(Kind.DATA, 0, 1, prefixed(b"answer")) + headers(OK, LAST))
    assert ending(client) == (Code.OK, "")
    assert client.messages == [b"answer"]


def test_a_ping_is_answered_and_an_answer_to_none_is_not() -> None:
    """Or the server takes us for dead."""
    client = greeted()
    client.receive(frame(Kind.PING, 0, 0, b"12345678") + frame(Kind.PING, ACK, 0, b"87654321"))
    assert bytes(client.out) == frame(Kind.PING, ACK, 0, b"12345678")


def test_a_request_that_the_server_does_not_want_whole_costs_the_connection() -> None:
    """Its answer came before its end: our half of the stream would stay open."""
    client = Conversation()
    client.receive(frame(Kind.SETTINGS, 0, 0, struct.pack(">HL", 4, 10)))
    client.ask(METHOD, bytes(1000), None)
    client.receive(headers([*HEADER, ("grpc-status", "8")], LAST))
    assert client.ended is not None
    assert client.leaving


def test_late_frames_of_an_older_call_do_not_disturb_the_next() -> None:
    """Data, windows, resets and trailers of stream 1 while stream 3 is under way."""
    client = greeted()
    client.receive(STATUS + headers(OK, LAST))
    client.ask(METHOD, b"", None)
    late = frame(Kind.DATA, 0, 1, b"late") + frame(Kind.WINDOW_UPDATE, 0, 1, struct.pack(">L", 5))
    client.receive(late + frame(Kind.RST_STREAM, 0, 1, struct.pack(">L", 0)) + headers([("grpc-status", "9")], LAST))
    assert ending(client) is None
    answer = headers(HEADER, stream=3) + frame(Kind.DATA, 0, 3, prefixed(b"x")) + headers(OK, LAST, stream=3)
    client.receive(answer)
    assert client.messages == [b"x"]


def test_headers_may_be_padded_weighted_and_continued() -> None:
    """All that the format allows beside the fields themselves."""
    block = hpack.Encoder().encode(HEADER)
    first = bytes((4,)) + b"\0\0\0\0\7" + block[:2] + bytes(4)
    client = greeted()
    client.receive(frame(Kind.HEADERS, PADDED | PRIORITY, 1, first))
    client.receive(frame(Kind.CONTINUATION, 0, 1, block[2:5]))
    client.receive(frame(Kind.CONTINUATION, END_HEADERS, 1, block[5:]) + frame(Kind.PRIORITY, 0, 1, bytes(5)))
    client.receive(headers(OK, LAST))
    assert ending(client) == (Code.OK, "")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(Kind.DATA, 0, 1, b"x"), "data before the header"),
        (frame(Kind.DATA, 0, 3, b"x"), "stream 3, which is not open"),
        (frame(Kind.DATA, 0, 0, b"x"), "stream 0, which is not open"),
        (STATUS + frame(Kind.DATA, PADDED, 1, b"\5abc"), "more padding than bytes"),
        (frame(Kind.HEADERS, PRIORITY | END_HEADERS, 1, b"\0\0"), "too short"),
        (frame(Kind.HEADERS, END_HEADERS, 1, b"\x80"), "cannot be read: there is no header field 0"),
        (frame(Kind.HEADERS, 0, 1, b"") + frame(Kind.PING, 0, 0, bytes(8)), "a frame of kind 6 where none may be"),
        (frame(Kind.CONTINUATION, 0, 1, b""), "a frame of kind 9 where none may be"),
        (frame(Kind.HEADERS, 0, 1, b"") + frame(Kind.CONTINUATION, 0, 1, bytes(16384)) * 65, "a header of more than"),
        (frame(Kind.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), "a push"),
        (frame(Kind.SETTINGS, 0, 0, bytes(5)), "settings of 5 bytes"),
        (frame(Kind.SETTINGS, 0, 0, struct.pack(">HL", 4, 2**31)), "a window of 2147483648 bytes"),
        (frame(Kind.PING, 0, 0, b""), "a ping of 0 bytes"),
        (frame(Kind.WINDOW_UPDATE, 0, 0, b""), "a window of 0 bytes"),
        (frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">L", 2**31 - 1)), "a window above"),
        (frame(Kind.RST_STREAM, 0, 1, b""), "a reset of 0 bytes"),
        (frame(Kind.GOAWAY, 0, 0, b""), "too short"),
        (b"\0\x40\1" + bytes(6), "a frame of 16385 bytes, 16384 are allowed"),
    ],
)
def test_a_server_that_breaks_the_rules_is_told_off_in_a_sentence(data: bytes, words: str) -> None:
    """Each rule that matters to us, one at a time."""
    with pytest.raises(BrokenConversation, match=words):
        greeted().receive(data)


def test_what_does_not_speak_http2_is_recognised_by_its_first_bytes() -> None:
    """A web server at the socket, say. Nothing is asked of it."""
    with pytest.raises(BrokenConversation, match=r"does not speak HTTP/2: b'HTTP/1\.1 400 Bad Request"):
        Conversation().receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_after_two_gibibytes_the_server_may_still_send() -> None:
    """The window of the connection is opened again as what came is read: else an old daemon would wait for ever."""
    client, server = Conversation(), Server(answers=[[]])
    client.ask(METHOD, b"", None)
    server.take(bytes(client.out))
    client.receive(server.h2.data_to_send())
    client.out.clear()
    client.ask(METHOD, b"", None)
    client.receive(headers(HEADER, stream=3))
    client.out.clear()
    pieces = frame(Kind.DATA, 0, 3, prefixed(bytes(16384 - 5))) * 64
    opened = 0
    for _ in range(2**31 // (64 * 16384) + 1):
        client.receive(pieces)
        client.messages.clear()
        while client.out:
            size, kind, stream = int.from_bytes(client.out[:3], "big"), client.out[3], client.out[8]
            if (kind, stream) == (Kind.WINDOW_UPDATE, 0):
                opened += int.from_bytes(client.out[9:13], "big")
            del client.out[: 9 + size]
    assert opened >= 2**31


class TestAnyBytes:
    """Whatever comes: an answer, an error of the call, or BrokenConversation; and no memory for what is not read."""

    kinds = st.sampled_from(list(Kind)) | st.integers(0, 255)
    payloads = st.binary(max_size=60) | st.just(headers(HEADER)[9:]) | st.just(headers(OK)[9:])
    frames = st.builds(
        lambda kind, flags, stream, payload: struct.pack(">BHBBL", 0, len(payload), kind, flags, stream) + payload,
        kinds,
        st.sampled_from([0, 1, 4, 5, 8, 0x20]) | st.integers(0, 255),
        st.sampled_from([0, 1, 1, 3]) | st.integers(0, 2**32 - 1),
        payloads,
    )

    @settings(max_examples=400, deadline=None)
    @given(st.lists(frames, max_size=20), st.integers(1, 200))
    def test_frames_of_any_kind(self, frames: list[bytes], size: int) -> None:
        """In any order, with any flags, cut anywhere."""
        client, data = greeted(), b"".join(frames)
        self.feed(client, data, size)

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=200), st.integers(1, 50))
    def test_bytes_of_any_kind(self, data: bytes, size: int) -> None:
        """From the first one on."""
        self.feed(Conversation(), data, size)

    @staticmethod
    def feed(client: Conversation, data: bytes, size: int) -> None:
        """The bytes in pieces."""
        with contextlib.suppress(BrokenConversation):
            for place in range(0, len(data), size):
                client.receive(data[place : place + size])
