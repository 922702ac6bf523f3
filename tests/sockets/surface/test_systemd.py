"""systemd: notifications, the sockets that it opens for the service, and that
the units are valid.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from eviction.engine.hold_off import kubelet_is_healthy, watch_kubelet
from eviction.surface.systemd import LONGEST_STATUS_BYTES, Notifier, listening_socket
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, came_true
from tests.repository import ROOT

UNITS = ROOT / "config" / "systemd"


class ServiceManager:
    """The end of the socket that systemd reads: every message as a list of lines."""

    def __init__(self, address: str):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self.messages: list[list[str]] = []

    def close(self) -> None:
        """Hears no more."""
        self._socket.close()

    def heard(self) -> list[list[str]]:
        """Everything so far."""
        while True:
            try:
                self.messages.append(self._socket.recv(65536).decode().split("\n"))
            except BlockingIOError:
                return self.messages

    def has(self, line: str) -> bool:
        """Whether any message holds this line."""
        return any(line in message for message in self.heard())


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The path of the socket."""
    return str(tmp_path / "notify")


@pytest.fixture
def manager(address: str) -> Iterator[ServiceManager]:
    """A service manager that listens."""
    made = ServiceManager(address)
    yield made
    made.close()


def notifier(address: str, **environment: str) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": address, **environment}, 42)


def test_every_state_is_sent_in_the_format_of_sd_notify(
    manager: ServiceManager, address: str
) -> None:
    """READY, RELOADING with the time of the reload, STOPPING."""
    teller = notifier(address)
    teller.ready()
    teller.reloading()
    teller.stopping()
    ready, reloading, stopping = manager.heard()
    assert ready == ["READY=1"]
    assert reloading[0] == "RELOADING=1"
    assert int(reloading[1].removeprefix("MONOTONIC_USEC=")) > 0
    assert stopping == ["STOPPING=1"]


def test_an_abstract_address_is_understood() -> None:
    """`@name` is the abstract socket of that name."""
    name = f"reclaimd-test-{os.getpid()}"
    manager = ServiceManager("\0" + name)
    try:
        notifier("@" + name).ready()
        assert manager.heard() == [["READY=1"]]
    finally:
        manager.close()


def test_the_same_status_is_sent_once_and_in_one_line(
    manager: ServiceManager, address: str
) -> None:
    """A name with a line feed in it cannot become another assignment; a long text is cut."""
    teller = notifier(address)
    teller.status("removed a\nSTOPPING=1")
    teller.status("removed a\nSTOPPING=1")
    teller.status("ä" * 10_000)
    first, second = manager.heard()
    assert first == ["STATUS=removed a STOPPING=1"]
    assert len(second[0].encode()) <= LONGEST_STATUS_BYTES + len("STATUS=")


def test_the_watchdog_gets_four_keep_alives_a_period(manager: ServiceManager, address: str) -> None:
    """With a hundred observations a second and WatchdogSec=20 one is sent every 5 s."""
    teller = notifier(address, WATCHDOG_USEC="20000000", WATCHDOG_PID="42")
    for number in range(2000):
        teller.keep_alive(100.0 + number / 100)
    assert manager.heard() == [["WATCHDOG=1"]] * 4
    assert teller.longest_sleep(600.0) == 5.0
    assert teller.longest_sleep(1.0) == 1.0


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "-1"}, {"WATCHDOG_USEC": "soon"},
     {"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "43"}, {"WATCHDOG_USEC": "1" * 400}],
)  # fmt: skip
def test_without_a_watchdog_no_keep_alive_is_sent(
    manager: ServiceManager, address: str, environment: dict[str, str]
) -> None:
    """None configured, an invalid one, or that of another process: none is sent, and the
    loop may sleep as it likes.
    """
    teller = notifier(address, **environment)
    teller.keep_alive(1.0)
    assert manager.heard() == []
    assert teller.longest_sleep(600.0) == 600.0


@pytest.mark.parametrize("where", ["", "relative", "@", "/" + "x" * 200, "/nowhere/at/all"])
def test_without_a_service_manager_nothing_happens(where: str) -> None:
    """Started by hand, or with an address that does not exist: no error, no delay."""
    teller = notifier(where)
    teller.ready()
    teller.keep_alive(1.0)
    teller.stopping()


def test_a_service_manager_that_does_not_read_causes_no_delay(
    manager: ServiceManager, address: str
) -> None:
    """Ten thousand messages into a full buffer are lost without an error."""
    teller = notifier(address)
    for number in range(10_000):
        teller.status(str(number))
    assert manager.has("STATUS=0")


