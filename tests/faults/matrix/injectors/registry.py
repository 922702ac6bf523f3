"""The injector of each resource."""

from __future__ import annotations

from tests.faults.matrix.injectors.cri import ListContainerStats, Method, RuntimeSocket, StopContainer
from tests.faults.matrix.injectors.endpoints import ControlSocket, MetricsPort
from tests.faults.matrix.injectors.filesystems import KubeletDirectories, StateFile, Statvfs
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.injectors.kubelet_api import KubeletAPI
from tests.faults.matrix.injectors.log import LogFile
from tests.faults.matrix.injectors.process import Descriptors, MessageMemory, Threads

METHODS = (
    "Version",
    "Status",
    "ListContainers",
    "ListPodSandbox",
    "ContainerStatus",
    "PodSandboxStatus",
    "ListImages",
    "ImageStatus",
    "ImageFsInfo",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
    "RemoveImage",
)
"""The methods of the runtime that every node asks."""

INJECTORS: dict[str, type[Injector]] = {
    "thread-start": Threads,
    "descriptor": Descriptors,
    "message-memory": MessageMemory,
    "statvfs": Statvfs,
    "runtime-socket": RuntimeSocket,
    **dict.fromkeys(METHODS, Method),
    "StopContainer": StopContainer,
    "ListContainerStats": ListContainerStats,
    "log": LogFile,
    "state-file": StateFile,
    "control-socket": ControlSocket,
    "metrics-port": MetricsPort,
    "kubelet-directories": KubeletDirectories,
    "kubelet-api": KubeletAPI,
}
