"""Faults that apply to some calls of a method only: from a call on, for a
time, or with a probability.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from eviction.drill.runtime import Failpoint, Failpoints


@dataclass(frozen=True, slots=True)
class When:
    """The calls to which a fault applies; all conditions must hold.

    `from_call`: from this call of the method on; the first call after the fault was set is 1.
    `after_seconds` and `for_seconds` (None: no end): a span of time that begins when the
    fault is set. `probability`: the share of the remaining calls, drawn from a generator
    seeded with `seed`, so that the same order of calls always gives the same draws. Raises
    ValueError for numbers out of range.
    """

    from_call: int = 1
    after_seconds: float = 0.0
    for_seconds: float | None = None
    probability: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.from_call < 1:
            raise ValueError(f"from_call is {self.from_call}: calls are counted from 1")
        if self.after_seconds < 0 or (self.for_seconds is not None and self.for_seconds < 0):
            raise ValueError("after_seconds and for_seconds are at least 0")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability is {self.probability:g}: it is from 0 to 1")

    def __call__(self) -> Callable[[int, float], bool]:
        """Asked at each call, with the number of calls and of seconds since the fault was set."""
        draws = random.Random(self.seed)  # noqa: S311 # repeatable on purpose, not cryptographic

        def applies(calls: int, seconds: float) -> bool:
            if calls < self.from_call or seconds < self.after_seconds:
                return False
            if self.for_seconds is not None and seconds >= self.after_seconds + self.for_seconds:
                return False
            return draws.random() < self.probability

        return applies


@dataclass(frozen=True, slots=True)
class MethodFault:
    """One method misbehaves in one way. `method` is its name in CRI, without the service."""

    method: str
    action: Failpoint
    when: When = When()


@dataclass(slots=True, eq=False)
class _Armed:
    action: Failpoint
    applies: Callable[[int, float], bool]
    since: float
    times_left: int | None
    calls_seen: int = 0

    def count_call(self, now: float) -> bool:
        """Counts a call that arrives now. Returns True if the fault applies to it."""
        self.calls_seen += 1
        return self.times_left != 0 and self.applies(self.calls_seen, now - self.since)


class SeveralFaults(Failpoints):
    """The faults in force, several for each method, and the number of its calls; as a mapping it has
    the first. `clock`
    returns monotonic seconds."""

    def __init__(
        self, methods: frozenset[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._methods = methods
        self._changed = threading.Condition()
        self._clock = clock
        self._armed: dict[str, list[_Armed]] = {}
        self._calls: Counter[str] = Counter()

    @property
    def calls(self) -> Counter[str]:
        """The number of calls of each method so far, as a copy; 0 if there was none."""
        with self._changed:
            return Counter(self._calls)

    def __setitem__(self, method: str, action: Failpoint) -> None:
        with self._changed:
            self.pop(method, None)
            self.add(method, action)

    def __delitem__(self, method: str) -> None:
        with self._changed:
            del self._armed[method]
            super().__delitem__(method)

    def add(
        self,
        method: str,
        action: Failpoint,
        applies: Callable[[int, float], bool] = lambda _calls, _seconds: True,
    ) -> None:
        """Adds a fault after those that the method already has; the first one that applies
        to a call is used. `applies` is called with the number of calls and of seconds
        since now, at each call. Raises KeyError for an unknown method, so that a mistyped name
        is noticed."""
        if method not in self._methods:
            raise KeyError(f"no method is named {method!r}")
        with self._changed:
            if method not in self:
                super().__setitem__(method, action)
            armed = _Armed(action, applies, self._clock(), action.times)
            self._armed.setdefault(method, []).append(armed)

    def wait_for_calls(self, method: str, count: int, timeout_seconds: float) -> bool:
        """Waits until `count` calls of a method have arrived. False if time runs out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._calls[method] >= count, timeout_seconds)

    def _arrive(self, method: str) -> Failpoint | None:
        with self._changed:
            self._calls[method] += 1
            self._changed.notify_all()
            now = self._clock()
            # Every fault counts every call, also those to which an earlier fault applies.
            applying = [armed for armed in self._armed.get(method, ()) if armed.count_call(now)]
            if applying and applying[0].times_left is not None:
                applying[0].times_left -= 1
            return applying[0].action if applying else None

    def _in_force(self, method: str, action: Failpoint) -> bool:
        return any(armed.action is action for armed in self._armed.get(method, ()))


def arm(failpoints: SeveralFaults, fault: MethodFault) -> None:
    """Adds a fault behind those that its method has already.

    Its calls and its time are counted from now on.
    """
    failpoints.add(fault.method, fault.action, fault.when())
