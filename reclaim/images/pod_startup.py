"""Whether a pod is being made right now: while one is, no image is removed.

A kubelet makes the pod's directory, the sandbox, and then for each container checks whether its image is there and
makes the container (`pkg/kubelet/kuberuntime/kuberuntime_manager.go`, SyncPod). Between that check and the container
nothing in the runtime shows that the image is about to be used. That takes milliseconds, and the steps before it can be
observed. A pod counts as being made

* for a hold-off after its directory, its sandbox, or the first run of a container was made;
* while its sandbox is ready and holds no container, or its directory is there and no sandbox, for up to half a minute:
  a sandbox may take seconds, and a pull even longer.

The removal of images waits for it: in one pass for at most twice the hold-off, and at most a quarter of the time until
the disk is full. Where new pods come all the time, or the disk is almost full, images are removed all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reclaim.clock import Clock
from reclaim.cri.retry import retried
from reclaim.disk_need import NEVER
from reclaim.pods.states import PodStateProvider
from reclaim.services import RuntimeService
from reclaim.types import Container, PodSandbox, PodSandboxState

PATIENCE_HOLD_OFFS = 2.0
PATIENCE_SHARE = 0.25  # of the time until the disk is full
UNFINISHED_HOLD_OFFS = 30.0  # how long a pod without its next part is one that is being made
AGAIN_HOLD_OFFS = 0.1  # after which it is checked whether that part is there


class PodStarts:
    """How long to wait for pods that are being made. For one pass. Not for two callers at a time.

    `hold_off_seconds`: how long after a part of a pod was made its containers may need an image; 0: never wait.
    `seconds_to_full`: until nothing is free on the disk, infinite if not known.
    """

    def __init__(
        self,
        runtime: RuntimeService,
        pods: PodStateProvider,
        clock: Clock,
        hold_off_seconds: float,
        seconds_to_full: float = NEVER,
    ):
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._hold_off_seconds = hold_off_seconds
        self._waiting_until = float("-inf")
        self._patience_seconds = min(PATIENCE_HOLD_OFFS * hold_off_seconds, PATIENCE_SHARE * seconds_to_full)

    def wait_seconds(self, containers: Sequence[Container]) -> float:
        """How long to wait before checking again; 0 if no pod is being made. `containers`: as just listed.

        Raises RuntimeUnavailable.
        """
        if self._patience_seconds <= 0:
            return 0.0
        now = self._clock.monotonic()
        if now < self._waiting_until:  # a removal side by side waits for the same pod
            return self._waiting_until - now
        sandboxes = retried(self._runtime.list_pod_sandboxes)
        wait = min(max(self._waits(containers, sandboxes), default=0.0), self._patience_seconds)
        self._patience_seconds -= wait
        self._waiting_until = now + wait
        return wait

    def _waits(self, containers: Sequence[Container], sandboxes: Sequence[PodSandbox]) -> Iterator[float]:
        """Seconds to wait for each pod that is being made; 0 for what is dated in the future."""
        occupied = {container.sandbox_id for container in containers}
        with_sandbox = {sandbox.pod_uid for sandbox in sandboxes}
        for container in containers:
            if container.attempt == 0:
                yield self._wait(container.created_at_ns / 1e9)
        for sandbox in sandboxes:
            if sandbox.state is PodSandboxState.READY:
                yield self._wait(sandbox.created_at_ns / 1e9, unfinished=sandbox.id not in occupied)
        for uid, began in self._pods.start_times().items():
            yield self._wait(began, unfinished=uid not in with_sandbox)

    def _wait(self, began: float, *, unfinished: bool = False) -> float:
        age = self._clock.wall() - began
        if 0 <= age < self._hold_off_seconds:
            return self._hold_off_seconds - age
        if unfinished and 0 <= age < UNFINISHED_HOLD_OFFS * self._hold_off_seconds:
            return AGAIN_HOLD_OFFS * self._hold_off_seconds
        return 0.0
