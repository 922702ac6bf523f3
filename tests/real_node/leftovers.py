"""What a runtime leaves: its monitors, their sockets, the control groups of its pods
and the processes in them.

Everything is found by a name that belongs to one instance only (a path in its directory, its cgroup
parent), so that removing it never touches another runtime on the same machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def processes_with(option: str, value: Path) -> list[int]:
    """The process ids of those whose command line has this option with this value."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            arguments = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (option.encode(), os.fsencode(value)) in pairwise(arguments):
            found.append(int(entry))
    return found


def shim_sockets_named_in(state: Path) -> set[Path]:
    """The sockets of the shims, as the bundles below `state` name them.

    containerd keeps them in one directory of the machine (/run/containerd/s), by a hash of socket
    and pod. 1.x writes the address of a shim to the file `address`, 2.x into `bootstrap.json`.
    """
    bundles = list(state.glob("io.containerd.runtime.v2.task/*/*"))
    texts = [
        read_text(bundle / name) for bundle in bundles for name in ("address", "bootstrap.json")
    ]
    return {Path(address) for text in texts for address in re.findall(r'unix://(/[^"\s]+)', text)}


def cgroups_below(parent: str) -> list[Path]:
    """The control groups at and below `parent` (`/name`), in every hierarchy (v1, v2,
    mixed), the deepest first.
    """
    if not CGROUP_ROOT.is_dir():
        return []
    tops = (point / parent[1:] for point in (CGROUP_ROOT, *CGROUP_ROOT.iterdir()))
    return [Path(at) for top in tops for at, _, _ in os.walk(top, topdown=False)]


def processes_in(groups: list[Path]) -> list[int]:
    """The ids of the processes in these control groups."""
    return sorted(
        {int(pid) for group in groups for pid in read_text(group / "cgroup.procs").split()}
    )


def kill_if_there(pid: int) -> None:
    """SIGKILL, unless the process ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_or_kill(process: subprocess.Popen[bytes], patience_seconds: float) -> None:
    """Waits for the end of a process, by SIGKILL when it takes longer than `patience_seconds`."""
    try:
        process.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(done: Callable[[], bool], seconds: float, pause_seconds: float = 0.02) -> Iterator[None]:
    """Yields every `pause_seconds` until `done()` is true or `seconds` have passed."""
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        yield
        time.sleep(pause_seconds)


def read_text(file: Path) -> str:
    """The text of a file, empty when it is gone."""
    try:
        return file.read_text()
    except OSError:
        return ""
