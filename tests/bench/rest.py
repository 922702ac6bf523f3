"""What the daemon's loop costs while nothing happens: two filesystems, far from their marks and close to them."""

from __future__ import annotations

import io
import tempfile
import threading
import time
from pathlib import Path

from eviction.configuration import load
from eviction.log import Log
from eviction.manager import Manager
from eviction.node import Node
from signals.filesystems import FilesystemPaths
from signals.statvfs import read_statvfs
from tests.bench.measure import Row
from tests.sockets.mounts import mounted_tmpfs, unmount

MIB = 1 << 20
GIB = 1 << 30
RUNS = 3
WATCHED_SECONDS = 6.0
HEADROOMS = ((10 * GIB, "far from their marks"), (30 * MIB, "30 MiB above"), (MIB, "1 MiB above"))


def at_rest() -> list[Row]:
    """Processor time of the loop and its probes, in percent of a core; the runtime is not asked meanwhile."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        nodefs, imagefs = Path(directory, "nodefs"), Path(directory, "imagefs")
        mounted = [str(path) for path in (nodefs, imagefs)]
        for mountpoint in mounted:
            mounted_tmpfs(mountpoint, 20 * GIB, 10_000_000)
        try:
            return [
                Row(
                    f"at rest, two filesystems {what}",
                    "% of a core",
                    [_loop(nodefs, imagefs, size) for _ in range(RUNS)],
                )
                for size, what in HEADROOMS
            ]
        finally:
            for mountpoint in mounted:
                unmount(mountpoint)


def _loop(nodefs: Path, imagefs: Path, headroom_bytes: int) -> float:
    marks = {
        f"{role}.available": str(read_statvfs(str(path), 0.0).stats.available_bytes - headroom_bytes)
        for role, path in (("nodefs", nodefs), ("imagefs", imagefs))
    }
    fields = {
        "rootDirectory": str(nodefs),
        "containerRuntimeEndpoint": f"unix://{nodefs}/none.sock",
        "kubeletConfig": "",
        "evictionHard": {"nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%", **marks},
    }
    node = Node(load(None, {}, fields))
    node.summary.locate(FilesystemPaths(str(nodefs), str(imagefs), str(imagefs)))
    manager = Manager(node, Log(time.time, stream=io.StringIO()))
    loop = threading.Thread(target=manager.run)
    loop.start()
    try:
        time.sleep(1.0)  # its only question to the runtime is over
        began, spent = time.monotonic(), time.process_time()
        time.sleep(WATCHED_SECONDS)
        return 100 * (time.process_time() - spent) / (time.monotonic() - began)
    finally:
        manager.stop()
        loop.join()
        node.close()
