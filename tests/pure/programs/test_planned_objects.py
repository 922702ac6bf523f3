"""The lines of a plan: what is read, what is refused, and by which sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.programs.plan import plan_objects, plan_run
from reclaim.programs.planned_objects import (
    LONGEST_LINE,
    LONGEST_WORDS,
    MOST_BYTES,
    MOST_LINES,
    NoPlan,
    PlannedObject,
    PlanOutput,
    planned_objects,
)
from reclaim.types import Action

PRINTABLE = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")  # what str.isprintable() says
OBJECTS = st.lists(
    st.builds(
        PlannedObject,
        st.text(PRINTABLE, min_size=1, max_size=LONGEST_WORDS),
        st.none() | st.integers(0, 1 << 50),
        st.text(PRINTABLE, max_size=LONGEST_WORDS),
    ),
    min_size=1,
    max_size=20,
)


def line(**fields: Any) -> bytes:
    """A line of a plan."""
    return json.dumps(fields).encode() + b"\n"


@given(OBJECTS)
def test_what_is_printed_is_planned_in_its_order(objects: list[PlannedObject]) -> None:
    """Every object has a verdict, and an id of its own, also where names repeat."""
    printed = b"".join(line(name=each.name, size=each.size_bytes, reason=each.reason) for each in objects)
    assert list(planned_objects(printed)) == objects
    plan = plan_objects("prune", objects)
    assert [verdict.size_bytes for verdict in plan.remove] == [each.size_bytes for each in objects]
    assert len({verdict.id for verdict in plan.remove}) == len(objects)
    assert all(verdict.action is Action.REMOVE for verdict in plan.remove)


def test_only_a_name_is_needed() -> None:
    """Other keys are ignored, and so are empty lines."""
    assert planned_objects(b'\n{"name": "a", "age": 3}\n  \n{"name": "b"}') == (
        PlannedObject("a", None, ""),
        PlannedObject("b", None, ""),
    )


def test_an_empty_object_says_that_the_question_is_known() -> None:
    """Alone: that nothing would be removed."""
    assert planned_objects(b"{}\n") == ()
    assert planned_objects(b"{}\n" + line(name="a")) == (PlannedObject("a", None, ""),)


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (b"", "printed nothing"),
        (b" \n\n", "printed nothing"),
        (b"3 files", "printed a line 1 that is no JSON object"),
        (b"[]", "printed a line 1 that is no JSON object"),
        (b"\xff\xfe", "printed a line 1 that is no JSON object"),
        (b"[" * 4000, "printed a line 1 that is no JSON object"),
        (b'{"size": 1}', "printed a line 1 whose name is missing; allowed is a string"),
        (b'{"name": ""}', 'printed a line 1 whose name is ""; allowed is a string'),
        (b'{"name": 7}', "printed a line 1 whose name is 7; allowed is a string"),
        (b'{"name": "a", "size": "1Gi"}', 'a line 1 whose size is "1Gi"; allowed is a whole number of bytes'),
        (b'{"name": "a", "size": -1}', "a line 1 whose size is -1; allowed is a whole number of bytes"),
        (b'{"name": "a", "size": 1.5}', "a line 1 whose size is 1.5; allowed is a whole number of bytes"),
        (b'{"name": "a", "size": true}', "a line 1 whose size is true; allowed is a whole number of bytes"),
        (b'{"name": "a", "size": 1e999}', "a line 1 whose size is Infinity; allowed is a whole number of bytes"),
        (b'{"name": "a", "reason": []}', "printed a line 1 whose reason is []; allowed is a string"),
        (line(name="a" * LONGEST_LINE), f"printed a line 1 of {LONGEST_LINE + 12} bytes; allowed are {LONGEST_LINE}"),
        (line(name="a") * (MOST_LINES + 1), f"printed {MOST_LINES + 1} lines; allowed are {MOST_LINES}"),
        (b"x" * (MOST_BYTES + 1), f"printed more than {MOST_BYTES} bytes"),
    ],
)
def test_what_is_no_plan(printed: bytes, told: str) -> None:
    """Each with its own sentence."""
    with pytest.raises(NoPlan) as refused:
        planned_objects(printed)
    assert str(refused.value).endswith(told)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_anything_that_is_printed_is_a_plan_or_none(printed: bytes) -> None:
    """Never another error."""
    try:
        planned_objects(printed)
    except NoPlan:
        pass


def test_long_words_are_cut_and_lone_surrogates_are_escaped() -> None:
    """What is shown can be printed."""
    (each,) = planned_objects(line(name="a" * 1000, reason="\ud800"))
    assert each == PlannedObject("a" * LONGEST_WORDS, None, "\\ud800")


def test_an_output_keeps_what_a_plan_may_be_and_a_byte_more() -> None:
    """That byte tells that it is too much."""
    output = PlanOutput()
    assert output.write(b"x" * MOST_BYTES)
    assert not output.write(b"x" * MOST_BYTES)
    assert len(output.printed) == MOST_BYTES + 1


def test_a_run_is_one_object() -> None:
    """Its id is the name of the function."""
    (verdict,) = plan_run("prune", "/bin/prune").remove
    assert (verdict.kind, verdict.id, verdict.name, verdict.size_bytes) == ("program", "prune", "/bin/prune", None)
