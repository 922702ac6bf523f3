"""`reclaimd top`: on the alternate screen of a terminal, as text elsewhere;
it restores the terminal.
"""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, came_true, reclaimd, reclaimd_here

ALTERNATE_SCREEN = b"\x1b[?1049h"
NO_DAEMON = "no daemon"


@pytest.fixture(scope="module")
def relieved_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Daemon]]:
    """A daemon that has relieved its node once, for all tests here that only
    look; the configuration file.
    """
    directory = tmp_path_factory.mktemp("top")
    node = SmallNode(directory)
    node.add_images(3)
    file = node.configuration(
        Signal.NODEFS_AVAILABLE, MIB, controlSocket=str(directory / "control" / "socket")
    )
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        yield file, daemon
    node.close()


@pytest.fixture
def relieved(relieved_node: tuple[str, Daemon]) -> Iterator[str]:
    """Its configuration file. Afterwards the daemon still runs, and has made no other pass."""
    file, daemon = relieved_node
    yield file
    assert daemon.process.poll() is None
    assert len(daemon.passes) == 1


def on_a_terminal(file: str, keys: bytes, **environment: str) -> tuple[int, bytes, bool]:
    """Exit code, output, and whether the terminal was restored; `keys` are
    typed after the first screen.
    """
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    before = termios.tcgetattr(slave)
    command = ["setsid", "--ctty", PROGRAM, "top", "--config", file, "--interval", "0.2"]
    variables = {**ENVIRONMENT, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=variables)
    drawn, deadline, typed = b"", time.monotonic() + 60.0, False
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.05)[0]:
                drawn += os.read(master, 65536)
            if not typed and b"satisfied" in drawn:
                os.write(master, keys)
                typed = True
        code = process.wait(60.0)
        while select.select([master], [], [], 0.05)[0]:
            drawn += os.read(master, 65536)
        return code, drawn, termios.tcgetattr(slave) == before
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
        os.close(slave)


def test_without_a_terminal_it_is_text(relieved: str) -> None:
    """Two screens, no escape, exit 0."""
    process = reclaimd("top", "--config", relieved, "--count", "2", "--interval", "0.1")
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.count("TIME TO THE MARK") == 2
    assert "nodefs.available" in process.stdout
    assert "satisfied" in process.stdout
    assert "\x1b" not in process.stdout


@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_on_a_terminal_it_is_drawn_until_q_or_ctrl_c(relieved: str, keys: bytes) -> None:
    """On the alternate screen; the terminal is restored."""
    code, drawn, put_back = on_a_terminal(relieved, keys)
    assert code == (0 if keys == b"q" else 130)
    assert ALTERNATE_SCREEN in drawn
    assert put_back


def test_no_color_is_honoured(relieved: str) -> None:
    """Text on the terminal, without colours and without the alternate screen."""
    code, drawn, put_back = on_a_terminal(relieved, b"q", NO_COLOR="1")
    assert (code, put_back) == (0, True)
    assert ALTERNATE_SCREEN not in drawn
    assert b"\x1b[3" not in drawn


def test_without_a_daemon_it_says_so() -> None:
    """Exit 3, one sentence."""
    process = reclaimd("top", "--kubelet-config", "", "--count", "1")
    assert process.returncode == 3
    assert process.stderr.count("\n") == 1


def test_a_daemon_that_comes_back_is_shown_again(small_node: SmallNode, tmp_path: Path) -> None:
    """Meanwhile it says that no daemon answers, and goes on."""
    file = small_node.configuration(controlSocket=str(tmp_path / "control" / "socket"))
    with Daemon("--config", file):
        command = [PROGRAM, "top", "--config", file, "--interval", "0.1"]
        output = tmp_path / "screens"
        with output.open("w") as screens:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=screens, env=ENVIRONMENT
            )
        assert came_true(lambda: "TIME TO THE MARK" in output.read_text())
    try:
        assert came_true(lambda: NO_DAEMON in output.read_text())
        with Daemon("--config", file):
            assert came_true(
                lambda: "TIME TO THE MARK" in output.read_text().rpartition(NO_DAEMON)[2]
            )
    finally:
        process.terminate()
        process.wait(60.0)


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "soon", "1e9"])
def test_an_invalid_interval_is_refused(interval: str) -> None:
    """Exit 2."""
    assert reclaimd_here("top", "--interval", interval).returncode == 2
