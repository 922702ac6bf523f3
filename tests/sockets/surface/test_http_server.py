"""The HTTP server: the answers to probes, a scrape of a running daemon.

How it stands beside hostile clients is in `test_control.py`, with the other server.
"""

from __future__ import annotations

import gzip
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from eviction.surface.http_server import CannotListen, Headers, HttpServer, Page, health
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true
from tests.rows import rows
from tests.sockets.hostile_clients import KINDS, hostile_clients

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
    event = daemon.wait_for(lambda event: "metrics and health are served" in event["message"])
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


@pytest.mark.regression
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


def test_serving_makes_no_file(tmp_path: Path) -> None:
    """Not even with the variable that makes prometheus-client count in files."""
    program = (
        "from eviction.surface.metrics import Metrics; from eviction.surface.daemon import"
        " NodeStatus; m = Metrics(NodeStatus); m.called('ListImages', 1.0, True);"
        " m.watched(); assert len(m.page({}).body) > 1000"
    )
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []


# ---- of a daemon


def is_probed(address: str) -> bool:
    """Whether a kubelet lets the process go on: one of as many probes as it may miss is answered in
    time."""
    for _ in range(PROBE_FAILURES):
        with suppress(TimeoutError):
            return got(address, "/livez", timeout_seconds=PROBE_SECONDS) == (200, b"ok\n")
    return False


@pytest.mark.regression
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
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert got(address, "/metrics")[0] == 200


def test_a_running_daemon_is_scraped_and_probed(small_node: SmallNode) -> None:
    """A node under pressure: live, ready, relieved; the metrics have the pass, and promtool finds no
    problem."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, metricsAddress="127.0.0.1:0")
    with Daemon("--config", file) as daemon:
        address = address_of(daemon)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        # the log is told first
        assert came_true(lambda: b'result="satisfied"' in got(address, "/metrics")[1])
        assert came_true(lambda: got(address, "/readyz")[0] == 200)
        assert got(address, "/livez") == (200, b"ok\n")
        status, body = got(address, "/metrics")
        _, compressed = got(address, "/metrics", headers=SCRAPE)
    assert gzip.decompress(compressed).endswith(b"\n# EOF\n")
    for series in (
        r'reclaimd_passes_total\{result="satisfied",trigger="(interval|watch)"\} 1.0$',
        r'reclaimd_removals_total\{kind="image",result="removed"\} [1-9]',
        r'reclaimd_runtime_operations_total\{operation_type="remove_image"\} [1-9]',
        r'reclaimd_runtime_operations_errors_total\{operation_type="image_status"\} 0.0$',
        "process_resident_memory_bytes ",
    ):
        assert re.search(f"^{series}", body.decode(), re.MULTILINE), series
    assert status == 200
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


@pytest.mark.regression
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
