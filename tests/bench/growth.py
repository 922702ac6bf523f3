"""The processor time and the memory of one plan, over numbers of containers and of images.

Processor time, not wall time, and the best of several: the machine may be shared.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable

from reclaim.containers.plan import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.evidence.states import PodStates
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.types import (
    Container,
    ContainerState,
    Image,
    ImageRecord,
    Listing,
    Plan,
    PodSandbox,
    PodSandboxState,
)
from tests.bench.effort import Effort
from tests.bench.measure import Row

CONTAINERS = (100, 1_000, 10_000, 50_000)
IMAGES = (50, 500, 1_000, 4_000)
COPIES = 5  # dead copies of each container, the newest of which runs in every other pod
NOW_NS = 1_800_000_000 * 10**9
AN_HOUR_NS = 3600 * 10**9
PAUSE = "sha256:" + "f" * 64


def crowd(containers: int, images: int) -> Listing:
    """A node with `containers` containers, a fifth as many pods and sandboxes, and images
    of which half are in use.
    """
    ids = [f"sha256:{number:064x}" for number in range(images)]
    listed = tuple(
        Image(ids[number], (f"registry.example/team/app-{number}:1",), (), 1 << 20)
        for number in range(images)
    )
    found, sandboxes = [], []
    for number in range(containers):
        pod, copy = divmod(number, COPIES)
        running = copy == COPIES - 1 and pod % 2 == 0
        image = ids[pod % max(images // 2, 1)]
        found.append(
            Container(
                id=f"{number:064x}",
                name="app",
                state=ContainerState.RUNNING if running else ContainerState.EXITED,
                created_at_ns=NOW_NS - AN_HOUR_NS + number,
                pod_uid=f"uid-{pod}",
                pod_name=f"pod-{pod}",
                pod_namespace="default",
                sandbox_id=f"sandbox-{pod}",
                attempt=copy,
                image_references=(
                    image,
                    f"registry.example/team/app-{pod % max(images // 2, 1)}:1",
                ),
            )
        )
        if copy == 0:
            state = PodSandboxState.READY if pod % 2 == 0 else PodSandboxState.NOTREADY
            sandboxes.append(
                PodSandbox(
                    f"sandbox-{pod}",
                    state,
                    NOW_NS - AN_HOUR_NS,
                    f"uid-{pod}",
                    f"pod-{pod}",
                    "default",
                )
            )
    return Listing(
        (*listed, Image(PAUSE, ("pause:1",))), tuple(found), tuple(sandboxes), frozenset({PAUSE})
    )


def plans(listing: Listing) -> dict[str, Callable[[], Plan]]:
    """The three plans over one listing; every third pod is gone."""
    uids = {container.pod_uid for container in listing.containers}
    pods = PodStates(present=frozenset(uid for uid in uids if int(uid.rpartition("-")[2]) % 3))
    policy = ContainerGCPolicy()
    records = {
        image.id: ImageRecord(0.0, float(number)) for number, image in enumerate(listing.images)
    }
    return {
        "containers": lambda: plan_container_gc(listing, pods, policy, now_ns=NOW_NS),
        "sandboxes": lambda: plan_sandbox_gc(listing, pods, policy, now_ns=NOW_NS),
        "images": lambda: plan_image_gc(listing, records, ImageGCPolicy(), now=1e6),
    }


def processor_milliseconds(call: Callable[[], object]) -> float:
    """Processor time of one call."""
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1000


def peak_mebibytes(call: Callable[[], object]) -> float:
    """The peak allocation of a call, measured in a run of its own."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / (1 << 20)
    finally:
        tracemalloc.stop()


def growth(effort: Effort) -> list[Row]:
    """The rows of the table; the exponent is that of time over number between
    the last two sizes.
    """
    rows = []
    for sizes, kinds, counted in (
        ([(number, 1_000) for number in CONTAINERS], ("containers", "sandboxes"), "containers"),
        ([(1_000, number) for number in IMAGES], ("images",), "images"),
        ([(10_000, 1_000)], ("containers", "sandboxes", "images"), ""),
    ):
        best: dict[str, list[float]] = {kind: [] for kind in kinds}
        total = [0.0] * effort.growing
        for containers, images in sizes:
            made = plans(crowd(containers, images))
            for kind in kinds:
                taken = [processor_milliseconds(made[kind]) for _ in range(effort.growing)]
                total = [sum(pair) for pair in zip(total, taken, strict=True)]
                best[kind].append(min(taken))
                if counted:
                    count = containers if counted == "containers" else images
                    rows.append(Row(f"plan of {kind}, {count} {counted}", "ms", taken))
                    rows.append(
                        Row(
                            f"plan of {kind}, {count} {counted}: peak",
                            "MiB",
                            [peak_mebibytes(made[kind])],
                        )
                    )
        if not counted:
            rows.append(Row("all three plans, 10000 containers and 1000 images", "ms", total))
            continue
        for kind in kinds:
            before, last = (pair[0 if counted == "containers" else 1] for pair in sizes[-2:])
            exponent = math.log(best[kind][-1] / best[kind][-2]) / math.log(last / before)
            rows.append(
                Row(f"plan of {kind}: exponent of the time, {before} to {last}", "", [exponent])
            )
    return rows
