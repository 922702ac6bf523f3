"""Child processes of the tests of `remove_tree`: removers without some rights, which print one
JSON object.

    python -m tests.sockets.pod_logs.remover_child SCENARIO DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys

from eviction.drill.private_mounts import enter_private_mounts, mount_tmpfs
from reclaim.pod_logs.directories import remove_tree
from tests.sockets.namespace_child import drop_all_capabilities


def without_capabilities() -> None:
    """Root without capabilities; `doomed` belongs to root."""
    drop_all_capabilities()


def without_proc() -> None:
    """/proc is empty, so the mount of a descriptor is unknown."""
    enter_private_mounts()
    mount_tmpfs("/proc", 4096, 2)


SCENARIOS = {scenario.__name__: scenario for scenario in (without_capabilities, without_proc)}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
    descriptor = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECTORY)
    sys.stdout.write(json.dumps(remove_tree(descriptor, b"doomed")._asdict()))
