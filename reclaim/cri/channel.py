"""Calls over gRPC to one unix socket: a connection for each call in flight, kept for the next one.

Why not one connection for all, as gRPC's own libraries do: with a connection to itself a call is written and read by
the thread that makes it. No other thread has to wake up in between, no call waits behind another's long list, and what
goes wrong with one is nobody else's.

* A connection is made when it is needed, and its server's greeting is waited for before anything is asked: a removal
  must not be on its way to somebody who does not answer, as giving up would cancel it.
* One that was used before is looked at first: what a runtime says when it goes is read then, and another one is made.
* Nothing is asked twice: whether to repeat a call is for those to decide who know what it does.
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

CONNECT_SECONDS = 5.0
"""How long a runtime may take to accept a connection and to greet; a call's own deadline may be shorter."""

KEPT_SECONDS = 30.0
"""A connection that was not used for so long is closed with the next call."""

_RECEIVE_BYTES = 65536
_IDLE_READS = 4  # more than that is not said to a client that asks nothing
_HUNG_UP = "the connection was closed"
_CLOSED = "the channel was closed"


class Channel:
    """A runtime's socket. Making one connects to nothing. All methods may be called from any thread."""

    def __init__(self, path: str, connect_seconds: float = CONNECT_SECONDS, kept_seconds: float = KEPT_SECONDS):
        self._path = path
        self._connect_seconds = connect_seconds
        self._kept_seconds = kept_seconds
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []  # the one used last at the end
        self._busy: set[_Connection] = set()
        self._closed = False

    def unary(self, method: str, request: bytes, seconds: float | None) -> bytes:
        """The one message that answers a call; `seconds` is its deadline. Raises CallError."""
        answer: bytes | None = None
        with closing(self.stream(method, request, seconds)) as messages:
            for message in messages:
                if answer is not None:
                    raise CallError(Code.INTERNAL, "one message was to come, and another one came")
                answer = message
        if answer is None:
            raise CallError(Code.INTERNAL, "one message was to come, and none came")
        return answer

    def stream(self, method: str, request: bytes, seconds: float | None) -> Generator[bytes]:
        """The messages that answer a call, as they come. Raises CallError, also while they are read."""
        ends = None if seconds is None else time.monotonic() + seconds
        connection = self._taken(ends)
        try:
            yield from connection.call(method, request, ends)
        except CallError as error:
            if self._closed and not connection.reusable:
                raise CallError(Code.CANCELLED, _CLOSED) from error
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Ends every connection; a call in flight ends with CANCELLED, here and in the runtime."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for busy in self._busy:
                busy.hang_up()
        for each in idle:
            each.close()

    def _taken(self, ends: float | None) -> _Connection:
        """A connection for one call: one that is there and alive, or a new one. Raises CallError."""
        while (connection := self._next_idle()) is not None:
            if connection.is_alive():
                return connection
            self._give_back(connection)
        with self._lock:
            if not self._is_open():
                raise CallError(Code.CANCELLED, _CLOSED)
            connection = _Connection()
            self._busy.add(connection)
        try:
            connection.connect(self._path, ends, self._connect_seconds)
        except BaseException:
            self._give_back(connection)
            raise
        if not self._is_open():  # closed meanwhile: nothing was asked yet
            self._give_back(connection)
            raise CallError(Code.CANCELLED, _CLOSED)
        return connection

    def _is_open(self) -> bool:
        return not self._closed

    def _next_idle(self) -> _Connection | None:
        with self._lock:
            if not self._idle:
                return None
            connection = self._idle.pop()
            self._busy.add(connection)
            return connection

    def _give_back(self, connection: _Connection) -> None:
        now = time.monotonic()
        with self._lock:
            self._busy.discard(connection)
            if connection.reusable and not self._closed:
                connection.used = now
                self._idle.append(connection)
            else:
                connection.close()
            old = [each for each in self._idle if now - each.used > self._kept_seconds]
            self._idle = [each for each in self._idle if each not in old]
        for each in old:
            each.close()


