"""The sockets on which a daemon is asked: the HTTP server with its probes, a scrape of a running
daemon, and the control socket. Whoever waits gets an answer or a sentence, hostile clients are in
nobody's way, and the server goes on.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from eviction.surface.clients import MOST_CLIENTS, Client, Clients
from eviction.surface.control_client import NotAskedError, ask
from eviction.surface.control_socket import (
    LARGEST_REQUEST_BYTES,
    MOST_ANSWERED,
    OCCUPIED,
    TOO_LATE,
    ControlServer,
    ControlUnavailable,
    Conversation,
)
from eviction.surface.http_server import CannotListen, Headers, HttpServer, Page, Pages, health
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import Daemon, came_true
from tests.rows import rows
from tests.sockets.hostile_clients import KINDS, connection_to, hostile_clients
from tests.sockets.passes import satisfied, says
from tests.thread_limit import no_thread_starts

LONGEST_SECONDS = 60.0
SCRAPE = {"Accept": "application/openmetrics-text; version=1.0.0", "ACCEPT-encoding": "gzip"}
PROBE_SECONDS = 3.0  # timeoutSeconds of the DaemonSet's probes
PROBE_FAILURES = 6  # failureThreshold: as many in a row restart it


def broken(_: Headers) -> Page:
    raise RuntimeError("a secret")


PAGES = {
    "/livez": lambda _: health(None),
    "/late": lambda _: health("it is late"),
    "/broken": broken,
}


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """A server of PAGES on any free port."""
    made = HttpServer(("127.0.0.1", 0), PAGES)
    yield made
    made.stop()


def got(
    address: str,
    path: str,
    method: str = "GET",
    timeout_seconds: float = LONGEST_SECONDS,
    headers: Mapping[str, str] = {},
) -> tuple[int, bytes]:
    """Status and body of a page."""
    connection = http.client.HTTPConnection(address, timeout=timeout_seconds)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def address_of(daemon: Daemon) -> str:
    """Where a daemon serves its pages."""
    event = daemon.wait_for(says("metrics and health are served"))
    return str(event["address"])


@rows(
    """
    asked              | status | body
    GET /livez         | 200    | ok
    GET /livez?verbose | 200    | ok
    GET /late          | 503    | it is late
    GET /              | 404    | the pages are /livez, /late, /broken
    GET /broken        | 500    | RuntimeError
    HEAD /livez        | 200    |
    POST /livez        | 405    | only GET and HEAD
    """
)
def test_pages_are_served_by_path(server: HttpServer, asked: str, status: int, body: str) -> None:
    """A query is ignored; an exception in a page is told without its message; why the daemon should
    be started anew is 503 with the sentence."""
    method, path = asked.split()
    assert got(server.address, path, method) == (status, f"{body}\n".lstrip().encode())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00" * 100 + b"\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET  /livez HTTP/1.1\r\n\r\n",
        os.urandom(20_000),
        b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\n\r\n",
    ],
)
def test_garbage_is_answered_with_an_error_or_not_at_all(
    server: HttpServer, garbage: bytes
) -> None:
    """No 200, and the next client is served."""
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), LONGEST_SECONDS) as client:
        with suppress(OSError):  # it did not want to read on
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            assert not re.match(rb"HTTP/1.1 [23]", client.recv(65536))
    assert got(server.address, "/livez")[0] == 200


def test_pages_that_are_asked_for_together_are_made_once() -> None:
    """A page that takes long does not take as many times as long for as many clients: the first
    one, and one for all the others."""
    entered, leave = threading.Event(), threading.Event()
    made: list[int] = []

    def page(_: Headers) -> Page:
        made.append(1)
        entered.set()
        leave.wait(LONGEST_SECONDS)
        return Page(200, b"x")

    server = HttpServer(("127.0.0.1", 0), {"/slow": page})
    host, _, port = server.address.rpartition(":")
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection((host, int(port)), LONGEST_SECONDS))
            for _ in range(20)
        ]
        clients[0].sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        assert entered.wait(LONGEST_SECONDS)
        for client in clients[1:]:
            client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        leave.set()
        assert all(client.recv(65536).startswith(b"HTTP/1.1 200") for client in clients)
    assert len(made) == 2
    server.stop()


def test_a_socket_of_systemd_outlives_the_server() -> None:
    """It listens on when the daemon has stopped: the next start is served on it."""
    with socket.create_server(("127.0.0.1", 0)) as of_systemd:
        for _ in range(2):
            server = HttpServer(("127.0.0.1", 1), PAGES, of_systemd.dup())
            assert got(server.address, "/livez")[0] == 200
            server.stop()


def test_a_port_is_taken_and_given_back(server: HttpServer) -> None:
    """Address and reason; nothing is left open, and a stopped server answers nobody."""
    host, _, port = server.address.rpartition(":")
    with pytest.raises(CannotListen, match=f"^{server.address}: Address already in use "):
        HttpServer((host, int(port)), PAGES)
    server.stop()
    with pytest.raises(OSError, match="refused"):
        got(server.address, "/livez")


def test_ipv6_is_served_too() -> None:
    """On ::1, where the machine has it."""
    try:
        server = HttpServer(("::1", 0), PAGES)
    except CannotListen as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    assert got(server.address, "/livez")[0] == 200
    server.stop()


# ---- of a daemon


def is_probed(address: str) -> bool:
    """Whether a kubelet lets the process go on: one of as many probes as it may miss is answered in
    time."""
    for _ in range(PROBE_FAILURES):
        with suppress(TimeoutError):
            return got(address, "/livez", timeout_seconds=PROBE_SECONDS) == (200, b"ok\n")
    return False


def test_a_daemon_beside_200_hostile_clients_is_live_and_relieves(small_node: SmallNode) -> None:
    """Forty of each kind, that ask for its metrics as far as they ask: probed again and again, it is
    not restarted, and under pressure relieved."""
    small_node.add_images(3)
    anywhere = "127.0.0.1:0"
    file = small_node.configuration(metricsAddress=anywhere)
    pressed = (Signal.NODEFS_AVAILABLE, MIB)
    under_pressure = small_node.configuration(*pressed, metricsAddress=anywhere)
    with Daemon("--config", file) as daemon, ExitStack() as hostile:
        address = address_of(daemon)
        for kind in KINDS:
            request = b"GET /metrics HTTP/1.1\r\n\r\n"
            hostile.enter_context(hostile_clients(address, kind, 200 // len(KINDS), request))
        for _ in range(10):
            assert is_probed(address)
        Path(file).write_text(Path(under_pressure).read_text())
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(satisfied)
        assert got(address, "/metrics")[0] == 200


SERIES = r"""reclaimd_passes_total\{result="satisfied",trigger="(interval|watch)"\} 1.0$
reclaimd_removals_total\{kind="image",result="removed"\} [1-9]
reclaimd_removals_total\{kind="ballast",result="removed"\} 0.0$
reclaimd_pod_directories_doubted\{why="runs_without"\} 1.0$
reclaimd_pod_directories_doubted\{why="not_compared"\} 0.0$
reclaimd_runtime_operations_total\{operation_type="remove_image"\} [1-9]
reclaimd_runtime_operations_errors_total\{operation_type="image_status"\} 0.0$
process_resident_memory_bytes """


def test_a_running_daemon_is_scraped_and_probed(small_node: SmallNode, tmp_path: Path) -> None:
    """A node under pressure, on which a pod runs without its directory: live, ready, relieved; the
    metrics have the pass, the doubt, and what could go, and promtool finds no problem. They make no
    file, not even with the variable that makes prometheus-client count in files."""
    small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    small_node.forget("uid-web")
    ballast = {"name": "ReleaseBallast", "file": str(small_node.disk / "ballast"), "size": "1Mi"}
    own = {"metricsAddress": "127.0.0.1:0", "reclaimFunctions": [ballast]}
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, **own)
    (files := tmp_path / "files").mkdir()
    words = ("--config", file)
    with Daemon(*words, cold=True, PROMETHEUS_MULTIPROC_DIR=str(files)) as daemon:
        address = address_of(daemon)
        daemon.wait_for(satisfied)
        # the log is told first
        assert came_true(lambda: b'result="satisfied"' in got(address, "/metrics")[1])
        assert came_true(lambda: got(address, "/readyz")[0] == 200)
        assert got(address, "/livez") == (200, b"ok\n")
        status, body = got(address, "/metrics")
        _, compressed = got(address, "/metrics", headers=SCRAPE)
    assert gzip.decompress(compressed).endswith(b"\n# EOF\n")
    for series in SERIES.splitlines():
        assert re.search(f"^{series}", body.decode(), re.MULTILINE), series
    assert (status, list(files.iterdir())) == (200, [])
    if promtool := shutil.which("promtool"):
        command = [promtool, "check", "metrics"]
        lint = subprocess.run(command, input=body, capture_output=True, check=False)
        assert (lint.returncode, lint.stderr) == (0, b"")


def asked(silent: socket.socket) -> int:
    """How often a server that does not answer was asked since it was last looked at."""
    times = 0
    with suppress(BlockingIOError):
        while True:
            silent.accept()[0].close()
            times += 1
    return times


def test_a_silent_kubelet_does_not_hold_up_the_pages(small_node: SmallNode) -> None:
    """Its `/healthz` accepts and does not answer, which costs 0.5 s; no page asks it: the daemon is
    held off, alive and not ready, with the reason."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = small_node.configuration(
            metricsAddress="127.0.0.1:0",
            holdOffAfterStart="1h",
            kubeletHealthzEndpoint=f"127.0.0.1:{silent.getsockname()[1]}",
        )
        with Daemon("--config", file) as daemon:
            address = address_of(daemon)
            assert got(address, "/livez")[0] == 200
            assert came_true(lambda: b"held off: " in got(address, "/readyz")[1])
            silent.setblocking(False)
            assert asked(silent) > 0
            assert [got(address, "/readyz")[0] for _ in range(20)] == [503] * 20
            assert asked(silent) < 20


