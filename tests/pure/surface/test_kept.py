"""What the daemon keeps: image records on a thread of their own, sums of its passes, and hints."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from eviction.cli.status import function_lines
from eviction.cli.xfs_hint import read_size
from eviction.configuration.effective import ConfigurationError, load
from eviction.records.passes import Pass, Trigger
from eviction.records.state_file import RecordFile
from eviction.surface.daemon import KEPT_PASSES, Totals
from eviction.surface.kept_files import ImageRecordsSaver
from eviction.surface.xfs_hints import usual_directories
from eviction.types import Decision
from eviction.wording.log import Log
from reclaim.images.records import ImageRecords
from reclaim.types import (
    Action,
    Amounts,
    Image,
    ImageRecord,
    Outcome,
    ReclaimResult,
    Result,
    Verdict,
)
from signals.clock import SystemClock
from tests.pure.values import MIB, observations_of
from tests.thread_limit import no_thread_starts

LONGEST_SECONDS = 60.0
FIRST, SECOND = ("sha256:" + letter * 64 for letter in "ab")


class HeldClock(SystemClock):
    """Whoever asks for the wall time waits until `goes_on` is set; `asked` is set meanwhile."""

    def __init__(self) -> None:
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def wall(self) -> float:
        self.asked.set()
        self.goes_on.wait(LONGEST_SECONDS)
        return super().wall()


def saver_of(path: Path, clock: SystemClock) -> tuple[ImageRecords, ImageRecordsSaver, io.StringIO]:
    """Records of one image, what saves them, and its log."""
    out = io.StringIO()
    records = ImageRecords(seed={FIRST: ImageRecord(clock.monotonic())})
    log = Log(SystemClock().wall, stream=out)
    return records, ImageRecordsSaver(records, RecordFile(str(path), clock), log), out


@pytest.mark.regression
def test_records_that_were_not_saved_for_want_of_a_thread_are_saved_later(tmp_path: Path) -> None:
    """A warning meanwhile; the file is there after the next save."""
    path = tmp_path / "state" / "images.json"
    _, saver, out = saver_of(path, SystemClock())
    with no_thread_starts():
        saver.detected()
    assert "the image records are not saved: no thread can be started" in out.getvalue()
    for _ in range(int(LONGEST_SECONDS)):  # each waits a second for the file at most
        saver.finish()
        if path.exists():
            break
    assert path.exists()


@pytest.mark.regression
def test_what_was_detected_while_records_were_being_saved_is_saved_at_the_end(
    tmp_path: Path,
) -> None:
    """The save that has begun has the records as they were; the last one comes after it."""
    clock, path = HeldClock(), tmp_path / "state" / "images.json"
    records, saver, _ = saver_of(path, clock)
    saver.detected()
    assert clock.asked.wait(LONGEST_SECONDS)
    both = [Image(FIRST), Image(SECOND)]
    records.update(both, frozenset(), clock.monotonic(), wall_now=1_800_000_000.0)
    threading.Timer(0.0, clock.goes_on.set).start()
    saver.finish(LONGEST_SECONDS)
    assert SECOND in path.read_text()


def pruned(count: int, seconds: float = 0.5) -> ReclaimResult:
    """So many files of 1 MiB, which promised twice as much."""
    verdict = Verdict("file", "1", "1", Action.REMOVE, "old", 2 * MIB)
    gone = Outcome(verdict, Result.REMOVED, freed=Amounts(MIB, 1))
    return ReclaimResult("prune", (gone,) * count, remove_seconds=seconds)


def a_pass(*functions: ReclaimResult, name: str = "id", started: float = 1_800_000_000.0) -> Pass:
    """A pass with these results."""
    decision = Decision(frozenset(), (), None, (), None)
    seen = observations_of()
    return Pass(name, started, Trigger.INTERVAL, seen, decision, (), functions)


def test_calls_are_summed_by_function_and_the_last_one_is_kept() -> None:
    """Measured, nominal, seconds, calls, as a table of the status; one that was skipped was not
    called. Nothing before the first call."""
    totals = Totals()
    assert function_lines(totals.functions) == []
    totals.passed(a_pass(pruned(2)))
    away = ReclaimResult("DeleteUnusedImages", error="no runtime")
    totals.passed(a_pass(pruned(1, 0.25), away, started=1_800_000_060.0))
    found = totals.functions["prune"]
    assert found == {
        "last": found["last"],
        "calls": 2,
        "removed": 3,
        "measured": {"bytes": 3 * MIB, "inodes": 3},
        "nominal": {"bytes": 6 * MIB, "inodes": None},
        "seconds": 0.75,
    }
    assert (found["last"]["started"], found["last"]["removed"]) == ("2027-01-15T08:01:00.000Z", 1)
    assert totals.functions["DeleteUnusedImages"]["last"]["error"] == "no runtime"
    lines = [line.split() for line in function_lines(totals.functions)]
    head = ["FUNCTION", "CALLS", "REMOVED", "FREED", "INODES", "SECONDS", "LAST", "CALL"]
    assert head in lines
    assert ["prune", "2", "3", "3.0MiB", "3", "0.8", "2027-01-15T08:01:00Z"] in lines
    totals.passed(a_pass(ReclaimResult("prune", skipped="it rests for 9 s more")))
    last = totals.functions["prune"]["last"]
    assert (totals.functions["prune"]["calls"], last["skipped"]) == (2, "it rests for 9 s more")


def test_twenty_passes_stay_and_one_that_is_explained_later_keeps_its_place() -> None:
    """The oldest go first; a pass that is replaced is there once, and not counted twice."""
    totals, names = Totals(), [str(number) for number in range(KEPT_PASSES + 1)]
    for name in names:
        totals.passed(a_pass(pruned(1), name=name))
    totals.attributed(replace(a_pass(pruned(1), name="2"), reason="explained"))
    kept = [(each.id, each.reason) for each in totals.passes()]
    assert kept == [(name, "explained" if name == "2" else "") for name in names[1:]]
    assert totals.functions["prune"]["calls"] == len(names)


@pytest.mark.parametrize(
    ("containerfs", "layers"),
    [
        ("/c/io.containerd.snapshotter.v1.overlayfs", "snapshots"),
        ("/storage/overlay-images", "/storage/overlay"),  # CRI-O
        ("/storage/overlay-containers", "/storage/overlay"),  # with images elsewhere
        ("/var/lib/docker", None),
        (None, None),  # the runtime has not answered
    ],
)
def test_a_hint_is_for_the_kubelets_directories_and_those_in_which_layers_are_made(
    containerfs: str | None, layers: str | None
) -> None:
    """Of containerd and CRI-O."""
    configuration = load(None, {}, {"rootDirectory": "/k", "podLogsDir": "/l"})
    made = [] if layers is None else [str(Path(containerfs or "") / layers)]
    assert usual_directories(configuration, containerfs) == ["/k/pods", "/l", *made]


def test_a_size_is_written_as_for_mkfs_or_as_in_the_file() -> None:
    """A thousandth of a byte, as `1m` is in a file, is not meant, and not allowed there."""
    assert [*map(read_size, ("1m", "64k", "1g", "1Mi"))] == [1 << 20, 64 << 10, 1 << 30, 1 << 20]
    with pytest.raises(ValueError, match="must be between 4Ki and 1Gi, but it was '2Gi'"):
        read_size("2g")
    assert load(None, {}, {"xfsExtentSizeHint": "1Mi"}).xfs_extent_size_hint_bytes == 1 << 20
    with pytest.raises(ConfigurationError, match="xfsExtentSizeHint: must be between 4Ki and 1Gi"):
        load(None, {}, {"xfsExtentSizeHint": "1m"})
