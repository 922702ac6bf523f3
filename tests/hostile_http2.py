"""Servers that violate HTTP/2 or gRPC: what they send after the request, and arbitrary frames."""

import re
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

import hpack
from hypothesis import strategies as st

from reclaim.cri.channel import Channel
from reclaim.cri.status import CallError, Code
from tests.http2_server import HEADER, OK, Talk, listening, prefixed
from tests.rows import rows_of

QUESTION = prefixed(b"the question")
FRAME_BYTES = 16384
END_HEADERS = 4
KINDS = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
    "ALTSVC",
    "UNKNOWN",
]
"""Of frames, by their numbers."""


def raw(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of any kind, also one that a library refuses to make."""
    return struct.pack(">BHBBL", 0, len(payload), kind, flags, stream) + payload


def block(fields: Iterable[tuple[str, str]]) -> bytes:
    """Header fields that change no table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode(list(fields), huffman=False)


def headers(fields: Iterable[tuple[str, str]], *flags: str, stream: int = 1) -> bytes:
    """A complete header frame."""
    return raw(1, END_HEADERS | ("END_STREAM" in flags), stream, block(fields))


def data(payload: bytes, *flags: str, stream: int = 1) -> bytes:
    """A data frame."""
    return raw(0, "END_STREAM" in flags, stream, payload)


def continued(encoded: bytes) -> bytes:
    """A header block of any length, in as many frames as it needs."""
    pieces = [encoded[place : place + FRAME_BYTES] for place in range(0, len(encoded), FRAME_BYTES)]
    frames = [raw(9 if at else 1, 0, 1, piece) for at, piece in enumerate(pieces[:-1])]
    return b"".join([*frames, raw(9, END_HEADERS, 1, pieces[-1])])


def many(frame: bytes) -> Iterable[bytes]:
    """A frame again and again, some hundred at a time."""
    return repeat(frame * (FRAME_BYTES // len(frame) + 1))


def hpack_bomb() -> bytes:
    """A field of 4000 bytes that enters the HPACK table, then one byte for
    each of 16 000 repetitions.
    """
    encoder = hpack.Encoder()
    first = encoder.encode([(":status", "200"), ("x", "y" * 4000)])
    return first + encoder.encode([("x", "y" * 4000)]) * 16_000


GREETING = raw(4, 0, 0, b"")
STATUS = headers(HEADER)
TRAILERS = headers(OK, "END_STREAM")
PAYLOADS = {
    "the-status": block(HEADER),
    "the-trailers": block(OK),
    "no-status": block([("x", "y")]),
    "capitals": block([*HEADER, ("X", "y")]),
    "16-KiB": bytes(FRAME_BYTES),
    "255-of-padding": b"\xff" + bytes(255),
}
WORDS = {
    "900-kB": continued(block([*HEADER, *((f"x-{n}", "y" * 1000) for n in range(900))])),
    "a-bomb": continued(hpack_bomb()),
    "an-interim-answer": continued(
        block([(":status", "103"), *((f"x-{number}", "y" * 100) for number in range(400))])
    ),
    "settings-of-all-names": b"".join(
        raw(4, 0, 0, struct.pack(">HL", name, 1) * 10) for name in range(100, 65536)
    ),
    "16385-bytes": b"\0\x40\1" + bytes(6),
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}
FRAME = re.compile(r"(?:(\d+)x)?([A-Z_]+)@(\d+)(?:\+(\d))?(?:=(.+))?")


def sent(word: str) -> bytes:
    """The bytes of a word of the table."""
    if word in WORDS:
        return WORDS[word]
    found = FRAME.fullmatch(word)
    assert found, word
    times, kind, stream, flags, content = found.groups(default="")
    payload = PAYLOADS[content] if content in PAYLOADS else bytes.fromhex(content)
    return raw(KINDS.index(kind), int(flags or 0), int(stream), payload) * int(times or 1)


@dataclass(frozen=True)
class Hostile:
    """What a server sends to the first call of a connection, how that call ends, and with which
    words. It reads nothing meanwhile.

    A word is a frame: its kind, `@` its stream, `+` its flags (1 ends the stream or acknowledges, 4
    ends the header, 8 is padded), `=` its payload in hexadecimal digits; or it is one of `WORDS`.
    The last one comes again and again before `…`.
    """

    sends: str
    ends: Code
    words: str

    @property
    def seconds(self) -> float | None:
        """The deadline, for a server that then sends nothing more; None: no deadline, and the
        server closes."""
        return 0.5 if self.ends is Code.DEADLINE_EXCEEDED else None

    def send(self) -> Iterable[bytes]:
        """The bytes, piece by piece."""
        pieces = [sent(word) for word in self.sends.removesuffix("…").split()]
        return chain(pieces, many(pieces[-1])) if self.sends.endswith("…") else pieces


TABLE = """
    name                                          | sends                                                              | ends               | words
    continuation of another stream                | HEADERS@1=the-status CONTINUATION@3                                | UNAVAILABLE        | the server violated HTTP/2: ProtocolError: Invalid frame during header block
    continuation of nothing                       | CONTINUATION@1+4                                                   | UNAVAILABLE        | the server violated HTTP/2:
    60 header frames without an end, then silence | HEADERS@1=16-KiB 59xCONTINUATION@1=16-KiB                          | DEADLINE_EXCEEDED  | the deadline has passed
    header frames without an end                  | HEADERS@1 CONTINUATION@1=16-KiB …                                  | UNAVAILABLE        | the server sends without end:
    empty continuations without an end            | HEADERS@1 CONTINUATION@1 …                                         | UNAVAILABLE        | the server violated HTTP/2: ProtocolError: Too many continuation frames
    a header of 900 kB                            | 900-kB                                                             | UNAVAILABLE        | DenialOfServiceError
    a header that is 64 MB when it is unpacked    | a-bomb                                                             | UNAVAILABLE        | DenialOfServiceError
    interim answers with many fields without end  | an-interim-answer …                                                | UNAVAILABLE        | the server sends without end:
    a header that cannot be unpacked              | HEADERS@1+4=80                                                     | UNAVAILABLE        | the server violated HTTP/2:
    names in capitals                             | HEADERS@1+4=capitals                                               | UNAVAILABLE        | the server violated HTTP/2:
    a header without a status                     | HEADERS@1+5=no-status                                              | UNAVAILABLE        | the server violated HTTP/2:
    trailers that do not end                      | HEADERS@1+4=the-status HEADERS@1+4=no-status                       | UNAVAILABLE        | the server violated HTTP/2:
    settings on a stream                          | SETTINGS@1                                                         | UNAVAILABLE        | the server violated HTTP/2: ProtocolError: Received frame with
    settings of five bytes                        | SETTINGS@0=0000000000                                              | UNAVAILABLE        | the server violated HTTP/2:
    a window of 2 GiB by settings                 | SETTINGS@0=000480000000                                            | UNAVAILABLE        | the server violated HTTP/2:
    settings without end                          | SETTINGS@0 …                                                       | UNAVAILABLE        | the server sends without end:
    settings of all names                         | settings-of-all-names                                              | UNAVAILABLE        | settings of 6060 bytes, 6000 are allowed
    pings without end                             | PING@0=3132333435363738 …                                          | UNAVAILABLE        | the server sends without end:
    pings of one byte                             | PING@0=78                                                          | UNAVAILABLE        | the server violated HTTP/2:
    answers to pings without end                  | PING@0+1=3132333435363738 …                                        | UNAVAILABLE        | the server sends without end:
    windows that overflow                         | WINDOW_UPDATE@0=40000000 …                                         | UNAVAILABLE        | the server violated HTTP/2: FlowControl
    a stream's window that overflows              | WINDOW_UPDATE@1=40000000 …                                         | UNAVAILABLE        | violated HTTP/2: error 3
    a window of 0 bytes                           | WINDOW_UPDATE@0=00000000                                           | UNAVAILABLE        | the server violated HTTP/2:
    windows of one byte without end               | WINDOW_UPDATE@0=00000001 …                                         | UNAVAILABLE        | the server sends without end:
    data before the header                        | DATA@1=78                                                          | UNAVAILABLE        | the server violated HTTP/2:
    data for a stream that was not opened         | DATA@3=78                                                          | UNAVAILABLE        | the server violated HTTP/2:
    more padding than bytes                       | HEADERS@1+4=the-status DATA@1+8=05616263                           | UNAVAILABLE        | the server violated HTTP/2:
    data beyond every window                      | HEADERS@1+4=the-status DATA@1=0002000000 DATA@1=16-KiB …           | INTERNAL           | one message was expected, and a second one came
    empty data without end                        | HEADERS@1+4=the-status DATA@1 …                                    | UNAVAILABLE        | the server sends without end:
    data of one byte without end                  | HEADERS@1+4=the-status DATA@1=0006000000 DATA@1=78 …               | UNAVAILABLE        | the server sends without end:
    padding without end                           | HEADERS@1+4=the-status DATA@1+8=255-of-padding …                   | UNAVAILABLE        | the server sends without end:
    a message above the limit                     | HEADERS@1+4=the-status DATA@1=0006000001                           | RESOURCE_EXHAUSTED | a message of 100663297 bytes, 100663296 are allowed
    a message that is compressed                  | HEADERS@1+4=the-status DATA@1=0100000000                           | INTERNAL           | compressed
    a message that does not end                   | HEADERS@1+4=the-status DATA@1=000000 HEADERS@1+5=the-trailers      | INTERNAL           | within a message
    no message                                    | HEADERS@1+4=the-status HEADERS@1+5=the-trailers                    | INTERNAL           | one message was expected, and none came
    messages without end                          | HEADERS@1+4=the-status DATA@1=000000000178 …                       | INTERNAL           | a second one
    no status                                     | HEADERS@1+4=the-status DATA@1+1=000000000178                       | UNKNOWN            | without grpc-status
    a reset                                       | RST_STREAM@1=00000008                                              | CANCELLED          | HTTP/2 error 8
    a reset that refuses                          | RST_STREAM@1=00000007                                              | UNAVAILABLE        | HTTP/2 error 7
    a reset of no kind                            | RST_STREAM@1=ffffffff                                              | INTERNAL           | HTTP/2 error 429
    a reset of three bytes                        | RST_STREAM@1=000000                                                | UNAVAILABLE        | the server violated HTTP/2:
    resets of other streams without end           | RST_STREAM@1001=00000000 …                                         | UNAVAILABLE        | the server sends without end:
    a goodbye                                     | GOAWAY@0=000000000000000b63616c6d                                  | UNAVAILABLE        | GOAWAY (HTTP/2 error 11) calm
    a goodbye of seven bytes                      | GOAWAY@0=00000000000000                                            | UNAVAILABLE        | a GOAWAY frame that is too short
    goodbyes without end                          | GOAWAY@0=7fffffff00000000 …                                        | UNAVAILABLE        | the server sends without end:
    a push                                        | PUSH_PROMISE@1+4=00000002                                          | UNAVAILABLE        | the server violated HTTP/2:
    a call of the server's own                    | HEADERS@2+4=the-status                                             | UNAVAILABLE        | the server violated HTTP/2:
    priorities without end                        | PRIORITY@3=0000000000 …                                            | UNAVAILABLE        | the server sends without end:
    frames of no kind without end                 | UNKNOWN@1=78 …                                                     | UNAVAILABLE        | the server sends without end:
    other services without end                    | ALTSVC@0=0001616263 …                                              | UNAVAILABLE        | the server sends without end:
    a frame that is too long                      | 16385-bytes                                                        | UNAVAILABLE        | a frame of 16385 bytes
    text                                          | text                                                               | UNAVAILABLE        | a frame of 4740180 bytes, 16384 are allowed
    nothing                                       |                                                                    | UNAVAILABLE        | the connection was closed
"""
HOSTILE = {
    row["name"]: Hostile(row["sends"], Code[row["ends"]], row["words"]) for row in rows_of(TABLE)
}
MOST_MIB = {"a header of 900 kB": 40, "data beyond every window": 700}
"""Of memory, ten times what the call takes; 15 for the others. The client widens its windows as it
reads: what bounds data is the size of the message."""


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
                list(channel.stream("/runtime.v1.RuntimeService/Version", b"the question", 30.0))
            channel.close()
