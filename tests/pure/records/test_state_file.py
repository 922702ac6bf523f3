"""The file of what is known of images: old stays old and young stays young over a restart, whatever
happened to the wall clock, and what cannot be believed is refused in a sentence."""

import os
import stat
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eviction.records.state_file import (
    LARGEST_BYTES,
    Moment,
    RecordFile,
    current_boot_id,
    current_machine_id,
    moments,
    records_from_json,
    records_json,
)
from reclaim.images.records import Loaded
from reclaim.types import ImageRecord
from tests.expected import expect
from tests.pure.values import SteppedClock, image_id
from tests.rows import rows

DAY = 86_400.0
ONE, TWO = image_id(1), image_id(2)
SAVED = Moment(monotonic=50_000.0, wall=1_800_000_000.0, boot_id="boot-1")
RECORDS = {
    ONE: ImageRecord(40_000.0, 49_000.0, 45_000.0, counted_since=39_000.0),
    TWO: ImageRecord(-5 * DAY),
}
WENT = ImageRecord(
    40_000.0,
    uses=3,
    returned=1,
    pulled=False,
    counted_since=SAVED.monotonic - DAY,
    handlers=("", "kata-clh"),
    tag="app:1",
    removed=True,
)
GONE = {TWO: WENT, ONE: ImageRecord(40_000.0)}
TEXT = records_json(RECORDS, SAVED, GONE)
NONE = "it is no file of image records"
EXPECTED = Path(__file__).with_name("images.json")
TIMES = ("first_detected", "last_used", "first_listed", "counted_since")


def ages(records: Mapping[str, ImageRecord], now: float) -> dict[str, list[float | None]]:
    """Seconds since each of the times of a record, to the millisecond."""
    return {
        known: [
            None if (at := getattr(record, name)) is None else round(now - at, 3) for name in TIMES
        ]
        for known, record in records.items()
    }


# ---- the text


def test_the_text_is_readable_and_what_has_gone_is_in_its_order() -> None:
    """Times are wall time, and the moment of the save stands beside them in both clocks. In another
    boot times are ages."""
    expect(EXPECTED, TEXT.decode())
    found = records_from_json(TEXT, SAVED)
    assert (found.records, found.gone, list(found.gone)) == (RECORDS, GONE, [TWO, ONE])
    rebooted = records_from_json(TEXT, Moment(50.0, SAVED.wall + DAY, "boot-2")).gone[TWO]
    assert rebooted == replace(WENT, first_detected=50.0 - 10_000.0, counted_since=50.0 - DAY)
    clocks = [
        records_from_json(TEXT, replace(SAVED, monotonic=at, boot_id=boot)).saved
        for at, boot in ((5e4, "boot-1"), (6e4, "boot-1"), (4e4, "boot-1"), (5e4, ""), (5e4, "2"))
    ]
    assert clocks == [(SAVED.monotonic, SAVED.wall)] * 2 + [None] * 3
    assert found.at == SAVED.wall


@rows("""
    boot   | monotonic | wall      | older     | what
    boot-1 | 50060     | 60        | 60        | in the same boot 60 s later everything is 60 s older
    boot-1 | 50060     | -864e6    | 60        | whatever the wall clock says
    boot-1 | 50060     | 864e6     | 60        | set forward, too
    boot-2 | 20        | 0         | 0         | after a reboot everything is as old as at the save
    boot-2 | 20        | 300       | 0         | however long it took
    boot-2 | 20        | 864e6     | 0         | a clock that was set forward makes no young image ancient
    boot-2 | 20        | -3600     | -3600     | one that is an hour behind makes all an hour younger
    boot-2 | 20        | -1728e6   | -1728e6   | a dead one makes all young
    boot-1 | 10        | 9000      | 0         | a monotonic clock that went back is another boot's
           | 60000     | 9000      | 0         | so is one of a boot that is not known
""")
def test_a_restart_in_the_same_boot_does_not_care_for_the_wall_clock(
    boot: str, monotonic: float, wall: float, older: float
) -> None:
    """After a reboot only that tells, and never makes anything older. Not every machine has an id:
    one that is not known is no other one, and a boot that is not known is no known one."""
    expected = {
        known: [each and max(each + older, 0.0) for each in of]
        for known, of in ages(RECORDS, SAVED.monotonic).items()
    }
    now = Moment(monotonic, SAVED.wall + wall, boot)
    unknown = () if boot else (replace(SAVED, boot_id=""),)
    for saved in (SAVED, replace(SAVED, machine_id="machine-1"), *unknown):
        for machine in ("", "machine-1"):
            text = records_json(RECORDS, saved, {})
            found = records_from_json(text, replace(now, machine_id=machine)).records
            assert ages(found, monotonic) == expected


def changed(fields: str) -> bytes:
    """A good text with other fields: of two the last one counts."""
    return TEXT.rstrip()[:-1] + f", {fields}}}".encode()


