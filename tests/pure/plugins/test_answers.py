"""What a plugin answers is taken over whole, or refused with one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.plugins import A_WORD, KINDS_ALLOWED, MOST_OBJECTS, Found, PluginFailed, kinds_of, plan_of, said
from reclaim.types import Action, Rule, Verdict

KINDS = ("crate", "box")
WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True)
SECONDS = st.none() | st.floats(0, 1e9)
FOUND = st.builds(
    Found,
    id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    remove=st.booleans(),
    reason=WORDS,
    size_bytes=st.none() | st.integers(0, 2**63 - 1),
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    kind=st.sampled_from(["", *KINDS]),
    age_seconds=SECONDS,
    eligible_in_seconds=SECONDS,
)
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("field", "value", "said_of_it"),
    [
        ("id", "", "the id of an object is ''"),
        ("id", 7, "the id of an object is 7; allowed is text of at most 4096 characters"),
        ("id", "x" * 4097, "the id of an object is 'xxx"),
        ("id", "\ud800", "the id of an object is '\\ud800'"),
        ("name", b"x", "name of object 'a' is b'x'"),
        ("name", None, "name of object 'a' is None"),
        ("name", ["x"] * 1000, "name of object 'a' is of type list"),
        ("kind", "Crate", "kind of object 'a' is 'Crate'; allowed is a word of at most 32 characters"),
        ("kind", 1, "kind of object 'a' is 1"),
        ("remove", 1, "remove of object 'a' is 1; allowed is True or False"),
        ("remove", None, "remove of object 'a' is None"),
        ("reason", "", "reason of object 'a' is ''"),
        ("reason", "too old", "reason of object 'a' is 'too old'"),
        ("reason", "x" * 33, "reason of object 'a' is 'xxx"),
        ("reason", "old\n", "reason of object 'a' is 'old\\n'"),
        ("size_bytes", -1, "size_bytes of object 'a' is -1; allowed is None, or an int from 0 to 2^63 - 1"),
        ("size_bytes", 2**63, "size_bytes of object 'a' is 9223372036854775808"),
        ("size_bytes", 1.5, "size_bytes of object 'a' is 1.5"),
        ("size_bytes", NAN, "size_bytes of object 'a' is nan"),
        ("size_bytes", True, "size_bytes of object 'a' is True"),
        ("size_bytes", "1Gi", "size_bytes of object 'a' is '1Gi'"),
        ("age_seconds", NAN, "age_seconds of object 'a' is nan; allowed is None, or a number of seconds from 0"),
        ("age_seconds", INFINITE, "age_seconds of object 'a' is inf"),
        ("age_seconds", -0.1, "age_seconds of object 'a' is -0.1"),
        ("age_seconds", 10**400, "age_seconds of object 'a' is 1000"),
        ("eligible_in_seconds", "1h", "eligible_in_seconds of object 'a' is '1h'"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_where_it_is_made(field: str, value: Any, said_of_it: str) -> None:
    """The sentence names the object, the field, the value, cut, and what is allowed."""
    with pytest.raises(ValueError, match="allowed is") as refused:
        Found(**{"id": "a", "remove": True, "reason": "old", field: value})
    assert str(refused.value).startswith(said_of_it)
    assert len(str(refused.value)) < 250


@given(st.lists(FOUND, max_size=20, unique_by=lambda found: found.id))
def test_every_object_has_one_verdict_and_the_order_stays(objects: list[Found]) -> None:
    """Those to remove are the plugin's, in its order, and each verdict leads back to its object."""
    plan, found = plan_of(iter(objects), KINDS)
    assert [found[verdict.id] for verdict in plan.remove] == [each for each in objects if each.remove]
    assert [found[verdict.id] for verdict in plan.keep] == [each for each in objects if not each.remove]
    for verdict in plan.remove + plan.keep:
        each = found[verdict.id]
        assert (verdict.reason, verdict.size_bytes, verdict.age_seconds) == (
            each.reason,
            each.size_bytes,
            each.age_seconds,
        )
        assert verdict.kind == (each.kind or "crate")
        assert verdict.rule is Rule.GUARD


