"""The clients of a listening socket, all served on one thread that is started at startup:
nobody waits for a slow one.

* The number of clients is limited. At the limit, a new client replaces the one that has gone
  longest without a complete request, or else the one that has gone longest without reading its
  answer; but each stays for at least 0.1 s. A client that is replaced before its request was
  complete is told so, if that can be sent at once.
* A request has a largest size and must arrive within 2 s; an answer must be read within 2 s. At
  most 16 clients may have an answer that they have not finished reading.
* Nothing blocks: sockets are only read and written when they are ready. Requests that arrive
  together are handed over together, so that one page can answer them all.
* A process without a free descriptor still serves one client at a time, with a
  descriptor kept for that.

Covers: accepting, reading, writing, limits. Does not cover: what a request means.
"""

import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

MOST_CLIENTS = 128
MOST_UNREAD_ANSWERS = 16
# connections that wait to be accepted; the kernel may allow fewer (net.core.somaxconn)
BACKLOG = 1024
TIMEOUT_SECONDS = 2.0
GRACE_SECONDS = 0.1
PAUSE_SECONDS = 0.02  # when the selector would return at once, but nothing can be done yet
STOP_SECONDS = 1.0
READ_BYTES = 16384
WRITE_BYTES = 65536


@dataclass(eq=False)
class Client:
    """One connection, with the part of its request that has arrived and the part of
    its answer that is unsent.
    """

    connection: socket.socket
    since: float  # of the present state: connected, or answered
    request: bytearray = field(default_factory=bytearray)
    unsent: bytes | memoryview = b""

    def reply(self, answer: bytes) -> None:
        """Sets the answer; the connection is closed once it is sent.

        Without an answer it is closed at once.
        """
        self.unsent = memoryview(answer)

    def take(self) -> socket.socket:
        """Hands the connection over: the caller must close it."""
        return socket.socket(fileno=self.connection.detach())


