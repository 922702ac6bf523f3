"""A user's own program as a reclaim function: its file, its run, its output, its plan.

A pass runs the program once. *Removed* means that it exited with 0; what it achieved is what the
filesystem has gained, measured as after any removal. A dry run asks it for a plan instead. What a
program is told, and what its plan looks like, is on the page (`docs/functions.md`, Programs of
your own).

**Its file.** Nobody untrusted could have put it there, and the file that was checked is the one
that is started, by its descriptor, wherever its path leads by then. A sticky directory (`/tmp`) may
be further up, as nobody else can replace a directory in it; it may not contain the program itself,
as a hard link to another program could be put there. What the file in turn starts is its owner's
business: a script's interpreter, libraries, other programs.

**Its run** takes no longer than its timeout plus three times `GRACE_SECONDS`, whatever it does.

* A process of its own (`program.supervisor`) starts it, so that a start that hangs never blocks
  this process. Where it cannot be had, the run fails in one sentence, and the row goes on.
* The calling thread is one of the daemon's workers, which are there before pressure. It waits for
  what the supervisor tells, for the end of the supervisor, and for output. Only a stop has no
  descriptor: it is looked for every `STOP_SECONDS`.
* The run ends when the process that was started ends. Its supervisor then kills what is left of it.
  Nobody waits for the outputs to be closed.
* Unlike a removal that a runtime was asked for, a run never outlives the daemon: its supervisor
  kills it, and stopping the service would kill everything in it anyway.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from io import FileIO
from pathlib import PurePath
from typing import NamedTuple

from reclaim.cri.client import READ_DEADLINE_SECONDS
from reclaim.function import Pressure, Ready, ReclaimContext, ReclaimFunction, Stage
from reclaim.trust import owner_only_refusal, trusts
from reclaim.types import Action, Plan, RemovalFailed, Rule, Verdict
from reclaim.workers import Answer, in_time
from signals.clock import Clock
from signals.quantity import reason_of
from signals.types import FilesystemRole

PROGRAM = "program"
PROGRAM_OBJECT = "program_object"
KINDS = (PROGRAM, PROGRAM_OBJECT)
REASONS = ("in_table", "listed_by_program")
"""Why a program is run, or why it would remove what it lists."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LARGEST_PLAN_BYTES = 1 << 20
OBJECT = (
    '{"name": "TEXT", "size": BYTES, "reason": "TEXT"}, of which size and reason may be missing'
)
LONGEST_WORDS = 200  # characters shown of a name, a reason or a last line
LARGEST_SIZE = 1 << 60

# of what one run prints; anything beyond is read, counted and dropped, a full pipe at a time
KEPT_BYTES = 64 * 1024
MOST_LINES = 100  # of one run
LONGEST_LINE = 1024  # bytes; a longer one is cut

GRACE_SECONDS = 5.0
"""How long a run may take after its timeout, three times: between SIGTERM and SIGKILL, for a killed
process to end, and for what it has left behind."""

STOP_SECONDS = 0.25  # a stop is noticed so soon
PAUSE_SECONDS = 0.01  # between two looks: a program that prints forever does not occupy a core

_SUPERVISOR = str(PurePath(__file__).with_name("supervisor.py"))
if sys.version_info < (3, 11, 4):
    subprocess._USE_VFORK = False  # type: ignore[misc] # noqa: SLF001 # it holds the interpreter until execve(2) ends
_TO_SWITCH = 1 << 6 | 1 << 7  # CAP_SETGID, CAP_SETUID
_HINT = " (a script begins with a line like #!/bin/sh, and what it names must exist)"


class NoPlan(Exception):
    """What was printed is not a plan.

    The message is the end of a sentence that begins with the program.
    """


class ProgramUser(NamedTuple):
    """The user and the single group that a program runs as, as numbers."""

    uid: int
    gid: int


# ---- the function


