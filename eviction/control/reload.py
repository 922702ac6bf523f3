"""The answer to `reclaimd reload`: the daemon reads its configuration again, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def reload_for_client(reload: Callable[[], str]) -> Iterator[dict[str, Any]]:
    """One line of JSON: `problem`, empty if the configuration as it is now is in force.

    `reload`: reads and applies it, waits until it is in force, and returns why it is not, as a sentence; empty if it
    is. It may be called by several clients at a time, and while SIGHUP has another thread reload.
    """
    yield {"problem": reload()}
