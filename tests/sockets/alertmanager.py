"""A real Alertmanager from Debian, and a stand-in for systemd's sockets with `Accept=yes`."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import free_port
from tests.reclaimd_process import came_true

START_SECONDS = 30.0


class Alertmanager:
    """Runs with a configuration file; `fire` sends it alerts as Prometheus does."""

    def __init__(self, program: str, directory: Path, configuration: Path):
        self._address = f"127.0.0.1:{free_port()}"
        self._log = (directory / "alertmanager.log").open("w")
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={configuration}",
                f"--storage.path={directory / 'alertmanager'}",
                f"--web.listen-address={self._address}",
                "--cluster.listen-address=",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        assert came_true(self._is_ready), "it does not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(60.0)
        self._log.close()

    def fire(self, **labels: str) -> None:
        """An alert that fires from now on."""
        body = json.dumps([{"labels": labels}]).encode()
        request = urllib.request.Request(
            f"http://{self._address}/api/v2/alerts", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=60.0).close()  # noqa: S310 # loopback

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=60.0).close()
        except OSError:
            return False
        return True


class Inetd:
    """Listens, and starts a command for each connection, which is its stdin and stdout.

    `codes`: the exit codes so far; `stderr`: what the commands wrote there.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]):
        self._command = command
        self._environment = environment
        self.codes: list[int] = []
        self.stderr = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.setblocking(True)
                process = subprocess.run(
                    self._command,
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=subprocess.PIPE,
                    env=self._environment,
                    text=True,
                    check=False,
                )
            self.stderr += process.stderr
            self.codes.append(process.returncode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60.0)
