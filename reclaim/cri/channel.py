"""gRPC calls over one unix socket: each call in flight has a connection of its own, which the next call reuses.

gRPC's own libraries share one connection among all calls. With a connection of its own, a call is written and read by
the thread that makes it: no other thread has to wake up, no call waits behind the long list of another, and a failure
ends one call only.

* A new connection waits for the SETTINGS frame of the server before the request is sent. A removal must not be sent to
  a process that does not answer, because giving it up would cancel it.
* A connection that was used before is read first. If the runtime has closed it or sent GOAWAY, a new one is made.
* `prepare` makes sockets ahead of time, and one that is closed is replaced at once: a process that has no descriptor
  left can still connect.
* No call is repeated here. Whether a call may be repeated depends on what it does: see `retry`.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress

from reclaim.cri.http2_client import Http2Client, ProtocolBroken
from reclaim.cri.status import CallError, Code
from reclaim.services import Metadata

CONNECT_SECONDS = 5.0
"""How long a runtime may take to accept a connection and to send SETTINGS; the deadline of a call may be shorter."""

KEPT_SECONDS = 30.0
"""A connection that was idle for longer is closed by the next call."""

_RECEIVE_BYTES = 65536
_IDLE_READS = 4  # a server that sends more on an idle connection is disconnected
_HUNG_UP = "the connection was closed"
_CLOSED = "the channel was closed"
_TOO_LATE = "the deadline has passed"


class Channel:
    """A runtime's socket. The first call connects. All methods may be called from any thread."""

    def __init__(self, path: str, connect_seconds: float = CONNECT_SECONDS, kept_seconds: float = KEPT_SECONDS):
        self.path = path
        self._connect_seconds = connect_seconds
        self._kept_seconds = kept_seconds
        self._lock = threading.Lock()
        self._free: list[_Connection] = []  # first those that are not connected, last the one that was used last
        self._busy: set[_Connection] = set()
        self._prepared = 0
        self._closed = False
        self.connections_made = 0
        """How many connections were made so far: it grows when the runtime was replaced. It never shrinks."""

    def prepare(self, count: int) -> None:
        """Makes sockets for so many calls at a time. Raises OSError; those that were made stay."""
        with self._lock:
            self._prepared = max(self._prepared, count)
            self._fill_up()

    def unary(self, method: str, request: bytes, seconds: float | None, metadata: Metadata = ()) -> bytearray:
        """The one message that answers a call; `seconds` is its deadline, None: none. Raises CallError."""
        answer: bytearray | None = None
        with closing(self.stream(method, request, seconds, metadata)) as messages:
            for message in messages:
                if answer is not None:
                    raise CallError(Code.INTERNAL, "one message was expected, and a second one came")
                answer = message
        if answer is None:
            raise CallError(Code.INTERNAL, "one message was expected, and none came")
        return answer

    def stream(
        self, method: str, request: bytes, seconds: float | None, metadata: Metadata = ()
    ) -> Generator[bytearray]:
        """The messages that answer a call, as they arrive. Raises CallError, also during the iteration."""
        ends = None if seconds is None else time.monotonic() + seconds
        try:
            connection = self._taken()
        except OSError as error:
            raise CallError(Code.UNAVAILABLE, f"no socket can be made: {_words(error)}") from error
        try:
            if not connection.reusable:
                self._connect(connection, ends)
            yield from connection.call(method, request, ends, metadata)
        except CallError as error:
            if self._closed and not connection.reusable:
                raise CallError(Code.CANCELLED, _CLOSED) from error
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Closes every connection. A call in flight ends with CANCELLED, here and in the runtime."""
        with self._lock:
            self._closed = True
            for free in self._free:
                free.close()
            self._free.clear()
            for busy in self._busy:
                busy.hang_up()

    def _taken(self) -> _Connection:
        """A connection for one call: one that still works, or one that is not connected yet. Raises CallError and
        OSError."""
        while True:
            with self._lock:
                if self._closed:
                    raise CallError(Code.CANCELLED, _CLOSED)
                connection = self._free.pop() if self._free else _Connection()
                self._busy.add(connection)
            if not connection.reusable or connection.is_alive():
                return connection
            self._give_back(connection)

    def _connect(self, connection: _Connection, ends: float | None) -> None:
        connection.connect(self.path, ends, self._connect_seconds)
        with self._lock:
            self.connections_made += 1
            if self._closed:  # meanwhile: nothing may be asked
                connection.hang_up()

    def _give_back(self, connection: _Connection) -> None:
        now = time.monotonic()
        with self._lock:
            self._busy.discard(connection)
            if connection.reusable and not self._closed:
                connection.used = now
                self._free.append(connection)
            else:
                connection.close()
            for old in [each for each in self._free if now - each.used > self._kept_seconds]:
                self._free.remove(old)
                old.close()
            with suppress(OSError):  # no descriptor is left: the next call tries again
                self._fill_up()

    def _fill_up(self) -> None:  # under the lock
        while not self._closed and len(self._free) + len(self._busy) < self._prepared:
            self._free.insert(0, _Connection())


class _Connection:
    """One socket with HTTP/2 on it. `connect`, then one `call` after the other, by one thread at a time."""

    def __init__(self) -> None:
        self.used = math.inf  # when a call on it has ended last (monotonic); inf: it is not connected
        self._http2 = Http2Client()
        self._socket = socket.socket(socket.AF_UNIX)
        self._poll = select.poll()
        self._ready = False  # SETTINGS received, and no call in progress

    @property
    def reusable(self) -> bool:
        """True if it is connected and can make a call: the last one was answered, with a result or an error."""
        return self._ready and not self._http2.leaving

    def connect(self, path: str, ends: float | None, connect_seconds: float) -> None:
        """Connects and waits for SETTINGS. Raises CallError: UNAVAILABLE, DEADLINE_EXCEEDED."""
        patience = time.monotonic() + connect_seconds
        until = patience if ends is None else min(ends, patience)
        try:
            # Python's own timeout makes the socket non-blocking, and connect(2) on such a socket fails at once when the
            # backlog is full. The kernel's send timeout (unix(7)) waits for a runtime that is slow to accept.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_left(until)))
            self._socket.connect(path)
            self._socket.setblocking(False)
            while not self._http2.greeted:
                self._exchange(until)
        except (TimeoutError, BlockingIOError) as error:
            if until == ends:
                raise CallError(Code.DEADLINE_EXCEEDED, _TOO_LATE) from error
            details = f"the server did not accept the connection and send SETTINGS within {connect_seconds:g} s"
            raise CallError(Code.UNAVAILABLE, details) from error
        except (OSError, ProtocolBroken) as error:
            raise CallError(Code.UNAVAILABLE, _words(error)) from error
        self._ready = True

    def is_alive(self) -> bool:
        """Reads without waiting. False if the server has closed the connection or announced that it will."""
        try:
            for _ in range(_IDLE_READS):
                self._receive()
        except BlockingIOError:
            return self.reusable
        except (OSError, ProtocolBroken):
            pass
        self._ready = False
        return False

    def call(self, method: str, request: bytes, ends: float | None, metadata: Metadata) -> Iterator[bytearray]:
        """The messages of one call. Raises CallError. A caller that stops early makes the connection unusable."""
        http2, self._ready = self._http2, False
        try:
            http2.ask(method, request, None if ends is None else _left(ends), metadata)
            while http2.ended is None:
                self._exchange(ends)
                messages, http2.messages = http2.messages, []
                yield from messages
        except TimeoutError as error:
            raise CallError(Code.DEADLINE_EXCEEDED, _TOO_LATE) from error
        except (OSError, ProtocolBroken) as error:
            raise CallError(Code.UNAVAILABLE, _words(error)) from error
        with suppress(OSError):  # the answer is complete; the next call finds a broken connection
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

    def _exchange(self, ends: float | None) -> None:
        """Sends what can be sent and reads what has arrived, or waits for either. Raises OSError and ProtocolBroken.

        It never waits for the server to read without reading itself, so a server that only sends runs into its limits.
        """
        self._send_without_waiting()
        self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._http2.out else 0))
        left = None if ends is None else math.ceil(_left(ends) * 1000)
        for _, happened in self._poll.poll(left):
            if happened & ~select.POLLOUT:
                self._receive()

    def _receive(self) -> None:
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError(_HUNG_UP)
        self._http2.receive(data)

    def _send_without_waiting(self) -> None:
        """Sends as much as possible without waiting; the rest is sent later, or with the next call."""
        out = self._http2.out
        if out:
            with suppress(BlockingIOError):
                del out[: self._socket.send(out)]


def _left(ends: float) -> float:
    """Seconds until then. Raises TimeoutError if it has passed."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError(_TOO_LATE)
    return left


def _timeval(seconds: float) -> bytes:
    """The kernel's `struct timeval`."""
    whole, part = divmod(int(seconds * 1_000_000), 1_000_000)
    return struct.pack("@ll", whole, max(part, 1))


def _words(error: Exception) -> str:
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):  # closed before all of the request was read
        return _HUNG_UP
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
