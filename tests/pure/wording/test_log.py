"""One event is one line, whatever it contains."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.printable import escaped
from eviction.wording.log import Level, Log, goes_to_journal

WALL = 1_800_000_000.25
HOSTILE = "a\nb\r\x1b[2J\x00\x7f\x85\u2028\u202e\t"


def logged(*, as_json: bool = False, verbosity: int = 0) -> tuple[Log, io.StringIO]:
    """A log and the stream that it writes to."""
    stream = io.StringIO()
    return Log(lambda: WALL, as_json=as_json, verbosity=verbosity, stream=stream), stream


def test_an_event_is_a_line_of_text_or_one_object() -> None:
    """Values with blanks or quotes, and empty ones, are quoted; what the sentence says, and the
    record, are left to the JSON form, and what that has as a field is a line of its own only in
    text."""
    (text, in_text), (document, in_json) = logged(), logged(as_json=True)
    given: dict[str, Any] = {"signal": "nodefs.available", "reason": "it is 1GiB", "said": '"'}
    for log in (text, document):
        log.info("relieved", **given, nothing="", record={"a": [1]})
        log.info("held off: 17 of 2", reason="held_off", code=17, other=7, result="idle")
        log.in_text("removed image a", **{"pass": "1"})
    assert in_text.getvalue() == (
        '2027-01-15T08:00:00.250Z info    relieved signal=nodefs.available reason="it is 1GiB"'
        ' said="\\"" nothing=""\n2027-01-15T08:00:00.250Z info    held off: 17 of 2 other=7\n'
        "2027-01-15T08:00:00.250Z info    removed image a pass=1\n"
    )
    head = {"time": "2027-01-15T08:00:00.250Z", "level": "info", "message": "relieved"}
    assert json.loads(in_json.getvalue().splitlines()[0]) == {
        **head,
        **given,
        "nothing": "",
        "record": {"a": [1]},
    }


@pytest.mark.parametrize("as_json", [False, True])
@given(
    sentence=st.text() | st.just(HOSTILE),
    name=st.text() | st.just(HOSTILE) | st.binary(max_size=40).map(os.fsdecode),
)
def test_one_event_is_one_printable_line(as_json: bool, sentence: str, name: str) -> None:
    """No name ends a line early, turns it around, or sends commands to a terminal."""
    log, stream = logged(as_json=as_json)
    log.error(sentence, name=name, nested=[name])
    line = stream.getvalue()
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert len(line.splitlines()) == 1
    if as_json:
        found = json.loads(line)
        assert (found["message"], found["name"]) == (sentence, name)


@given(st.text())
def test_escaped_text_is_printable_and_stays_so(text: str) -> None:
    """Only what cannot be shown is written as an escape; escaping twice is escaping once."""
    assert escaped(text).isprintable()
    assert escaped(escaped(text)) == escaped(text)
    assert not text.isprintable() or escaped(text) == text
    shown = [
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
    ]
    assert [(given, escaped(given)) for given, _ in shown] == shown


@pytest.mark.parametrize(("verbosity", "lines"), [(0, 3), (1, 4), (9, 4)])
def test_debug_events_need_verbosity(verbosity: int, lines: int) -> None:
    """Everything else is always written."""
    log, stream = logged(verbosity=verbosity)
    log.event(Level.DEBUG, "d")
    for write in (log.info, log.warning, log.error):
        write("w")
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
    """As sd-daemon(3) has it; text without a time of its own, JSON whole behind it."""
    stream = io.StringIO()
    Log(lambda: 0.0, stream=stream, journal=True).warning("full\nof it", signal="nodefs.available")
    Log(lambda: 0.0, stream=stream, journal=True, as_json=True).error("broken")
    text, document = stream.getvalue().splitlines()
    assert (text, document[:3]) == ("<4>full\\nof it signal=nodefs.available", "<3>")
    assert json.loads(document[3:])["message"] == "broken"


def test_only_the_journals_own_stream_is_the_journal(tmp_path: Path) -> None:
    """Device and inode must agree: a daemon whose output was redirected writes plain lines."""
    with (tmp_path / "stream").open("w") as stream, (tmp_path / "other").open("w") as other:
        found = os.fstat(stream.fileno())
        environment = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        closed = os.dup(stream.fileno())
        os.close(closed)
        for descriptor, variables, is_it in (
            (stream.fileno(), environment, True),
            (other.fileno(), environment, False),
            (stream.fileno(), {}, False),
            (closed, environment, False),
        ):
            assert goes_to_journal(variables, descriptor) is is_it