# ---- either server, and the control socket

LARGE = 2_000_000  # bytes of an answer: more than a socket holds
COMMANDS: dict[str, Conversation] = {
    "status": lambda _: iter([{"state": "fine"}]),
    "broken": lambda _: iter([1 / 0]),
    "large": lambda _: iter(["x" * LARGE]),
}
STATUS = b'{"command": "status"}\n'
FINE = b'{"state": "fine"}\n'


class Served(NamedTuple):
    """A server of either kind: its address, a request, its answer, a request whose answer is large,
    and what a client without a whole request is told."""

    address: str
    request: bytes
    answer: bytes
    large: bytes
    too_late: bytes


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the socket is to be; its directory does not exist yet."""
    return str(tmp_path / "run" / "control.sock")


@pytest.fixture
def control(path: str) -> Iterator[Served]:
    """A control socket that answers COMMANDS."""
    server = ControlServer(path, COMMANDS)
    server.start()
    yield Served(path, STATUS, FINE, b'{"command": "large"}\n', TOO_LATE)
    server.stop()


@pytest.fixture(params=["control", "http"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server of each kind."""
    if request.param == "control":
        yield request.getfixturevalue("control")
        return
    pages: Pages = {
        "/livez": lambda _: health(None),
        "/large": lambda _: Page(200, b"x" * LARGE),
    }
    server = HttpServer(("127.0.0.1", 0), pages)
    get = b"GET /%s HTTP/1.1\r\n\r\n"
    late = b"HTTP/1.1 408"
    yield Served(server.address, get % b"livez", b"HTTP/1.1 200", get % b"large", late)
    server.stop()


