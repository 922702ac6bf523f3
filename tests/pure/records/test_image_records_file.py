"""The file of records: what is read, what is refused, and that saving harms nothing."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eviction.records.state_file import (
    LARGEST_BYTES,
    RecordFile,
    current_boot_id,
    current_machine_id,
)
from reclaim.images.records import Loaded
from reclaim.types import ImageRecord
from tests.pure.values import SteppedClock, image_id

ONE = image_id(1)
GONE = ImageRecord(400.0, tag="app:1", removed=True)
RECORDS = {ONE: ImageRecord(400.0, 900.0), image_id(2): ImageRecord(-5000.0)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is to be: its directory is not there yet."""
    return tmp_path / "lib" / "reclaimd" / "images.json"


def saved(path: Path, clock: SteppedClock | None = None) -> RecordFile:
    """A file that holds RECORDS."""
    file = RecordFile(str(path), clock or SteppedClock(), "boot-1")
    assert file.save(RECORDS, {}) == ""
    return file


def names(path: Path) -> list[str]:
    """What is in the directory of the file."""
    return sorted(os.listdir(path.parent))


def test_what_was_saved_is_loaded_by_the_next_process(path: Path) -> None:
    """30 s later in the same boot the records have the same times of the monotonic clock."""
    clock = SteppedClock()
    saved(path, clock)
    clock.step(30.0)
    loaded = RecordFile(str(path), clock, "boot-1").load()
    assert loaded.problem == ""
    assert {
        known: record.first_detected for known, record in loaded.records.items()
    } == pytest.approx(
        {known: record.first_detected for known, record in RECORDS.items()}, abs=1e-3
    )
    assert loaded.records[ONE].last_used == pytest.approx(900.0, abs=1e-3)


def test_what_has_gone_is_saved_and_loaded_too(path: Path) -> None:
    """A change of it alone is one; without any record as well."""
    file = RecordFile(str(path), SteppedClock(), "boot-1")
    assert file.save({}, {ONE: GONE}) == ""
    assert RecordFile(str(path), SteppedClock(), "boot-1").load().gone == {ONE: GONE}
    assert file.save({}, {}) == ""
    assert RecordFile(str(path), SteppedClock(), "boot-1").load().gone == {}


