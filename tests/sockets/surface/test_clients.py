"""The table of clients behind a real listening socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from eviction.surface.clients import MOST_CLIENTS, Client, Clients

ANSWER = b"ok"
TOO_LATE = b"too late"
LONGEST_SECONDS = 20.0
REQUEST_BYTES = 64


class Answers:
    """Answers every request, after as many defects as `defects` says."""

    def __init__(self, defects: int = 0) -> None:
        self.defects = defects

    def __call__(self, clients: Sequence[Client]) -> None:
        """Called on the thread of the clients."""
        if self.defects:
            self.defects -= 1
            raise ValueError("a defect")
        for client in clients:
            client.reply(ANSWER)


@contextmanager
def served(answers: Answers) -> Iterator[tuple[str, int]]:
    """The address of a socket whose clients are answered when they have sent a line."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=MOST_CLIENTS)
    address = listening.getsockname()
    clients = Clients("test", listening, (b"\n",), REQUEST_BYTES, answers, TOO_LATE)
    try:
        yield address
    finally:
        clients.stop()


def connected(address: tuple[str, int]) -> socket.socket:
    """A client that has sent nothing."""
    return socket.create_connection(address, timeout=LONGEST_SECONDS)


def asked(address: tuple[str, int]) -> bytes:
    """What a client with a whole request gets."""
    with connected(address) as client:
        client.sendall(b"\n")
        return client.recv(REQUEST_BYTES)


def said_to(client: socket.socket) -> bytes | None:
    """What the server has said at once; None for nothing yet."""
    client.setblocking(False)
    try:
        return client.recv(REQUEST_BYTES)
    except BlockingIOError:
        return None


def test_a_new_client_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    """The table is full of clients that send nothing: one of them goes, with a
    sentence, and nobody else.
    """
    with served(Answers()) as address:
        silent = [connected(address) for _ in range(MOST_CLIENTS)]
        try:
            assert asked(address) == ANSWER
            assert [said_to(client) for client in silent] == [
                TOO_LATE,
                *[None] * (MOST_CLIENTS - 1),
            ]
        finally:
            for client in silent:
                client.close()


def test_a_defect_in_an_answer_does_not_end_the_serving() -> None:
    """That client is disconnected; the next one is answered."""
    with served(Answers(defects=1)) as address:
        assert asked(address) == b""
        assert asked(address) == ANSWER