OF_NO_RECORD = """
7
{}
{"first_detected": NaN}
{"first_detected": Infinity}
{"first_detected": 1e400}
{"first_detected": "1"}
{"first_detected": 1.0, "last_used": -1e300}
{"first_detected": 1.0, "last_used": "x"}
{"first_detected": 1.0, "uses": true}
{"first_detected": 1.0, "uses": 1000000000000000000000000000000}
{"first_detected": 1.0, "uses": -1}
{"first_detected": 1.0, "returned": "1"}
{"first_detected": 1.0, "returned": 2000000000}
{"first_detected": 1.0, "pulled": 1}
{"first_detected": 1.0, "tag": 7}
"""
OF_NO_FILE = """
"kind": "other"
"version": 2
"version": "1"
"images": []
"gone": []
"saved": null
"saved": {"wall": 1.0}
"saved": {"wall": "x", "monotonic": 1.0, "boot_id": "boot-1"}
"saved": {"wall": true, "monotonic": 1.0, "boot_id": "boot-1"}
"saved": {"wall": NaN, "monotonic": 1.0, "boot_id": "boot-1"}
"saved": {"wall": 1.0, "monotonic": -1e300, "boot_id": "boot-1"}
"saved": {"wall": 1.0, "monotonic": -1e9, "boot_id": "boot-1"}
"saved": {"wall": 1.0, "monotonic": 1.0, "boot_id": "", "machine_id": 7}
"""


@pytest.mark.parametrize(
    "text",
    [
        *(b"", TEXT[:-20], b"\xff\xfe\x00\x00\x80", b"[" * 200_000, b"1" * 10_000, b"[]", b"null"),
        *map(changed, OF_NO_FILE.strip().splitlines()),
        *(
            changed(f'"{known}": {{"{ONE}": {entry}}}')
            for known in ("images", "gone")
            for entry in OF_NO_RECORD.strip().splitlines()
        ),
    ],
)
def test_what_cannot_be_believed_is_refused_in_a_sentence(text: bytes) -> None:
    """The whole of it: losing it is harmless, half of it is not worth the doubt."""
    with pytest.raises(ValueError, match=rf"^({NONE}|it holds an impossible (time|number))"):
        records_from_json(text, SAVED)


def test_fields_that_are_not_known_are_passed_over_and_no_time_is_after_the_save() -> None:
    """A later version may write more beside what this one reads; no image was first seen after its
    record was written."""
    future = f'{{"first_detected": {SAVED.wall + DAY}, "last_used": {SAVED.wall + DAY}, "size": 7}}'
    text = changed(f'"comment": "hello", "images": {{"{ONE}": {future}}}')
    found = records_from_json(text, SAVED).records
    assert ages(found, SAVED.monotonic) == {ONE: [0.0, 0.0, None, None]}


# ---- the file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is to be: its directory is not there yet."""
    return tmp_path / "lib" / "reclaimd" / "images.json"


def file_at(path: Path, clock: SteppedClock | None = None, **ids: str) -> RecordFile:
    """The file of one process."""
    clock = clock or SteppedClock()
    return RecordFile(str(path), clock, moments(clock, **{"boot_id": "boot-1", **ids}))


def saved(path: Path, clock: SteppedClock | None = None) -> RecordFile:
    """A file that holds RECORDS."""
    file = file_at(path, clock)
    assert file.save(RECORDS, {}) == ""
    return file


def test_what_was_saved_is_loaded_by_the_next_process(path: Path) -> None:
    """30 s later in the same boot; what has gone too. Directory and file are for their owner only,
    and what a killed save left behind is cleared away, not read or written through."""
    clock, precious = SteppedClock(at=SAVED.monotonic), path.parent / "precious"
    file = saved(path, clock)
    precious.write_text("precious")
    (path.parent / ".images.json.new").symlink_to(precious)
    assert file.save(RECORDS, GONE) == ""
    assert precious.read_text() == "precious"
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)]
    assert (modes, sorted(os.listdir(path.parent))) == ([0o700, 0o600], ["images.json", "precious"])
    clock.step(30.0)
    (path.parent / ".images.json.new").write_text('{"half')
    loaded = file_at(path, clock).load()
    assert loaded.problem == ""
    assert ages(loaded.records, clock.monotonic()) == ages(RECORDS, SAVED.monotonic + 30.0)
    assert list(loaded.gone) == [TWO, ONE]
    assert file.save({ONE: RECORDS[ONE]}, {}) == ""
    assert file_at(path, clock).load().records.keys() == {ONE}


def test_nothing_to_save_creates_nothing_and_what_is_unchanged_is_written_once_an_hour(
    path: Path,
) -> None:
    """A reboot forgets what ran since the last save. A missing file is no problem."""
    clock = SteppedClock()
    file = file_at(path, clock)
    assert file.load() == Loaded()
    for _ in range(2):
        assert file.save({}, {}) == ""
        clock.step(3600.0)
    assert not path.parent.exists()
    assert file.save(RECORDS, {}) == ""
    first, other = path.stat().st_ino, file_at(path, clock)
    assert other.save(other.load().records, {}) == ""
    for seconds, unchanged in ((3599.0, True), (1.0, False)):
        clock.step(seconds)
        assert file.save(dict(RECORDS), {}) == ""
        assert (path.stat().st_ino == first) is unchanged


