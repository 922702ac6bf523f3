"""Threads that exist before they are needed, and readings that are left behind when they hang."""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from reclaim.workers import NoThread, ReadingHangs, ReadingsInTime, Workers, in_time
from tests.reclaimd_process import came_true
from tests.thread_limit import no_thread_starts


def test_threads_that_were_prepared_work_when_none_can_be_started() -> None:
    """Three tasks one after the other, each on a thread that was there."""
    workers, done = Workers("tests", 1), threading.Semaphore(0)
    workers.prepare(1)
    with no_thread_starts():
        for _ in range(3):
            workers.run(lambda: None, done.release)
            assert done.acquire(timeout=60.0)
    workers.close()


def test_a_thread_that_does_not_start_is_a_sentence_and_nothing_stays_behind() -> None:
    """The task is not run; later, when threads start again, the next one is."""
    workers, done = Workers("tests", 2), threading.Event()
    with no_thread_starts():
        with pytest.raises(
            NoThread, match=r"^no thread can be started for tests: can't start new thread$"
        ):
            workers.run(done.set)
        with pytest.raises(NoThread):
            workers.prepare(2)
    assert (workers.not_started, done.is_set()) == (2, False)
    workers.run(done.set)
    assert done.wait(60.0)
    workers.close()


def test_a_defect_in_a_task_leaves_its_thread_for_the_next_one() -> None:
    """With one thread."""
    workers, done = Workers("tests", 1), threading.Event()
    workers.prepare(1)
    for defect in (lambda: 1 // 0, sys.exit):
        failed = threading.Event()
        workers.run(defect, failed.set)
        assert failed.wait(60.0)
    workers.run(done.set)
    assert done.wait(60.0)
    workers.close()


class Hanging:
    """A reading that hangs until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.times = 0

    def read(self) -> str:
        """The answer, late."""
        self.times += 1
        assert self.let_go.wait(60.0)
        return "read"

    def is_read_by(self, reader: Callable[[Callable[[], str]], str]) -> bool:
        """Whether it is read anew once it is let go."""
        self.let_go.set()

        def is_read() -> bool:
            with suppress(ReadingHangs, OSError):
                return reader(self.read) == "read"
            return False

        return came_true(is_read)


def test_a_reading_that_hangs_is_left_behind_and_not_begun_again() -> None:
    """Its caller goes on, others are read, and when it has ended it is read anew."""
    workers, hanging = Workers("tests", 2), Hanging()
    reader, another = ReadingsInTime(workers, 0.05), ReadingsInTime(workers, 60.0)
    for why in ("it did not answer within 0.05 s", "an earlier reading has not been answered yet"):
        with pytest.raises(ReadingHangs, match=f"^{why}$"):
            reader(hanging.read)
    assert came_true(lambda: hanging.times == 1)
    assert another(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        another(lambda: 1 // 0)
    assert hanging.is_read_by(reader)
    workers.close()


def test_while_a_look_at_a_file_hangs_no_other_look_at_it_takes_a_thread() -> None:
    """However often it is looked at; a look at another file is one."""
    hanging = Hanging()
    for _ in range(3):
        with pytest.raises(OSError, match="answer"):
            in_time(hanging.read, 0.05, of="/hung/file")
    assert came_true(lambda: hanging.times == 1)
    assert in_time(lambda: 7, 60.0, of="/another/file") == 7
    assert hanging.is_read_by(partial(in_time, of="/hung/file"))
