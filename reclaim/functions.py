"""The reclaim functions: list, plan, carry out. The one path of daemon, hook, dry run, drill and tests.

`delete_all_unused_containers` and `delete_unused_images` are the kubelet's `DeleteAllUnusedContainers` and
`DeleteUnusedImages`: what the rows of the reclaim table call. Neither looks at an image GC percentage or waits for a
periodic loop. `garbage_collect_containers` is the periodic pass over the same stages.

A pass over containers has four stages, each with lists of its own, in the kubelet's order: dead containers, empty
sandboxes, log directories of vanished pods, dangling log symlinks. A stage that fails does not stop the next, and all
their errors are told (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). Where a stage finds nothing that
may go, its lists serve the next one too, for a second at most: nothing has changed by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.containers.plan import ContainerGCPolicy, plan_container_gc
from reclaim.containers.removers import ContainerRemover, ImageRemover, Remover, SandboxRemover
from reclaim.containers.sandboxes import plan_sandbox_gc
from reclaim.disk_need import NEVER
from reclaim.execution.executor import Carried, Executor, LookAgain
from reclaim.images.in_use import images_in_use
from reclaim.images.lister import FRESH_SECONDS, Lister
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.images.pod_startup import PodStarts
from reclaim.images.records import ImageRecords
from reclaim.images.removal_order import Experience, YieldOrder
from reclaim.pod_logs.names import LogPaths
from reclaim.pod_logs.plan import LogPolicy, plan_log_symlinks, plan_pod_logs
from reclaim.pod_logs.reader import LogsUnreadable, ask_states, read_log_links, read_pod_logs
from reclaim.pod_logs.removers import ContainerLogs, LogSymlinkRemover, PodLogRemover
from reclaim.pods.states import PodStateProvider, PodStates
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Listing, Look, Plan, ReclaimResult, Result, RuntimeUnavailable, Usage, Verdict

CONTAINERS = "DeleteAllUnusedContainers"
IMAGES = "DeleteUnusedImages"
CONTAINER_GC = "GarbageCollect"


def to_the_end(_credit_bytes: int) -> Look:
    """For passes that stop for nothing: nothing is measured, and nothing is relieved."""
    return Look(Usage(), relieved=False)


def aggregate(errors: Iterable[str]) -> str:
    """Several errors as one text, as Kubernetes does it: one gives its own, more a bracketed list; each once."""
    distinct = list(dict.fromkeys(error for error in errors if error))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


@dataclass(frozen=True, slots=True)
class Policies:
    """What may go of each kind of object."""

    containers: ContainerGCPolicy
    images: ImageGCPolicy


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Seen:
    """Containers, sandboxes and pods as a stage saw them that had nothing to remove; `at`: monotonic seconds."""

    listing: Listing
    pods: PodStates
    at: float


class Collector:
    """Calls the reclaim functions on one runtime. Not for two callers at a time."""

    def __init__(
        self,
        runtime: RuntimeService,
        images: ImageService,
        pods: PodStateProvider,
        records: ImageRecords,
        executor: Executor,
        clock: Clock,
        policies: Policies,
        log_paths: LogPaths,
    ):
        self._runtime = runtime
        self._images = images
        self._pods = pods
        self._records = records
        self._executor = executor
        self._clock = clock
        self._policies = policies
        self._log_paths = log_paths
        self._logs = ContainerLogs(log_paths)
        self._lister = Lister(runtime, images, clock)
        self._experience = Experience()
        self._seen: _Seen | None = None
        self._planned: tuple[Verdict, ...] = ()  # a dry run goes on as if these were gone

    @property
    def executor(self) -> Executor:
        """What carries out the plans."""
        return self._executor

    def use(self, policies: Policies) -> None:
        """Other policies from now on. Not while a function runs."""
        self._policies = policies

    def begin(self) -> None:
        """A new row begins: what an earlier dry run planned is forgotten."""
        self._planned = ()

    def detect(self) -> None:
        """Looks at images and who uses them, for the records only. Raises RuntimeUnavailable."""
        self._record(self._lister.everything(), self._clock.monotonic())

    def delete_all_unused_containers(self, look: LookAgain) -> ReclaimResult:
        """Dead containers, sandboxes, logs; of terminated pods all. Never raises: `error` says what went wrong."""
        return self._collect(CONTAINERS, look, evict_non_deleted_pods=True)

    def garbage_collect_containers(self) -> ReclaimResult:
        """The same stages to their end, as the periodic loop runs them: what terminated pods hold is left to them.

        Never raises. `error` is set when a list failed, never by one object.
        """
        return self._collect(CONTAINER_GC, to_the_end, evict_non_deleted_pods=False)

    def _collect(self, operation: str, look: LookAgain, *, evict_non_deleted_pods: bool) -> ReclaimResult:
        result = ReclaimResult(operation)
        errors: list[str] = []
        self._seen = None
        for stage in (self._containers, self._sandboxes, self._pod_logs, self._log_symlinks):
            try:
                result = stage(result, look, evict_non_deleted_pods)
                errors.append(result.error)
            except (RuntimeUnavailable, LogsUnreadable) as error:
                errors.append(str(error))
            if result.relieved:
                break
        self._seen = None
        return replace(result, error=aggregate(errors))

    def _containers(self, result: ReclaimResult, look: LookAgain, evict_non_deleted_pods: bool) -> ReclaimResult:
        plan, result = self._container_plan(result, evict_non_deleted_pods)
        return self._carry_out(result, plan, ContainerRemover(self._runtime, self._pods, self._clock, self._logs), look)

    def _container_plan(self, result: ReclaimResult, evict_non_deleted_pods: bool) -> tuple[Plan, ReclaimResult]:
        """The plan alone: the lists it was made from, tens of megabytes for many containers, are let go of here."""
        seen, result = self._timed(result, self._containers_and_pods)
        plan = plan_container_gc(
            seen.listing,
            seen.pods,
            self._policies.containers,
            self._now_ns(),
            evict_non_deleted_pods=evict_non_deleted_pods,
        )
        self._seen = None if plan.remove else seen
        return plan, result

    def _sandboxes(self, result: ReclaimResult, look: LookAgain, evict_non_deleted_pods: bool) -> ReclaimResult:
        """From lists read anew where the first stage had anything to remove: what it has emptied counts as empty."""
        seen, result = self._timed(result, self._containers_and_pods)
        plan = plan_sandbox_gc(
            seen.listing,
            seen.pods,
            self._policies.containers,
            self._now_ns(),
            evict_non_deleted_pods=evict_non_deleted_pods,
        )
        self._seen = None if plan.remove else seen
        remover = SandboxRemover(self._runtime, self._pods, self._clock, self._planned)
        return self._carry_out(result, plan, remover, look)

    def _pod_logs(self, result: ReclaimResult, look: LookAgain, evict_non_deleted_pods: bool) -> ReclaimResult:
        """The entries are read before the kubelet's directories, which are made first: none of a new pod is missed.

        Under pressure a log root that does not exist has no entries; the periodic pass fails by it, as the kubelet's.
        """
        try:
            entries, result = self._timed(result, lambda: read_pod_logs(self._log_paths))
        except LogsUnreadable as error:
            if error.missing and evict_non_deleted_pods:
                return result
            raise
        try:
            seen, result = self._timed(result, self._containers_and_pods)
        except RuntimeUnavailable:
            pods, in_runtime = self._pods.look(), None
        else:
            pods, listing = seen.pods, seen.listing
            in_runtime = {c.pod_uid for c in listing.containers} | {s.pod_uid for s in listing.sandboxes}
        plan = plan_pod_logs(entries, pods, self._log_policy(pods), in_runtime, self._now_ns())
        return self._carry_out(result, plan, PodLogRemover(self._log_paths, entries, self._pods, self._clock), look)

    def _log_symlinks(self, result: ReclaimResult, look: LookAgain, _: bool) -> ReclaimResult:
        policy = self._log_policy(self._pods.look())
        links, result = self._timed(result, lambda: read_log_links(self._log_paths, policy))
        answers, result = self._timed(result, lambda: ask_states(self._runtime, links))
        remover = LogSymlinkRemover(self._log_paths, links, self._runtime, policy, self._clock)
        return self._carry_out(result, plan_log_symlinks(links, answers, policy), remover, look)

    def _log_policy(self, pods: PodStates) -> LogPolicy:
        containers = self._policies.containers
        return LogPolicy(cautious=containers.guarded(pods), settle_seconds=containers.settle_seconds)

    def _now_ns(self) -> int:
        return int(self._clock.wall() * 1e9)

    def delete_unused_images(self, look: LookAgain) -> ReclaimResult:
        """Unused images, the one whose last use is longest ago first, or the largest yield where `look` says that
        there is no time for that. Never raises: `error` says what went wrong."""
        result = ReclaimResult(IMAGES)
        try:
            listing, result = self._timed(result, self._everything)
        except RuntimeUnavailable as error:
            return replace(result, error=str(error))
        began = self._clock.monotonic()
        self._record(listing, began)
        policy = self._policies.images
        plan = plan_image_gc(listing, self._records.records, policy, began)
        need = look(0).need
        seconds_to_full = NEVER if need is None else need.seconds_to_full
        starts = PodStarts(self._runtime, self._pods, self._clock, policy.pod_start_seconds, seconds_to_full)
        remover = ImageRemover(
            self._images,
            self._lister,
            listing,
            self._clock,
            self._planned,
            keep=policy.keep,
            starts=None if self._executor.dry_run else starts,
        )
        result = replace(result, plan_seconds=self._clock.monotonic() - began)
        order = YieldOrder(self._experience, self._executor.parallel)
        result = replace(self._carry_out(result, plan, remover, look, order), order=order.chosen)
        self._experience = order.experience
        gone = (Result.REMOVED, Result.ALREADY_GONE)
        self._records.forget(o.verdict.id for o in result.outcomes if o.result in gone or o.may_have_gone)
        return result

    def _everything(self) -> Listing:
        return self._lister.everything().without(self._planned)

    def _containers_and_pods(self) -> _Seen:
        """The pod directories are read before and after the runtime's lists: a pod exists if either look saw it.

        Lists of the stage before are taken over; the directories are read again all the same.
        """
        seen, now = self._seen, self._clock.monotonic()
        if seen is not None and now - seen.at <= FRESH_SECONDS:
            return replace(seen, pods=seen.pods.united(self._pods.look()))
        before = self._pods.look()
        listing = self._lister.containers().without(self._planned)
        return _Seen(listing, before.united(self._pods.look()), now)

    def _record(self, listing: Listing, now: float) -> None:
        usage = images_in_use(listing)
        self._records.update(listing.images, usage.by_containers | usage.by_sandboxes, now, self._clock.wall())

    def _timed(self, result: ReclaimResult, read: Callable[[], Answer]) -> tuple[Answer, ReclaimResult]:
        """What `read` answers, and the result with the seconds that it took. Raises what it raises."""
        began = self._clock.monotonic()
        answer = read()
        return answer, replace(result, list_seconds=result.list_seconds + self._clock.monotonic() - began)

    def _carry_out(
        self, result: ReclaimResult, plan: Plan, remover: Remover, look: LookAgain, order: YieldOrder | None = None
    ) -> ReclaimResult:
        began = self._clock.monotonic()
        carried = self._executor.carry_out(plan, remover, look, order)
        if self._executor.dry_run:
            self._planned += tuple(o.verdict for o in carried.outcomes if o.result is Result.PLANNED)
        return _sum(result, plan, carried, self._clock.monotonic() - began)


def _sum(result: ReclaimResult, plan: Plan, carried: Carried, seconds: float) -> ReclaimResult:
    waits = [wait for wait in (result.eligible_in_seconds, plan.eligible_in_seconds) if wait is not None]
    gone = (Result.REMOVED, Result.PLANNED)
    nominal = sum(o.verdict.size_bytes or 0 for o in carried.outcomes if o.result in gone)
    return replace(
        result,
        outcomes=result.outcomes + carried.outcomes,
        kept=result.kept + carried.kept,
        nominal_bytes=result.nominal_bytes + nominal,
        relieved=carried.relieved,
        eligible_in_seconds=min(waits, default=None),
        error=carried.error,
        remove_seconds=result.remove_seconds + seconds,
    )