@rows("""
    commands                                                                         | problem                        | save               | what
    ln -s good.json images.json                                                      | is not used:                   | not a regular file | a symlink
    mkfifo images.json                                                               | not a regular file             | not a regular file | a pipe
    mkdir images.json                                                                | is not used:                   | cannot be saved    | a directory
    mv good.json images.json; cd ..; mv reclaimd elsewhere; ln -s elsewhere reclaimd | is not used:                   | cannot be saved    | below a symlink
    cd ..; mv reclaimd elsewhere; touch reclaimd                                     | is not used:                   | cannot be saved    | below a file
    umask 177; truncate -s 1T images.json                                            | it is no file of image records |                    | a terabyte, sparse
    mv good.json images.json; chmod 620 images.json                                  | others may write it            |                    | its group may write it
    mv good.json images.json; chmod 602 images.json                                  | others may write it            |                    | everybody may
    mv good.json images.json; chown 65534:65534 images.json                          | others may write it            |                    | of another user
""")
def test_what_others_may_have_put_there_is_not_used(
    path: Path, commands: str, problem: str, save: str
) -> None:
    """Beside a good file. Neither read nor followed, nor waited for, and a terabyte costs no more
    than the 16 MiB that are allowed; a user who can write it could make young images seem old. What
    could not be saved is not taken for saved."""
    if "chown" in commands and os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    saved(path.with_name("good.json"))
    subprocess.run(["sh", "-ec", commands], cwd=path.parent, check=True)
    file = file_at(path)
    assert file.load().records == {}
    assert problem in file.load().problem
    for _ in range(2 if save else 0):
        assert save in file.save({ONE: ImageRecord(1.0)}, {})


def test_what_cannot_be_saved_leaves_the_old_file(path: Path, tmp_path: Path) -> None:
    """More records than a load would read; a name with a NUL, or longer than any filesystem has."""
    file = saved(path)
    before = path.read_bytes()
    many = {f"sha256:{number:02400d}": ImageRecord(0.0) for number in range(LARGEST_BYTES // 2400)}
    assert "larger than 16 MiB" in file.save(many, {})
    assert path.read_bytes() == before
    for name in ("a\0b", "n" * 300):
        assert file_at(tmp_path / name).load().records == {}
        assert "cannot be saved" in file_at(tmp_path / name).save(RECORDS, {})


def test_the_file_of_a_cloned_machine_is_not_used_and_then_replaced(path: Path) -> None:
    """Images count as new, one sentence says why, and the next save makes the file this machine's
    own."""
    file_at(path, machine_id="a" * 32).save(RECORDS, {})
    here = file_at(path, boot_id="boot-2", machine_id="b" * 32)
    problem = f"the state file {path} is not used: it is of another machine; images count as new"
    assert here.load() == Loaded(problem=problem)
    assert here.save(RECORDS, {}) == ""
    assert here.load().records.keys() == RECORDS.keys()


def test_only_an_id_of_32_digits_is_a_machines(tmp_path: Path) -> None:
    """machine-id(5): it may be empty or `uninitialized` until the first boot. This boot has one."""
    path, identity = tmp_path / "machine-id", "0123456789abcdef" * 2
    assert current_machine_id(str(path)) == ""
    for content in (b"uninitialized\n", b"", b"\xff", identity.encode() + b"\n"):
        path.write_bytes(content)
        assert current_machine_id(str(path)) == (identity if len(content) > 30 else "")
    assert current_boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def replaced(start: int, new: bytes, end: int) -> bytes:
    """A good text with another part."""
    return TEXT[:start] + new + TEXT[end:]


places = st.integers(0, len(TEXT))
contents = st.binary(max_size=200) | st.builds(replaced, places, st.binary(max_size=99), places)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=contents)
def test_a_file_of_any_bytes_never_raises(tmp_path: Path, content: bytes) -> None:
    """No records, and one sentence that names the file; or it is still one, and no time is after
    now."""
    path = tmp_path / "images.json"
    path.write_bytes(content)
    path.chmod(0o600)
    loaded = file_at(path, SteppedClock(at=SAVED.monotonic)).load()
    assert all(one.first_detected <= SAVED.monotonic for one in loaded.records.values())
    if loaded.problem or b"image-records" not in content:
        assert loaded.records == {}
        assert loaded.problem.startswith(f"the state file {path} is not used: it ")
        assert "\n" not in loaded.problem


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
    problem = file_at(path, Held()).load().problem
    assert problem.endswith("is not used: it did not answer within 1 s; images count as new")
    let_go.set()
