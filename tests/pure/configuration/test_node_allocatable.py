"""The kubelet's validation of `enforceNodeAllocatable`, and the thresholds that follow from it.

Rules: kubelet, `pkg/kubelet/apis/config/validation/validation.go` and `pkg/kubelet/eviction/helpers.go`
(addAllocatableThresholds).
"""

from __future__ import annotations

from typing import Any

import pytest

from eviction.configuration.kubelet import kubelet_configuration
from eviction.configuration.strict_yaml import ConfigurationError


def refusal(**fields: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        kubelet_configuration(fields, "k.yaml")
    return str(refused.value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"enforceNodeAllocatable": ["pod"]}, "enforceNodeAllocatable: unknown entry 'pod'; allowed are none, pods, "),
        ({"enforceNodeAllocatable": ["pods", "pods"]}, "enforceNodeAllocatable: 'pods' is listed twice"),
        ({"enforceNodeAllocatable": ["none", "pods"]}, "enforceNodeAllocatable: 'none' must stand alone"),
        ({"enforceNodeAllocatable": ["system-reserved"]}, "'system-reserved' needs systemReservedCgroup"),
        ({"enforceNodeAllocatable": ["kube-reserved"]}, "'kube-reserved' needs kubeReservedCgroup"),
        ({"enforceNodeAllocatable": ["kube-reserved-compressible"]}, "'kube-reserved-compressible' needs kubeReserved"),
        (
            {
                "enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"],
                "kubeReservedCgroup": "/kube",
            },
            "'kube-reserved' and 'kube-reserved-compressible' must not stand together",
        ),
        (
            {
                "enforceNodeAllocatable": ["system-reserved-compressible", "system-reserved"],
                "systemReservedCgroup": "/system.slice",
            },
            "'system-reserved' and 'system-reserved-compressible' must not stand together",
        ),
        (
            {"enforceNodeAllocatable": ["system-reserved-compressible"]},
            "'system-reserved-compressible' needs systemRes",
        ),
        ({"imageMaximumGCAge": "-1s", "featureGates": {"ImageMaximumGCAge": False}}, "must be 0 while the feature"),
        ({"cgroupsPerQOS": False}, "enforceNodeAllocatable: needs cgroupsPerQOS"),
        (
            {"imageMaximumGCAge": "1h", "featureGates": {"ImageMaximumGCAge": False}},
            "imageMaximumGCAge: must be 0 while the feature gate ImageMaximumGCAge is off",
        ),
    ],
)
def test_what_the_kubelet_refuses_is_refused(fields: dict[str, Any], problem: str) -> None:
    """In the sentence that names the file and the field."""
    sentence = refusal(**fields)
    assert sentence.startswith("k.yaml: ")
    assert problem in sentence


def test_all_problems_are_reported_together() -> None:
    """As the kubelet collects them."""
    sentence = refusal(enforceNodeAllocatable=["none", "pods", "x"], imageGCLowThresholdPercent=90)
    assert sentence.count(";") >= 3
    assert "imageGCLowThresholdPercent" in sentence
    assert "'none' must stand alone" in sentence


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"enforceNodeAllocatable": []},
        {"enforceNodeAllocatable": ["none"], "cgroupsPerQOS": False},
        {"enforceNodeAllocatable": [], "cgroupsPerQOS": False},
        {"enforceNodeAllocatable": ["pods", "system-reserved"], "systemReservedCgroup": "/system.slice"},
        {"imageMaximumGCAge": "1h"},
        {"featureGates": {"ImageMaximumGCAge": False}},
    ],
)
def test_what_the_kubelet_accepts_is_accepted(fields: dict[str, Any]) -> None:
    """Also an empty list, and `none` without cgroups."""
    assert kubelet_configuration(fields, "k.yaml").name == "k.yaml"


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
def test_hard_memory_thresholds_are_copied_for_node_allocatable(fields: dict[str, Any], left: list[str]) -> None:
    """Soft ones, disk and PID are not; all of them are left to the kubelet."""
    found = kubelet_configuration(fields, "k.yaml").thresholds.left_to_kubelet
    assert [f"{name} {text}" for name, text in found] == left
