"""A server that breaks the rules costs one call, in bounded time and memory, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hyperframe.frame import PingFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.cri.channel import Channel
from reclaim.cri.status import CallError
from reclaim.types import NEVER
from tests.hostile_http2 import (
    ANY_BYTES,
    HOSTILE,
    assert_clean,
    hostile_talk,
)
from tests.http2_server import Server, Talk, answering, listening

METHOD = "/runtime.v1.RuntimeService/Version"
SOON = 30.0  # seconds in which something ends that must not hang; alone it takes one at most
MIB = 1024 * 1024


def one_after_the_other(*talks: Talk) -> Talk:
    """Each connection is talked to by the next one, and the others by a server that answers."""
    left = list(talks)

    def talk(client: socket.socket) -> None:
        (left.pop(0) if left else answering)(client)

    return talk


def failure(call: Callable[[], object]) -> CallError:
    """What a call fails with; any other exception ends the test."""
    began = time.monotonic()
    with pytest.raises(CallError) as error:
        call()
    assert time.monotonic() - began < SOON
    return error.value


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_server_sends_is_an_error_of_that_call_alone(name: str, tmp_path: Path) -> None:
    """A removal, which has no deadline, ends in bounded memory; the call beside it goes
    on, and so does the next.
    """
    hostile = HOSTILE[name]
    talk = one_after_the_other(
        answering, hostile_talk(hostile.send(), hold=hostile.seconds is not None)
    )
    with listening(tmp_path / "s", talk) as listener:
        channel = Channel(str(listener.path), SOON)
        beside = channel.stream(METHOD, b"beside", SOON)
        first = next(beside)
        tracemalloc.start()
        error = failure(lambda: channel.unary(METHOD, b"the question", hostile.seconds or NEVER))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert first == b"beside"
        assert not list(beside)
        assert channel.unary(METHOD, b"after", SOON) == b"after"
        assert listener.accepted == 2
        assert listener.wait_for_talking(1)
        channel.close()
    print(f"{name}: {error.code.name}: {error.details}; {peak / MIB:.1f} MiB")
    assert error.code is hostile.code
    assert hostile.words in error.details
    assert peak < hostile.most_mib * MIB


def test_a_flood_on_an_idle_connection_costs_the_connection_and_no_call(tmp_path: Path) -> None:
    """Frames that came in between are read before the next call; after too many
    another connection is made.
    """
    flooded = threading.Event()

    def flood(client: socket.socket) -> None:
        server = Server()
        client.sendall(server.h2.data_to_send())
        while not server.asked:
            server.take(client.recv(65536))
        client.sendall(server.h2.data_to_send())
        client.setblocking(False)
        ping = PingFrame(0, b"12345678").serialize() * 4000
        while not flooded.is_set():
            try:
                client.send(ping)
            except BlockingIOError:
                flooded.set()
        client.setblocking(True)
        client.sendall(ping * 1000)

    with listening(tmp_path / "s", one_after_the_other(flood)) as listener:
        channel = Channel(str(listener.path), SOON)
        assert channel.unary(METHOD, b"first", SOON) == b"first"
        assert flooded.wait(SOON)
        assert channel.unary(METHOD, b"second", SOON) == b"second"
        assert listener.accepted == 2
        channel.close()


@settings(max_examples=60, deadline=None)
@given(ANY_BYTES, st.booleans())
def test_any_bytes_are_an_answer_or_an_error_of_the_call(said: bytes, greeted: bool) -> None:
    """With a greeting before them or without: nothing but CallError leaves the
    channel, and nothing hangs.
    """
    assert_clean(said, greeted)
