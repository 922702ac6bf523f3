"""A program of the user's own as a function of the table: run, measured, reported, and asked for its
plan; which files are started as programs; and programs that behave, and programs that do not: each
ends within its time, and nothing of it is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from reclaim.function import Pressure
from reclaim.program.function import (
    KEPT_BYTES,
    MOST_LINES,
    PAUSE_SECONDS,
    Printed,
    Program,
    ProgramRun,
    ProgramUser,
    examine,
    opened_program,
)
from reclaim.types import RemovalFailed
from signals.clock import SystemClock
from tests.descriptors import no_descriptor_left
from tests.nodes.small_node import MIB
from tests.reclaimd_process import came_true
from tests.rows import rows
from tests.sockets.foreign import happens
from tests.sockets.program.scripts import (
    LONG_SECONDS,
    PRUNE,
    RUN,
    QuickClock,
    Runs,
    children,
    is_there,
    script,
)
from tests.thread_limit import ThreadLimit


def test_what_a_plan_is_told(tmp_path: Path) -> None:
    """`plan` is the last argument, and there are 10 s at most. What it prints as errors is logged,
    and no part of it."""
    runs = Runs(pressure=Pressure("nodefs.available"))
    line = json.dumps({"name": "a", "size": None})
    path = script(
        tmp_path,
        'printf \'{"name": "%s"}\\n\' "$*" "$RECLAIMD_DRY_RUN" "$RECLAIMD_DEADLINE_SECONDS"'
        f" \"$RECLAIMD_SIGNAL\"; echo looking >&2; echo '{line}'",
    )
    planned = runs.plan(path, "--age", "7d")
    assert [name for name, _ in planned] == ["--age 7d plan", "true", "10", "nodefs.available", "a"]
    assert runs.lines == ["looking"]


def test_what_a_program_prints_instead_of_a_plan_takes_no_memory(tmp_path: Path) -> None:
    """It prints on, as fast as it is read, until it is ended at its time, as any run."""
    tracemalloc.start()
    try:
        path = script(tmp_path, "exec cat /dev/zero")
        ((shown, _),) = Runs().plan(path, timeout=1.0)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert shown == f"{path} (asked for its plan it printed more than 1048576 bytes)"
    path = script(tmp_path, "echo '{}'; sleep 600")
    ((shown, _),) = Runs().plan(path, timeout=0.5)
    assert shown == f"{path} (asked for its plan it had not ended after 0.5 s)"


# ---- which files are started, with real owners, modes and links

STRANGER = 12345
ALLOWED = "is refused: allowed is an absolute path without symlinks, '.', '..' and '//', such as "


def problem(path: str, user: ProgramUser | None = None) -> str:
    """Why it would not be started; empty if it would be."""
    try:
        examine(path, user)
    except RemovalFailed as error:
        return str(error)
    return ""


@rows("""
    path            | changed                                               | told
    program         | true                                                  |
    link            | ln -s program link                                    | ALLOWED'HERE/program'
    link/program    | mkdir d; mv program d; ln -s d link                   | ALLOWED'HERE/d/program'
    program         | chmod 757 program                                     | is refused: every user may write it (mode 0757); allowed is at most 0755
    program         | chmod 775 program                                     | is refused: group GROUP may write it (mode 0775); allowed is at most 0755
    program         | chmod 644 program                                     | is refused: it is not executable (mode 0644)
    program         | chmod 775 .                                           | is refused: group GROUP may write the directory HERE (mode 0775)
    program         | chmod 1777 .                                          | is refused: every user may write the directory HERE (mode 1777)
    opt/bin/program | mkdir -p opt/bin; mv program opt/bin; chmod 777 opt   | is refused: every user may write the directory HERE/opt (mode 0777)
    program         | chown 12345 program                                   | is refused: it belongs to uid 12345; allowed is root's
    opt/bin/program | mkdir -p opt/bin; mv program opt/bin; chown 12345 opt | is refused: the directory HERE/opt belongs to uid 12345
    program         | rm program; mkfifo -m 700 program                     | is refused: it is not a regular file
    program         | rm program; mkdir program                             | is refused: it is not a regular file
    program         | rm program                                            | cannot be used: No such file or directory
    program/x       | true                                                  | cannot be used: Not a directory
