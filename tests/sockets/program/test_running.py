"""Programs that behave, and programs that do not: each ends within its time,
and nothing of it is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from reclaim.function import Pressure
from reclaim.program.function import (
    KEPT_BYTES,
    MOST_LINES,
    PAUSE_SECONDS,
    Program,
    ProgramUser,
)
from tests.descriptors import no_descriptor_left
from tests.reclaimd_process import came_true
from tests.sockets.program.scripts import (
    LONG_SECONDS,
    PRUNE,
    RUN,
    Runs,
    is_there,
    number_in,
    script,
)
from tests.thread_limit import ThreadLimit

STRANGER = 12345
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start a program as another user"
)

# and holds the output
FORKS_AND_LEAVES = "cd $1; setsid sh -c 'sleep 600 & echo $! >part; mv part pid'"


@pytest.fixture
def runs() -> Runs:
    """What runs a program."""
    return Runs()


def children() -> set[int]:
    """The children of this process, zombies among them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found |= set(map(int, (task / "children").read_text().split()))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves a process, a zombie or a descriptor."""
    processes = children()
    with no_descriptor_left():
        yield
        assert children() <= processes


LEAVES_BARE = (
    "exec env -i setsid sh -c 'setsid sleep 600 & echo $! >part; mv part pid; exec sleep 600'"
)
BLOCKED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # as the daemon blocks them
PROGRAMS: dict[str, tuple[str, float, str, list[str]]] = {
    "exits with 0, and has printed": (
        "echo one; echo; echo two; printf three; sleep 0.1; echo four >&2",
        LONG_SECONDS,
        "",
        ["four", "one", "three", "two"],
    ),
    "exits with another code": (
        "echo 'the cache is locked' >&2; exit 3",
        LONG_SECONDS,
        "exited with 3; its last line: the cache is locked",
        ["the cache is locked"],
    ),
    "is ended by a signal": ("kill -SEGV $$", LONG_SECONDS, "was ended by SIGSEGV", []),
    "tidies up at SIGTERM": (
        "trap 'touch $1/tidied; exit 0' TERM; echo begun; sleep 600 & wait",
        1.0,
        "had not ended after 1 s; its last line: begun",
        ["begun"],
    ),
    "ignores SIGTERM, as does what it has started": (
        "trap '' TERM; sleep 600 & echo $! >$1/pid; while :; do sleep 600; done",
        1.0,
        "had not ended after 1 s; SIGTERM has not ended it, SIGKILL has",
        [],
    ),
    "closes its outputs and hangs": (
        "exec >/dev/null 2>&1; sleep 600",
        0.5,
        "had not ended after 0.5 s",
        [],
    ),
    "leaves one of its group, which holds the output": (
        "sleep 600 & echo $! >$1/pid; echo done",
        LONG_SECONDS,
        "",
        ["done"],
    ),
    "forks and leaves": (FORKS_AND_LEAVES, LONG_SECONDS, "", []),
    "forks and leaves with another environment, twice": (
        f"cd $1; ({LEAVES_BARE}) & until test -e pid; do :; done",
        LONG_SECONDS,
        "",
        [],
    ),
    "forks and leaves, and hangs": (
        f"{FORKS_AND_LEAVES}; sleep 600",
        2.0,
        "had not ended after 2 s",
        [],
    ),
    "kills its supervisor": (
        "echo $$ >$1/pid; kill -KILL $PPID; sleep 600",
        LONG_SECONDS,
        "was ended by SIGKILL",
        [],
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_what_becomes_of_a_program(tmp_path: Path, runs: Runs, what: str) -> None:
    """What is told of it, which of its lines are logged, and that nothing of it is left, nor is
    anything waited for that it has left behind. It has SIGTERM though the daemon blocks that."""
    text, timeout, told, lines = PROGRAMS[what]
    path = script(tmp_path, text)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    started = time.monotonic()
    try:
        assert runs.run(path, str(tmp_path), timeout=timeout) == (
            f"the program {path} {told}" if told else ""
        )
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= BLOCKED
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert time.monotonic() - started < LONG_SECONDS / 2
    assert sorted(runs.lines) == lines
    assert (tmp_path / "tidied").exists() is ("tidies" in what)
    if "pid" in text:
        assert came_true(lambda: not is_there(number_in(tmp_path / "pid")))
    assert Runs().run(script(tmp_path, "exit 0", name="next")) == ""


def test_what_a_program_is_told(tmp_path: Path, runs: Runs) -> None:
    """Its environment is this and nothing of ours; what is not known is empty."""
    runs.pressure = Pressure(
        "buildcache.available", "/var/lib/buildkit", 1000, 5000, 4000, 0, "p-17"
    )
    assert runs.run(script(tmp_path, "exec env"), timeout=30) == ""
    told = dict(line.split("=", 1) for line in runs.lines)
    assert len(told.pop("RECLAIMD_RUN_ID")) == 32
    assert told.pop("RECLAIMD_DEADLINE").endswith("Z")
    told.pop("PWD")  # the shell's own
    assert told == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "RECLAIMD_SIGNAL": "buildcache.available",
        "RECLAIMD_FILESYSTEM": "/var/lib/buildkit",
        "RECLAIMD_AVAILABLE": "1000",
        "RECLAIMD_MARK": "5000",
        "RECLAIMD_MISSING_BYTES": "4000",
        "RECLAIMD_MISSING_INODES": "0",
        "RECLAIMD_DEADLINE_SECONDS": "30",
        "RECLAIMD_PASS_ID": "p-17",
        "RECLAIMD_DRY_RUN": "false",
    }


def test_how_a_program_is_started(tmp_path: Path, runs: Runs) -> None:
    """A session of its own, the directory /, umask 022, nothing to read, no descriptor but its own
    file and what it opens itself, its arguments as they are configured."""
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    text = """
        echo "$*"; umask; pwd; wc -c
        for fd in /proc/$$/fd/*; do readlink $fd; done | sed 's/pipe:.*/a pipe/' | sort -u
        set -- $(cat /proc/$$/stat); test $1 = $$ -a $5 = $$ -a $6 = $$ || exit 1
    """
    path = script(tmp_path, text)
    assert runs.run(path, "a  b", "$HOME;") == ""
    os.close(inherited)
    assert runs.lines == ["a  b $HOME;", "0022", "/", "0", *sorted(["/dev/null", path, "a pipe"])]


def test_a_program_that_is_no_script_is_started_under_its_own_name(runs: Runs) -> None:
    """By its descriptor; a multi-call program goes by the name."""
    assert runs.run(os.path.realpath("/usr/bin/env"), "--version") == ""
    assert runs.lines[0].startswith("env ")


@needs_root
def test_a_program_is_run_as_its_user_with_no_other_group(tmp_path: Path, runs: Runs) -> None:
    """A script that only root may find: it is read by its descriptor."""
    path = script(tmp_path, 'echo "$(id -u) $(id -g) $(id -G)"')
    assert runs.run(path, user=ProgramUser(STRANGER, STRANGER + 1)) == ""
    assert runs.lines == [f"{STRANGER} {STRANGER + 1} {STRANGER + 1}"]


def test_what_cannot_be_started_fails_in_one_sentence(tmp_path: Path, runs: Runs) -> None:
    """A file without a first line, an interpreter that is not there."""
    path = script(tmp_path, "")
    Path(path).write_text("not a program\n")
    told = f"the program {path} could not be started: "
    hint = " (a script begins with a line like #!/bin/sh, and what it names must exist)"
    assert runs.run(path) == f"{told}Exec format error{hint}"
    Path(path).write_text("#!/no/interpreter\n")
    assert runs.run(path) == f"{told}No such file or directory{hint}"


# ---- beside it


def test_a_program_beside_another_runs_until_it_is_told_to_stop(tmp_path: Path, runs: Runs) -> None:
    """It runs once at a time, and the end of another ends nothing of it; a stop ends it long before
    its time is over, and what has left it."""
    program = runs.program(script(tmp_path, f"setsid sleep 600 & echo $! > {tmp_path}/pid; wait"))
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(runs.run_program, program)
        left = number_in(tmp_path / "pid")
        assert runs.run_program(program).endswith("runs already")
        assert Runs().run(script(tmp_path, "exit 0", name="another")) == ""
        assert is_there(left)
        runs.stopping.set()
        assert told.result(LONG_SECONDS).endswith("was ended because reclaimd was told to stop")
    assert came_true(lambda: not is_there(left))


def test_a_program_that_prints_for_ever_is_read_and_ended(tmp_path: Path, runs: Runs) -> None:
    """100 lines are logged, and how much more there was; it is not held up by a full pipe. There is
    a reading of 64 KiB each 10 ms, so that they cost no core."""
    path = script(tmp_path, "exec yes 'a line of output'")
    assert runs.run(path, timeout=1.0) == (
        f"the program {path} had not ended after 1 s; its last line: a line of output"
    )
    *lines, more = runs.lines
    assert lines == ["a line of output"] * MOST_LINES
    readings = 2 * 1.0 / PAUSE_SECONDS
    assert 2 * KEPT_BYTES < int(more.removeprefix("[").split()[0]) < readings * KEPT_BYTES


def test_a_program_whose_lines_nobody_can_take_is_killed(tmp_path: Path, runs: Runs) -> None:
    """A defect of ours leaves no process behind."""

    def log(line: str) -> None:
        raise ValueError(line)

    path = script(tmp_path, f"{FORKS_AND_LEAVES}; echo a line; sleep 600")
    with pytest.raises(ValueError, match="a line"):
        runs.stage(Program(PRUNE, (path, str(tmp_path)), LONG_SECONDS, log)).remove(RUN)
    assert came_true(lambda: not is_there(number_in(tmp_path / "pid")))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("exit 1", "could not be started: its supervisor has ended"),
        (
            f'ulimit -v 4000; exec {sys.executable} "$@"',
            "could not be started: its supervisor has ended",
        ),
        ("exec sleep 600", "had not ended after 1 s; SIGTERM has not ended it, SIGKILL has"),
        (None, "could not be started: No such file or directory"),
    ],
    ids=["ends", "has no memory", "hangs", "is not there"],
)
def test_where_no_supervisor_can_run_the_program_has_failed(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, text: str | None, told: str
) -> None:
    """An interpreter that does not begin."""
    interpreter = script(tmp_path, text, "python") if text else str(tmp_path / "none")
    monkeypatch.setattr(sys, "executable", interpreter)
    path = script(tmp_path, f"touch {tmp_path}/ran")
    assert runs.run(path, timeout=1.0) == f"the program {path} {told}"
    assert not (tmp_path / "ran").exists()


ON_DEMAND = """
import sys
from tests.sockets.program.scripts import Runs
runs = Runs()
for line in sys.stdin:
    print(runs.run(*sys.argv[1:]), flush=True)
