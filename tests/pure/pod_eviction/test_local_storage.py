"""Limits of its own for which the kubelet evicts a pod, whatever the signal.

Source: kubelet, `pkg/kubelet/eviction/eviction_manager.go` (localStorageEviction) at tag v1.36.0.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from eviction.pod_eviction import ContainerUsage, EvictablePod, FsUsage, PodUsage, exceeded_limit
from signals.types import FsLayout

LIMITED = EvictablePod(
    uid="uid-1",
    namespace="default",
    name="web",
    limit=Fraction(100),
    container_limits={"app": Fraction(50)},
    volume_limits={"scratch": Fraction(10)},
)


def using(volume: int = 0, total: int = 0, layer: int = 0, logs: int = 0) -> PodUsage:
    """So many bytes of each; another container without a limit uses plenty."""
    containers = (ContainerUsage("app", FsUsage(layer), FsUsage(logs)), ContainerUsage("free", FsUsage(9999)))
    return PodUsage(containers, {"scratch": FsUsage(volume), "other": FsUsage(9999)}, FsUsage(total))


@pytest.mark.parametrize(
    ("usage", "clause"),
    [
        (using(10, 100, 25, 25), None),
        (using(volume=11), "its emptyDir scratch is above its sizeLimit"),
        (using(total=101), "its ephemeral storage is above the sum of its containers' limits"),
        (using(layer=25, logs=26), "its container app is above its limit of ephemeral storage"),
        (using(11, 101, 51), "its emptyDir scratch is above its sizeLimit"),
        (None, None),
    ],
)
def test_the_first_limit_that_is_exceeded(usage: PodUsage | None, clause: str | None) -> None:
    """emptyDirLimitEviction, podEphemeralStorageLimitEviction, containerEphemeralStorageLimitEviction, in this order;
    a usage that equals its limit exceeds nothing, and without statistics nothing is checked."""
    assert exceeded_limit(LIMITED, usage, FsLayout.SINGLE) == clause


@pytest.mark.parametrize("layout", [FsLayout.DEDICATED_IMAGEFS, FsLayout.SPLIT])
def test_writable_layers_do_not_count_where_images_are_apart(layout: FsLayout) -> None:
    """containerEphemeralStorageLimitEviction: only the logs of a container, with a dedicated image filesystem."""
    assert exceeded_limit(LIMITED, using(layer=51), layout) is None
    assert exceeded_limit(LIMITED, using(logs=51), layout) is not None


def test_a_critical_pod_may_exceed_its_limits() -> None:
    """evictPod passes it over here too."""
    critical = EvictablePod(
        uid="uid-1", namespace="kube-system", name="etcd", static=True, volume_limits=LIMITED.volume_limits
    )
    assert exceeded_limit(critical, using(volume=11), FsLayout.SINGLE) is None
