"""Commands on a terminal: every line fits, progress is one line that is erased, `top` restores it; and
a drill, there and in a user namespace, where no mount is allowed. As root: a story beside."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import redirect_stderr
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from eviction.cli.progress import ERASE, Progress
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
    answer,
    came_true,
    reclaimd,
    reclaimd_here,
    started,
)
from tests.repository import ROOT
from tests.rows import rows
from tests.sockets.mounts import need_mounts
from tests.sockets.stage import located

NODEFS = Signal.NODEFS_AVAILABLE
SLOW_SECONDS = 1.6
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ALTERNATE_SCREEN = "\x1b[?1049h"
DRAWN = "Pressure"
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

            def ended() -> bool:
                nonlocal keys
                if keys and DRAWN in self.read(0.05):
                    os.write(self.master, keys)
                    keys = b""
                self.read(0.05)
                return process.poll() is not None

            if not came_true(ended):
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


@rows("""
    words                      | doing
    plan                       | listing containers and images, and planning
    doctor                     | asking the runtime, the kernel and the daemon
    reclaim --standalone --now | reclaiming
    reclaim --now              | the daemon is relieving on request
""")
def test_waiting_is_shown_on_one_line_that_is_erased(
    small_node: SmallNode, terminal: Terminal, words: str, doing: str
) -> None:
    """What is done and for how long, if it is more than a second, which image is being removed, and
    what the daemon does with every heartbeat of it; stdout has only data."""
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
    shown = re.findall(rf"\r\x1b\[K +(\d+\.\d) s  {doing}", terminal.shown)
    assert min(map(float, shown)) >= 1.0
    assert ("image registry.example/old/0:1" in terminal.shown) is ("standalone" in words)
    assert terminal.left() == [""]
    assert "\x1b" not in output
    assert ("satisfied" in output) is words.startswith("reclaim")
    assert code in (0, 1)


def interrupted(terminal: Terminal) -> None:
    """Work that shows its progress and is interrupted."""
    with Progress("counting"):
        assert came_true(lambda: "counting" in terminal.read())
        raise KeyboardInterrupt


def test_a_line_is_never_wider_than_the_terminal_and_whatever_ends_the_work_erases_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrapped line could not be erased; control characters in names are escaped. None is shown
    without a terminal, on a dumb one, or at once. When the terminal is closed the work goes on without it."""
    terminal = Terminal(columns=30)
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(StringIO()):
        assert not Progress("").live
    with os.fdopen(os.dup(terminal.slave), "w") as stream, redirect_stderr(stream):
        monkeypatch.setenv("TERM", "dumb")
        assert not Progress("").live
        monkeypatch.setenv("TERM", "xterm")
        with Progress("at once"):
            pass
        assert terminal.read() == ""
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


@rows(
    """
    keys   | without    | code
    q      |            | 0
    Ctrl-C |            | 130
    q      | NO_COLOR   | 0
    q      | PYTHONPATH | 0
    """
)
def test_top_is_drawn_until_q_or_ctrl_c_and_restores_the_terminal(
    node: str, without_rich: str, keys: str, without: str, code: int
) -> None:
    """On the alternate screen of a terminal, without rich as text; with NO_COLOR as text without
    colours."""
    terminal, typed = Terminal(100, 40), b"q" if keys == "q" else b"\x03"
    given = {without: without_rich} if without else {}
    words = ("top", "--config", node, "--interval", "0.2")
    assert terminal.runs(*words, on="all", keys=typed, **given)[0] == code
    assert (ALTERNATE_SCREEN in terminal.shown) is (without != "NO_COLOR")
    assert ("TIME TO THE MARK" in terminal.shown) is bool(without)
    assert not without or "\x1b[3" not in terminal.shown
    assert termios.tcgetattr(terminal.slave) == terminal.settings


def test_where_no_terminal_is_top_prints_text_without_any_escape(node: str) -> None:
    """As often as it is told to."""
    done = reclaimd_here("top", "--config", node, "--interval", "0.1", "--count", "2")
    assert (done.returncode, done.stderr, "\x1b" in done.stdout) == (0, "", False)
    assert done.stdout.count("TIME TO THE MARK") == 2


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


# ---- a drill

SMALL = Path(__file__).with_name("small.yaml")


def as_less(way: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`reclaimd drill` by a process without capabilities, or one that may not
    even have a user namespace.
    """
    return subprocess.run(
        [sys.executable, "-m", "tests.sockets.drill_child", way, *arguments],
        cwd=str(ROOT),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENVIRONMENT,
    )


def test_the_drill_in_a_user_namespace_holds(tmp_path: Path) -> None:
    """Without any capability the filesystem is mounted in a user namespace; where no mount is
    allowed one sentence says why, and nothing is written."""
    words = (str(SMALL), "-o", "json", "--report", f"{tmp_path}/report")
    locked = as_less("locked-down", *words)
    assert locked.returncode == 2, locked.stderr + locked.stdout
    assert re.search("needs filesystems of its own.*user namespace", locked.stderr)
    assert not (tmp_path / "report").exists()
    done = as_less("without-capabilities", *words)
    if done.returncode == 2:
        pytest.skip(f"needs unprivileged user namespaces: {done.stderr}")
    assert done.returncode == 0, done.stderr
    printed = answer(done)
    assert "in a user namespace" in printed["filesystem"]
    assert json.loads((tmp_path / "report" / "drill-small.json").read_text()) == printed


def test_a_drill_shows_a_bar_meanwhile_and_more_if_asked(tmp_path: Path) -> None:
    """The bar of a terminal goes with its end; -v 1 adds each pass, object and expectation, -v 2 the
    log."""
    need_mounts()
    slow = tmp_path / "small.yaml"  # longer than nothing is shown
    slow.write_text(SMALL.read_text().replace("rate: 40Mi", "rate: 8Mi"))
    words = ("drill", str(slow), "--report", f"{tmp_path}/report")
    terminal = Terminal()
    code, output = terminal.runs(*words, on="err")
    assert re.search(r"  nodefs.available: █+.?·*│·+ [\d.]+MiB available\r", terminal.shown)
    assert (code, terminal.left()) == (0, [""])
    assert output.startswith("small: A small disk that fills is relieved.\n")
    done = reclaimd(*words, "-v", "2")
    for begins in ("RESULT   KIND", "keep ", "HELD  WHAT"):
        assert f"\n{begins}" in done.stdout
        assert f"\n{begins}" not in output
    assert "Attempting to reclaim" in done.stderr
