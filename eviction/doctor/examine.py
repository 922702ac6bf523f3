"""Runs all checks over the facts of a node.

Covers: which checks there are, and the order of their findings. Does not cover: gathering the facts (`facts`).
"""

from __future__ import annotations

from eviction.doctor import disk_checks, node_checks, table_checks
from eviction.doctor.findings import Check, Finding, NodeFacts, Severity

CHECKS: tuple[Check, ...] = (
    disk_checks.check_pressure,
    disk_checks.check_readings,
    node_checks.check_runtime,
    node_checks.check_socket,
    node_checks.check_permissions,
    node_checks.check_pod_directories,
    node_checks.check_log_directories,
    node_checks.check_kubelet_list,
    disk_checks.check_thresholds,
    disk_checks.check_kubelets_marks,
    table_checks.check_functions,
    table_checks.check_rows,
    node_checks.check_sandbox_image,
    node_checks.check_unresolved_images,
    node_checks.check_containerd_frees_late,
    disk_checks.check_store,
    node_checks.check_keeps,
    node_checks.check_clock,
    disk_checks.check_separate_disk_gc,
    disk_checks.check_image_gc_off,
    disk_checks.check_inodes,
    disk_checks.check_reserve,
    disk_checks.check_xfs,
    disk_checks.check_filesystem_numbers,
    node_checks.check_inotify,
    node_checks.check_history,
    node_checks.check_daemon,
)


def examine(facts: NodeFacts) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.level)))


def healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether there is nothing to do: a note needs no action."""
    return all(finding.level is Severity.NOTE for finding in findings)
