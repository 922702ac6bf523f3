"""A conversation over HTTP/2, one call at a time: bytes in, messages and bytes to send out.

Covers
* what gRPC needs of HTTP/2: frames, settings, pings, flow control both ways, a call's messages and its trailers;
* a server that breaks the rules: BrokenConversation with a sentence, whatever it sends, and bounded memory.

Does not cover
* calls side by side: each connection carries one, `reclaim.cri.channel` has as many as are needed. So no call waits
  for another's bytes, and the thread that calls is the one that reads;
* pushes, priorities and compression, which are neither asked for nor accepted.

Sources: RFC 9113; https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import struct
from enum import IntEnum
from urllib.parse import unquote

from reclaim.cri.hpack import Decoder, Field, HpackError, encoded
from reclaim.cri.status import CallError, Code

LARGEST_MESSAGE_BYTES = 256 * 1024 * 1024
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_FRAME = struct.Struct(">BHBBL")  # length (8 and 16 bits), kind, flags, stream
_FRAME_BYTES = 9
_PREFIX = struct.Struct(">?L")  # of a message: compressed, length
_LARGEST_FRAME_BYTES = 16384  # the least that both sides take, and all that is asked for
_FIRST_WINDOW_BYTES = 65535
_LARGEST_WINDOW_BYTES = 2**31 - 1
_REFILL_BYTES = 2**30  # read since the window was last opened: longer than any message, short of the window
_LARGEST_BLOCK_BYTES = 1024 * 1024
_LAST_STREAM = 2**31 - 1


class Kind(IntEnum):
    """Kinds of frames (RFC 9113, 6)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20

_ENABLE_PUSH, _INITIAL_WINDOW_SIZE = 2, 4

_CODES = {b"%d" % code: code for code in Code}
_CODE_OF_RESET = {
    7: Code.UNAVAILABLE,  # REFUSED_STREAM
    8: Code.CANCELLED,
    11: Code.RESOURCE_EXHAUSTED,  # ENHANCE_YOUR_CALM
    12: Code.PERMISSION_DENIED,  # INADEQUATE_SECURITY
}
_CODE_OF_HTTP_STATUS = {
    b"400": Code.INTERNAL,
    b"401": Code.UNAUTHENTICATED,
    b"403": Code.PERMISSION_DENIED,
    b"404": Code.UNIMPLEMENTED,
    b"429": Code.UNAVAILABLE,
    b"502": Code.UNAVAILABLE,
    b"503": Code.UNAVAILABLE,
    b"504": Code.UNAVAILABLE,
}


class BrokenConversation(Exception):
    """The other side does not speak HTTP/2, or no longer: the connection has to go. The message says what it did."""


