"""Commands on a terminal: every line fits, progress is one line that is erased, `top` restores it."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import redirect_stderr
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from eviction.cli.progress import AFTER_SECONDS, ERASE, Progress
from eviction.cli.top import HOME_AND_CLEAR
from signals.types import Signal
from tests.expected import expect
from tests.nodes.faults import Delay
from tests.nodes.small_node import MIB, SmallNode
from tests.printed import normalized
from tests.reclaimd_process import (
    ENVIRONMENT,
    PROGRAM,
    Daemon,
    Process,
    came_true,
    reclaimd,
    reclaimd_here,
    started,
)
from tests.sockets.stage import located

NODEFS = Signal.NODEFS_AVAILABLE
SLOW_SECONDS = 1.6
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ALTERNATE_SCREEN = "\x1b[?1049h"
EXPECTED = Path(__file__).with_name("expected")
VARY = (("[0-9a-f]{64}", "ID"), (r"10m\d+s", "AGE"), ("▁[▁ ]{11}", "▁".ljust(12)), (" +\n", "\n"))


class Terminal:
    """A terminal of a size; `shown` is everything that was written to it."""

    def __init__(self, columns: int = 80, rows: int = 24):
        self.master, self.slave = pty.openpty()
        ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.settings = termios.tcgetattr(self.slave)
        self.shown = ""
        self._decoder = getincrementaldecoder("utf-8")()

    def read(self, wait_seconds: float = 0.1) -> str:
        """Everything that was written so far."""
        while select.select([self.master], [], [], wait_seconds)[0]:
            self.shown += self._decoder.decode(os.read(self.master, 65536))
        return self.shown

    def runs(
        self, *words: str, on: str = "out", keys: bytes = b"", **environment: str
    ) -> tuple[int, str]:
        """A command whose stdout, stderr or all streams it is: exit code, and what a file has of its
        stdout. `keys` are typed after the first screen."""
        sizes = {"COLUMNS", "LINES"}
        variables = {name: each for name, each in ENVIRONMENT.items() if name not in sizes}
        with TemporaryFile("w+") as output, open(os.devnull, "r+") as null:
            streams = {
                "out": (null.fileno(), self.slave, null.fileno()),
                "err": (0, output.fileno(), self.slave),
                "all": (self.slave,) * 3,
            }[on]
            given = {**variables, "TERM": "xterm-256color", **environment}
            process: Process
            if on == "all":  # it has the terminal, so that Ctrl-C is a signal
                command = ["setsid", "--ctty", PROGRAM, *words]
                stdin, stdout, stderr = streams
                process = subprocess.Popen(
                    command, stdin=stdin, stdout=stdout, stderr=stderr, env=given
                )
            else:
                process = started(*words, streams=streams, environment=given)
            deadline = time.monotonic() + 60.0
            while process.poll() is None and time.monotonic() < deadline:
                if keys and "satisfied" in self.read(0.05):
                    os.write(self.master, keys)
                    keys = b""
                self.read(0.05)
            if process.poll() is None:
                process.kill()
            code = process.wait(60.0)
            self.read()
            output.seek(0)
            return code, output.read()

    def screens(self) -> list[str]:
        """What `top` has drawn, without colours; the last one may not be whole yet."""
        drawn = ESCAPE.sub("", self.read(0.02).replace(HOME_AND_CLEAR, "\f")).replace("\r", "")
        return drawn.split("\f")[1:]

    def left(self) -> list[str]:
        """The lines that it still shows at the end, without those that were rewritten."""
        lines = self.read().replace("\r\n", "\n").split("\n")
        return [line.rpartition(ERASE)[2] for line in lines]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """One of 80 columns and 24 rows."""
    made = Terminal()
    yield made
    os.close(made.master)
    os.close(made.slave)


# ---- what fits, and colours


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The configuration of a node whose daemon is in a dry run, has a history, and could relieve
    it."""
    small = SmallNode(tmp_path_factory.mktemp("terminal"))
    small.add_images(3)
    paths = ("controlSocket", "historyFile")
    own: dict[str, Any] = {name: f"{small.disk.parent}/{name}" for name in paths}
    own |= {"evictionHard": {"nodefs.inodesFree": "1"}, "dryRun": True}
    file = small.configuration(NODEFS, MIB, holdOffAfterStart="1h", **own)
    with Daemon("--config", file):
        assert came_true(lambda: located(file))
        yield file
    small.close()


