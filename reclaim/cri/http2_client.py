"""gRPC over one HTTP/2 connection, one call at a time: bytes in, messages and bytes to send out. No I/O.

The library h2 speaks HTTP/2; the request's header fields, the prefix of each message and the status in the trailers are
gRPC's. What h2 does not bound is bounded here:

* A GOAWAY does not end a call that it allows to finish. h2 closes the connection at once
  (https://github.com/python-hyper/h2/issues/1181), so the stream of bytes is cut into frames here, and h2 does not see
  that frame.
* A frame that is too long is refused by its header, not after up to 16 MiB have been buffered.
* The bytes that a server may send besides its answer are limited, so no flood of PING, HEADERS or empty DATA frames can
  keep a call without a deadline alive.
* Bytes to send are limited, so the replies to a flood do not pile up while the server does not read them.

Does not cover concurrent calls: each connection carries one call, and `channel` opens as many as are needed.

Sources: RFC 9113, https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from reclaim.cri.status import CallError, Code
from reclaim.services import Metadata

LARGEST_MESSAGE_BYTES = 96 * 1024 * 1024
"""More than runtimes send in one message (containerd 16 MiB, CRI-O 80 MiB by default), and so little that it fits, with
the values made of it, into the 256 MiB to which the unit and the DaemonSet limit the process."""

SPARE_BYTES = 1024 * 1024
"""Bytes that a server may send during one call besides its answer: enough for a PING a second for two hours."""

UNSENT_BYTES = 256 * 1024
"""Bytes that may wait to be sent besides the request itself."""

SETTINGS_BYTES = 6000
"""Bytes of all SETTINGS frames of one connection: h2 keeps every setting that it does not know."""

_CALLS = 1000  # a connection: h2 keeps a record of each closed stream
_FRAME = struct.Struct(">BHBBL")  # length (8 and 16 bits), kind, flags, stream
_FRAME_BYTES = 9
_LARGEST_FRAME_BYTES = 16384  # the protocol's minimum for both sides, and all that we announce
_BYTES_A_FRAME = 128  # added for each frame: handling one costs as much as reading about so many bytes
_SPARE_SHARE = 16  # further bytes that are allowed for each byte of the answer
_FIRST_WINDOW_BYTES = 65535
_WINDOW_BYTES = 16 * 1024 * 1024  # reopened as bytes are read, so only the reader limits the server
_HEADER_LIST_BYTES = 64 * 1024
_SETTINGS, _GOAWAY = 4, 7  # kinds of frames (RFC 9113, 6)
_ACK = 0x1
_GOAWAY_PAYLOAD = struct.Struct(">LL")  # last stream, error code
_LAST_STREAM = 2**31 - 1
_PREFIX = struct.Struct(">?L")  # of a message: compressed, length
_LONGEST_TIMEOUT = 99_999_999  # eight digits are allowed

_CODES = {b"%d" % code: code for code in Code}
_CODE_OF_RESET = {7: Code.UNAVAILABLE, 8: Code.CANCELLED}  # REFUSED_STREAM, CANCEL


class ProtocolBroken(Exception):
    """The server violated HTTP/2 or a limit: the connection has to be closed. The message says what the server did."""


class Http2Client:
    """One connection. `out` holds the bytes to send; the sender deletes from it what was sent.

    A call is `ask`, then `receive` until `ended` is not None; `messages` holds the answer in order.
    """

    def __init__(self) -> None:
        self._h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                # our own fields need neither, which takes a tenth of a call; incoming ones are validated
                normalize_outbound_headers=False,
                validate_outbound_headers=False,
            )
        )
        self._h2.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: _LARGEST_FRAME_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: _HEADER_LIST_BYTES,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        self.out = bytearray(self._h2.data_to_send())
        self.greeted = False
        """True once the server has sent its SETTINGS: it speaks HTTP/2."""
        self.leaving = False
        """True if no further call can be made on this connection."""
        self.messages: list[bytearray] = []
        self.ended: CallError | None = None
        """The status with which the call ended, OK included; None while it is in progress."""
        self._in = bytearray()
        self._settings_bytes = 0
        self._stream = 0
        self._request = b""  # the part that is not sent yet
        self._request_bytes = 0
        self._reader = _MessageReader()
        self._fields: dict[bytes, bytes] = {}
        self._received = 0  # since the call began: bytes of all frames, plus `_BYTES_A_FRAME` for each
        self._answer_bytes = 0

    def ask(self, method: str, message: bytes, timeout_seconds: float | None, metadata: Metadata = ()) -> None:
        """Starts a call, after the last one has ended. Raises ProtocolBroken if the server allows no further stream."""
        self.messages, self.ended = [], None
        self._reader, self._fields = _MessageReader(), {}
        self._received = self._answer_bytes = 0
        self._request = _PREFIX.pack(False, len(message)) + message
        self._request_bytes = len(self._request)
        try:
            self._stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(self._stream, _request_headers(method, timeout_seconds, metadata))
            self._send_request()
        except H2Error as error:
            raise ProtocolBroken(_words(error)) from error
        self.leaving = self.leaving or self._stream >= 2 * _CALLS - 1
        self.out += self._h2.data_to_send()

    def receive(self, data: bytes) -> None:
        """Takes bytes from the server, cut anywhere.

        Raises ProtocolBroken while a call is in progress. Later the answer stands, and `leaving` is set instead.
        """
        try:
            self._receive(data)
        except ProtocolBroken:
            if self.ended is None:
                raise
            self.leaving = True

    # ---- receiving

    def _receive(self, data: bytes) -> None:
        self._in += data
        try:
            for kind, frame in self._whole_frames():
                self._count(kind, frame)
                if kind == _GOAWAY:
                    self._take_goaway(frame)
                else:
                    for event in self._h2.receive_data(frame):
                        self._take(event)
                    self.out += self._h2.data_to_send()
        except H2Error as error:
            raise ProtocolBroken(_words(error)) from error
        if len(self.out) > UNSENT_BYTES + self._request_bytes:
            raise ProtocolBroken(f"the server does not read: {len(self.out)} bytes wait to be sent")

    def _whole_frames(self) -> Iterator[tuple[int, bytes]]:
        """Kind and bytes of each complete frame, taken out of `_in`."""
        place, have = 0, self._in
        try:
            while len(have) - place >= _FRAME_BYTES:
                high, low, kind, flags, _ = _FRAME.unpack_from(have, place)
                size = high << 16 | low
                if not self.greeted and (kind != _SETTINGS or flags & _ACK):
                    raise ProtocolBroken(f"the server does not speak HTTP/2: {bytes(have[place : place + 24])!r}")
                if size > _LARGEST_FRAME_BYTES:
                    raise ProtocolBroken(f"a frame of {size} bytes, {_LARGEST_FRAME_BYTES} are allowed")
                end = place + _FRAME_BYTES + size
                if end > len(have):
                    break
                frame, place = bytes(have[place:end]), end
                yield kind, frame
        finally:
            del have[:place]

    def _count(self, kind: int, frame: bytes) -> None:
        if kind == _SETTINGS:
            self._settings_bytes += len(frame) - _FRAME_BYTES
            if self._settings_bytes > SETTINGS_BYTES:
                raise ProtocolBroken(f"settings of {self._settings_bytes} bytes, {SETTINGS_BYTES} are allowed")
        self._received += len(frame) + _BYTES_A_FRAME
        if self._received > SPARE_BYTES + _SPARE_SHARE * self._answer_bytes:
            raise ProtocolBroken(
                f"the server sends without end: {self._received} bytes, {self._answer_bytes} of them an answer"
            )

    def _take(self, event: Event) -> None:
        """Handles the events that h2 does not answer by itself; not an interim response, or late frames of an earlier
        call."""
        match event:
            case DataReceived():
                self._take_data(event)
            case ResponseReceived() | TrailersReceived() if self._is_current(event.stream_id):
                self._fields.update((bytes(name), bytes(value)) for name, value in event.headers)
            case StreamEnded() if self._is_current(event.stream_id):
                self._end(_status_of(self._fields))
            case StreamReset() if self._is_current(event.stream_id):
                if not event.remote_reset:  # h2 reset it, because of what the server had sent
                    raise ProtocolBroken(f"the server violated HTTP/2: error {int(event.error_code)}")
                code = _CODE_OF_RESET.get(int(event.error_code), Code.INTERNAL)
                self._end(CallError(code, f"the call was reset with HTTP/2 error {int(event.error_code)}"))
            case RemoteSettingsChanged():
                self.greeted = True
                self._send_request()
            case WindowUpdated():
                self._send_request()

    def _is_current(self, stream: int) -> bool:
        return stream == self._stream and self.ended is None

    def _take_data(self, event: DataReceived) -> None:
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if not self._is_current(event.stream_id):
            return
        self._answer_bytes += len(event.data)
        try:
            self.messages += self._reader.feed(event.data)
        except CallError as error:  # the server goes on sending, so the connection cannot be reused
            self.leaving = True
            self._end(error)

    def _take_goaway(self, frame: bytes) -> None:
        self.leaving = True
        if len(frame) < _FRAME_BYTES + _GOAWAY_PAYLOAD.size:
            raise ProtocolBroken("a GOAWAY frame that is too short")
        last, reason = _GOAWAY_PAYLOAD.unpack_from(frame, _FRAME_BYTES)
        if self._stream > last & _LAST_STREAM and self.ended is None:
            words = frame[_FRAME_BYTES + _GOAWAY_PAYLOAD.size :].decode(errors="replace")
            details = f"the runtime sent GOAWAY (HTTP/2 error {reason}) {words}".rstrip()
            self._end(CallError(Code.UNAVAILABLE, details))

    # ---- sending

    def _send_request(self) -> None:
        """Sends as much of the request as the server's windows allow; the last piece ends our side of the stream."""
        while self._request:
            allowed = min(self._h2.local_flow_control_window(self._stream), self._h2.max_outbound_frame_size)
            if allowed <= 0:
                return
            piece, self._request = self._request[:allowed], self._request[allowed:]
            self._h2.send_data(self._stream, piece, end_stream=not self._request)

    def _end(self, how: CallError) -> None:
        """Ends the call. If the request was not sent whole, the stream stays open, so the connection is not reused."""
        if how.code is Code.OK and self._reader.in_the_middle:
            how = CallError(Code.INTERNAL, "the answer ended within a message")
        self.ended = how
        self.leaving = self.leaving or bool(self._request)
        self._request = b""