@dataclass(eq=False)
class Program:
    """The program of one function. Only one run at a time.

    `argv`: the program's absolute path, and its arguments. `timeout_seconds`: how long a run may
    take, above 0. `log`: takes each line that the program prints, which may contain control
    characters, and returns at once. `user`: who it runs as; None: as this process. `asks_plan`:
    whether a dry run starts it with `plan` as an additional argument; if False, it does its work
    whatever its arguments are. `idle`: empty while it runs; else the last run if it could not be
    ended, until it has ended, or None.
    """

    name: str
    argv: tuple[str, ...]
    timeout_seconds: float
    log: Callable[[str], None]
    user: ProgramUser | None = None
    asks_plan: bool = True
    idle: list[ProgramRun | None] = field(default_factory=lambda: [None])

    @property
    def path(self) -> str:
        """The path of its file."""
        return self.argv[0]


def program_function(program: Program, frees: FilesystemRole) -> ReclaimFunction:
    """The entry of the table for this program. `frees`: the filesystem on which it frees space."""
    return ReclaimFunction(
        program.name,
        frees,
        KINDS,
        stages=lambda context: (ProgramStage(program, context),),
        examine=lambda _, __: examine(program.path, program.user),
    )


class ProgramStage(Stage):
    """The stage: one run of the program. In a dry run, `plan` asks the program, if it may be asked.
    The pressure passed to the program is the pass's, as measured last before each start."""

    frees_late = True  # it may have asked another process that is still at work

    def __init__(self, program: Program, context: ReclaimContext):
        self.patience_seconds = program.timeout_seconds + 3 * GRACE_SECONDS
        self._program = program
        self._context = context
        self._dry_run = context.facts().dry_run
        self._has_run = False

    def plan(self) -> Plan:
        """The run as one object without a size; in a dry run, what the program lists.

        In a dry run, raises RemovalFailed if it is refused or could not be started; in a pass,
        the removal fails instead.
        """
        program = self._program
        shown = program.path
        if self._dry_run and program.asks_plan:
            try:
                return self._asked()
            except NoPlan as error:
                program.log(f"[asked for its plan it {error}]")
                shown += f" (asked for its plan it {error})"
        elif self._dry_run:
            examine(program.path, program.user)
        return Plan(
            (Verdict(PROGRAM, program.name, shown, Action.REMOVE, "in_table", rule=Rule.GUARD),)
        )

    def check(self, _: Verdict) -> Ready:
        """Whether it may be started is checked at its start, on the very file that is started."""
        return Ready(self._context.clock.monotonic())

    def remove(self, _: Verdict) -> bool:
        """Runs it to its end.

        Raises RemovalFailed unless it exits with 0 in time.
        """
        program = self._program
        printed = Printed(program.log)
        run = self._run((), printed, program.timeout_seconds)
        if run.problem:
            last = f"; its last line: {printed.last_line}" if printed.last_line else ""
            raise RemovalFailed(f"the program {program.path} {run.problem}{last}")
        self._has_run = True
        return True

    def present(self, _: Verdict) -> bool:
        """Whether it has not yet run successfully."""
        return not self._has_run

    def _asked(self) -> Plan:
        """What it says it would remove. Raises NoPlan and RemovalFailed."""
        program = self._program
        printed = Printed(program.log, is_plan=True)
        run = self._run(("plan",), printed, min(program.timeout_seconds, READ_DEADLINE_SECONDS))
        if run.problem and len(printed.plan) <= LARGEST_PLAN_BYTES:
            raise NoPlan(run.problem)
        return plan_of(program.name, bytes(printed.plan))

    def _run(self, arguments: tuple[str, ...], printed: Printed, seconds: float) -> ProgramRun:
        """One run, to its end.

        Raises RemovalFailed if it is refused, could not be started, or runs already.
        """
        program = self._program
        context = self._context
        try:
            hanging = program.idle.pop()  # only one of two threads gets it
        except IndexError:
            raise RemovalFailed(f"the program {program.path} runs already") from None
        try:
            if hanging is not None and not hanging.has_ended():
                raise RemovalFailed(
                    f"the program {program.path} still runs: process {hanging.pid} does not end"
                )
            hanging = None
            pressure = context.facts().pressure
            with opened_program(program.path) as file:
                run = ProgramRun(
                    file.fileno(),
                    (*program.argv, *arguments),
                    environment(pressure, seconds, context.clock.wall(), dry_run=self._dry_run),
                    user=program.user,
                    printed=printed,
                )
            run.watch(seconds, context.clock, context.stopping)
            if run.status is None:
                hanging = run
            return run
        finally:
            program.idle.append(hanging)


