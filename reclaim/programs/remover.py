"""Starts a program and says how its run ended, in one sentence.

A program is no object that could be asked for afterwards: *removed* means that it ran and exited with 0. What came of
it is what the filesystem has gained, which the executor measures as after any removal.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reclaim.clock import Clock
from reclaim.execution.remover import STATUS_FRESH_SECONDS, Ready
from reclaim.programs.output import LoggedLines, Output, Share
from reclaim.programs.planned_objects import NoPlan, PlannedObject, PlanOutput, planned_objects
from reclaim.programs.process import Cause, Command, Ended, run_program
from reclaim.programs.program_file import opened_program
from reclaim.programs.settings import PLAN, Pressure, ProgramSettings, environment
from reclaim.types import RemovalFailed, Verdict

LONGEST_PLAN_SECONDS = 10.0

LogLine = Callable[[str, str], None]
"""Takes a line that a program has printed: the name of the function, and the line, which may hold control characters.
Has to return at once."""


class Program:
    """The program of one function, of which one run goes on at a time. `pressure`: asked right before each start."""

    def __init__(self, name: str, settings: ProgramSettings, pressure: Callable[[], Pressure], log: LogLine):
        self.name = name
        self.settings = settings
        self._pressure = pressure
        self._log = log
        self._lock = threading.Lock()
        self._unended: Ended | None = None

    @property
    def path(self) -> str:
        """Its file."""
        return self.settings.argv[0]

    def run(self, clock: Clock, stopping: threading.Event) -> None:
        """Runs it to its end. Raises ProgramRefused, and RemovalFailed if it did not exit with 0 in its time."""
        share = Share()
        outputs = LoggedLines(self.log_line, share), LoggedLines(self.log_line, share)
        seconds = self.settings.timeout_seconds
        with self._one_at_a_time():
            ended = self._run((), outputs, seconds, clock, stopping, dry_run=False)
        if share.dropped_bytes:
            self.log_line(f"[{share.dropped_bytes} bytes more that it has printed are not logged]")
        if ended.left_behind:
            self.log_line(f"[processes that it had left behind and that were killed: {ended.left_behind}]")
        problem = _problem_of(ended, seconds)
        if problem:
            last = outputs[1].last_line or outputs[0].last_line
            raise RemovalFailed(f"the program {self.path} {problem}" + (f"; its last line: {last}" if last else ""))

    def plan(self, clock: Clock, stopping: threading.Event) -> tuple[PlannedObject, ...]:
        """Asks it what it would remove. Raises NoPlan if it does not say it; ProgramRefused, and RemovalFailed if it
        could not be started."""
        plan, seconds = PlanOutput(), min(self.settings.timeout_seconds, LONGEST_PLAN_SECONDS)
        outputs = plan, LoggedLines(self.log_line, Share())
        with self._one_at_a_time():
            ended = self._run((PLAN,), outputs, seconds, clock, stopping, dry_run=True)
        if ended.cause is not Cause.OUTPUT and (problem := _problem_of(ended, seconds)):
            raise NoPlan(problem)
        return planned_objects(bytes(plan.printed))

    def _run(
        self,
        arguments: tuple[str, ...],
        outputs: tuple[Output, Output],
        seconds: float,
        clock: Clock,
        stopping: threading.Event,
        *,
        dry_run: bool,
    ) -> Ended:
        told = environment(self._pressure(), seconds, clock.wall(), dry_run=dry_run)
        with opened_program(self.path) as program:
            command = Command(program, (*self.settings.argv, *arguments), self.settings.user, told, seconds)
            ended = run_program(command, outputs, clock, stopping)
        if ended.status is None:
            self._unended = ended
        return ended

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Raises RemovalFailed while an earlier run has not ended."""
        if not self._lock.acquire(blocking=False):
            raise RemovalFailed(f"the program {self.path} runs already")
        try:
            if self._unended is not None:
                process = self._unended.process
                process.look()
                if process.status is None:
                    raise RemovalFailed(f"the program {self.path} still runs: process {process.pid} does not end")
                process.close()
                self._unended = None
            yield
        finally:
            self._lock.release()

    def log_line(self, line: str) -> None:
        """Logs a line as one of this program."""
        self._log(self.name, line)


class ProgramRemover:
    """Runs the program of one plan. `frees_late`: it may have asked somebody who goes on."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = True

    def __init__(self, program: Program, clock: Clock, stopping: threading.Event):
        self._program = program
        self._clock = clock
        self._stopping = stopping
        self._has_run = False

    def check(self, _: Verdict) -> Ready:
        """Whether it may be started is checked at its start, with what is started then."""
        return Ready(self._clock.monotonic())

    def remove(self, _: Verdict) -> bool:
        """Runs it to its end. Raises RemovalFailed if it did not exit with 0 in its time."""
        self._program.run(self._clock, self._stopping)
        self._has_run = True
        return True

    def present(self, _: Verdict) -> bool:
        """Whether it has not run to a good end."""
        return not self._has_run


def _problem_of(ended: Ended, seconds: float) -> str:
    """What was wrong with a run, as the end of a sentence; empty if nothing was."""
    if ended.cause is None:
        return _status_problem(ended.status)
    words = {
        Cause.TIMEOUT: f"had not ended after {seconds:g} s",
        Cause.STOPPING: "was ended because reclaimd was told to stop",
        Cause.OUTPUT: "printed too much",
    }[ended.cause]
    if ended.status is None:
        return f"{words}; it hangs in the kernel as process {ended.process.pid}, SIGKILL has not ended it"
    return f"{words}; SIGTERM has not ended it, SIGKILL has" if ended.killed else words


def _status_problem(status: int | None) -> str:
    if not status:
        return ""
    if status > 0:
        return f"exited with {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
