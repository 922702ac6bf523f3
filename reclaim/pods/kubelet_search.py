"""Finds by itself an identity that the node's own kubelet accepts: `kubeletEndpoint: auto`.

Each way that the node offers (`KubeletWay`) is tried in its order with the request itself, `GET /pods`, until one is
answered; that one is kept. Only what the kubelet refuses (401, 403, TLS), or what cannot be used, leads on to the next
way: a kubelet that does not listen or is late does not know another identity any better. After a search in vain no
request is sent for a minute: a node under pressure has no time for it at every pass.

Covers: the order of tries, and what is said of them. Does not cover: which ways a node has, and whether their files are
trusted (the caller's `ways`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from reclaim.clock import Clock
from reclaim.pods.kubelet_client import ANSWER_SECONDS, KubeletUnavailable, get_pods
from reclaim.pods.kubelet_endpoint import KubeletEndpoint, KubeletWay

SEARCH_AGAIN_SECONDS = 60.0


class Attempt(NamedTuple):
    """What came of one way; `answered` if the kubelet gave its list."""

    identity: str
    answer: str
    answered: bool = False


class KubeletSearch:
    """`ways` is called anew for each search, as certificates rotate and files appear."""

    def __init__(self, ways: Callable[[], Iterable[KubeletWay]], clock: Clock, seconds: float = ANSWER_SECONDS):
        self._ways = ways
        self._clock = clock
        self._seconds = seconds
        self._found: KubeletWay | None = None
        self._in_vain = ""
        self._search_from = float("-inf")
        self.attempts: tuple[Attempt, ...] = ()

    @property
    def endpoint(self) -> KubeletEndpoint | None:
        """The endpoint that was answered last; None before, and once its identity is refused."""
        return None if self._found is None else self._found.endpoint

    def get_pods(self) -> bytes:
        """The body of the kubelet's answer, after at most `seconds` in all. Raises KubeletUnavailable."""
        until = time.monotonic() + self._seconds
        if self._found is not None and self._found.endpoint is not None:
            try:
                return get_pods(self._found.endpoint, self._seconds)
            except KubeletUnavailable as error:
                if not error.refused:
                    raise
            self._found, self._search_from = None, float("-inf")  # a certificate that has rotated, a role taken away
        if self._clock.monotonic() < self._search_from:
            raise KubeletUnavailable(self._in_vain)
        return self._search(until)

    def _search(self, until: float) -> bytes:
        attempts: list[Attempt] = []
        try:
            for way in self._ways():
                if way.endpoint is None:
                    attempts.append(Attempt(way.identity, way.problem))
                    continue
                try:
                    body = get_pods(way.endpoint, max(until - time.monotonic(), 0.0))
                except KubeletUnavailable as error:
                    attempts.append(Attempt(way.identity, str(error)))
                    if not error.refused:
                        raise
                    continue
                attempts.append(Attempt(way.identity, "answered with its pods", answered=True))
                self._found = way
                return body
        finally:
            self.attempts = tuple(attempts)
        self._in_vain = f"kubeletEndpoint auto found no way to ask the kubelet for its pods: {tried(attempts)}"
        self._search_from = self._clock.monotonic() + SEARCH_AGAIN_SECONDS
        raise KubeletUnavailable(self._in_vain)


def tried(attempts: Iterable[Attempt]) -> str:
    """What was tried and what came of it, as the end of a sentence."""
    return "; ".join(f"as {attempt.identity}: {attempt.answer}" for attempt in attempts) or (
        "this node has no identity that could be tried"
    )
