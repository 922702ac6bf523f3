"""The configuration file (version 2) of a test's containerd, which uses nothing outside
the two given directories.

What each setting is for: `sandbox_image` is an image that the test imports, since no registry can
be asked; `restrict_oom_score_adj` because without CAP_SYS_RESOURCE no container starts otherwise;
`disable_hugetlb_controller` because not every machine has that control group; `Root` keeps runc's
state beside containerd's; `config_path` is where a test says how a registry of its own is reached.
"""

from __future__ import annotations

from pathlib import Path

from tests.real_node.loopfs import find_tool

# Plug-ins that probe devices or write outside the given directories; none is needed
# for runc pods on overlayfs.
DISABLED_PLUGINS = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.restart",
    "io.containerd.internal.v1.tracing",
    "io.containerd.nri.v1.nri",
    "io.containerd.tracing.processor.v1.otlp",
)

CONFIGURATION = """\
version = 2
root = "{root}"
state = "{run}/state"
temp = "{run}/tmp"
disabled_plugins = [{disabled}]

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


def write_configuration(run_directory: Path, root: Path, sandbox_image: str) -> None:
    """Write `<run_directory>/config.toml` and make the directories that it names.

    Data goes to `root`; state, temporary mounts, sockets and runc's state to `run_directory`.
    """
    for name in ("state", "tmp", "runc", "cni"):
        (run_directory / name).mkdir()
    text = CONFIGURATION.format(
        root=root,
        run=run_directory,
        sandbox_image=sandbox_image,
        runc=find_tool("runc"),
        disabled=", ".join(f'"{plugin}"' for plugin in DISABLED_PLUGINS),
    )
    (run_directory / "config.toml").write_text(text)
