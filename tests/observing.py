"""`reclaimd drill --observe` as a process of a test."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.reclaimd_process import ENVIRONMENT, PROGRAM


class Observing:
    """A running observation with its report, ended by SIGTERM, or by itself."""

    def __init__(self, directory: Path, *arguments: str):
        self.path = directory / "drill-node-observed.json"
        self.process = subprocess.Popen(
            [PROGRAM, "drill", "--observe", "--report", str(directory), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        assert self.process.stdout is not None
        self.head: list[str] = []
        for line in self.process.stdout:
            self.head.append(line)
            if line.startswith("ends "):
                break

    def ended(self, timeout_seconds: float = 60.0) -> tuple[int, str]:
        """Waits for its end; the exit code, and what was printed."""
        printed, _ = self.process.communicate(timeout=timeout_seconds)
        return self.process.returncode, printed

    def stopped(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """The same after sending a signal."""
        self.process.send_signal(number)
        return self.ended()

    def report(self) -> Any:
        """The document that it wrote."""
        return json.loads(self.path.read_text())
