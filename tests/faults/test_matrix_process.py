"""The rows of the fault matrix about the process itself, its log, and who it talks to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.matrix.cells import check, rows_of
from tests.faults.matrix.rows import Row
from tests.sockets.mounts import need_mounts

PROCESS = ("thread-start", "descriptor", "message-memory", "log")
TALKS = ("control-socket", "metrics-port", "kubelet-api", "kubelet-socket")


@pytest.mark.parametrize("row", rows_of((*PROCESS, *TALKS)))
def test_a_process_that_lacks_something(row: Row, tmp_path: Path) -> None:
    """What the table says of the row holds."""
    need_mounts()
    check(row, tmp_path)
