"""Many hostile clients of one server, in a process of their own; each that is
turned away comes back at once.
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

KINDS = ("silent", "dripping", "half", "deaf", "gone")
"""Send nothing; a byte now and then; half a request; ask and never read; ask and
hang up before the answer.
"""

DRIP_SECONDS = 0.05
TURN_SECONDS = 0.01


@contextmanager
def hostile_clients(
    address: str, kind: str, count: int, request: bytes
) -> Iterator[subprocess.Popen[str]]:
    """`count` clients of an address (`host:port`, or the path of a unix socket),
    connected when the block begins.
    """
    command = [sys.executable, __file__, address, kind, str(count), request.hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            yield process
        finally:
            process.kill()


def connection_to(address: str) -> socket.socket | None:
    """A new connection, as far as the server takes one."""
    unix = address.startswith("/")
    client = socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_STREAM)
    client.setblocking(False)
    host, _, port = address.rpartition(":")
    try:
        client.connect(address if unix else (host, int(port)))
    except BlockingIOError:
        if unix:
            client.close()
            return None
    except OSError:
        client.close()
        return None
    return client


def first_words(kind: str, request: bytes) -> bytes:
    """What a client sends at once."""
    return {"half": request[: len(request) // 2], "deaf": request, "gone": request}.get(kind, b"")


def main(address: str, kind: str, count: int, request: bytes) -> None:
    """Keeps `count` connections until the process is killed."""
    selector = selectors.DefaultSelector()
    clients: dict[socket.socket, bool] = {}  # whether it has sent its first words
    dripped, said = time.monotonic(), False
    while True:
        while len(clients) < count and (client := connection_to(address)) is not None:
            clients[client] = False
            selector.register(
                client, selectors.EVENT_READ if kind != "deaf" else selectors.EVENT_WRITE, client
            )
        if len(clients) == count and not said:
            said = True
            print("connected", flush=True)
        ended: set[socket.socket] = set()
        for key, _ in selector.select(TURN_SECONDS):
            client = key.data
            try:
                if kind != "deaf" and client.recv(65536) == b"":
                    ended.add(client)
            except OSError:
                ended.add(client)
        drip = kind == "dripping" and time.monotonic() - dripped >= DRIP_SECONDS
        dripped = time.monotonic() if drip else dripped
        for client, begun in clients.items():
            try:
                if not begun:
                    clients[client] = client.send(first_words(kind, request)) >= 0
                    ended |= {client} if kind == "gone" else set()
                elif drip:
                    client.send(b" ")
            except BlockingIOError:
                continue
            except OSError:
                ended.add(client)
        for client in ended & clients.keys():
            selector.unregister(client)
            client.close()
            del clients[client]
        time.sleep(TURN_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4]))
