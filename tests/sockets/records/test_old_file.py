"""A history file that reclaimd 0.1.0 wrote is read as it was, and written
on without losing a record.

`history_0_1.gz` is such a file, `history_0_1.json.gz` the documents that 0.1.0 read from it. The
ring of 257 blocks was filled more than once; it holds a pass of 120 removals in two records, names
that are no UTF-8, and a torn record.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from eviction.records.history import documents_of
from eviction.records.store import HistoryStore, read_records
from tests.pure.values import MIB

HERE = Path(__file__).parent
DOCUMENTS: list[dict[str, Any]] = json.loads(
    gzip.decompress((HERE / "history_0_1.json.gz").read_bytes())
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The file, with the mode that it had."""
    path = tmp_path / "history"
    path.write_bytes(gzip.decompress((HERE / "history_0_1.gz").read_bytes()))
    path.chmod(0o600)
    return path


def test_every_record_of_an_old_file_is_read(old: Path) -> None:
    """But the torn one, in the same words; the file stays as it is."""
    before = old.read_bytes()
    assert list(documents_of(read_records(str(old)))) == DOCUMENTS
    assert (len(DOCUMENTS), DOCUMENTS[-1]["kind"]) == (60, "stopped")
    assert "torn" not in {document.get("id") for document in DOCUMENTS}
    assert [len(document["removals"]) for document in DOCUMENTS if document.get("id") == "big"] == [
        120
    ]
    assert old.read_bytes() == before


def test_an_old_file_is_written_on_in_place(old: Path) -> None:
    """In the place of the oldest block, which was left of a record that is not
    whole; nothing else changes.
    """
    before, inode = old.read_bytes(), old.stat().st_ino
    store = HistoryStore(str(old), len(before))
    store.append(b'{"kind":"started","time":"2027-01-15T09:00:00.000Z","version":"0.2.0","pid":8}')
    store.close()
    *first, last = documents_of(read_records(str(old)))
    assert (first, last["version"]) == (DOCUMENTS, "0.2.0")
    changed = [
        place
        for place in range(0, len(before), 512)
        if old.read_bytes()[place:][:512] != before[place:][:512]
    ]
    assert (len(changed), old.stat().st_ino) == (1, inode)


def test_the_records_of_an_old_file_move_into_one_of_another_size(old: Path) -> None:
    """All of them fit."""
    store = HistoryStore(str(old), MIB)
    store.open()
    store.close()
    assert old.stat().st_size == MIB
    assert list(documents_of(read_records(str(old)))) == DOCUMENTS
