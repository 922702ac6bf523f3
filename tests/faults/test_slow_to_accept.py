"""A runtime that is slow to accept a connection, as while its own disk stalls, is waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaim.cri.client import CriClient
from tests.nodes.small_node import SmallNode

STALL_SECONDS = 0.6  # at least: `opened` is set only after the client has waited for so long


@contextmanager
def slow_front(path: Path, behind: str, opened: threading.Event) -> Iterator[None]:
    """A socket at `path` that accepts nothing before `opened` is set, then
    passes bytes on to `behind`.
    """
    ending = threading.Event()

    def passed_on(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # one of them has hung up
            pass

    def connected(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(behind)
            back = threading.Thread(target=passed_on, args=(upstream, client), daemon=True)
            back.start()
            passed_on(client, upstream)
            back.join()

    def serve(server: socket.socket) -> None:
        opened.wait()
        connections = []
        while not ending.is_set():
            try:
                client, _ = server.accept()
            except OSError:
                break
            connections.append(threading.Thread(target=connected, args=(client,), daemon=True))
            connections[-1].start()
        for each in connections:
            each.join()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(64)
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            opened.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_runtime_that_took_longer_than_100_ms_to_accept_was_unreachable(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """containerd stalled for a moment on a full btrfs, and `reclaimd reclaim` exited with 3: grpc's
    shortest back-off also limits how long a new connection may take. Now a connection has 5 s."""
    front, opened = tmp_path / "front.sock", threading.Event()
    with slow_front(front, small_node.server.socket_path, opened), ThreadPoolExecutor(1) as pool:
        client = CriClient(f"unix://{front}")
        asked = pool.submit(client.image_fs_info)
        with pytest.raises(TimeoutError):
            asked.result(STALL_SECONDS)
        opened.set()
        assert asked.result().image_filesystems
        client.close()
