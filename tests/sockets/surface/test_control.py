"""The control socket: any client that waits gets an answer or a sentence, and the server goes on.

No runtime is needed: a daemon without a runtime still observes its own filesystem.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.surface.control_client import TIMEOUT_SECONDS, NotAskedError, ask
from eviction.surface.control_socket import (
    LARGEST_REQUEST_BYTES,
    MOST_ANSWERED,
    OCCUPIED,
    TOO_LATE,
    ControlServer,
    ControlUnavailable,
    Conversation,
)
from tests.reclaimd_process import came_true
from tests.sockets.hostile_clients import KINDS, hostile_clients
from tests.thread_limit import no_thread_starts

SLACK_SECONDS = 30.0  # the machine is shared
COMMANDS: dict[str, Conversation] = {
    "status": lambda _: iter([{"state": "fine"}]),
    "broken": lambda _: iter([1 / 0]),
    "large": lambda _: iter(["x" * 10_000_000]),
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the socket is to be; its directory does not exist yet."""
    return str(tmp_path / "run" / "control.sock")


@pytest.fixture
def server(path: str) -> Iterator[ControlServer]:
    """A server that answers COMMANDS."""
    made = ControlServer(path, COMMANDS)
    made.start()
    yield made
    made.stop()


def connected(path: str, timeout_seconds: float = TIMEOUT_SECONDS + SLACK_SECONDS) -> socket.socket:
    """A bare connection."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout_seconds)
    try:
        client.connect(path)
    except OSError:
        client.close()
        raise
    return client


def answered(path: str, request: bytes) -> Any:
    """The answer to these bytes, after which no more are sent; None for no answer."""
    try:
        client = connected(path)
    except BlockingIOError:
        return None
    with client:
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        except OSError:  # it did not want to read on
            pass
        data = b""
        try:
            while part := client.recv(65536):
                data += part
        except OSError:
            pass
    return json.loads(data) if data else None


def whole_answer(client: socket.socket) -> bytes:
    """Everything that the server still says to a client."""
    data = b""
    while part := client.recv(65536):
        data += part
    return data


def test_a_command_is_answered(server: ControlServer, path: str) -> None:
    """One JSON object in a line, one document back; ten megabytes too."""
    assert ask(path, "status") == {"state": "fine"}
    assert len(ask(path, "large")) == 10_000_000
    assert answered(path, b'{"command": "status"}\n') == {"state": "fine"}
    assert answered(path, b'{"command": "status"}') == {"state": "fine"}, (
        "the end of the request is an end too"
    )


def test_only_the_own_user_may_connect(server: ControlServer, path: str) -> None:
    """The socket has mode 0600 in a directory of mode 0700, whatever the umask."""
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\n",
        b"nonsense\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b"5\n",
        b"null\n",
        b"{}\n",
        b'{"command": null}\n',
        b'{"command": ["status"]}\n',
        b'{"command": {"a": 1}}\n',
        b'{"command": "no such"}\n',
        b"[" * 4000 + b"\n",
        b'{"command": "status"',
    ],
)
def test_garbage_is_answered_with_a_sentence(
    server: ControlServer, path: str, request_bytes: bytes
) -> None:
    """It says what a request must be, and the next client is served."""
    sentence = "the request must be an object with a command, one of status, broken, large"
    assert answered(path, request_bytes) == {"refused": sentence}
    assert ask(path, "status") == {"state": "fine"}


def test_an_oversized_request_is_not_read_to_its_end(server: ControlServer, path: str) -> None:
    """4 KiB are read of 10 MB."""
    began = time.monotonic()
    found = answered(path, b'{"command": "' + b"x" * 10_000_000)
    assert found is None or "refused" in found
    assert time.monotonic() - began < SLACK_SECONDS
    assert answered(path, b" " * (LARGEST_REQUEST_BYTES - 30) + b'{"command": "status"}\n') == {
        "state": "fine"
    }


def test_a_defect_in_an_answer_is_reported_and_harmless(server: ControlServer, path: str) -> None:
    """A division by zero in one answer does not affect the others."""
    with pytest.raises(NotAskedError, match="ZeroDivisionError: division by zero"):
        ask(path, "broken")
    assert ask(path, "status") == {"state": "fine"}


@pytest.mark.regression
@pytest.mark.parametrize("kind", KINDS)
def test_the_socket_answers_beside_200_hostile_clients(
    server: ControlServer, path: str, kind: str
) -> None:
    """Whole requests are answered or turned away at once; no client that does
    not send one is in the way.
    """
    with hostile_clients(path, kind, 200, b'{"command": "large"}\n'):
        for _ in range(10):
            assert came_true(
                lambda: answered(path, b'{"command": "status"}\n') == {"state": "fine"}
            )


def test_a_client_is_turned_away_while_all_threads_are_occupied(path: str) -> None:
    """24 conversations that do not end: further requests are told so at once; when
    one ends, its place is free.
    """
    leave = threading.Semaphore(0)

    def talk(_: object) -> Iterator[str]:
        yield "begun"
        leave.acquire()
        yield "ended"

    server = ControlServer(path, {**COMMANDS, "talk": talk})
    server.start()
    talking = [connected(path) for _ in range(MOST_ANSWERED)]
    waiting = [connected(path) for _ in range(5)]
    try:
        for client in talking:
            client.sendall(b'{"command": "talk"}\n')
            assert client.recv(100) == b'"begun"\n'
        for client in waiting:
            client.sendall(b'{"command": "status"}\n')
        assert [client.recv(100) for client in waiting] == [OCCUPIED] * 5
        with pytest.raises(
            NotAskedError, match="turned away, as it is occupied with other clients"
        ):
            ask(path, "status")
        leave.release()
        assert came_true(lambda: answered(path, b'{"command": "status"}\n') == {"state": "fine"})
    finally:
        for client in (*talking, *waiting):
            client.close()
        leave.release(MOST_ANSWERED)
        server.stop()


@pytest.mark.regression
def test_the_socket_answers_while_no_thread_can_be_started(
    server: ControlServer, path: str
) -> None:
    """By the threads that were made at the start, and no place is lost."""
    with no_thread_starts():
        for _ in range(3 * MOST_ANSWERED):
            assert came_true(
                lambda: answered(path, b'{"command": "status"}\n') == {"state": "fine"}
            )


@pytest.mark.regression
def test_a_socket_without_its_threads_is_not_made(path: str) -> None:
    """One sentence, and no socket is left; when threads can be started, it is made."""
    server = ControlServer(path, COMMANDS)
    with no_thread_starts():
        with pytest.raises(
            ControlUnavailable,
            match=f"^control socket {path}: no thread can be started for clients: ",
        ):
            server.start()
        assert not os.path.exists(path)
    server.start()
    assert ask(path, "status") == {"state": "fine"}
    server.stop()


@pytest.mark.regression
def test_the_socket_survives_a_lack_of_descriptors(server: ControlServer, path: str) -> None:
    """Answered while none is left, with the one that it keeps for that, and afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 50, hard)
    )
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        os.close(held.pop())
        assert answered(path, b'{"command": "status"}\n') == {"state": "fine"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
    assert came_true(lambda: answered(path, b'{"command": "status"}\n') == {"state": "fine"})


def test_a_client_that_sends_slowly_loses_its_place_too(server: ControlServer, path: str) -> None:
    """A byte every half second: the 2 s are for the whole request."""
    with connected(path) as client:

        def dropped() -> bool:
            try:
                client.sendall(b" ")
            except OSError:
                return True
            return False

        assert came_true(dropped, every_seconds=0.25)


def test_a_client_that_does_not_read_its_answer_is_harmless(
    server: ControlServer, path: str
) -> None:
    """Ten megabytes that the client does not read, and a client that disconnects at once."""
    with connected(path) as client:
        client.sendall(b'{"command": "large"}\n')
        assert ask(path, "status") == {"state": "fine"}
    for _ in range(50):
        with contextlib.suppress(BlockingIOError):  # more at a time than may wait
            connected(path).close()
    assert came_true(lambda: answered(path, b'{"command": "status"}\n') is not None)


@pytest.mark.regression
@pytest.mark.parametrize("count", [50, 200])
def test_each_of_many_clients_at_once_gets_an_answer_or_a_sentence(path: str, count: int) -> None:
    """Every one of them has asked before the first is answered: 24 are answered, the
    others are told that they are turned away; none sees the end of the file alone, and
    the server is as before."""
    begin = threading.Event()
    server = ControlServer(
        path, {"status": lambda _: iter([begin.wait(SLACK_SECONDS) and {"state": "fine"}])}
    )
    server.start()
    clients = [connected(path) for _ in range(count)]
    try:
        for client in clients:
            client.sendall(b'{"command": "status"}\n')
        turned_away = count - MOST_ANSWERED
        assert came_true(lambda: len(select.select(clients, [], [], 0.0)[0]) == turned_away)
        begin.set()
        answers = [whole_answer(client) for client in clients]
        assert sorted(answers) == [OCCUPIED] * turned_away + [b'{"state": "fine"}\n'] * (
            count - turned_away
        )
        assert came_true(lambda: answered(path, b'{"command": "status"}\n') == {"state": "fine"})
    finally:
        begin.set()
        for client in clients:
            client.close()
        server.stop()


@pytest.mark.parametrize("count", [50, 200])
def test_each_of_many_commands_at_once_gets_an_answer_or_a_sentence(
    server: ControlServer, path: str, count: int
) -> None:
    """As `reclaimd status` asks, each on a thread of its own."""
    said: list[str] = []

    def client() -> None:
        try:
            said.append(ask(path, "status")["state"])
        except NotAskedError as error:
            said.append(str(error))

    threads = [threading.Thread(target=client) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * SLACK_SECONDS)
    assert len(said) == count
    assert {one for one in said if not one.startswith(f"{path}: turned away, as ")} == {"fine"}
    assert came_true(lambda: answered(path, b'{"command": "status"}\n') == {"state": "fine"})


def test_a_command_reads_why_it_is_turned_away_before_it_has_asked(path: str) -> None:
    """Who is turned away cannot send any more, and has the sentence all the same."""
    os.makedirs(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as occupied:
        occupied.bind(path)
        occupied.listen(1)

        def turn_away() -> None:
            client, _ = occupied.accept()
            with client:
                client.sendall(TOO_LATE)

        threading.Thread(target=turn_away, daemon=True).start()
        with pytest.raises(
            NotAskedError, match=f"^{path}: turned away, as no whole request has come in time$"
        ):
            ask(path, "status", filler="x" * 10_000_000)


def test_a_client_without_a_whole_request_is_told_that_it_is_too_late(
    server: ControlServer, path: str
) -> None:
    """After its 2 s; others are answered meanwhile."""
    with connected(path) as silent, connected(path) as half:
        half.sendall(b'{"command": ')
        assert ask(path, "status") == {"state": "fine"}
        assert [whole_answer(client) for client in (silent, half)] == [TOO_LATE, TOO_LATE]


def test_the_socket_of_a_dead_daemon_is_replaced(path: str) -> None:
    """The file exists, and no process listens on it."""
    os.makedirs(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    server = ControlServer(path, COMMANDS)
    server.start()
    assert ask(path, "status") == {"state": "fine"}
    server.stop()
    assert not os.path.exists(path), "it takes its socket along"
    server.stop()


def test_the_socket_of_a_live_daemon_is_not_stolen(server: ControlServer, path: str) -> None:
    """The second one gets an error, and the first one goes on."""
    with pytest.raises(ControlUnavailable, match="another daemon answers there"):
        ControlServer(path, COMMANDS).start()
    assert ask(path, "status") == {"state": "fine"}


def test_a_file_in_the_place_of_the_socket_is_not_removed(path: str) -> None:
    """It is not ours."""
    os.makedirs(os.path.dirname(path))
    Path(path).write_text("precious")
    with pytest.raises(ControlUnavailable, match="control socket"):
        ControlServer(path, COMMANDS).start()
    assert Path(path).read_text() == "precious"


@pytest.mark.parametrize(
    "missing", ["/proc/none/control.sock", "/dev/null/control.sock", "/tmp/" + "x" * 200]
)
def test_a_socket_that_cannot_be_created_is_one_sentence(missing: str) -> None:
    """No directory, a file in the way, a path that is too long."""
    with pytest.raises(ControlUnavailable, match="control socket") as refused:
        ControlServer(missing, COMMANDS).start()
    assert "\n" not in str(refused.value)


def test_asking_without_a_daemon_is_one_sentence(path: str) -> None:
    """No socket, and a socket without a listener."""
    with pytest.raises(NotAskedError, match=r"no daemon answers on .*: No such file or directory"):
        ask(path, "status")
    os.makedirs(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with pytest.raises(NotAskedError, match=r"no daemon answers on .*: Connection refused"):
        ask(path, "status")


def test_an_answer_that_is_no_json_is_one_sentence(path: str) -> None:
    """Something else listens there."""
    os.makedirs(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        other.listen(1)

        def talk() -> None:
            client, _ = other.accept()
            with client:
                client.sendall(b"220 mail ready\n")

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(NotAskedError, match="no daemon answers on"):
            ask(path, "status")
