"""A program of the user's own as a reclaim function: its plan, its file, its run, and what it prints.

**The function.** A pass runs the program once. A program is no object that could be asked for afterwards: *removed*
means that it ran and exited with 0. What came of it is what the filesystem has gained, which is measured as after any
removal.

A dry run starts it with `plan` as its last argument instead, and shows what it says; one that does not answer that is
shown as one object. A pass never asks for the plan, so a broken one keeps nobody from running the program. A plan is
JSON lines, read strictly and within bounds. One line is one object: `{"name": "…", "size": 1048576, "reason": "…"}`.
`size` is in bytes and may be missing or null, `reason` may be missing; other keys are ignored, so that there may be
more of them one day. An empty object, `{}`, says only that the question is known: a program that would remove nothing
prints it, as one that prints nothing does not know the question.

**The file** is opened if nobody untrusted could have put it there: what was checked is what is started. No part of its
path is a symlink. Every directory on it and the file itself have to belong to root, or to the user of this process, and
to be writable by their owner only; so nobody else can change what the path leads to while it is walked from the root.
What was opened stays the same file when the path leads elsewhere later, and it is started by its descriptor. A sticky
directory (`/tmp`) may be above, as nobody else can replace a directory in it; it may not hold the program itself, as a
hard link to another program could be put there. What the file starts is its owner's matter: the interpreter of a
script, libraries, other programs.

**A run** takes, whatever the program does, no longer than its time and `LEFT_BEHIND_SECONDS`.

* It is started by a process of its own (`program_launcher`), so that no start holds up this one, and one that hangs is
  ended like a program that hangs.
* A script finds its file by the descriptor as well: the kernel hands `/proc/self/fd/N` to the interpreter, so this one
  descriptor stays open in the child; `argv[0]` is the path.
* There is no shell. The child has a session of its own and no terminal, `/dev/null` as its input, two pipes as its
  outputs, no other descriptor, the directory `/`, umask 022, and the environment that it is given. Priority and OOM
  score are this process's. No signal is blocked in it, although the daemon blocks some.
* When its time is over, or a stop comes, its group gets SIGTERM, and 5 s later SIGKILL. Unlike a removal that a runtime
  was asked for, it does not outlive the daemon in any case: its supervisor kills it, and its service would be killed
  with all that is in it.
* Its end is the end of the process that was started. Its supervisor kills then what is left of it. Nobody waits for the
  outputs to be closed.
* The calling thread does all of it, by looking at the run every 10 ms or sooner: the event that tells of a stop cannot
  be waited for together with descriptors. With each look it takes what one pipe holds, so that a program that prints
  for ever costs no core.
"""

from __future__ import annotations

import errno
import json
import marshal
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from io import FileIO
from pathlib import PurePath
from typing import Final, NamedTuple, TypeVar

from reclaim.execution.removals import Ready, Stage
from reclaim.execution.workers import in_time
from reclaim.function import Pressure, ReclaimContext, ReclaimFunction
from reclaim.trust import Credentials, owner_only_refusal, this_process
from reclaim.types import Action, Plan, RemovalFailed, Rule, Verdict
from signals.clock import Clock
from signals.types import FilesystemRole

PROGRAM: Final = "program"
PROGRAM_OBJECT: Final = "program_object"
KINDS: Final = (PROGRAM, PROGRAM_OBJECT)
REASONS: Final = ("in_table", "listed_by_program")
"""Why a program is run, or why it would remove what it names."""

PLAN = "plan"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONGEST_PLAN_SECONDS = 10.0
MOST_PLAN_BYTES = 1 << 20
MOST_PLAN_LINES = 10_000
LONGEST_PLAN_LINE = 4096  # bytes
LONGEST_WORDS = 200  # characters of a name, a reason or a last line that are shown
LARGEST_SIZE = 1 << 60

KEPT_BYTES = 64 * 1024  # of what one run prints; what comes after them is read, counted and dropped
MOST_LINES = 100  # of one run
LONGEST_LINE = 1024  # bytes; a longer one is cut

TERM_SECONDS = 5.0  # between SIGTERM and SIGKILL
KILL_SECONDS = 4.0  # how long a process that was killed is waited for: one that hangs in the kernel stays
LEFT_BEHIND_SECONDS = TERM_SECONDS + KILL_SECONDS + 1.0
LOOK_SECONDS = 0.01
READ_BYTES = 64 * 1024  # what a pipe holds

