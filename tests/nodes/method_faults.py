"""Several faults for one method, each from one of its calls on."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from eviction.drill.runtime import Failpoint, Failpoints


class When(NamedTuple):
    """The calls to which a fault applies: from this one of the method on; the first after the fault
    was set is 1."""

    from_call: int = 1


class MethodFault(NamedTuple):
    """One method misbehaves in one way. `method` is its name in CRI, without the service."""

    method: str
    action: Failpoint
    when: When = When()


@dataclass(slots=True, eq=False)
class _Armed:
    action: Failpoint
    from_call: int
    times_left: int | None
    calls_seen: int = 0

    def count_call(self) -> bool:
        """Counts a call that arrives now. Returns True if the fault applies to it."""
        self.calls_seen += 1
        return self.times_left != 0 and self.calls_seen >= self.from_call


class SeveralFaults(Failpoints):
    """The faults in force, several for each method, and the number of its calls; as a mapping it
    has the first."""

    def __init__(self, methods: frozenset[str]) -> None:
        super().__init__()
        self._methods = methods
        self._changed = threading.Condition()
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
            arm(self, MethodFault(method, action))

    def __delitem__(self, method: str) -> None:
        with self._changed:
            del self._armed[method]
            super().__delitem__(method)

    def add(self, fault: MethodFault) -> None:
        """Adds a fault after those that the method already has; the first one that applies
        to a call is used. Raises KeyError for an unknown method, so that a mistyped name
        is noticed."""
        method, action, when = fault
        if method not in self._methods:
            raise KeyError(f"no method is named {method!r}")
        with self._changed:
            if method not in self:
                super().__setitem__(method, action)
            armed = _Armed(action, when.from_call, action.times)
            self._armed.setdefault(method, []).append(armed)

    def wait_for_calls(self, method: str, count: int, timeout_seconds: float) -> bool:
        """Waits until `count` calls of a method have arrived. False if time runs out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._calls[method] >= count, timeout_seconds)

    def _arrive(self, method: str) -> Failpoint | None:
        with self._changed:
            self._calls[method] += 1
            self._changed.notify_all()
            # Every fault counts every call, also those to which an earlier fault applies.
            applying = [armed for armed in self._armed.get(method, ()) if armed.count_call()]
            if applying and applying[0].times_left is not None:
                applying[0].times_left -= 1
            return applying[0].action if applying else None

    def _in_force(self, method: str, action: Failpoint) -> bool:
        return any(armed.action is action for armed in self._armed.get(method, ()))


def arm(failpoints: SeveralFaults, fault: MethodFault) -> None:
    """Adds a fault behind those that its method has already. Its calls are counted from now on."""
    failpoints.add(fault)
