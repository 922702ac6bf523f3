"""What all rings share: mounts of this test process stay its own, and what takes long is only run when asked for."""

from __future__ import annotations

import ctypes
import os
import signal

import pytest

from eviction.drill.runtime.private_mounts import PrivateMounts, enter_private_mounts
from eviction.drill.scenario.library import library

CLONE_NEWNS = 0x20000  # <linux/sched.h>


def own_mounts() -> PrivateMounts:
    """As root every filesystem that a test mounts is seen by this process and its children only, and is gone with it,
    also after kill -9.

    A worker among several (pytest-xdist) has a thread already, which stays where it was and mounts nothing; the tests
    run on the main one. Its parent, which has made the mounts private, is in a namespace of its own: a loop filesystem
    that one worker unmounts would be held by another's, were it the same one.
    """
    if os.geteuid() != 0:
        return PrivateMounts(available=False, how="none", reason="no root")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return enter_private_mounts()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return PrivateMounts(available=False, how="none", reason=os.strerror(ctypes.get_errno()))
    return PrivateMounts(available=True, how="root", reason="")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background by a shell: programs under test would
    signal.signal(signal.SIGINT, signal.default_int_handler)  # inherit that, and never hear of a Ctrl-C
for name in [each for each in os.environ if each.endswith("_ENDPOINT")]:  # it would count for commands in this process
    del os.environ[name]
SCENARIOS = library()
MOUNTS = own_mounts()  # on import: it has to happen before the first thread


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Whole files to workers; all that is told of one scenario of the drill's library to one, which runs it once."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # it has no types

    class ByRing(LoadFileScheduling):  # type: ignore[misc] # nor has its class
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.partition("[")[2].removesuffix("]")
            return name if name in SCENARIOS else str(super()._split_scope(nodeid))

    return ByRing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the soak out of every run whose -m expression does not name it, whatever else that expression says."""
    if "soak" in config.option.markexpr:
        return
    soak = [item for item in items if item.get_closest_marker("soak") is not None]
    if soak:
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]
