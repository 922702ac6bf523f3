"""The daemon within the limits of its unit, on a real containerd.

What can be set up of `config/systemd/reclaimd.service` without systemd: no capability, none to be
gained, a user namespace with root alone, a mount namespace in which everything is read-only but
what the unit names, and a network without an interface. Not here: the system call filter, the
device policy and the memory limits, which only systemd sets up.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from pathlib import Path

import pytest

from tests.nodes.crowded_node import CrowdedNode
from tests.real_node.fill import fill_bytes
from tests.real_node.test_relief import (
    MIB,
    SETTLED_SECONDS,
    assert_protected_objects_kept,
    configure,
    relieved_for_good,
)
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here

NEEDED = ("unshare", "setpriv", "mount")
LIMITS = """
for writable in "$1" "$2" "$3"; do mount --bind "$writable" "$writable"; done
mount --bind /proc/sys /proc/sys
awk '{ print $5 }' /proc/self/mountinfo | while read -r target; do
    case "$target" in
        "$1" | "$2" | "$3" | /proc) ;;
        *) mount -o remount,bind,ro "$target" ;;
    esac
done
shift 3
exec unshare --user --map-root-user setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


def limits(logs: Path, state: Path, run: Path) -> list[str]:
    """The command that starts a program within the limits; it may write only
    to these three directories.
    """
    script = ["sh", "-ec", LIMITS, "limits", str(logs), str(state), str(run)]
    return ["unshare", "--mount", "--net", *script]


def assert_limited(process: int, disk: Path) -> None:
    """By /proc: no capability, no new privileges, the disk read-only, no network but loopback."""
    proc = Path(f"/proc/{process}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    capabilities = {
        name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    }
    assert set(capabilities.values()) == {"0" * 16}, capabilities
    assert (status["NoNewPrivs"], status["Uid"].split()[0]) == ("1", "0")
    assert [
        line.split(":")[0].strip() for line in (proc / "net/dev").read_text().splitlines()[2:]
    ] == ["lo"]
    options = {
        fields[4]: fields[5]
        for fields in map(str.split, (proc / "mountinfo").read_text().splitlines())
    }
    assert options["/"].startswith("ro,")
    assert options[str(disk)].startswith("ro,")


def test_the_daemon_relieves_a_real_containerd_within_the_limits_of_its_unit(
    crowded_node: CrowdedNode, tmp_path: Path
) -> None:
    """Images, dead containers and a deleted pod's log are removed, records saved, and
    the control socket answers.
    """
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', no '.join(missing)} (Debian packages util-linux, mount)")
    node = crowded_node.node
    logs, state, run = node.kubelet.pod_logs_dir, tmp_path / "state", tmp_path / "run"
    for directory in (state, run):
        directory.mkdir(mode=0o700)
    deleted_log = logs / f"default_vanished_{uuid.uuid4()}"
    (deleted_log / "app").mkdir(parents=True)
    (deleted_log / "app" / "0.log").write_text("gone\n")
    time.sleep(SETTLED_SECONDS)  # the log is the youngest object
    mark = node.filesystem.available_bytes() - 25 * MIB
    configuration = configure(
        tmp_path,
        node,
        podLogsDir=str(logs),
        stateFile=str(state / "images.json"),
        controlSocket=str(run / "control.sock"),
        lockDirectory=str(run / "lock"),
        evictionHard={"imagefs.available": str(mark)},
        extent="all",  # in a hurry sandboxes and logs, which free next to nothing, would wait
    )
    with Daemon("--config", configuration, before=limits(logs, state, run)) as daemon:
        assert_limited(daemon.process.pid, node.mountpoint)
        fill = fill_bytes(
            node.mountpoint / "fill", MIB, rate_bytes_per_second=40 * MIB, most_bytes=62 * MIB
        )
        assert fill.wait(60.0) >= 62 * MIB
        assert came_true(lambda: relieved_for_good(daemon, crowded_node, mark)), "it is relieved"
        assert node.filesystem.available_bytes() >= mark
        status = answer(reclaimd_here("status", "--config", configuration, "-o", "json"))
        assert status["passes"][-1]["result"] == "satisfied"
        assert daemon.stop() == 0
        assert not daemon.logged("the node is not locked")
        outcomes = [outcome for record in daemon.passes for outcome in record["removals"]]
    assert [outcome for outcome in outcomes if outcome["result"] != "removed"] == []
    assert {outcome["kind"] for outcome in outcomes} == {"image", "container", "sandbox", "pod_log"}
    assert not deleted_log.exists()
    assert json.loads((state / "images.json").read_text())
    assert_protected_objects_kept(crowded_node)
