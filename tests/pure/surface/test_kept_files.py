"""The image records are saved on a thread of their own: what could not begin is
told, and begun again later.
"""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

from eviction.records.state_file import RecordFile
from eviction.surface.kept_files import ImageRecordsSaver
from eviction.wording.log import Log
from reclaim.images.records import ImageRecords
from reclaim.types import Image, ImageRecord
from signals.clock import SystemClock
from tests.thread_limit import no_thread_starts

LONGEST_SECONDS = 60.0


@pytest.mark.regression
def test_records_that_were_not_saved_for_want_of_a_thread_are_saved_later(tmp_path: Path) -> None:
    """A warning meanwhile; the file is there after the next save."""
    clock, out, path = SystemClock(), io.StringIO(), tmp_path / "state" / "images.json"
    records = ImageRecords(seed={"sha256:" + "a" * 64: ImageRecord(clock.monotonic())})
    saver = ImageRecordsSaver(records, RecordFile(str(path), clock), Log(clock.wall, stream=out))
    with no_thread_starts():
        saver.detected()
    assert "the image records are not saved: no thread can be started" in out.getvalue()
    for _ in range(int(LONGEST_SECONDS)):  # each waits a second for the file at most
        saver.finish()
        if path.exists():
            break
    assert path.exists()


class HeldClock(SystemClock):
    """The system's clocks.

    Whoever asks for the wall time waits until `goes_on` is set; `asked` is set meanwhile.
    """

    def __init__(self) -> None:
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def wall(self) -> float:
        self.asked.set()
        self.goes_on.wait(LONGEST_SECONDS)
        return super().wall()


@pytest.mark.regression
def test_what_was_detected_while_records_were_being_saved_is_saved_at_the_end(
    tmp_path: Path,
) -> None:
    """The save that has begun has the records as they were; the last one comes after it."""
    clock, held, path = SystemClock(), HeldClock(), tmp_path / "state" / "images.json"
    first, second = ("sha256:" + letter * 64 for letter in "ab")
    records = ImageRecords(seed={first: ImageRecord(clock.monotonic())})
    saver = ImageRecordsSaver(
        records, RecordFile(str(path), held), Log(clock.wall, stream=io.StringIO())
    )
    saver.detected()
    assert held.asked.wait(LONGEST_SECONDS)
    records.update(
        [Image(first), Image(second)], frozenset(), clock.monotonic(), wall_now=clock.wall()
    )
    threading.Timer(0.0, held.goes_on.set).start()
    saver.finish(LONGEST_SECONDS)
    assert second in path.read_text()