"""


@contextmanager
def another_process(*argv: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """It, and what has it run a program and tells what became of that; killed after the block."""
    arguments = [sys.executable, "-c", ON_DEMAND, *argv]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:

        def run() -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            return process.stdout.readline().rstrip("\n")

        try:
            yield process, run
        finally:
            process.kill()


def test_near_the_limit_of_processes_a_program_cannot_be_started(tmp_path: Path) -> None:
    """Neither without a supervisor, nor where there is room for that one only; and once
    there is room again, it is.
    """
    path = script(tmp_path, "exit 0")
    with another_process(path) as (process, run), ThreadLimit(process.pid) as limit:
        assert run() == ""
        for processes in (0, 2):
            limit.forbid(beyond=processes)
            assert (
                run()
                == f"the program {path} could not be started: Resource temporarily unavailable"
            )
        limit.lift()
        assert run() == ""


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from tests.sockets.program.scripts import Runs
assert Runs().run(sys.argv[1]) == ""
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
for spare in range(16):
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        print(len(taken))
    for _ in range(spare):
        os.close(taken.pop())
    print(Runs().run(sys.argv[1]))
"""


def test_without_enough_descriptors_a_program_cannot_be_started(tmp_path: Path) -> None:
    """However many there are, it says so in one sentence, and keeps none of them."""
    path = script(tmp_path, f"echo run >>{tmp_path}/ran")
    arguments = [sys.executable, "-c", WITHOUT_DESCRIPTORS, path]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=True)
    taken, told = ended.stdout.splitlines()[::2], ended.stdout.splitlines()[1::2]
    assert len(set(taken)) == 1
    few = told.index("")
    assert few > 4
    assert set(told[:few]) == {
        f"the program {path} {problem}: Too many open files"
        for problem in ("cannot be used", "could not be started")
    }
    assert set(told[few:]) == {""}
    assert (tmp_path / "ran").read_text().count("run") == 1 + len(told) - few


