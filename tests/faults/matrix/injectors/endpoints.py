"""Who comes to the daemon's own sockets: the control socket and the port of metrics and health."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from eviction.surface.control_client import NotAskedError, ask
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.program import livez
from tests.faults.matrix.rows import SLACK_SECONDS, Fault
from tests.reclaimd_process import came_true

if TYPE_CHECKING:
    from tests.faults.matrix.bench import Bench

CLIENTS = 24  # three times as many as are answered at a time
TURN_SECONDS = 0.2
GARBAGE = b"\0\xff{" * 300 + b"\n\r\n\r\n"


class _Crowd:
    """Clients that never say anything; with `words` each sends one byte of them now and then, or
    (`at_once`) all of them and comes again."""

    def __init__(
        self,
        family: int,
        address: str | tuple[str, int],
        words: bytes = b"",
        *,
        at_once: bool = False,
    ) -> None:
        self._family, self._address = family, address
        self._words, self._at_once = words, at_once
        self._clients: list[socket.socket] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crowd", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._over.is_set():
            while len(self._clients) < CLIENTS and self._connect():
                pass
            for client in list(self._clients):
                if not self._words:
                    continue
                try:
                    client.sendall(
                        self._words if self._at_once else self._words[turn % len(self._words) :][:1]
                    )
                except OSError:
                    self._leave(client)
                    continue
                if self._at_once:
                    self._leave(client)
            turn += 1
            self._over.wait(TURN_SECONDS)

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

    def _leave(self, client: socket.socket) -> None:
        client.close()
        self._clients.remove(client)

    def close(self) -> None:
        """All of them leave."""
        self._over.set()
        self._thread.join()
        for client in list(self._clients):
            self._leave(client)


class ControlSocket(Injector):
    """Its path is taken or away, or its clients are many and silent, slow, or send garbage."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._path = bench.directory / "control" / "control.sock"
        self._away = self._path.with_name("away.sock")
        self._crowd: _Crowd | None = None

    def begin(self) -> None:
        """By the fault."""
        match self.fault:
            case Fault.ABSENT_AT_START:
                self._path.mkdir(parents=True, mode=0o700)
            case Fault.ABSENT:
                self._path.rename(self._away)
            case Fault.HANGS | Fault.COMES_BACK:
                self._crowd = _Crowd(socket.AF_UNIX, str(self._path))
            case Fault.SLOW:
                self._crowd = _Crowd(socket.AF_UNIX, str(self._path), b'{"command": "status"')
            case Fault.WRONG:
                self._crowd = _Crowd(socket.AF_UNIX, str(self._path), GARBAGE, at_once=True)

    def end(self) -> None:
        """The path is free, or has the socket again; the clients leave."""
        if self.fault is Fault.ABSENT_AT_START:
            self._path.rmdir()
        elif self.fault is Fault.ABSENT:
            self._away.rename(self._path)
        self.release()

    def problems(self) -> list[str]:
        """After the fault it answers, if there was a socket at the start."""
        if self.fault is Fault.ABSENT_AT_START or came_true(self._answers, SLACK_SECONDS):
            return []
        return ["the control socket does not answer"] if self._crowd is None else []

    def _answers(self) -> bool:
        try:
            return bool(ask(str(self._path), "status"))
        except NotAskedError:
            return False

    def release(self) -> None:
        """The clients leave."""
        if self._crowd is not None:
            self._crowd.close()
            self._crowd = None


class MetricsPort(Injector):
    """The port is taken, or its clients are many and silent, slow, or send garbage."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._address = ("127.0.0.1", bench.port)
        self._taken: socket.socket | None = None
        self._crowd: _Crowd | None = None

    def begin(self) -> None:
        """By the fault."""
        match self.fault:
            case Fault.ABSENT_AT_START:
                self._taken = socket.create_server(self._address)
            case Fault.SLOW:
                self._crowd = _Crowd(
                    socket.AF_INET, self._address, b"GET /livez HTTP/1.1\r\nX: " + b"y" * 4096
                )
            case Fault.WRONG:
                self._crowd = _Crowd(socket.AF_INET, self._address, GARBAGE, at_once=True)
            case _:
                self._crowd = _Crowd(socket.AF_INET, self._address)

    def end(self) -> None:
        """The port is free; the clients leave."""
        self.release()

    def problems(self) -> list[str]:
        """After the fault it answers, if there was a port at the start."""
        if self.fault is Fault.ABSENT_AT_START or livez(self.bench.port, SLACK_SECONDS) is not None:
            return []
        return ["the port of metrics and health does not answer"]

    def release(self) -> None:
        """Nobody is there."""
        with suppress(OSError):
            if self._taken is not None:
                self._taken.close()
        self._taken = None
        if self._crowd is not None:
            self._crowd.close()
            self._crowd = None
