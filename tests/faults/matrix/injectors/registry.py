"""The injector of each resource."""

from __future__ import annotations

from tests.faults.matrix.injectors.cri import (
    ListContainerStats,
    Method,
    RuntimeSocket,
    SandboxMethod,
    StopContainer,
)
from tests.faults.matrix.injectors.endpoints import ControlSocket, MetricsPort
from tests.faults.matrix.injectors.filesystems import (
    HistoryFile,
    KubeletDirectories,
    PauseFile,
    StateFile,
    Statvfs,
)
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.injectors.kubelet_api import KubeletAPI, KubeletSocket
from tests.faults.matrix.injectors.log import LogFile
from tests.faults.matrix.injectors.process import Descriptors, MessageMemory, Threads

METHODS = (
    "Version",
    "Status",
    "ListContainers",
    "ListPodSandbox",
    "ContainerStatus",
    "ListImages",
    "ImageStatus",
    "ImageFsInfo",
    "RemoveContainer",
    "RemoveImage",
)
"""Methods of the runtime that every pass asks."""

SANDBOX_METHODS = ("PodSandboxStatus", "StopPodSandbox", "RemovePodSandbox")

INJECTORS: dict[str, type[Injector]] = {
    "thread-start": Threads,
    "descriptor": Descriptors,
    "message-memory": MessageMemory,
    "statvfs": Statvfs,
    "runtime-socket": RuntimeSocket,
    **dict.fromkeys(METHODS, Method),
    **dict.fromkeys(SANDBOX_METHODS, SandboxMethod),
    "StopContainer": StopContainer,
    "ListContainerStats": ListContainerStats,
    "log": LogFile,
    "state-file": StateFile,
    "pause-file": PauseFile,
    "history-file": HistoryFile,
    "control-socket": ControlSocket,
    "metrics-port": MetricsPort,
    "kubelet-directories": KubeletDirectories,
    "kubelet-api": KubeletAPI,
    "kubelet-socket": KubeletSocket,
}
