"""A virtual clock, and code that waits on it: one thing happens at a time, in
the order of virtual time.

The product's blocking code (a call of the runtime, a look into directories) runs on threads that
hand one baton around: only who has it runs, so nothing depends on how the machine schedules them.
Who waits in virtual time has everything happen that comes before its wait is over, on its own
thread, and hands the baton on only to another task. So everything between two waits is atomic, and
the order of all waits follows from the seed.

A lock that is held across a call would stop the one thread that runs. So while a simulation runs,
its threads get locks and events from `threading` that wait in virtual time, as gevent's do; every
other thread gets real ones.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from typing import Any

_RealLock, _RealEvent = threading.Lock, threading.Event
_here = threading.local()  # `.scheduler`: of the simulation that this thread is in

WALL_AT_0 = 1_800_000_000.0


class Killed(BaseException):
    """The process that waits here was killed."""


class _Fiber:
    """A thread that runs one task after another, each while it has the baton."""

    def __init__(self, scheduler: Scheduler):
        self.go = _RealLock()
        self.go.acquire()
        self.task: Callable[[], None] | None = None
        self.killed = False
        self.owner: object = None
        self.waits = 0  # how often it was resumed: an older wake-up is not for it
        self._scheduler = scheduler
        # a real thread, with real locks
        before, _here.scheduler = getattr(_here, "scheduler", None), None
        threading.Thread(target=self._serve, name="simulated", daemon=True).start()
        _here.scheduler = before

    def _serve(self) -> None:
        _here.scheduler = self._scheduler
        self.go.acquire()
        while self.task is not None:
            with suppress(Killed):
                self.task()
            self.task = None
            with suppress(Killed):
                self._scheduler.retire(self)
        self._scheduler.ended()


class Scheduler:
    """The clock, what happens next, and who has the baton. It is the product's Clock, too."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall_offset = WALL_AT_0 - 1000.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._hub = _RealLock()
        self._hub.acquire()
        self._current: _Fiber | None = None  # whose task runs; None: what happens
        self._host: _Fiber | None = None  # on whose thread; None: the hub's
        self._next: _Fiber | None = None  # whose task goes on now
        self._killer = self._hub  # of who waits for a task that ends
        self._idle: list[_Fiber] = []
        self._busy: set[_Fiber] = set()
        self._defect: BaseException | None = None
        self.until = float("inf")

    # ---- the product's Clock

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self.now

    def wall(self) -> float:
        """Virtual seconds since the epoch."""
        return self.now + self.wall_offset

    # ---- what happens

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Has this happen at a time, in the hub: it must not wait."""
        self._number += 1
        heappush(self._heap, (max(self.now, time), self._number, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """The same, in so many seconds from now."""
        self.at(self.now + seconds, what)

    def goes(self, story: Iterator[float]) -> None:
        """Has a story go on, from now: so many seconds pass after each number that it yields."""
        for seconds in story:
            self.after(seconds, lambda: self.goes(story))
            return

    def run(self, until: float) -> None:
        """Everything up to this time happens. Raises what a task raises."""
        self.until = until
        self._happens(None)
        self._host = None  # whoever was the last one waits now
        if self._defect is not None:
            defect, self._defect = self._defect, None
            raise defect
        self.now = max(self.now, until)

    def _happens(self, host: _Fiber | None) -> None:
        """Everything happens, on this thread, until the task of its host goes on;
        at the end, the hub does.
        """
        self._current, self._host = None, host
        heap = self._heap
        while self._next is None and heap and heap[0][0] <= self.until and self._defect is None:
            self.now, _, what = heappop(heap)
            try:
                what()
            except BaseException as defect:  # noqa: BLE001 # the hub raises it
                self._defect = defect
            if host is not None and host.killed:
                host.killed, self._current = False, host
                raise Killed
        following, self._next = self._next, None
        self._current = following
        if following is not host:
            (self._hub if following is None else following.go).release()
            (self._hub if host is None else host.go).acquire()
        if host is not None and host.killed:
            raise Killed

    # ---- tasks that wait

    def spawn(self, task: Callable[[], None], owner: object = None) -> None:
        """Begins a task now, which may wait. Called in the hub."""
        fiber = self._idle.pop() if self._idle else _Fiber(self)
        fiber.task, fiber.owner = self._guarded(task), owner
        self._busy.add(fiber)
        self._resume_at(self.now, fiber)

    def _guarded(self, task: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                task()
            except Killed:
                raise
            except BaseException as defect:  # noqa: BLE001 # the hub raises it
                self._defect = defect

        return run

    def sleep(self, seconds: float) -> None:
        """Waits in virtual time. Raises Killed if the process ends meanwhile.

        In the hub: nothing.
        """
        fiber = self._current
        if fiber is None:
            return
        time = self.now + seconds
        if time <= self.until and (not self._heap or time < self._heap[0][0]):
            self.now = time  # nothing else happens before
            return
        self._resume_at(time, fiber)
        self.park()

    def park(self) -> None:
        """Gives the baton back until somebody wakes this task."""
        assert self._current is not None
        self._happens(self._current)

    @property
    def task(self) -> object:
        """Which task has the baton; None: the hub."""
        return self._current

    def parks(self) -> Callable[[], None]:
        """Before the present task parks: what wakes it, unless it was killed since."""
        fiber = self._current
        assert fiber is not None
        waits = fiber.waits
        return lambda: self._resume_at(self.now, fiber, waits)

    def _resume_at(self, time: float, fiber: _Fiber, waits: int | None = None) -> None:
        waits = fiber.waits if waits is None else waits
        self.at(time, lambda: self._resume(fiber) if fiber.waits == waits else None)

    def _resume(self, fiber: _Fiber) -> None:
        fiber.waits += 1
        self._next = fiber

    def retire(self, fiber: _Fiber) -> None:
        """A task has ended (on its thread), which waits for another one."""
        self._busy.discard(fiber)
        if not fiber.killed:
            self._idle.append(fiber)
            self._happens(fiber)

    def ended(self) -> None:
        """A thread ends, because it was killed: whoever has killed it goes on."""
        self._killer.release()

    def kill(self, owner: object) -> None:
        """Every task of this owner ends where it waits. Called in the hub."""
        self._end([each for each in self._busy if each.owner is owner])

    def close(self) -> None:
        """Ends every thread."""
        self._end([*self._busy, *self._idle])
        self._idle.clear()

    def _end(self, fibers: list[_Fiber]) -> None:
        host = self._host
        self._killer = self._hub if host is None else host.go
        for fiber in fibers:
            fiber.killed = True
            fiber.waits += 1
            self._busy.discard(fiber)
            if fiber is not host:  # that ends once this has happened
                self._current = fiber
                fiber.go.release()
                self._killer.acquire()
        self._current = None


class _Lock:
    """As threading.Lock, in virtual time."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler = scheduler
        self._held = False
        self._waiting: deque[Callable[[], None]] = deque()

    def acquire(self) -> bool:
        while self._held:
            if self._scheduler.task is None:
                raise RuntimeError("the owner of the state waits for a lock")
            self._waiting.append(self._scheduler.parks())
            self._scheduler.park()
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiting:
            self._waiting.popleft()()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Event:
    """As threading.Event, in virtual time."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler = scheduler
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        ends = self._scheduler.now + (10.0 if timeout is None else timeout)
        while not self._set and self._scheduler.now < ends:
            self._scheduler.sleep(max(min(0.01, ends - self._scheduler.now), 1e-6))
        return self._set


@contextmanager
def simulated(scheduler: Scheduler) -> Iterator[None]:
    """Within the block this thread, and those of the scheduler, get locks and events
    that wait in virtual time.
    """

    def lock() -> Any:
        mine = getattr(_here, "scheduler", None)
        return _RealLock() if mine is None else _Lock(mine)

    def event() -> Any:
        mine = getattr(_here, "scheduler", None)
        return _RealEvent() if mine is None else _Event(mine)

    _here.scheduler = scheduler
    vars(threading).update(Lock=lock, Event=event)
    try:
        yield
    finally:
        scheduler.close()
        vars(threading).update(Lock=_RealLock, Event=_RealEvent)
        _here.scheduler = None