@pytest.mark.regression
@pytest.mark.parametrize(
    "command", ["top --count 1", "status", "check", "config", "history", "doctor", "plan", "df"]
)
def test_every_line_of_a_command_fits(node: str, command: str) -> None:
    """Tables and sentences; only a path that is longer than the terminal may be wider, so that it can
    be copied. `top` has no more rows than there are."""
    terminal = Terminal(columns=60, rows=15)
    terminal.runs(*command.split(), "--config", node, NO_COLOR="1")
    lines = ESCAPE.sub("", terminal.shown).splitlines()
    assert 1 < len(lines) < (15 if "top" in command else 1000)
    for line in lines:
        widest = max(map(len, line.split()), default=0)
        assert len(line) <= 60 or (widest > 50 and "top" not in command), line


def test_colours_are_for_terminals_and_never_needed(node: str) -> None:
    """What is to become of an object is in colour, and a word, too. None without a terminal, on a
    dumb one, or with NO_COLOR, unless that is empty (https://no-color.org), or --color says
    otherwise."""

    def shown(*words: str, **environment: Any) -> list[str]:
        terminal = Terminal(columns=200)
        terminal.runs("plan", "--config", node, *words, **environment)
        return re.findall(r"^.*planned(?:\x1b\[0m)?  ", terminal.shown, re.MULTILINE)

    plain, coloured = ["planned  "] * 4, ["\x1b[33mplanned\x1b[0m  "] * 4
    assert shown() == shown(NO_COLOR="") == coloured
    assert shown(NO_COLOR="1") == shown(TERM="dumb") == shown("--color", "never") == plain
    asked = ("plan", "--config", node)
    printed = [reclaimd_here(*asked, *words).stdout for words in ((), ("--color", "always"))]
    assert ["\x1b" in each for each in printed] == [False, True]


# ---- progress


@pytest.mark.parametrize(
    ("words", "doing"),
    [
        ("plan", "listing containers and images, and planning"),
        ("doctor", "asking the runtime, the kernel and the daemon"),
        ("reclaim --standalone --now", "reclaiming"),
        ("reclaim --now", "the daemon is relieving on request"),
    ],
)
def test_waiting_is_shown_on_one_line_that_is_erased(
    small_node: SmallNode, terminal: Terminal, words: str, doing: str
) -> None:
    """What is done and for how long, which image is being removed, and what the daemon does with
    every heartbeat of it; stdout has only data."""
    small_node.add_images(2)
    own = {"controlSocket": f"{small_node.disk.parent}/run/c", "holdOffAfterStart": "1h"}
    file = small_node.configuration(NODEFS, MIB, **own)
    command = (*words.split(), "--config", file)
    small_node.failpoints["RemoveImage"] = Delay(2 * SLOW_SECONDS)
    if words == "reclaim --now":
        with Daemon("--config", file):
            assert came_true(lambda: located(file))
            code, output = terminal.runs(*command, on="err")
    else:
        small_node.failpoints["ListImages"] = Delay(SLOW_SECONDS)
        code, output = terminal.runs(*command, on="err")
    assert re.search(rf"\r\x1b\[K +\d+\.\d s  {doing}", terminal.shown)
    assert ("image registry.example/old/0:1" in terminal.shown) is ("standalone" in words)
    assert terminal.left() == [""]
    assert "\x1b" not in output
    assert ("satisfied" in output) is words.startswith("reclaim")
    assert code in (0, 1)


@pytest.mark.parametrize("command", ["plan", "check"])
def test_nothing_is_shown_in_the_first_second(
    small_node: SmallNode, terminal: Terminal, command: str
) -> None:
    """Not a byte on the terminal, unless the machine is so busy that it takes longer."""
    file, began = small_node.configuration(evictionHard={NODEFS: "1Mi"}), time.monotonic()
    _, output = terminal.runs(command, "--config", file, on="err")
    assert terminal.shown == "" or time.monotonic() - began > AFTER_SECONDS
    assert output


def interrupted(terminal: Terminal) -> None:
    """Work that shows its progress and is interrupted."""
    with Progress("counting"):
        assert came_true(lambda: "counting" in terminal.read())
        raise KeyboardInterrupt


