"""A server of the ring as a child process: its log, its start and its end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.real_node.leftovers import wait_or_kill

LOG_LINES = 30


class NotStarted(RuntimeError):
    """A server did not come up; the message ends with the tail of its log."""


class Server:
    """One program that runs until `stop`.

    `log`: the file that it writes to, over several starts.
    """

    def __init__(
        self, command: Sequence[object], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = [str(word) for word in command]
        self._environment = environment
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id. NotStarted when it does not run."""
        if self._process is None:
            raise NotStarted(f"{self._command[0]} does not run")
        return self._process.pid

    def start(self, is_ready: Callable[[], bool], seconds: float = 60.0) -> None:
        """Starts it and waits until it is ready. NotStarted."""
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            if is_ready():
                return
            time.sleep(0.05)
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        self.stop()
        raise NotStarted(f"{' '.join(self._command)} is not ready; the end of its log:\n{tail}")

    def kill(self) -> None:
        """Ends it by SIGKILL. NotStarted when it does not run."""
        if self._process is None:
            raise NotStarted(f"{self._command[0]} does not run")
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self, patience_seconds: float = 10.0) -> None:
        """Ends it by SIGTERM, later by SIGKILL. May be called twice."""
        if self._process is None:
            return
        self._process.terminate()
        wait_or_kill(self._process, patience_seconds)
        self._process = None
