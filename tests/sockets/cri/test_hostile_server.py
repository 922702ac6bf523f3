"""A server that breaks the rules costs one call, in bounded time and memory, and nothing else."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from pathlib import Path

import pytest
from hyperframe.frame import PingFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.types import NEVER
from tests.hostile_http2 import ANY_BYTES, HOSTILE, assert_clean, hostile_talk
from tests.http2_server import Talk, answering
from tests.sockets.cri.test_channel import METHOD, SOON, asked, connected, failure

MIB = 1024 * 1024


def one_after_the_other(*talks: Talk) -> Talk:
    """Each connection is talked to by the next one, and the others by a server that answers."""
    left = list(talks)

    def talk(client: socket.socket) -> None:
        (left.pop(0) if left else answering)(client)

    return talk


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_server_sends_is_an_error_of_that_call_alone(name: str, tmp_path: Path) -> None:
    """A removal, which has no deadline, ends in bounded memory; the call beside it goes
    on, and so does the next.
    """
    hostile = HOSTILE[name]
    breaks = hostile_talk(hostile.send(), hold=hostile.seconds is not None)
    with connected(tmp_path, one_after_the_other(answering, breaks)) as (listener, channel):
        beside = channel.stream(METHOD, b"beside", SOON)
        assert next(beside) == b"beside"
        tracemalloc.start()
        code, details = failure(
            lambda: channel.unary(METHOD, b"the question", hostile.seconds or NEVER)
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert not list(beside)
        assert channel.unary(METHOD, b"after", SOON) == b"after"
        assert listener.accepted == 2
        assert listener.wait_for_talking(1)
    assert (code, hostile.words in details) == (hostile.code, True), details
    assert peak < hostile.most_mib * MIB


def test_a_flood_on_an_idle_connection_costs_the_connection_and_no_call(tmp_path: Path) -> None:
    """Frames that came in between are read before the next call; after too many
    another connection is made.
    """
    flooded = threading.Event()

    def flood(client: socket.socket) -> None:
        client.sendall(asked(client).h2.data_to_send())
        client.setblocking(False)
        ping = PingFrame(0, b"12345678").serialize() * 4000
        while not flooded.is_set():
            try:
                client.send(ping)
            except BlockingIOError:
                flooded.set()
        client.setblocking(True)
        client.sendall(ping * 1000)

    with connected(tmp_path, one_after_the_other(flood)) as (listener, channel):
        assert channel.unary(METHOD, b"first", SOON) == b"first"
        assert flooded.wait(SOON)
        assert channel.unary(METHOD, b"second", SOON) == b"second"
        assert listener.accepted == 2


@settings(max_examples=60, deadline=None)
@given(ANY_BYTES, st.booleans())
def test_any_bytes_are_an_answer_or_an_error_of_the_call(said: bytes, greeted: bool) -> None:
    """With a greeting before them or without: nothing but CallError leaves the
    channel, and nothing hangs.
    """
    assert_clean(said, greeted)
