"""A filesystem that does not answer costs its reader a wait up to the limit, one thread, and nothing else."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from signals.filesystems import Reading, read_statvfs
from signals.probe import Probe, Probes
from signals.types import ReadingUnavailable
from tests.pure.values import SteppedClock, on_new_thread, stats

LIMIT_SECONDS = 0.05
HANGING, SOUND = "/hanging", "/sound"


class HangingReader:
    """A reader whose answers for one path wait until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.let_go.set()
        self.calls: list[str] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, path: str, now: float) -> Reading:
        """One reading; blocks for the hanging path."""
        self.calls.append(path)
        self.threads.add(threading.current_thread())
        if path == HANGING:
            self.let_go.wait(60.0)
        return Reading(stats(time=now), 7)


@pytest.fixture
def reader() -> Iterator[HangingReader]:
    hanging = HangingReader()
    yield hanging
    hanging.let_go.set()


@pytest.fixture
def probes(reader: HangingReader) -> Iterator[Probes]:
    made = Probes(SteppedClock(at=0.0), reader, on_new_thread, LIMIT_SECONDS)
    yield made
    made.close()


def test_a_filesystem_that_answers_gives_a_reading(reader: HangingReader) -> None:
    """The reading carries the time at which it was made."""
    probe = Probe(SOUND, reader, SteppedClock(at=12.0), on_new_thread, LIMIT_SECONDS)
    assert probe.read() == Reading(stats(time=12.0), 7)
    probe.close()


def test_a_filesystem_that_hangs_is_given_up_within_the_limit(reader: HangingReader, probes: Probes) -> None:
    """After 50 ms the caller goes on, with a sentence that names the path and the limit."""
    reader.let_go.clear()
    began = monotonic()
    with pytest.raises(ReadingUnavailable, match=r"^/hanging: the filesystem did not answer statvfs within 0.05 s$"):
        probes.read(HANGING)
    assert LIMIT_SECONDS * 0.9 <= monotonic() - began < 30.0, "the reader hangs for 60 s"


def test_a_hanging_filesystem_costs_one_thread_and_one_wait(reader: HangingReader, probes: Probes) -> None:
    """Every further reading fails at once: no second call, no second thread, no second wait."""
    reader.let_go.clear()
    before = threading.active_count()
    for _ in range(5):
        with pytest.raises(ReadingUnavailable):
            probes.read(HANGING)
    with pytest.raises(ReadingUnavailable, match="has not answered an earlier statvfs yet"):
        probes.read(HANGING)
    assert reader.calls == [HANGING]
    assert threading.active_count() <= before + 1


def test_other_filesystems_answer_while_one_hangs(reader: HangingReader, probes: Probes) -> None:
    """Each path has a thread of its own."""
    reader.let_go.clear()
    with pytest.raises(ReadingUnavailable):
        probes.read(HANGING)
    assert probes.read(SOUND).device_id == 7


def test_a_filesystem_that_comes_back_is_read_again(reader: HangingReader) -> None:
    """The late answer frees the thread; the next reading asks anew and does not take the late answer."""
    reader.let_go.clear()
    clock = SteppedClock(at=0.0)
    probe = Probe(HANGING, reader, clock, on_new_thread, LIMIT_SECONDS)
    with pytest.raises(ReadingUnavailable):
        probe.read()
    clock.step(60.0)
    reader.let_go.set()
    found = None
    deadline = monotonic() + 60.0
    while found is None and monotonic() < deadline:
        with contextlib.suppress(ReadingUnavailable):
            found = probe.read()
    assert found is not None, "the probe did not recover"
    assert found.stats.time == 60.0
    assert reader.calls == [HANGING, HANGING]
    assert len(reader.threads) == 1
    probe.close()