def _words(error: H2Error) -> str:
    return f"the server violated HTTP/2: {type(error).__name__}: {error}".rstrip(". ")


def _request_headers(method: str, timeout_seconds: float | None, metadata: Metadata = ()) -> list[tuple[bytes, bytes]]:
    """The header fields of a call. `timeout_seconds`: sent to the server as its deadline; None: none. `metadata`: names
    in lower case, and values of printable ASCII."""
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
        fields.append((b"grpc-timeout", b"%dm" % max(1, min(int(timeout_seconds * 1000), _LONGEST_TIMEOUT))))
    fields.extend((name.encode(), value.encode()) for name, value in metadata)
    return fields


class _MessageReader:
    """Cuts the bytes of one stream into messages. Holds at most one message of LARGEST_MESSAGE_BYTES and one frame.

    No large message is ever there twice: the buffer in which it has arrived is handed out as it is.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._size: int | None = None  # of the message that is being read; None: its prefix is

    @property
    def in_the_middle(self) -> bool:
        """True if a message is incomplete."""
        return bool(self._bytes) or self._size is not None

    def feed(self, data: bytes) -> Iterator[bytearray]:
        """The messages that are now complete.

        Raises CallError: INTERNAL for a compressed message, RESOURCE_EXHAUSTED for one that is too large.
        """
        self._bytes += data
        while len(self._bytes) >= (_PREFIX.size if self._size is None else self._size):
            if self._size is None:
                compressed, self._size = _PREFIX.unpack_from(self._bytes)
                if compressed:
                    raise CallError(Code.INTERNAL, "the answer is compressed, which is not supported")
                if self._size > LARGEST_MESSAGE_BYTES:
                    details = f"a message of {self._size} bytes, {LARGEST_MESSAGE_BYTES} are allowed"
                    raise CallError(Code.RESOURCE_EXHAUSTED, details)
                del self._bytes[: _PREFIX.size]
            else:
                message, self._bytes = self._bytes, self._bytes[self._size :]
                del message[self._size :]
                self._size = None
                yield message


def _status_of(fields: Mapping[bytes, bytes]) -> CallError:
    """The status of a call by its trailers. Where HTTP has no such path, there is no such method."""
    number = fields.get(b"grpc-status")
    if number is None:
        status = fields.get(b":status", b"")
        code = Code.UNIMPLEMENTED if status == b"404" else Code.UNKNOWN
        return CallError(code, f"an answer without grpc-status, HTTP status {status.decode(errors='replace')}")
    details = unquote(fields.get(b"grpc-message", b""), errors="replace")
    return CallError(_CODES.get(number, Code.UNKNOWN), details)
