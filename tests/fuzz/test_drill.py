"""Arbitrary scenarios are parsed to something that can be run, or refused in one sentence."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.drill.scenario import ScenarioError, scenario_of
from tests.drill.documents import IMAGEFS, document
from tests.fuzz.test_fuzz import one_sentence, plain

pytestmark = pytest.mark.timeout(3600)

WHOLE = document(
    node={
        "layout": "split",
        "imagefs": IMAGEFS,
        "configuration": {"extent": "all"},
        "runtime": {"pinsSandboxImage": False},
    },
    pressure=[
        {"grows": "inodes", "rate": "10", "amount": "full", "for": "1s", "fileSize": "1Ki"},
        {"grows": "pull", "rate": "1Mi", "image": {"name": "registry.example/new", "size": "1Mi"}},
    ],
    faults=[
        {
            "action": "delay",
            "by": "1s",
            "method": "ListImages",
            "at": "1s",
        },
        {"action": "away", "at": "1s", "lasts": "1s"},
    ],
    expect={
        "goes": ["image *"],
        "lowest": {"nodefs.available": "5%"},
        "diskPressure": {"comesWithin": "1s"},
    },
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a document."""
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(deeper for key, entry in entries for deeper in places(entry, (*path, key)))]


def changed(whole: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with one value replaced; the document itself is unchanged."""
    made = copy.deepcopy(whole)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    if path:
        inner[path[-1]] = value
    return made


anything = (
    plain
    | st.floats()
    | st.lists(plain, max_size=2)
    | st.dictionaries(st.text(max_size=8), plain, max_size=2)
)


def test_the_whole_scenario_can_be_used() -> None:
    """The unchanged document is valid."""
    assert len(scenario_of(WHOLE, "f").pressures) == 2


@given(st.sampled_from(places(WHOLE)), anything, st.sampled_from(places(WHOLE)), anything)
def test_scenarios(path: tuple[Any, ...], value: Any, other: tuple[Any, ...], again: Any) -> None:
    """The result is a scenario with valid numbers, or an error of one sentence."""
    try:
        made = changed(changed(WHOLE, path, value), other, again)
    except (KeyError, IndexError, TypeError):
        return  # the first change removed the place of the second
    try:
        found = scenario_of(made, "f")
    except ScenarioError as error:
        one_sentence(error, "f: ")
        return
    assert all(pressure.rate > 0 and pressure.after_seconds >= 0 for pressure in found.pressures)
    assert all(spec.size_bytes > 0 and spec.inodes > 0 for spec in found.node.filesystems.values())
