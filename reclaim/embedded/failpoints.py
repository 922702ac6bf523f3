"""What goes wrong on purpose: failures, delays and hangs of single methods, as values in a mapping.

    server.failpoints["RemoveImage"] = Fail(grpc.StatusCode.UNAVAILABLE, "connection lost", times=2)
    server.failpoints["ListContainers"] = Hang()
    del server.failpoints["ListContainers"]          # lets the calls that hang go on

Covers: which method misbehaves how and how often, and how often each method was called. `Failpoints.apply` is the one
place where any of it takes effect.

Does not cover: what the method does; it is handed in as a function.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import TypeVar, assert_never

import grpc

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Fail:
    """The next `times` calls fail and do nothing; None: every call until the failpoint is deleted."""

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "failed on purpose"
    times: int | None = None


@dataclass(frozen=True, slots=True)
class ActThenFail:
    """The next `times` calls do what they should, and fail all the same: an error is not a failure."""

    code: grpc.StatusCode = grpc.StatusCode.DEADLINE_EXCEEDED
    message: str = "done, and failed on purpose"
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """The next `times` calls start `seconds` late, or at once when the failpoint is deleted or replaced."""

    seconds: float
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """The next `times` calls start only when the failpoint is deleted or replaced."""

    times: int | None = None


Failpoint = Fail | ActThenFail | Delay | Hang


class InjectedError(Exception):
    """A call fails on purpose. `code` and `message` are what the caller shall see."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True, eq=False)
class _Armed:
    point: Failpoint
    left: int | None


class Failpoints(MutableMapping[str, Failpoint]):
    """Failpoints by method name ("RemoveImage"), one a method. Thread-safe.

    Setting one replaces the one before and counts its `times` anew; one that is used up stays in the mapping without
    effect. KeyError names a method that does not exist, so that a mistyped name cannot pass unnoticed.
    """

    def __init__(self, methods: frozenset[str]) -> None:
        self._methods = methods
        self._changed = threading.Condition()
        self._armed: dict[str, _Armed] = {}
        self._calls: Counter[str] = Counter()
        self._closed = False

    def __getitem__(self, method: str) -> Failpoint:
        with self._changed:
            return self._armed[method].point

    def __setitem__(self, method: str, point: Failpoint) -> None:
        if method not in self._methods:
            raise KeyError(f"no method is named {method!r}")
        with self._changed:
            self._armed[method] = _Armed(point, point.times)
            self._changed.notify_all()

    def __delitem__(self, method: str) -> None:
        with self._changed:
            del self._armed[method]
            self._changed.notify_all()

    def __iter__(self) -> Iterator[str]:
        with self._changed:
            return iter(tuple(self._armed))

    def __len__(self) -> int:
        with self._changed:
            return len(self._armed)

    @property
    def calls(self) -> Counter[str]:
        """How many calls of each method have arrived so far; 0 for one that was never called. A copy."""
        with self._changed:
            return Counter(self._calls)

    def wait_for_calls(self, method: str, count: int, timeout_seconds: float) -> bool:
        """Wait until `count` calls of a method have arrived, answered or not; False if the time ran out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._calls[method] >= count, timeout_seconds)

    def apply(self, method: str, act: Callable[[], _Answer]) -> _Answer:
        """Count one call of a method and carry it out, as its failpoint will have it.

        Raises InjectedError where the call is to fail, and whatever `act` raises.
        """
        armed = self._arrive(method)
        match armed.point if armed is not None else None:
            case None:
                return act()
            case Fail(code=code, message=message):
                raise InjectedError(code, message)
            case ActThenFail(code=code, message=message):
                act()
                raise InjectedError(code, message)
            case Delay(seconds=seconds):
                self._wait(method, armed, seconds)
                return act()
            case Hang():
                self._wait(method, armed, None)
                return act()
            case other:
                assert_never(other)

    def close(self) -> None:
        """End every wait: the calls that hang fail as UNAVAILABLE and do nothing, as when their server dies."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def open(self) -> None:
        """Let delays and hangs wait again after `close`."""
        with self._changed:
            self._closed = False

    def _arrive(self, method: str) -> _Armed | None:
        with self._changed:
            self._calls[method] += 1
            self._changed.notify_all()
            armed = self._armed.get(method)
            if armed is None or armed.left == 0:
                return None
            if armed.left is not None:
                armed.left -= 1
            return armed

    def _wait(self, method: str, armed: _Armed | None, seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while not self._closed and self._armed.get(method) is armed:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                self._changed.wait(left)
            if self._closed:
                raise InjectedError(grpc.StatusCode.UNAVAILABLE, "the server stopped while the call was waiting")