def test_only_what_is_kept_waits() -> None:
    """What may go now is not eligible later."""
    objects = [Found("a", True, "old", eligible_in_seconds=5), Found("b", False, "young", eligible_in_seconds=7)]
    plan, _ = plan_of(objects, KINDS)
    assert plan.remove == (Verdict("crate", "a", "a", Action.REMOVE, "old", rule=Rule.GUARD),)
    assert plan.eligible_in_seconds == 7


def test_names_of_files_that_are_no_text_are_shown_and_stay_different() -> None:
    """A name that is not UTF-8, and one that looks as the first is shown."""
    plan, found = plan_of([Found("a\udcff", True, "old"), Found("a\\xff", True, "old")], KINDS)
    assert [verdict.id for verdict in plan.remove] == ["a\\xff", "a\\\\xff"]
    assert [each.id for each in found.values()] == ["a\udcff", "a\\xff"]


@pytest.mark.parametrize(
    ("objects", "said_of_it"),
    [
        ([Found("a", True, "old"), Found("a", False, "young")], "two objects of its plan have the id 'a'"),
        (["a"], "an object of its plan is 'a'; allowed is reclaim.plugins.Found"),
        ([None], "an object of its plan is None; allowed is reclaim.plugins.Found"),
        ([Found("a", True, "old", kind="barrel")], "the kind of 'a' is 'barrel'; its kinds are crate, box"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(objects: list[object], said_of_it: str) -> None:
    """All of it."""
    with pytest.raises(PluginFailed) as refused:
        plan_of([Found("z", True, "old"), *objects], KINDS)
    assert str(refused.value) == said_of_it


def test_ten_million_objects_are_not_waited_for() -> None:
    """No more than one beyond the bound is taken."""
    taken = 0

    def objects() -> Iterator[Found]:
        nonlocal taken
        for number in range(10_000_000):
            taken += 1
            yield Found(str(number), True, "old")

    with pytest.raises(PluginFailed, match=r"^its plan has more than 100000 objects$"):
        plan_of(objects(), KINDS)
    assert taken == MOST_OBJECTS + 1


def test_reasons_without_end_are_refused() -> None:
    """They are labels of metrics."""
    objects = [Found(str(number), False, f"reason_{number}") for number in range(33)]
    assert len(plan_of(objects[:32], KINDS)[0].keep) == 32
    with pytest.raises(PluginFailed, match=r"^its plan has more than 32 different reasons$"):
        plan_of(objects, KINDS)


def test_as_many_objects_as_are_allowed_are_a_plan() -> None:
    """The bound itself."""
    plan, _ = plan_of((Found(str(number), True, "old") for number in range(MOST_OBJECTS)), KINDS)
    assert len(plan.remove) == MOST_OBJECTS


@pytest.mark.parametrize("kinds", [("crate",), ["crate", "box"], tuple(f"kind_{number}" for number in range(8))])
def test_kinds_are_words(kinds: Any) -> None:
    """One to eight of them."""
    assert kinds_of(kinds) == tuple(kinds)


@pytest.mark.parametrize(
    "kinds",
    [
        "crate",
        {"crate"},
        None,
        (),
        ("crate", "crate"),
        tuple(f"kind_{number}" for number in range(9)),
        ("build cache",),
        (7,),
        ([],),
        ("image",),
    ],
)
def test_kinds_that_are_not_allowed_are_refused(kinds: object) -> None:
    """They are labels of metrics, and an image is the kubelet's."""
    with pytest.raises(PluginFailed) as refused:
        kinds_of(kinds)
    assert str(refused.value) == f"its kinds are {kinds!r:.100}; allowed is {KINDS_ALLOWED}, each {A_WORD}"


class Unspeakable(Exception):
    """An error whose text is an error."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\nlines\t "), "ValueError: two lines"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyError(), "KeyError: it says nothing more"),
        (OSError("x" * 1000), f"OSError: {'x' * 300}..."),
        (Unspeakable(), "Unspeakable: its text cannot be read"),
    ],
)
def test_an_error_is_one_line_of_bounded_length(error: BaseException, line: str) -> None:
    """Whatever it says."""
    assert said(error) == line
