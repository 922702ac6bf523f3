"""What commands print on terminals of 80x24 and of 60x15: every line fits, and `top` is no
higher than the terminal.

No runtime is needed: a daemon without one still observes its own filesystem.
"""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl

import pytest

from tests.reclaimd_process import (
    ENVIRONMENT,
    Daemon,
    came_true,
    reclaimd_here,
    started,
    write_configuration,
)

PATIENCE_SECONDS = 60.0
SIZES = [(80, 24), (60, 15)]
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SIGNALS = [f"nodefs.{unit}" for unit in ("available", "inodesFree")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The configuration file of a daemon that is held off, in a dry run, and has
    nothing but its own disk.
    """
    directory = tmp_path_factory.mktemp("screens")
    (directory / "kubelet").mkdir()
    file = write_configuration(
        directory / "reclaimd.yaml",
        rootDirectory=str(directory / "kubelet"),
        containerRuntimeEndpoint=f"unix://{directory}/none.sock",
        controlSocket=str(directory / "run" / "control.sock"),
        historyFile=str(directory / "history"),
        holdOffAfterStart="1h",
        dryRun=True,
    )
    with Daemon("--config", str(file)):
        assert came_true(
            lambda: "nodefs.available" in reclaimd_here("status", "--config", str(file)).stdout
        )
        yield str(file)


def on_a_terminal(columns: int, rows: int, *arguments: str, **environment: str) -> str:
    """What a command writes on a terminal of this size, without escapes."""
    return ESCAPE.sub("", as_written(columns, rows, *arguments, **environment))


def as_written(columns: int, rows: int, *arguments: str, **environment: str) -> str:
    """The same with escapes."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    variables = {
        key: value for key, value in ENVIRONMENT.items() if key not in ("COLUMNS", "LINES")
    }
    with open(os.devnull, "r+") as null:
        streams = (null.fileno(), slave, null.fileno())
        process = started(
            *arguments, streams=streams, environment={**variables, "TERM": "xterm", **environment}
        )
    os.close(slave)
    written, deadline = b"", time.monotonic() + PATIENCE_SECONDS
    try:
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.1)[0]:
                continue
            try:
                part = os.read(master, 65536)
            except OSError:  # the last process has closed it
                break
            written += part
        process.wait(PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.regression
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_top_keeps_its_state_and_its_signals(node: str, columns: int, rows: int) -> None:
    """Why nothing is removed, each signal; never more rows than the terminal has."""
    lines = on_a_terminal(
        columns, rows, "top", "--config", node, "--count", "1", NO_COLOR="1"
    ).splitlines()
    assert len(lines) < rows
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith(("no ReclaimPressure", "ReclaimPressure"))
    assert any(line.startswith("held off: ") for line in lines)
    assert any(line.startswith("dry run (dryRun): nothing is removed") for line in lines)
    where = next(number for number, line in enumerate(lines) if line.startswith("SIGNAL "))
    assert lines[where].split()[:2] == ["SIGNAL", "AVAILABLE"]
    assert [line.split()[0] for line in lines[where + 1 :] if line.startswith("nodefs.")] == SIGNALS


@pytest.mark.regression
@pytest.mark.parametrize("command", ["status", "check", "config", "history", "doctor"])
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_every_line_of_a_command_fits(node: str, columns: int, rows: int, command: str) -> None:
    """Tables and sentences; only a path that is longer than the terminal may be wider,
    so that it can be copied.
    """
    lines = on_a_terminal(columns, rows, command, "--config", node).splitlines()
    assert len(lines) > 1
    for line in lines:
        assert len(line) <= columns or max(map(len, line.split())) > columns - 8, line


def test_colours_are_for_terminals_and_never_needed(node: str) -> None:
    """The level of a finding is in colour, and a word, too. None without a terminal, on a dumb one,
    or with NO_COLOR, unless that is empty (https://no-color.org)."""
    coloured, plain = (
        as_written(80, 24, "doctor", "--config", node),
        reclaimd_here("doctor", "--config", node).stdout,
    )
    assert re.search(r"^\x1b\[2mNOTE\x1b\[0m  ", coloured, re.MULTILINE)
    assert "\x1b" not in plain
    levels = re.compile(r"^(?:ERROR|WARNING|NOTE)  ", re.MULTILINE)
    assert levels.findall(ESCAPE.sub("", coloured)) == levels.findall(plain)
    assert "\x1b" not in as_written(80, 24, "doctor", "--config", node, NO_COLOR="1")
    assert "\x1b" not in as_written(80, 24, "doctor", "--config", node, TERM="dumb")
    assert "\x1b" in as_written(80, 24, "doctor", "--config", node, NO_COLOR="")
