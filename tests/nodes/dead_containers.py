"""Thousands of dead containers as records in the lists of an embedded runtime,
without files on the disk.

Each has the labels and annotations of a kubelet's container: about 1.1 KB on the wire, as
measured on containerd. Making 50 000 of them takes a second; 50 000 writable layers would take
minutes and as many inodes.
"""

from __future__ import annotations

from eviction.drill.runtime import Container, EmbeddedRuntime, deterministic_id
from reclaim.cri import cri_pb2

_STATE = '{"exitCode":1,"finishedAt":"2026-01-01T00:00:00Z","reason":"Error","containerID":"'
_SECOND_NS = 1_000_000_000


def add_dead_containers(
    runtime: EmbeddedRuntime, sandbox_id: str, count: int, image_id: str, age_seconds: float
) -> list[str]:
    """Adds `count` containers to a sandbox, each with a name of its own, that ran for a second and
    exited with 1 `age_seconds` ago. Returns their ids: equal arguments make equal ids, so a second
    call adds none."""
    made: dict[str, Container] = {}
    with runtime._lock:
        died_at = runtime._now_ns() - round(age_seconds * _SECOND_NS)
        pod = runtime._sandboxes[sandbox_id].metadata
        for number in range(count):
            container_id, name = deterministic_id("crowd", sandbox_id, number), f"job-{number:05d}"
            made[container_id] = Container(
                id=container_id,
                metadata=cri_pb2.ContainerMetadata(name=name),
                image=cri_pb2.ImageSpec(image=image_id),
                image_ref=image_id,
                image_id=image_id,
                labels={
                    "io.kubernetes.container.name": name,
                    "io.kubernetes.pod.name": pod.name,
                    "io.kubernetes.pod.namespace": pod.namespace,
                    "io.kubernetes.pod.uid": pod.uid,
                },
                annotations={
                    "io.kubernetes.container.hash": container_id[:8],
                    "io.kubernetes.container.restartCount": "0",
                    "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
                    "io.kubernetes.container.terminationMessagePolicy": "File",
                    "io.kubernetes.pod.terminationGracePeriod": "30",
                    "reclaimd.io/last-state": _STATE + container_id + '"}',
                },
                created_at=died_at - 2 * _SECOND_NS,
                started_at=died_at - _SECOND_NS,
                state=cri_pb2.CONTAINER_EXITED,
                finished_at=died_at,
                exit_code=1,
                reason="Error",
            )
        runtime._containers.update(made)
        runtime._sandbox_of.update(dict.fromkeys(made, sandbox_id))
        runtime._layers.update(dict.fromkeys(made, ()))
    return list(made)
