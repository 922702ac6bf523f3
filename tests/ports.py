"""Loopback ports for the servers of a test."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that is unused at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