def connected(address: str) -> socket.socket:
    """A client that has sent nothing, as soon as the server takes one."""
    found: list[socket.socket] = []

    def one() -> bool:
        client = connection_to(address)
        found.extend([] if client is None else [client])
        return client is not None

    assert came_true(one)
    found[0].settimeout(LONGEST_SECONDS)
    return found[0]


def whole_answer(client: socket.socket) -> bytes:
    """Everything that the server still says."""
    data = b""
    with contextlib.suppress(OSError):
        while part := client.recv(65536):
            data += part
    return data


def said(address: str, request: bytes) -> bytes:
    """The answer to exactly these bytes, after which no more are sent."""
    with connected(address) as client:
        with contextlib.suppress(OSError):  # it did not want to read on
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        return whole_answer(client)


def is_answered(served: Served) -> bool:
    """Whether a whole request has its answer, at once or soon."""
    return came_true(lambda: said(served.address, served.request).startswith(served.answer))


# ---- either kind of server


@pytest.mark.parametrize("kind", KINDS)
def test_the_socket_answers_beside_200_hostile_clients(served: Served, kind: str) -> None:
    """Whole requests are answered or turned away at once; no client that does not send one is in
    the way."""
    with hostile_clients(served.address, kind, 200, served.large):
        for _ in range(10):
            assert is_answered(served)


