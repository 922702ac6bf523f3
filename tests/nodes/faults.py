"""Ways in which a method misbehaves, each with a name; and those in force, by method."""

import threading
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import grpc

from eviction.drill import runtime
from eviction.drill.runtime import first_half

CODES = {code.name: code for code in grpc.StatusCode if code is not grpc.StatusCode.OK}


@dataclass
class Failpoint(runtime.Failpoint):
    """The base of those: a subclass says what happens."""

    acts: bool = field(default=True, init=False)
    seconds: float | None = field(default=0.0, init=False)
    change: Callable[[Any], Any] | None = field(default=None, init=False)
    code: grpc.StatusCode | None = field(default=None, init=False)
    message: str = field(default="", init=False)


@dataclass
class Fail(Failpoint):
    """Calls fail and do nothing."""

    acts = False
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "failed on purpose"


@dataclass
class ActThenFail(Failpoint):
    """Calls act and then answer with an error: that does not mean that nothing was done."""

    code: grpc.StatusCode = grpc.StatusCode.DEADLINE_EXCEEDED
    message: str = "done, and failed on purpose"


@dataclass
class Pretend(Failpoint):
    """Calls do nothing and report success: the caller must not conclude that anything was done."""

    acts = False


@dataclass
class Delay(Failpoint):
    """Calls start `seconds` late, or at once when the failpoint is deleted or replaced."""

    seconds: float


@dataclass
class Hang(Failpoint):
    """Calls start only when the failpoint is deleted or replaced."""

    seconds = None


@dataclass
class Cut(Failpoint):
    """Calls act, send the first half of their list, and end with an error."""

    change = staticmethod(first_half)
    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "the stream was cut on purpose"


class CountedFaults(runtime.Failpoints):
    """The faults in force, and the number of calls of each method. Raises KeyError for an unknown
    method, so that a mistyped name is noticed."""

    def __init__(self, methods: frozenset[str]) -> None:
        super().__init__()
        self._methods = methods
        self._changed = threading.Condition()
        self._begins: dict[str, int] = {}  # with which call of the method
        self._calls: Counter[str] = Counter()

    @property
    def calls(self) -> Counter[str]:
        """The number of calls of each method so far, as a copy; 0 if there was none."""
        with self._changed:
            return Counter(self._calls)

    def __setitem__(self, method: str, action: runtime.Failpoint) -> None:
        self.begin(method, action)

    def begin(self, method: str, action: runtime.Failpoint, from_call: int = 1) -> None:
        """A fault from this call of the method on; the next one is 1. It can be set again, as it was
        given."""
        if method not in self._methods:
            raise KeyError(f"no method is named {method!r}")
        with self._changed:
            self._begins[method] = self._calls[method] + from_call
            super().__setitem__(method, copy(action))

    def wait_for_calls(self, method: str, count: int, timeout_seconds: float) -> bool:
        """Waits until `count` calls of a method have arrived. False if time runs out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._calls[method] >= count, timeout_seconds)

    def _arrive(self, method: str) -> runtime.Failpoint | None:
        with self._changed:
            self._calls[method] += 1
            self._changed.notify_all()
            applies = self._calls[method] >= self._begins.get(method, 0)
            return super()._arrive(method) if applies else None
