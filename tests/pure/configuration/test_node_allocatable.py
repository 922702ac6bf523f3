"""The thresholds that follow from `enforceNodeAllocatable`.

Rules: kubelet, `pkg/kubelet/eviction/helpers.go` (addAllocatableThresholds).
"""

from __future__ import annotations

from typing import Any

import pytest

from eviction.configuration.kubelet import kubelet_configuration


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, ["memory.available 100Mi", "allocatableMemory.available 100Mi"]),
        ({"enforceNodeAllocatable": ["none"]}, ["memory.available 100Mi"]),
        ({"evictionHard": {"memory.available": "0%"}}, []),
        (
            {
                "evictionHard": {"memory.available": "5%", "pid.available": "100"},
                "evictionSoft": {"memory.available": "10%"},
                "evictionSoftGracePeriod": {"memory.available": "1m"},
            },
            [
                "memory.available 5%",
                "pid.available 100",
                "memory.available 10% (soft)",
                "allocatableMemory.available 5%",
            ],
        ),
        (
            {
                "evictionHard": {},
                "evictionSoft": {"memory.available": "10%"},
                "evictionSoftGracePeriod": {"memory.available": "0s"},
            },
            ["memory.available 10%", "allocatableMemory.available 10%"],
        ),
    ],
)
def test_hard_memory_thresholds_are_copied_for_node_allocatable(
    fields: dict[str, Any], left: list[str]
) -> None:
    """Soft ones, disk and PID are not; all of them are left to the kubelet."""
    found = kubelet_configuration(fields, "k.yaml").thresholds.left_to_kubelet
    assert [f"{name} {text}" for name, text in found] == left
