"""What of a configuration that was read again needs a restart of the daemon: what is used once, at the start."""

from __future__ import annotations

from dataclasses import replace

from eviction.configuration.effective import Configuration

# Attribute of the configuration -> field of the file.
NEEDS_RESTART = {
    "root_directory": "rootDirectory",
    "lock_directory": "lockDirectory",
    "runtime_endpoint": "containerRuntimeEndpoint",
    "image_endpoint": "imageServiceEndpoint",
    "control_socket": "controlSocket",
    "hold_off_seconds": "holdOffAfterStart",
    "kubelet_healthz": "kubeletHealthzEndpoint",
    "metrics_address": "metricsAddress",
    "kubernetes_events": "kubernetesEvents",
    "kubeconfig": "kubeconfig",
    "node_name": "nodeName",
    "pod_logs_dir": "podLogsDir",
    "container_logs_dir": "containerLogsDir",
    "state_file": "stateFile",
    "history_file": "historyFile",
    "history_size_bytes": "historySize",
    "kubelet_endpoint": "kubeletEndpoint",
    "kubelet_place": "kubeletEndpoint",
    "terminated_by_evidence": "terminatedPods",
    "terminated_pod_age_seconds": "terminatedPodAge",
    "periodic_gc": "periodicGC",
    "filesystems": "filesystems",
    "functions": "reclaimFunctions",
}


def needing_restart(running: Configuration, read: Configuration) -> tuple[str, ...]:
    """The fields of the file that differ and only a restart can change."""
    changed = (
        name for attribute, name in NEEDS_RESTART.items() if getattr(running, attribute) != getattr(read, attribute)
    )
    return tuple(dict.fromkeys(changed))


def until_restart(running: Configuration, read: Configuration) -> Configuration:
    """The configuration that was read, with those fields as they are."""
    return replace(read, **{attribute: getattr(running, attribute) for attribute in NEEDS_RESTART})
