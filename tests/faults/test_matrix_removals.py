"""The rows of the fault matrix about removals, the runtime's socket, and what the
program reads on filesystems.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.matrix.cells import check, rows_of
from tests.faults.matrix.rows import Row
from tests.faults.matrix.table import REMOVALS
from tests.sockets.mounts import need_mounts

READ = (
    "runtime-socket",
    "statvfs",
    "state-file",
    "pause-file",
    "history-file",
    "kubelet-directories",
)


@pytest.mark.parametrize("row", rows_of((*REMOVALS, *READ)))
def test_a_removal_or_a_filesystem_that_fails(row: Row, tmp_path: Path) -> None:
    """What the table says of the row holds."""
    need_mounts()
    check(row, tmp_path)
