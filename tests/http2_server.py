"""A gRPC server over h2, and a listener that sends over a socket whatever a test wants."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import h2.settings

HEADER = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0"), ("grpc-message", "")]
INITIAL_WINDOW = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
PREFIX_BYTES = 5
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def prefixed(message: bytes) -> bytes:
    """A message with its gRPC prefix."""
    return struct.pack(">BL", 0, len(message)) + message


@dataclass
class Server:
    """The server's side of one connection (pure). It opens its windows only as it
    reads, a piece at a time.

    `answers`: the messages that answer each request, in order; None: it is not answered. Where
    there are no more, each request is answered with itself.
    """

    window: int = 65535
    asked: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[list[bytes] | None] = field(default_factory=list)
    padding: int | None = None

    def __post_init__(self) -> None:
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.h2.initiate_connection()
        self.h2.update_settings({INITIAL_WINDOW: self.window})
        self._begun: dict[int, tuple[dict[str, str], bytearray]] = {}

    def take(self, data: bytes) -> None:
        """Takes what the client sent, and answers each request that has ended."""
        for event in self.h2.receive_data(data):
            match event:
                case h2.events.RequestReceived(stream_id=stream, headers=headers):
                    told = {str(name): str(value) for name, value in headers}
                    self._begun[stream] = told, bytearray()
                case h2.events.DataReceived(
                    stream_id=stream, data=piece, flow_controlled_length=length
                ):
                    self._begun[stream][1].extend(piece)
                    self.h2.acknowledge_received_data(length, stream)
                case h2.events.StreamEnded(stream_id=stream):
                    told, body = self._begun.pop(stream)
                    self.asked.append((told, bytes(body)))
                    self._answer(stream)

    def _answer(self, stream: int) -> None:
        messages = self.answers.pop(0) if self.answers else [self.asked[-1][1][PREFIX_BYTES:]]
        if messages is None:
            return
        self.h2.send_headers(stream, HEADER)
        for body in map(prefixed, messages):
            room = 16384 - (0 if self.padding is None else self.padding + 1)
            for place in range(0, len(body), room):
                self.h2.send_data(stream, body[place : place + room], pad_length=self.padding)
        self.h2.send_headers(stream, OK, end_stream=True)


Talk = Callable[[socket.socket], None]


def answering(client: socket.socket) -> None:
    """A server that answers each request with itself, until the client hangs up."""
    speak(client, Server())


def speak(client: socket.socket, server: Server) -> None:
    """One connection, until the client hangs up."""
    client.sendall(server.h2.data_to_send())
    while data := client.recv(65536):
        server.take(data)
        client.sendall(server.h2.data_to_send())


@dataclass
class Listener:
    """A unix socket that talks to each who connects in a thread: as `talk` has
    it, which a test may change.
    """

    path: Path
    talk: Talk = answering
    accepted: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._clients: list[socket.socket] = []

    def serve(self, server: socket.socket) -> None:
        """Accepts until the socket is shut down."""
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with self._changed:
                    self.accepted += 1
                    self._clients.append(client)
                threading.Thread(target=self._talk_to, args=(client,), daemon=True).start()

    def wait_for_talking(self, count: int, seconds: float = 10.0) -> bool:
        """Whether so many connections are open within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._clients) == count, seconds)

    def hang_up(self) -> None:
        """Ends all connections."""
        with self._changed:
            for client in self._clients:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def _talk_to(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self.talk(client)
        with self._changed:
            self._clients.remove(client)
            self._changed.notify_all()


@contextmanager
def listening(path: Path, talk: Talk = answering) -> Iterator[Listener]:
    """A listener at a path, which is gone afterwards, and with it its connections."""
    listener = Listener(path, talk)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(64)
        thread = threading.Thread(target=listener.serve, args=(server,), daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            listener.hang_up()
            path.unlink()
