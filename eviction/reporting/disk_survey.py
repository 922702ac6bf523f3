"""Measures what the bytes of the filesystems are used for: asks the runtime, counts directory trees, and looks at what
the kernel says of open files and of the filesystems, within seconds.

It runs after a pass that could not relieve the node, never before a removal; in the daemon on a thread of its own, at
most once a minute, so that the next pass does not wait. After removals it begins when no more space arrives, or after
5 s, and goes by the observations of then: before, the parts would not add up. Where a question is not answered, its
part is counted in *everything else* (`attribution`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from eviction.record import Pass, PassResult
from eviction.reporting.attribution import (
    Attribution,
    Counted,
    Measured,
    Use,
    attribute,
    attribution_json,
    class_of_log,
    sentence,
)
from eviction.reporting.disk_usage import Tree, TreeMeter, TreeUsage
from reclaim.execution.workers import NoThread, Workers
from reclaim.pods.states import PodStates
from reclaim.services import UsageService
from reclaim.types import Outcome, Result, RuntimeUnavailable
from signals.clock import Clock
from signals.types import SignalObservations

if TYPE_CHECKING:
    from eviction.reporting.remarks import HiddenSpaceLooker

COUNT_SECONDS = 2.0  # for all trees together
ASK_SECONDS = 2.0  # deadline of each of the two calls to the runtime
SHORTEST_INTERVAL_SECONDS = 60.0
SETTLE_POLL_SECONDS = 0.1
SETTLE_QUIET_POLLS = 5  # so often nothing more is free than before: no more space arrives
SETTLE_MOST_POLLS = 50
SETTLE_BYTES = 64 * 1024  # a smaller rise is not the space of an image
CONTENT = "io.containerd.content.v1.content"
SNAPSHOTTER = "io.containerd.snapshotter.v1."


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
    """Measures one node. `observe`, `places` and `pods` are called each time; `service` makes a client with a short
    deadline, which is closed afterwards; None where there is no runtime."""

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
        self._meter = TreeMeter(clock, count_seconds)
        self._hidden: HiddenSpaceLooker | None = None
        self._busy = threading.Lock()
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
        if not any(outcome.result is Result.REMOVED for outcome in outcomes):
            return replace(record, attributions=self.survey(observations, outcomes))
        settled, still_coming = self._settled()
        late = max(_free_bytes(settled) - _free_bytes(observations), 0)
        measured = replace(self._measure(settled), late_bytes=late, still_coming=still_coming)
        return replace(record, attributions=attribute(settled, outcomes, measured))

    def _settled(self) -> tuple[SignalObservations, bool]:
        """The observations when no more space arrives, or after 5 s; whether it was still arriving then."""
        latest, quiet = self._observe(), 0
        most = _free_bytes(latest)
        for _ in range(SETTLE_MOST_POLLS):
            if quiet == SETTLE_QUIET_POLLS:
                return latest, False
            time.sleep(SETTLE_POLL_SECONDS)
            latest = self._observe()
            free = _free_bytes(latest)
            quiet = 0 if free > most + SETTLE_BYTES else quiet + 1
            most = max(most, free)
        return latest, quiet < SETTLE_QUIET_POLLS

    def explain_later(self, record: Pass, on_explained: Callable[[Pass], None]) -> None:
        """The same on a thread of its own, at most once a minute; `on_explained` is called there with the record.

        Without a thread nothing is explained."""
        if (
            record.result is not PassResult.NOT_ENOUGH
            or self._clock.monotonic() - self._done_at < SHORTEST_INTERVAL_SECONDS
        ):
            return
        if not self._busy.acquire(blocking=False):
            return

        def announce() -> None:
            self._done_at = self._clock.monotonic()
            self._busy.release()

        try:
            self._workers.run(lambda: on_explained(self.with_attribution(record)), announce)
        except NoThread:  # it is counted; the next pass tries again
            self._busy.release()

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        hidden = 0 if self._hidden is None else self._hidden.threads_not_started
        return self._workers.not_started + self._meter.threads_not_started + hidden

    def _measure(self, observations: SignalObservations) -> Measured:
        places, pods = self._places(), self._pods()
        reported, own_filesystem, layers = self._asked()

        def log_class(names: Sequence[str]) -> str:
            return class_of_log(names, pods.gone)

        trees = [Tree(places.pod_logs_dir, log_class), Tree(os.path.join(places.root_directory, "pods"), _one_class)]
        stores = [path for path in (places.content, places.imagefs) if path is not None]
        hidden = self._hidden_space().look(observations, places.imagefs)
        usages = self._meter.measure([*trees, *(Tree(path, _one_class) for path in (*stores, *hidden.uppers))])
        logs, volumes = usages[:2]
        of_store = dict(zip(stores, usages[2:], strict=False))
        of_upper = dict(zip(hidden.uppers, usages[2 + len(stores) :], strict=True))
        return Measured(
            store_reported=reported,
            store_counted=_counted(of_store.get(places.imagefs or "")),
            content=_counted(of_store.get(places.content or "")),
            writable_in_store=not own_filesystem,
            writable_layers=layers,
            logs={Use(name): Counted(amount, logs.complete) for name, amount in logs.bytes_by_class},
            logs_device=logs.device_id,
            volumes=_counted(volumes),
            volumes_device=volumes.device_id,
            deleted_open=hidden.deleted_open,
            remarks=hidden.remarks(observations, usages, of_upper),
        )

    def _hidden_space(self) -> HiddenSpaceLooker:
        if self._hidden is None:
            from eviction.reporting.remarks import HiddenSpaceLooker  # few passes need a survey

            self._hidden = HiddenSpaceLooker(self._clock)
        return self._hidden

    def _asked(self) -> tuple[int | None, bool, dict[str, int] | None]:
        """From the runtime: the size of its image store, whether writable layers are on another filesystem, and the
        size of each by container id."""
        reported, own_filesystem, layers = None, False, None
        service = self._service()
        if service is None:
            return reported, own_filesystem, layers
        try:
            info = service.image_fs_info()
            reported = info.image_used_bytes
            own_filesystem = info.container_filesystems[:1] not in ((), info.image_filesystems[:1])
            layers = dict(service.writable_layers())
        except RuntimeUnavailable:
            pass
        finally:
            service.close()
        return reported, own_filesystem, layers


def explained(record: Pass) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sentence and the fields of a log event for each filesystem that the pass could not relieve."""
    pressed = {threshold.signal.filesystem for threshold in record.still_met}
    for attribution in record.attributions:
        if pressed.intersection(attribution.roles):
            fields = {"pass": record.id, "attribution": attribution_json(attribution)}
            yield f"why it was not enough: {sentence(attribution)}", fields


def _free_bytes(observations: SignalObservations) -> int:
    """Free bytes of all filesystems together."""
    free = {identity.device_id: stats.free_bytes for identity, stats in observations.filesystems.values()}
    return sum(free.values())


def _one_class(_: Sequence[str]) -> str:
    return "all"


def _counted(usage: TreeUsage | None) -> Counted | None:
    if usage is None or usage.device_id is None:
        return None
    return Counted(usage.total_bytes, usage.complete)