""")
def test_a_program_that_another_could_have_made_is_refused(
    tmp_path: Path, path: str, changed: str, told: str
) -> None:
    """Each with its own sentence, at the start and when it would be run or asked for its plan;
    /tmp is above all of them, which everybody may write, but is sticky."""
    here = tmp_path / "d"
    here.mkdir()
    script(here, "echo '{}'")
    happens(changed, here)
    named, group = f"{here}/{path}", str(os.getegid())
    told = told.replace("ALLOWED", ALLOWED).replace("HERE", str(here)).replace("GROUP", group)
    refused = problem(named)
    assert told in refused
    assert bool(refused) is bool(told)
    assert Runs().run(named) == refused
    with pytest.raises(RemovalFailed) if told else nullcontext():
        Runs().plan(named)


@pytest.mark.parametrize("path", ["prune", "", "/usr/../bin/x", "//bin/x", "/bin/./x", "/bin/x/"])
def test_a_program_is_named_by_a_plain_absolute_path(path: str) -> None:
    """Nothing is looked for on a PATH."""
    assert problem(path).startswith(f"the program {path!r} {ALLOWED}")


def test_what_was_checked_is_what_is_started(tmp_path: Path) -> None:
    """Between the check and the start another file comes to its path: it does not run."""
    path, printed = script(tmp_path, "echo the first"), Printed(print, is_plan=True)
    with opened_program(path) as program:
        os.replace(script(tmp_path, "echo another", name="other"), path)
        run = ProgramRun(program.fileno(), (path,), {}, user=None, printed=printed)
    run.watch(60.0, SystemClock(), threading.Event())
    assert (run.status, bytes(printed.plan)) == (0, b"the first\n")
    runs = Runs()
    assert runs.run(path) == ""
    assert runs.lines == ["another"]


def test_who_may_run_it_is_known_before_the_pressure(tmp_path: Path) -> None:
    """Root may become another user, who is asked by the bits of its mode."""
    stranger, path = ProgramUser(STRANGER, STRANGER), script(tmp_path, "exit 0")
    if os.geteuid() == 0:
        assert problem(path, stranger) == ""
        os.chmod(path, 0o700)
        told = f"may not be executed by uid {STRANGER}, gid {STRANGER} (mode 0700)"
    else:
        told = f"cannot be started as uid {STRANGER}: this process may not become another user"
    assert problem(path, stranger).endswith(told)


# ---- how it runs

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start a program as another user"
)

TOLD = """LANG=C.UTF-8
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RECLAIMD_AVAILABLE=1000
RECLAIMD_DEADLINE_SECONDS=30
RECLAIMD_DRY_RUN=false
RECLAIMD_FILESYSTEM=/var/lib/buildkit
RECLAIMD_MARK=5000
RECLAIMD_MISSING_BYTES=4000
RECLAIMD_MISSING_INODES=0
RECLAIMD_PASS_ID=p-17
RECLAIMD_SIGNAL=buildcache.available"""
# and holds the output
FORKS_AND_LEAVES = "cd $1; setsid sh -c 'sleep 600 & echo $! >part; mv part pid'"
# twice, with another environment
LEAVES_BARE = """cd $1
(exec env -i setsid sh -c 'setsid sleep 600 & echo $! >part; mv part pid; exec sleep 600') &
until test -e pid; do :; done"""
BLOCKED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # as the daemon blocks them


def number_in(path: Path) -> int:
    """The number that a program writes into a file, once it is there."""
    assert came_true(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


@pytest.fixture
def runs() -> Runs:
    """What runs a program."""
    return Runs()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves a process, a zombie or a descriptor."""
    processes = children()
    with no_descriptor_left():
        yield
        assert children() <= processes