def environment(
    pressure: Pressure, seconds: float, wall: float, *, dry_run: bool
) -> dict[str, str]:
    """The complete environment of a program started now, at `wall` (seconds since the epoch), that
    may run for `seconds`. Unknown values are empty."""
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


def opened_program(path: str) -> FileIO:
    """The program at an absolute path, opened (`O_PATH`). Raises RemovalFailed, also if its
    filesystem does not answer."""
    return _in_time(path, partial(_opened, path))


def examine(path: str, user: ProgramUser | None) -> None:
    """Raises RemovalFailed if the program would not be started now as this user."""
    with opened_program(path) as program:
        _in_time(path, partial(_refuse_execution, path, program.fileno(), user))


def _in_time(path: str, look: Callable[[], Answer]) -> Answer:
    """The result of `look`. Raises RemovalFailed, also for any OSError."""
    try:
        return in_time(look, of=path)
    except OSError as error:
        raise RemovalFailed(f"the program {path} cannot be used: {reason_of(error)}") from error


def _opened(path: str) -> FileIO:
    """The opened file. It is closed at the latest when the last reference to it is dropped: a
    thread that hung may open it late. Raises RemovalFailed and OSError."""
    target = os.path.realpath(path)
    if target != path:
        raise RemovalFailed(
            f"the program {path!r} is refused: allowed is an absolute path without symlinks, '.',"
            f" '..' and '//', such as {target!r}"
        )
    above = [str(directory) for directory in reversed(PurePath(path).parents)]
    for place in above:
        status = os.lstat(place)
        if status.st_mode & stat.S_ISVTX and place != above[-1] and trusts(status.st_uid):
            continue
        refusal = owner_only_refusal(f"the directory {place}", status)
        if refusal is not None:
            raise RemovalFailed(f"the program {path} is refused: {refusal}")
    program = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    refusal = _file_refusal(os.fstat(program))
    if refusal is not None:
        os.close(program)
        raise RemovalFailed(f"the program {path} is refused: {refusal}")
    return FileIO(program)


def _file_refusal(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if (refusal := owner_only_refusal("it", status)) is not None:
        return refusal
    return None if status.st_mode & 0o111 else f"it is not executable ({_mode(status)})"


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}"


def _refuse_execution(path: str, program: int, user: ProgramUser | None) -> None:
    """Raises RemovalFailed unless the user may execute it, and OSError."""
    why = ""
    if user is None or user == (os.geteuid(), os.getegid()):
        if not os.access(f"/proc/self/fd/{program}", os.X_OK, effective_ids=True):
            why = f"may not be executed by uid {os.geteuid()}, or its filesystem is mounted noexec"
    elif not _may_switch():
        why = f"cannot be started as uid {user.uid}: this process may not become another user"
    else:
        status = os.fstat(program)
        allowed = stat.S_IXOTH
        if user.uid == status.st_uid:
            allowed = stat.S_IXUSR
        elif user.gid == status.st_gid:
            allowed = stat.S_IXGRP
        if user.uid and not status.st_mode & allowed:
            why = f"may not be executed by uid {user.uid}, gid {user.gid} ({_mode(status)})"
    if why:
        raise RemovalFailed(f"the program {path} {why}")


def _may_switch() -> bool:
    """Whether this process may change its user and groups. Raises OSError."""
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return effective & _TO_SWITCH == _TO_SWITCH


# ---- its run


