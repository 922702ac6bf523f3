"""Pausing the daemon for a client: nothing is removed until a moment that it names."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from eviction.control.pause_file import PauseFile
from eviction.node.hold_off import LONGEST_PAUSE_SECONDS, Pause
from eviction.reporting.log import Log


def pause_for_client(
    request: Mapping[str, Any], pause: Pause, file: PauseFile, log: Log
) -> Generator[dict[str, Any], None, None]:
    """Begins a pause of `seconds`, or with 0 ends it. One line of JSON: `paused_seconds`, `sentence`, `warning` (empty,
    or why a restart will not find it so); or `error`."""
    seconds = request.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_PAUSE_SECONDS:
        yield {"error": f"seconds must be a number between 0 and {LONGEST_PAUSE_SECONDS:.0f}, but it was {seconds!r}"}
        return
    until = pause.until()
    if seconds:
        pause.begin(seconds)
        sentence = pause.why() or "not paused"
    else:
        pause.end()
        sentence = f"the pause until {until} is ended" if until else "there was no pause to end"
    (log.warning if seconds else log.info)(sentence)
    warning = file.keep(pause)
    if warning:
        log.warning(warning)
    yield {"paused_seconds": round(pause.left_seconds, 3), "sentence": sentence, "warning": warning}
