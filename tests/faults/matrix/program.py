"""The daemon of the fault matrix: `reclaimd run` as a process of its own, and a
probe that asks for `/livez`.

Its service manager is played here: where a row allows it, a process that ended by itself is started
again after the seconds that the unit has as RestartSec.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.background import Background
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Process, started

RESTART_SECONDS = 5.0
PROBE_EVERY_SECONDS = 0.25
LOG_BYTES = 3000


class Program:
    """The process, from `start` to `stop`. `stderr`: a descriptor, None for the file `log`.

    `before`: a program that starts it, and makes it wait; `started` is
    called with each such process.
    """

    def __init__(self, configuration: str, log: Path, *, restarts: bool = False) -> None:
        self._arguments = ("run", "--config", configuration, "--logging-format", "json")
        self._restarts = restarts
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="service manager", daemon=True)
        self.log = log
        self.before: Sequence[str] = ()
        self.stderr: int | None = None
        self.started: Callable[[subprocess.Popen[bytes]], None] = lambda _: None
        self.process: Process
        self.ended_by_itself: list[int] = []

    def start(self) -> None:
        """Starts it."""
        self._start()
        self._keeper.start()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            stderr = log.fileno() if self.stderr is None else self.stderr
            if not self.before:
                self.process = started(*self._arguments, streams=(0, 1, stderr))
                return
            self.process = waiting = subprocess.Popen(
                [*self.before, PROGRAM, *self._arguments],
                stdin=subprocess.PIPE,
                stderr=stderr,
                env=ENVIRONMENT,
            )
        self.started(waiting)

    def _keep(self) -> None:
        while not self._over.wait(0.05):
            code = self.process.poll()
            if code is None:
                continue
            self.ended_by_itself.append(code)
            if not self._restarts or self._over.wait(RESTART_SECONDS):
                return
            self._close_stdin()
            self._start()

    def terminate(self, wait_seconds: float) -> tuple[int | None, float]:
        """SIGTERM; the exit code, None if it has not ended in time, and the
        seconds that it took.
        """
        self._over.set()
        self._keeper.join()
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code: int | None = self.process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            code = None
        return code, time.monotonic() - began

    def kill(self) -> None:
        """Leaves no process behind."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        if hasattr(self, "process"):
            self.process.kill()
            self._close_stdin()
            self.process.wait(60.0)

    def _close_stdin(self) -> None:
        if isinstance(self.process, subprocess.Popen) and self.process.stdin is not None:
            self.process.stdin.close()

    def last_words(self) -> str:
        """The end of its log."""
        return (
            self.log.read_bytes()[-LOG_BYTES:].decode(errors="replace") if self.log.exists() else ""
        )


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
        self._answers: list[Answer] = []

    @property
    def answers(self) -> list[Answer]:
        """All so far."""
        return list(self._answers)

    def _run(self) -> None:
        while not self._over.is_set():
            asked = time.time()
            status = livez(self._port, self._patience)
            if not self._over.is_set():
                self._answers.append(Answer(asked, time.time(), status))
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
