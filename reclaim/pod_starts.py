"""Whether a pod is being made right now: while one is, no image goes.

A kubelet makes the pod's directory, the sandbox, looks whether the image is there, and makes the container
(`pkg/kubelet/kuberuntime/kuberuntime_manager.go`, SyncPod). Between the look and the container nothing in the runtime
tells that the image is about to be used; that takes milliseconds, and the parts before it can be seen. So the removal
of images waits for as long as the newest pod directory or ready sandbox is younger than a hold-off. In a pass it waits
for at most twice the hold-off, and a quarter of the time until the disk is full: where pods come all the time, and
where there is no time, relief comes first.
"""

from __future__ import annotations

from reclaim.clock import Clock
from reclaim.need import NEVER
from reclaim.pods import PodStateProvider
from reclaim.retry import retried
from reclaim.services import RuntimeService
from reclaim.types import PodSandboxState

PATIENCE_HOLD_OFFS = 2.0
PATIENCE_SHARE = 0.25  # of the time until the disk is full


class PodStarts:
    """For one pass. Not for two callers at a time.

    `hold_off_seconds`: for how long after its directory or sandbox was made a pod may come for its image; 0: nobody is
    waited for. `seconds_to_full`: until nothing is free on the disk, as far as it is known.
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

    def wait_seconds(self) -> float:
        """How long to wait before looking again; 0 when no image needs to be held. Raises RuntimeUnavailable."""
        if self._hold_off_seconds <= 0:
            return 0.0
        now = self._clock.monotonic()
        if now < self._waiting_until:  # another removal side by side waits for the same pod
            return self._waiting_until - now
        wait = min(self._youth_seconds(), self._patience_seconds)
        self._patience_seconds -= wait
        self._waiting_until = now + wait
        return wait

    def _youth_seconds(self) -> float:
        """How long the newest pod still counts as being made, at least 0. What is dated in the future does not."""
        sandboxes = retried(self._runtime.list_pod_sandboxes)
        begun = [each.created_at_ns / 1e9 for each in sandboxes if each.state is PodSandboxState.READY]
        directory = self._pods.newest()
        if directory is not None:
            begun.append(directory)
        now = self._clock.wall()
        return max([0.0, *(self._hold_off_seconds - (now - each) for each in begun if each <= now)])
