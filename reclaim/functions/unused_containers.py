"""The stages of `DeleteAllUnusedContainers`, in the kubelet's order.

They remove dead containers, empty sandboxes, log directories of vanished pods, and dangling log
symlinks (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). Each stage plans on lists of
its own; if the stage before removed nothing, the inventory still has them.

Every object is checked again right before its removal. The status of a container or sandbox is
at most 50 ms old; it is read again if another question took longer than that. A log directory
entry must still be the planned one and unchanged, and its pod must still not exist; a link's
target must still not exist and its container must have exited. Between this last look and the
`unlink`, another file can get the name for some microseconds. For that to matter, the kubelet
would have to make a pod, log directory or link with exactly the same name, UID and container id,
which it never does twice.

Reading logs creates nothing and opens no symlink's target. As in the kubelet, an unreadable pod log
root fails the whole stage, and an unreadable directory of symlinks counts as empty.
"""

import os
import stat
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from reclaim.containers.plan import (
    NOT_DEAD,
    LogEntry,
    NoState,
    StatusAnswer,
    judge_link,
    plan_container_gc,
    plan_log_symlinks,
    plan_pod_logs,
    plan_sandbox_gc,
)
from reclaim.evidence.states import PodStates, is_pod_uid
from reclaim.function import GONE, Ready, ReclaimContext, Refused, Stage, Stages
from reclaim.pod_logs.directories import names_in, opened, remove_tree, unlink_files
from reclaim.pod_logs.names import (
    LOG_SUFFIX,
    SHORTEST_ID,
    LogPaths,
    container_id_of_symlink,
    container_log_location,
    is_entry_name,
    is_kubelets_symlink,
    printable,
    symlink_name,
    uid_of_kubelets_log_directory,
)
from reclaim.trust import identity_of
from reclaim.types import (
    NO_STATUS,
    AnsweredWithError,
    ContainerState,
    ContainerStatus,
    Identity,
    Listing,
    Plan,
    PodSandboxState,
    Reason,
    ReclaimError,
    RemovalFailed,
    Runtime,
    RuntimeUnavailable,
    Verdict,
)

ERRORS_IN_A_ROW = 2


def container_stages(context: ReclaimContext) -> Stages:
    """The stages in the order in which they run."""
    paths = context.log_paths
    return (
        DeadContainers(context),
        EmptySandboxes(context),
        LogDirectories(context, paths.pod_logs_dir),
        DanglingLogSymlinks(context, paths.container_logs_dir),
    )


class _Stage(Stage):
    """What the four stages share: the last check is whether the pod has come back."""

    def __init__(self, context: ReclaimContext):
        self._context = context
        self._runtime = context.runtime
        self._policy = context.policies.containers

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Checks the object itself, then what else the runtime has, then whether the pod is still
        gone; and the object once more if that took longer than its status may be old."""
        clock = self._context.clock
        refused = self._refusal(verdict)
        read_at = clock.monotonic()
        for look in (self._refusal_by_list, self._refusal_by_pod):
            refused = refused or look(verdict)
            # lists are slow on a node under pressure, and so may be the directories of pods
            if refused is None and clock.monotonic() - read_at > self.fresh_seconds:
                refused = self._refusal(verdict)
                read_at = clock.monotonic()
        return refused or Ready(read_at)

    @abstractmethod
    def _refusal(self, verdict: Verdict) -> Refused | None:
        """Why the object itself must stay; None if it may go. Raises RuntimeUnavailable."""

    def _refusal_by_list(self, _verdict: Verdict, /) -> Refused | None:
        """Why it must stay because of what else the runtime has. Raises RuntimeUnavailable."""
        return None

    def _refusal_by_pod(self, verdict: Verdict) -> Refused | None:
        """Why an object of a vanished pod must stay: the pod exists after all, or the kubelet's
        directories are no longer trusted.

        Something that cannot be a UID belongs to no pod. If the kubelet says that a pod has
        terminated or was evicted, that is final and not asked again.
        """
        pods = self._context.pods
        if (
            verdict.reason is not Reason.POD_GONE
            or not is_pod_uid(verdict.pod_uid)
            or pods.gone(verdict.pod_uid)
        ):
            return None
        return Refused(Reason.POD_ALIVE if pods.doubt is None else Reason.POD_UNKNOWN)

    def _lists(self) -> tuple[PodStates, Listing]:
        """The pods, and what the runtime has, without what a dry run has removed so far: a sandbox
        that the previous stage emptied counts as empty. Raises RuntimeUnavailable."""
        context = self._context
        pods, listing = context.inventory.pods_and_containers(context.not_older_than())
        self.listed_at = context.clock.monotonic()
        return pods, listing.without(context.facts().planned)

    def _now_ns(self) -> int:
        """By the clock of the runtime's times, and of files."""
        return int(self._context.clock.wall() * 1e9)