_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program_launcher.py")
_LONGEST_NEWS = 64
_CAP_SETGID, _CAP_SETUID = 6, 7
_HINTS = {
    errno.ENOEXEC: " (a script begins with a line like #!/bin/sh)",
    errno.ENOENT: " (the interpreter that its first line names, or its loader)",
}

LogLine = Callable[[str, str], None]
"""Takes a line that a program has printed: the name of the function, and the line, which may hold control characters.
Has to return at once."""

Output = Callable[[bytes], str]
"""Takes what a program prints; why it has to be ended, as the end of a sentence, or empty."""


Answer = TypeVar("Answer")


class NoPlan(Exception):
    """What was printed is no plan. The message is the end of a sentence that begins with the program."""


class ProgramRefused(RemovalFailed):
    """A program that is not started. The message is one sentence that names it."""


class ProgramUser(NamedTuple):
    """The user and the one group that a program runs as, as numbers."""

    uid: int
    gid: int


# ---- the function


@dataclass(eq=False)
class Program:
    """The program of one function, of which one run goes on at a time.

    `argv`: the program, an absolute path, and its arguments. `timeout_seconds`: how long one run may take, above 0.
    `log`: takes each line that it prints, after the name. `user`: whom it runs as; None: as this process. `asks_plan`:
    whether a dry run starts it with `plan` as a further argument; False for a program that does its work whatever its
    arguments are. `unended`: a run that could not be ended: the program is not started again before it has.
    """

    name: str
    argv: tuple[str, ...]
    timeout_seconds: float
    log: LogLine
    user: ProgramUser | None = None
    asks_plan: bool = True
    unended: ProgramRun | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def path(self) -> str:
        """Of its file."""
        return self.argv[0]

    def log_line(self, line: str) -> None:
        """Logs a line as one of this program."""
        self.log(self.name, line)

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Raises RemovalFailed while an earlier run has not ended."""
        if not self._lock.acquire(blocking=False):
            raise RemovalFailed(f"the program {self.path} runs already")
        try:
            if self.unended is not None:
                if not self.unended.look():
                    raise RemovalFailed(f"the program {self.path} still runs: process {self.unended.pid} does not end")
                self.unended.close()
                self.unended = None
            yield
        finally:
            self._lock.release()


def program_function(program: Program, frees: FilesystemRole) -> ReclaimFunction:
    """The entry of the table for this program. `frees`: the filesystem on which it frees space."""
    return ReclaimFunction(
        program.name,
        frees,
        KINDS,
        lambda context: (ProgramStage(program, context),),
        examine=lambda _, __: examine(program.path, program.user),
    )


class ProgramStage(Stage):
    """The stage: one run of the program. In a dry run `plan` asks the program, where it may be asked. What it is told
    of the pressure is that of the pass, right before each start."""

    frees_late = True  # it may have asked somebody who goes on

    def __init__(self, program: Program, context: ReclaimContext):
        self.patience_seconds = program.timeout_seconds + LEFT_BEHIND_SECONDS
        self._program = program
        self._context = context
        self._dry_run = context.executor.dry_run
        self._has_run = False

    def plan(self) -> Plan:
        """The run as one object without a size; in a dry run what the program says.

        In a dry run raises ProgramRefused, and RemovalFailed if it could not be started; in a pass its removal fails.
        """
        program = self._program
        shown = program.path
        if self._dry_run and program.asks_plan:
            try:
                return self._asked()
            except NoPlan as error:
                program.log_line(f"[asked for its plan it {error}]")
                shown += f" (asked for its plan it {error})"
        elif self._dry_run:
            examine(program.path, program.user)
        return Plan((Verdict(PROGRAM, program.name, shown, Action.REMOVE, "in_table", rule=Rule.GUARD),))

    def check(self, _: Verdict) -> Ready:
        """Whether it may be started is checked at its start, with what is started then."""
        return Ready(self._context.clock.monotonic())

    def remove(self, _: Verdict) -> bool:
        """Runs it to its end. Raises ProgramRefused, and RemovalFailed if it did not exit with 0 in its time."""
        program, lines = self._program, LoggedLines(self._program.log_line)
        run = self._run((), partial(lines.take, 0), lines, program.timeout_seconds)
        if run.problem:
            last = f"; its last line: {lines.last_line}" if lines.last_line else ""
            raise RemovalFailed(f"the program {program.path} {run.problem}{last}")
        self._has_run = True
        return True

    def present(self, _: Verdict) -> bool:
        """Whether it has not run to a good end."""
        return not self._has_run

    def _asked(self) -> Plan:
        """What it says it would remove. Raises NoPlan, ProgramRefused, RemovalFailed."""
        printed = bytearray()

        def take(more: bytes) -> str:
            printed.extend(more[: MOST_PLAN_BYTES + 1 - len(printed)])
            return f"printed more than {MOST_PLAN_BYTES} bytes" if len(printed) > MOST_PLAN_BYTES else ""

        seconds = min(self._program.timeout_seconds, LONGEST_PLAN_SECONDS)
        run = self._run((PLAN,), take, LoggedLines(self._program.log_line), seconds)
        if run.problem:
            raise NoPlan(run.problem)
        return plan_of(self._program.name, bytes(printed))

    def _run(self, arguments: tuple[str, ...], output: Output, lines: LoggedLines, seconds: float) -> ProgramRun:
        """One run, to its end. `output`: for what it prints; `lines`: for its errors. Raises ProgramRefused, and
        RemovalFailed if it could not be started."""
        program, clock, outputs = self._program, self._context.clock, (output, partial(lines.take, 1))
        with program.one_at_a_time():
            told = environment(self._context.pressure(), seconds, clock.wall(), dry_run=self._dry_run)
            with opened_program(program.path) as file:
                run = ProgramRun(file, (*program.argv, *arguments), told, program.user, outputs)
            try:
                run.watch(seconds, clock, self._context.executor.stopping)
            finally:
                lines.end()
            if run.status is None:
                program.unended = run
        return run


def environment(pressure: Pressure, seconds: float, wall: float, *, dry_run: bool) -> dict[str, str]:
    """The whole environment of a program that is started now, at `wall` (seconds since the epoch), with so many seconds
    to run. What is not known is an empty value."""
    deadline = datetime.fromtimestamp(wall, UTC) + timedelta(seconds=seconds)
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "RECLAIMD_SIGNAL": pressure.signal,
        "RECLAIMD_FILESYSTEM": pressure.filesystem,
        "RECLAIMD_AVAILABLE": "" if pressure.available is None else str(pressure.available),
        "RECLAIMD_MARK": "" if pressure.mark is None else str(pressure.mark),
        "RECLAIMD_MISSING_BYTES": str(pressure.missing_bytes),
        "RECLAIMD_MISSING_INODES": str(pressure.missing_inodes),
        "RECLAIMD_DEADLINE_SECONDS": f"{seconds:g}",
        "RECLAIMD_DEADLINE": deadline.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "RECLAIMD_PASS_ID": pressure.pass_id,
        "RECLAIMD_DRY_RUN": "true" if dry_run else "false",
        "RECLAIMD_RUN_ID": os.urandom(16).hex(),
    }


# ---- its file


@contextmanager
def opened_program(path: str, credentials: Credentials | None = None) -> Iterator[int]:
    """A descriptor (`O_PATH`) of the program at an absolute path. Raises ProgramRefused, also where its filesystem does
    not answer."""
    with _in_time(path, partial(_opened, path, credentials or this_process())) as program:
        yield program.fileno()


def examine(path: str, user: ProgramUser | None, credentials: Credentials | None = None) -> None:
    """Raises ProgramRefused if the program would not be started now as this user."""
    with opened_program(path, credentials) as program:
        _in_time(path, partial(_refuse_execution, path, program, user))


def _in_time(path: str, look: Callable[[], Answer]) -> Answer:
    """What `look` returns. Raises ProgramRefused, also for any OSError."""
    try:
        return in_time(look)
    except OSError as error:
        raise ProgramRefused(f"the program {path} cannot be used: {error.strerror or error}") from error


def _opened(path: str, credentials: Credentials) -> FileIO:
    """Closed at the latest when nobody holds it: a thread that hung may have opened it late. Raises ProgramRefused and
    OSError."""
    if not path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")[1:]):
        raise ProgramRefused(f"the program {path!r} is not named by an absolute path without '.', '..' and '//'")
    above = [str(directory) for directory in reversed(PurePath(path).parents)]
    for place in (*above, path):
        status, refusal = os.lstat(place), None
        if stat.S_ISLNK(status.st_mode):
            refusal = f"{place} is a symlink; the path without it: {os.path.realpath(path)}"
        elif place != path:
            refusal = _directory_refusal(place, status, credentials, holds_it=place == above[-1])
        if refusal is not None:
            raise ProgramRefused(f"the program {path} is refused: {refusal}")
    program = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    refusal = _file_refusal(os.fstat(program), credentials)
    if refusal is not None:
        os.close(program)
        raise ProgramRefused(f"the program {path} is refused: {refusal}")
    return FileIO(program)


def _directory_refusal(path: str, status: os.stat_result, credentials: Credentials, *, holds_it: bool) -> str | None:
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a directory"
    if status.st_mode & stat.S_ISVTX and not holds_it and credentials.trusts(status.st_uid):
        return None
    return owner_only_refusal(f"the directory {path}", status, credentials)


def _file_refusal(status: os.stat_result, credentials: Credentials) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    refusal = owner_only_refusal("it", status, credentials)
    if refusal is None and not status.st_mode & 0o111:
        return f"it is not executable (mode {status.st_mode & 0o7777:04o})"
    return refusal


def _refuse_execution(path: str, program: int, user: ProgramUser | None) -> None:
    """Raises ProgramRefused unless the user may execute it. OSError."""
    status, why = os.fstat(program), ""
    if user is None or _is_own(user):
        if not os.access(f"/proc/self/fd/{program}", os.X_OK, effective_ids=True):
            why = f"may not be executed by uid {os.geteuid()}, or its filesystem is mounted noexec"
    elif not _may_switch():
        why = f"cannot be started as uid {user.uid}: this process may not become another user"
    else:
        bit = 0o100 if user.uid == status.st_uid else 0o010 if user.gid == status.st_gid else 0o001
        if user.uid and not status.st_mode & bit:
            why = f"may not be executed by uid {user.uid}, gid {user.gid} (mode {status.st_mode & 0o7777:04o})"
    if why:
        raise ProgramRefused(f"the program {path} {why}")


def _is_own(user: ProgramUser) -> bool:
    """Whether it is the user of this process, so that nothing is switched."""
    return user == (os.geteuid(), os.getegid())


def _may_switch() -> bool:
    """Whether this process may change its user and groups. Raises OSError."""
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return bool(effective >> _CAP_SETUID & effective >> _CAP_SETGID & 1)


# ---- its run


class Launcher:
    """The process of this process that starts programs. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def prepare(self) -> None:
        """Starts it, where it does not run. Raises OSError."""
        with self._lock:
            self._running()

    def request(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Asks for a program, and does not wait for it. Raises OSError."""
        with self._lock:
            socket.send_fds(self._running(), [data], descriptors, socket.MSG_DONTWAIT)

    def _running(self) -> socket.socket:
        if self._requests is None or self._process is None or self._process.poll() is not None:
            if self._requests is not None:
                self._requests.close()
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", _LAUNCHER, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    start_new_session=True,  # a terminal's signals are for the daemon
                )
        return self._requests


LAUNCHER: Final = Launcher()
"""That of this process: where no program is configured, none is started."""


class ProgramRun:
    """One run of a program that was asked for.

    `pid`: its number; 0 until it is known. `status`: its exit code, or a signal as a negative number; None until it has
    ended. `problem`: what was wrong with it, as the end of a sentence; empty if nothing was.
    """

    def __init__(
        self,
        program: int,
        argv: Sequence[str],
        environment: Mapping[str, str],
        user: ProgramUser | None,
        outputs: tuple[Output, Output],
    ):
        """Asks for it. `program`: the descriptor of the file that was checked. `outputs`: for what it prints, and for
        its errors. Raises RemovalFailed."""
        self.pid = 0
        self.status: int | None = None
        self.problem = ""
        self._path = argv[0]
        self._user = None if user is None or _is_own(user) else user
        self._pipes: list[tuple[FileIO, Output]] = []
        self._errno = 0
        self._too_much = ""
        self._news, news = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._news.settimeout(LOOK_SECONDS)
        descriptors = [news.fileno(), program]
        with news, ExitStack() as theirs:
            try:
                for output in outputs:
                    reading, writing = os.pipe()
                    self._pipes.append((FileIO(reading), output))
                    theirs.callback(os.close, writing)
                    os.set_blocking(reading, False)
                    descriptors.append(writing)
                LAUNCHER.request(_request(argv, environment, self._user), descriptors)
            except (OSError, ValueError) as error:
                self.close()
                raise self._not_started(error) from error

    def watch(self, seconds: float, clock: Clock, stopping: threading.Event) -> None:
        """Until it has ended, or cannot be: then its status stays None, and it may be looked at later. `stopping`: ends
        it when it is set. Raises RemovalFailed if it could not be started."""
        try:
            self._watch(seconds, clock, stopping)
            self._read()
        except BaseException:  # it could not be started; or a defect, of whoever takes the lines for instance
            self.close()
            raise
        if self.status is not None:
            self.close()
            self.problem = self.problem or self._too_much or _status_problem(self.status)

    def look(self) -> bool:
        """Takes one piece of news that comes within 10 ms; whether it has ended. Whose supervisor has died, or was
        never there, counts as killed."""
        try:
            news = self._news.recv(_LONGEST_NEWS).split()
        except TimeoutError:
            return False
        except OSError:
            news = []
        match news:
            case [b"pid", number]:
                self.pid = int(number)
            case [b"errno", number]:
                self._errno = int(number)
            case [b"ended", status]:
                self.status = int(status)
            case _:
                self.status = -signal.SIGKILL
        return self.status is not None

    def close(self) -> None:
        """Whatever is left of it is killed. May be called twice."""
        self._news.close()
        for pipe, _ in self._pipes:
            pipe.close()

    def _watch(self, seconds: float, clock: Clock, stopping: threading.Event) -> None:
        def enough() -> str:
            return self._too_much or ("was ended because reclaimd was told to stop" if stopping.is_set() else "")

        if not self._ends(seconds, clock, enough):
            self.problem = enough() or f"had not ended after {seconds:g} s"
            self._signal(signal.SIGTERM)
            if not self._ends(TERM_SECONDS, clock):
                self._signal(signal.SIGKILL)
                if self._ends(KILL_SECONDS, clock):
                    self.problem += "; SIGTERM has not ended it, SIGKILL has"
                elif self.pid:
                    self.problem += f"; it hangs in the kernel as process {self.pid}, SIGKILL has not ended it"
                else:
                    raise self._not_started(OSError(errno.ETIMEDOUT, "its launcher does not answer"))
        if self._errno:
            raise self._not_started(OSError(self._errno, os.strerror(self._errno)))

    def _ends(self, seconds: float, clock: Clock, enough: Callable[[], str] | None = None) -> bool:
        """Reads what it prints until it has ended; False after so many seconds, or when `enough` says why."""
        deadline = clock.monotonic() + seconds
        while not self.look():
            self._read()
            if clock.monotonic() >= deadline or (enough is not None and enough()):
                return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        with suppress(OSError):  # its supervisor has died, which the next look shows
            self._news.send(b"%d" % number)

    def _read(self) -> None:
        for pipe, output in self._pipes:
            self._too_much = output(pipe.read(READ_BYTES) or b"") or self._too_much

    def _not_started(self, error: OSError | ValueError) -> RemovalFailed:
        words, hint = str(error), ""
        if isinstance(error, OSError):
            words, hint = error.strerror or words, _HINTS.get(error.errno or 0, "")
            if error.errno == errno.EPERM and self._user is not None:
                hint = f" (this process may not become uid {self._user.uid}, gid {self._user.gid})"
        return RemovalFailed(f"the program {self._path} could not be started: {words}{hint}")


def _request(argv: Sequence[str], environment: Mapping[str, str], user: ProgramUser | None) -> bytes:
    """Raises ValueError for a zero byte."""
    if any("\0" in text for text in (*argv, *environment.values())):
        raise ValueError("embedded null byte")
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    return marshal.dumps((tuple(map(os.fsencode, argv)), variables, None if user is None else tuple(user)))


def _status_problem(status: int) -> str:
    if status >= 0:
        return f"exited with {status}" if status else ""
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


# ---- what it prints


class LoggedLines:
    """What one run prints to its two outputs, 0 and 1 (its errors), of which each line is handed to `log`: bounded for
    both together, whatever it prints."""

    def __init__(self, log: Callable[[str], None]):
        self._log = log
        self._bytes = KEPT_BYTES
        self._lines = MOST_LINES
        self._dropped_bytes = 0
        self._begun = [b"", b""]
        self._tails = [b"", b""]

    def take(self, output: int, printed: bytes) -> str:
        """Takes all there is: it is never too much."""
        self._tails[output] = (self._tails[output] + printed)[-LONGEST_LINE:]
        kept = printed[: self._bytes]
        self._bytes -= len(kept)
        self._dropped_bytes += len(printed) - len(kept)
        *lines, self._begun[output] = (self._begun[output] + kept).split(b"\n")
        for line in lines:
            self._log_line(line)
        return ""

    def end(self) -> None:
        """Nothing more comes: logs lines that have no end, and how much was not logged."""
        for line in self._begun:
            self._log_line(line)
        if self._dropped_bytes:
            self._log(f"[{self._dropped_bytes} bytes more that it has printed are not logged]")

    @property
    def last_line(self) -> str:
        """The last line of its errors, else of its other output; empty if nothing was printed."""
        lines = [line for tail in self._tails for line in tail.splitlines() if line.strip()]
        return _text_of(lines[-1])[:LONGEST_WORDS] if lines else ""

    def _log_line(self, line: bytes) -> None:
        if not line.strip():
            return
        if self._lines:
            self._lines -= 1
            self._log(_text_of(line[:LONGEST_LINE]) + (" …" if len(line) > LONGEST_LINE else ""))
        else:
            self._dropped_bytes += len(line) + 1


def _text_of(line: bytes) -> str:
    """A line as text; what is not UTF-8 is shown as escapes. Control characters stay: the log escapes them."""
    return line.decode(errors="backslashreplace").rstrip("\r")


def plan_of(function: str, printed: bytes) -> Plan:
    """What a program has said it would remove, each with its own reason behind its name, in its order. For dry runs:
    nothing removes these objects one by one. Raises NoPlan."""
    lines = [line for line in printed.split(b"\n") if line.strip()]
    if not lines:
        raise NoPlan("printed nothing")
    if len(lines) > MOST_PLAN_LINES:
        raise NoPlan(f"printed {len(lines)} lines; allowed are {MOST_PLAN_LINES}")
    objects = [(number, line) for number, line in enumerate(lines, 1) if line.strip() != b"{}"]
    return Plan(tuple(_verdict(f"{function}/{at}", *each) for at, each in enumerate(objects, 1)))


def _verdict(verdict_id: str, number: int, line: bytes) -> Verdict:
    """The object of one line of the plan. Raises NoPlan."""
    if len(line) > LONGEST_PLAN_LINE:
        raise NoPlan(f"printed a line {number} of {len(line)} bytes; allowed are {LONGEST_PLAN_LINE}")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise NoPlan(f"printed a line {number} that is no JSON object")
    name, size, reason = value.get("name"), value.get("size"), value.get("reason", "")
    for key, found, is_allowed, allowed in (
        ("name", name, isinstance(name, str) and name, "a string"),
        ("size", size, size is None or (type(size) is int and 0 <= size <= LARGEST_SIZE), "a whole number of bytes"),
        ("reason", reason, isinstance(reason, str), "a string"),
    ):
        if not is_allowed:
            shown = _cut("missing" if found is None else json.dumps(found))
            raise NoPlan(f"printed a line {number} whose {key} is {shown}; allowed is {allowed}")
    named = f"{_cut(str(name))} ({_cut(reason)})" if reason else _cut(str(name))
    return Verdict(PROGRAM_OBJECT, verdict_id, named, Action.REMOVE, "listed_by_program", size, rule=Rule.GUARD)


def _cut(words: str) -> str:
    """Without lone surrogates, which JSON can say and no output can print."""
    return words[:LONGEST_WORDS].encode(errors="backslashreplace").decode()