def test_a_server_answers_while_no_thread_can_be_started(served: Served) -> None:
    """All that it needs was made at its start, and no place is lost."""
    with no_thread_starts():
        for _ in range(MOST_CLIENTS):
            assert is_answered(served)


def test_a_server_without_a_free_descriptor_answers_one_client_at_a_time(served: Served) -> None:
    """With the one that it keeps for that, again and again, and afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    most = max(map(int, os.listdir("/proc/self/fd"))) + 50
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(3):
            os.close(held.pop())
            with connected(served.address) as client:  # has the last descriptor
                client.sendall(served.request)
                assert client.recv(65536).startswith(served.answer)
            held.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
    assert is_answered(served)


def test_a_client_without_a_whole_request_is_told_that_it_is_too_late(served: Served) -> None:
    """After its 2 s, which are for the whole request; others are answered meanwhile."""
    with contextlib.ExitStack() as stack:
        silent, half, slow = (stack.enter_context(connected(served.address)) for _ in range(3))
        half.sendall(served.request[:9])

        def dropped() -> bool:
            try:
                slow.sendall(b" ")
            except OSError:
                return True
            return False

        assert is_answered(served)
        assert came_true(dropped, every_seconds=0.25)
        for client in (silent, half):
            assert whole_answer(client).startswith(served.too_late)


def test_an_oversized_request_is_not_read_to_its_end(served: Served) -> None:
    """A few KiB are read of 10 MB; an answer is sent to its end."""
    found = said(served.address, served.request[:12] + b"x" * 10_000_000)
    assert not found.startswith(served.answer)
    assert len(found) < 1000
    assert len(said(served.address, served.large)) >= LARGE


def test_a_new_client_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    """The table is full of clients that send nothing: one of them goes, with a sentence, and nobody
    else. A defect in an answer disconnects that client alone."""
    defects = [ValueError("a defect")]

    def answers(clients: Sequence[Client]) -> None:
        for client in clients:
            if defects:
                raise defects.pop()
            client.reply(b"ok")

    listening = socket.create_server(("127.0.0.1", 0), backlog=MOST_CLIENTS)
    address = "{}:{}".format(*listening.getsockname())
    clients = Clients("test", listening, (b"\n",), 64, answers, b"too late")
    assert [said(address, b"\n") for _ in range(2)] == [b"", b"ok"]
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(address)) for _ in range(MOST_CLIENTS)]
        assert said(address, b"\n") == b"ok"
        ready, _, _ = select.select(silent, [], [], LONGEST_SECONDS)
        assert ready == silent[:1]
        assert silent[0].recv(64) == b"too late"
    clients.stop()


def test_a_server_without_its_threads_is_not_made(path: str) -> None:
    """One sentence, and no socket is left; when threads can be started, it is made."""
    port = free_port()
    server = ControlServer(path, COMMANDS)
    with no_thread_starts():
        with pytest.raises(
            ControlUnavailable, match=r"^control socket .*: no thread can be started"
        ):
            server.start()
        with pytest.raises(CannotListen, match=f"^127.0.0.1:{port}: no thread can be started for"):
            HttpServer(("127.0.0.1", port), {})
        assert not os.path.exists(path)
    server.start()
    HttpServer(("127.0.0.1", port), {}).stop()
    assert ask(path, "status") == {"state": "fine"}
    server.stop()


# ---- the control socket


def test_only_the_own_user_may_connect(control: Served) -> None:
    """Mode 0600 in a directory of mode 0700, whatever the umask."""
    places = (control.address, os.path.dirname(control.address))
    assert [stat.S_IMODE(os.stat(place).st_mode) for place in places] == [0o600, 0o700]


def test_a_command_is_answered(control: Served) -> None:
    """One JSON object in a line, or to the end of the request; one document back, however large. A
    defect in an answer is a sentence."""
    assert len(ask(control.address, "large")) == LARGE
    for request in (STATUS, STATUS.rstrip(), STATUS.rjust(LARGEST_REQUEST_BYTES)):
        assert said(control.address, request) == FINE
    with pytest.raises(NotAskedError, match="ZeroDivisionError: division by zero"):
        ask(control.address, "broken")
    assert ask(control.address, "status") == {"state": "fine"}


GARBAGE = [
    *(b"", b"\n", b"nonsense\n", b"\xff\xfe\x00\n", b"[]\n", b"5\n", b"null\n", b"{}\n"),
    b'{"command": null}\n',
    b'{"command": ["status"]}\n',
    b'{"command": {"a": 1}}\n',
    b'{"command": "no such"}\n',
    b"[" * 4000 + b"\n",
    b'{"command": "status"',
]


@pytest.mark.parametrize("request_", GARBAGE)
def test_garbage_is_answered_with_a_sentence(control: Served, request_: bytes) -> None:
    """It says what a request must be, and the next client is served."""
    sentence = "the request must be an object with a command, one of status, broken, large"
    assert json.loads(said(control.address, request_)) == {"refused": sentence}
    assert is_answered(control)


@pytest.mark.parametrize("count", [50, 200])
def test_each_of_many_clients_at_once_gets_an_answer_or_a_sentence(path: str, count: int) -> None:
    """Every one of them has asked before the first is answered: 24 are answered, the others are told
    that they are turned away, and a command says so; then their places are free."""
    begin = threading.Event()
    answers = {"status": lambda _: iter([begin.wait(LONGEST_SECONDS) and {"state": "fine"}])}
    server = ControlServer(path, answers)
    server.start()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(path)) for _ in range(count)]
        for client in clients:
            client.sendall(STATUS)
        away = count - MOST_ANSWERED
        assert came_true(lambda: len(select.select(clients, [], [], 0.0)[0]) == away)
        with pytest.raises(NotAskedError, match="turned away, as it is occupied with other clien"):
            ask(path, "status")
        begin.set()
        expected = [OCCUPIED] * away + [FINE] * MOST_ANSWERED
        assert sorted(map(whole_answer, clients)) == expected
        assert came_true(lambda: said(path, STATUS) == FINE)
    server.stop()


def test_the_socket_of_a_dead_daemon_is_replaced_and_no_other(path: str) -> None:
    """That of a live one is not stolen, a file in its place is not removed, and where none can be
    made that is one sentence."""
    os.makedirs(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    server = ControlServer(path, COMMANDS)
    server.start()
    with pytest.raises(ControlUnavailable, match="another daemon answers there"):
        ControlServer(path, COMMANDS).start()
    assert ask(path, "status") == {"state": "fine"}
    server.stop()
    assert not os.path.exists(path), "it takes its socket along"
    server.stop()
    Path(path).write_text("precious")
    for place in (path, "/proc/none/c.sock", "/dev/null/c.sock", "/tmp/" + "x" * 200):
        with pytest.raises(ControlUnavailable, match=r"^control socket [^\n]*$"):
            ControlServer(place, COMMANDS).start()
    assert Path(path).read_text() == "precious"


@rows(
    """
    said                       | sentence
    220 mail ready             | no daemon answers on {}:
    {"refused": "turned away"} | {}: turned away
    """
)
def test_asking_in_vain_is_one_sentence(path: str, said: str, sentence: str) -> None:
    """An answer that is no JSON; who is turned away before it has asked cannot send any more, and
    has the sentence all the same."""
    os.makedirs(os.path.dirname(path))
    with socket.create_server(path, family=socket.AF_UNIX) as other:

        def serve() -> None:
            client, _ = other.accept()
            with client:
                client.sendall(f"{said}\n".encode())

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(NotAskedError, match=f"^{re.escape(sentence.format(path))}"):
            ask(path, "status", filler="x" * 10_000_000)
