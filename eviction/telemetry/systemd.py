"""What systemd is told of the service: ready, reloading, stopping, its status, and that it is alive.

One datagram each to the socket that `NOTIFY_SOCKET` names (sd_notify(3)); standard library only. Started by hand there
is no such socket, and everything here does nothing. Nothing here waits or raises: a service manager that does not read
loses what it was told.

The watchdog is fed only by finished looks of the loop, never by a timer: a loop that hangs is not kept alive by a
thread beside it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

FEEDS_A_PERIOD = 4.0  # systemd recommends half the period at the latest; a look that hangs may take 6 s of it
LONGEST_STATUS_BYTES = 500
FIRST_LISTENING = 3  # SD_LISTEN_FDS_START


class Notifier:
    """Tells the service manager, if there is one.

    `watchdog_seconds`: how long it waits for a sign of life before it ends the service; None where it does not watch
    this process.
    """

    def __init__(self, environment: Mapping[str, str], process_id: int):
        self._path = _socket_address(environment.get("NOTIFY_SOCKET", ""))
        self.watchdog_seconds = _watchdog_seconds(environment, process_id) if self._path is not None else None
        self._fed_at = float("-inf")
        self._status = ""

    def ready(self, status: str = "") -> None:
        """The service is up, or has reloaded its configuration."""
        self._send("READY=1", *_status_line(status))

    def reloading(self) -> None:
        """The configuration is being read again; `ready` ends that."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """The service is ending by itself."""
        self._send("STOPPING=1")

    def status(self, sentence: str) -> None:
        """What `systemctl status` shows; the same sentence is told once."""
        if sentence != self._status:
            self._status = sentence
            self._send(*_status_line(sentence))

    def alive(self, now: float) -> None:
        """A look has finished at `now` (monotonic seconds). Told a few times a period at most: looks can be many."""
        if self.watchdog_seconds is not None and now - self._fed_at >= self.watchdog_seconds / FEEDS_A_PERIOD:
            self._fed_at = now
            self._send("WATCHDOG=1")

    def longest_sleep(self, seconds: float) -> float:
        """How long the loop may sleep between two looks so that the watchdog is fed in time: `seconds`, or less."""
        return seconds if self.watchdog_seconds is None else min(seconds, self.watchdog_seconds / FEEDS_A_PERIOD)

    def _send(self, *lines: str) -> None:
        if self._path is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto("\n".join(lines).encode(errors="replace"), self._path)
        except OSError:  # nobody reads there, or its buffer is full
            pass


def listening_socket(environment: Mapping[str, str], process_id: int, name: str) -> socket.socket | None:
    """The socket of this name that the service manager has opened for this process (sd_listen_fds(3)); None where there
    is none. So a service without a network of its own can be asked for its metrics."""
    count, names = environment.get("LISTEN_FDS", ""), environment.get("LISTEN_FDNAMES", "").split(":")
    if environment.get("LISTEN_PID") != str(process_id) or not (count.isascii() and count.isdigit()):
        return None
    for descriptor in range(FIRST_LISTENING, FIRST_LISTENING + min(int(count), len(names))):
        if names[descriptor - FIRST_LISTENING] == name:
            try:
                os.set_inheritable(descriptor, False)
                return socket.socket(fileno=descriptor)
            except OSError:  # not open, or no socket
                return None
    return None


def _socket_address(text: str) -> str | None:
    """A path or an abstract name (`@…`), as sd_notify(3) has it; None for what is neither."""
    if text.startswith("/") and len(os.fsencode(text)) <= 107:
        return text
    return "\0" + text[1:] if text.startswith("@") and 1 < len(os.fsencode(text)) <= 107 else None


def _watchdog_seconds(environment: Mapping[str, str], process_id: int) -> float | None:
    """`WATCHDOG_USEC`, where `WATCHDOG_PID` does not name another process (sd_watchdog_enabled(3))."""
    text, wanted = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) == 0:
        return None
    return int(text) / 1e6 if wanted in ("", str(process_id)) else None


def _status_line(sentence: str) -> tuple[str, ...]:
    """At most one line: what comes from names must not become another assignment."""
    line = "".join(character if character.isprintable() else " " for character in sentence)
    return (f"STATUS={line.encode()[:LONGEST_STATUS_BYTES].decode(errors='ignore')}",) if sentence else ()