def frame(kind: Kind, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame; `payload` has at most 16384 bytes."""
    return _FRAME.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


class Conversation:
    """The client's side of one connection. `out` is what has to be sent; whoever sends it empties it.

    A call is `ask`, then `receive` until `ended` is not None; `messages` has what came, in order.
    """

    def __init__(self) -> None:
        settings = struct.pack(">HLHL", _ENABLE_PUSH, 0, _INITIAL_WINDOW_SIZE, _LARGEST_WINDOW_BYTES)
        self.out = bytearray(PREFACE + frame(Kind.SETTINGS, 0, 0, settings))
        self._open_window(0, _LARGEST_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        self.greeted = False
        """Whether the server's own settings have come: it does speak HTTP/2."""
        self.leaving = False
        """Whether no further call can be made on this connection."""
        self.messages: list[bytes] = []
        self.ended: CallError | None = None
        """How the call ended, with the code OK where it did well; None while it goes on."""
        self._stream = -1
        self._in = bytearray()
        self._decoder = Decoder()
        self._block: bytearray | None = None
        self._block_ends_stream = False
        self._body = bytearray()
        self._fields: dict[bytes, bytes] = {}
        self._request = b""
        self._windows = {0: _FIRST_WINDOW_BYTES}  # what may still be sent, for the connection and the stream
        self._first_window = _FIRST_WINDOW_BYTES
        self._read = {0: 0}  # since the window was last opened, likewise

    def ask(self, method: str, message: bytes, timeout_seconds: float | None) -> None:
        """Begins a call, after the last one has ended."""
        self._stream += 2
        self.leaving = self.leaving or self._stream + 2 > _LAST_STREAM
        self.messages, self.ended = [], None
        self._body, self._fields = bytearray(), {}
        self._windows = {0: self._windows[0], self._stream: self._first_window}
        self._read = {0: self._read[0], self._stream: 0}
        self.out += frame(Kind.HEADERS, END_HEADERS, self._stream, encoded(_request_fields(method, timeout_seconds)))
        self._request = _PREFIX.pack(False, len(message)) + message
        self._send_on()

    def receive(self, data: bytes) -> None:
        """Takes what was read from the server, however it was cut. Raises BrokenConversation."""
        self._in += data
        place, end = 0, len(self._in)
        with memoryview(self._in) as view:
            while end - place >= _FRAME_BYTES:
                high, low, kind, flags, stream = _FRAME.unpack_from(view, place)
                size = high << 16 | low
                if not self.greeted and (kind != Kind.SETTINGS or flags & ACK):
                    raise BrokenConversation(f"what answers does not speak HTTP/2: {bytes(view[place : place + 24])!r}")
                if size > _LARGEST_FRAME_BYTES:
                    raise BrokenConversation(f"a frame of {size} bytes, {_LARGEST_FRAME_BYTES} are allowed")
                if end - place < _FRAME_BYTES + size:
                    break
                place += _FRAME_BYTES
                self._take(kind, flags, stream & _LAST_STREAM, view[place : place + size])
                place += size
        del self._in[:place]

    # ---- what came

    def _take(self, kind: int, flags: int, stream: int, payload: memoryview) -> None:
        if (self._block is None) == (kind == Kind.CONTINUATION):
            raise BrokenConversation(f"a frame of kind {kind} where none may be")
        match kind:
            case Kind.DATA:
                self._take_data(flags, stream, payload)
            case Kind.HEADERS:
                self._take_headers(flags, stream, payload)
            case Kind.CONTINUATION:
                self._take_block(flags, stream, payload)
            case Kind.SETTINGS:
                self._take_settings(flags, payload)
            case Kind.PING:
                self._take_ping(flags, payload)
            case Kind.WINDOW_UPDATE:
                self._take_window(stream, payload)
            case Kind.RST_STREAM:
                self._take_reset(stream, payload)
            case Kind.GOAWAY:
                self._take_goaway(payload)
            case Kind.PUSH_PROMISE:
                raise BrokenConversation("a push, though none is allowed")
            case _:  # PRIORITY, and kinds that are not known: to be ignored (RFC 9113, 4.1)
                pass

    def _is_current(self, stream: int) -> bool:
        """Whether a frame belongs to the call that goes on; what comes late for an older one is nothing to us."""
        if stream > max(self._stream, 0) or stream == 0 or stream % 2 == 0:
            raise BrokenConversation(f"a frame for stream {stream}, which is not open")
        return stream == self._stream and self.ended is None

    def _take_data(self, flags: int, stream: int, payload: memoryview) -> None:
        current = self._is_current(stream)
        self._refill(0, len(payload))
        if not current:
            return
        self._refill(stream, len(payload))
        if b":status" not in self._fields:
            raise BrokenConversation("data before the header")
        self._body += _without_padding(flags, payload)
        self._take_messages()
        if flags & END_STREAM and self.ended is None:
            self._end(CallError(Code.UNKNOWN, "the answer ended without a status"))

    def _take_messages(self) -> None:
        """Takes every message that is whole out of the body."""
        while self.ended is None and len(self._body) >= _PREFIX.size:
            compressed, size = _PREFIX.unpack_from(self._body)
            if compressed or size > LARGEST_MESSAGE_BYTES:
                self._break_off(compressed, size)
                return
            if len(self._body) < _PREFIX.size + size:
                return
            with memoryview(self._body) as body:
                self.messages.append(bytes(body[_PREFIX.size : _PREFIX.size + size]))
            del self._body[: _PREFIX.size + size]

    def _take_headers(self, flags: int, stream: int, payload: memoryview) -> None:
        block = _without_padding(flags, payload)
        if flags & PRIORITY:
            if len(block) < 5:
                raise BrokenConversation("a header frame that is too short")
            block = block[5:]
        self._block, self._block_ends_stream = bytearray(), bool(flags & END_STREAM)
        self._take_block(flags, stream, block)

    def _take_block(self, flags: int, stream: int, payload: memoryview) -> None:
        assert self._block is not None  # `_take` has seen to it
        self._block += payload
        if len(self._block) > _LARGEST_BLOCK_BYTES:
            raise BrokenConversation(f"a header of more than {_LARGEST_BLOCK_BYTES} bytes")
        if not flags & END_HEADERS:
            return
        block, self._block = bytes(self._block), None
        try:
            fields = self._decoder.decoded(block)
        except HpackError as error:
            raise BrokenConversation(f"a header cannot be read: {error}") from error
        if self._is_current(stream):
            self._take_fields(fields)

    def _take_fields(self, fields: list[Field]) -> None:
        self._fields.update(fields)
        if self._block_ends_stream:
            status = _status_of(self._fields)
            if self._body and status.code is Code.OK:
                status = CallError(Code.INTERNAL, "the answer ended within a message")
            self._end(status)
        elif self._fields.get(b":status", b"").startswith(b"1"):
            self._fields.clear()  # an interim answer: the real one follows

    def _take_settings(self, flags: int, payload: memoryview) -> None:
        if flags & ACK:
            return
        if len(payload) % 6:
            raise BrokenConversation(f"settings of {len(payload)} bytes")
        for name, value in struct.iter_unpack(">HL", payload):
            if name == _INITIAL_WINDOW_SIZE:
                self._change_first_window(value)
        self.greeted = True
        self.out += frame(Kind.SETTINGS, ACK, 0, b"")
        self._send_on()

    def _change_first_window(self, size: int) -> None:
        """The window of the stream that is open changes with it (RFC 9113, 6.9.2), and can become negative."""
        if size > _LARGEST_WINDOW_BYTES:
            raise BrokenConversation(f"a window of {size} bytes, {_LARGEST_WINDOW_BYTES} are allowed")
        if self._stream in self._windows:
            self._windows[self._stream] += size - self._first_window
        self._first_window = size

    def _take_ping(self, flags: int, payload: memoryview) -> None:
        if len(payload) != 8:
            raise BrokenConversation(f"a ping of {len(payload)} bytes")
        if not flags & ACK:
            self.out += frame(Kind.PING, ACK, 0, bytes(payload))

    def _take_window(self, stream: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise BrokenConversation(f"a window of {len(payload)} bytes")
        if stream in self._windows:
            self._windows[stream] += int.from_bytes(payload, "big") & _LARGEST_WINDOW_BYTES
            if self._windows[stream] > _LARGEST_WINDOW_BYTES:
                raise BrokenConversation(f"a window above {_LARGEST_WINDOW_BYTES} bytes")
            self._send_on()

    def _take_reset(self, stream: int, payload: memoryview) -> None:
        if len(payload) != 4:
            raise BrokenConversation(f"a reset of {len(payload)} bytes")
        if self._is_current(stream):
            reason = int.from_bytes(payload, "big")
            code = _CODE_OF_RESET.get(reason, Code.INTERNAL)
            self._end(CallError(code, f"the call was reset with HTTP/2 error {reason}"))

    def _take_goaway(self, payload: memoryview) -> None:
        if len(payload) < 8:
            raise BrokenConversation("a goodbye that is too short")
        self.leaving = True
        last, reason = struct.unpack_from(">LL", payload)
        if self.ended is None and self._stream > last & _LAST_STREAM:
            words = bytes(payload[8:]).decode(errors="replace")
            details = f"the runtime said goodbye (HTTP/2 error {reason}) {words}".rstrip()
            self._end(CallError(Code.UNAVAILABLE, details))

    # ---- what goes

    def _send_on(self) -> None:
        """As much of the request as the server's windows allow; its last piece ends our side of the stream."""
        while self._request:
            allowed = min(self._windows[0], self._windows[self._stream], _LARGEST_FRAME_BYTES)
            if allowed <= 0:
                return
            piece, self._request = self._request[:allowed], self._request[allowed:]
            for window in (0, self._stream):
                self._windows[window] -= len(piece)
            self.out += frame(Kind.DATA, 0 if self._request else END_STREAM, self._stream, piece)

    def _refill(self, stream: int, count: int) -> None:
        self._read[stream] += count
        if self._read[stream] >= _REFILL_BYTES:
            self._open_window(stream, self._read[stream])
            self._read[stream] = 0

    def _open_window(self, stream: int, count: int) -> None:
        self.out += frame(Kind.WINDOW_UPDATE, 0, stream, count.to_bytes(4, "big"))

    def _end(self, how: CallError) -> None:
        """The call is over. With half a request sent the stream would stay open: then the connection goes too."""
        self.ended = how
        self.leaving = self.leaving or bool(self._request)
        self._request = b""

    def _break_off(self, compressed: bool, size: int) -> None:
        """Ends the call while the server still speaks: the connection goes with it."""
        self.leaving = True
        if compressed:
            self._end(CallError(Code.INTERNAL, "the answer is compressed, which was not asked for"))
        else:
            details = f"a message of {size} bytes, {LARGEST_MESSAGE_BYTES} are allowed"
            self._end(CallError(Code.RESOURCE_EXHAUSTED, details))


def _request_fields(method: str, timeout_seconds: float | None) -> list[Field]:
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"reclaimd"),
    ]
    if timeout_seconds is not None:
        fields.append((b"grpc-timeout", b"%dm" % max(1, min(int(timeout_seconds * 1000), 99_999_999))))
    return fields


def _without_padding(flags: int, payload: memoryview) -> memoryview:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise BrokenConversation("a frame with more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def _status_of(fields: dict[bytes, bytes]) -> CallError:
    """How a call ended by its trailers; where a server is none of gRPC's, by its HTTP status.

    Source: https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md
    """
    number = fields.get(b"grpc-status")
    if number is None:
        status = fields.get(b":status", b"")
        code = _CODE_OF_HTTP_STATUS.get(status, Code.UNKNOWN)
        return CallError(code, f"an answer without a status of gRPC, HTTP status {status.decode(errors='replace')}")
    details = unquote(fields.get(b"grpc-message", b""), errors="replace")
    return CallError(_CODES.get(number, Code.UNKNOWN), details)
