"""What the kubelet makes of a pod and its containers in the pod's directory."""

from __future__ import annotations

import glob
import os
import uuid


def begin_container(pod_directory: str, name: str) -> str:
    """What the kubelet makes right before it creates a container, if the pod's directory is there:
    the container's own, and in it a file for this attempt
    (`pkg/kubelet/kuberuntime/kuberuntime_container.go`, makeMounts). Returns the directory."""
    directory = os.path.join(pod_directory, "containers", name)
    if os.path.isdir(pod_directory):
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, uuid.uuid4().hex[:8]), "xb"):
            pass
    return directory


def age_directories(pod_directory: str, at: float) -> None:
    """The directories of this pod and its containers were last changed at `at` (wall seconds)."""
    for path in (*glob.glob(os.path.join(pod_directory, "containers", "*")), pod_directory):
        os.utime(path, (at, at))
