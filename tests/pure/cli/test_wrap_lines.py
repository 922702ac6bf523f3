"""Lines wider than the terminal are continued on indented lines, and no word is broken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eviction.cli.output import wrap_lines

words = st.text("abc-/.", min_size=1, max_size=30)


def test_a_long_line_is_continued_indented() -> None:
    """Four columns further than it began."""
    assert list(wrap_lines(["  do:   raise the limit in the configuration"], 30)) == [
        "  do:   raise the limit in the",
        "      configuration",
    ]


def test_a_word_that_is_too_long_is_kept_whole() -> None:
    """The terminal wraps it, and it can be copied."""
    line = "keep    registry.example/" + "x" * 60
    assert list(wrap_lines([line], 40)) == [line]


@given(st.lists(st.lists(words, min_size=1, max_size=10).map(" ".join)), st.integers(20, 120))
def test_no_word_is_lost_or_broken(lines: list[str], width: int) -> None:
    """Whatever the width; and without a terminal every line stays as it is."""
    assert " ".join(wrap_lines(lines, width)).split() == " ".join(lines).split()
    assert list(wrap_lines(lines, None)) == lines
