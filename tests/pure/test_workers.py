"""Threads that exist before they are needed, and readings that are left behind when they hang."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from reclaim.execution.executor import never_relieved
from reclaim.workers import (
    NoThread,
    Progress,
    ReadingHangs,
    ReadingsInTime,
    Workers,
    call_was_answered,
    in_time,
)
from reclaim.function import ReclaimFunction
from reclaim.functions import Call
from reclaim.types import Plan, ReclaimError
from signals.types import FilesystemRole
from tests.pure.contexts import context_of
from tests.pure.execution.test_parked import RunningClock
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.store import Site, Store
from tests.pure.values import SteppedClock
from tests.reclaimd_process import came_true
from tests.thread_limit import no_thread_starts


@pytest.mark.regression
def test_threads_that_were_prepared_work_when_none_can_be_started() -> None:
    """Three tasks one after the other, each on a thread that was there."""
    workers, done = Workers("tests", 1), threading.Semaphore(0)
    workers.prepare(1)
    with no_thread_starts():
        for _ in range(3):
            workers.run(lambda: None, done.release)
            assert done.acquire(timeout=60.0)
    workers.close()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("prepared", [0, 1])
def test_who_is_told_of_the_end_of_a_task_finds_its_thread_free(prepared: int) -> None:
    """A thousand tasks one after another, on one thread."""
    workers, done = Workers("tests", 1), threading.Semaphore(0)
    workers.prepare(prepared)
    for _ in range(1000):
        workers.run(lambda: None, done.release)
        assert done.acquire(timeout=60.0)
    workers.close()


@pytest.mark.regression
@pytest.mark.usefixtures("hasty")
def test_removals_one_after_another_need_one_thread() -> None:
    """None finds that of the one before at work: a pass ended with "no thread is free" on a busy machine."""
    for _ in range(20):
        site = Site(26, wanted_mib=1000)
        site.executor.removals.workers.most = 1
        executed = site.execute()
        assert (executed.error, len(executed.outcomes)) == ("", 26)


def test_a_thread_that_does_not_start_is_a_sentence_and_nothing_stays_behind() -> None:
    """The task is not run; later, when threads start again, the next one is."""
    workers, done = Workers("tests", 2), threading.Event()
    with no_thread_starts():
        with pytest.raises(NoThread, match=r"^no thread can be started for tests: can't start new thread$"):
            workers.run(done.set)
        with pytest.raises(NoThread):
            workers.prepare(2)
    assert (workers.not_started, done.is_set()) == (2, False)
    workers.run(done.set)
    assert done.wait(60.0)
    workers.close()


def test_more_tasks_than_threads_are_refused() -> None:
    """None waits behind one that hangs."""
    workers, let_go = Workers("tests", 1), threading.Event()
    workers.run(let_go.wait)
    with pytest.raises(NoThread, match=r"^no thread is free for tests: all 1 are at work$"):
        workers.run(let_go.wait)
    let_go.set()
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


@pytest.mark.regression
def test_a_removal_that_gets_no_thread_is_undone_and_the_next_pass_tries_again() -> None:
    """The pass ends with the sentence, and nothing counts as being removed."""
    site = Site(2, wanted_mib=20)
    with no_thread_starts():
        executed = site.execute()
    assert executed.error.startswith("no thread can be started for removals: ")
    assert site.store.sent == []
    assert site.executor.removals.begun == ()
    assert site.execute().relieved


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


@pytest.mark.regression
def test_a_reading_that_hangs_is_left_behind_and_not_begun_again() -> None:
    """Its caller goes on, others are read, and when it has ended it is read anew."""
    workers, hanging = Workers("tests", 2), Hanging()
    reader, another = ReadingsInTime(workers, 0.05), ReadingsInTime(workers, 0.05)
    for why in ("it did not answer within 0.05 s", "an earlier reading has not been answered yet"):
        with pytest.raises(ReadingHangs, match=f"^{why}$"):
            reader(hanging.read, Progress(RunningClock()))
    assert hanging.times == 1
    assert another(lambda: 7) == 7
    hanging.let_go.set()

    def is_read() -> bool:
        with contextlib.suppress(ReadingHangs):
            return reader(hanging.read) == "read"
        return False

    assert came_true(is_read)
    workers.close()


@pytest.mark.regression
def test_while_a_look_at_a_file_hangs_no_other_look_at_it_takes_a_thread() -> None:
    """However often it is looked at; a look at another file is one."""
    hanging = Hanging()
    for _ in range(3):
        with pytest.raises(OSError, match="answer"):
            in_time(hanging.read, 0.05, of="/hung/file")
    assert hanging.times == 1
    assert in_time(lambda: 7, of="/another/file") == 7
    hanging.let_go.set()

    def is_read() -> bool:
        with contextlib.suppress(OSError):
            return in_time(hanging.read, of="/hung/file") == "read"
        return False

    assert came_true(is_read)


def test_a_long_reading_that_goes_forward_does_not_hang() -> None:
    """As long as the runtime answers one question after the other."""
    workers, progress = Workers("tests", 1), Progress(RunningClock())
    began = time.monotonic()

    def read() -> str:
        while time.monotonic() - began < 1.0:
            call_was_answered()
            time.sleep(0.01)
        return "all of them"

    assert ReadingsInTime(workers, 0.4)(read, progress) == "all of them"
    workers.close()


def test_a_reading_raises_what_it_raises() -> None:
    """To its caller."""
    workers = Workers("tests", 1)
    with pytest.raises(ZeroDivisionError):
        ReadingsInTime(workers, 60.0)(lambda: 1 // 0)
    workers.close()


def test_a_stage_that_cannot_read_does_not_stop_the_next_one() -> None:
    """Each error is told."""
    clock = SteppedClock()
    context = context_of(MemoryRuntime(clock), clock)
    site = Site(2, 20)

    class Fails(Store):
        """A stage that cannot read."""

        def plan(self) -> Plan:
            """Never has a plan."""
            raise ReclaimError("the first one failed")

    stages = (Fails(site.disk, clock, {}), site.store)
    result = Call(ReclaimFunction("Test", FilesystemRole.NODEFS, (), lambda _: stages), context).run(never_relieved)
    assert (result.error, site.store.sent) == ("the first one failed", ["a", "b"])
