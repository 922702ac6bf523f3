"""A kubelet for one test: its directories, its configuration, its credentials
and what it leaves behind.

It authenticates clients by certificate and by token of the API server, and asks the API server
whether they may: as on a node that kubeadm made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.kubelet.api import write_kubeconfig
from tests.kubelet.control_plane import ControlPlane, Server, program
from tests.ports import free_port
from tests.real_node.loopfs import mounts_below, run_tool, search_path, unmount
from tests.real_node.runtime import ContainerRuntime

# of the youngest image that may go; the kubelet counts from when it first saw one
IMAGE_AGE_SECONDS = 1
NODE = "127.0.0.1"  # the node's name is its address, so that the API server finds it without DNS
# the one place that no setting of the kubelet moves
CONTAINER_LOG_LINKS = Path("/var/log/containers")
# what a kubelet writes at its start: setupKernelTunables in its cm/container_manager_linux.go
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
CONFIGURATION = """\
address: 127.0.0.1
port: {port}
healthzBindAddress: 127.0.0.1
healthzPort: {health_port}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true, cacheTTL: 1s}}
  x509: {{clientCAFile: "{authority}"}}
authorization:
  mode: Webhook
  webhook: {{cacheAuthorizedTTL: 1s, cacheUnauthorizedTTL: 1s}}
tlsCertFile: "{certificate}"
tlsPrivateKeyFile: "{key}"
containerRuntimeEndpoint: "unix://{socket}"
staticPodPath: "{static_pods}"
podLogsDir: "{pod_logs}"
volumePluginDir: "{plugins}"
resolvConf: ""
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: "{cgroup}"
cgroupsPerQOS: false
enforceNodeAllocatable: [none]  # an empty list is lost where there is a --config-dir
makeIPTablesUtilChains: false
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
imageMinimumGCAge: {age}s
evictionPressureTransitionPeriod: 10s
registerWithTaints: []
"""


@dataclass
class KubeletSettings:
    """What a test decides. `thresholds`: evictionHard; `fields`: further fields of its
    configuration; `drop_ins`: the fields of each of its drop-ins."""

    thresholds: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    drop_ins: Sequence[Mapping[str, Any]] = ()


class Kubelet:
    """A kubelet with `--root-dir` and `podLogsDir` on the disk under test; everything else in
    `directory`."""

    def __init__(
        self,
        directory: Path,
        disk: Path,
        runtime: ContainerRuntime,
        *,
        plane: ControlPlane,
        settings: KubeletSettings,
    ) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.root, self.pod_logs = disk / "kubelet", disk / "log" / "pods"
        self.static_pods = directory / "manifests"
        self.static_pods.mkdir()
        self.root.mkdir(parents=True)
        self.configuration = self.root / "config.yaml"  # where kubeadm puts it
        self.drop_ins = directory / "conf.d"
        self.drop_ins.mkdir()
        port, health_port = free_port(), free_port()
        self.endpoint = f"https://127.0.0.1:{port}"
        self._health_port = health_port
        authority = plane.authority
        certificate, key = authority.sign(f"system:node:{NODE}", "system:nodes")
        serving = authority.sign("kubelet-serving", serves=True)
        head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
        for number, fields in enumerate(settings.drop_ins):
            (self.drop_ins / f"{number}.conf").write_text(json.dumps({**head, **fields}))
        text = CONFIGURATION.format(
            port=port,
            health_port=health_port,
            authority=authority.certificate,
            certificate=serving[0],
            key=serving[1],
            socket=runtime.socket,
            static_pods=self.static_pods,
            pod_logs=self.pod_logs,
            plugins=directory / "plugins",
            cgroup=runtime.cgroup_parent,
            age=IMAGE_AGE_SECONDS,
        )
        hard = {"evictionHard": {"nodefs.inodesFree": "0%", **settings.thresholds}}
        document = {**head, **yaml.safe_load(text), **hard, **settings.fields}
        self.configuration.write_text(json.dumps(document))
        credentials = {"client-certificate": str(certificate), "client-key": str(key)}
        kubeconfig = write_kubeconfig(directory / "kubeconfig", plane.api, credentials)
        self.server = Server(
            f"{program('KUBELET')} --config {self.configuration} --config-dir {self.drop_ins}"
            f" --kubeconfig {kubeconfig} --root-dir {self.root} --cert-dir {directory}/pki"
            f" --hostname-override {NODE} --v 2",
            directory / "kubelet.log",
            PATH=search_path(),
        )
        self._shadowed: list[Path] = []

    def start(self) -> None:
        """Starts it and waits until it is healthy. NotStarted."""
        self._shadow_kernel_settings()
        self.server.start(self.is_healthy, seconds=90.0)

    def stop(self) -> None:
        """Ends it; its pods go on."""
        self.server.stop()

    def kill(self) -> None:
        """Ends it by SIGKILL, as the kernel would where memory is short; its pods go on."""
        self.server.kill()

    def close(self) -> None:
        """Ends it, and removes what it has mounted and linked.

        The pods have to be gone from the runtime.
        """
        self.stop()
        for point in (*mounts_below(self.root), *self._shadowed):
            unmount(point)
        for link in CONTAINER_LOG_LINKS.glob("*.log") if CONTAINER_LOG_LINKS.is_dir() else ():
            if link.is_symlink() and os.readlink(link).startswith(f"{self.pod_logs}/"):
                link.unlink()
        with contextlib.suppress(OSError):  # others use it too
            CONTAINER_LOG_LINKS.rmdir()
        shutil.rmtree(self.root, ignore_errors=True)

    def _shadow_kernel_settings(self) -> None:
        """Lets it write the kernel's settings, which are the machine's, into files of its own: only
        this process and its children, which have entered mounts of their own, see those."""
        for name, value in KERNEL_SETTINGS.items() if not self._shadowed else ():
            setting, own = Path("/proc/sys", name), self.directory / name.replace("/", ".")
            own.write_text(f"{value}\n")
            run_tool("mount", "--bind", own, setting)
            self._shadowed.append(setting)

    def is_healthy(self) -> bool:
        """Whether /healthz says so."""
        url = f"http://127.0.0.1:{self._health_port}/healthz"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2.0):  # ours
            return True
        return False

    def log_text(self) -> str:
        """All that it has logged."""
        return self.server.log_text()
