"""A drill whose filesystems are of another type, on loop devices: `python -m
tests.drill.loop_drill FILE TYPE`.

Prints the report. The file of a filesystem is unlinked as soon as it is mounted, and the loop
device detaches itself when it is unmounted.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from eviction.drill.private_mounts import (
    EmbeddedNodeError,
    enter_private_mounts,
    unmount,
)
from eviction.drill.scenario import FilesystemSpec, Scenario, read_scenario
from eviction.records.json_shapes import to_json
from eviction.wording.log import Log
from signals.filesystems import read_statvfs
from signals.quantity import format_bytes
from tests.real_node.loopfs import MAKE, ToolError, run_tool
from tests.reclaimd_process import ENVIRONMENT
from tests.repository import ROOT

# No discard: the file is still empty. mixed: as btrfs(5) recommends for small devices.
MORE: dict[str, Sequence[str]] = {
    "ext4": ("-E", "nodiscard"),
    "xfs": ("-K",),
    "btrfs": ("-K", "--mixed"),
}
# btrfs shows what was written or freed only when it commits: every 30 s,
# unless something calls sync.
OPTIONS: dict[str, Sequence[str]] = {"btrfs": ("commit=1", "flushoncommit")}


def mount_loop(path: str, fstype: str, size_bytes: int, inodes: int) -> None:
    """Mounts an empty filesystem over the directory `path`. Call
    `enter_private_mounts` as root first.

    Its capacity by statvfs is `size_bytes` or a little more: the device is larger by what the
    type keeps for itself, such as the log of XFS. `inodes` matters only to ext4; XFS and btrfs
    make inodes as needed. Its file is beside `path` until it is mounted. Raises
    EmbeddedNodeError if mkfs is not installed or there is no loop device.
    """
    device_bytes = size_bytes
    for _ in range(3):
        _mount_file(path, fstype, device_bytes, inodes)
        missing = size_bytes - read_statvfs(path, 0.0).stats.capacity_bytes
        if missing <= 0:
            return
        unmount(path)
        device_bytes += missing + (1 << 20)
    raise EmbeddedNodeError(f"no {fstype} of {format_bytes(size_bytes)} could be made")


def _mount_file(path: str, fstype: str, device_bytes: int, inodes: int) -> None:
    image = f"{path}.{fstype}"
    try:
        with open(image, "xb") as file:
            file.truncate(device_bytes)
        numbered = ("-N", str(inodes)) if fstype == "ext4" else ()
        run_tool(*MAKE[fstype], *MORE[fstype], *numbered, image)
        options = ",".join(("loop,nosuid,nodev", *OPTIONS.get(fstype, ())))
        run_tool("mount", "-t", fstype, "-o", options, image, path)
    except (OSError, ToolError) as error:
        raise EmbeddedNodeError(
            f"the file of a filesystem of type {fstype} cannot be made: {error}"
        ) from error
    finally:
        if os.path.exists(image):
            os.unlink(image)


def loop_drill(file: str, fstype: str) -> Any:
    """The report of a drill, run in a process of its own."""
    command = [sys.executable, "-m", "tests.drill.loop_drill", file, fstype]
    done = subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main(file: str, fstype: str) -> None:
    """Enters the mount namespace before anything starts a thread."""
    mounted = enter_private_mounts()
    from eviction.drill.embedded import Drill
    from eviction.drill.embedded_node import EmbeddedNode
    from eviction.drill.report.document import report_of

    class LoopNode(EmbeddedNode):
        """The node of a scenario on loop devices."""

        def __init__(self, scenario: Scenario, mounted: str) -> None:
            super().__init__(scenario, mounted)
            self.kind = f"{fstype} on loop devices"

        def _mount(self, disk: str, spec: FilesystemSpec) -> None:
            mount_loop(disk, fstype, spec.size_bytes, spec.inodes)

    with LoopNode(read_scenario(file), mounted) as node:
        result = Drill(node, Log(time.time, stream=io.StringIO())).run()
    print(json.dumps(to_json(report_of(result))))


if __name__ == "__main__":
    main(*sys.argv[1:])
