"""The question where the images are and who uses them, asked from time to time.

It updates the image records, and compares what the runtime holds with the kubelet's directories.

Covers: what is asked, when it is due again. Does not cover: the thread that asks (`worker`), the lists of a pass.
"""

from __future__ import annotations

from collections.abc import Callable

from eviction.daemon.announcements import Announcements
from eviction.daemon.row_backoff import RETRY_SECONDS
from eviction.daemon.shadow import Shadow
from eviction.node.node import Node
from reclaim.execution.readings import ReadingHangs, ReadingsInTime
from reclaim.execution.workers import NoThread, Workers
from reclaim.types import RuntimeUnavailable

REFRESH_SECONDS = 60.0  # between two questions where the images are and who uses them
PLACES_SECONDS = 2.0  # how long the question where the images are holds up the worker


class Refresh:
    """`run` asks, on one thread at a time. `due`: when it is to be asked next, monotonic seconds, for any thread.

    `threads`: it takes one of them at most. `on_detected`: called when the image records have been updated, unless the
    disk is under pressure.
    """

    def __init__(
        self,
        node: Node,
        announcements: Announcements,
        shadow: Shadow,
        threads: Workers,
        on_detected: Callable[[], None],
    ):
        self._node = node
        self._announcements = announcements
        self._shadow = shadow
        self._on_detected = on_detected
        self._in_time = ReadingsInTime(threads, PLACES_SECONDS)
        self.due = float("-inf")

    def retry(self) -> None:
        """It is asked again in a second. Any thread."""
        self.due = self._node.clock.monotonic() + RETRY_SECONDS

    def run(self) -> None:
        """Asks where the images are and who uses them.

        Under pressure only where they are, each second, as with a place that is wrong nothing can be relieved; who uses
        them takes a call for each container on some runtimes, minutes for thousands of them, and a pass asks for
        itself. After an answer that was waited for in vain it is asked again a minute later, as no pass can begin
        meanwhile; where nothing is known yet, each second.
        """
        began = self._node.clock.monotonic()
        problem, pressed = self._locate(), self._announcements.under_pressure
        if problem is None and not pressed:
            try:
                self._node.compare_pods()
                self._node.collector.detect_images()
            except RuntimeUnavailable as error:
                problem = str(error)
        if self._node.stopping.is_set():
            return
        if problem is None and not self._announcements.under_pressure:
            self._on_detected()
        if problem is None and (gone := self._shadow.gone(self._node.client, self._node.clock.monotonic())):
            self._announcements.removed_by_others(gone)
        self._announcements.runtime_asked(problem, self._node.pods_problem)
        self._announcements.pods_compared(self._node.pods_doubt)
        now, known = self._node.clock.monotonic(), self._node.summary.paths.imagefs is not None
        silent = known and now - began >= PLACES_SECONDS
        soon = not silent and (problem is not None or pressed)
        self.due = now + (RETRY_SECONDS if soon else REFRESH_SECONDS)

    def _locate(self) -> str | None:
        """Asks where the images are, for 2 s at most. None, or one sentence why that is not known."""
        try:
            return self._in_time(self._node.locate)
        except (ReadingHangs, NoThread) as error:
            return f"where its images are: {error}"
