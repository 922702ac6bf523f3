"""The files that the daemon keeps: the image records and the ballast. Both are written on threads
of their own, so that nothing waits for a disk that is full or busy."""

import threading
from contextlib import suppress
from dataclasses import dataclass

from eviction.decision.thresholds import highest_mark
from eviction.engine.ballast import create_ballast, room_problem
from eviction.engine.node import Node
from eviction.records.listener import Backlog
from eviction.records.state_file import RecordFile
from eviction.types import Decision
from eviction.wording.log import Log
from reclaim.functions.ballast import BallastRefused, BallastSettings
from reclaim.images.records import ImageRecords
from reclaim.workers import NoThread, Workers
from signals.quantity import format_bytes
from signals.types import SignalObservations

SAVE_AT_END_SECONDS = 1.0
BALLAST_RETRY_SECONDS = 300.0  # between two attempts


class ImageRecordsSaver(Backlog):
    """Saves the image records while the daemon runs and at its end.

    `file`: None: they are not saved. A failure is logged as a warning, once until it changes.
    """

    def __init__(self, records: ImageRecords, file: RecordFile | None, log: Log):
        super().__init__("records", 1)
        self._records = records
        self._file = file
        self._log = log
        self._last_problem = ""

    def detected(self) -> None:
        """Has them saved, as they are then; one save at most waits for an earlier one.

        Without a thread it only logs a warning.
        """
        file = self._file
        if file is None:
            return
        try:
            self.start()
        except NoThread as error:
            self._warn(f"the image records are not saved: {error}")
        self.put(lambda: self._warn(file.save(self._records.records, self._records.gone)))

    def finish(self, seconds: float = SAVE_AT_END_SECONDS) -> bool:
        """Saves one last time; waits at most so long, also for earlier saves."""
        self.detected()
        return super().finish(seconds)

    def _warn(self, problem: str) -> None:
        if problem and problem != self._last_problem:
            self._log.warning(problem)
        self._last_problem = problem


@dataclass(eq=False)
class BallastKeeper:
    """Makes the ballast of the configuration again after it was released, once there is room for
    twice its size. Its methods are for one thread.

    The file is checked and made on a thread of `workers`, of which there is one, because a disk may
    hang. If pressure comes while it is being made, what there is of it is removed.
    """

    node: Node
    log: Log
    workers: Workers

    def __post_init__(self) -> None:
        self._ballast = self.node.configuration.ballast
        self._next = float("-inf")
        self._abandoned = threading.Event()

    def prepare(self) -> None:
        """Starts the thread that makes the file. Raises NoThread."""
        if self._ballast is not None:
            self.workers.prepare(1)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """After each observation: has a missing ballast made again. Never under pressure, that is,
        while a threshold is met on any filesystem or a condition is reported; not in a dry run; not
        while it is being made; at most every 5 minutes; and only with room for twice its size above
        the highest mark of its filesystem. Returns at once, never raises."""
        if decision.thresholds_met or decision.conditions:
            self._abandoned.set()
            return
        ballast = self._ballast
        if ballast is None or self.node.dry_run or observations.time < self._next:
            return
        seen = observations.filesystems.get(ballast.frees)
        if seen is None:
            return
        mark = highest_mark(self.node.thresholds(observations.layout), observations, ballast.frees)
        settings = BallastSettings(ballast.path, ballast.size_bytes)
        if room_problem(seen[1].available_bytes, settings, mark) is None:
            self._next = observations.time + BALLAST_RETRY_SECONDS
            self._begin(settings, mark)

    def close(self) -> None:
        """Gives up a file that is being made; its thread removes what there is of it."""
        self._abandoned.set()
        self.workers.close()

    def _begin(self, settings: BallastSettings, mark_bytes: int) -> None:
        abandoned = threading.Event()

        def restore() -> None:
            try:
                made = create_ballast(settings, mark_bytes, abandoned.is_set)[1]
            except BallastRefused as error:
                self.log.warning(f"the ballast is not made again: {error}")
            else:
                if made:
                    self.log.info(
                        f"the ballast {settings.path} of {format_bytes(settings.size_bytes)} is"
                        " there again"
                    )

        with suppress(NoThread):  # none can be started, or it is busy
            self.workers.run(restore)
            self._abandoned = abandoned
