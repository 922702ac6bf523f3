"""Measures what the bytes of the filesystems are used for: asks the runtime, counts directory trees, and looks at open
files and at what the kernel says of the filesystems (`space`). It takes seconds.

It runs after a pass that could not relieve the node, never before a removal; in the daemon on its own thread, at most
once a minute, so that the next pass does not wait. After removals it waits until no more space arrives, 5 s at most,
and uses the observations of that moment; with earlier ones the parts would not add up. If a question is not answered,
its part is in *everything else* (`attribution`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from eviction.record import Pass, PassResult
from eviction.reporting.attribution import (
    SNAPSHOTTER,
    Attribution,
    Measured,
    attribute,
    class_of_log,
    not_of_the_runtime,
    sentence,
)
from eviction.reporting.filesystem_facts import paths_that_answer
from eviction.reporting.json_shapes import to_json
from eviction.reporting.space import TimeLimit, Tree, count_trees, look
from reclaim.execution.workers import NoThread, Workers
from reclaim.pods.states import PodStates
from reclaim.services import UsageService
from reclaim.types import Outcome, Result, RuntimeUnavailable
from signals.clock import Clock
from signals.types import SignalObservations

COUNT_SECONDS = 2.0  # for all trees together
LOOK_SECONDS = 1.0  # for all processes, as far as they can be seen
ASK_SECONDS = 2.0  # deadline of each of the two calls to the runtime
SHORTEST_INTERVAL_SECONDS = 60.0
SETTLE_POLL_SECONDS = 0.1
SETTLE_QUIET_POLLS = 5  # so often no more is free than the time before: no more space arrives
SETTLE_MOST_POLLS = 50
SETTLE_BYTES = 64 * 1024  # a smaller rise is not the space of an image
MOST_OVERLAYS = 8  # whose bytes are counted
CONTENT = "io.containerd.content.v1.content"


class ClosingUsageService(UsageService, Protocol):
    """A usage service with a connection of its own."""

    def close(self) -> None:
        """Closes the connection."""


@dataclass(frozen=True, slots=True)
class Places:
    """The directories to count. `imagefs`: the path that the runtime reports, None before it answers."""

    root_directory: str
    pod_logs_dir: str
    imagefs: str | None

    @property
    def content(self) -> str | None:
        """The directory of containerd's compressed content, beside its snapshotter; None for other runtimes."""
        if self.imagefs is None or not os.path.basename(self.imagefs).startswith(SNAPSHOTTER):
            return None
        return os.path.join(os.path.dirname(self.imagefs), CONTENT)


