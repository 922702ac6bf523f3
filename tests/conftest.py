"""What all rings share: mounts of this test process stay its own, and what takes long is only run when asked for."""

from __future__ import annotations

import os

import pytest

from reclaim.embedded.filesystem import PrivateMounts, enter_private_mounts

# As root every filesystem that a test mounts is seen by this process and its children only, and is gone with it, also
# after kill -9. Entered on import: it has to happen before the first thread.
MOUNTS = enter_private_mounts() if os.geteuid() == 0 else PrivateMounts(available=False, how="none", reason="no root")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the soak out of every run whose -m expression does not name it, whatever else that expression says."""
    if "soak" in config.option.markexpr:
        return
    soak = [item for item in items if item.get_closest_marker("soak") is not None]
    if soak:
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]
