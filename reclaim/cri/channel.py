"""gRPC calls over one unix socket, on HTTP/2. Every call in flight has a connection of its own,
which the next call reuses.

gRPC's own libraries share one connection among all calls. With its own connection, a call is
written and read by the thread that makes it: no other thread has to wake up, no call waits behind
another's long list, and a failure ends only one call.

* A new connection waits for the server's SETTINGS frame before the request is sent. A removal must
  not be sent to a process that does not answer, because giving up on it would cancel it.
* A connection that was used before is read first. If the runtime has closed it or sent GOAWAY, a
  new one is made.
* No call is repeated here. Whether a call may be repeated depends on what it does: see
  `inventory.retried`.

`Http2Client` does no I/O: it turns bytes received into messages, and calls into bytes to send. The
library h2 speaks HTTP/2; the request's header fields, the prefix of each message and the status in
the trailers are gRPC's. Limits that h2 lacks are added, so that no flood keeps a call without a
deadline alive, or fills the memory.

Sources: RFC 9113, https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

import math
import select
import socket
import struct
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
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
from reclaim.types import NEVER
from signals.quantity import reason_of

_RECEIVE_BYTES = 65536
_IDLE_READS = 4  # a server that sends more on an idle connection is disconnected
_HUNG_UP = "the connection was closed"
_CLOSED = "the channel was closed"
_TOO_LATE = "the deadline has passed"


class Channel:
    """A runtime's socket. The first call connects. Thread-safe.

    `patience_seconds`: how long a runtime may take to accept a connection and send SETTINGS,
    though a call's own deadline may be shorter; and how long a connection is kept that no call
    needs: the next call closes it.
    """

    def __init__(self, path: str, patience_seconds: float):
        self.path = path
        self._patience_seconds = patience_seconds
        # Stays: any worker takes a connection, gives it back, and closes old ones;
        # no call is made under it.
        self._lock = threading.Lock()
        # unconnected ones first, the most recently used one last
        self._free: list[_Connection] = []
        self._busy = set[_Connection]()
        self._prepared = 0
        self._closed = False
        self.connections_made = 0
        """How many have been made so far. It grows when the runtime is replaced."""

    def prepare(self, count: int) -> None:
        """Makes sockets for `count` concurrent calls, one of which that is closed is replaced at
        once: a process that has run out of descriptors can still connect.

        Raises OSError; sockets that were made remain.
        """
        with self._lock:
            self._prepared = max(self._prepared, count)
            self._fill_up()

    def unary(self, method: str, request: bytes, seconds: float) -> bytearray:
        """The single message that answers a call. `seconds`: its deadline; NEVER: none.

        Raises CallError.
        """
        with closing(self.stream(method, request, seconds)) as messages:
            answers = list(islice(messages, 2))
        if len(answers) != 1:
            raise CallError(
                Code.INTERNAL,
                f"one message was expected, and {'a second one' if answers else 'none'} came",
            )
        return answers[0]

    def stream(self, method: str, request: bytes, seconds: float) -> Generator[bytearray]:
        """The messages that answer a call, as they arrive.

        Raises CallError, also during the iteration.
        """
        ends = time.monotonic() + seconds
        try:
            connection = self._taken()
        except OSError as error:
            raise CallError(Code.UNAVAILABLE, f"no socket can be made: {_words(error)}") from error
        try:
            if not connection.reusable:
                connection.connect(self.path, ends, self._patience_seconds)
                with self._lock:
                    self.connections_made += 1
                    if self._closed:  # in the meantime: no call may be made
                        connection.hang_up()
            yield from connection.call(method, request, ends)
        except CallError as error:
            if self._closed and not connection.reusable:
                raise CallError(Code.CANCELLED, _CLOSED) from error
            raise
        finally:
            self._release(connection)

    def close(self) -> None:
        """Closes every connection.

        A call in flight ends with CANCELLED, here and in the runtime.
        """
        with self._lock:
            self._closed = True
            for free in self._free:
                free.close()
            self._free.clear()
            for busy in self._busy:
                busy.hang_up()

    def _taken(self) -> "_Connection":
        """A connection for one call: one that still works, or one that is not connected yet. Raises
        CallError and OSError."""
        while True:
            with self._lock:
                if self._closed:
                    raise CallError(Code.CANCELLED, _CLOSED)
                connection = self._free.pop() if self._free else _Connection()
                self._busy.add(connection)
            if not connection.reusable or connection.is_alive():
                return connection
            self._release(connection)

    def _release(self, connection: "_Connection") -> None:
        now = time.monotonic()
        with self._lock:
            self._busy.discard(connection)
            if connection.reusable and not self._closed:
                connection.used = now
                self._free.append(connection)
            else:
                connection.close()
            for old in [each for each in self._free if now - each.used > self._patience_seconds]:
                self._free.remove(old)
                old.close()
            with suppress(OSError):  # out of descriptors: the next call tries again
                self._fill_up()

    def _fill_up(self) -> None:  # under the lock
        while not self._closed and len(self._free) + len(self._busy) < self._prepared:
            self._free.insert(0, _Connection())


class _Connection:
    """One socket with HTTP/2 on it.

    `connect`, then one `call` after another, by one thread at a time.
    """

    def __init__(self) -> None:
        self.used = math.inf  # when its last call ended (monotonic); inf: it is not connected
        self._http2 = Http2Client()
        self._socket = socket.socket(socket.AF_UNIX)
        self._poll = select.poll()
        self._ready = False  # SETTINGS received, and no call in progress

    @property
    def reusable(self) -> bool:
        """Whether it can make a call: the last one was answered, with a result or an error."""
        return self._ready and not self._http2.leaving

    def connect(self, path: str, ends: float, connect_seconds: float) -> None:
        """Connects and waits for SETTINGS. Raises CallError: UNAVAILABLE, DEADLINE_EXCEEDED."""
        until = min(ends, time.monotonic() + connect_seconds)
        try:
            # Python's own timeout makes the socket non-blocking, and connect(2) on such a socket
            # fails at once if the backlog is full. The kernel's send timeout (unix(7)) waits for a
            # runtime that is slow to accept.
            seconds, part = divmod(_left(until), 1.0)
            timeval = struct.pack("@ll", int(seconds), max(int(part * 1_000_000), 1))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
            self._socket.connect(path)
            self._socket.setblocking(False)
            while not self._http2.greeted:
                self._exchange(until)
        except (TimeoutError, BlockingIOError) as error:
            if until == ends:
                raise CallError(Code.DEADLINE_EXCEEDED, _TOO_LATE) from error
            raise CallError(
                Code.UNAVAILABLE,
                "the server did not accept the connection and send SETTINGS within"
                f" {connect_seconds:g} s",
            ) from error
        except (OSError, H2Error) as error:
            raise CallError(Code.UNAVAILABLE, _words(error)) from error
        self._ready = True

    def is_alive(self) -> bool:
        """Reads without waiting.

        False if the server has closed the connection or announced that it will.
        """
        try:
            for _ in range(_IDLE_READS):
                self._receive()
        except BlockingIOError:
            return self.reusable
        except (OSError, H2Error):
            pass
        self._ready = False
        return False

    def call(self, method: str, request: bytes, ends: float) -> Iterator[bytearray]:
        """The messages of one call. Raises CallError.

        If the caller stops early, the connection becomes unusable.
        """
        http2 = self._http2
        self._ready = False
        try:
            http2.ask(method, request, _left(ends))
            while http2.ended is None:
                self._exchange(ends)
                messages = http2.messages
                http2.messages = []
                yield from messages
            if http2.ended.code is Code.CANCELLED:
                # a server in Go resets the call at its deadline, which it may see before we do
                _left(ends)
        except TimeoutError as error:
            raise CallError(Code.DEADLINE_EXCEEDED, _TOO_LATE) from error
        except (OSError, H2Error) as error:
            raise CallError(Code.UNAVAILABLE, _words(error)) from error
        # the answer is complete; the next call will find a broken connection
        with suppress(OSError):
            self._send_without_waiting()
        self._ready = True
        if http2.ended.code is not Code.OK:
            raise http2.ended

    def hang_up(self) -> None:
        """Ends the call that another thread has in flight: its next read fails."""
        with suppress(OSError):  # it is not connected
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket."""
        self._ready = False
        self._socket.close()

    def _exchange(self, ends: float) -> None:
        """Sends what can be sent and reads what has arrived, or waits for either.
        Raises OSError and H2Error.

        It never waits for the server to read without reading itself, so a server that only
        sends runs into the limits.
        """
        self._send_without_waiting()
        self._poll.register(
            self._socket, select.POLLIN | (select.POLLOUT if self._http2.out else 0)
        )
        left = _left(ends)
        for _, happened in self._poll.poll(None if left == NEVER else math.ceil(left * 1000)):
            if happened & ~select.POLLOUT:
                self._receive()

    def _receive(self) -> None:
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError(_HUNG_UP)
        self._http2.receive(data)

    def _send_without_waiting(self) -> None:
        """Sends what can be sent at once; the rest is sent later, or with the next call."""
        out = self._http2.out
        if out:
            with suppress(BlockingIOError):
                del out[: self._socket.send(out)]