class _Connection:
    """One socket and what is said over it. `connect`, then one `call` after the other, by one thread at a time."""

    def __init__(self) -> None:
        self.used = 0.0
        self._http2 = Http2Client()
        self._socket = socket.socket(socket.AF_UNIX)
        self._poll = select.poll()
        self._ready = False  # greeted, and no call in the middle

    @property
    def reusable(self) -> bool:
        """Whether another call can be made: the last one ended well or was answered with an error."""
        return self._ready and not self._http2.leaving

    def connect(self, path: str, ends: float | None, connect_seconds: float) -> None:
        """Connects and waits for the greeting. Raises CallError: UNAVAILABLE, DEADLINE_EXCEEDED."""
        patience = time.monotonic() + connect_seconds
        until = patience if ends is None else min(ends, patience)
        try:
            # A timeout of Python's would not wait for a runtime that is slow to accept: connect(2) on a socket that
            # does not block fails at once where the backlog is full. This one is the kernel's, unix(7).
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_left(until)))
            self._socket.connect(path)
            self._socket.setblocking(False)
            while not self._http2.greeted:
                self._exchange(until)
        except (TimeoutError, BlockingIOError) as error:
            if until == ends:
                raise CallError(Code.DEADLINE_EXCEEDED, "the deadline is over") from error
            details = f"what listens there did not greet within {connect_seconds:g} s"
            raise CallError(Code.UNAVAILABLE, details) from error
        except (OSError, ProtocolBroken) as error:
            raise CallError(Code.UNAVAILABLE, _words(error)) from error
        self._ready = True

    def is_alive(self) -> bool:
        """Reads what the server said since, without waiting: False where it has hung up, wants to, or says too much."""
        try:
            for _ in range(_IDLE_READS):
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    break
                self._http2.receive(data)
        except BlockingIOError:
            return self.reusable
        except (OSError, ProtocolBroken):
            pass
        self._ready = False
        return False

    def call(self, method: str, request: bytes, ends: float | None) -> Iterator[bytes]:
        """The messages of one call. Raises CallError; whoever stops reading has used the connection up."""
        http2, self._ready = self._http2, False
        try:
            http2.ask(method, request, None if ends is None else _left(ends))
            while http2.ended is None:
                self._exchange(ends)
                messages, http2.messages = http2.messages, []
                yield from messages
        except TimeoutError as error:
            raise CallError(Code.DEADLINE_EXCEEDED, "the deadline is over") from error
        except (OSError, ProtocolBroken) as error:
            raise CallError(Code.UNAVAILABLE, _words(error)) from error
        with suppress(OSError):  # the answer has come; whoever makes the next call sees what became of the connection
            self._send_what_goes_at_once()
        self._ready = True
        if http2.ended.code is not Code.OK:
            raise http2.ended

    def hang_up(self) -> None:
        """Ends the call that another thread has in flight: its next read finds the end."""
        with suppress(OSError):  # it is not connected, or no longer
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket."""
        self._ready = False
        self._socket.close()

    def _exchange(self, ends: float | None) -> None:
        """Sends what can be sent, and takes what has come, or waits for either. Raises OSError and ProtocolBroken.

        It never waits for the server to read alone: one that only speaks is heard, and told off when it says too much.
        """
        self._send_what_goes_at_once()
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

    def _send_what_goes_at_once(self) -> None:
        """Without waiting; the rest goes later, or with the next call."""
        out = self._http2.out
        if out:
            with suppress(BlockingIOError):
                del out[: self._socket.send(out)]


def _left(ends: float) -> float:
    """Seconds until then. Raises TimeoutError when it is over."""
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline is over")
    return left


def _timeval(seconds: float) -> bytes:
    """`struct timeval` of the kernel."""
    whole, part = divmod(int(seconds * 1_000_000), 1_000_000)
    return struct.pack("@ll", whole, max(part, 1))


def _words(error: Exception) -> str:
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):  # closed, with something of ours unread
        return _HUNG_UP
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
