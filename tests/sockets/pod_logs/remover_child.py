"""Child processes of the tests of `remove_tree`: an attacker, and removers without some rights.

    python -m tests.sockets.pod_logs.remover_child SCENARIO DIRECTORY [ARGUMENT]

`swap` runs until it is ended; the others print one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

from eviction.drill.private_mounts import enter_private_mounts, mount_tmpfs
from reclaim.pod_logs.directories import remove_tree
from tests.sockets.namespace_child import drop_all_capabilities

PAIRS = 8
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


def swap(directory: str, counter: str) -> None:
    """Exchanges `doomed/N/directory` and `outside/N` for each N, over and over; counts in the file
    `counter`, as a native 8-byte number, how often that worked."""
    os.chdir(directory)
    pairs = [(b"doomed/%d/directory" % number, b"outside/%d" % number) for number in range(PAIRS)]
    renameat2 = _libc.renameat2
    swapped = 0
    with open(counter, "r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
        while True:
            for one, other in pairs:
                if renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE) == 0:
                    swapped += 1
            shared[:8] = struct.pack("=q", swapped)


def without_capabilities(directory: str) -> dict[str, Any]:
    """Root without capabilities removes `doomed`, which belongs to root."""
    drop_all_capabilities()
    return _removal(directory)


def without_proc(directory: str) -> dict[str, Any]:
    """/proc is empty, so the mount of a descriptor is unknown."""
    enter_private_mounts()
    mount_tmpfs("/proc", 4096, 2)
    return _removal(directory)


def _removal(directory: str) -> dict[str, Any]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    return remove_tree(descriptor, b"doomed")._asdict()


SCENARIOS: dict[str, Callable[..., dict[str, Any] | None]] = {
    scenario.__name__: scenario for scenario in (swap, without_capabilities, without_proc)
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](*sys.argv[2:])))
