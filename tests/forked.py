"""Starts the program as a process of its own without a start of Python: a process
that has imported it forks.

    python -m tests.forked DESCRIPTOR

A start takes 0.3 s of processor time, nearly all of it for imports, and the tests start the program
400 times; a fork takes a tenth. Each worker has one process that forks, from its first start to its
end; it has a single thread, and imports nothing that starts one. What it forks has its own
arguments, environment, directory and standard streams, and runs `eviction.__main__` from there on.

Does not cover: what a start itself does (imports, bytecode, PYTHON* variables) and what a process
of its own costs (memory). Tests of those start a Python.
"""

import gc
import importlib
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
from functools import cache
from typing import NoReturn

from eviction.cli.commands import COMMANDS

IMPORTED_LATER = (
    "eviction.surface.metrics",
    "eviction.drill.embedded",
    "eviction.drill.runtime",
)
MOST_BYTES = 1 << 17  # of the arguments and the environment of one start
STATUS_BYTES = 8


class Forked:
    """A process that was forked; as much of subprocess.Popen as the tests need.

    Any thread may call it.
    """

    def __init__(self, pid: int, report: int):
        self.pid = pid
        self.returncode: int | None = None
        self._report = report
        self._lock = threading.Lock()

    def poll(self, timeout_seconds: float = 0.0) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        ended = (
            self.returncode is not None or select.select([self._report], [], [], timeout_seconds)[0]
        )
        with self._lock:
            if ended and self.returncode is None:
                told = os.read(self._report, STATUS_BYTES)
                assert told, "the process that forks has ended"
                self.returncode = int(told)
                os.close(self._report)
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
    """The process that forks, as its parent sees it. It ends when its socket is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "tests.forked", str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
    ) -> tuple[int, int]:
        """The pid of the new process, and a descriptor from which its status can be read."""
        order = {
            "arguments": [*arguments],
            "environment": {**environment},
            "directory": os.getcwd(),
        }
        report, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [json.dumps(order).encode()], [*streams, theirs])
                return int(self._socket.recv(STATUS_BYTES)), report
        finally:
            os.close(theirs)

    def end(self) -> None:
        """Waits for its end. What it has forked goes on."""
        self._socket.close()
        self._process.wait()


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
    return Forked(*_forker().start(arguments, environment, streams))


# ---- the process that forks


def _serve(server: socket.socket) -> Callable[[], int] | None:
    """Forks for each order. In a forked process: returns what it has to run.

    In the one that forks: None at the end.
    """
    ended = selectors.DefaultSelector()
    ended.register(server, selectors.EVENT_READ)
    while True:
        for key, _ in ended.select():
            if key.data is not None:
                pid, report = key.data
                ended.unregister(key.fd)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _tell(report, code)
                continue
            order, descriptors, _, _ = socket.recv_fds(server, MOST_BYTES, 4)
            if not order:
                return None
            *streams, report = descriptors
            pid = os.fork()
            if pid == 0:
                ended.close()
                return _prepared(json.loads(order), streams)
            for descriptor in streams:
                os.close(descriptor)
            ended.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, report))
            server.send(str(pid).encode())


def _tell(report: int, code: int) -> None:
    try:
        os.write(report, str(code).encode())
    except BrokenPipeError:  # nobody has waited
        pass
    os.close(report)


def _prepared(order: dict[str, object], streams: Sequence[int]) -> Callable[[], int]:
    """Makes this process what a start of Python would have made of it; returns the program."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 # until the process ends, as the others
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
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
