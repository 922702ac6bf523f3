"""Injects the faults of a scenario when their trigger comes.

Each fault waits for its trigger on a thread of its own: a number of seconds after the first pressure began, or the
arrival of a call. What a faulty method of the runtime does is in `eviction.drill.runtime.faults`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from eviction.drill.pressure.schedule import FaultOccurrence
from eviction.drill.runtime import faults
from eviction.drill.runtime.faults import CODES, Failpoint
from eviction.drill.runtime.server import EmbeddedServer
from eviction.drill.scenario import Fault, FaultAction
from signals.quantity import counted, format_duration

WAIT_SECONDS = 0.05

IN_WORDS: Mapping[FaultAction, str] = {
    FaultAction.FAIL: "fails ({code})",
    FaultAction.ACT_THEN_FAIL: "acts and then fails ({code})",
    FaultAction.PRETEND: "does nothing and reports success",
    FaultAction.CUT: "ends in the middle of its list ({code})",
    FaultAction.DISTORT: "answers wrongly ({how})",
    FaultAction.DELAY: "answers {delay} late",
    FaultAction.HANG: "hangs",
    FaultAction.RESTART: "restarts",
    FaultAction.AWAY: "is down",
}
FAILPOINTS: Mapping[FaultAction, Callable[[Fault], Failpoint]] = {
    FaultAction.FAIL: lambda fault: faults.Fail(CODES[fault.code], fault.message, fault.times),
    FaultAction.ACT_THEN_FAIL: lambda fault: faults.ActThenFail(CODES[fault.code], fault.message, fault.times),
    FaultAction.PRETEND: lambda fault: faults.Pretend(fault.times),
    FaultAction.CUT: lambda fault: faults.Cut(CODES[fault.code], fault.message, fault.times),
    FaultAction.DISTORT: lambda fault: faults.Distort(faults.Distortion(fault.how), fault.times),
    FaultAction.DELAY: lambda fault: faults.Delay(fault.by_seconds or 0.0, fault.times),
    FaultAction.HANG: lambda fault: faults.Hang(fault.times),
}


def describe_fault(fault: Fault) -> str:
    """A fault in words."""
    who = fault.method if fault.action.of_one_method else "the runtime"
    delay = format_duration(fault.by_seconds or 0.0)
    words = IN_WORDS[fault.action].format(code=fault.code, how=fault.how, delay=delay)
    times = "" if fault.times is None else f", {counted(fault.times, 'time')}"
    lasts = "" if fault.lasts_seconds is None else f" for {format_duration(fault.lasts_seconds)}"
    return f"{who} {words}{times}{lasts}"


def failpoint_of(fault: Fault) -> Failpoint:
    """The failpoint of a fault that concerns one method."""
    if not fault.action.of_one_method:
        raise ValueError(f"{fault.action} concerns the whole runtime")
    return FAILPOINTS[fault.action](fault)


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
            arguments = (number, fault, 0 if fault.on_call is None else calls[fault.on_call.method])
            self._threads.append(threading.Thread(target=self._run, args=arguments, name="fault", daemon=True))
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
        if fault.action.of_one_method:
            self._server.failpoints[fault.method] = failpoint_of(fault)
            if fault.lasts_seconds is not None:
                self._stopping.wait(fault.lasts_seconds)
                self._server.failpoints.pop(fault.method, None)
            return
        with self._whole_runtime:
            self._server.stop()
            if fault.action is FaultAction.AWAY:
                self._stopping.wait(fault.lasts_seconds)
            self._server.start()

    def _wait_for_trigger(self, fault: Fault, calls_before: int) -> bool:
        """Waits until the fault is due. False if the run ended before."""
        if fault.at_seconds is not None:
            return not self._stopping.wait(max(self._began + fault.at_seconds - time.monotonic(), 0.0))
        assert fault.on_call is not None  # one of the two triggers it
        method, wanted = fault.on_call.method, calls_before + fault.on_call.count
        while not self._stopping.is_set():
            if self._server.failpoints.wait_for_calls(method, wanted, WAIT_SECONDS):
                return True
        return False
