"""The question where the images are and who uses them, asked from time to time, beside whatever else is done.

It updates the image records, and compares what the runtime holds with the kubelet's directories. As soon as a pass
begins it gives way: it asks for nothing more, and what it has read is not used.

Covers: what is asked, when it is due again. Does not cover: the thread that asks (`lanes`), the lists of a pass.
"""

from __future__ import annotations

from collections.abc import Callable

from eviction.daemon.row_backoff import RETRY_SECONDS
from eviction.node.node import Node
from eviction.telemetry.announcements import Announcements
from eviction.telemetry.done import Shadow
from reclaim.execution.readings import ReadingHangs, ReadingsInTime
from reclaim.execution.workers import NoThread, Workers
from reclaim.inventory import GivenUp
from reclaim.types import NEVER, RuntimeUnavailable

REFRESH_SECONDS = 60.0  # between two questions where the images are and who uses them
PLACES_SECONDS = 2.0  # how long the question where the images are is waited for
LONGEST_SECONDS = 30.0  # for all questions of one refresh: what was answered of a container is not asked again


class Refresh:
    """`run` asks, on one thread at a time. `due`: when it is to be asked next, monotonic seconds, for any thread.

    `threads`: it takes one of them at most. `passes`: how many passes have begun so far.
    """

    def __init__(self, node: Node, announcements: Announcements, threads: Workers, passes: Callable[[], int]):
        self._passes = passes
        self._node = node
        self._announcements = announcements
        self._in_time = ReadingsInTime(threads, PLACES_SECONDS)
        self._shadow = Shadow(node, announcements.log)
        node.listeners.add(self._shadow)
        self.due = float("-inf") if node.configuration.has_runtime else NEVER

    def run(self) -> None:
        """Asks where the images are and who uses them.

        Under pressure only where they are, each second, as with a place that is wrong nothing can be relieved; who uses
        them takes a call for each container on some runtimes, minutes for thousands of them, and a pass asks for
        itself. After an answer that was waited for in vain it is asked again a minute later; where nothing is known
        yet, each second.
        """
        node, announcements = self._node, self._announcements
        began, passes = node.clock.monotonic(), self._passes()
        problem, pressed, given_up = self._locate(), announcements.under_pressure, False

        def goes_on() -> bool:
            in_time = node.clock.monotonic() - began < LONGEST_SECONDS
            return in_time and self._passes() == passes and not node.stopping.is_set()

        if problem is None and not pressed:
            try:
                node.compare_pods()
                node.detect_images(goes_on)
            except GivenUp:
                given_up = True
            except RuntimeUnavailable as error:
                problem = str(error)
        if node.stopping.is_set():
            return
        if problem is None:
            if not given_up and not announcements.under_pressure:
                node.listeners.detected()
            self._shadow.look()
        announcements.runtime_asked(problem, node.pods_problem)
        now, known = node.clock.monotonic(), node.summary.paths.imagefs is not None
        silent = known and now - began >= PLACES_SECONDS
        soon = given_up or (not silent and (problem is not None or pressed))
        self.due = now + (RETRY_SECONDS if soon else REFRESH_SECONDS)

    def _locate(self) -> str | None:
        """Asks where the images are, for 2 s at most. None, or one sentence why that is not known."""
        try:
            return self._in_time(self._node.locate)
        except (ReadingHangs, NoThread) as error:
            return f"where its images are: {error}"
