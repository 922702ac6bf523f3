"""Injects the faults of a scenario when their trigger comes.

Each fault waits for its trigger on a thread of its own: a number of seconds after the first pressure began, or the
arrival of a call. What a faulty method of the runtime does is in `eviction.drill.runtime.faults`.
"""

from __future__ import annotations

import threading
import time
from typing import assert_never

from eviction.drill.pressure.schedule import FaultOccurrence
from eviction.drill.runtime.faults import (
    CODES,
    ActThenFail,
    Cut,
    Delay,
    Distort,
    Distortion,
    Fail,
    Failpoint,
    Hang,
    Pretend,
)
from eviction.drill.runtime.server import EmbeddedServer
from eviction.drill.scenario.types import Fault, FaultAction
from signals.quantity import counted, format_duration

WAIT_SECONDS = 0.05


def describe_fault(fault: Fault) -> str:
    """A fault in words."""
    lasts = "" if fault.lasts_seconds is None else f" for {format_duration(fault.lasts_seconds)}"
    times = "" if fault.times is None else f", {counted(fault.times, 'time')}"
    match fault.action:
        case FaultAction.FAIL:
            return f"{fault.method} fails ({fault.code}){times}{lasts}"
        case FaultAction.ACT_THEN_FAIL:
            return f"{fault.method} acts and then fails ({fault.code}){times}{lasts}"
        case FaultAction.PRETEND:
            return f"{fault.method} does nothing and reports success{times}{lasts}"
        case FaultAction.CUT:
            return f"{fault.method} ends in the middle of its list ({fault.code}){times}{lasts}"
        case FaultAction.DISTORT:
            return f"{fault.method} answers wrongly ({fault.how}){times}{lasts}"
        case FaultAction.DELAY:
            return f"{fault.method} answers {format_duration(fault.delay_seconds)} late{times}{lasts}"
        case FaultAction.HANG:
            return f"{fault.method} hangs{times}{lasts}"
        case FaultAction.RESTART:
            return "the runtime restarts"
        case FaultAction.AWAY:
            return f"the runtime is down{lasts}"
        case other:
            assert_never(other)


def failpoint_of(fault: Fault) -> Failpoint:
    """The failpoint of a fault that concerns one method."""
    code = CODES[fault.code]
    match fault.action:
        case FaultAction.FAIL:
            return Fail(code, fault.message, fault.times)
        case FaultAction.ACT_THEN_FAIL:
            return ActThenFail(code, fault.message, fault.times)
        case FaultAction.PRETEND:
            return Pretend(fault.times)
        case FaultAction.CUT:
            return Cut(code, fault.message, fault.times)
        case FaultAction.DISTORT:
            return Distort(Distortion(fault.how), fault.times)
        case FaultAction.DELAY:
            return Delay(fault.delay_seconds, fault.times)
        case FaultAction.HANG:
            return Hang(fault.times)
        case FaultAction.RESTART | FaultAction.AWAY:
            raise ValueError(f"{fault.action} concerns the whole runtime")
        case other:
            assert_never(other)


class FaultSchedule:
    """Injects the faults of a scenario into an embedded runtime."""

    def __init__(self, faults: tuple[Fault, ...], server: EmbeddedServer):
        self._faults = faults
        self._server = server
        self._triggered: list[FaultOccurrence] = []
        self._stopping = threading.Event()
        self._whole_runtime = threading.Lock()  # a restart must not run while another fault keeps the runtime down
        self._threads: list[threading.Thread] = []
        self._active: set[int] = set()
        self._began = 0.0

    @property
    def triggered(self) -> tuple[FaultOccurrence, ...]:
        """The faults that were injected so far, in order."""
        return tuple(self._triggered)

    @property
    def active(self) -> bool:
        """True while a fault is in force or a fixed time of one is still to come. A fault that waits for a call does
        not count: the call may never come."""
        return bool(self._active)

    def start(self, began: float) -> None:
        """`began`: monotonic seconds from which all times are counted."""
        self._began = began
        calls = self._server.failpoints.calls
        self._active = {number for number, fault in enumerate(self._faults) if fault.at_seconds is not None}
        for number, fault in enumerate(self._faults):
            run, arguments = self._run, (number, fault, calls[fault.call_method])
            self._threads.append(threading.Thread(target=run, args=arguments, name="fault", daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Injects no more, releases the calls that hang, and leaves the runtime running."""
        self._stopping.set()
        self._server.failpoints.clear()
        for thread in self._threads:
            thread.join()
        self._server.failpoints.clear()

    def _run(self, number: int, fault: Fault, calls_before: int) -> None:
        if self._wait_for_trigger(fault, calls_before):
            self._active.add(number)
            self._inject(fault)
        self._active.discard(number)

    def _inject(self, fault: Fault) -> None:
        self._triggered.append(FaultOccurrence(describe_fault(fault), time.monotonic() - self._began))
        match fault.action:
            case FaultAction.RESTART:
                with self._whole_runtime:
                    self._server.restart()
            case FaultAction.AWAY:
                with self._whole_runtime:
                    self._server.stop()
                    self._stopping.wait(fault.lasts_seconds)
                    self._server.start()
            case _:
                self._server.failpoints[fault.method] = failpoint_of(fault)
                if fault.lasts_seconds is not None:
                    self._stopping.wait(fault.lasts_seconds)
                    self._server.failpoints.pop(fault.method, None)

    def _wait_for_trigger(self, fault: Fault, calls_before: int) -> bool:
        """Waits until the fault is due. False if the run ended before."""
        if fault.at_seconds is not None:
            return not self._stopping.wait(max(self._began + fault.at_seconds - time.monotonic(), 0.0))
        wanted = calls_before + fault.call_count
        while not self._stopping.is_set():
            if self._server.failpoints.wait_for_calls(fault.call_method, wanted, WAIT_SECONDS):
                return True
        return False