def _left(ends: float) -> float:
    """Seconds until then. Raises TimeoutError if that time has passed."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError(_TOO_LATE)
    return left


def _words(error: Exception) -> str:
    # closed before the whole request was read
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return _HUNG_UP
    if isinstance(error, H2Error) and not isinstance(error, ProtocolBroken):
        return f"the server violated HTTP/2: {type(error).__name__}: {error}".rstrip(". ")
    return reason_of(error)


# ---- HTTP/2, without I/O

LARGEST_MESSAGE_BYTES = 96 * 1024 * 1024
"""More than runtimes send in one message (containerd 16 MiB, CRI-O 80 MiB by default), and
small enough to fit, with the values made from it, into the 256 MiB to which the unit and the
DaemonSet limit the process."""

SPARE_BYTES = 1024 * 1024
"""Bytes of one call besides its answer: enough for one PING a second for two hours."""

UNSENT_BYTES = 256 * 1024
"""Bytes that may wait to be sent in addition to the request: replies to a flood that the
server does not read."""

SETTINGS_BYTES = 6000
"""Bytes of all SETTINGS frames of one connection: h2 keeps every setting, even unknown ones."""

_CALLS = 1000  # per connection: h2 keeps a record of each closed stream
_FRAME = struct.Struct(">BHBBL")  # length (8 and 16 bits), kind, flags, stream
_FRAME_BYTES = 9
_LARGEST_FRAME_BYTES = 16384  # the protocol's minimum for both sides, and all that we announce
# added for each frame: handling one costs about as much as reading this many bytes
_BYTES_A_FRAME = 128
_SPARE_SHARE = 16  # additional bytes allowed for each byte of the answer
_FIRST_WINDOW_BYTES = 65535
_WINDOW_BYTES = 16 * 1024 * 1024  # reopened as bytes are read, so only the reader limits the server
_HEADER_LIST_BYTES = 64 * 1024
_SETTINGS = 4
_GOAWAY = 7
_ACK = 0x1
_GOAWAY_PAYLOAD = struct.Struct(">LL")  # last stream, error code
_LAST_STREAM = 2**31 - 1
_PREFIX = struct.Struct(">?L")  # of a message: compressed, length
_LONGEST_TIMEOUT = 99_999_999  # eight digits are allowed

# containerd's services ask for a namespace: CRI's, which holds our leases and the records of images
_OF_CONTAINERD = "/containerd."
_NAMESPACE = (b"containerd-namespace", b"k8s.io")

_CODES = {b"%d" % code: code for code in Code}
_CODE_OF_RESET = {7: Code.UNAVAILABLE, 8: Code.CANCELLED}  # REFUSED_STREAM, CANCEL


class ProtocolBroken(H2Error):
    """The server violated a limit of ours. As after any H2Error, the connection must be closed. The
    message says what the server did."""


class Http2Client:
    """One connection. `out` holds the bytes to send; whoever sends them deletes them from it.

    A call is `ask`, then `receive` until `ended` is not None; `messages` holds the answer in order.
    """

    def __init__(self) -> None:
        self._h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                # our own fields need neither, which would take a tenth of a call;
                # incoming fields are validated
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
        self.ended: CallError | None = None
        """The status with which the call ended, including OK; None while it is in progress."""
        self._in = bytearray()
        self._settings_bytes = 0
        self._stream = 0
        self._request = b""  # the part that has not been sent yet
        self._request_bytes = 0
        # since the call began: bytes of all frames, plus `_BYTES_A_FRAME` for each
        self._received = 0
        self._answer_bytes = 0

    def ask(self, method: str, message: bytes, timeout_seconds: float) -> None:
        """Starts a call, after the last one has ended. `timeout_seconds`: sent to the server as its
        deadline, unless it is NEVER.

        Raises H2Error if the server allows no further stream.
        """
        self.messages: list[bytearray] = []
        self.ended = None
        self._reader = _MessageReader()
        self._fields: dict[bytes, bytes] = {}
        self._received = self._answer_bytes = 0
        self._request = _PREFIX.pack(False, len(message)) + message
        self._request_bytes = len(self._request)
        self._stream = self._h2.get_next_available_stream_id()
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", method.encode()),
            (b":authority", b"localhost"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"reclaimd"),
        ]
        if timeout_seconds != NEVER:
            milliseconds = min(math.ceil(timeout_seconds * 1000), _LONGEST_TIMEOUT)
            fields.append((b"grpc-timeout", b"%dm" % milliseconds))
        if method.startswith(_OF_CONTAINERD):
            fields.append(_NAMESPACE)
        self._h2.send_headers(self._stream, fields)
        self._send_request()
        self.leaving = self.leaving or self._stream >= 2 * _CALLS - 1
        self.out += self._h2.data_to_send()

    def receive(self, data: bytes) -> None:
        """Takes bytes from the server, split anywhere.

        Raises H2Error while a call is in progress. Afterwards the answer stands, and
        `leaving` is set instead.
        """
        try:
            self._receive(data)
        except H2Error:
            if self.ended is None:
                raise
            self.leaving = True

    # ---- receiving

    def _receive(self, data: bytes) -> None:
        self._in += data
        for kind, frame in self._whole_frames():
            if kind == _SETTINGS:
                self._settings_bytes += len(frame) - _FRAME_BYTES
                if self._settings_bytes > SETTINGS_BYTES:
                    raise ProtocolBroken(
                        f"settings of {self._settings_bytes} bytes, {SETTINGS_BYTES} are allowed"
                    )
            self._received += len(frame) + _BYTES_A_FRAME
            if self._received > SPARE_BYTES + _SPARE_SHARE * self._answer_bytes:
                raise ProtocolBroken(
                    f"the server sends without end: {self._received} bytes, {self._answer_bytes} of"
                    " them an answer"
                )
            # h2 never sees it: it would close the connection at once, though the call may end first
            # (https://github.com/python-hyper/h2/issues/1181)
            if kind == _GOAWAY:
                self._take_goaway(frame)
            else:
                for event in self._h2.receive_data(frame):
                    self._take(event)
                self.out += self._h2.data_to_send()
        if len(self.out) > UNSENT_BYTES + self._request_bytes:
            raise ProtocolBroken(f"the server does not read: {len(self.out)} bytes wait to be sent")

    def _whole_frames(self) -> Iterator[tuple[int, bytes]]:
        """Kind and bytes of each complete frame, removed from `_in`."""
        place = 0
        have = self._in
        try:
            while len(have) - place >= _FRAME_BYTES:
                high, low, kind, flags, _ = _FRAME.unpack_from(have, place)
                size = high << 16 | low
                if not self.greeted and (kind != _SETTINGS or flags & _ACK):
                    raise ProtocolBroken(
                        f"the server does not speak HTTP/2: {bytes(have[place : place + 24])!r}"
                    )
                # by its header, not after up to 16 MiB have been buffered
                if size > _LARGEST_FRAME_BYTES:
                    raise ProtocolBroken(
                        f"a frame of {size} bytes, {_LARGEST_FRAME_BYTES} are allowed"
                    )
                end = place + _FRAME_BYTES + size
                if end > len(have):
                    break
                frame = bytes(have[place:end])
                place = end
                yield kind, frame
        finally:
            del have[:place]

    def _take(self, event: Event) -> None:
        """Handles the events that h2 does not answer by itself; ignores interim responses and late
        frames of an earlier call."""
        match event:
            case DataReceived():
                self._take_data(event)
            case ResponseReceived() | TrailersReceived() if self._is_current(event.stream_id):
                self._fields.update((bytes(name), bytes(value)) for name, value in event.headers)
            case StreamEnded() if self._is_current(event.stream_id):
                self._end(_status_of(self._fields))
            case StreamReset() if self._is_current(event.stream_id):
                if not event.remote_reset:  # h2 reset it because of what the server sent
                    raise ProtocolBroken(
                        f"the server violated HTTP/2: error {int(event.error_code)}"
                    )
                code = _CODE_OF_RESET.get(int(event.error_code), Code.INTERNAL)
                self._end(
                    CallError(code, f"the call was reset with HTTP/2 error {int(event.error_code)}")
                )
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
        """Sends what the server's windows allow; the last piece ends our side of the stream."""
        while self._request:
            allowed = min(
                self._h2.local_flow_control_window(self._stream), self._h2.max_outbound_frame_size
            )
            if allowed <= 0:
                return
            piece = self._request[:allowed]
            self._request = self._request[allowed:]
            self._h2.send_data(self._stream, piece, end_stream=not self._request)

    def _end(self, how: CallError) -> None:
        """Ends the call. If the request was not sent completely, the stream stays open, so the
        connection is not reused."""
        if how.code is Code.OK and self._reader.in_the_middle:
            how = CallError(Code.INTERNAL, "the answer ended within a message")
        self.ended = how
        self.leaving = self.leaving or bool(self._request)
        self._request = b""


