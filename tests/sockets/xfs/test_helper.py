"""The XFS helper as a process, under attack by whoever can connect; on other filesystems than XFS, which it refuses.

That it has a real XFS give back is in `tests/real_node/test_xfs.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.nodes.xfs_helper import PROGRAM, asked, client_of, running_helper
from tests.reclaimd_process import came_true
from tests.repository import ROOT
from tests.sockets.mounts import dead_filesystem, mounted_tmpfs, unmount

UNIT = (ROOT / "config" / "systemd" / "reclaimd-xfs.service").read_text()
REQUESTS_A_SECOND = 200
MOST_CLIENTS = 8


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose name leaves room for that of a socket."""
    with TemporaryDirectory() as directory:
        yield Path(os.path.realpath(directory))


@pytest.fixture
def path(short: Path) -> Iterator[str]:
    """The socket of a helper that may be asked for `/`, a plain directory, a symlink to it, and what is not there."""
    (short / "plain").mkdir()
    (short / "link").symlink_to("/")
    (short / "file").touch()
    places = [str(short / name) for name in ("plain", "link", "link/proc", "file", "absent")]
    with running_helper(str(short / "s"), "/", "/proc", *places):
        yield str(short / "s")


def test_only_its_own_user_may_connect_to_the_xfs_helper(path: str) -> None:
    """Mode 0600."""
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_the_xfs_helper_serves_the_mount_points_of_its_command_line_only(path: str, short: Path) -> None:
    """Byte for byte: nothing is normalized, and nothing below one is served."""
    for other in ("/etc", "/proc/", "//proc", "/proc/.", "/proc/../proc", "proc", "", "/proc\0", " /proc", "/proc\n"):
        assert asked(path, b"release " + other.encode()) == b"not-listed", other


def test_the_xfs_helper_refuses_what_is_no_mount_of_xfs(path: str, short: Path) -> None:
    """A plain directory, another filesystem, a symlink as the last name and before it, a file, nothing."""
    expected = {
        "/proc": b"not-xfs",
        str(short / "plain"): b"not-a-mount-point",
        str(short / "link"): b"ENOTDIR",
        str(short / "link/proc"): b"ENOTDIR",
        str(short / "file"): b"ENOTDIR",
        str(short / "absent"): b"ENOENT",
    }
    for what in (b"release ", b"check "):
        assert {place: asked(path, what + place.encode()) for place in expected} == expected


def test_another_filesystem_mounted_in_its_place_is_refused_and_asked_nothing(short: Path) -> None:
    """A tmpfs; a FUSE whose program never answers, so that whoever asks it hangs; and a plain directory again."""
    place = short / "place"
    place.mkdir()
    with running_helper(str(short / "s"), str(place)):
        request = b"release " + os.fsencode(place)
        assert asked(str(short / "s"), request) == b"not-a-mount-point"
        mounted_tmpfs(str(place), 1 << 20, 100)
        try:
            assert asked(str(short / "s"), request) == b"not-xfs"
        finally:
            unmount(str(place))
        with dead_filesystem(str(place)):
            assert asked(str(short / "s"), request) == b"not-xfs"
        assert asked(str(short / "s"), request) == b"not-a-mount-point"


def test_garbage_costs_the_xfs_helper_nothing(path: str) -> None:
    """What is no request is answered so; an empty or over-long packet ends its connection; no descriptor is taken."""
    for request in (b"x", b"release", b"release/proc", b"RELEASE /proc", b"\xff" * 4096, b"free /proc", b"-1 /proc"):
        assert asked(path, request) == b"not-listed"
    for request in (b"", b"release " + b"/" * 4096, os.urandom(100_000)):
        with client_of(path) as client:
            client.send(request)
            assert client.recv(256) == b""
    with client_of(path) as client, open("/dev/null") as null:
        socket.send_fds(client, [b"release /proc"], [null.fileno()] * 100)
        assert client.recv(256) == b"not-xfs"
    assert asked(path, b"release /proc") == b"not-xfs"


def test_silent_clients_do_not_keep_the_xfs_helper_from_others(path: str) -> None:
    """Thirty that connect and say nothing: of more than eight the one that has been silent longest goes."""
    with ExitStack() as clients:
        silent = [clients.enter_context(client_of(path)) for _ in range(30)]
        assert asked(path, b"release /proc") == b"not-xfs"
        assert silent[0].recv(1) == b"", "dropped"
        silent[-1].send(b"release /proc")
        assert silent[-1].recv(256) == b"not-xfs"