# ---- containers and sandboxes


class DeadContainers(_Stage):
    """Removes a container whose status, read within the last 50 ms, is
    EXITED (which is final in CRI).

    Other states appear only in plans based on the kubelet's own state: a CREATED container must
    still be CREATED; an UNKNOWN one is stopped first, and must then be EXITED. PreStop hooks are
    not run: only the kubelet can do that.

    The log is deleted first, as the kubelet does: if that fails, the container is kept and
    the next pass tries again.
    """

    frees_late = True

    def __init__(self, context: ReclaimContext):
        super().__init__(context)
        self._checked: dict[str, ContainerStatus] = {}

    def plan(self) -> Plan:
        """Plans from complete lists. Raises RuntimeUnavailable."""
        pods, listing = self._lists()
        return plan_container_gc(listing, pods, self._policy, now_ns=self._now_ns())

    def _refusal(self, verdict: Verdict) -> Refused | None:
        status = self._runtime.container_status(verdict.id)
        if status == NO_STATUS:
            return Refused(Reason.UNKNOWN_STATE)
        if status is None or status.id != verdict.id:
            return GONE
        if status.state in NOT_DEAD and (
            status.state is ContainerState.RUNNING or status.state is not verdict.state
        ):
            return Refused(NOT_DEAD[status.state])
        _check_identity(verdict, status.identity)
        self._checked[verdict.id] = status
        return None

    def _refusal_by_list(self, verdict: Verdict) -> Refused | None:
        """The newer copy must still exist."""
        if not verdict.superseded_by:
            return None
        copies = self._runtime.list_containers(pod_uid=verdict.pod_uid)
        if any(container.id == verdict.superseded_by for container in copies):
            return None
        return Refused(Reason.NEWEST_OF_LIVE_POD)

    def remove(self, verdict: Verdict) -> bool:
        """StopContainer if its state is unknown, then its logs, then RemoveContainer by full id."""
        status = self._checked.pop(verdict.id)
        if status.state is ContainerState.UNKNOWN:
            status = self._stopped(status)
        remove_container_log(status, self._context.log_paths)
        return self._runtime.remove_container(verdict.id)

    def _stopped(self, status: ContainerStatus) -> ContainerStatus:
        """Stops a container and returns its new status.

        Raises ReclaimError unless it has exited or is gone.
        """
        self._runtime.stop_container(status.id, status.stop_grace_seconds)
        stopped = self._runtime.container_status(status.id)
        if stopped is not None and stopped.state is not ContainerState.EXITED:
            raise RemovalFailed(f"it was stopped, but is {stopped.state}")
        return stopped or status

    def present(self, verdict: Verdict) -> bool:
        """True if ContainerStatus answers with exactly this id, or does not say that it is gone."""
        status = self._runtime.container_status(verdict.id)
        return status is not None and status.id in (verdict.id, NO_STATUS.id)


