"""The HTTP server: hostile clients, the answers to probes, a scrape of a running daemon."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from eviction.surface.clients import MOST_CLIENTS, TIMEOUT_SECONDS
from eviction.surface.http_server import (
    LARGEST_REQUEST_BYTES,
    CannotListen,
    HttpServer,
    Page,
    health,
)
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.hostile_clients import KINDS, hostile_clients
from tests.thread_limit import no_thread_starts

SLACK_SECONDS = 30.0  # the machine is shared
HOSTILE = 200
PROBES = 10
PROBE_SECONDS = 3.0  # timeoutSeconds of the DaemonSet's probes
PROBE_FAILURES = 6  # failureThreshold: as many in a row restart it


def broken() -> Page:
    raise RuntimeError("a secret")


PAGES = {
    "/livez": lambda: health(None),
    "/broken": broken,
    "/large": lambda: Page(200, b"x" * 5_000_000),
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
    timeout_seconds: float = TIMEOUT_SECONDS + SLACK_SECONDS,
) -> tuple[int, bytes]:
    """Status and body of a page."""
    connection = http.client.HTTPConnection(address, timeout=timeout_seconds)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def connected(server: HttpServer) -> socket.socket:
    """A bare connection."""
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS + SLACK_SECONDS)


def response_to(server: HttpServer, request: bytes) -> bytes:
    """The answer to exactly these bytes."""
    with connected(server) as client:
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
    return data


@pytest.mark.parametrize(
    ("path", "status"),
    [("/livez", 200), ("/livez?verbose", 200), ("/large", 200), ("/", 404), ("/broken", 500)],
)
def test_pages_are_served_by_path(server: HttpServer, path: str, status: int) -> None:
    """A query is ignored, an unknown path is 404, an exception in a page is 500 without its
    message.
    """
    found, body = got(server.address, path)
    assert found == status
    assert b"secret" not in body
    assert len(body) == 5_000_000 if path == "/large" else len(body) < 200


def test_head_has_no_body_and_other_methods_are_refused(server: HttpServer) -> None:
    """HEAD 200 and empty; POST 405."""
    assert got(server.address, "/livez", "HEAD") == (200, b"")
    assert got(server.address, "/livez", "POST")[0] == 405


@pytest.mark.parametrize(
    "garbage",
    [b"\r\n\r\n", b"\x16\x03\x01\x02\x00" * 100 + b"\r\n\r\n", b"GET /livez\r\n\r\n", b"GET  /livez HTTP/1.1\r\n\r\n",
     os.urandom(20_000), b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\n\r\n", b"GET \xff\xfe HTTP/1.1\r\n\r\n"],
)  # fmt: skip
def test_garbage_is_answered_with_an_error_or_not_at_all(
    server: HttpServer, garbage: bytes
) -> None:
    """No 200, and the next client is served."""
    assert not re.match(rb"HTTP/1.1 [23]", response_to(server, garbage))
    assert got(server.address, "/livez")[0] == 200


def test_a_request_that_never_ends_is_cut(server: HttpServer) -> None:
    """Headers without end: answered or closed at 8 KiB."""
    answer = response_to(
        server, b"GET /livez HTTP/1.1\r\n" + b"X-Filler: 1\r\n" * LARGEST_REQUEST_BYTES
    )
    assert len(answer) < 1000


def test_a_slow_client_is_disconnected_after_two_seconds(server: HttpServer) -> None:
    """A byte now and then: the 2 s are for the whole request."""
    with connected(server) as client:

        def dropped() -> bool:
            try:
                client.sendall(b"G")
            except OSError:
                return True
            return False

        assert came_true(dropped, every_seconds=0.25)


def test_a_request_that_is_too_late_is_a_408(server: HttpServer) -> None:
    """408, after its 2 s."""
    with connected(server) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert (response.status, response.read()) == (408, b"the request did not arrive in time\n")


def is_probed(address: str) -> bool:
    """Whether a kubelet lets the process go on: one of as many probes as it may
    miss is answered in time.
    """
    for _ in range(PROBE_FAILURES):
        with suppress(TimeoutError):
            return got(address, "/livez", timeout_seconds=PROBE_SECONDS) == (200, b"ok\n")
    return False


@pytest.mark.regression
@pytest.mark.parametrize("kind", KINDS)
def test_a_probe_is_answered_beside_200_hostile_clients(server: HttpServer, kind: str) -> None:
    """Again and again, often enough that the DaemonSet's probe restarts nothing."""
    with hostile_clients(server.address, kind, HOSTILE, b"GET /large HTTP/1.1\r\n\r\n"):
        for _ in range(PROBES):
            assert is_probed(server.address)


