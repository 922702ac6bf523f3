"""Calls over a real socket: connections are kept and shared out, a deadline holds, a list is held
once, and what a server breaks costs one call, in bounded time and memory.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from hyperframe.frame import GoAwayFrame, PingFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.channel import LARGEST_MESSAGE_BYTES, Channel
from reclaim.cri.status import CallError, Code
from reclaim.types import NEVER
from tests.hostile_http2 import ANY_BYTES, HOSTILE, MOST_MIB, assert_clean, hostile_talk
from tests.http2_server import PREFACE, Listener, Server, Talk, answering, listening, speak
from tests.repository import ROOT

MIB = 1 << 20
METHOD = "/runtime.v1.RuntimeService/Version"
LARGE = bytes(100_000)
SOON = 30.0  # seconds in which something ends that must not hang; alone it takes milliseconds


@contextmanager
def connected(
    path: Path, talk: Talk = answering, patience_seconds: float = SOON
) -> Iterator[tuple[Listener, Channel]]:
    """A listener that talks so, and a channel to it; no connection is left open."""
    with listening(path / "s", talk) as listener:
        channel = Channel(str(listener.path), patience_seconds)
        yield listener, channel
        channel.close()
        assert listener.wait_for_talking(0)


def asked(client: socket.socket, *answers: list[bytes] | None) -> Server:
    """A server that has been asked, and has not sent its answer."""
    server = Server(answers=list(answers))
    client.sendall(server.h2.data_to_send())
    while not server.asked:
        server.take(client.recv(65536))
    return server


def failure(call: Callable[[], object]) -> tuple[Code, str]:
    """The error that a call ends with."""
    with pytest.raises(CallError) as error:
        call()
    return error.value.code, error.value.details


# ---- connections


def test_calls_side_by_side_have_a_connection_each_and_none_waits_for_another(
    tmp_path: Path,
) -> None:
    """Four that are answered only when all four have been asked; afterwards their connections are
    used again, and those that are not needed any more are closed."""
    together = threading.Barrier(4)

    def when_all_have_asked(client: socket.socket) -> None:
        server = Server()
        client.sendall(server.h2.data_to_send())
        while data := client.recv(65536):
            before = len(server.asked)
            server.take(data)
            if len(server.asked) > before and not alone.is_set():
                together.wait(SOON)
            client.sendall(server.h2.data_to_send())

    alone = threading.Event()
    with (
        connected(tmp_path, when_all_have_asked, patience_seconds=1.0) as (listener, channel),
        ThreadPoolExecutor(4) as pool,
    ):
        for _ in range(5):
            texts = [b"%d" % number for number in range(4)]
            assert list(pool.map(lambda text: channel.unary(METHOD, text, SOON), texts)) == texts
        assert listener.accepted < 20, "one each would be"
        alone.set()
        time.sleep(1.1)
        for _ in range(2):
            channel.unary(METHOD, b"", SOON)
        assert listener.wait_for_talking(1)


def test_a_runtime_that_has_restarted_is_asked_over_a_new_connection(tmp_path: Path) -> None:
    """The old one is seen to be dead before anything is asked, and no call fails for it."""
    channel = Channel(str(tmp_path / "s"), SOON)
    for _ in range(3):
        with listening(tmp_path / "s") as listener:
            assert channel.unary(METHOD, b"x", SOON) == b"x"
            assert listener.accepted == 1
    error = failure(lambda: channel.unary(METHOD, b"x", SOON))
    assert error == (Code.UNAVAILABLE, "No such file or directory")
    channel.close()


def test_after_a_goodbye_another_connection_is_made(tmp_path: Path) -> None:
    """A graceful stop: the call that was under way is answered, the next one goes elsewhere."""

    def once(client: socket.socket) -> None:
        server = asked(client)
        client.sendall(GoAwayFrame(0, last_stream_id=2**31 - 1).serialize())
        client.sendall(server.h2.data_to_send())
        client.recv(1)

    with connected(tmp_path, once) as (listener, channel):
        assert [channel.unary(METHOD, b"x", SOON) for _ in range(3)] == [b"x"] * 3
        assert listener.accepted == 3


def test_who_stops_reading_a_stream_has_used_its_connection_up(tmp_path: Path) -> None:
    """What is still to come must not be taken for the answer to the next call."""
    with connected(tmp_path, messages(*[LARGE] * 30)) as (listener, channel):
        stream = channel.stream(METHOD, b"x", SOON)
        assert next(stream) == LARGE
        stream.close()
        assert listener.wait_for_talking(0)
        assert sum(1 for _ in channel.stream(METHOD, b"x", SOON)) == 30
        assert listener.accepted == 2


# ---- deadlines, and removals, which have none


def dribble(client: socket.socket) -> None:
    """Answers byte by byte."""
    for byte in asked(client, [bytes(1000)]).h2.data_to_send():
        client.sendall(bytes((byte,)))
        time.sleep(0.01)


@pytest.mark.parametrize("talk", [lambda client: speak(client, Server(answers=[None])), dribble])
def test_a_deadline_holds_and_the_runtime_hears_that_nobody_waits(
    tmp_path: Path, talk: Talk
) -> None:
    """It is one for the whole call. The connection is closed with it: what is asked there is
    cancelled."""
    with connected(tmp_path, talk) as (listener, channel):
        code, _ = failure(lambda: channel.unary(METHOD, b"x", 0.3))
        assert code is Code.DEADLINE_EXCEEDED
        assert listener.wait_for_talking(0)


def test_a_removal_waits_as_long_as_it_takes(tmp_path: Path) -> None:
    """Longer than a connection may take to be greeted."""

    def slowly(client: socket.socket) -> None:
        server = asked(client)
        time.sleep(1.5)
        client.sendall(server.h2.data_to_send())

    with connected(tmp_path, slowly, patience_seconds=1.0) as (_, channel):
        assert channel.unary(METHOD, b"x", NEVER) == b"x"


def test_nothing_is_sent_to_a_server_that_does_not_greet(tmp_path: Path) -> None:
    """A removal that was on its way would be cancelled when patience ends."""
    heard = bytearray()

    def listen(client: socket.socket) -> None:
        while data := client.recv(65536):
            heard.extend(data)

    with connected(tmp_path, listen, patience_seconds=0.2) as (_, channel):
        assert failure(lambda: channel.unary(METHOD, b"secret", NEVER)) == (
            Code.UNAVAILABLE,
            "the server did not accept the connection and send SETTINGS within 0.2 s",
        )
        code, _ = failure(lambda: channel.unary(METHOD, b"secret", 0.1))
        assert code is Code.DEADLINE_EXCEEDED
    assert heard.startswith(PREFACE)
    assert b"secret" not in heard


def test_a_backlog_that_is_full_is_waited_for(tmp_path: Path) -> None:
    """connect(2) of a socket that does not block fails there at once; a runtime
    may be slow for a moment.
    """
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(path)
        server.listen(0)
        first.connect(path)
        channel = Channel(path, patience_seconds=0.3)
        began = time.monotonic()
        assert failure(lambda: channel.unary(METHOD, b"x", NEVER))[0] is Code.UNAVAILABLE
        assert time.monotonic() - began >= 0.25, "it did wait"
        assert failure(lambda: channel.unary(METHOD, b"x", 0.1))[0] is Code.DEADLINE_EXCEEDED
        channel.close()


def test_closing_ends_a_call_that_has_no_deadline(tmp_path: Path) -> None:
    """A removal that hangs does not hold up the end of the program;
    afterwards nothing can be asked.
    """
    heard = threading.Event()

    def silent(client: socket.socket) -> None:
        asked(client, None)
        heard.set()
        client.recv(1)

    with connected(tmp_path, silent) as (_, channel), ThreadPoolExecutor(1) as pool:
        call = pool.submit(failure, lambda: channel.unary(METHOD, b"x", NEVER))
        assert heard.wait(SOON)
        channel.close()
        assert call.result(SOON)[0] is Code.CANCELLED
        assert failure(lambda: channel.unary(METHOD, b"x", NEVER))[0] is Code.CANCELLED


# ---- what is no answer


def test_a_runtime_that_dies_in_the_middle_is_unavailable_and_nothing_is_asked_twice(
    tmp_path: Path,
) -> None:
    """Whether to repeat a removal is not for the connection to decide."""
    times = []

    def die(client: socket.socket) -> None:
        server = asked(client, [bytes(100_000)])
        times.append(1)
        client.sendall(server.h2.data_to_send()[:20_000])

    with connected(tmp_path, die) as (_, channel):
        error = failure(lambda: channel.unary(METHOD, b"x", NEVER))
        assert error == (Code.UNAVAILABLE, "the connection was closed")
        assert times == [1]


def stranger(client: socket.socket) -> None:
    """Speaks another protocol."""
    client.recv(65536)
    client.sendall(b"HTTP/1.1 400 Bad\r\n\r\n")


def messages(*bodies: bytes) -> Talk:
    """Answers with these."""
    return lambda client: speak(client, Server(answers=[list(bodies)]))


def test_who_does_not_speak_the_protocol_is_told(tmp_path: Path) -> None:
    """An answer of HTTP/1.1 is no greeting."""
    with connected(tmp_path, stranger) as (_, channel):
        code, details = failure(lambda: channel.unary(METHOD, b"x", NEVER))
        assert (code, "does not speak HTTP/2" in details) == (Code.UNAVAILABLE, True)


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
    breaks = hostile_talk(hostile.send(), hold=bool(hostile.seconds))
    with connected(tmp_path, one_after_the_other(answering, breaks)) as (listener, channel):
        beside = channel.stream(METHOD, b"beside", SOON)
        assert next(beside) == b"beside"
        seconds = hostile.seconds or NEVER
        tracemalloc.start()
        code, details = failure(lambda: channel.unary(METHOD, b"the question", seconds))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert not list(beside)
        assert channel.unary(METHOD, b"after", SOON) == b"after"
        assert listener.accepted == 2
        assert listener.wait_for_talking(1)
    assert (code, hostile.words in details) == (hostile.ends, True), details
    assert peak < MOST_MIB.get(name, 15) * MIB


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


# ---- a list that is almost as large as one message may be

CONTAINERS = 64
SIZE_BYTES = 80 * MIB  # what CRI-O sends at most (grpc_max_send_msg_size)
LIST = """
import sys
from reclaim.cri.client import CriClient

