"""Who comes to the daemon's own sockets: the control socket and the port of metrics and health."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from eviction.surface.control_client import NotAskedError, ask
from tests.background import Background
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.program import livez
from tests.faults.matrix.table import SLACK_SECONDS, Fault
from tests.reclaimd_process import came_true

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench

CLIENTS = 24  # three times as many as are answered at a time
TURN_SECONDS = 0.2
GARBAGE = b"\0\xff{" * 300 + b"\n\r\n\r\n"


class _Crowd(Background):
    """Clients that never say anything; with `words` each sends one byte of them now and then, or
    (`at_once`) all of them and comes again."""

    def __init__(
        self, family: int, address: str | tuple[str, int], words: bytes, *, at_once: bool
    ) -> None:
        super().__init__("crowd")
        self._family, self._address = family, address
        self._words, self._at_once = words, at_once
        self._clients: list[socket.socket] = []

    def _run(self) -> None:
        turn = 0
        while not self._over.is_set():
            while len(self._clients) < CLIENTS and self._connect():
                pass
            for client in list(self._clients) if self._words else ():
                letter = self._words[turn % len(self._words) :][:1]
                try:
                    client.sendall(self._words if self._at_once else letter)
                    leaves = self._at_once
                except OSError:
                    leaves = True
                if leaves:
                    client.close()
                    self._clients.remove(client)
            turn += 1
            self._over.wait(TURN_SECONDS)
        for client in self._clients:
            client.close()

    def _connect(self) -> bool:
        client = socket.socket(self._family)
        client.settimeout(TURN_SECONDS)
        try:
            client.connect(self._address)
        except OSError:
            client.close()
            return False
        self._clients.append(client)
        return True


class _Endpoint(Injector):
    """Clients that are many and silent, slow, or send garbage."""

    family: int
    address: str | tuple[str, int]
    beginning: bytes

    def begin(self) -> None:
        """They come."""
        words = {Fault.SLOW: self.beginning, Fault.WRONG: GARBAGE}.get(self.fault, b"")
        wrong = self.fault is Fault.WRONG
        self.undo.enter_context(_Crowd(self.family, self.address, words, at_once=wrong))

    def problems(self) -> list[str]:
        """After the fault it answers, if there was an endpoint at the start."""
        answers = self.fault is Fault.ABSENT_AT_START or self.answers()
        return [] if answers else [f"{self.row.resource} does not answer"]

    def answers(self) -> bool:
        """Whether it does."""
        raise NotImplementedError


class ControlSocket(_Endpoint):
    """Its path may be taken or away, too."""

    family, beginning = socket.AF_UNIX, b'{"command": "status"'

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._path = bench.directory / "control" / "control.sock"
        self.address = str(self._path)

    def begin(self) -> None:
        """By the fault."""
        if self.fault is Fault.ABSENT_AT_START:
            self._path.mkdir(parents=True, mode=0o700)
            self.undo.callback(self._path.rmdir)
        elif self.fault is Fault.ABSENT:
            away = self._path.rename(self._path.with_name("away.sock"))
            self.undo.callback(away.rename, self._path)
        else:
            super().begin()

    def answers(self) -> bool:
        """Asked for its status, unless the crowd is still there."""
        crowded = self.fault in (Fault.HANGS, Fault.SLOW)
        return crowded or came_true(self._asked, SLACK_SECONDS)

    def _asked(self) -> bool:
        try:
            return bool(ask(str(self._path), "status"))
        except NotAskedError:
            return False


class MetricsPort(_Endpoint):
    """The port may be taken, too."""

    family, beginning = socket.AF_INET, b"GET /livez HTTP/1.1\r\nX: " + b"y" * 4096

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.address = ("127.0.0.1", bench.port)

    def begin(self) -> None:
        """By the fault."""
        if self.fault is Fault.ABSENT_AT_START:
            self.undo.enter_context(socket.create_server(("127.0.0.1", self.bench.port)))
        else:
            super().begin()

    def answers(self) -> bool:
        """Asked for its health."""
        return livez(self.bench.port, SLACK_SECONDS) is not None
