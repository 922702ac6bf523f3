"""One event is one line, whatever it contains."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.wording.log import Level, Log, escaped, goes_to_journal

WALL = 1_800_000_000.25
HOSTILE = "a\nb\r\x1b[2J\x00\x7f\x85\u2028\u202e\t"


def logged(*, as_json: bool = False, verbosity: int = 0) -> tuple[Log, io.StringIO]:
    """A log and the stream that it writes to."""
    stream = io.StringIO()
    return Log(lambda: WALL, as_json=as_json, verbosity=verbosity, stream=stream), stream


def test_an_event_as_text_is_time_level_sentence_and_fields() -> None:
    """Values with blanks or quotes, and empty ones, are quoted; nested ones
    are left to the JSON form.
    """
    log, stream = logged()
    log.info(
        "relieved",
        signal="nodefs.available",
        reason="it is 1GiB",
        said='"',
        nothing="",
        record={"a": 1},
    )
    assert (
        stream.getvalue()
        == '2027-01-15T08:00:00.250Z info    relieved signal=nodefs.available reason="it is 1GiB"'
        ' said="\\"" nothing=""\n'
    )


def test_what_json_has_as_a_field_is_a_line_of_its_own_only_in_text() -> None:
    """In JSON nothing is written twice."""
    (text, in_text), (document, in_json) = logged(), logged(as_json=True)
    for log in (text, document):
        log.in_text("removed image a", **{"pass": "1"})
    assert in_text.getvalue() == "2027-01-15T08:00:00.250Z info    removed image a pass=1\n"
    assert in_json.getvalue() == ""


def test_an_event_as_json_is_one_object() -> None:
    """With the nested fields."""
    log, stream = logged(as_json=True)
    log.warning("low", signal="nodefs.available", record={"a": [1]})
    assert json.loads(stream.getvalue()) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "warning",
        "message": "low",
        "signal": "nodefs.available",
        "record": {"a": [1]},
    }


@pytest.mark.parametrize("as_json", [False, True])
@given(sentence=st.text(), name=st.text())
def test_one_event_is_one_printable_line(as_json: bool, sentence: str, name: str) -> None:
    """No name ends a line early or sends commands to a terminal."""
    log, stream = logged(as_json=as_json)
    log.error(sentence, name=name, nested=[name])
    line = stream.getvalue()
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert len(line.splitlines()) == 1
    if as_json:
        found = json.loads(line)
        assert (found["message"], found["name"]) == (sentence, name)


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_are_escaped(as_json: bool) -> None:
    """Line ends, escape sequences, and the invisible characters that turn a line around."""
    log, stream = logged(as_json=as_json)
    log.info(HOSTILE, pod=HOSTILE)
    assert stream.getvalue().count("\n") == 1
    assert not set(stream.getvalue()[:-1]) & set(HOSTILE) - set("ab[2J")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("grün 文", "grün 文"),
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_escaping_keeps_printable_characters(text: str, shown: str) -> None:
    """Only what cannot be shown is written as an escape."""
    assert escaped(text) == shown


@given(st.text())
def test_escaped_text_is_printable_and_stays_so(text: str) -> None:
    """Escaping twice is escaping once."""
    assert escaped(text).isprintable()
    assert escaped(escaped(text)) == escaped(text)


@pytest.mark.parametrize(("verbosity", "lines"), [(0, 3), (1, 4), (9, 4)])
def test_debug_events_need_verbosity(verbosity: int, lines: int) -> None:
    """Everything else is always written."""
    log, stream = logged(verbosity=verbosity)
    log.event(Level.DEBUG, "d")
    log.info("i")
    log.warning("w")
    log.error("e")
    assert len(stream.getvalue().splitlines()) == lines


class FullDisk(io.StringIO):
    """A stream that cannot be written to."""

    def write(self, text: str) -> int:
        """Fails as a full disk does."""
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("closed", [False, True])
def test_a_log_that_cannot_be_written_stops_nothing(closed: bool) -> None:
    """A full disk, or a stream that was closed."""
    stream = FullDisk()
    if closed:
        stream.close()
    Log(lambda: WALL, stream=stream).event(Level.ERROR, "lost")


def test_for_the_journal_a_line_begins_with_its_priority() -> None:
    """As sd-daemon(3) has it; text without a time of its own, JSON whole behind the
    priority; still one line.
    """
    stream = io.StringIO()
    Log(lambda: 0.0, stream=stream, journal=True).warning("full\nof it", signal="nodefs.available")
    Log(lambda: 0.0, stream=stream, journal=True, as_json=True).error("broken")
    text, document = stream.getvalue().splitlines()
    assert text == "<4>full\\nof it signal=nodefs.available"
    assert document.startswith("<3>{")
    assert json.loads(document[3:])["message"] == "broken"


def test_only_the_journals_own_stream_is_the_journal(tmp_path: Path) -> None:
    """Device and inode must agree: a daemon whose output was redirected writes plain lines."""
    with (tmp_path / "stream").open("w") as stream, (tmp_path / "other").open("w") as other:
        found = os.fstat(stream.fileno())
        environment = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert goes_to_journal(environment, stream.fileno())
        assert not goes_to_journal(environment, other.fileno())
        assert not goes_to_journal({}, stream.fileno())
        closed = os.dup(stream.fileno())
        os.close(closed)
        assert not goes_to_journal(environment, closed)
