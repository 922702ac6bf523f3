"""Servers that violate HTTP/2 or gRPC: what they send after the request, and arbitrary frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import hpack
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import strategies as st

from reclaim.cri.channel import LARGEST_MESSAGE_BYTES, Channel
from reclaim.cri.status import CallError, Code
from tests.http2_server import HEADER, OK, Talk, listening, prefixed

QUESTION = prefixed(b"the question")
GREETING = SettingsFrame().serialize()
FRAME_BYTES = 16384
PIECE = bytes(FRAME_BYTES)
WINDOW_BYTES = 16 * 1024 * 1024  # what the client grants at first


def raw(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of any kind, also one that a library refuses to make."""
    return (
        struct.pack(">BHBBL", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream)
        + payload
    )


def block(fields: Iterable[tuple[str, str]]) -> bytes:
    """Header fields that change no table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode(list(fields), huffman=False)


def headers(fields: Iterable[tuple[str, str]], *flags: str, stream: int = 1) -> bytes:
    """A complete header frame."""
    return HeadersFrame(stream, block(fields), flags=["END_HEADERS", *flags]).serialize()


def continued(encoded: bytes, *flags: str) -> bytes:
    """A header block of any length, in as many frames as it needs."""
    pieces = [encoded[place : place + FRAME_BYTES] for place in range(0, len(encoded), FRAME_BYTES)]
    frames: list[HeadersFrame | ContinuationFrame] = [HeadersFrame(1, pieces[0], flags=list(flags))]
    frames += [ContinuationFrame(1, piece) for piece in pieces[1:]]
    frames[-1].flags.add("END_HEADERS")
    return b"".join(frame.serialize() for frame in frames)


def data(payload: bytes, *flags: str, stream: int = 1) -> bytes:
    """A data frame."""
    return DataFrame(stream, payload, flags=list(flags)).serialize()


STATUS = headers(HEADER)
TRAILERS = headers(OK, "END_STREAM")


def many(frame: bytes) -> Iterator[bytes]:
    """A frame again and again, some hundred at a time."""
    return repeat(frame * (FRAME_BYTES // len(frame) + 1))


def growing_fields() -> Iterator[bytes]:
    """Interim answers without end, each with as many fields as are allowed."""
    fields = ((f"x-{number}", "y" * 100) for number in range(400))
    return repeat(continued(block([(":status", "103"), *fields])))


def hpack_bomb() -> bytes:
    """A field of 4000 bytes that enters the HPACK table, then one byte for
    each of 16 000 repetitions.
    """
    encoder = hpack.Encoder()
    first = encoder.encode([(":status", "200"), ("x", "y" * 4000)])
    return first + encoder.encode([("x", "y" * 4000)]) * 16_000


@dataclass(frozen=True)
class Hostile:
    """What a server sends to the first call of a connection, and how that call ends.
    It reads nothing meanwhile.

    `seconds`: the deadline, for a server that then sends nothing more; None: no deadline, and the
    server closes. `most_mib`: limit of memory, ten times what the call takes.
    """

    send: Callable[[], Iterable[bytes]]
    code: Code
    words: str
    seconds: float | None = None
    most_mib: int = 15


def once(*sent: bytes) -> Callable[[], Iterable[bytes]]:
    """Sends exactly these bytes."""
    return lambda: sent


BROKE = "the server violated HTTP/2: "
ENDLESS = "the server sends without end: "
GONE = Code.UNAVAILABLE

HOSTILE: dict[str, Hostile] = {
    "continuation of another stream": Hostile(
        once(HeadersFrame(1, block(HEADER)).serialize(), ContinuationFrame(3, b"").serialize()),
        GONE,
        BROKE + "ProtocolError: Invalid frame during header block",
    ),
    "continuation of nothing": Hostile(
        once(ContinuationFrame(1, b"", flags=["END_HEADERS"]).serialize()), GONE, BROKE
    ),
    "60 header frames without an end, then silence": Hostile(
        once(HeadersFrame(1, PIECE).serialize(), ContinuationFrame(1, PIECE).serialize() * 59),
        Code.DEADLINE_EXCEEDED,
        "the deadline has passed",
        seconds=0.5,
    ),
    "header frames without an end": Hostile(
        lambda: chain(
            [HeadersFrame(1, b"").serialize()], many(ContinuationFrame(1, PIECE).serialize())
        ),
        GONE,
        ENDLESS,
    ),
    "empty continuations without an end": Hostile(
        lambda: chain(
            [HeadersFrame(1, b"").serialize()], many(ContinuationFrame(1, b"").serialize())
        ),
        GONE,
        BROKE + "ProtocolError: Too many continuation frames",
    ),
    "a header of 900 kB": Hostile(
        once(continued(block([*HEADER, *((f"x-{n}", "y" * 1000) for n in range(900))]))),
        GONE,
        "DenialOfServiceError",
        most_mib=40,
    ),
    "a header that is 64 MB when it is unpacked": Hostile(
        once(continued(hpack_bomb())), GONE, "DenialOfServiceError"
    ),
    "header fields that grow": Hostile(growing_fields, GONE, ENDLESS),
    "a header that cannot be unpacked": Hostile(once(raw(1, 4, 1, b"\x80")), GONE, BROKE),
    "names in capitals": Hostile(once(headers([*HEADER, ("X", "y")])), GONE, BROKE),
    "a header without a status": Hostile(once(headers([("x", "y")], "END_STREAM")), GONE, BROKE),
    "trailers that do not end": Hostile(once(STATUS, headers([("x", "y")])), GONE, BROKE),
    "settings on a stream": Hostile(
        once(raw(4, 0, 1, b"")), GONE, BROKE + "ProtocolError: Received frame with"
    ),
    "settings of five bytes": Hostile(once(raw(4, 0, 0, bytes(5))), GONE, BROKE),
    "a window of 2 GiB by settings": Hostile(
        once(raw(4, 0, 0, struct.pack(">HL", 4, 2**31))), GONE, BROKE
    ),
    "settings without end": Hostile(lambda: many(GREETING), GONE, ENDLESS),
    "settings of all names": Hostile(
        once(*(raw(4, 0, 0, struct.pack(">HL", name, 1) * 10) for name in range(100, 65536))),
        GONE,
        "settings of 6060 bytes, 6000 are allowed",
    ),
    "pings without end": Hostile(
        lambda: many(PingFrame(0, b"12345678").serialize()), GONE, ENDLESS
    ),
    "pings of one byte": Hostile(once(raw(6, 0, 0, b"x")), GONE, BROKE),
    "answers to pings without end": Hostile(
        lambda: many(PingFrame(0, b"12345678", flags=["ACK"]).serialize()), GONE, ENDLESS
    ),
    "windows that overflow": Hostile(
        lambda: many(WindowUpdateFrame(0, 2**30).serialize()), GONE, BROKE + "FlowControl"
    ),
    "a stream's window that overflows": Hostile(
        lambda: many(WindowUpdateFrame(1, 2**30).serialize()), GONE, "violated HTTP/2: error 3"
    ),
    "a window of 0 bytes": Hostile(once(raw(8, 0, 0, bytes(4))), GONE, BROKE),
    "windows of one byte without end": Hostile(
        lambda: many(WindowUpdateFrame(0, 1).serialize()), GONE, ENDLESS
    ),
    "data before the header": Hostile(once(data(b"x")), GONE, BROKE),
    "data for a stream that was not opened": Hostile(once(data(b"x", stream=3)), GONE, BROKE),
    "more padding than bytes": Hostile(once(STATUS, raw(0, 8, 1, b"\5abc")), GONE, BROKE),
    # the client widens them as it reads; the size of the message is the bound
    "data beyond every window": Hostile(
        lambda: chain([STATUS, data(struct.pack(">BL", 0, 2 * WINDOW_BYTES))], repeat(data(PIECE))),
        Code.INTERNAL,
        "one message was expected, and a second one came",
        most_mib=700,
    ),
    "empty data without end": Hostile(lambda: chain([STATUS], many(data(b""))), GONE, ENDLESS),
    "data of one byte without end": Hostile(
        lambda: chain(
            [STATUS, data(struct.pack(">BL", 0, LARGEST_MESSAGE_BYTES))], many(data(b"x"))
        ),
        GONE,
        ENDLESS,
    ),
    "padding without end": Hostile(
        lambda: chain(
            [STATUS], many(DataFrame(1, b"", pad_length=255, flags=["PADDED"]).serialize())
        ),
        GONE,
        ENDLESS,
    ),
    "a message above the limit": Hostile(
        once(STATUS, data(struct.pack(">BL", 0, LARGEST_MESSAGE_BYTES + 1))),
        Code.RESOURCE_EXHAUSTED,
        "a message of 100663297 bytes, 100663296 are allowed",
    ),
    "a message that is compressed": Hostile(
        once(STATUS, data(b"\1\0\0\0\0")), Code.INTERNAL, "compressed"
    ),
    "a message that does not end": Hostile(
        once(STATUS, data(b"\0\0\0"), TRAILERS), Code.INTERNAL, "within a message"
    ),
    "messages without end": Hostile(
        lambda: chain([STATUS], many(data(prefixed(b"x")))), Code.INTERNAL, "a second one"
    ),
    "no status": Hostile(
        once(STATUS, data(prefixed(b"x"), "END_STREAM")), Code.UNKNOWN, "without grpc-status"
    ),
    "a reset": Hostile(once(RstStreamFrame(1, 8).serialize()), Code.CANCELLED, "HTTP/2 error 8"),
    "a reset that refuses": Hostile(once(RstStreamFrame(1, 7).serialize()), GONE, "HTTP/2 error 7"),
    "a reset of no kind": Hostile(
        once(RstStreamFrame(1, 2**32 - 1).serialize()), Code.INTERNAL, "HTTP/2 error 429"
    ),
    "a reset of three bytes": Hostile(once(raw(3, 0, 1, bytes(3))), GONE, BROKE),
    "resets of other streams without end": Hostile(
        lambda: many(RstStreamFrame(1001, 0).serialize()), GONE, ENDLESS
    ),
    "a goodbye": Hostile(
        once(GoAwayFrame(0, 0, 11, b"calm").serialize()), GONE, "GOAWAY (HTTP/2 error 11) calm"
    ),
    "a goodbye of seven bytes": Hostile(
        once(raw(7, 0, 0, bytes(7))), GONE, "a GOAWAY frame that is too short"
    ),
    "goodbyes without end": Hostile(
        lambda: many(GoAwayFrame(0, 2**31 - 1).serialize()), GONE, ENDLESS
    ),
    "a push": Hostile(
        once(PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]).serialize()), GONE, BROKE
    ),
    "a call of the server's own": Hostile(once(headers(HEADER, stream=2)), GONE, BROKE),
    "priorities without end": Hostile(lambda: many(PriorityFrame(3).serialize()), GONE, ENDLESS),
    "frames of no kind without end": Hostile(lambda: many(raw(99, 0, 1, b"x")), GONE, ENDLESS),
    "other services without end": Hostile(lambda: many(raw(10, 0, 0, b"\0\1abc")), GONE, ENDLESS),
    "a frame that is too long": Hostile(
        once(b"\0\x40\1" + bytes(6)), GONE, "a frame of 16385 bytes"
    ),
    "text": Hostile(
        once(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        GONE,
        "a frame of 4740180 bytes, 16384 are allowed",
    ),
    "nothing": Hostile(once(), GONE, "the connection was closed"),
}


def hostile_talk(
    to_send: Iterable[bytes], greeting: bytes = GREETING, *, hold: bool = False
) -> Talk:
    """Greets, waits for the request, and sends without reading; `hold`: then
    waits until the client closes.
    """

    def talk(client: socket.socket) -> None:
        client.sendall(greeting)
        heard = b""
        while QUESTION not in heard:
            piece = client.recv(65536)
            if not piece:
                return
            heard += piece
        with suppress(OSError):
            for each in to_send:
                client.sendall(each)
        while hold and client.recv(65536):
            pass

    return talk


payloads = st.binary(max_size=60) | st.sampled_from(
    [STATUS[9:], TRAILERS[9:], prefixed(b"x"), bytes(4), bytes(8)]
)
ANY_FRAMES = st.lists(
    st.builds(
        raw,
        st.integers(0, 10) | st.integers(0, 255),
        st.sampled_from([0, 1, 4, 5, 8, 0x20]) | st.integers(0, 255),
        st.sampled_from([0, 1, 1, 3]) | st.integers(0, 2**32 - 1),
        payloads,
    )
    | st.sampled_from([STATUS, TRAILERS, data(prefixed(b"x")), GREETING]),
    max_size=20,
).map(b"".join)
ANY_BYTES = (
    st.binary(max_size=300)
    | ANY_FRAMES
    | st.builds(bytes.__add__, ANY_FRAMES, st.binary(max_size=100))
)


def assert_clean(sent: bytes, greeted: bool) -> None:
    """A call to a server that sends this and closes is answered or raises a
    CallError, and nothing else.
    """
    with TemporaryDirectory() as directory:
        talk = hostile_talk((sent,), GREETING if greeted else sent)
        with listening(Path(directory) / "s", talk) as listener:
            channel = Channel(str(listener.path), patience_seconds=0.5)
            with suppress(CallError):
                for _ in channel.stream(
                    "/runtime.v1.RuntimeService/Version", b"the question", 30.0
                ):
                    pass
            channel.close()