def test_callers_side_by_side_are_all_answered(reader: HangingReader) -> None:
    """Callers of one probe do not take each other's answer for their own."""
    probe = Probe(SOUND, reader, SteppedClock(), on_new_thread, 5.0)
    answers: list[Reading] = []
    callers = [threading.Thread(target=lambda: answers.append(probe.read())) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(answers) == 8
    assert reader.calls == [SOUND] * 8
    probe.close()


def test_a_filesystem_that_fails_says_why() -> None:
    """An error of the operating system becomes a sentence, and the thread goes on serving."""
    answers: list[Reading | OSError] = [OSError(13, "Permission denied"), OSError(), Reading(stats(), 3)]

    def read(path: str, now: float) -> Reading:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    probe = Probe("/x", read, SteppedClock(), on_new_thread, 5.0)
    with pytest.raises(ReadingUnavailable, match=r"^/x: cannot be read: Permission denied$"):
        probe.read()
    with pytest.raises(ReadingUnavailable, match=r"^/x: cannot be read"):
        probe.read()
    assert probe.read().device_id == 3
    probe.close()


def test_paths_that_are_no_longer_observed_lose_their_thread(reader: HangingReader) -> None:
    """Closing a probe ends its thread."""
    probes = Probes(SteppedClock(), reader, on_new_thread, 5.0)
    probes.read("/gone")
    thread = next(thread for thread in threading.enumerate() if thread.name == "statvfs /gone")
    probes.keep_only({SOUND})
    thread.join(60.0)
    assert not thread.is_alive()


def test_a_probe_that_was_closed_answers_at_once() -> None:
    """An observation that still holds the probe of a path that is no longer observed does not wait for the limit."""
    for asked_before in (False, True):
        probe = Probe(SOUND, HangingReader(), SteppedClock(), on_new_thread, 60.0)
        if asked_before:
            probe.read()
        probe.close()
        began = monotonic()
        for _ in range(2):
            with pytest.raises(ReadingUnavailable, match=r"^/sound: is no longer observed$"):
                probe.read()
        assert monotonic() - began < 30.0


def test_a_probe_that_is_closed_while_it_reads_gives_the_reading(reader: HangingReader) -> None:
    """Its caller gets what was read, and the thread ends."""
    reader.let_go.clear()
    probe = Probe(HANGING, reader, SteppedClock(), on_new_thread, 60.0)
    answers: list[Reading] = []
    caller = threading.Thread(target=lambda: answers.append(probe.read()))
    caller.start()
    while not reader.calls:
        sleep(0.001)
    probe.close()
    reader.let_go.set()
    caller.join(60.0)
    assert [answer.device_id for answer in answers] == [7]
    (thread,) = reader.threads
    thread.join(60.0)
    assert not thread.is_alive()


def test_probes_are_asked_and_closed_side_by_side() -> None:
    """Two threads read while a third closes the probe: each gets a reading, or the sentence that it is closed."""
    probes = Probes(SteppedClock(), HangingReader(), on_new_thread, 60.0)
    errors, read, over = set[str](), [0, 0], monotonic() + 60.0

    def enough() -> bool:
        return min(read) >= 100 or monotonic() > over

    def ask(number: int) -> None:
        while not enough():
            try:
                probes.read(SOUND)
                read[number] += 1
            except Exception as error:  # noqa: BLE001 # the test is about which exceptions are raised
                errors.add(repr(error))

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for caller in callers:
        caller.start()
    while not enough():
        probes.keep_only(set())
    for caller in callers:
        caller.join(60.0)
        assert not caller.is_alive(), "a caller waits for a thread that has ended"
    probes.close()
    assert all(read)
    assert errors <= {repr(ReadingUnavailable("/sound: is no longer observed"))}


def test_statvfs_reads_a_real_directory(tmp_path: Path) -> None:
    """Available is at most free, and free is at most the capacity."""
    reading = read_statvfs(str(tmp_path), 1.5)
    assert 0 <= reading.stats.available_bytes <= reading.stats.free_bytes <= reading.stats.capacity_bytes
    assert 0 <= reading.stats.inodes_free <= reading.stats.inodes_total
    assert reading.device_id == tmp_path.stat().st_dev
    assert reading.stats.time == 1.5


def test_statvfs_of_a_missing_path_is_unavailable(tmp_path: Path) -> None:
    """A path that does not exist does not count as 0 bytes free."""
    with pytest.raises(ReadingUnavailable, match="No such file or directory"):
        Probes(SteppedClock(), read_statvfs, on_new_thread).read(str(tmp_path / "missing"))


def test_a_reader_that_fails_in_an_unexpected_way_still_answers() -> None:
    """A path that no filesystem can have (the runtime names it) is unavailable, now and at the next reading."""
    made = Probes(SteppedClock(at=0.0), read_statvfs, on_new_thread, 60.0)
    for _ in range(2):
        with pytest.raises(ReadingUnavailable, match="cannot be read"):
            made.read("/a\0b")
    made.close()