@pytest.mark.regression
def test_a_daemon_beside_200_hostile_clients_is_live_and_relieves(small_node: SmallNode) -> None:
    """Forty of each kind, that ask for its metrics as far as they ask."""
    small_node.add_images(3)
    file = small_node.configuration(metricsAddress="127.0.0.1:0")
    under_pressure = small_node.configuration(
        Signal.NODEFS_AVAILABLE, MIB, metricsAddress="127.0.0.1:0"
    )
    with Daemon("--config", file) as daemon, ExitStack() as hostile:
        address = address_of(daemon)
        for kind in KINDS:
            request = b"GET /metrics HTTP/1.1\r\n\r\n"
            hostile.enter_context(hostile_clients(address, kind, HOSTILE // len(KINDS), request))
        for _ in range(PROBES):
            assert is_probed(address)
        Path(file).write_text(Path(under_pressure).read_text())
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert got(address, "/metrics", timeout_seconds=PROBE_SECONDS)[0] == 200


def test_pages_that_are_asked_for_together_are_made_once() -> None:
    """A page that takes long does not take as many times as long for as many clients."""
    entered, leave = threading.Event(), threading.Event()
    made: list[int] = []

    def page() -> Page:
        made.append(1)
        entered.set()
        leave.wait(SLACK_SECONDS)
        return Page(200, b"x")

    server = HttpServer(("127.0.0.1", 0), {"/slow": page})
    clients = [connected(server) for _ in range(20)]
    try:
        clients[0].sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        assert entered.wait(SLACK_SECONDS)
        for client in clients[1:]:
            client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        leave.set()
        assert all(client.recv(65536).startswith(b"HTTP/1.1 200") for client in clients)
        assert len(made) == 2, "the first one, and one for all the others"
    finally:
        for client in clients:
            client.close()
        server.stop()


@pytest.mark.regression
def test_a_server_answers_while_no_thread_can_be_started(server: HttpServer) -> None:
    """All that it needs was made at its start."""
    with no_thread_starts():
        for _ in range(MOST_CLIENTS):
            assert got(server.address, "/livez") == (200, b"ok\n")


@pytest.mark.regression
def test_a_server_without_its_thread_is_not_started() -> None:
    """One sentence, and the port is free again."""
    port = free_port()
    refused = pytest.raises(
        CannotListen, match=f"^127.0.0.1:{port}: no thread can be started for it$"
    )
    with no_thread_starts(), refused:
        HttpServer(("127.0.0.1", port), PAGES)
    server = HttpServer(("127.0.0.1", port), PAGES)
    assert got(server.address, "/livez")[0] == 200
    server.stop()


@pytest.mark.regression
def test_a_server_without_a_free_descriptor_answers_one_client_at_a_time(
    server: HttpServer,
) -> None:
    """With the one that it keeps for that, again and again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 50, hard)
    )
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(3):
            os.close(held.pop())
            with connected(server) as client:  # has the last descriptor
                client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
            held.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


@pytest.mark.regression
def test_a_socket_of_systemd_outlives_the_server() -> None:
    """It listens on when the daemon has stopped: the next start is served on it."""
    with socket.socket() as of_systemd:
        of_systemd.bind(("127.0.0.1", 0))
        of_systemd.listen()
        for _ in range(2):
            server = HttpServer(("127.0.0.1", 1), PAGES, of_systemd.dup())
            assert got(server.address, "/livez")[0] == 200
            server.stop()


def test_a_taken_port_is_refused_with_a_sentence(server: HttpServer) -> None:
    """Address and reason; nothing is left open."""
    host, _, port = server.address.rpartition(":")
    with pytest.raises(
        CannotListen, match=rf"^{re.escape(server.address)}: Address already in use "
    ):
        HttpServer((host, int(port)), PAGES)


def test_ipv6_is_served_too() -> None:
    """On ::1, where the machine has it."""
    try:
        server = HttpServer(("::1", 0), PAGES)
    except CannotListen as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    try:
        assert got(server.address, "/livez")[0] == 200
    finally:
        server.stop()


def test_a_stopped_server_answers_nobody(server: HttpServer) -> None:
    """The port is free again."""
    address = server.address
    server.stop()
    with pytest.raises(OSError, match="refused"):
        got(address, "/livez")


@pytest.mark.parametrize(
    ("why_not", "status", "body"), [(None, 200, b"ok\n"), ("it is late", 503, b"it is late\n")]
)
def test_livez_says_why_the_daemon_should_be_started_anew(
    why_not: str | None, status: int, body: bytes
) -> None:
    """503 with the sentence, else 200."""
    assert health(why_not) == Page(status, body)


def address_of(daemon: Daemon) -> str:
    """Where a daemon serves its pages."""
    event = daemon.wait_for(lambda event: "metrics and health are served" in event["message"])
    return str(event["address"])


def test_a_running_daemon_is_scraped_and_probed(small_node: SmallNode) -> None:
    """A node under pressure: live, ready, relieved; the metrics have the pass, and
    promtool finds no problem.
    """
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, metricsAddress="127.0.0.1:0")
    with Daemon("--config", file) as daemon:
        address = address_of(daemon)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert came_true(lambda: got(address, "/readyz")[0] == 200)
        assert got(address, "/livez") == (200, b"ok\n")
        status, body = got(address, "/metrics")
        assert status == 200
        text = body.decode()
        for series in (
            r'reclaimd_passes_total\{result="satisfied",trigger="(interval|watch)"\} 1.0$',
            r'reclaimd_removals_total\{kind="image",result="removed"\} [1-9]',
            r'reclaimd_runtime_operations_total\{operation_type="remove_image"\} [1-9]',
            r'reclaimd_runtime_operations_errors_total\{operation_type="image_status"\} 0.0$',
            "process_resident_memory_bytes ",
        ):
            assert re.search(f"^{series}", text, re.MULTILINE), series
        promtool = shutil.which("promtool")
        if promtool is not None:
            lint = subprocess.run(
                [promtool, "check", "metrics"],
                input=text,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (lint.returncode, lint.stderr) == (0, "")
        assert daemon.stop() == 0


def test_a_held_off_daemon_is_alive_and_not_ready(small_node: SmallNode) -> None:
    """503 with the reason on /readyz, 200 on /livez."""
    file = small_node.configuration(metricsAddress="127.0.0.1:0", holdOffAfterStart="1h")
    with Daemon("--config", file) as daemon:
        address = address_of(daemon)
        assert got(address, "/livez")[0] == 200
        assert came_true(lambda: b"held off: " in got(address, "/readyz")[1])
        assert got(address, "/readyz")[0] == 503


@pytest.mark.regression
def test_a_silent_kubelet_does_not_hold_up_the_pages(small_node: SmallNode) -> None:
    """Its `/healthz` accepts and does not answer, which costs 0.5 s; twenty pages
    in a row cost none of it.
    """
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        file = small_node.configuration(
            metricsAddress="127.0.0.1:0",
            holdOffAfterStart="1h",
            kubeletHealthzEndpoint=f"127.0.0.1:{port}",
        )
        with Daemon("--config", file) as daemon:
            address = address_of(daemon)
            began = time.monotonic()
            for _ in range(20):
                assert got(address, "/readyz")[0] == 503
            assert time.monotonic() - began < 20 * 0.5


def test_a_daemon_without_its_port_still_works(small_node: SmallNode, server: HttpServer) -> None:
    """A warning with the reason; pressure is relieved all the same."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, metricsAddress=server.address)
    with Daemon("--config", file) as daemon:
        daemon.wait_for(
            lambda event: event["message"].startswith(f"no metrics: {server.address}: ")
        )
        daemon.wait_for(lambda event: event.get("result") == "satisfied")


def test_serving_makes_no_file(tmp_path: Path, server: HttpServer) -> None:
    """Not even with the variable that makes prometheus-client count in files."""
    program = (
        "from eviction.surface.metrics import Metrics; from eviction.wording.status import"
        " NodeStatus;m = Metrics(NodeStatus);m.called('ListImages', 1.0, True);"
        " m.watched(); print(len(m.page().body))"
    )

    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert int(process.stdout) > 1000
    assert list(tmp_path.iterdir()) == []
