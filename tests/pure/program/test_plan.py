"""The lines of a plan: what is read, what is refused, and by which sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.program.function import LONGEST_WORDS, OBJECT, NoPlan, plan_of
from reclaim.types import Action

# what str.isprintable() says
PRINTABLE = st.characters(exclude_categories=["C", "Z"]) | st.just(" ")
OBJECTS = st.lists(
    st.tuples(
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


def planned(printed: bytes) -> list[tuple[str, str, int | None]]:
    """The id, name and size of each object of this plan."""
    return [
        (verdict.id, verdict.name, verdict.size_bytes)
        for verdict in plan_of("prune", printed).remove
    ]


@given(OBJECTS)
def test_what_is_printed_is_planned_in_its_order(
    objects: list[tuple[str, int | None, str]],
) -> None:
    """Every object has a verdict, and an id of its own, also where names repeat; its
    reason stands behind its name.
    """
    plan = plan_of(
        "prune",
        b"".join(line(name=name, size=size, reason=reason) for name, size, reason in objects),
    )
    assert [(verdict.name, verdict.size_bytes) for verdict in plan.remove] == [
        (f"{name} ({reason})" if reason else name, size) for name, size, reason in objects
    ]
    assert len({verdict.id for verdict in plan.remove}) == len(objects)
    assert all(verdict.action is Action.REMOVE for verdict in plan.remove)


def test_only_a_name_is_needed() -> None:
    """Other keys are ignored, and so are empty lines."""
    found = planned(b'\n{"name": "a", "age": 3}\n  \n{"name": "b"}')
    assert found == [("prune/1", "a", None), ("prune/2", "b", None)]


def test_an_empty_object_says_that_the_question_is_known() -> None:
    """Alone: that nothing would be removed."""
    assert planned(b"{}\n") == []
    assert planned(b"{}\n" + line(name="a")) == [("prune/1", "a", None)]


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (b"", "printed nothing"),
        (b" \n\n", "printed nothing"),
        (b"3 files", f"printed as line 1 '3 files'; allowed is {OBJECT}"),
        (line(name="a") + b"[]", f"printed as line 2 '[]'; allowed is {OBJECT}"),
        (b"\xff\xfe", r"'\\xff\\xfe'; allowed is " + OBJECT),
        (b"[" * 4000, f"printed as line 1 '{'[' * 200}'; allowed is {OBJECT}"),
        *(
            (said, f"printed as line 1 '{said.decode()}'; allowed is {OBJECT}")
            for said in (
                b'{"size": 1}',
                b'{"name": ""}',
                b'{"name": 7}',
                b'{"name": "a", "size": "1Gi"}',
                b'{"name": "a", "size": -1}',
                b'{"name": "a", "size": 1.5}',
                b'{"name": "a", "size": true}',
                b'{"name": "a", "size": 1e999}',
                b'{"name": "a", "reason": []}',
                b'{"name": "a", "reason": null}',
            )
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
    try:
        plan_of("prune", printed)
    except NoPlan:
        pass


def test_long_words_are_cut_and_lone_surrogates_are_escaped() -> None:
    """What is shown can be printed."""
    assert planned(line(name="a" * 1000, reason="\ud800")) == [
        ("prune/1", "a" * LONGEST_WORDS + " (\\ud800)", None)
    ]