class EmptySandboxes(_Stage):
    """Stops and removes a sandbox that is not READY and has no containers, which would go too."""

    frees_late = True

    def plan(self) -> Plan:
        """Plans from complete lists. Raises RuntimeUnavailable."""
        pods, listing = self._lists()
        return plan_sandbox_gc(listing, pods, self._policy, now_ns=self._now_ns())

    def _refusal(self, verdict: Verdict) -> Refused | None:
        status = self._runtime.pod_sandbox_status(verdict.id)
        if status is None:
            return GONE
        if status.state is PodSandboxState.READY:
            return Refused(Reason.READY)
        _check_identity(verdict, status.identity)
        return None

    def _refusal_by_list(self, verdict: Verdict) -> Refused | None:
        """It must have no containers."""
        listing = Listing(containers=self._runtime.list_containers(sandbox_id=verdict.id))
        listing = listing.without(self._context.facts().planned)
        occupied = any(container.sandbox_id == verdict.id for container in listing.containers)
        return Refused(Reason.HAS_CONTAINERS) if occupied else None

    def remove(self, verdict: Verdict) -> bool:
        """StopPodSandbox, which frees its network, then RemovePodSandbox."""
        self._runtime.stop_pod_sandbox(verdict.id)
        return self._runtime.remove_pod_sandbox(verdict.id)

    def present(self, verdict: Verdict) -> bool:
        """True if PodSandboxStatus answers with exactly this id."""
        return self._runtime.pod_sandbox_status(verdict.id) is not None


def _check_identity(verdict: Verdict, identity: Identity | None) -> None:
    """Raises AnsweredWithError if the status of an id describes a different object than the
    list did: a list that assigns the dead containers of a live pod to a vanished one does not
    justify their removal."""
    if None not in (verdict.identity, identity) and verdict.identity != identity:
        raise AnsweredWithError(
            f"the status of {verdict.kind} {verdict.id} is not what was listed under its id"
        )


# ---- logs


class _OfLogs(_Stage):
    """Stages for the entries of one of the two log directories. `_planned`: the entries as the
    plan read them, by id."""

    def __init__(self, context: ReclaimContext, directory: str):
        super().__init__(context)
        self._directory = directory
        self._planned: Mapping[str, LogEntry] = {}

    def _entries(self) -> Collection[LogEntry]:
        """Those that there are now. Raises OSError."""
        with opened(self._directory) as directory:
            found = [self._read(directory, name) for name in names_in(directory)]
        self._planned = {entry.id: entry for entry in found if entry is not None}
        return self._planned.values()

    def _read(self, directory: int, name: bytes) -> LogEntry | None:
        """An entry of the opened directory as it is now; None if there is no entry of that name.

        Raises OSError.
        """
        return read_entry(directory, name)

    def _found(self, verdict: Verdict) -> LogEntry | None:
        """What has the name now; None also if the directory does not exist. Raises OSError."""
        with suppress(FileNotFoundError), opened(self._directory) as directory:
            return self._read(directory, self._planned[verdict.id].name)
        return None

    def _refusal(self, verdict: Verdict) -> Refused | None:
        """None while the entry is as planned. If the kubelet says that its pod has terminated or
        was evicted, it may have changed."""
        planned = self._planned[verdict.id]
        try:
            found = self._found(verdict)
        except OSError:
            return Refused(Reason.UNREADABLE)
        if found is None:
            return GONE
        by_word = verdict.reason in (Reason.POD_TERMINATED, Reason.POD_EVICTED)
        if found == planned or (by_word and found.identity == planned.identity):
            return None
        return Refused(
            Reason.TARGET_EXISTS if found.kept is Reason.TARGET_EXISTS else Reason.TOO_YOUNG
        )

    def remove(self, verdict: Verdict) -> bool:
        """Removes the entry and everything below it as far as possible, after one more
        look, within the same call, that it is as planned. Raises RemovalFailed, naming the
        first entry that was kept."""
        refused = _OfLogs._refusal(self, verdict)  # which asks the runtime nothing
        if refused == GONE:
            return False
        if refused is not None:
            raise RemovalFailed(f"{verdict.id} changed at the last moment: {refused.reason}")
        planned = self._planned[verdict.id]
        try:
            with opened(self._directory) as directory:
                removal = remove_tree(directory, planned.name, planned.identity)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RemovalFailed(f"{self._directory}: {error.strerror}") from error
        if removal.failed:
            raise RemovalFailed(f"{removal.sentence}; entries removed: {removal.removed}")
        return removal.removed > 0

    def present(self, verdict: Verdict) -> bool:
        """Whether the planned entry, and not another of its name, still exists. Raises
        RuntimeUnavailable if that is unknown."""
        planned = self._planned[verdict.id]
        try:
            found = self._found(verdict)
        except OSError as error:
            raise RuntimeUnavailable(f"{self._directory}: {error.strerror}") from error
        return found is not None and (found.identity, found.target) == (
            planned.identity,
            planned.target,
        )


