"""What a program prints becomes lines, however it comes in pieces, and never more than is allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reclaim.programs.output import KEPT_BYTES, LONGEST_LINE, MOST_LINES, LoggedLines, Share

PIECES = st.lists(st.binary(max_size=3 * LONGEST_LINE) | st.sampled_from([b"\n", b"a", b"b\n"]), max_size=40)


def logged(pieces: list[bytes]) -> tuple[list[str], Share]:
    """The lines of an output that comes in these pieces."""
    lines: list[str] = []
    share = Share()
    output = LoggedLines(lines.append, share)
    for piece in pieces:
        assert output.write(piece)
    output.end()
    return lines, share


@given(PIECES)
def test_the_pieces_make_no_difference(pieces: list[bytes]) -> None:
    """A line may come in many of them, and many lines in one."""
    assert logged(pieces)[0] == logged([b"".join(pieces)])[0]


@given(PIECES)
def test_no_more_is_logged_than_is_allowed(pieces: list[bytes]) -> None:
    """Lines, and bytes of a line."""
    lines, share = logged(pieces)
    assert len(lines) <= MOST_LINES
    assert all(line.strip("\r \t\x0b\x0c") for line in lines)
    assert all(len(line.encode()) <= 4 * LONGEST_LINE + len(" …".encode()) for line in lines)
    assert share.bytes >= 0


def test_two_outputs_share_what_is_allowed() -> None:
    """One cannot double it by printing to both."""
    lines: list[str] = []
    share = Share()
    outputs = [LoggedLines(lines.append, share) for _ in range(2)]
    for output in outputs * MOST_LINES:
        output.write(b"line\n")
    assert len(lines) == MOST_LINES
    assert share.dropped_bytes == MOST_LINES * len("line\n")
    for output in outputs:
        output.write(b"x" * KEPT_BYTES)
    assert all(output.dropping for output in outputs)
    assert share.dropped_bytes >= KEPT_BYTES


def test_the_last_line_is_known_however_much_came_before_it() -> None:
    """Also where nothing is logged any more; a long one is cut."""
    output = LoggedLines(lambda _: None, Share())
    for _ in range(100):
        output.write(b"x" * 10_000)
    output.write(b"\nno space left on device\n\n")
    assert output.last_line == "no space left on device"
    output.write(b"y" * 5000)
    assert output.last_line == "y" * 200
