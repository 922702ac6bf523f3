"""For each resource of the fault matrix, what makes it fail."""

from __future__ import annotations

from tests.faults.matrix.injectors.endpoints import ControlSocket, MetricsPort
from tests.faults.matrix.injectors.filesystems import (
    HistoryFile,
    KubeletDirectories,
    PauseFile,
    StateFile,
    Statvfs,
)
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.injectors.process import Descriptors, LogFile, MessageMemory, Threads
from tests.faults.matrix.injectors.runtime import (
    KubeletAPI,
    KubeletSocket,
    ListContainerStats,
    Method,
    RuntimeSocket,
    SandboxMethod,
    StopContainer,
)
from tests.faults.matrix.table import RESOURCES

INJECTORS: dict[str, type[Injector]] = {
    **{name: Method for name in RESOURCES if name[0].isupper()},
    **dict.fromkeys(("PodSandboxStatus", "StopPodSandbox", "RemovePodSandbox"), SandboxMethod),
    "StopContainer": StopContainer,
    "ListContainerStats": ListContainerStats,
    "thread-start": Threads,
    "descriptor": Descriptors,
    "message-memory": MessageMemory,
    "statvfs": Statvfs,
    "runtime-socket": RuntimeSocket,
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