class _MessageReader:
    """Splits the bytes of one stream into messages. Holds at most one message of
    LARGEST_MESSAGE_BYTES and one frame.

    No large message ever exists twice: the buffer it arrived in is handed out as it is.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._size: int | None = None  # of the message being read; None: its prefix is being read

    @property
    def in_the_middle(self) -> bool:
        """True if a message is incomplete."""
        return bool(self._bytes) or self._size is not None

    def feed(self, data: bytes) -> Iterator[bytearray]:
        """The messages that are now complete.

        Raises CallError: INTERNAL for a compressed message, RESOURCE_EXHAUSTED
        for one that is too large.
        """
        self._bytes += data
        while len(self._bytes) >= (_PREFIX.size if self._size is None else self._size):
            if self._size is None:
                compressed, self._size = _PREFIX.unpack_from(self._bytes)
                if compressed:
                    raise CallError(
                        Code.INTERNAL, "the answer is compressed, which is not supported"
                    )
                if self._size > LARGEST_MESSAGE_BYTES:
                    raise CallError(
                        Code.RESOURCE_EXHAUSTED,
                        f"a message of {self._size} bytes, {LARGEST_MESSAGE_BYTES} are allowed",
                    )
                del self._bytes[: _PREFIX.size]
            else:
                message = self._bytes
                self._bytes = self._bytes[self._size :]
                del message[self._size :]
                self._size = None
                yield message


def _status_of(fields: Mapping[bytes, bytes]) -> CallError:
    """The status of a call, from its trailers.

    If HTTP has no such path, there is no such method.
    """
    number = fields.get(b"grpc-status")
    if number is None:
        status = fields.get(b":status", b"")
        code = Code.UNIMPLEMENTED if status == b"404" else Code.UNKNOWN
        return CallError(
            code, f"an answer without grpc-status, HTTP status {status.decode(errors='replace')}"
        )
    return CallError(
        _CODES.get(number, Code.UNKNOWN),
        unquote(fields.get(b"grpc-message", b""), errors="replace"),
    )
