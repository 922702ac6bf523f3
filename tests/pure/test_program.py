"""Programs as reclaim functions: the lines of a plan, and what is kept of an output."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.program.function import (
    KEPT_BYTES,
    LONGEST_LINE,
    LONGEST_WORDS,
    MOST_LINES,
    OBJECT,
    NoPlan,
    Printed,
    plan_of,
)
from reclaim.types import Action

# what str.isprintable() says
PRINTABLE = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")
WORDS = st.text(PRINTABLE, max_size=20)
OBJECTS = st.tuples(
    st.text(PRINTABLE, min_size=1, max_size=20),
    st.none() | st.integers(0, 1 << 50),
    WORDS,
)


def line(**fields: Any) -> bytes:
    """A line of a plan."""
    return json.dumps(fields).encode() + b"\n"


def planned(printed: bytes) -> list[tuple[str, str, int | None]]:
    """The id, name and size of each object of this plan."""
    return [(each.id, each.name, each.size_bytes) for each in plan_of("prune", printed).remove]


@given(st.lists(OBJECTS, min_size=1, max_size=9))
def test_what_is_printed_is_planned_in_its_order(
    objects: list[tuple[str, int | None, str]],
) -> None:
    """Every object has a verdict, and an id of its own, also where names repeat; its reason stands
    behind its name."""
    printed = b"".join(line(name=name, size=size, reason=reason) for name, size, reason in objects)
    assert planned(printed) == [
        (f"prune/{number}", f"{name} ({reason})" if reason else name, size)
        for number, (name, size, reason) in enumerate(objects, 1)
    ]
    assert {each.action for each in plan_of("prune", printed).remove} == {Action.REMOVE}


def test_only_a_name_is_needed() -> None:
    """Other keys are ignored, and so are empty lines; an empty object alone says that nothing would
    be removed. Long words are cut, and what is shown can be printed."""
    found = planned(b'\n{"name": "a", "age": 3}\n  \n{"name": "b"}')
    assert found == [("prune/1", "a", None), ("prune/2", "b", None)]
    assert planned(b"{}\n") == []
    assert planned(b"{}\n" + line(name="a")) == found[:1]
    long = planned(line(name="a" * 1000, reason="\ud800"))
    assert long == [("prune/1", "a" * LONGEST_WORDS + " (\\ud800)", None)]


NO_OBJECTS = """
{"size": 1}
{"name": ""}
{"name": 7}
{"name": "a", "size": "1Gi"}
{"name": "a", "size": -1}
{"name": "a", "size": 1.5}
{"name": "a", "size": true}
{"name": "a", "size": 1e999}
{"name": "a", "reason": []}
{"name": "a", "reason": null}
3 files
[]
"""


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (b"", "printed nothing"),
        (b" \n\n", "printed nothing"),
        (b"\xff\xfe", rf"'\\xff\\xfe'; allowed is {OBJECT}"),
        (b"[" * 4000, f"printed as line 1 '{'[' * 200}'; allowed is {OBJECT}"),
        *(
            (line(name="a") + said.encode(), f"printed as line 2 '{said}'; allowed is {OBJECT}")
            for said in NO_OBJECTS.strip().splitlines()
        ),
    ],
)
def test_what_is_no_plan(printed: bytes, told: str) -> None:
    """The sentence has the line, and what is allowed."""
    with pytest.raises(NoPlan) as refused:
        plan_of("prune", printed)
    assert str(refused.value).endswith(told)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_anything_that_is_printed_is_a_plan_or_none(printed: bytes) -> None:
    """Never another error."""
    with suppress(NoPlan):
        plan_of("prune", printed)


PIECES = st.lists(
    st.binary(max_size=3 * LONGEST_LINE) | st.sampled_from([b"\n", b"a", b"b\n"]), max_size=20
)


def logged(pieces: list[tuple[int, bytes]]) -> tuple[list[str], str]:
    """The lines of outputs that come in these pieces, and how much was not logged."""
    lines: list[str] = []
    output = Printed(lines.append)
    for number, piece in pieces:
        output.take(number, piece)
    output.end()
    more = lines.pop() if lines and lines[-1].endswith("are not logged]") else ""
    return lines, more


@given(PIECES)
def test_lines_come_in_any_pieces_and_no_more_is_logged_than_is_allowed(
    pieces: list[bytes],
) -> None:
    """A line may come in many of them, and many lines in one; lines are limited, and bytes of a
    line."""
    lines, _ = logged([(0, piece) for piece in pieces])
    assert lines == logged([(0, b"".join(pieces))])[0]
    assert len(lines) <= MOST_LINES
    assert all(line.strip("\r \t\x0b\x0c") for line in lines)
    assert all(len(line.encode()) <= 4 * LONGEST_LINE + len(" …".encode()) for line in lines)


def test_two_outputs_share_what_is_allowed() -> None:
    """One cannot double it by printing to both; how much was not logged is told at the end."""
    ends = [(0, b"x" * KEPT_BYTES), (1, b"x" * KEPT_BYTES + b"\n")]
    lines, more = logged([(number, b"line\n") for number in (0, 1) * MOST_LINES] + ends)
    assert lines == ["line"] * MOST_LINES
    dropped = int(more.removeprefix("[").split()[0])
    assert 0 <= dropped - 2 * KEPT_BYTES - MOST_LINES * len("line\n") <= 2  # ends of lines


def test_the_last_line_is_known_however_much_came_before_it() -> None:
    """Also where nothing is logged any more; a long one is cut, and that of the errors comes first."""
    output, found = Printed(lambda _: None), list[str]()
    for number, piece in (
        *[(0, b"x" * 10_000)] * 100,
        (0, b"\nno space left on device\n\n"),
        (0, b"y" * 5000),
        (1, b"an error\n"),
        (0, b"z\n"),
    ):
        output.take(number, piece)
        found.append(output.last_line)
    assert found[100:] == ["no space left on device", "y" * 200, "an error", "an error"]