def test_the_directory_and_the_file_are_for_their_owner_only(path: Path) -> None:
    """0700 and 0600; and nothing else lies beside the file."""
    saved(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(path) == ["images.json"]


def test_a_missing_file_is_no_problem_and_nothing_is_created(path: Path) -> None:
    """As at the first start: no records, and not even the directory is made."""
    loaded = RecordFile(str(path), SteppedClock()).load()
    assert loaded == Loaded()
    assert not path.parent.exists()


def test_making_it_and_having_nothing_to_save_create_nothing(path: Path) -> None:
    """No records, no file, not after an hour either."""
    clock = SteppedClock()
    file = RecordFile(str(path), clock)
    assert file.save({}, {}) == ""
    clock.step(3600.0)
    assert file.save({}, {}) == ""
    assert not path.parent.exists()


def test_unchanged_records_are_not_written_again_within_the_hour(path: Path) -> None:
    """Nor right after a load.

    After an hour they are: a reboot forgets what ran since the last save.
    """
    clock = SteppedClock()
    file = saved(path, clock)
    first = path.stat().st_ino
    clock.step(3599.0)
    assert file.save(dict(RECORDS), {}) == ""
    assert path.stat().st_ino == first
    other = RecordFile(str(path), clock, "boot-1")
    assert other.save(other.load().records, {}) == ""
    assert path.stat().st_ino == first
    clock.step(1)
    assert file.save(RECORDS, {}) == ""
    assert path.stat().st_ino != first


def test_changed_records_replace_the_file_as_a_whole(path: Path) -> None:
    """Also what no longer has a record is gone from it."""
    file = saved(path)
    assert file.save({ONE: ImageRecord(400.0, 950.0)}, {}) == ""
    assert RecordFile(str(path), SteppedClock(), "boot-1").load().records.keys() == {ONE}
    assert file.save({}, {}) == ""
    assert RecordFile(str(path), SteppedClock(), "boot-1").load().records == {}


def test_what_a_killed_save_left_behind_is_cleared_away(path: Path) -> None:
    """One file of a fixed name; the old file is whole and is read until the next save."""
    file = saved(path)
    (path.parent / ".images.json.new").write_text('{"half')
    assert RecordFile(str(path), SteppedClock(), "boot-1").load().records.keys() == RECORDS.keys()
    assert file.save({ONE: ImageRecord(1.0)}, {}) == ""
    assert names(path) == ["images.json"]


def test_a_link_planted_for_the_new_file_is_not_followed(path: Path, tmp_path: Path) -> None:
    """It is removed, not written through."""
    target = tmp_path / "precious"
    target.write_text("precious")
    file = saved(path)
    (path.parent / ".images.json.new").symlink_to(target)
    assert file.save({ONE: ImageRecord(1.0)}, {}) == ""
    assert target.read_text() == "precious"


def test_a_symbolic_link_in_place_of_the_file_is_not_followed(path: Path, tmp_path: Path) -> None:
    """Neither read nor replaced, as reclaimd did not create it."""
    target = tmp_path / "elsewhere.json"
    saved(target)
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    before = target.read_bytes()
    file = RecordFile(str(path), SteppedClock(), "boot-1")
    assert file.load().records == {}
    assert "is not used" in file.load().problem
    assert "not a regular file" in file.save({ONE: ImageRecord(1.0)}, {})
    assert path.is_symlink()
    assert target.read_bytes() == before


def test_a_symbolic_link_in_place_of_the_directory_is_not_followed(
    path: Path, tmp_path: Path
) -> None:
    """The file behind it is neither read nor written."""
    elsewhere = tmp_path / "elsewhere" / "images.json"
    saved(elsewhere)
    path.parent.parent.mkdir()
    path.parent.symlink_to(elsewhere.parent)
    before = elsewhere.read_bytes()
    file = RecordFile(str(path), SteppedClock(), "boot-1")
    assert "is not used" in file.load().problem
    assert "cannot be saved" in file.save({ONE: ImageRecord(1.0)}, {})
    assert elsewhere.read_bytes() == before


def test_a_pipe_in_place_of_the_file_blocks_nobody(path: Path) -> None:
    """Opening it would wait for a writer for ever."""
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert "not a regular file" in RecordFile(str(path), SteppedClock()).load().problem


def test_a_directory_in_place_of_the_file_is_reported(path: Path) -> None:
    """At the load, and at the save."""
    path.mkdir(parents=True)
    file = RecordFile(str(path), SteppedClock())
    assert "is not used" in file.load().problem
    assert "cannot be saved" in file.save(RECORDS, {})


def test_a_file_in_place_of_the_directory_is_reported(path: Path) -> None:
    """Nothing can be read or saved below it."""
    path.parent.parent.mkdir()
    path.parent.write_text("")
    file = RecordFile(str(path), SteppedClock())
    assert "is not used" in file.load().problem
    assert "cannot be saved" in file.save(RECORDS, {})


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_believed(path: Path, mode: int) -> None:
    """A user who can write it could make young images seem old."""
    saved(path)
    path.chmod(mode)
    loaded = RecordFile(str(path), SteppedClock(), "boot-1").load()
    assert loaded.records == {}
    assert "others may write it" in loaded.problem


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_another_user_is_not_believed(path: Path) -> None:
    """Its owner may write it at any time."""
    saved(path)
    os.chown(path, 65534, 65534)
    assert "others may write it" in RecordFile(str(path), SteppedClock(), "boot-1").load().problem


def test_a_file_that_is_too_big_is_not_read_to_its_end(path: Path) -> None:
    """A sparse file of a terabyte costs no more than the 16 MiB that are allowed."""
    path.parent.mkdir(parents=True)
    path.touch(0o600)
    os.truncate(path, 2**40)
    assert "it is no file of image records" in RecordFile(str(path), SteppedClock()).load().problem


def test_records_that_would_be_too_many_for_a_load_are_not_saved(path: Path) -> None:
    """The old file stays."""
    file = saved(path)
    before = path.read_bytes()
    many = {f"sha256:{number:0240d}": ImageRecord(0.0) for number in range(LARGEST_BYTES // 300)}
    assert "larger than 16 MiB" in file.save(many, {})
    assert path.read_bytes() == before


def test_an_impossible_path_is_reported(tmp_path: Path) -> None:
    """A NUL in it, or a name longer than any filesystem has."""
    for name in ("a\0b", "n" * 300):
        file = RecordFile(str(tmp_path / "new" / name), SteppedClock())
        assert file.load().records == {}
        assert "cannot be saved" in file.save(RECORDS, {})


def test_a_save_after_a_failed_one_saves(path: Path) -> None:
    """What could not be saved is not taken for saved."""
    path.parent.parent.mkdir()
    path.parent.write_text("")
    file = RecordFile(str(path), SteppedClock(), "boot-1")
    assert file.save(RECORDS, {}) != ""
    path.parent.unlink()
    assert file.save(RECORDS, {}) == ""
    assert path.exists()


def test_this_boot_has_an_id() -> None:
    """The same at each reading, as the kernel writes it."""
    assert current_boot_id() == current_boot_id()
    assert len(current_boot_id()) == 36


@pytest.mark.regression
def test_the_file_of_a_cloned_machine_is_not_used_and_then_replaced(path: Path) -> None:
    """Images count as new, one sentence says why, and the next save makes
    the file this machine's own.
    """
    clock = SteppedClock()
    RecordFile(str(path), clock, "boot-1", machine_id="a" * 32).save(RECORDS, {})
    here = RecordFile(str(path), clock, "boot-2", machine_id="b" * 32)
    loaded = here.load()
    assert loaded.records == {}
    assert (
        loaded.problem
        == f"the state file {path} is not used: it is of another machine; images count as new"
    )
    assert here.save(RECORDS, {}) == ""
    assert here.load().records.keys() == RECORDS.keys()


@pytest.mark.parametrize(
    ("content", "machine_id"),
    [
        ("0123456789abcdef" * 2 + "\n", "0123456789abcdef" * 2),
        ("uninitialized\n", ""),
        ("", ""),
        ("\xff", ""),
    ],
)
def test_only_an_id_of_32_digits_is_a_machines(
    tmp_path: Path, content: str, machine_id: str
) -> None:
    """machine-id(5): it may be empty or `uninitialized` until the first boot."""
    path = tmp_path / "machine-id"
    path.write_text(content, encoding="latin-1")
    assert current_machine_id(str(path)) == machine_id
    assert current_machine_id(str(tmp_path / "missing")) == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_a_file_of_any_bytes_never_raises(tmp_path: Path, content: bytes) -> None:
    """No records, and one sentence that names the file."""
    path = tmp_path / "images.json"
    path.write_bytes(content)
    path.chmod(0o600)
    loaded = RecordFile(str(path), SteppedClock()).load()
    assert loaded.records == {}
    assert str(path) in loaded.problem
    assert "\n" not in loaded.problem


@pytest.mark.regression
def test_a_state_file_that_does_not_answer_is_waited_for_a_second(path: Path) -> None:
    """Its filesystem hangs: the sentence says it, and the caller goes on."""
    let_go = threading.Event()

    class Held(SteppedClock):
        """Whoever reads the file waits here."""

        def wall(self) -> float:
            """Not before it is let go."""
            assert let_go.wait(60.0)
            return super().wall()

    saved(path)
    loaded = RecordFile(str(path), Held()).load()
    assert dict(loaded.records) == {}
    assert loaded.problem.endswith("is not used: it did not answer within 1 s; images count as new")
    let_go.set()