class ProgramRun:
    """One run of a program, by a supervisor of its own.

    `pid`: its process id; that of its supervisor until it is known. `status`: its exit code, or a
    signal as a negative number; None until it has ended. `problem`: what went wrong, as the end of
    a sentence; empty if nothing did.
    """

    def __init__(
        self,
        program: int,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        user: ProgramUser | None,
        printed: Printed,
    ):
        """Starts the supervisor. `program`: the descriptor of the file that was checked. `printed`:
        takes what it prints. Raises RemovalFailed."""
        self.status: int | None = None
        self.problem = ""
        self._path = argv[0]
        self._printed = printed
        self._descriptors = ExitStack()
        try:
            self._news, news = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._descriptors.enter_context(self._news)
            with news:
                passed = (news.fileno(), program)
                switch = ":".join(map(str, user or ()))
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-ISB", _SUPERVISOR, *map(str, passed), switch, *argv],
                    bufsize=0,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=passed,
                    cwd="/",
                    env=environment,
                    umask=0o022,
                    start_new_session=True,  # signals from a terminal are for the daemon
                )
        except OSError as error:
            self._descriptors.close()
            raise self._not_started(reason_of(error)) from error
        self.pid = self._supervisor.pid
        self._poll = select.poll()
        self._poll.register(self._news, select.POLLIN)
        self._outputs = list(filter(None, (self._supervisor.stdout, self._supervisor.stderr)))
        for output in self._outputs:
            os.set_blocking(self._descriptors.enter_context(output).fileno(), False)
            self._poll.register(output, select.POLLIN)

    def watch(self, seconds: float, clock: Clock, stopping: threading.Event) -> None:
        """Watches until it has ended, or cannot be ended; in that case its status stays None,
        and `has_ended` can be called later. `stopping`: ends it when set. Raises RemovalFailed if
        it could not be started."""
        hangs = False
        try:
            self._watch(seconds, clock, stopping)
            hangs = self.status is None
        finally:  # also after a bug, for instance in what takes the lines
            if not hangs:
                self._close()
            self._printed.end()

    def has_ended(self) -> bool:
        """Whether it has ended by now, though it could not be ended."""
        self._look(0)
        if self.status is None:
            return False
        self._close()
        return True

    def _watch(self, seconds: float, clock: Clock, stopping: threading.Event) -> None:
        if not self._ends(seconds, clock, stopping.is_set):
            self.problem = f"had not ended after {seconds:g} s"
            if stopping.is_set():
                self.problem = "was ended because reclaimd was told to stop"
            self._signal(signal.SIGTERM)
            if not self._ends(GRACE_SECONDS, clock):
                self._signal(signal.SIGKILL)
                # which does not answer, and has started nothing yet
                if self.pid == self._supervisor.pid:
                    self._supervisor.kill()
                if self._ends(GRACE_SECONDS, clock):
                    self.problem += "; SIGTERM has not ended it, SIGKILL has"
                else:
                    self.problem += (
                        f"; it hangs in the kernel as process {self.pid}, SIGKILL has not ended it"
                    )
        self._read()
        if self.status is not None:
            self.problem = self.problem or _status_problem(self.status)

    def _ends(self, seconds: float, clock: Clock, stopped: Callable[[], bool] = bool) -> bool:
        """Waits until it has ended; False after `seconds`, or once it is stopped."""
        deadline = clock.monotonic() + seconds
        while self.status is None and not stopped():
            left = deadline - clock.monotonic()
            if left <= 0:
                break
            self._look(min(left, STOP_SECONDS))
        return self.status is not None

    def _look(self, seconds: float) -> None:
        """Takes what comes first within this time: news, or output."""
        ready = [descriptor for descriptor, _ in self._poll.poll(seconds * 1000)]
        if self._news.fileno() in ready:
            self._take_news()
        self._read()
        if ready and self.status is None:
            time.sleep(PAUSE_SECONDS)

    def _take_news(self) -> None:
        """Raises RemovalFailed if it could not be started, which nothing tells once it is ended."""
        try:
            news = self._news.recv(64).split()
        except OSError:
            news = []
        match news:
            case [b"pid", number]:
                self.pid = int(number)
            case [b"errno", number]:
                code = int(number)
                hint = _HINT if code in (errno.ENOEXEC, errno.ENOENT) else ""
                raise self._not_started(os.strerror(code) + hint)
            case [b"ended", status]:
                self.status = int(status)
            case _ if self.pid == self._supervisor.pid and not self.problem:
                raise self._not_started("its supervisor has ended")
            case _:  # its supervisor has died, and it with it
                self.status = -signal.SIGKILL

    def _read(self) -> None:
        """Takes what is there. No pipe ends before its supervisor, which has both, too."""
        for number, output in enumerate(self._outputs):
            self._printed.take(number, output.read(KEPT_BYTES) or b"")

    def _signal(self, number: signal.Signals) -> None:
        with suppress(OSError):  # its supervisor has died, as the next look will show
            self._news.send(b"%d" % number)

    def _close(self) -> None:
        """Whatever is left of it is killed, which is waited for."""
        self._descriptors.close()
        with suppress(subprocess.TimeoutExpired):  # it is reaped when the next one is started
            self._supervisor.wait(GRACE_SECONDS)

    def _not_started(self, words: str) -> RemovalFailed:
        return RemovalFailed(f"the program {self._path} could not be started: {words}")