@pytest.mark.regression
def test_the_watchdog_is_fed_without_a_free_descriptor(
    manager: ServiceManager, address: str
) -> None:
    """The socket was made at the start."""
    teller = notifier(address, WATCHDOG_USEC="20000000")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        teller.keep_alive(1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert manager.heard() == [["WATCHDOG=1"]]


def test_a_daemon_notifies_systemd(
    manager: ServiceManager, address: str, small_node: SmallNode
) -> None:
    """READY with its first observation, keep-alives with each further one, the
    pass as status, reload, stop.
    """
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    with Daemon("--config", file, NOTIFY_SOCKET=address, WATCHDOG_USEC="2000000") as daemon:
        assert came_true(lambda: manager.has("READY=1"))
        assert came_true(lambda: len([m for m in manager.heard() if m == ["WATCHDOG=1"]]) >= 3)
        said = "STATUS=ReclaimPressure (below our mark); "
        assert came_true(lambda: any(m[-1].startswith(said) for m in manager.heard()))
        assert came_true(lambda: any("; last pass satisfied: " in m[-1] for m in manager.heard()))
        daemon.process.send_signal(signal.SIGHUP)
        assert came_true(lambda: any(message[0] == "RELOADING=1" for message in manager.heard()))
        assert came_true(lambda: manager.has("READY=1") and ["READY=1"] in manager.heard()), (
            "after the reload"
        )
        daemon.wait_for(lambda event: "reloaded" in event["message"])
        assert daemon.stop() == 0
    assert manager.has("STOPPING=1")


def test_root_without_any_capability_is_enough(small_node: SmallNode) -> None:
    """As the unit has it: an empty capability set, no new privileges; pressure is relieved."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.geteuid() != 0:
        pytest.skip("needs root and setpriv (Debian package util-linux)")
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    bare = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    with Daemon("--config", file, before=bare) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        assert daemon.stop() == 0


def analyzer() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze (Debian package systemd)")
    return found


def units(directory: Path, *drop_ins: str) -> Path:
    """The units with the program of this environment in place of the installed one,
    and drop-ins; the service.
    """
    for file in UNITS.glob("reclaimd*.*"):
        if file.is_file():
            (directory / file.name).write_text(
                file.read_text().replace("/opt/reclaimd/bin/reclaimd", PROGRAM)
            )
    for name in drop_ins:
        target = directory / "reclaimd.service.d" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(UNITS / "reclaimd.service.d" / name, target)
    return directory / "reclaimd.service"


@pytest.mark.regression
def test_systemd_starts_a_service_again_that_found_the_node_held() -> None:
    """75 is tried again for ever, 2 is not; the directory of the lock outlives the service."""
    unit = (UNITS / "reclaimd.service").read_text().splitlines()
    assert {"Restart=always", "RestartPreventExitStatus=2", "StartLimitIntervalSec=0"} <= set(unit)
    assert {"RuntimeDirectory=reclaimd", "RuntimeDirectoryPreserve=yes"} <= set(unit)


@pytest.mark.parametrize("drop_ins", [(), ("network.conf",), ("kubernetes-events.conf",)])
def test_systemd_finds_nothing_wrong_with_the_units(
    tmp_path: Path, drop_ins: tuple[str, ...]
) -> None:
    """`systemd-analyze verify` prints nothing."""
    units(tmp_path, *drop_ins)
    command = [
        analyzer(),
        "verify",
        "--man=no",
        *map(str, sorted(tmp_path.glob("*.*t")) + sorted(tmp_path.glob("*e"))),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("name", "drop_ins", "exposure"),
    [
        ("reclaimd.service", (), 0.7),
        ("reclaimd.service", ("network.conf",), 1.5),
        ("reclaimd.service", ("kubernetes-events.conf",), 1.5),
        ("reclaimd-healthz.service", (), 1.1),
    ],
)
def test_a_unit_is_exposed_as_little_as_its_work_allows(
    tmp_path: Path, name: str, drop_ins: tuple[str, ...], exposure: float
) -> None:
    """The remaining exposure is what it needs: root's sockets, and for the proxy
    beside it the kubelet's port.
    """
    units(tmp_path)
    file = tmp_path / name
    for drop_in in drop_ins:  # the offline analysis reads one file
        file.write_text(file.read_text() + (UNITS / "reclaimd.service.d" / drop_in).read_text())
    command = [
        analyzer(),
        "security",
        "--offline=true",
        f"--threshold={round(exposure * 10)}",
        str(file),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout.splitlines()[-1]


def test_no_unit_has_a_capability() -> None:
    """Neither the daemon's nor the proxy's."""
    services = [file for file in UNITS.glob("*.service") if file.is_file()]
    held = {
        file.name: re.findall(r"^CapabilityBoundingSet=(.*)$", file.read_text(), re.MULTILINE)
        for file in services
    }
    assert held == {"reclaimd.service": [""], "reclaimd-healthz.service": [""]}


def activated(listens: str, *command: str, name: str = "metrics") -> subprocess.Popen[bytes]:
    """A program that systemd's own tool starts at the first connection, with the
    socket that it listens on.
    """
    tool = shutil.which("systemd-socket-activate")
    if tool is None:
        pytest.skip("no systemd-socket-activate (Debian package systemd)")
    environment = [f"--setenv={key}={value}" for key, value in ENVIRONMENT.items()]
    return subprocess.Popen(
        [tool, *environment, f"--fdname={name}", f"--listen={listens}", *command],
        stderr=subprocess.DEVNULL,
    )


def test_a_service_without_a_network_is_scraped_over_the_socket_of_systemd(
    small_node: SmallNode,
) -> None:
    """As the units have it: systemd opens the port, and the service has a network
    namespace in which there is none.
    """
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare (Debian package util-linux)")
    port = free_port()
    file = small_node.configuration(metricsAddress=f"127.0.0.1:{port}")
    process = activated(f"127.0.0.1:{port}", "unshare", "--net", PROGRAM, "run", "--config", file)
    try:
        assert came_true(lambda: b"reclaimd_build_info" in got(port, "/metrics"))
    finally:
        process.terminate()
        assert process.wait(60.0) == 0


def got(port: int, path: str) -> bytes:
    """The answer to a GET; empty without one."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60.0) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


class Healthz(BaseHTTPRequestHandler):
    """A kubelet's `/healthz`."""

    status = 200

    def do_GET(self) -> None:
        """`ok`, or not."""
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Silent."""


class SickHealthz(Healthz):
    """The `/healthz` of a kubelet that is not healthy."""

    status = 500


@pytest.mark.parametrize(("kubelet", "healthy"), [(Healthz, True), (SickHealthz, False)])
def test_the_kubelets_healthz_is_asked_over_a_port_or_a_socket(
    tmp_path: Path, kubelet: type[Healthz], healthy: bool
) -> None:
    """The socket leads there through systemd's own proxy, as in the units."""
    proxy = Path("/usr/lib/systemd/systemd-socket-proxyd")
    if not proxy.exists():
        pytest.skip("no systemd-socket-proxyd (Debian package systemd)")
    with ThreadingHTTPServer(("127.0.0.1", 0), kubelet) as server, TemporaryDirectory() as short:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        process = activated(f"{short}/s", str(proxy), f"127.0.0.1:{port}", name="healthz")
        try:
            assert kubelet_is_healthy(("127.0.0.1", port)) is healthy
            assert came_true(lambda: os.path.exists(f"{short}/s"))
            assert came_true(lambda: kubelet_is_healthy(f"{short}/s") is healthy)
        finally:
            process.terminate()
            process.wait(60.0)
            server.shutdown()


def test_without_an_answer_the_kubelet_is_not_healthy(tmp_path: Path) -> None:
    """A port without a listener, a missing socket, one that does not
    answer, and no endpoint at all.
    """
    assert not kubelet_is_healthy(("127.0.0.1", free_port()))
    assert not kubelet_is_healthy(str(tmp_path / "none.sock"))
    assert not kubelet_is_healthy(None)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert not kubelet_is_healthy(silent.getsockname())


def test_the_watch_asks_until_the_kubelet_was_healthy() -> None:
    """First 503; then 200, which 0.7 s later is not too late for it. Its thread ends."""
    asked: list[str] = []

    class Starting(Healthz):
        """It is not healthy yet when it is asked first."""

        def do_GET(self) -> None:
            asked.append(self.path)
            self.status = 503 if len(asked) == 1 else 200
            time.sleep(0.7 if self.status == 200 else 0.0)
            super().do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        healthy = threading.Event()
        address = ("127.0.0.1", server.server_address[1])
        watch_kubelet(address, 600.0, healthy.set, stopping=threading.Event())
        assert healthy.wait(60.0)
        assert came_true(
            lambda: all(thread.name != "the kubelet's /healthz" for thread in threading.enumerate())
        )
        assert len(asked) > 1
        server.shutdown()


@pytest.mark.parametrize(
    "environment",
    [{}, {"LISTEN_FDS": "1"}, {"LISTEN_PID": "43", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "metrics"},
     {"LISTEN_PID": "42", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "other"}, {"LISTEN_PID": "42", "LISTEN_FDS": "1"}],
)  # fmt: skip
def test_a_socket_that_was_not_opened_for_this_process_is_not_used(
    environment: dict[str, str],
) -> None:
    """No socket, one for another process, or one of another name."""
    assert listening_socket(environment, 42, "metrics") is None
