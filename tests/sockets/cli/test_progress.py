"""Progress: one line on a terminal after the first second, erased at the end; nothing
where there is no terminal.
"""

from __future__ import annotations

import io
import os
import pty
import re
import select
import struct
import termios
import time
from contextlib import redirect_stderr, redirect_stdout
from fcntl import ioctl
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from eviction.cli.main import main
from eviction.cli.progress import AFTER_SECONDS, ERASE, Progress
from signals.types import Signal
from tests.nodes.faults import Delay
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, Daemon, came_true, reclaimd_here, started

SLOW_SECONDS = 1.6
LONGEST_SECONDS = 60.0


class Terminal:
    """A terminal of a given width; `shown` is everything that was written to it."""

    def __init__(self, columns: int = 80):
        self._master, self.slave = pty.openpty()
        ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.shown = ""

    def read(self, wait_seconds: float = 0.1) -> str:
        """Everything that was written so far."""
        while select.select([self._master], [], [], wait_seconds)[0]:
            self.shown += os.read(self._master, 65536).decode()
        return self.shown

    def close(self) -> None:
        """Closes the terminal."""
        os.close(self._master)
        os.close(self.slave)


def on_a_terminal(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout (a file), and what a terminal on stderr showed."""
    terminal = Terminal()
    variables = {**ENVIRONMENT, "TERM": "xterm-256color", **environment}
    with TemporaryFile("w+") as output:
        process = started(
            *arguments, streams=(0, output.fileno(), terminal.slave), environment=variables
        )
        try:
            deadline = time.monotonic() + LONGEST_SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                terminal.read(0.05)
            code = process.wait(60.0)
            output.seek(0)
            return code, output.read(), terminal.read()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            terminal.close()


def left_on(shown: str) -> list[str]:
    """The lines that the terminal still shows at the end, without those that were rewritten."""
    return [line.rpartition(ERASE)[2] for line in shown.replace("\r\n", "\n").split("\n")]


@pytest.fixture
def slow_node(small_node: SmallNode) -> SmallNode:
    """A node with three old images whose runtime lists them slowly."""
    small_node.add_images(3)
    small_node.failpoints["ListImages"] = Delay(SLOW_SECONDS)
    return small_node


@pytest.mark.parametrize(
    ("command", "doing"),
    [
        (("plan",), "listing containers and images, and planning"),
        (("doctor",), "asking the runtime, the kernel and the daemon"),
        (("reclaim", "--standalone", "--now"), "reclaiming"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_waiting_for_a_slow_runtime_is_shown(
    slow_node: SmallNode, command: tuple[str, ...], doing: str
) -> None:
    """What is done and for how long, on one line that is erased at the end;
    stdout has only data.
    """
    file = slow_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    _, output, shown = on_a_terminal(*command, "--config", file)
    assert re.search(rf"\r\x1b\[K +\d+\.\d s  {doing}", shown)
    assert left_on(shown) == [""]
    assert "\x1b" not in output
    assert output


@pytest.mark.parametrize("command", ["plan", "check", "config", "doctor"])
def test_nothing_is_shown_in_the_first_second(
    small_node: SmallNode, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a byte on the terminal."""
    monkeypatch.setenv("TERM", "xterm-256color")
    file = small_node.configuration(controlSocket="", evictionHard={"nodefs.available": "1Mi"})
    began = time.monotonic()
    terminal, output = Terminal(), io.StringIO()
    with (
        os.fdopen(os.dup(terminal.slave), "w") as stream,
        redirect_stderr(stream),
        redirect_stdout(output),
    ):
        main([command, "--config", file])
    shown = terminal.read()
    terminal.close()
    assert shown == "" or time.monotonic() - began > AFTER_SECONDS, (
        "unless the machine is that busy"
    )
    assert output.getvalue()


def test_without_a_terminal_there_is_no_progress(slow_node: SmallNode) -> None:
    """Nor on a dumb one: a log of a CI stays readable."""
    file = slow_node.configuration()
    assert reclaimd_here("plan", "--config", file).stderr == ""
    assert on_a_terminal("plan", "--config", file, TERM="dumb")[2] == ""


def test_a_slow_removal_is_named(small_node: SmallNode) -> None:
    """Which image is being removed."""
    small_node.add_images(2)
    small_node.failpoints["RemoveImage"] = Delay(SLOW_SECONDS)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB)
    code, output, shown = on_a_terminal("reclaim", "--standalone", "--now", "--config", file)
    assert code == 0
    assert "reclaiming: image registry.example/old/0:1" in shown
    assert left_on(shown) == [""]
    assert "satisfied" in output


def test_what_the_daemon_does_for_a_request_is_shown(small_node: SmallNode, tmp_path: Path) -> None:
    """With every heartbeat of the daemon."""
    small_node.add_images(2)
    control = str(tmp_path / "control" / "socket")
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE, MIB, controlSocket=control, holdOffAfterStart="1h"
    )
    with Daemon("--config", file):
        assert came_true(
            lambda: '"single"' in reclaimd_here("status", "--config", file, "-o", "json").stdout
        )
        small_node.failpoints["RemoveImage"] = Delay(2 * SLOW_SECONDS)
        code, output, shown = on_a_terminal("reclaim", "--now", "--config", file)
    assert code == 0
    assert "s  the daemon is relieving on request" in shown
    assert left_on(shown) == [""]
    assert "satisfied" in output


def test_an_interruption_leaves_a_clean_line() -> None:
    """The line is erased, whatever ends the work."""
    terminal = Terminal()

    def work() -> None:
        with redirect_stderr(stream), Progress("counting"):
            assert came_true(lambda: "counting" in terminal.read())
            raise KeyboardInterrupt

    with os.fdopen(os.dup(terminal.slave), "w") as stream, pytest.raises(KeyboardInterrupt):
        work()
    assert left_on(terminal.read()) == [""]
    terminal.close()


def test_a_line_is_never_wider_than_the_terminal() -> None:
    """A wrapped line could not be erased; control characters in names are escaped."""
    terminal = Terminal(columns=30)
    with os.fdopen(os.dup(terminal.slave), "w") as stream, redirect_stderr(stream):
        line = Progress("")
        line.rewrite("removing image registry.example/" + "x" * 100)
        line.rewrite("removing \x1b[2J\n")
        line.__exit__()
    first, second = terminal.read().removesuffix(ERASE).split(ERASE)[1:]
    assert first == "removing image registry.examp"
    assert second == r"removing \x1b[2J\n"
    terminal.close()


def test_the_work_goes_on_when_the_terminal_is_closed() -> None:
    """It goes on without the line."""
    terminal = Terminal()
    stream = os.fdopen(os.dup(terminal.slave), "w")
    with redirect_stderr(stream):
        line = Progress("")
        terminal.close()
        line.rewrite("counting")
        line.__exit__()
    assert not line.live
    stream.close()  # nothing is left unwritten, which would fail here
