"""What all rings share: mounts private to the test process, scheduling on workers, and the marks soak and house."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from eviction.drill.runtime.private_mounts import PrivateMounts, enter_private_mounts
from eviction.drill.scenario import library
from tests import forked
from tests.repository import ROOT

CLONE_NEWNS = 0x20000  # <linux/sched.h>


def own_mounts() -> PrivateMounts:
    """As root: a private mount namespace, so that only this process and its children see the filesystems that a test
    mounts, and the kernel unmounts them at its end, also after SIGKILL.

    A pytest-xdist worker already has a second thread, which stays in the old namespace and mounts nothing; the tests
    run on the main thread. Each worker has a namespace of its own, as in a shared one a loop filesystem that one worker
    unmounts would still be held by another's.
    """
    if os.geteuid() != 0:
        return PrivateMounts(available=False, how="none", reason="no root")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return enter_private_mounts()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return PrivateMounts(available=False, how="none", reason=os.strerror(ctypes.get_errno()))
    return PrivateMounts(available=True, how="root", reason="")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell: programs under test would
    signal.signal(signal.SIGINT, signal.default_int_handler)  # inherit that, and ignore Ctrl-C
for name in [each for each in os.environ if each.endswith("_ENDPOINT")]:  # commands in this process would use it
    del os.environ[name]
SCENARIOS = library()
THEY_WAIT = ("tests/faults/test_hung_files.py", "tests/faults/test_matrix_")  # and share nothing
MOUNTS = own_mounts()  # on import: it has to happen before the first thread


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Whole files go to workers, but all tests of one built-in scenario to one worker, which runs it once, and tests
    that mostly wait one by one."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # it has no types

    class ByRing(LoadFileScheduling):  # type: ignore[misc] # nor has its class
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("[")[2].removesuffix("]")
            if name in SCENARIOS:
                return name
            return nodeid if nodeid.startswith(THEY_WAIT) else str(super()._split_scope(nodeid))

    return ByRing(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end, and no garbage collection visits it: that took a quarter of the time."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Leaves no process behind."""
    forked.end()


def changed_files() -> tuple[str, ...]:
    """What differs from the last commit, as paths in the repository; everything (an empty path) without git."""
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--no-renames", "--untracked-files=all"]
    try:
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ("",)
    return tuple(line[3:] for line in told.splitlines())


def is_left_out(item: pytest.Item, markexpr: str, changed: tuple[str, ...]) -> bool:
    """Whether a test waits for a run that names its mark, or for a change of what it is about."""
    if item.get_closest_marker("soak") is not None:
        return "soak" not in markexpr
    house = item.get_closest_marker("house")
    if house is None or "house" in markexpr or os.environ.get("HOUSE"):
        return False
    about = (item.path.relative_to(ROOT).as_posix(), *house.args)
    return not any(path.startswith(about) or not path for path in changed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests that are left out of this run."""
    changed = changed_files()
    waiting = [is_left_out(item, config.option.markexpr, changed) for item in items]
    if any(waiting):
        config.hook.pytest_deselected(items=[item for item, waits in zip(items, waiting, strict=True) if waits])
        items[:] = [item for item, waits in zip(items, waiting, strict=True) if not waits]
