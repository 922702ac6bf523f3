"""Lists the containers of a runtime, and prints how many there were and by how many bytes
the process grew at most.
"""

from __future__ import annotations

import sys

from reclaim.cri.client import CriClient


def peak_bytes() -> int:
    """The largest resident memory of this process so far (proc_pid_status(5), VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    client = CriClient(sys.argv[1], read_deadline_seconds=60.0)
    client.list_pod_sandboxes()  # everything is imported and connected
    before = peak_bytes()
    listed = client.list_containers()
    print(len(listed), peak_bytes() - before)
