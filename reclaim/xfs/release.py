"""When XFS is asked to give back what it has allocated ahead, and what came of it.

XFS allocates behind the end of a file that grows: as much again as the file has, up to 8 GiB, until the file is closed
or for some minutes (https://docs.kernel.org/admin-guide/xfs.html, `allocsize` and `speculative_prealloc_lifetime`).
`statvfs` counts these blocks as used, although they hold nothing. Giving them back destroys nothing, but the next write
to the file allocates them again. So:

* What gives back 1 MiB or more may be called again 10 ms later. Of filesystems that give back nothing three times in
  succession the pauses grow, from 0.1 s to 5 s; a new pass does not wait for their end.
* What was given back 8 times, each within a second of the time before, is taken again at once by a file that is being
  written: then there is none for 5 s, and other functions make the room, for a kubelet sees what `statvfs` says.
* After a problem (no helper, no answer within 100 ms, a refusal) the pauses grow from 1 s to a minute.

Covers: pauses, counts. Does not cover: measuring (the caller).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reclaim.clock import Clock
from reclaim.xfs.client import Answer, ReleaseResult

LEAST_GAIN_BYTES = 1 << 20
SHORTEST_PAUSE_SECONDS = 0.01  # the helper serves 200 requests a second
VAIN_CALLS = 3
VAIN_PAUSES_SECONDS = (0.1, 5.0)
TAKEN_AGAIN_SECONDS = 1.0
MOST_TAKEN_AGAIN = 8
TAKEN_AGAIN_PAUSE_SECONDS = 5.0
PROBLEM_PAUSES_SECONDS = (1.0, 60.0)

TAKEN_AGAIN = "what XFS gives back on {} is allocated again at once, for files that are being written"


@dataclass(slots=True)
class _Filesystem:
    """One mount point. Times are monotonic seconds; `override`: whether a new pass may call in spite of `until`."""

    until: float = float("-inf")
    override: bool = False
    pause_seconds: float = 0.0
    in_vain: int = 0
    taken_again: int = 0
    gained_at: float = float("-inf")
    problem: str = ""


class PreallocationRelease:
    """Calls the helper for the filesystems of one node. For one thread at a time; `counts` and `problem` may be read
    by any.

    `counts`: how calls have ended so far. `problem`: why the last call did nothing, empty if it was done.
    """

    def __init__(self, ask: Callable[[str], Answer], clock: Clock):
        self._ask = ask
        self._clock = clock
        self._filesystems: dict[str, _Filesystem] = {}
        self.counts = dict.fromkeys(ReleaseResult, 0)
        self.problem = ""

    def call(self, mount_point: str, *, first: bool) -> str | None:
        """Has this filesystem give back, unless it pauses. None if it was called; else why not, empty if only because
        the last call is too recent. `first`: the first call of a pass. `gained` has to be called next."""
        known, now = self._filesystems.setdefault(mount_point, _Filesystem()), self._clock.monotonic()
        if now < known.until and not (first and known.override):
            return known.problem
        answer = self._ask(mount_point)
        if answer.result is ReleaseResult.RELEASED and self.problem:
            known.pause_seconds = 0.0
        self.problem = known.problem = answer.problem
        if answer.result is ReleaseResult.RELEASED:
            return None
        self.counts[answer.result] += 1
        self._pause(known, PROBLEM_PAUSES_SECONDS)
        return known.problem

    def gained(self, mount_point: str, gained_bytes: int) -> None:
        """What the filesystem had more after a call than before it, in bytes."""
        known, now = self._filesystems[mount_point], self._clock.monotonic()
        if gained_bytes < LEAST_GAIN_BYTES:
            self.counts[ReleaseResult.NOTHING] += 1
            known.in_vain += 1
            if known.in_vain < VAIN_CALLS:
                known.until, known.pause_seconds = now + SHORTEST_PAUSE_SECONDS, 0.0
            else:
                self._pause(known, VAIN_PAUSES_SECONDS)
            known.override = True
            return
        self.counts[ReleaseResult.RELEASED] += 1
        known.taken_again = known.taken_again + 1 if now - known.gained_at < TAKEN_AGAIN_SECONDS else 1
        known.gained_at, known.in_vain, known.pause_seconds = now, 0, 0.0
        known.until, known.override = now + SHORTEST_PAUSE_SECONDS, True
        if known.taken_again > MOST_TAKEN_AGAIN:
            known.taken_again = 0
            known.until, known.override = now + TAKEN_AGAIN_PAUSE_SECONDS, False
            known.problem = TAKEN_AGAIN.format(mount_point)

    def _pause(self, known: _Filesystem, bounds: tuple[float, float]) -> None:
        shortest, longest = bounds
        known.pause_seconds = min(max(known.pause_seconds * 2, shortest), longest)
        known.until, known.override = self._clock.monotonic() + known.pause_seconds, False