@rows("""
    what                          | text                                                                   | seconds | told                                                           | lines
    exits with 0, and has printed | echo one; echo; echo two; printf three; sleep 0.1; echo four >&2       | 60      |                                                                | four one three two
    exits with another code       | echo locked >&2; exit 3                                                | 60      | exited with 3; its last line: locked                           | locked
    is ended by a signal          | kill -SEGV $$                                                          | 60      | was ended by SIGSEGV                                           |
    tidies up at SIGTERM          | trap 'touch $1/tidied; exit 0' TERM; echo begun; sleep 600 & wait      | 1       | had not ended after 1 s; its last line: begun                  | begun
    all ignore SIGTERM            | trap '' TERM; sleep 600 & echo $! >$1/pid; while :; do sleep 600; done | 3       | had not ended after 3 s; SIGTERM has not ended it, SIGKILL has |
    closes its outputs and hangs  | exec >/dev/null 2>&1; sleep 600                                        | 0.5     | had not ended after 0.5 s                                      |
    leaves one that holds outputs | sleep 600 & echo $! >$1/pid; echo done                                 | 60      |                                                                | done
    forks and leaves              | FORKS_AND_LEAVES                                                       | 60      |                                                                |
    leaves twice                  | LEAVES_BARE                                                            | 60      |                                                                |
    forks and leaves, and hangs   | FORKS_AND_LEAVES; sleep 600                                            | 2       | had not ended after 2 s                                        |
    kills its supervisor          | echo $$ >$1/pid; kill -KILL $PPID; sleep 600                           | 60      | was ended by SIGKILL                                           |
""")
def test_what_becomes_of_a_program(
    tmp_path: Path, runs: Runs, text: str, seconds: float, told: str, lines: str
) -> None:
    """What is told of it, which of its lines are logged, and that nothing of it is left, nor is
    anything waited for that it has left behind. It has SIGTERM though the daemon blocks that."""
    for name in ("FORKS_AND_LEAVES", "LEAVES_BARE"):
        text = text.replace(name, globals()[name])
    path = script(tmp_path, text)
    if "SIGKILL has" in told:
        runs.clock = QuickClock()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    started = time.monotonic()
    try:
        assert runs.run(path, str(tmp_path), timeout=seconds) == (
            f"the program {path} {told}" if told else ""
        )
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= BLOCKED
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert time.monotonic() - started < LONG_SECONDS / 2
    assert sorted(runs.lines) == lines.split()
    assert (tmp_path / "tidied").exists() is ("tidied" in text)
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
    assert "\n".join(f"{name}={value}" for name, value in sorted(told.items())) == TOLD


def test_how_a_program_is_started(tmp_path: Path, runs: Runs) -> None:
    """A session of its own, the directory /, umask 022, nothing to read, no descriptor but its own
    file and what it opens itself, its arguments as they are configured."""
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    text = """
        echo "$*"; umask; pwd; wc -c
        for fd in /proc/$$/fd/*; do readlink $fd; done | sed 's/pipe:.*/a pipe/' | sort -u
        set -- $(cat /proc/$$/stat); test $1 = $$ -a $5 = $$ -a $6 = $$ || exit 1
        set -- $(cat /proc/$PPID/stat); test $6 = $PPID || exit 2
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


@rows("""
    what          | text                           | told
    ends          | exit 1                         | could not be started: its supervisor has ended
    has no memory | ulimit -v 4000; exec OURS "$@" | could not be started: its supervisor has ended
    hangs         | exec sleep 600                 | had not ended after 3 s; SIGTERM has not ended it, SIGKILL has
    is not there  |                                | could not be started: No such file or directory
""")
def test_where_no_supervisor_can_run_the_program_has_failed(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    """An interpreter that does not begin."""
    ours = text.replace("OURS", sys.executable)
    interpreter = script(tmp_path, ours, "python") if text else str(tmp_path / "none")
    monkeypatch.setattr(sys, "executable", interpreter)
    path = script(tmp_path, f"touch {tmp_path}/ran")
    runs.clock = QuickClock()
    assert runs.run(path, timeout=3.0) == f"the program {path} {told}"
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
import ctypes, sys, time
from tests.sockets.program.scripts import Runs, children
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
path, directory, harmless = sys.argv[1:]
runs = Runs()
assert runs.run(path, directory) == ""
until = time.monotonic() + 60.0
while runs.run(harmless) or children():
    assert time.monotonic() < until, children()
"""


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