def test_clients_that_do_not_read_are_dropped_by_the_xfs_helper(path: str) -> None:
    """Eight of them ask until nothing more fits; another one is answered all the same."""
    with ExitStack() as clients:
        deaf = [clients.enter_context(client_of(path)) for _ in range(MOST_CLIENTS)]
        for client in deaf:
            client.setblocking(False)
            with suppress(OSError):
                while client.send(b"release /proc"):
                    pass
        assert asked(path, b"release /proc") == b"not-xfs"


def test_the_xfs_helper_serves_200_requests_a_second_at_most(path: str) -> None:
    """A client that asks as fast as it can: 100 answers take half a second or more."""
    with client_of(path) as client:
        began = time.monotonic()
        for _ in range(100):
            client.send(b"release /proc")
            assert client.recv(256) == b"not-xfs"
        assert time.monotonic() - began >= 99 / REQUESTS_A_SECOND


def test_a_socket_of_an_earlier_run_is_replaced_and_a_file_is_not(short: Path) -> None:
    """As after a kill."""
    left, file = short / "s", short / "f"
    with running_helper(str(left), "/"):
        pass
    with running_helper(str(left), "/"):
        assert asked(str(left), b"check /etc") == b"not-listed"
    file.write_text("mine")
    process = subprocess.run([PROGRAM, f"--socket={file}", "/"], capture_output=True, text=True, check=False)
    assert (process.returncode != 0, file.read_text()) == (True, "mine")


@pytest.mark.parametrize("arguments", [["relative"], ["/a/../b"], ["/a/"], ["//a"], [""], []])
def test_the_xfs_helper_refuses_a_path_that_could_mean_another(short: Path, arguments: list[str]) -> None:
    """Exit 2 with one sentence; so does no mount point, and no socket."""
    process = subprocess.run([PROGRAM, f"--socket={short}/s", *arguments], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "error: " in process.stderr
    process = subprocess.run([PROGRAM, "/"], capture_output=True, text=True, check=False)
    assert (process.returncode, "systemd has opened no socket" in process.stderr) == (2, True)


def listens_at(path: str) -> bool:
    """Whether somebody listens there: the socket is there a moment before."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as table:
        # the flag __SO_ACCEPTCON (unix(7), /proc/net/unix)
        return any(line.split()[3] == "00010000" and line.rstrip().endswith(f" {path}") for line in table)


def test_systemd_starts_the_xfs_helper_with_the_first_question(short: Path) -> None:
    """By systemd's own tool, as in the units."""
    tool = shutil.which("systemd-socket-activate")
    if tool is None:
        pytest.skip("no systemd-socket-activate (Debian package systemd)")
    listens = str(short / "s")
    with subprocess.Popen([tool, "--seqpacket", f"--listen={listens}", PROGRAM, "/", "/proc"]) as process:
        try:
            assert came_true(lambda: listens_at(listens))
            assert asked(listens, b"release /proc") == b"not-xfs"
        finally:
            process.kill()


def test_the_unit_allows_every_system_call_of_the_xfs_helper_and_none_that_its_capability_is_feared_for(
    short: Path,
) -> None:
    """Traced from its start to its end, with requests of every kind."""
    if shutil.which("strace") is None:
        pytest.skip("no strace (Debian package strace)")
    implicit = {"execve", "exit", "exit_group", "rt_sigreturn", "clock_nanosleep", "clock_gettime", "restart_syscall"}
    allowed = {name for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT, re.MULTILINE) for name in line.split()}
    trace = short / "trace"
    making = {"socket", "bind", "listen", "unlink"}  # of the socket, which systemd makes there
    with running_helper(str(short / "s"), "/", "/proc", before=["strace", "-f", "-o", str(trace)]) as process:
        for request in (b"release /", b"release /proc", b"check /proc", b"garbage"):
            assert asked(str(short / "s"), request)
        with client_of(str(short / "s")) as client:
            client.send(b"")
            assert client.recv(1) == b""
        tracer = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        os.kill(int(tracer.read_text().split()[0]), 15)
        process.wait(60.0)
    called = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert called - allowed - implicit - making == set()
    feared = {"mount", "umount2", "bpf", "setns", "unshare", "pivot_root", "open_by_handle_at", "fsopen", "swapon"}
    assert not allowed & (feared | {"ptrace", "clone", "fork", "socket", "connect", "unlink", "rename", "mkdir"})
    assert not any(name.startswith("@") for name in allowed)
