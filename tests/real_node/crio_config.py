"""The configuration file of a test's CRI-O, which uses nothing outside the two given
directories; and a runc for it.

What some settings are for: the pause image is one that the test imports, since no registry can be
asked; `conmon_cgroup = "pod"` is what goes with cgroupfs; nothing is repaired or wiped, so that a
CRI-O that was killed finds its containers again. The runc in the configuration is a script of ours
before the machine's: it takes from each container what not every machine grants (limits of huge
pages where that control group cannot be joined, an OOM score below that of the test without
CAP_SYS_RESOURCE), for which CRI-O has no setting.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.real_node.loopfs import find_tool

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


def write_configuration(
    run_directory: Path,
    socket: Path,
    root: Path,
    images: Path | None,
    sandbox_image: str,
    program: Path,
) -> None:
    """Write `<run_directory>/crio.conf` and what it names. `images`: an image store of its own."""
    socket.parent.mkdir(parents=True)
    (run_directory / "tmp").mkdir()
    files = {
        "crio.conf": CONFIGURATION.format(
            root=root,
            images=images or "",
            run=run_directory,
            socket=socket,
            sandbox_image=sandbox_image,
            pinns=program.with_name("pinns"),
            conmon=find_tool("conmon"),
        ),
        "policy.json": json.dumps({"default": [{"type": "insecureAcceptAnything"}]}),
        "registries.conf": REGISTRIES,
        "runc": RUNC.format(python=sys.executable, runc=find_tool("runc"), run=run_directory),
        "grantable.py": GRANTABLE.format(least=int(OOM_SCORE.read_text())),
    }
    for name, text in files.items():
        (run_directory / name).write_text(text)
    (run_directory / "runc").chmod(0o755)
