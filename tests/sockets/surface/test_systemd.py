"""systemd: notifications, and the sockets that it opens for the service. That the units are valid:
`tests/sockets/config/told/names.txt`.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from eviction.engine.hold_off import kubelet_is_healthy, watch_kubelet
from eviction.surface.systemd import LONGEST_STATUS_BYTES, Notifier, listening_socket
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, came_true
from tests.rows import rows
from tests.sockets.kubelet_server import KubeletServer, answer
from tests.sockets.passes import says
from tests.sockets.surface.test_http_server import got
from tests.tool import tool


class ServiceManager:
    """The end of the socket that systemd reads: every message as a list of lines."""

    def __init__(self, address: str):
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self._messages: list[list[str]] = []

    def close(self) -> None:
        """Hears no more."""
        self._socket.close()

    def heard(self) -> list[list[str]]:
        """Everything so far."""
        while True:
            try:
                self._messages.append(self._socket.recv(65536).decode().split("\n"))
            except BlockingIOError:
                return self._messages

    def has(self, line: str, times: int = 1) -> bool:
        """Whether so many messages have a line that begins so."""
        found = [each for message in self.heard() for each in message if each.startswith(line)]
        return len(found) >= times


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    """A service manager that listens."""
    made = ServiceManager(str(tmp_path / "notify"))
    yield made
    made.close()


def notifier(address: str, **environment: str) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": address, **environment}, 42)


def test_every_state_is_sent_in_the_format_of_sd_notify() -> None:
    """READY, RELOADING with the time of the reload, STOPPING; `@name` is the abstract socket of that
    name. The same status is sent once and in one line: a name with a line feed in it cannot become
    another assignment, and a long text is cut."""
    name = f"reclaimd-test-{os.getpid()}"
    manager, teller = ServiceManager("\0" + name), notifier("@" + name)
    teller.ready()
    teller.reloading()
    teller.stopping()
    for status in ("removed a\nSTOPPING=1", "removed a\nSTOPPING=1", "ä" * 10_000):
        teller.status(status)
    ready, (reloading, at), stopping, first, (second,) = manager.heard()
    manager.close()
    assert (ready, reloading, stopping) == (["READY=1"], "RELOADING=1", ["STOPPING=1"])
    assert int(at.removeprefix("MONOTONIC_USEC=")) > 0
    assert first == ["STATUS=removed a STOPPING=1"]
    assert len(second.encode()) <= LONGEST_STATUS_BYTES + len("STATUS=")


@rows(
    """
    usec     | pid | period
    20000000 | 42  | 5.0
             | 42  |
    0        | 42  |
    -1       | 42  |
    soon     | 42  |
    too long | 42  |
    20000000 | 43  |
    """
)
def test_the_watchdog_gets_four_keep_alives_a_period(
    manager: ServiceManager, usec: str, pid: str, period: float | None
) -> None:
    """With a hundred observations a second, and without a free descriptor, as the socket was made at
    the start. Without a watchdog, with an invalid one or that of another process none is sent, and
    the loop may sleep as it likes."""
    environment = {"WATCHDOG_USEC": usec.replace("too long", "1" * 400)} if usec else {}
    teller = notifier(manager.address, **environment, WATCHDOG_PID=pid)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        for number in range(2000):
            teller.keep_alive(100.0 + number / 100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert manager.heard() == [["WATCHDOG=1"]] * (4 if period else 0)
    assert [teller.longest_sleep(each) for each in (600.0, 1.0)] == [period or 600.0, 1.0]


@pytest.mark.parametrize("where", ["", "relative", "@", "/" + "x" * 200, "/nowhere/at/all"])
def test_without_a_service_manager_nothing_happens(where: str) -> None:
    """Started by hand, or with an address that does not exist: no error, no delay."""
    teller = notifier(where)
    teller.ready()
    teller.keep_alive(1.0)
    teller.stopping()


def test_a_service_manager_that_does_not_read_causes_no_delay(manager: ServiceManager) -> None:
    """Ten thousand messages into a full buffer are lost without an error."""
    teller = notifier(manager.address)
    for number in range(10_000):
        teller.status(str(number))
    assert manager.has("STATUS=0")


def test_a_daemon_notifies_systemd(manager: ServiceManager, small_node: SmallNode) -> None:
    """READY with its first observation, keep-alives with each further one, the pass as status,
    reload, stop."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    address = manager.address
    with Daemon("--config", file, NOTIFY_SOCKET=address, WATCHDOG_USEC="2000000") as daemon:
        for line, times in (
            ("READY=1", 1),
            ("WATCHDOG=1", 3),
            ("STATUS=ReclaimPressure (below our mark); ", 1),
        ):
            assert came_true(lambda line=line, times=times: manager.has(line, times))  # type: ignore[misc] # mypy does not infer the defaults
        relieved = "STATUS=ReclaimPressure (was below our mark); last pass satisfied: "
        assert came_true(lambda: manager.has(relieved))  # with the look after it
        daemon.process.send_signal(signal.SIGHUP)
        assert came_true(lambda: manager.has("RELOADING=1") and manager.has("READY=1", 2))
        daemon.wait_for(says("reloaded"))
    assert manager.has("STOPPING=1")


