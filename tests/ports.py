"""Loopback ports for the servers of a test."""

import random
import socket
from pathlib import Path

LOWEST = 15_000
TRIES = 100
_chance = random.SystemRandom()  # several runs side by side must not try the same ports


def free_port() -> int:
    """A port that is unused at this moment.

    Below those that the kernel gives to outgoing connections: one of them could take it before the
    server has it, or while a server is started again.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(TRIES):
        port = _chance.randrange(LOWEST, max(below, LOWEST + 1000))
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"{TRIES} ports from {LOWEST} on are all taken")