class LogDirectories(_OfLogs):
    """Log directories of vanished pods. Under pressure, a missing pod log root counts as empty; a
    periodic pass fails because of it, as the kubelet's does."""

    def plan(self) -> Plan | None:
        """Reads the entries before the kubelet's pod directories. The kubelet makes a pod's
        directory before its log directory, so a new pod is never mistaken for a vanished one.
        Raises ReclaimError."""
        try:
            entries = self._entries()
        except OSError as error:
            if self._policy.evict_non_deleted_pods and isinstance(error, FileNotFoundError):
                return None
            raise ReclaimError(f"{self._directory} cannot be read: {error.strerror}") from error
        in_runtime: set[str] | None = None
        try:
            pods, listing = self._lists()
            in_runtime = {part.pod_uid for part in listing.parts}
        except RuntimeUnavailable:
            pods = self._context.pods.compared(self._context.pods.read(), None)
        return plan_pod_logs(
            entries, pods, self._policy, in_runtime=in_runtime, now_ns=self._now_ns()
        )


class DanglingLogSymlinks(_OfLogs):
    """Log symlinks that lead nowhere.

    Rotation renames a log before the runtime opens it anew. Between the two, the target of a
    running container's link does not exist, and a link removed then would never come back. So the
    container must first have exited (which is final) or be unknown, and after that the link must be
    unchanged and still have no target.
    """

    def plan(self) -> Plan:
        """Every link; none if the directory is missing or cannot be read. Never raises."""
        self._guarded = self._policy.guarded(self._context.pods.pod_states())
        links: Collection[LogEntry] = ()
        with suppress(OSError):
            links = self._entries()
        answers = ask_states(self._runtime, links)
        self.listed_at = self._context.clock.monotonic()
        return plan_log_symlinks(links, answers, guarded=self._guarded)

    def _read(self, directory: int, name: bytes) -> LogEntry | None:
        """A symlink named `*.log`; None for anything else."""
        link = read_entry(directory, name)
        if link is None or not link.target or not name.endswith(os.fsencode(LOG_SUFFIX)):
            return None
        location = container_log_location(
            os.fsdecode(link.target), self._context.log_paths.pod_logs_dir
        )
        kept: Reason | None = Reason.TARGET_EXISTS
        if self._guarded and location is None:
            # The kubelet did not make it, and it is not followed. So links of an earlier
            # `podLogsDir` stay, too, each of which costs an inode.
            kept = Reason.NOT_KUBELETS
        else:
            try:
                os.stat(name, dir_fd=directory)
            except FileNotFoundError:
                kept = None if is_kubelets_symlink(name) else Reason.NOT_KUBELETS
            except OSError:
                kept = Reason.UNREADABLE
        uid = location and uid_of_kubelets_log_directory(location[0])
        return link._replace(kept=kept, pod_uid=uid or "")

    def _refusal(self, verdict: Verdict) -> Refused | None:
        """Asks for the container's state, then looks at the link, which takes no time."""
        planned = self._planned[verdict.id]
        reason, _ = judge_link(
            planned,
            ask_state(self._runtime, container_id_of_symlink(planned.name)),
            guarded=self._guarded,
        )
        return super()._refusal(verdict) if reason is Reason.DANGLING else Refused(reason)


