"""Makes the ballast again after it was released, when there is room for it twice over, and never at pressure.

The look at the file and its making are done on a thread that is handed in: a disk may hang. When pressure comes while
it is made, what there is of it is removed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from reclaim.ballast.create import create_ballast
from reclaim.ballast.file import Ballast, BallastRefused
from reclaim.ballast.plan import BallastSettings, Restoration, restoration
from reclaim.execution.workers import NoThread, Task


class BallastKeeper:
    """Keeps one file of ballast in place. `restore_if_room` and `close` are for one thread.

    `run`: has a thread do a task; raises NoThread (`Workers.run`). `report`: called on that thread after an attempt
    that made the ballast, with it, or that could not make it, with one sentence why; not if it was there.
    """

    def __init__(
        self,
        settings: BallastSettings,
        run: Callable[[Task], object],
        report: Callable[[Ballast | str], object],
    ):
        self._settings = settings
        self._run = run
        self._report = report
        self._last: float | None = None
        self._being_made = threading.Event()
        self._abandoned = threading.Event()

    def restore_if_room(
        self, available_bytes: int, mark_bytes: int, now: float, *, under_pressure: bool
    ) -> Restoration:
        """Has the ballast made again if it is missing. Returns at once, never raises.

        `available_bytes`: of its filesystem, as last read. `mark_bytes`: the highest mark of that filesystem, with what
        is reclaimed at least, which the ballast and as much again must leave. `now`: monotonic seconds.
        `under_pressure`: a threshold is met on any filesystem, or a condition is reported.
        """
        if under_pressure:
            self._abandoned.set()
        answer = restoration(
            self._settings,
            available_bytes,
            mark_bytes,
            under_pressure=under_pressure,
            being_made=self._being_made.is_set(),
            seconds_since_last=None if self._last is None else now - self._last,
        )
        if answer is not Restoration.BEGUN:
            return answer
        self._last = now
        self._abandoned.clear()
        self._being_made.set()
        try:
            self._run(lambda: self._restore(mark_bytes))
        except NoThread:
            self._being_made.clear()
            return Restoration.NO_THREAD
        return answer

    def close(self) -> None:
        """Gives up a file that is being made; its thread removes what there is of it."""
        self._abandoned.set()

    def _restore(self, mark_bytes: int) -> None:
        try:
            ballast, made = create_ballast(self._settings, mark_bytes, self._abandoned.is_set)
            if made:
                self._report(ballast)
        except BallastRefused as error:
            self._report(str(error))
        finally:
            self._being_made.clear()
