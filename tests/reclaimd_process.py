"""Runs the installed program `reclaimd` as a process."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

from eviction.cli.main import main
from tests import forked
from tests.schemas import assert_a_log_line, assert_as_described

PROGRAM = str(Path(sys.executable).with_name("reclaimd"))
NO_EVENT = "NOT AN EVENT"
DEFECT = "observing the node: "
MOST_VALIDATED = 1000  # lines of the log of one daemon; a soak writes many more, and all alike
PATIENCE_SECONDS = 60.0  # the limit of a wait, which ends as soon as it can
Process = subprocess.Popen[bytes] | forked.Forked
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.endswith("_ENDPOINT")}


def reclaimd(
    *arguments: str, timeout_seconds: float = PATIENCE_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, in a process of its own."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = started(
            *arguments,
            streams=(0, out.fileno(), err.fileno()),
            environment={**ENVIRONMENT, **environment},
        )
        try:
            code = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([PROGRAM, *arguments], code, out.read(), err.read())


def started(
    *arguments: str,
    streams: Sequence[int] = (0, 1, 2),
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Process:
    """A command as a process of its own: forked if it can be, else by a start of Python. `streams`:
    the descriptors of its standard streams."""
    if forked.can_fork(arguments, environment):
        return forked.start(arguments, environment, streams)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [PROGRAM, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, env=environment
    )


def reclaimd_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end in this process, which costs no start of Python;
    for those that end at once.

    `run` and `reclaim` block SIGTERM and SIGHUP; the mask is restored, as programs
    started later would inherit it.
    """
    out, err = io.StringIO(), io.StringIO()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return subprocess.CompletedProcess([PROGRAM, *arguments], code, out.getvalue(), err.getvalue())


def answer(process: subprocess.CompletedProcess[str]) -> Any:
    """The JSON document that a command printed.

    It must be as its schema says, with no other fields.
    """
    assert process.stdout, f"nothing on stdout; exit {process.returncode}; stderr: {process.stderr}"
    document = json.loads(process.stdout)
    assert_as_described(document)
    return document


def exact(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields, where marks that are counts of bytes have an exponent: without a
    unit they would be refused.
    """
    marks = {
        name: {
            signal: f"{value}e0"
            if str(value).isdigit() and signal.endswith(".available")
            else value
            for signal, value in fields[name].items()
        }
        for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim")
        if isinstance(fields.get(name), Mapping)
    }
    return {**fields, **marks}


def write_configuration(path: Path, **fields: object) -> Path:
    """A configuration file (JSON is YAML) with the usual head, which keeps this machine's own
    files, ports and kubelet out of the test."""
    head = {
        "podLogsDir": str(path.parent / "log" / "pods"),
        "containerLogsDir": str(path.parent / "log" / "containers"),
        "stateFile": "",
        "historyFile": "",
        "lockDirectory": str(path.parent / "lock"),
        "apiVersion": "reclaimd.io/v1alpha1",
        "kind": "ReclaimdConfiguration",
        "kubeletConfig": "",
        "controlSocket": "",
        "metricsAddress": "",
    }
    if not fields.get("kubeletConfig"):  # where there is one, it says where its kubelet is asked
        head["kubeletHealthzEndpoint"] = ""
    path.write_text(json.dumps({**head, **exact(fields)}))
    return path


class Daemon:
    """A running `reclaimd run` with its JSON log; ended by SIGTERM when the `with` block ends.

    `before`: a program that starts it, with its arguments. `cwd`: its working directory.
    `environment`: replaces that of the tests; `variables` are added. `program`: another
    installation of reclaimd. `cold`: Python is started for it, as with each of these; else it is
    forked, if it can be. If the daemon ended by itself, other than with exit 0 or by SIGKILL, the
    test fails with its log. It also fails for a line of the log that is not as its schema says, or
    that tells of a defect.
    """

    def __init__(
        self,
        *arguments: str,
        before: Sequence[str] = (),
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        program: str = PROGRAM,
        cold: bool = False,
        **variables: str,
    ):
        self._program = program
        self._arguments = arguments
        self._before = before
        self._cwd = cwd
        self._cold = (
            cold or bool(before) or cwd is not None or environment is not None or program != PROGRAM
        )
        self._environment = {**(ENVIRONMENT if environment is None else environment), **variables}
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        reading, writing = os.pipe()
        self._stderr = open(reading)
        try:
            self.process = self._started(writing)
        finally:
            os.close(writing)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.wait_for(lambda event: event["message"].startswith("started"))
        except BaseException:
            self.process.kill()
            self.stop()
            raise
        return self

    def _started(self, stderr: int) -> Process:
        command = ("run", "--logging-format", "json", *self._arguments)
        if not self._cold:
            return started(*command, streams=(0, 1, stderr), environment=self._environment)
        return subprocess.Popen(
            [*self._before, self._program, *command],
            stderr=stderr,
            cwd=self._cwd,
            env=self._environment,
        )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        code = self.stop()
        if kind is None and code not in (0, -signal.SIGKILL):
            log = "\n".join(event["message"] for event in self.events)
            raise AssertionError(f"the daemon ended with {code}; the log:\n{log}")
        if kind is None and self._program == PROGRAM:
            for event in self.events[:MOST_VALIDATED]:
                assert not event["message"].startswith(DEFECT), event
                if not event["message"].startswith(NO_EVENT):
                    assert_a_log_line(event)

    def stop(self, timeout_seconds: float = PATIENCE_SECONDS) -> int:
        """Sends SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_seconds)
        self._reader.join(60.0)
        self._stderr.close()
        return code

    @property
    def passes(self) -> list[dict[str, Any]]:
        """The records of the passes so far."""
        return [event["record"] for event in list(self.events) if "record" in event]

    def logged(self, text: str) -> bool:
        """True if the message of any log event contains this text."""
        return any(text in event["message"] for event in list(self.events))

    def wait_for(
        self, found: Callable[[dict[str, Any]], bool], timeout_seconds: float = PATIENCE_SECONDS
    ) -> dict[str, Any]:
        """The first event for which `found` is true, waited for.

        Fails with the log when there is none in time.
        """
        deadline = time.monotonic() + timeout_seconds
        seen = 0
        while True:
            events = list(self.events)
            for event in events[seen:]:
                if found(event):
                    return event
            seen = len(events)
            if time.monotonic() >= deadline or (
                self.process.poll() is not None and seen == len(self.events)
            ):
                log = "\n".join(event["message"] for event in events)
                raise AssertionError(f"no such event within {timeout_seconds} s; the log:\n{log}")
            time.sleep(0.01)

    def _read(self) -> None:
        for line in self._stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.events.append({"message": f"{NO_EVENT}: {line}"})


def came_true(
    condition: Callable[[], bool],
    within_seconds: float = PATIENCE_SECONDS,
    *,
    every_seconds: float = 0.01,
) -> bool:
    """Whether the condition became true in time."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_seconds)
    return True
