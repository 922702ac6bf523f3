"""The XFS helper of an embedded node: the program itself, as a process that serves the node's filesystems."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from eviction.drill.runtime.private_mounts import EmbeddedNodeError

START_SECONDS = 10.0


class NodeXfsHelper:
    """Runs from its making to `close`, with a socket at `path` for these mount points. Raises EmbeddedNodeError if it
    does not start."""

    def __init__(self, path: str, mount_points: Sequence[str]):
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "reclaim.xfs.helper", f"--socket={path}", *mount_points],
            stdin=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while not os.path.exists(path):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise EmbeddedNodeError("the XFS helper of the node did not start")
            time.sleep(0.005)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