def peak_bytes():  # proc_pid_status(5)
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("VmHWM:")).split()[1]) * 1024

client = CriClient(sys.argv[1], read_deadline_seconds=60.0)
client.list_pod_sandboxes()  # everything is imported and connected
before = peak_bytes()
print(len(client.list_containers()), peak_bytes() - before)
"""


def test_a_large_list_is_held_once(tmp_path: Path) -> None:
    """By a list of 80 MiB the process grows by little more than that; it grew by twice as much."""
    filler = {"filler": "x" * (SIZE_BYTES // CONTAINERS)}
    containers = [pb.Container(id=f"{n:064x}", annotations=filler) for n in range(CONTAINERS)]
    lists = {
        "ListContainers": pb.ListContainersResponse(containers=containers).SerializeToString(),
        "ListPodSandbox": b"",
    }
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        method: grpc.unary_unary_rpc_method_handler(lambda _, __, answer=answer: answer)
        for method, answer in lists.items()
    }
    server = grpc.server(ThreadPoolExecutor(2), options=(("grpc.max_send_message_length", -1),))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", handlers),)
    )
    server.add_insecure_port(f"unix:{tmp_path}/cri.sock")
    server.start()
    command = [sys.executable, "-c", LIST, f"unix://{tmp_path}/cri.sock"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    server.stop(grace=None).wait()
    assert done.returncode == 0, done.stderr
    listed, grown = map(int, done.stdout.split())
    assert listed == CONTAINERS
    assert grown < 1.5 * SIZE_BYTES


def test_the_largest_message_and_the_daemon_fit_into_the_limit_of_the_unit() -> None:
    """The unit's and the DaemonSet's limit leave room for the largest message, the values
    made of it, and the rest.
    """
    unit, daemonset = (
        (ROOT / "config" / path).read_text()
        for path in ("systemd/reclaimd.service", "kubernetes/base/daemonset.yaml")
    )
    limits = [*re.findall(r"^MemoryMax=(\d+)M$", unit, re.MULTILINE)]
    limits += [max(re.findall(r"^ +memory: (\d+)Mi$", daemonset, re.MULTILINE), key=int)]
    assert len(limits) == 2
    assert min(map(int, limits)) * MIB >= LARGEST_MESSAGE_BYTES + 100 * MIB
