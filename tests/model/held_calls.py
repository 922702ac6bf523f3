"""Removals that hang in the runtime, and end later: done, refused, or done and never told.

A call that hangs is in the runtime's hands: it was sent, and nothing takes it back. So what is removed when it ends at
last is judged by what was true when the call arrived (`truth`), not when it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from eviction.drill.runtime.server import InjectedError

REMOVING = ("RemoveContainer", "RemovePodSandbox", "RemoveImage", "StopContainer", "StopPodSandbox")
ENDS_WITHIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Way:
    """How a call hangs. `acts_first`: it acts and then hangs, else the reverse. `fails`: it ends with an error."""

    acts_first: bool
    fails: bool


@dataclass(eq=False, slots=True)
class HeldCall:
    """One call that hangs. `orphaned`: who sent it is not there any more. `lost`: the runtime has ended with it."""

    method: str
    object_id: str
    way: Way
    orphaned: bool = False
    lost: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class HeldCalls:
    """The calls of one node that hang. Thread-safe.

    `count`: how many have hung. `ids`: objects of which a call has ever hung. `following`: objects whose call has just
    ended, so that what its sender asks about them next follows from that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Way] = []
        self._held: list[HeldCall] = []
        self.ids: set[str] = set()
        self.count = 0
        self.following: set[str] = set()

    def arm(self, way: Way) -> None:
        """The next removal hangs."""
        with self._lock:
            self._armed.append(way)

    def disarm(self) -> None:
        """No further one hangs."""
        with self._lock:
            self._armed.clear()

    @property
    def held(self) -> list[HeldCall]:
        """The calls that hang now, the oldest first."""
        with self._lock:
            return list(self._held)

    def arrive(self, method: str, object_id: str) -> HeldCall | None:
        """A call has arrived; None if it does not hang."""
        with self._lock:
            if method not in REMOVING or not self._armed or object_id in self.following:
                return None
            call = HeldCall(method, object_id, self._armed.pop(0))
            self._held.append(call)
            self.ids.add(object_id)
            self.count += 1
            return call

    def hold(self, call: HeldCall, act: Callable[[], Any]) -> Any:
        """Carries a call out in its way, and returns when it is released. Raises InjectedError if it fails."""
        try:
            answer = act() if call.way.acts_first else None
            call.released.wait()
            if call.lost or (call.way.fails and not call.way.acts_first):
                raise InjectedError(grpc.StatusCode.UNAVAILABLE, "it hung, and was not done")
            answer = act() if answer is None else answer
            if call.way.fails:
                raise InjectedError(grpc.StatusCode.DEADLINE_EXCEEDED, "it hung, and was done")
            return answer
        finally:
            with self._lock:
                self._held.remove(call)
            call.ended.set()

    def end(self, call: HeldCall, answered: Callable[[str], bool], *, lost: bool = False) -> None:
        """Releases a call, and waits until whoever sent it knows. `answered`: whether that is so for this object."""
        call.lost = lost
        with self._lock:
            self.following.add(call.object_id)
        try:
            call.released.set()
            call.ended.wait(ENDS_WITHIN_SECONDS)
            pause = threading.Event()
            for _ in range(int(ENDS_WITHIN_SECONDS / 0.001)):
                if call.orphaned or answered(call.object_id):
                    break
                pause.wait(0.001)
        finally:
            with self._lock:
                self.following.discard(call.object_id)

    def orphan_all(self) -> bool:
        """Who sent them has ended. Whether there are any."""
        held = self.held
        for call in held:
            call.orphaned = True
        return bool(held)
