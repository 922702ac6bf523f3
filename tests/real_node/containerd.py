"""A containerd for one test: it and its ctr and shim are the first of their names on the search
path (`loopfs.search_path`).

What each setting is for: `sandbox_image` is an image that the test imports, since no registry can
be asked; `restrict_oom_score_adj` because without CAP_SYS_RESOURCE no container starts otherwise;
`disable_hugetlb_controller` because not every machine has that control group; `Root` keeps runc's
state beside containerd's; `config_path` is where a test says how a registry of its own is reached.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.real_node.loopfs import find_tool, run_tool
from tests.real_node.oci import ImageTar
from tests.real_node.runtime import ContainerRuntime, processes_with, read_text

NAMESPACE = "k8s.io"
# Without plug-ins that probe devices or write outside the given directories; none is needed
# for runc pods on overlayfs.
CONFIGURATION = """\
version = 2
root = "{root}"
state = "{run}/state"
temp = "{run}/tmp"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{run}/c.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{run}/cni"
    conf_dir = "{run}/cni"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{run}/hosts"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{run}/runc"
"""
HOSTS = """\
server = "http://{registry}"
[host."http://{registry}"]
  capabilities = ["pull", "resolve"]
"""


class Containerd(ContainerRuntime):
    """Data goes to `root`; state, temporary mounts, sockets and runc's state to the directory of
    its own."""

    name = "containerd"

    def __init__(self, root: Path) -> None:
        super().__init__(root, "c.sock")
        self._shim_sockets: set[Path] = set()

    def ctr(self, *arguments: str | Path, namespace: str = NAMESPACE, given: bytes = b"") -> str:
        """What containerd's own client prints."""
        words = ("--address", self.socket, "--namespace", namespace)
        return run_tool("ctr", *words, *arguments, given=given)

    def age_stamp(self, image_id: str) -> Path:
        """The file of containerd's content store that an image id names: the
        image's configuration.
        """
        blobs = self.root / "io.containerd.content.v1.content" / "blobs" / "sha256"
        return blobs / image_id.removeprefix("sha256:")

    def monitors(self) -> list[int]:
        """Its shims."""
        return processes_with("-address", self.socket)

    def shim_sockets(self) -> set[Path]:
        """The sockets of this instance's shims, as their bundles name them.

        containerd keeps them in one directory of the machine (/run/containerd/s), by a hash of
        socket and pod. 1.x writes the address of a shim to the file `address`, 2.x into
        `bootstrap.json`.
        """
        bundles = (self.run_directory / "state").glob("io.containerd.runtime.v2.task/*/*")
        texts = (
            read_text(bundle / name) for bundle in bundles for name in ("address", "bootstrap.json")
        )
        return {Path(at) for text in texts for at in re.findall(r'unix://(/[^"\s]+)', text)}

    def speaks_plainly_to(self, registry: str) -> None:
        """By a file of its own for this registry, which is read at each pull."""
        hosts = self.run_directory / "hosts" / registry
        hosts.mkdir(parents=True)
        (hosts / "hosts.toml").write_text(HOSTS.format(registry=registry))

    def stop(self) -> None:
        """Also the sockets of the shims, which are outside."""
        self._shim_sockets |= self.shim_sockets()
        super().stop()
        for path in self._shim_sockets:
            path.unlink(missing_ok=True)

    def _configure(self) -> None:
        for name in ("state", "tmp", "runc", "cni"):
            (self.run_directory / name).mkdir()
        text = CONFIGURATION.format(
            root=self.root,
            run=self.run_directory,
            sandbox_image=self.sandbox_image,
            runc=find_tool("runc"),
        )
        (self.run_directory / "config.toml").write_text(text)

    def _command(self) -> list[str]:
        program = find_tool("containerd") or "containerd"
        return [program, "--config", str(self.run_directory / "config.toml")]

    def _bring_in(self, tars: Sequence[ImageTar]) -> None:
        """By one import; CRI learns of them by event."""
        self.ctr("images", "import", tars[0].path)
