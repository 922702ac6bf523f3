"""Failpoints: the faults in force for each method of a runtime, and a count of the calls.

    server.failpoints["RemoveImage"] = Fail(grpc.StatusCode.UNAVAILABLE, "connection lost", times=2)
    server.failpoints["ListContainers"] = Hang()
    del server.failpoints["ListContainers"]          # releases the calls that hang
    server.failpoints.add(MethodFault("ListImages", Cut(), When(from_call=3)))

Covers: which fault applies to which call, and how often each method was called. Faults take effect in
`Failpoints.apply` only, for the embedded runtime and for a proxy in front of another runtime.

Does not cover: what the method does; it is passed in as a function. The values are in `faults`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from eviction.drill.runtime.faults import (
    ActThenFail,
    Cut,
    Delay,
    Distort,
    Distortion,
    Fail,
    Failpoint,
    Hang,
    MethodFault,
    Pretend,
)

_Answer = TypeVar("_Answer")


class InjectedError(Exception):
    """A call ends with an error that has a code of its own. `code` and `message`: what the caller gets. `partial`: the
    message sent before the error, or None."""

    def __init__(self, code: grpc.StatusCode, message: str, partial: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.partial = partial


@dataclass(frozen=True, slots=True)
class Call(Generic[_Answer]):
    """One call that has arrived: a function that executes it, an empty answer, and a function that distorts an
    answer."""

    act: Callable[[], _Answer]
    empty: _Answer
    distort: Callable[[_Answer, Distortion], _Answer]


@dataclass(slots=True, eq=False)
class _ActiveFault:
    fault: MethodFault
    since: float
    times_left: int | None
    draws: random.Random
    calls_seen: int = 0

    def count_call(self, now: float) -> bool:
        """Counts the call that arrives now. True if the fault applies to it."""
        when = self.fault.when
        self.calls_seen += 1
        age = now - self.since
        if self.times_left == 0 or self.calls_seen < when.from_call or age < when.after_seconds:
            return False
        if when.for_seconds is not None and age >= when.after_seconds + when.for_seconds:
            return False
        return self.draws.random() < when.probability


class Failpoints(UserDict[str, Failpoint]):
    """Faults by method name ("RemoveImage"). Thread-safe. `clock` returns monotonic seconds.

    As a mapping it has one fault for each method. Setting it replaces the faults of the method and starts `times` anew;
    a fault that is used up stays in the mapping without effect. `add` adds further faults of a method; the first one
    that applies to a call is used. Raises KeyError for an unknown method, so that a mistyped name is noticed.
    """

    def __init__(self, methods: frozenset[str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._methods = methods
        self._clock = clock
        self._changed = threading.Condition()
        self._armed: dict[str, list[_ActiveFault]] = {}
        self._calls: Counter[str] = Counter()
        self._closed = False

    def __setitem__(self, method: str, action: Failpoint) -> None:
        armed = self._arm(MethodFault(method, action))
        with self._changed:
            self.data[method] = action
            self._armed[method] = [armed]
            self._changed.notify_all()

    def __delitem__(self, method: str) -> None:
        with self._changed:
            del self.data[method], self._armed[method]
            self._changed.notify_all()

    def add(self, fault: MethodFault) -> None:
        """Adds a fault behind those that its method has already. Its calls and its time are counted from now on."""
        armed = self._arm(fault)
        with self._changed:
            self.data.setdefault(fault.method, fault.action)
            self._armed.setdefault(fault.method, []).append(armed)

    @property
    def calls(self) -> Counter[str]:
        """The number of calls of each method so far, 0 for a method that was never called. A copy."""
        with self._changed:
            return Counter(self._calls)

    def wait_for_calls(self, method: str, count: int, timeout_seconds: float) -> bool:
        """Waits until `count` calls of a method have arrived, answered or not. False if the time ran out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._calls[method] >= count, timeout_seconds)

    def apply(self, method: str, call: Call[_Answer]) -> _Answer:
        """Counts one call of a method and executes it, with the fault that applies to it.

        Raises InjectedError if the fault makes the call fail, and everything that `call.act` raises.
        """
        armed = self._arrive(method)
        action = None if armed is None else armed.fault.action
        match action:
            case Fail(code=code, message=message):
                raise InjectedError(code, message)
            case Pretend():
                return call.empty
            case Delay(seconds=seconds):
                self._wait(method, armed, seconds)
            case Hang():
                self._wait(method, armed, None)
        answer = call.act()
        match action:
            case ActThenFail(code=code, message=message):
                raise InjectedError(code, message)
            case Cut(code=code, message=message):
                raise InjectedError(code, message, partial=call.distort(answer, Distortion.HALF_LIST))
            case Distort(how=how):
                return call.distort(answer, how)
        return answer

    def close(self) -> None:
        """Ends every wait: the calls that hang fail with UNAVAILABLE and do nothing, as when their server dies."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def open(self) -> None:
        """Lets delays and hangs wait again after `close`."""
        with self._changed:
            self._closed = False

    def _arm(self, fault: MethodFault) -> _ActiveFault:
        if fault.method not in self._methods:
            raise KeyError(f"no method is named {fault.method!r}")
        draws = random.Random(fault.when.seed)  # noqa: S311 # repeatable on purpose, not cryptographic
        return _ActiveFault(fault, self._clock(), fault.action.times, draws)

    def _arrive(self, method: str) -> _ActiveFault | None:
        with self._changed:
            self._calls[method] += 1
            self._changed.notify_all()
            now = self._clock()
            # Every fault counts every call, also those to which an earlier fault applies.
            applying = [armed for armed in self._armed.get(method, ()) if armed.count_call(now)]
            if applying and applying[0].times_left is not None:
                applying[0].times_left -= 1
            return applying[0] if applying else None

    def _wait(self, method: str, armed: _ActiveFault | None, seconds: float | None) -> None:
        """Waits until the fault is gone, or so many seconds are over. Raises InjectedError if the server stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or armed not in self._armed.get(method, ()), seconds)
            if self._closed:
                raise InjectedError(grpc.StatusCode.UNAVAILABLE, "the server stopped while the call was waiting")
