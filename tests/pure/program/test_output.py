"""What a program prints becomes lines, however it comes in pieces, and never
more than is allowed.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reclaim.program.function import KEPT_BYTES, LONGEST_LINE, MOST_LINES, Printed

PIECES = st.lists(
    st.binary(max_size=3 * LONGEST_LINE) | st.sampled_from([b"\n", b"a", b"b\n"]), max_size=40
)


def logged(pieces: list[bytes]) -> list[str]:
    """The lines of an output that comes in these pieces, without how much was not logged."""
    lines: list[str] = []
    output = Printed(lines.append)
    for piece in pieces:
        output.take(0, piece)
    output.end()
    return lines[:-1] if lines and lines[-1].endswith("are not logged]") else lines


@given(PIECES)
def test_the_pieces_make_no_difference(pieces: list[bytes]) -> None:
    """A line may come in many of them, and many lines in one."""
    assert logged(pieces) == logged([b"".join(pieces)])


@given(PIECES)
def test_no_more_is_logged_than_is_allowed(pieces: list[bytes]) -> None:
    """Lines, and bytes of a line."""
    lines = logged(pieces)
    assert len(lines) <= MOST_LINES
    assert all(line.strip("\r \t\x0b\x0c") for line in lines)
    assert all(len(line.encode()) <= 4 * LONGEST_LINE + len(" …".encode()) for line in lines)


def test_two_outputs_share_what_is_allowed() -> None:
    """One cannot double it by printing to both; how much was not logged is told at the end."""
    lines: list[str] = []
    output = Printed(lines.append)
    for number in (0, 1) * MOST_LINES:
        output.take(number, b"line\n")
    output.take(0, b"x" * KEPT_BYTES)
    output.take(1, b"x" * KEPT_BYTES + b"\n")
    output.end()
    *logged_lines, more = lines
    assert logged_lines == ["line"] * MOST_LINES
    assert int(more.removeprefix("[").split()[0]) >= KEPT_BYTES + MOST_LINES * len("line\n")


def test_the_last_line_is_known_however_much_came_before_it() -> None:
    """Also where nothing is logged any more; a long one is cut, and that of the
    errors comes first.
    """
    output = Printed(lambda _: None)
    for _ in range(100):
        output.take(0, b"x" * 10_000)
    output.take(0, b"\nno space left on device\n\n")
    assert output.last_line == "no space left on device"
    output.take(0, b"y" * 5000)
    assert output.last_line == "y" * 200
    output.take(1, b"an error\n")
    output.take(0, b"z\n")
    assert output.last_line == "an error"