def test_a_line_is_never_wider_than_the_terminal_and_whatever_ends_the_work_erases_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrapped line could not be erased; control characters in names are escaped. None is shown
    without a terminal or on a dumb one. When the terminal is closed the work goes on without it."""
    terminal = Terminal(columns=30)
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(StringIO()):
        assert not Progress("").live
    with os.fdopen(os.dup(terminal.slave), "w") as stream, redirect_stderr(stream):
        monkeypatch.setenv("TERM", "dumb")
        assert not Progress("").live
        monkeypatch.setenv("TERM", "xterm")
        line = Progress("")
        line.rewrite("removing image registry.example/" + "x" * 100)
        line.rewrite("removing \x1b[2J\n")
        line.__exit__()
        first, second = terminal.read().removesuffix(ERASE).split(ERASE)[1:]
        assert (first, second) == ("removing image registry.examp", r"removing \x1b[2J\n")
        with pytest.raises(KeyboardInterrupt):
            interrupted(terminal)
        assert terminal.left() == [""]
    stream = os.fdopen(os.dup(terminal.slave), "w")
    with redirect_stderr(stream):
        line = Progress("")
        os.close(terminal.master)
        os.close(terminal.slave)
        line.rewrite("counting")
        line.__exit__()
    assert not line.live
    stream.close()  # nothing is left unwritten, which would fail here


# ---- top


@pytest.fixture
def without_rich(tmp_path: Path) -> str:
    """The PYTHONPATH of a process in which there is no rich."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['rich'] = None")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("keys", "environment", "code"),
    [
        (b"q", {}, 0),
        (b"\x03", {}, 130),
        (b"q", {"NO_COLOR": "1"}, 0),
        (b"q", {"PYTHONPATH": "without rich"}, 0),
    ],
)
def test_top_is_drawn_until_q_or_ctrl_c_and_restores_the_terminal(
    small_node: SmallNode, keys: bytes, environment: dict[str, str], code: int, without_rich: str
) -> None:
    """On the alternate screen of a terminal, without rich as text; with NO_COLOR as text without
    colours; elsewhere as text without any escape."""
    small_node.add_images(3)
    own = {"controlSocket": f"{small_node.disk.parent}/run/c"}
    file = small_node.configuration(NODEFS, MIB, **own)
    terminal = Terminal(100, 40)
    words = ("top", "--config", file, "--interval")
    given = {name: without_rich if name == "PYTHONPATH" else "1" for name in environment}
    with Daemon("--config", file) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert terminal.runs(*words, "0.2", on="all", keys=keys, **given)[0] == code
        done = reclaimd(*words, "0.1", "--count", "2")
        assert (done.returncode, done.stderr, "\x1b" in done.stdout) == (0, "", False)
        assert done.stdout.count("TIME TO THE MARK") == done.stdout.count("satisfied") == 2
        assert len(daemon.passes) == 1
    assert (ALTERNATE_SCREEN in terminal.shown) is ("NO_COLOR" not in environment)
    assert ("TIME TO THE MARK" in terminal.shown) is bool(environment)
    assert not environment or "\x1b[3" not in terminal.shown
    assert termios.tcgetattr(terminal.slave) == terminal.settings


def test_what_top_draws_and_what_its_keys_do(small_node: SmallNode, terminal: Terminal) -> None:
    """Bars, what goes next, and passes, on 24 lines of 80 columns; d shows what stays, too, w why
    the next one goes, p pauses and resumes; an arrow is no key. A fill is relieved meanwhile."""
    small_node.add_images(3, shared_bytes=MIB)
    small_node.run(small_node.run_pod("web"))
    small_node.runtime.age(small_node.gone_pod("gone"), 2.0)  # for an age with seconds
    kubelets = small_node.disk.parent / "kubelet.yaml"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    kubelets.write_text(f"{head}evictionHard: {{nodefs.available: 10%, imagefs.available: 5%}}\n")
    own: dict[str, Any] = {"evictionHard": {NODEFS: "30%"}, "kubeletConfig": str(kubelets)}
    control = f"{small_node.disk.parent}/run/c"
    file = small_node.configuration(controlSocket=control, **own)
    screens: dict[bytes, str] = {}

    def press(keys: bytes, *shown: str, hidden: str = "is being asked") -> None:
        """A screen has these texts then, while the daemon is at rest: it is asked again what goes
        next after half a minute, which says so."""

        def there() -> bool:
            *_, screens[keys], _ = "", "", *terminal.screens()
            screen = screens[keys]
            rests = "planning a dry run" not in screen and hidden not in screen
            return rests and all(each in screen for each in shown)

        os.write(terminal.master, keys)
        assert came_true(there), terminal.screens()[-1]

    with Daemon("--config", file) as daemon:
        assert came_true(lambda: located(file))
        sizes = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        words = ("top", "--config", file, "--interval", "0.2")
        top = started(*words, streams=(terminal.slave,) * 3, environment=ENVIRONMENT | sizes)
        press(b"", "registry.example/old/0:1")
        press(b"d", "keep     container  default/web/app#0")
        press(b"w", "its pod is gone", hidden="KIND")
        press(b"wp", "held off: paused until", "KIND")
        press(b"p", hidden="held off")
        press(b"\x1b[D", hidden="keep ")
        small_node.fill(32 * MIB)
        press(b"", "nodefs.available  satisfied")
        os.write(terminal.master, b"q")
        assert top.wait(60.0) == 0
        assert len(daemon.passes) == 1
    for screen in terminal.screens():
        assert [len(line) for line in screen.split("\n")] == [80] * 24, screen
    story = "\n\n".join(screens[keys] for keys in (b"d", b"w", b"p"))
    expect(EXPECTED / "top.txt", normalized(f"{story}\n", {}, VARY))