def activated(listens: str, *command: str, name: str = "metrics") -> subprocess.Popen[bytes]:
    """A program that systemd's own tool starts at the first connection, with the socket that it
    listens on."""
    environment = [f"--setenv={key}={value}" for key, value in ENVIRONMENT.items()]
    program = tool("systemd-socket-activate", "systemd")
    words = [program, *environment, f"--fdname={name}", f"--listen={listens}", *command]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)


def test_a_service_without_a_network_is_scraped_over_the_socket_of_systemd(
    small_node: SmallNode,
) -> None:
    """As the units have it: systemd opens the port, and the service has a network namespace in which
    there is none."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    address = f"127.0.0.1:{free_port()}"
    file = small_node.configuration(metricsAddress=address)
    unshare = tool("unshare", "util-linux")
    process = activated(address, unshare, "--net", PROGRAM, "run", "--config", file)

    def is_scraped() -> bool:
        try:
            return b"reclaimd_build_info" in got(address, "/metrics")[1]
        except OSError:
            return False

    try:
        assert came_true(is_scraped)
    finally:
        process.terminate()
        assert process.wait(60.0) == 0


def address_of(kubelet: KubeletServer) -> tuple[str, int]:
    """Its address and its port."""
    return "127.0.0.1", int(kubelet.url.rpartition(":")[2])


@pytest.mark.parametrize("status", [200, 500])
def test_the_kubelets_healthz_is_asked_over_a_port_or_a_socket(status: int) -> None:
    """The socket leads there through systemd's own proxy, as in the units."""
    proxy = "/usr/lib/systemd/systemd-socket-proxyd"
    if not os.path.exists(proxy):
        pytest.skip("no systemd-socket-proxyd (Debian package systemd)")
    with KubeletServer(answer(b"ok", status)) as kubelet, TemporaryDirectory() as short:
        address = address_of(kubelet)
        process = activated(f"{short}/s", proxy, "{}:{}".format(*address), name="healthz")
        try:
            assert came_true(lambda: kubelet_is_healthy(address) is (status == 200))
            assert came_true(lambda: os.path.exists(f"{short}/s"))
            assert came_true(lambda: kubelet_is_healthy(f"{short}/s") is (status == 200))
        finally:
            process.terminate()
            process.wait(60.0)
        assert all(each.startswith("GET /healthz HTTP/1.1\r\n") for each in kubelet.requests)


def test_without_an_answer_the_kubelet_is_not_healthy(tmp_path: Path) -> None:
    """A port without a listener, a missing socket, one that does not answer, and no endpoint at
    all."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = (("127.0.0.1", free_port()), f"{tmp_path}/none", None, silent.getsockname())
        assert not any(map(kubelet_is_healthy, places))


def test_the_watch_asks_until_the_kubelet_was_healthy() -> None:
    """First 503, which is told with what follows; then 200, which 0.7 s later is not too late for
    it. Its thread ends. Where nobody is asked, that is told."""
    told: list[str] = []
    with KubeletServer(answer(b"", 503)) as kubelet:
        healthy, address = threading.Event(), address_of(kubelet)
        watch_kubelet(address, 600.0, healthy.set, stopping=threading.Event(), tell=told.append)
        assert came_true(lambda: bool(told))
        assert not healthy.is_set()
        kubelet.script = [0.7, answer(b"ok")]
        assert healthy.wait(60.0)
        watching = "the kubelet's /healthz"
        assert came_true(lambda: all(t.name != watching for t in threading.enumerate()))
    watch_kubelet(None, 0.1, healthy.clear, stopping=threading.Event(), tell=told.append)
    why = "after a boot all pods look dead until the kubelet has started them"
    unless = ", unless the kubelet answers on /healthz before"
    assert came_true(lambda: len(told) == 2)
    assert told == [
        f"nothing is removed for 10m{unless}: {why}",
        f"nothing is removed for 0ms: {why}",
    ]
    assert healthy.is_set()


@rows(
    """
    pid | sockets | names
        |         |
        | 1       |
    43  | 1       | metrics
    42  | 1       | other
    42  | 1       |
    """
)
def test_a_socket_that_was_not_opened_for_this_process_is_not_used(
    pid: str, sockets: str, names: str
) -> None:
    """No socket, one for another process, or one of another name."""
    given = {"LISTEN_PID": pid, "LISTEN_FDS": sockets, "LISTEN_FDNAMES": names}
    environment = {name: value for name, value in given.items() if value}
    assert listening_socket(environment, 42, "metrics") is None
