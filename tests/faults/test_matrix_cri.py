"""The rows of the fault matrix about the methods of the runtime: the real daemon
under one row's fault each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.matrix.cells import check, rows_of
from tests.faults.matrix.rows import Row
from tests.faults.matrix.table import NEEDED_FOR, REMOVALS
from tests.sockets.mounts import need_mounts


@pytest.mark.parametrize("row", rows_of(NEEDED_FOR.keys() - REMOVALS))
def test_a_question_that_fails(row: Row, tmp_path: Path) -> None:
    """What the table says of the row holds."""
    need_mounts()
    check(row, tmp_path)
