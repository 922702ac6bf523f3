"""Calls over a real socket: connections are kept and shared out, a deadline holds, and
what breaks is one call's.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hyperframe.frame import DataFrame, GoAwayFrame, SettingsFrame

from reclaim.cri.channel import Channel
from reclaim.cri.status import CallError, Code
from reclaim.types import NEVER
from tests.http2_server import HEADER, PREFACE, Server, listening, prefixed, speak

METHOD = "/runtime.v1.RuntimeService/Version"
SOON = 30.0  # seconds in which something ends that must not hang; alone it takes milliseconds


def failed(call: Callable[[], object]) -> CallError:
    """The error that a call ends with, at once."""
    began = time.monotonic()
    with pytest.raises(CallError) as error:
        call()
    assert time.monotonic() - began < SOON
    return error.value


def test_calls_one_after_the_other_share_a_connection(tmp_path: Path) -> None:
    """Making one costs more than asking."""
    with listening(tmp_path / "s") as listener:
        channel = Channel(str(listener.path), SOON)
        assert [channel.unary(METHOD, text, SOON) for text in (b"a", b"", bytes(300_000))] == [
            b"a",
            b"",
            bytes(300_000),
        ]
        assert channel.unary(METHOD, b"removal", NEVER) == b"removal"
        assert listener.accepted == 1
        channel.close()
        assert listener.wait_for_talking(0)


def test_calls_side_by_side_have_a_connection_each_and_none_waits_for_another(
    tmp_path: Path,
) -> None:
    """Four that are answered only when all four have been asked; afterwards their
    connections are used again.
    """
    together = threading.Barrier(4)

    def when_all_have_asked(client: socket.socket) -> None:
        server = Server()
        client.sendall(server.h2.data_to_send())
        while data := client.recv(65536):
            before = len(server.asked)
            server.take(data)
            if len(server.asked) > before:
                together.wait(SOON)
            client.sendall(server.h2.data_to_send())

    with listening(tmp_path / "s", when_all_have_asked) as listener, ThreadPoolExecutor(4) as pool:
        channel = Channel(str(listener.path), SOON)
        for _ in range(5):
            texts = [b"%d" % number for number in range(4)]
            assert list(pool.map(lambda text: channel.unary(METHOD, text, SOON), texts)) == texts
        assert listener.accepted == 4
        channel.close()


def test_connections_that_are_not_needed_any_more_are_closed(tmp_path: Path) -> None:
    """After a burst of removals an idle daemon holds one, not sixteen."""
    with listening(tmp_path / "s") as listener, ThreadPoolExecutor(8) as pool:
        channel = Channel(str(listener.path), patience_seconds=1.0)
        together = threading.Barrier(8)

        def call(number: int) -> bytes:
            together.wait(SOON)
            return b"".join(channel.unary(METHOD, b"%d" % number, SOON) for _ in range(50))

        list(pool.map(call, range(8)))
        assert listener.accepted > 1
        time.sleep(1.1)
        channel.unary(METHOD, b"", SOON)
        channel.unary(METHOD, b"", SOON)
        assert listener.wait_for_talking(1)
        channel.close()


def test_a_runtime_that_has_restarted_is_asked_over_a_new_connection(tmp_path: Path) -> None:
    """The old one is seen to be dead before anything is asked, and no call fails for it."""
    channel = Channel(str(tmp_path / "s"), SOON)
    for _ in range(3):
        with listening(tmp_path / "s") as listener:
            assert channel.unary(METHOD, b"x", SOON) == b"x"
            assert listener.accepted == 1
    error = failed(lambda: channel.unary(METHOD, b"x", SOON))
    assert (error.code, error.details) == (Code.UNAVAILABLE, "No such file or directory")
    channel.close()


def test_after_a_goodbye_another_connection_is_made(tmp_path: Path) -> None:
    """A graceful stop: the call that was under way is answered, the next one goes elsewhere."""

    def once(client: socket.socket) -> None:
        server = Server()
        client.sendall(server.h2.data_to_send())
        while data := client.recv(65536):
            server.take(data)
            if server.asked:
                client.sendall(GoAwayFrame(0, last_stream_id=2**31 - 1).serialize())
            client.sendall(server.h2.data_to_send())

    with listening(tmp_path / "s", once) as listener:
        channel = Channel(str(listener.path), SOON)
        assert [channel.unary(METHOD, b"x", SOON) for _ in range(3)] == [b"x"] * 3
        assert listener.accepted == 3
        channel.close()


def test_a_deadline_holds_and_the_runtime_hears_that_nobody_waits(tmp_path: Path) -> None:
    """The connection is closed with it: what is asked there is cancelled."""
    with listening(
        tmp_path / "s", lambda client: speak(client, Server(answers=[None]))
    ) as listener:
        channel = Channel(str(listener.path), SOON)
        error = failed(lambda: channel.unary(METHOD, b"x", 0.2))
        assert error.code is Code.DEADLINE_EXCEEDED
        assert listener.wait_for_talking(0)
        channel.close()


def test_an_answer_that_comes_byte_by_byte_does_not_stretch_the_deadline(tmp_path: Path) -> None:
    """It is one for the whole call, not one for each byte."""

    def dribble(client: socket.socket) -> None:
        server = Server(answers=[[bytes(1000)]])
        client.sendall(server.h2.data_to_send())
        while not server.asked:
            server.take(client.recv(65536))
        for byte in server.h2.data_to_send():
            client.sendall(bytes((byte,)))
            time.sleep(0.01)

    with listening(tmp_path / "s", dribble) as listener:
        channel = Channel(str(listener.path), SOON)
        began = time.monotonic()
        assert failed(lambda: channel.unary(METHOD, b"x", 0.3)).code is Code.DEADLINE_EXCEEDED
        assert time.monotonic() - began < 0.3 + SOON / 2
        channel.close()


def test_a_removal_waits_as_long_as_it_takes(tmp_path: Path) -> None:
    """Longer than a connection may take to be greeted."""

    def slowly(client: socket.socket) -> None:
        server = Server()
        client.sendall(server.h2.data_to_send())
        while not server.asked:
            server.take(client.recv(65536))
        time.sleep(1.5)
        client.sendall(server.h2.data_to_send())

    with listening(tmp_path / "s", slowly) as listener:
        channel = Channel(str(listener.path), patience_seconds=1.0)
        assert channel.unary(METHOD, b"x", NEVER) == b"x"
        channel.close()


def test_nothing_is_sent_to_a_server_that_does_not_greet(tmp_path: Path) -> None:
    """A removal that was on its way would be cancelled when patience ends."""
    heard = bytearray()

    def listen(client: socket.socket) -> None:
        while data := client.recv(65536):
            heard.extend(data)

    with listening(tmp_path / "s", listen) as listener:
        channel = Channel(str(listener.path), patience_seconds=0.2)
        error = failed(lambda: channel.unary(METHOD, b"secret", NEVER))
        assert (error.code, error.details) == (
            Code.UNAVAILABLE,
            "the server did not accept the connection and send SETTINGS within 0.2 s",
        )
        assert failed(lambda: channel.unary(METHOD, b"secret", 0.1)).code is Code.DEADLINE_EXCEEDED
        assert listener.wait_for_talking(0)
    assert heard.startswith(PREFACE)
    assert b"secret" not in heard


def test_a_backlog_that_is_full_is_waited_for(tmp_path: Path) -> None:
    """connect(2) of a socket that does not block fails there at once; a runtime
    may be slow for a moment.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / "s"))
            channel = Channel(str(tmp_path / "s"), patience_seconds=0.3)
            began = time.monotonic()
            error = failed(lambda: channel.unary(METHOD, b"x", NEVER))
            assert error.code is Code.UNAVAILABLE
            assert time.monotonic() - began >= 0.25, "it did wait"
            assert failed(lambda: channel.unary(METHOD, b"x", 0.1)).code is Code.DEADLINE_EXCEEDED
            channel.close()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak HTTP/2"),
        (
            SettingsFrame().serialize() + DataFrame(1).serialize(),
            "the server violated HTTP/2: ProtocolError: Invalid input",
        ),
        (b"", "the connection was closed"),
    ],
)
def test_a_stranger_at_the_socket_is_unavailable_with_a_sentence(
    tmp_path: Path, said: bytes, words: str
) -> None:
    """Whatever it says."""

    def say(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(said)

    with listening(tmp_path / "s", say) as listener:
        channel = Channel(str(listener.path), SOON)
        error = failed(lambda: channel.unary(METHOD, b"x", SOON))
        assert error.code is Code.UNAVAILABLE
        assert words in error.details
        channel.close()


def test_a_runtime_that_dies_in_the_middle_is_unavailable_and_nothing_is_asked_twice(
    tmp_path: Path,
) -> None:
    """Whether to repeat a removal is not for the connection to decide."""
    asked = []

    def die(client: socket.socket) -> None:
        server = Server(answers=[[bytes(100_000)]])
        client.sendall(server.h2.data_to_send())
        while not server.asked:
            server.take(client.recv(65536))
        asked.append(1)
        client.sendall(server.h2.data_to_send()[:20_000])

    with listening(tmp_path / "s", die) as listener:
        channel = Channel(str(listener.path), SOON)
        error = failed(lambda: channel.unary(METHOD, b"x", NEVER))
        assert (error.code, error.details) == (Code.UNAVAILABLE, "the connection was closed")
        assert asked == [1]
        channel.close()


def test_closing_ends_a_call_that_has_no_deadline(tmp_path: Path) -> None:
    """A removal that hangs does not hold up the end of the program;
    afterwards nothing can be asked.
    """
    asked = threading.Event()

    def silent(client: socket.socket) -> None:
        server = Server(answers=[None])
        client.sendall(server.h2.data_to_send())
        while data := client.recv(65536):
            server.take(data)
            if server.asked:
                asked.set()

    with listening(tmp_path / "s", silent) as listener, ThreadPoolExecutor(1) as pool:
        channel = Channel(str(listener.path), SOON)
        call = pool.submit(failed, lambda: channel.unary(METHOD, b"x", NEVER))
        assert asked.wait(SOON)
        channel.close()
        assert call.result(SOON).code is Code.CANCELLED
        assert failed(lambda: channel.unary(METHOD, b"x", NEVER)).code is Code.CANCELLED
        assert listener.wait_for_talking(0)


@pytest.mark.parametrize(("answers", "words"), [([[]], "none"), ([[b"a", b"b"]], "a second one")])
def test_one_message_answers_a_call_not_none_and_not_two(
    tmp_path: Path, answers: list[list[bytes] | None], words: str
) -> None:
    """No message, or two messages, are an error."""
    with listening(
        tmp_path / "s", lambda client: speak(client, Server(answers=list(answers)))
    ) as listener:
        channel = Channel(str(listener.path), SOON)
        error = failed(lambda: channel.unary(METHOD, b"x", SOON))
        assert (error.code, error.details) == (
            Code.INTERNAL,
            f"one message was expected, and {words} came",
        )
        channel.close()


def test_a_server_that_answers_without_end_is_left_at_its_second_message(tmp_path: Path) -> None:
    """A removal has no deadline that would end it, and memory is not without end."""

    def endless(client: socket.socket) -> None:
        server = Server(answers=[None])
        client.sendall(server.h2.data_to_send())
        while not server.asked:
            server.take(client.recv(65536))
        server.h2.send_headers(1, HEADER)
        while True:
            server.h2.send_data(1, prefixed(b"x"))
            client.sendall(server.h2.data_to_send())

    with listening(tmp_path / "s", endless) as listener:
        channel = Channel(str(listener.path), SOON)
        assert failed(lambda: channel.unary(METHOD, b"x", NEVER)).code is Code.INTERNAL
        assert listener.wait_for_talking(0)
        channel.close()


def test_who_stops_reading_a_stream_has_used_its_connection_up(tmp_path: Path) -> None:
    """What is still to come must not be taken for the answer to the next call."""
    messages: list[bytes] | None = [bytes(100_000)] * 30
    with listening(
        tmp_path / "s", lambda client: speak(client, Server(answers=[messages]))
    ) as listener:
        channel = Channel(str(listener.path), SOON)
        stream = channel.stream(METHOD, b"x", SOON)
        assert next(stream) == bytes(100_000)
        stream.close()
        assert listener.wait_for_talking(0)
        assert sum(1 for _ in channel.stream(METHOD, b"x", SOON)) == 30
        assert listener.accepted == 2
        channel.close()