def _status_problem(status: int) -> str:
    if status >= 0:
        return f"exited with {status}" if status else ""
    names = {int(known): known.name for known in signal.Signals}
    return f"was ended by {names.get(-status, f'signal {-status}')}"


# ---- what it prints


class Printed:
    """What one run prints to its two outputs, 0 and 1 (its errors). Each line is passed to `log`,
    within limits for both together, whatever the program prints. `is_plan`: output 0 is a plan,
    which is kept, and not logged."""

    def __init__(self, log: Callable[[str], None], *, is_plan: bool = False):
        self.plan = bytearray()
        self._is_plan = is_plan
        self._log = log
        self._bytes = KEPT_BYTES
        self._lines = MOST_LINES
        self._dropped_bytes = 0
        self._begun = [b"", b""]
        self._tails = [b"", b""]

    def take(self, output: int, printed: bytes) -> None:
        """Takes what was printed since."""
        if self._is_plan and not output:
            self.plan += printed[: LARGEST_PLAN_BYTES + 1 - len(self.plan)]
            return
        self._tails[output] = (self._tails[output] + printed)[-LONGEST_LINE:]
        kept = printed[: self._bytes]
        self._bytes -= len(kept)
        self._dropped_bytes += len(printed) - len(kept)
        *lines, self._begun[output] = (self._begun[output] + kept).split(b"\n")
        for line in lines:
            self._log_line(line)

    def end(self) -> None:
        """Nothing more will come: logs unfinished lines, and how much was not logged."""
        for line in self._begun:
            self._log_line(line)
        if self._dropped_bytes:
            self._log(f"[{self._dropped_bytes} bytes more that it has printed are not logged]")

    @property
    def last_line(self) -> str:
        """The last line of its errors, else of its other output; empty if it printed nothing."""
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
    """A line as text, with escapes for what is not UTF-8.

    Control characters stay: the log escapes them.
    """
    return line.decode(errors="backslashreplace").rstrip("\r")


def plan_of(function: str, printed: bytes) -> Plan:
    """What a program says it would remove, in its order, each with its reason appended to its name.
    For dry runs: nothing removes these objects one by one. Raises NoPlan."""
    if len(printed) > LARGEST_PLAN_BYTES:
        raise NoPlan(f"printed more than {LARGEST_PLAN_BYTES} bytes")
    lines = [line for line in printed.split(b"\n") if line.strip()]
    if not lines:
        raise NoPlan("printed nothing")
    objects = [(number, line) for number, line in enumerate(lines, 1) if line.strip() != b"{}"]
    return Plan(tuple(_verdict(f"{function}/{at}", *each) for at, each in enumerate(objects, 1)))


def _verdict(verdict_id: str, number: int, line: bytes) -> Verdict:
    """The object on one line of the plan. Raises NoPlan."""
    listed = None
    with suppress(ValueError, RecursionError):
        listed = json.loads(line)
    match {"size": None, "reason": "", **listed} if isinstance(listed, dict) else None:
        case {"name": str(name), "size": None | int() as size, "reason": str(reason)} if (
            name and not isinstance(size, bool) and 0 <= (size or 0) <= LARGEST_SIZE
        ):
            named = f"{_cut(name)} ({_cut(reason)})" if reason else _cut(name)
        case _:
            shown = _text_of(line[:LONGEST_WORDS])
            raise NoPlan(f"printed as line {number} {shown!r}; allowed is {OBJECT}")
    return Verdict(
        PROGRAM_OBJECT, verdict_id, named, Action.REMOVE, "listed_by_program", size, rule=Rule.GUARD
    )


def _cut(words: str) -> str:
    """Cuts the text and escapes lone surrogates, which JSON can express but no output can print."""
    return words[:LONGEST_WORDS].encode(errors="backslashreplace").decode()