def read_entry(directory: int, name: bytes) -> LogEntry | None:
    """An entry of an opened directory as it is now; None if it does not exist. Raises OSError."""
    try:
        status = os.lstat(name, dir_fd=directory)
        target = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else b""
    except FileNotFoundError:
        return None
    return LogEntry(name, identity_of(status), status.st_ctime_ns, target=target)


def ask_states(runtime: Runtime, links: Iterable[LogEntry]) -> dict[str, StatusAnswer]:
    """What ContainerStatus answers, by id, for each link that leads nowhere. Never raises.

    No more requests are sent after two errors in a row: if the runtime is down, each
    may take its whole deadline.
    """
    answers: dict[str, StatusAnswer] = {}
    errors = 0
    for container_id in dict.fromkeys(
        container_id_of_symlink(link.name) for link in links if link.kept is None
    ):
        answers[container_id] = ask_state(runtime, container_id)
        errors = errors + 1 if answers[container_id] is NoState.ERROR else 0
        if errors == ERRORS_IN_A_ROW:
            break
    return answers


def ask_state(runtime: Runtime, container_id: str) -> StatusAnswer:
    """What ContainerStatus answers for an id or a prefix of one. Never raises.

    Text too short to be one is NO_CONTAINER without a request. An answer about a container whose id
    does not begin with `container_id` is NO_STATUS.
    """
    if len(container_id) < SHORTEST_ID:
        return NoState.NO_CONTAINER
    try:
        status = runtime.container_status(container_id)
    except RuntimeUnavailable:
        return NoState.ERROR
    if status is None:
        return NoState.NO_CONTAINER
    return status.state if status.id.startswith(container_id) else NoState.NO_STATUS


def remove_container_log(status: ContainerStatus, paths: LogPaths) -> None:
    """Deletes the log of a container that is about to be removed, its rotated, compressed and
    temporary copies, and the symlink to it.

    The order is the kubelet's (`pkg/kubelet/kuberuntime/kuberuntime_container.go`,
    removeContainer): the log first, so that a container whose log cannot be deleted is kept and the
    next pass finds both. The kubelet holds its log rotator's lock meanwhile, which no other process
    can do. Without that lock, the rotator, which rotates running containers only, may have picked
    this container just before it exited, and rename or compress its log during the deletion. It
    then logs that a file is missing, or leaves a copy, which is removed with the pod's log
    directory. Logs of running containers are never touched.

    Missing files are not an error; a `log_path` that is not a container's log below the pod log
    root means that there are none, and one that never started has none. Raises RemovalFailed on any
    other error; the container must then be kept.
    """
    location = container_log_location(status.log_path, paths.pod_logs_dir)
    if location is None or status.state is not ContainerState.EXITED:
        return
    pod, container, file = location
    link = os.fsencode(
        symlink_name(status.pod_name, status.pod_namespace, status.name, container_id=status.id)
    )
    try:
        with suppress(FileNotFoundError), opened(paths.pod_logs_dir, pod, container) as directory:
            removal = unlink_files(directory, file)
            if removal.failed:
                raise RemovalFailed(f"{printable(pod)}: {removal.sentence}")
        if not is_entry_name(link):
            return
        with suppress(FileNotFoundError), opened(paths.container_logs_dir) as directory:
            found = read_entry(directory, link)
            # several containers may share a name that was cut to 255 bytes
            if found is not None and found.target == os.fsencode(status.log_path):
                os.unlink(link, dir_fd=directory)
    except OSError as error:
        raise RemovalFailed(f"the log of {status.id} is kept: {error.strerror}") from error
