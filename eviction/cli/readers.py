"""Whether somebody reads what is written: a hook whose output nobody reads must still relieve the node."""

from __future__ import annotations

import select


def takes_words(descriptor: int) -> bool:
    """Whether a sentence (at most 4 KiB, PIPE_BUF) could be written now without waiting for a reader."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT)
    return bool(waiting.poll(0))
