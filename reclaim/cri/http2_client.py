"""The client's side of one HTTP/2 connection, one call at a time: bytes in, messages and bytes to send out.

The library h2 speaks the protocol. Around it:
* a GOAWAY does not end the call that it covers. h2 takes it for the end of the connection
  (https://github.com/python-hyper/h2/issues/1181), so frames are cut here and h2 never sees that one;
* a frame that is too long is refused by its first nine bytes, not after up to 16 MiB have come;
* a server may send only so much more than its answer needs: no flood of pings, header fields or empty frames keeps
  a call busy that has no deadline;
* bytes to send are limited: answers to a flood do not pile up while the server does not read them.

Does not cover calls side by side: each connection carries one, `reclaim.cri.channel` has as many as are needed. So no
call waits for another's bytes, and the thread that calls is the one that reads.

Source: RFC 9113.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

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

from reclaim.cri.grpc_framing import MessageReader, prefixed, request_headers, status_of, status_of_reset
from reclaim.cri.status import CallError, Code

SPARE_BYTES = 1024 * 1024
"""How much more than its answer needs a server may send with one call: a ping a second for two hours."""

UNSENT_BYTES = 256 * 1024
"""How much may wait to be sent besides the request itself."""

SETTINGS_BYTES = 6000
"""How much a server may write in all its settings of one connection: h2 keeps each name that it does not know."""

_CALLS = 1000  # for one connection: h2 remembers each closed stream, and header fields that are repeated
_FRAME = struct.Struct(">BHBBL")  # length (8 and 16 bits), kind, flags, stream
_FRAME_BYTES = 9
_LARGEST_FRAME_BYTES = 16384  # the least that both sides take, and all that is asked for
_BYTES_A_FRAME = 128  # what a frame counts besides its own bytes: to read one takes as long as some of these
_SPARE_SHARE = 16  # what may come for each byte of the answer
_FIRST_WINDOW_BYTES = 65535
_WINDOW_BYTES = 16 * 1024 * 1024  # it is opened again as bytes are read, so a server waits for nobody but the reader
_HEADER_LIST_BYTES = 64 * 1024
_SETTINGS, _GOAWAY = 4, 7  # kinds of frames (RFC 9113, 6)
_ACK = 0x1
_GOAWAY_PAYLOAD = struct.Struct(">LL")  # last stream, error code
_LAST_STREAM = 2**31 - 1


class ProtocolBroken(Exception):
    """The server does not speak HTTP/2, or no longer: the connection has to go. The message says what it did."""


class Http2Client:
    """One connection. `out` is what has to be sent; whoever sends it deletes it there.

    A call is `ask`, then `receive` until `ended` is not None; `messages` has what came, in order.
    """

    def __init__(self) -> None:
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
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
        """Whether the server's own settings have come: it does speak HTTP/2."""
        self.leaving = False
        """Whether no further call can be made on this connection."""
        self.messages: list[bytes] = []
        self.ended: CallError | None = None
        """How the call ended, with the code OK where it did well; None while it goes on."""
        self._in = bytearray()
        self._settings_bytes = 0
        self._stream = 0
        self._request = b""  # what of it has still to be sent
        self._request_bytes = 0
        self._reader = MessageReader()
        self._fields: dict[bytes, bytes] = {}
        self._heard = 0  # since the call began: all frames, each counted with `_BYTES_A_FRAME` more
        self._answer_bytes = 0

    def ask(self, method: str, message: bytes, timeout_seconds: float | None) -> None:
        """Begins a call, after the last one has ended. Raises ProtocolBroken where the server allows none."""
        self.messages, self.ended = [], None
        self._reader, self._fields = MessageReader(), {}
        self._heard = self._answer_bytes = 0
        self._request = prefixed(message)
        self._request_bytes = len(self._request)
        try:
            self._stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(self._stream, request_headers(method, timeout_seconds))
            self._send_request()
        except H2Error as error:
            raise ProtocolBroken(_words(error)) from error
        self.leaving = self.leaving or self._stream >= 2 * _CALLS - 1
        self.out += self._h2.data_to_send()

    def receive(self, data: bytes) -> None:
        """Takes what was read from the server, however it was cut.

        Raises ProtocolBroken, but not after the call has ended: then `leaving` says it, and the answer stands.
        """
        try:
            self._receive(data)
        except ProtocolBroken:
            if self.ended is None:
                raise
            self.leaving = True

    # ---- what came

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
            raise ProtocolBroken(f"it does not read the answers to its own frames, {len(self.out)} bytes by now")

    def _whole_frames(self) -> Iterator[tuple[int, bytes]]:
        """Kind and bytes of each frame that is there as a whole, out of `_in`."""
        place, have = 0, self._in
        try:
            while len(have) - place >= _FRAME_BYTES:
                high, low, kind, flags, _ = _FRAME.unpack_from(have, place)
                size = high << 16 | low
                if not self.greeted and (kind != _SETTINGS or flags & _ACK):
                    raise ProtocolBroken(f"what answers does not speak HTTP/2: {bytes(have[place : place + 24])!r}")
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
        self._heard += len(frame) + _BYTES_A_FRAME
        if self._heard > SPARE_BYTES + _SPARE_SHARE * self._answer_bytes:
            raise ProtocolBroken(f"it speaks without end, and {self._answer_bytes} bytes of an answer were among it")

    def _take(self, event: Event) -> None:
        """What h2 does not answer by itself."""
        match event:
            case DataReceived():
                self._take_data(event)
            case ResponseReceived() | TrailersReceived() if self._is_current(event.stream_id):
                self._fields.update((bytes(name), bytes(value)) for name, value in event.headers)
            case StreamEnded() if self._is_current(event.stream_id):
                self._end(status_of(self._fields))
            case StreamReset() if self._is_current(event.stream_id):
                if not event.remote_reset:  # h2 did it, for what the server had sent
                    raise ProtocolBroken(f"it broke the rules of HTTP/2 with error {int(event.error_code)}")
                self._end(status_of_reset(int(event.error_code)))
            case RemoteSettingsChanged():
                self.greeted = True
                self._send_request()
            case WindowUpdated():
                self._send_request()
            case _:  # an interim answer, a ping, what comes late for an older call
                pass

    def _is_current(self, stream: int) -> bool:
        return stream == self._stream and self.ended is None

    def _take_data(self, event: DataReceived) -> None:
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if not self._is_current(event.stream_id):
            return
        self._answer_bytes += len(event.data)
        try:
            self.messages += self._reader.feed(event.data)
        except CallError as error:  # the server goes on speaking: the connection goes with the call
            self.leaving = True
            self._end(error)

    def _take_goaway(self, frame: bytes) -> None:
        self.leaving = True
        if len(frame) < _FRAME_BYTES + _GOAWAY_PAYLOAD.size:
            raise ProtocolBroken("a goodbye that is too short")
        last, reason = _GOAWAY_PAYLOAD.unpack_from(frame, _FRAME_BYTES)
        if self._stream > last & _LAST_STREAM and self.ended is None:
            words = frame[_FRAME_BYTES + _GOAWAY_PAYLOAD.size :].decode(errors="replace")
            details = f"the runtime said goodbye (HTTP/2 error {reason}) {words}".rstrip()
            self._end(CallError(Code.UNAVAILABLE, details))

    # ---- what goes

    def _send_request(self) -> None:
        """As much of the request as the server's windows allow; its last piece ends our side of the stream."""
        while self._request:
            allowed = min(self._h2.local_flow_control_window(self._stream), self._h2.max_outbound_frame_size)
            if allowed <= 0:
                return
            piece, self._request = self._request[:allowed], self._request[allowed:]
            self._h2.send_data(self._stream, piece, end_stream=not self._request)

    def _end(self, how: CallError) -> None:
        """The call is over. With half a request sent the stream would stay open: then the connection goes too."""
        if how.code is Code.OK and self._reader.in_the_middle:
            how = CallError(Code.INTERNAL, "the answer ended within a message")
        self.ended = how
        self.leaving = self.leaving or bool(self._request)
        self._request = b""


def _words(error: H2Error) -> str:
    return f"it broke the rules of HTTP/2: {type(error).__name__}: {error}".rstrip(". ")
