"""A process in which no thread can start, until it may again: as with a
reached `pids.max`, for real.

`ThreadLimit` is for a child. As root the child is moved to a cgroup of its own with `pids.max` 0
(cgroup v1 or v2); otherwise its soft limit RLIMIT_NPROC is 0, which the kernel ignores for root
(getrlimit(2)). Either way clone(2) fails with EAGAIN and `Thread.start()` raises RuntimeError, also
in a process that runs already; threads that exist go on.

`no_thread_starts` is for the process of the tests, and for Python's threads alone: a stack so large
that no mapping of it fits in the address space makes `Thread.start()` fail in the same way. gRPC
runs in that process too. The threads that it starts by itself are not concerned: one that it does
not get, it waits for without end when it is released.
"""

import contextlib
import itertools
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

HIERARCHIES = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))  # v1, v2
REMOVAL_TRIES = 100
NO_SUCH_STACK_BYTES = 1 << 60  # more than any address space: a process has 47 bits, with hints 56
_numbers = itertools.count()


class ThreadLimit:
    """The limit of a child, off at first; lifted and removed when the `with` block ends.

    `pid`: of the child. Skips the test where neither way is possible.
    """

    def __init__(self, pid: int):
        self._pid = pid
        self._nproc: tuple[int, int] | None = None
        self._group: Path | None = None
        self._home: Path | None = None

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            self._nproc = resource.prlimit(self._pid, resource.RLIMIT_NPROC)
            return self
        self._group = _new_group()
        self._home = _group_of(self._pid, self._group.parent)
        (self._group / "cgroup.procs").write_text(str(self._pid))
        return self

    def __exit__(self, *ended: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # the process has ended
            self.lift()
        if self._group is None or self._home is None:
            return
        with contextlib.suppress(OSError):  # the same
            (self._home / "cgroup.procs").write_text(str(self._pid))
        for _ in range(REMOVAL_TRIES):  # the kernel is done with an ended process a moment later
            try:
                self._group.rmdir()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError(f"{self._group} cannot be removed")

    def forbid(self, beyond: int = 0) -> None:
        """From now on no thread and no child starts, as root beyond so many that there may be."""
        self._set(str(beyond))

    def lift(self) -> None:
        """They start again."""
        self._set("max")

    def _set(self, most: str) -> None:
        if self._group is not None:
            (self._group / "pids.max").write_text(most)
        elif self._nproc is not None:
            soft, hard = self._nproc
            resource.prlimit(self._pid, resource.RLIMIT_NPROC, (soft if most == "max" else 0, hard))


@contextlib.contextmanager
def no_thread_starts() -> Iterator[None]:
    """Every start of a Python thread of this process fails while the `with` block lasts."""
    usual = threading.stack_size(NO_SUCH_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(usual)


def _new_group() -> Path:
    """A new cgroup that counts processes. Skips the test where none can be made."""
    for hierarchy in HIERARCHIES:
        group = hierarchy / f"reclaimd-test-{os.getpid()}-{next(_numbers)}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / "pids.max").exists():
            return group
        group.rmdir()
    pytest.skip("no thread can be kept from starting: no cgroup with pids.max can be made")


def _group_of(pid: int, hierarchy: Path) -> Path:
    """The cgroup of a process in a hierarchy (cgroups(7))."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(",") or (not controllers and hierarchy == HIERARCHIES[1]):
            return hierarchy / path.lstrip("/")
    return hierarchy
