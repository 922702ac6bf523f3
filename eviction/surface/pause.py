"""A pause for a client: nothing is removed until a time that it sets. The pause survives a restart
of the daemon in a file beside `stateFile`.

* Within one boot the monotonic clock measures what is left, so setting the time
  of day makes no difference.
* After a reboot only the time of day tells how long the node was off. It may have been set
  meanwhile, so there is never more left than the length of the pause less the time since the boot
  (on Linux the monotonic clock begins there).
* Reading changes nothing and never raises. A file that is missing, or that is of
  another machine, means no pause.
* A file that cannot be read within a second, is not trusted or is no pause may be one, so it
  counts as one: until it can be read, as a thread looks again every few seconds, until `resume`,
  or for the longest pause.
* The file is written when a client begins or ends a pause, never on the path
  from the start to a removal.
* A disk that does not answer holds a client up for a second; whatever it does later, the file ends
  up with the latest pause.

What a pause is, is in `engine.world`.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from eviction.configuration.models import Model
from eviction.engine.node import Node
from eviction.engine.world import LONGEST_PAUSE_SECONDS
from eviction.records.own_file import OwnFile
from eviction.records.state_file import Moment, moments
from eviction.surface.answer import OptionRefused
from eviction.types import Fields, Json
from eviction.wording.log import Log
from reclaim.workers import NoThread, Workers, in_time
from signals.clock import Clock
from signals.quantity import counted, reason_of

LARGEST_BYTES = 4096
ANSWER_SECONDS = 1.0  # less than a client waits for its answer
AGAIN_SECONDS = 5.0  # between two looks at a file that cannot be read
UNSAVED = "a restart of the daemon ends the pause, as stateFile is empty"


class Kept(Model):
    """What the file holds: a pause of this many seconds that began at this moment."""

    model_config = ConfigDict(allow_inf_nan=False)

    kind: Literal["reclaimd.io/pause"]
    version: Literal[1]
    seconds: float = Field(gt=0, le=LONGEST_PAUSE_SECONDS)
    begun: Moment


def pause_json(seconds: float, begun: Moment) -> bytes:
    """A pause of this length that begins at this moment."""
    kept = Kept(kind="reclaimd.io/pause", version=1, seconds=seconds, begun=begun)
    return f"{kept.model_dump_json()}\n".encode()


def left_seconds(text: bytes, now: Moment) -> float:
    """How much longer the pause lasts, 0 if it is over or of another machine; never longer than its
    length. Raises ValueError, whatever the bytes are, with the end of a sentence."""
    try:
        kept = Kept.model_validate_json(text)
    except ValidationError:
        raise ValueError("it is not a pause of this version of reclaimd") from None
    try:
        kept.begun.check_machine(now)
    except ValueError:  # a cloned disk image carries it
        return 0.0
    passed = now.monotonic - kept.begun.monotonic
    if not kept.begun.same_boot(now):
        passed = max(now.wall - kept.begun.wall, now.monotonic)
    return max(kept.seconds - max(passed, 0.0), 0.0)


class PauseFile:
    """The file of one daemon. `state_file`: the path of `stateFile`; empty: no pause survives the
    daemon. The constructor does not touch the file. Any thread may call."""

    def __init__(
        self,
        state_file: str,
        clock: Clock,
        now: Callable[[], Moment] | None = None,
    ):
        self.path = f"{state_file}.pause" if state_file else ""
        self._file = OwnFile(self.path)
        self._now = now or moments(clock)
        # Stays: of two clients that pause and resume at once, the file must end
        # up with what is in force.
        self._lock = threading.Lock()
        self._latest: bytes | None = None  # what the file should hold; None: there should be none

    def saved(self) -> tuple[float, str]:
        """How much longer the saved pause lasts, 0 without one; and why that is not known, as a
        clause: it may be that none is in force, but until that is known, the longest one is."""
        if not self.path:
            return 0.0, ""
        try:
            return in_time(self._left_seconds, ANSWER_SECONDS), ""
        except (OSError, ValueError) as error:
            return LONGEST_PAUSE_SECONDS, f"{self.path} cannot be used: {reason_of(error)}"

    def restore(
        self,
        node: Node,
        known: Callable[[str], None] = lambda _: None,
        again_seconds: float = AGAIN_SECONDS,
    ) -> None:
        """Continues the saved pause if it is not over. If that cannot be read within a second,
        nothing may be removed until a thread, which looks every `again_seconds`, has read it;
        `known`: told then, in a sentence."""
        left, unknown = self.saved()
        if left > 0:
            node.pause(left, unknown)
        if not unknown:
            return

        def look_again() -> None:
            while node.present.pause_is_unknown():
                time.sleep(again_seconds)
                with suppress(OSError, ValueError):
                    left = self._left_seconds()
                    if not node.present.pause_is_unknown():  # somebody has begun or ended one
                        return
                    node.pause(left, if_unknown=True)
                    paused = node.present.paused() or "there is no pause"
                    known(f"{self.path} can be read again: {paused}")

        with suppress(NoThread):  # then resume ends it, or time
            Workers("the pause", 1).run(look_again)

    def _left_seconds(self) -> float:
        """How much longer the saved pause lasts, 0 without one.

        Raises OSError and ValueError; may hang.
        """
        try:
            return left_seconds(self._file.read(LARGEST_BYTES), self._now())
        except FileNotFoundError:
            return 0.0
        except NotADirectoryError:
            if os.path.islink(os.path.dirname(self.path)):  # what it leads to may have one
                raise
            return 0.0

    def keep(self, left_seconds: Callable[[], float]) -> str:
        """Saves the pause as it is now, with what is left of it, or removes the file if there is
        none. Returns why that failed and what follows, in a sentence, else an empty string."""
        with self._lock:
            left = left_seconds()
            self._latest = pause_json(left, self._now()) if left else None
            if not self.path:
                return UNSAVED if left else ""
            try:
                in_time(self._write, ANSWER_SECONDS, of=self.path)
            except (OSError, ValueError) as error:
                follows = f"brings the pause back: {self.path} cannot be removed"
                if left:
                    follows = f"ends the pause: {self.path} cannot be written"
                return f"a restart of the daemon {follows}: {reason_of(error)}"
            return ""

    def finish(self, left_seconds: Callable[[], float]) -> None:
        """Removes the file of a pause that is over, at the end of the daemon: if the time of day is
        set back, it could come back to life. Waits a second at most."""
        if not left_seconds():
            self.keep(left_seconds)

    def _write(self) -> None:
        """Repeats until the file has the latest pause, which may change while
        the disk does not answer.
        """
        while True:
            latest = self._latest
            if latest is None:
                self._file.remove()
            else:
                self._file.replace(latest)
            if latest is self._latest:
                return


def pause_for_client(request: Fields, node: Node, file: PauseFile, *, log: Log) -> Iterator[Json]:
    """Begins a pause of `seconds`, or ends it if 0. One line of JSON: `paused_seconds`, `sentence`,
    `warning` (empty, or why the pause will not be the same after a restart). Raises OptionRefused.
    The sentence says how many removals were sent and are not answered, as no pause cancels them."""
    seconds: Any = request.get("seconds")
    if type(seconds) not in {int, float} or not 0 <= seconds <= LONGEST_PAUSE_SECONDS:
        allowed = f"a number between 0 and {LONGEST_PAUSE_SECONDS:.0f}"
        raise OptionRefused(f"seconds must be {allowed}, but it was {seconds!r}")
    until = node.present.pause_ends()
    under_way = node.pause(seconds)
    if seconds:
        sentence = node.present.paused() or "not paused"
        if under_way:
            sentence += f"; {counted(under_way, 'removal')} sent before it will still end"
    else:
        sentence = f"the pause until {until} is ended" if until else "there was no pause to end"
    (log.warning if seconds else log.info)(sentence)
    warning = file.keep(node.pause_left_seconds)
    if warning:
        log.warning(warning)
    yield {
        "paused_seconds": round(node.pause_left_seconds(), 3),
        "sentence": sentence,
        "warning": warning,
    }
