"""What all rings share: mounts of this test process stay its own, and what takes long is only run when asked for."""

from __future__ import annotations

import os

import pytest

from reclaim.embedded.filesystem import PrivateMounts, enter_private_mounts


def own_mounts() -> PrivateMounts:
    """As root every filesystem that a test mounts is seen by this run's processes only, and is gone with them, also
    after kill -9. Workers side by side (pytest-xdist) have it from their parent: they have threads already.
    """
    if os.geteuid() != 0:
        return PrivateMounts(available=False, how="none", reason="no root")
    if "PYTEST_XDIST_WORKER" in os.environ:
        return PrivateMounts(available=True, how="root", reason="")
    return enter_private_mounts()


MOUNTS = own_mounts()  # on import: it has to happen before the first thread


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Whole files to workers, and one worker alone for those that start a containerd: they measure what a disk does."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # it has no types

    class ByRing(LoadFileScheduling):  # type: ignore[misc] # nor has its class
        def _split_scope(self, nodeid: str) -> str:
            return "real_node" if nodeid.startswith("tests/real_node/") else str(super()._split_scope(nodeid))

    return ByRing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the soak out of every run whose -m expression does not name it, whatever else that expression says."""
    if "soak" in config.option.markexpr:
        return
    soak = [item for item in items if item.get_closest_marker("soak") is not None]
    if soak:
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]
