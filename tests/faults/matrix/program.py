"""The daemon of the fault matrix: `reclaimd run` as a process of its own, and a
probe that asks for `/livez`.

Its service manager is played here: where a row allows it, a process that ended by itself is started
again after the seconds that the unit has as RestartSec.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.background import Background
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Process, started

RESTART_SECONDS = 5.0
PROBE_EVERY_SECONDS = 0.25
WAITS_FOR_A_LINE = ("sh", "-c", 'read line; exec "$0" "$@"')


class Program(Background):
    """The process, from `start` to `kill`. `stderr`: a descriptor, None for the file `log`.

    `limit`: called with each process before it runs the program. `before`: a program that starts it.
    """

    def __init__(self, configuration: str, log: Path, *, restarts: bool = False) -> None:
        super().__init__("service manager")
        self._arguments = ("run", "--config", configuration, "--logging-format", "json")
        self._restarts = restarts
        self.log = log
        self.before: tuple[str, ...] = ()
        self.stderr: int | None = None
        self.limit: Callable[[int], None] | None = None
        self.process: Process | None = None
        self.ended_by_itself: list[int] = []

    def start(self) -> None:
        """Starts it."""
        self._start()
        self.__enter__()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            stderr = log.fileno() if self.stderr is None else self.stderr
            before = WAITS_FOR_A_LINE if self.limit else self.before
            if not before:
                self.process = started(*self._arguments, streams=(0, 1, stderr))
                return
            command = [*before, PROGRAM, *self._arguments]
            self.process = process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stderr=stderr, env=ENVIRONMENT
            )
        if self.limit:
            self.limit(process.pid)
        assert process.stdin is not None
        with process.stdin as line:
            line.write(b"\n")

    @property
    def pid(self) -> int:
        """The daemon's."""
        assert self.process is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self.process is None else self.process.poll()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            if self.code is None:
                continue
            self.ended_by_itself.append(self.code)
            if not self._restarts or self._over.wait(RESTART_SECONDS):
                return
            self._start()

    def terminate(self, wait_seconds: float) -> int | None:
        """SIGTERM; the exit code, None if it has not ended in time."""
        self.__exit__(None, None, None)
        assert self.process is not None
        if self.code is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Leaves no process behind."""
        if self._thread.is_alive():
            self.__exit__(None, None, None)
        if self.process is not None:
            self.process.kill()
            self.process.wait(60.0)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-3000:].decode(errors="replace") if self.log.exists() else ""


class Answer(NamedTuple):
    """One answer of `/livez`: when it was asked and answered (wall seconds), and
    the status; None: no answer.
    """

    asked: float
    answered: float
    status: int | None


class Probe(Background):
    """Asks for `/livez` four times a second while its `with` block lasts, as a kubelet does."""

    def __init__(self, port: int, patience_seconds: float) -> None:
        super().__init__("probe")
        self._port = port
        self._patience = patience_seconds
        self.answers: list[Answer] = []

    def _run(self) -> None:
        while not self._over.is_set():
            asked = time.time()
            status = livez(self._port, self._patience)
            if not self._over.is_set():
                self.answers.append(Answer(asked, time.time(), status))
            self._over.wait(PROBE_EVERY_SECONDS)


def livez(port: int, patience_seconds: float) -> int | None:
    """The status of `GET /livez`; None if nobody has answered in time."""
    try:
        with socket.create_connection(("127.0.0.1", port), patience_seconds) as client:
            client.settimeout(patience_seconds)
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            words = client.recv(64).split()
    except OSError:
        return None
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None
