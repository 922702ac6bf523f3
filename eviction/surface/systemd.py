"""Notifications to systemd: ready, reloading, stopping, status, watchdog
keep-alive; and its sockets.

Each notification is one datagram to the socket that `NOTIFY_SOCKET` names (sd_notify(3)).
Without that variable nothing is sent. No method waits or raises: a datagram that the service
manager does not read is lost.

The watchdog is fed only by finished observations, never by a timer, so that a
loop that hangs is noticed.
"""

import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

KEEP_ALIVES_A_PERIOD = 4.0  # systemd recommends at least 2; an observation that hangs may take 6 s
LONGEST_STATUS_BYTES = 500
DATAGRAMS = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
FIRST_LISTENING = 3  # SD_LISTEN_FDS_START


class Notifier:
    """Sends notifications to the service manager, if there is one.

    `watchdog_seconds`: WatchdogSec, after which a service without a keep-alive is killed; None if
    this process is not watched.
    """

    def __init__(self, environment: Mapping[str, str], process_id: int):
        path = environment.get("NOTIFY_SOCKET", "")
        # `@`: the abstract socket of that name
        self._path = f"\0{path[1:]}" if path.startswith("@") else path
        self.watchdog_seconds = _watchdog_seconds(environment, process_id) if path else None
        # Made at the start: a process without a free descriptor must still feed the watchdog.
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = socket.socket(socket.AF_UNIX, DATAGRAMS).detach()
        self._kept_alive_at = float("-inf")
        self._status = ""

    def ready(self) -> None:
        """The service has started, or has reloaded its configuration."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The configuration is being read again; `ready` must follow."""
        self._send(
            "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"
        )

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, sentence: str) -> None:
        """Sets the text that `systemctl status` shows, in one line: text from names must not become
        another assignment. An unchanged one is not sent again."""
        if sentence != self._status:
            self._status = sentence
            line = "".join(character if character.isprintable() else " " for character in sentence)
            self._send(f"STATUS={line.encode()[:LONGEST_STATUS_BYTES].decode(errors='ignore')}")

    def keep_alive(self, now: float) -> None:
        """An observation finished at `now` (monotonic seconds).

        Sends at most 4 keep-alives per period.
        """
        if self.watchdog_seconds is None:
            return
        if now - self._kept_alive_at >= self.watchdog_seconds / KEEP_ALIVES_A_PERIOD:
            self._kept_alive_at = now
            self._send("WATCHDOG=1")

    def longest_sleep(self, seconds: float) -> float:
        """How long the loop may sleep between two observations without missing a
        keep-alive; at most `seconds`.
        """
        if self.watchdog_seconds is None:
            return seconds
        return min(seconds, self.watchdog_seconds / KEEP_ALIVES_A_PERIOD)

    def _send(self, *lines: str) -> None:
        # there is no such socket, no process reads there, or its buffer is full
        with suppress(OSError):
            sender = socket.socket(socket.AF_UNIX, DATAGRAMS, 0, self._descriptor)
            try:
                sender.sendto("\n".join(lines).encode(errors="replace"), self._path)
            finally:
                self._descriptor = sender.detach()  # it stays open


def listening_socket(
    environment: Mapping[str, str], process_id: int, name: str
) -> socket.socket | None:
    """The socket of this name that the service manager opened for this process
    (sd_listen_fds(3)), or None.

    With it a service with PrivateNetwork=yes can still serve metrics.
    """
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    if environment.get("LISTEN_PID") != str(process_id) or name not in names:
        return None
    try:
        descriptor = FIRST_LISTENING + names.index(name)
        os.set_inheritable(descriptor, False)
        return socket.socket(fileno=descriptor)
    except OSError:  # not open, or no socket
        return None


def _watchdog_seconds(environment: Mapping[str, str], process_id: int) -> float | None:
    """`WATCHDOG_USEC`, unless `WATCHDOG_PID` names another process (sd_watchdog_enabled(3))."""
    text = environment.get("WATCHDOG_USEC", "")
    watched = environment.get("WATCHDOG_PID") or str(process_id)
    if watched != str(process_id) or not re.fullmatch("[0-9]{1,19}", text):
        return None
    return int(text) / 1e6 or None