@dataclass(eq=False)
class Clients:
    """Serves the clients of `server`, a listening socket, until `stop`, on a thread of this name.

    `ends`: what ends a request; the end of the stream and `largest_request_bytes` end one too.
    `answer`: called on the thread with all requests that have arrived; calls `reply` or `take` of
    each, and must not wait for anything. `too_late`: sent to a client that is dropped before its
    request was complete. Raises OSError, also if no thread can be started; then the listening
    socket is closed.
    """

    name: str
    server: socket.socket
    ends: Sequence[bytes]
    largest_request_bytes: int
    answer: Callable[[Sequence[Client]], None]
    too_late: bytes

    def __post_init__(self) -> None:
        server = self.server
        self._stopping = False
        self._clients: dict[Client, None] = {}  # by `since`: still sending a request, or answered
        self._whole: list[Client] = []  # their requests are complete, and are to be answered
        self._thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
        with ExitStack() as undone:
            undone.callback(server.close)
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undone.callback(os.close, self._wake)
            self._spare: int | None = os.dup(self._wake)  # a descriptor for when there is no other
            undone.callback(os.close, self._spare)
            self._selector = undone.enter_context(selectors.DefaultSelector())
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)
            self._selector.register(self._wake, selectors.EVENT_READ)
            try:
                self._thread.start()
            except RuntimeError:
                raise OSError(errno.EAGAIN, "no thread can be started for it") from None
            undone.pop_all()

    def stop(self) -> None:
        """Ends the thread, which closes all connections; waits for it for at most 1 s.

        The listening socket is closed, not shut down: one that systemd opened
        serves the next process too.
        """
        if self._stopping:
            return
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(STOP_SECONDS)
        if not self._thread.is_alive():  # the thread itself would close it before it is written to
            os.close(self._wake)
        self.server.close()

    def _serve(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception:  # noqa: BLE001 # a defect, or a selector without memory, must not end the thread
                time.sleep(PAUSE_SECONDS)
        self._close()

    def _turn(self) -> None:
        """Reads and writes what is ready; then accepts new clients, answers, and drops
        those whose time is over.
        """
        if self._spare is None:
            with suppress(OSError):
                self._spare = os.dup(self._wake)
        due = None
        if self._clients:
            due = max(next(iter(self._clients)).since + TIMEOUT_SECONDS - time.monotonic(), 0.0)
        ready = [key for key, _ in self._selector.select(due)]
        for client in (key.data for key in ready if key.data is not None):
            if client.unsent:
                self._write(client)
            else:
                self._read(client)
        if self._stopping:
            return
        if any(key.fileobj is self.server for key in ready):
            self._accept()
        if self._whole:
            self._answer_all()
        for client in list(self._clients):
            if time.monotonic() - client.since < TIMEOUT_SECONDS:
                break
            self._turn_away(client)

    # ---- accepting

    def _accept(self) -> None:
        """Accepts waiting clients, at most a quarter of the limit, and reads
        what they have sent already.
        """
        for attempt in range(MOST_CLIENTS // 4):
            now = time.monotonic()
            if len(self._clients) >= MOST_CLIENTS:
                if now - self._oldest().since < GRACE_SECONDS:
                    time.sleep(PAUSE_SECONDS)  # the others wait in the kernel's queue
                    return
                self._turn_away(self._oldest())
            try:
                connection = self.server.accept()[0]
            except (BlockingIOError, ConnectionAbortedError):
                return
            # above all EMFILE, which accept(2) raises even if nobody waits;
            # but the first client does
            except OSError:
                if attempt > 0:
                    return
                self._free_descriptor()
                continue
            connection.setblocking(False)
            client = Client(connection, now)
            self._clients[client] = None
            self._selector.register(connection, selectors.EVENT_READ, client)
            self._read(client)

    def _free_descriptor(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        elif self._clients:
            self._turn_away(self._oldest())
        else:
            time.sleep(PAUSE_SECONDS)

    # ---- reading and writing

    def _read(self, client: Client) -> None:
        try:
            part = client.connection.recv(
                min(READ_BYTES, self.largest_request_bytes - len(client.request))
            )
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        client.request += part
        if (
            not part
            or len(client.request) >= self.largest_request_bytes
            or any(end in client.request for end in self.ends)
        ):
            del self._clients[client]
            self._whole.append(client)
            self._selector.unregister(client.connection)

    def _answer_all(self) -> None:
        whole = self._whole
        self._whole = []
        try:
            self.answer(whole)
        finally:
            for client in whole:
                if not client.unsent:
                    client.connection.close()  # nothing happens to one that was taken
                    continue
                unread = [each for each in self._clients if each.unsent]
                if len(unread) >= MOST_UNREAD_ANSWERS:
                    self._drop(unread[0])
                client.since = time.monotonic()
                self._clients[client] = None
                self._selector.register(client.connection, selectors.EVENT_WRITE, client)
                self._write(client)

    def _write(self, client: Client) -> None:
        """Sends what fits, at most 64 KiB, so that a large answer delays no other.

        Closes the connection at the end.
        """
        try:
            client.unsent = client.unsent[client.connection.send(client.unsent[:WRITE_BYTES]) :]
            if client.unsent:
                return
            client.connection.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:  # the client is gone
            pass
        self._drop(client)

    # ---- limits

    def _oldest(self) -> Client:
        """The client that a new one replaces; there must be one."""
        waiting = (each for each in self._clients if not each.unsent)
        return next(waiting, None) or next(iter(self._clients))

    def _turn_away(self, client: Client) -> None:
        """Drops a client whose time is over, and tells it if it has no answer
        yet, without waiting.
        """
        if not client.unsent and self.too_late:
            with suppress(OSError):
                client.connection.send(self.too_late)
        self._drop(client)

    def _drop(self, client: Client) -> None:
        self._clients.pop(client, None)
        with suppress(KeyError, ValueError, OSError):
            self._selector.unregister(client.connection)
        client.connection.close()

    def _close(self) -> None:
        for client in [*self._clients, *self._whole]:
            self._drop(client)
        self._selector.close()
        self.server.close()
        if self._spare is not None:
            os.close(self._spare)
