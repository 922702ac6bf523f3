"""Faults that apply to some calls of a method only: from a call on, for a time, or with a probability."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from eviction.drill.runtime.faults import Failpoint
from eviction.drill.runtime.server import Failpoints


@dataclass(frozen=True, slots=True)
class When:
    """The calls to which a fault applies; all conditions must hold.

    `from_call`: from this call of the method on; the first call after the fault was set is 1. `after_seconds` and
    `for_seconds` (None: no end): a span of time that begins when the fault is set. `probability`: the share of the
    remaining calls, drawn from a generator seeded with `seed`, so that the same order of calls always gives the same
    draws. Raises ValueError for numbers out of range.
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


def arm(failpoints: Failpoints, fault: MethodFault) -> None:
    """Adds a fault behind those that its method has already. Its calls and its time are counted from now on."""
    failpoints.add(fault.method, fault.action, fault.when())
