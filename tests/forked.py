"""Starts the program as a process of its own without a start of Python: a process
that has imported it forks.

    python -m tests.forked DESCRIPTOR

A start takes 0.3 s of processor time, nearly all of it for imports, and the tests start the program
400 times; a fork takes a tenth. Each worker has one process that forks, from its first start to its
end; it has a single thread, and imports nothing that starts one. What it forks has its own
arguments, environment, directory and standard streams, and runs `eviction.__main__` from there on.
A shell has it fork by `tests/forking.py`, which stands for the program.

Does not cover: what a start itself does (imports, bytecode, PYTHON* variables) and what a process
of its own costs (memory). Tests of those start a Python.
"""

import gc
import importlib
import io
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from eviction.cli.commands import COMMANDS
from tests import forking

IMPORTED_LATER = (
    "eviction.surface.metrics",
    "eviction.drill.embedded",
    "eviction.drill.runtime",
)
MOST_BYTES = 1 << 17  # of the arguments and the environment of one start


class Forked:
    """A process that was forked; as much of subprocess.Popen as the tests need.

    Any thread may call it. `forker`: the connection that tells its exit code; it is killed if that
    is closed before.
    """

    def __init__(self, pid: int, forker: socket.socket):
        self.pid = pid
        self.returncode: int | None = None
        self._forker = forker
        self._lock = threading.Lock()

    def poll(self, timeout_seconds: float = 0.0) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        ended = (
            self.returncode is not None or select.select([self._forker], [], [], timeout_seconds)[0]
        )
        with self._lock:
            if ended and self.returncode is None:
                told = self._forker.recv(forking.STATUS_BYTES)
                assert told, "the process that forks has ended"
                self.returncode = int(told)
                self._forker.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        code = self.poll(1e6 if timeout is None else timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Forker:
    """The process that forks, as its parent sees it. It ends when its stdin is closed."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory()
        self.address = f"{self._directory.name}/forker.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen()
            number = listener.fileno()
            command = [sys.executable, "-m", "tests.forked", str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.PIPE)
        self.program = Path(self._directory.name, "reclaimd")
        client = f"{sys.executable} -SI {forking.__file__} {self.address}"
        self.program.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
        self.program.chmod(0o700)

    def end(self) -> None:
        """Waits for its end. What it has forked goes on."""
        self._process.communicate()
        self._directory.cleanup()


_forker = cache(_Forker)


def end() -> None:
    """Ends the process that forks, if there is one. The next start needs a new one."""
    if _forker.cache_info().currsize:
        _forker().end()
        _forker.cache_clear()


def can_fork(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command can be forked with this environment: in tests, not in measurements; on the
    main thread, as only that one is in the mounts of the tests."""
    if (
        "PYTEST_CURRENT_TEST" not in os.environ
        or threading.current_thread() is not threading.main_thread()
    ):
        return False
    names = {name for name in (*environment, *os.environ) if name.startswith("PYTHON")}
    return all(environment.get(name) == os.environ.get(name) for name in names)


def start(
    arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
) -> Forked:
    """Starts a command of the program. `streams`: the descriptors of its standard streams."""
    return Forked(*forking.ordered(_forker().address, arguments, environment, streams))


def program() -> Path:
    """What stands for the program in a shell."""
    return _forker().program


# ---- the process that forks


def _serve(listener: socket.socket) -> Callable[[], int] | None:
    """Forks for each order. In a forked process: returns what it has to run.

    In the one that forks: None at the end.
    """
    ready = selectors.DefaultSelector()
    for waited_for in (sys.stdin, listener):
        ready.register(waited_for, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is sys.stdin:
                return None
            if key.fileobj is listener:
                client, _ = listener.accept()
                order, streams, _, _ = socket.recv_fds(client, MOST_BYTES, 3)
                pid = os.fork()
                if pid == 0:
                    ready.close()
                    return _prepared(json.loads(order), streams)
                for descriptor in streams:
                    os.close(descriptor)
                client.send(str(pid).encode())
                ended = os.pidfd_open(pid)
                for waited_for in (client, ended):
                    ready.register(waited_for, selectors.EVENT_READ, (client, pid, ended))
                continue
            client, pid, ended = key.data
            if key.fd == ended:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError):  # nobody has waited
                    client.send(str(code).encode())
                ready.unregister(ended)
                os.close(ended)
            elif client.fileno() >= 0:  # it has hung up
                signal.pidfd_send_signal(ended, signal.SIGKILL)
            if client.fileno() >= 0:
                ready.unregister(client)
                client.close()


def _prepared(order: dict[str, object], streams: Sequence[int]) -> Callable[[], int]:
    """Makes this process what a start of Python would have made of it; returns the program."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 # until the process ends, as the others
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)  # noqa: SIM115
    unbuffered = open(2, "wb", 0, closefd=False)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(unbuffered, "utf-8", "backslashreplace", write_through=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments, environment, directory = order["arguments"], order["environment"], order["directory"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    os.chdir(str(directory))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["reclaimd", *arguments]
    gc.unfreeze()
    from eviction.__main__ import main

    return main


def _main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and then this
    sys.dont_write_bytecode = True
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    for name in (*(f"eviction.cli.{name.replace('-', '_')}" for name in COMMANDS), *IMPORTED_LATER):
        importlib.import_module(name)
    gc.collect()
    # what every process shares is not visited by its garbage collections, and so not copied
    gc.freeze()
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(0 if program is None else program())


if __name__ == "__main__":
    _main()
