"""A history file that reclaimd 0.1.0 wrote is kept aside, and a new one begins.

`history_0_1.gz` is such a file: its records span several blocks of 512 bytes.
"""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import pytest

from eviction.records.store import HistoryStore, HistoryUnusable, contents_of, why_unusable
from tests.pure.values import MIB

EARLIER = gzip.decompress((Path(__file__).parent / "history_0_1.gz").read_bytes())
NOBODY = 65534


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The file, with the mode that it had."""
    path = tmp_path / "history"
    path.write_bytes(EARLIER)
    path.chmod(0o600)
    return path


def test_an_old_file_is_no_history_for_who_reads_it_and_the_sentence_says_what_it_is(
    old: Path,
) -> None:
    """And where the daemon keeps it; reading changes nothing."""
    sentence = (
        f"{old} was written by an earlier version of reclaimd, which can read it; where the daemon"
        f" finds such a file, it keeps it as {old}.old and begins a new one"
    )
    with pytest.raises(HistoryUnusable) as refused:
        contents_of(str(old))
    assert str(refused.value) == why_unusable(str(old)) == sentence
    assert (old.read_bytes(), os.listdir(old.parent)) == (EARLIER, ["history"])


def test_an_old_file_is_kept_aside_and_a_new_one_begins(old: Path) -> None:
    """A sentence tells; the file that is kept is the same, byte for byte."""
    store = HistoryStore(str(old), MIB)
    store.append(b"first")
    assert store.note == (
        f"{old} is of an earlier version of reclaimd: it is kept as {old}.old, and a new history"
        " begins"
    )
    store.close()
    assert contents_of(str(old)) == ([b"first"], 0)
    assert old.with_name("history.old").read_bytes() == EARLIER
    assert sorted(os.listdir(old.parent)) == ["history", "history.old"]
    again = HistoryStore(str(old), MIB)
    again.open()
    assert again.note == ""


def test_a_file_that_is_kept_is_never_overwritten(old: Path) -> None:
    """Then there is no history, until somebody has moved one of the two away."""
    kept = old.with_name("history.old")
    kept.write_text("precious")
    store = HistoryStore(str(old), MIB)
    for _ in range(2):
        with pytest.raises(HistoryUnusable, match=r"\.old, where .* is there already"):
            store.append(b"record")
    assert (old.read_bytes(), kept.read_text()) == (EARLIER, "precious")
    assert sorted(os.listdir(old.parent)) == ["history", "history.old"]
    kept.unlink()
    store.append(b"record")
    assert contents_of(str(old)).records == [b"record"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_in_a_directory_that_is_not_writable_it_stays_and_that_is_said() -> None:
    """No new one can be made, so the old one is not moved away."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "history"
        path.write_bytes(EARLIER)
        os.chown(path, NOBODY, NOBODY)
        os.chmod(path, 0o600)
        os.chmod(directory, 0o555)  # noqa: S103 # read and enter, as everybody may
        try:
            os.seteuid(NOBODY)
            with pytest.raises(HistoryUnusable, match="no new one can be made: Permission denied"):
                HistoryStore(str(path), MIB).append(b"record")
        finally:
            os.seteuid(0)
        assert (path.read_bytes(), os.listdir(directory)) == (EARLIER, ["history"])
