"""A CRI-O for one test, which uses nothing outside the two given directories; and a runc for it.

What some settings are for: the pause image is one that the test imports, since no registry can be
asked; `conmon_cgroup = "pod"` is what goes with cgroupfs; nothing is repaired or wiped, so that a
CRI-O that was killed finds its containers again. The runc in the configuration is a script of ours
before the machine's: it takes from each container what not every machine grants (limits of huge
pages where that control group cannot be joined, an OOM score below that of the test without
CAP_SYS_RESOURCE), for which CRI-O has no setting.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.real_node.loopfs import find_tool, run_tool
from tests.real_node.oci import ImageTar
from tests.real_node.runtime import ContainerRuntime, processes_with

SIDE_BY_SIDE = 4  # imports; one takes 0.4 s, of which it waits half
OOM_SCORE = Path("/proc/self/oom_score_adj")

CONFIGURATION = """\
[crio]
root = "{root}"
imagestore = "{images}"
runroot = "{run}/containers"
storage_driver = "overlay"
log_dir = "{run}/pods"
version_file = "{run}/version"
version_file_persist = "{run}/version-persist"
clean_shutdown_file = "{run}/clean"
internal_wipe = false
internal_repair = false

[crio.api]
listen = "{socket}"
stream_port = "0"

[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
container_exits_dir = "{run}/exits"
container_attach_socket_dir = "{run}/attach"
namespaces_dir = "{run}/namespaces"
pinns_path = "{pinns}"
hooks_dir = []
cdi_spec_dirs = []
irqbalance_config_restore_file = "disable"
apparmor_profile = "unconfined"

[crio.runtime.runtimes.runc]
runtime_path = "{run}/runc"
runtime_type = "oci"
runtime_root = "{run}/runc-state"
monitor_path = "{conmon}"
monitor_cgroup = "pod"

[crio.image]
pause_image = "{sandbox_image}"
signature_policy = "{run}/policy.json"
signature_policy_dir = "{run}/policies"
big_files_temporary_dir = "{run}/tmp"

[crio.network]
network_dir = "{run}/cni"
plugin_dirs = ["{run}/cni"]

[crio.nri]
enable_nri = false
"""

REGISTRIES = """\
unqualified-search-registries = []
[[registry]]
prefix = "reclaimd.test"
location = "reclaimd.test"
blocked = true
[[registry]]
location = "127.0.0.1"
insecure = true
"""

RUNC = """\
#!/bin/sh
case " $* " in *" create "*) {python} -I -S {run}/grantable.py "$@" || exit ;; esac
exec {runc} "$@"
"""

GRANTABLE = """\
import json, sys

file = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
with open(file) as text:
    config = json.load(text)
config["linux"].get("resources", {{}}).pop("hugepageLimits", None)
process = config["process"]
process["oomScoreAdj"] = max(process.get("oomScoreAdj", {least}), {least})
with open(file, "w") as text:
    json.dump(config, text)
"""

POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


def crio_program() -> Path | None:
    """The CRI-O that the environment names by `CRIO`."""
    named = os.environ.get("CRIO")
    return Path(named).resolve() if named else None


def crio_tools() -> tuple[str, ...]:
    """The programs that it consists of; none if none is named."""
    if (program := crio_program()) is None:
        return ()
    return (str(program), str(program.with_name("pinns")), "conmon", "skopeo")


class Crio(ContainerRuntime):
    """`program`: CRI-O, with pinns beside it.

    `images`: an image store of its own, on another filesystem.
    """

    name = "crio"

    def __init__(self, root: Path, program: Path, images: Path | None = None) -> None:
        # a kubelet takes a runtime for a CRI-O only if the path of its socket ends like this
        super().__init__(root, "run/crio/crio.sock")
        self.images = images
        self._crio = program
        self.store = f"[overlay@{images or root}+{self.run_directory}/containers]"
        """How skopeo names its storage."""

    def age_stamp(self, image_id: str) -> Path:
        """The directory of the image's manifest and configuration."""
        return (self.images or self.root) / "overlay-images" / image_id

    def speaks_plainly_to(self, registry: str) -> None:
        """Its configuration says so of the whole loopback."""

    def monitors(self) -> list[int]:
        """Its conmons, one for each container."""
        return processes_with("-r", self.run_directory / "runc")

    def _configure(self) -> None:
        run = self.run_directory
        self.socket.parent.mkdir(parents=True)
        (run / "tmp").mkdir()
        files = {
            "crio.conf": CONFIGURATION.format(
                root=self.root,
                images=self.images or "",
                run=run,
                socket=self.socket,
                sandbox_image=self.sandbox_image,
                pinns=self._crio.with_name("pinns"),
                conmon=find_tool("conmon"),
            ),
            "policy.json": POLICY,
            "registries.conf": REGISTRIES,
            "runc": RUNC.format(python=sys.executable, runc=find_tool("runc"), run=run),
            "grantable.py": GRANTABLE.format(least=int(OOM_SCORE.read_text())),
        }
        for name, text in files.items():
            (run / name).write_text(text)
        (run / "runc").chmod(0o755)

    def _command(self) -> list[str]:
        run = self.run_directory
        return [
            str(self._crio), "--config", str(run / "crio.conf"), "--config-dir", "",
            "--registries-conf", str(run / "registries.conf"), "--registries-conf-dir", str(run / "registries"),
        ]  # fmt: skip

    def _bring_in(self, tars: Sequence[ImageTar]) -> None:
        """By one skopeo for each image, several at a time; CRI-O sees what is in its storage."""
        path = tars[0].path
        with (
            tempfile.TemporaryDirectory(dir=self.run_directory) as layout,
            ThreadPoolExecutor(SIDE_BY_SIDE) as pool,
        ):
            with tarfile.open(path) as archive:
                of_docker = "manifest.json" in archive.getnames()
                if not of_docker:
                    archive.extractall(layout, filter="data")  # once, not by each skopeo
            source = f"docker-archive:{path}" if of_docker else f"oci:{layout}"
            for each in [pool.submit(self._copy, source, tar.reference) for tar in tars]:
                each.result()

    def _copy(self, source: str, reference: str) -> None:
        run_tool(
            "env",
            # skopeo keeps a cache of what it has seen in /var/lib/containers unless it
            # takes itself for rootless
            f"_CONTAINERS_ROOTLESS_UID={os.getuid() + 1}",
            f"XDG_DATA_HOME={self.run_directory}",
            "skopeo", "--policy", self.run_directory / "policy.json", "--tmpdir", self.run_directory / "tmp",
            "copy", "--quiet", f"{source}:{reference}", f"containers-storage:{self.store}{reference}",
        )  # fmt: skip