class DiskSurvey:
    """Measures one node. `observe`, `places` and `pods` are called each time. `service` makes a client with a short
    deadline, which is closed afterwards; None if there is no runtime."""

    def __init__(
        self,
        observe: Callable[[], SignalObservations],
        places: Callable[[], Places],
        pods: Callable[[], PodStates],
        service: Callable[[], ClosingUsageService | None],
        clock: Clock,
        count_seconds: float = COUNT_SECONDS,
    ):
        self._observe = observe
        self._places = places
        self._pods = pods
        self._service = service
        self._clock = clock
        self._counting = TimeLimit("tree usage", clock, count_seconds)
        self._looking = TimeLimit("hidden space", clock, LOOK_SECONDS)
        self._workers = Workers("disk survey", 1)
        self._done_at = float("-inf")

    def survey(self, observations: SignalObservations, outcomes: Iterable[Outcome]) -> tuple[Attribution, ...]:
        """What the bytes are used for now. Takes some seconds; does not raise if runtime or disk do not answer."""
        return attribute(observations, outcomes, self._measure(observations))

    def with_attribution(self, record: Pass) -> Pass:
        """The record with its attributions if the pass was not enough, else the record; blocks while it measures."""
        if record.result is not PassResult.NOT_ENOUGH:
            return record
        observations, outcomes = record.after or record.observations, record.removals + record.kept
        settled = observations
        if any(outcome.result is Result.REMOVED for outcome in outcomes):
            settled = self._settled()
        late = max(_free_bytes(settled) - _free_bytes(observations), 0)
        measured = replace(self._measure(settled), late_bytes=late)
        return replace(record, attributions=attribute(settled, outcomes, measured))

    def _settled(self) -> SignalObservations:
        """The observations when no more space arrives, or after 5 s."""
        latest, quiet = self._observe(), 0
        for _ in range(SETTLE_MOST_POLLS):
            if quiet == SETTLE_QUIET_POLLS:
                break
            time.sleep(SETTLE_POLL_SECONDS)
            before, latest = latest, self._observe()
            quiet = 0 if _free_bytes(latest) > _free_bytes(before) + SETTLE_BYTES else quiet + 1
        return latest

    def explain_later(self, record: Pass, on_explained: Callable[[Pass], None]) -> None:
        """The same on another thread, at most once a minute; `on_explained` is called there with the record.

        If no thread can be started, that is counted, and the next pass tries again."""

        def explain() -> None:
            try:
                on_explained(self.with_attribution(record))
            finally:
                self._done_at = self._clock.monotonic()

        quiet_seconds = self._clock.monotonic() - self._done_at
        if record.result is PassResult.NOT_ENOUGH and quiet_seconds >= SHORTEST_INTERVAL_SECONDS:
            with suppress(NoThread):
                self._workers.run(explain)

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        return sum(workers.not_started for workers in (self._workers, self._counting.workers, self._looking.workers))

    def _measure(self, observations: SignalObservations) -> Measured:
        places, pods = self._places(), self._pods()
        answering = paths_that_answer(observations)
        identities = [identity for identity, _ in observations.filesystems.values() if identity.path in answering]
        survey = look({identity.path: identity.device_id for identity in identities}, self._looking)
        others = {
            device_id: not_of_the_runtime(space.overlays, places.imagefs)
            for device_id, space in survey.filesystems.items()
        }
        uppers = [overlay.upper for overlays in others.values() for overlay in overlays][:MOST_OVERLAYS]
        trees = [
            Tree(places.pod_logs_dir, lambda names: class_of_log(names, pods.gone)),
            Tree(os.path.join(places.root_directory, "pods")),
            *(Tree(path) for path in (places.content or "", places.imagefs or "", *uppers)),
        ]
        logs, volumes, content, store, *of_upper = count_trees(trees, self._counting)
        measured = Measured(
            store=None if store.device_id is None else store,
            content=None if content.device_id is None else content,
            logs=logs,
            volumes=volumes,
            survey=survey,
            others=others,
            of_upper=dict(zip(uppers, of_upper, strict=True)),
        )
        return self._with_answers_of_the_runtime(measured)

    def _with_answers_of_the_runtime(self, measured: Measured) -> Measured:
        """With the size of its image store, whether writable layers are on another filesystem, and the size of each."""
        service = self._service()
        if service is None:
            return measured
        with closing(service), suppress(RuntimeUnavailable):
            info = service.image_fs_info()
            own_filesystem = info.container_filesystems[:1] not in ((), info.image_filesystems[:1])
            measured = replace(measured, store_reported=info.image_used_bytes, writable_in_store=not own_filesystem)
            measured = replace(measured, writable_layers=dict(service.writable_layers()))
        return measured


def explained(record: Pass) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sentence and the fields of a log event for each filesystem that the pass could not relieve."""
    pressed = {threshold.signal.filesystem for threshold in record.still_met}
    for attribution in record.attributions:
        if pressed.intersection(attribution.filesystems):
            fields = {"pass": record.id, "attribution": to_json(attribution)}
            yield f"why it was not enough: {sentence(attribution)}", fields


def _free_bytes(observations: SignalObservations) -> int:
    """Free bytes of all filesystems together."""
    free = {identity.device_id: stats.free_bytes for identity, stats in observations.filesystems.values()}
    return sum(free.values())