def test_nothing_is_left_of_a_program_when_the_daemon_is_killed(tmp_path: Path) -> None:
    """Neither it, nor what has left it."""
    path = script(tmp_path, f"{FORKS_AND_LEAVES}; echo $$ >part; mv part own; sleep 600")
    with another_process(path, str(tmp_path)) as (_, run):
        thread = threading.Thread(target=run)
        thread.start()
        numbers = [number_in(tmp_path / name) for name in ("pid", "own")]
        assert all(is_there(number) for number in numbers)
    thread.join()
    assert came_true(lambda: not any(is_there(number) for number in numbers))


AS_THE_FIRST_PROCESS = """
import ctypes, sys
from tests.reclaimd_process import came_true
from tests.sockets.program.scripts import Runs
from tests.sockets.program.test_running import children
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
path, directory, harmless = sys.argv[1:]
runs = Runs()
assert runs.run(path, directory) == ""
assert came_true(lambda: runs.run(harmless) == "" and not children()), children()
"""


@pytest.mark.regression
def test_the_first_process_of_a_container_keeps_no_zombie(tmp_path: Path) -> None:
    """The kernel gives it what a program has left behind: what ended before, what was
    killed, what was of the group.
    """
    ended_before = (
        "(setsid true & echo $! >gone); while grep -q ') [^Z]' /proc/$(cat gone)/stat; do :; done"
    )
    path = script(tmp_path, f"{FORKS_AND_LEAVES}; {ended_before}; sleep 600 &")
    arguments = [
        sys.executable,
        "-c",
        AS_THE_FIRST_PROCESS,
        path,
        str(tmp_path),
        script(tmp_path, "exit 0", "harmless"),
    ]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
