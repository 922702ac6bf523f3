"""Tables in a terminal: every line fits, texts go on below, and columns are
left out in a stated order.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.wording.log import escaped
from eviction.wording.tables import LEFT_OUT_FIRST, NAMES, TEXTS, table

OBJECTS = ["RESULT", "KIND", "NAME", "SIZE", "AGE", "FREED", "REASON", "RULE", "IN WORDS"]
ROWS = [
    OBJECTS,
    [
        "removed",
        "image",
        "registry.example/app:1",
        "1.0MiB",
        "2h",
        "2.0MiB",
        "unused",
        "kubelet",
        "no container uses it",
    ],
    [
        "keep",
        "container",
        "shop/" + "x" * 60,
        "-",
        "-",
        "-",
        "newest_of_live_pod",
        "guard",
        "is how it is known",
    ],
]


def heads(lines: list[str]) -> list[str]:
    """The heads that are shown."""
    return [head for head in OBJECTS if f" {head} " in f" {lines[0]} "]


def test_data_in_a_pipe_has_every_column_and_lines_of_any_length() -> None:
    """Each row is one line, however long its names."""
    lines = table(ROWS, None)
    assert [len(lines), heads(lines)] == [3, OBJECTS]
    assert "shop/" + "x" * 60 in lines[2]


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (200, set()),
        (110, set()),
        (80, {"IN WORDS", "RULE", "AGE"}),
        (60, {"IN WORDS", "RULE", "AGE", "FREED", "SIZE", "KIND"}),
    ],
)
def test_columns_are_left_out_in_the_stated_order(width: int, left_out: set[str]) -> None:
    """At 80 columns objects have result, kind, name, size and reason; at 60 result, name and
    reason.
    """
    lines = table(ROWS, width)
    assert set(OBJECTS) - set(heads(lines)) == left_out
    assert max(map(len, lines)) <= width


def test_of_a_name_the_end_is_shown_and_a_text_goes_on_below() -> None:
    """Nothing of a text is lost, and no word of it is broken that fits."""
    rows = [
        ["NAME", "IN WORDS"],
        ["registry.example/some/team/app:1.2.3", "a container uses it, and another one too"],
    ]
    assert table(rows, 45) == [
        "NAME                         IN WORDS",
        "…xample/some/team/app:1.2.3  a container uses",
        "                             it, and another",
        "                             one too",
    ]


def test_a_path_goes_on_after_a_slash() -> None:
    """And the name of a field after a dot."""
    rows = [
        ["FIELD", "VALUE"],
        ["evictionSoftGracePeriod.nodefs.available", "/var/lib/kubelet/pods"],
    ]
    assert table(rows, 44) == [
        "FIELD                        VALUE",
        "evictionSoftGracePeriod.     /var/lib/",
        "nodefs.available             kubelet/pods",
    ]


cells = st.text("ab ./,:=é\n", max_size=90)


@given(
    st.lists(st.sampled_from(LEFT_OUT_FIRST), unique=True, max_size=9),
    cells,
    cells,
    st.data(),
    st.integers(45, 200),
)
@pytest.mark.parametrize("last", ["NAME", "WHY"])
def test_every_line_fits_and_no_text_is_lost(
    last: str, heads: list[str], one: str, other: str, data: st.DataObject, width: int
) -> None:
    """Whatever the cells are, from 45 columns on."""
    short = [data.draw(st.text("x", max_size=12)) for _ in heads]
    rows = [["RESULT", *heads, last], ["1", *short, one], ["2", *short, other]]
    lines = table(rows, width)
    assert max(map(len, lines)) <= width
    if last == "WHY":
        begins = lines[0].index("WHY")
        texts = "".join("".join(line[begins:].split()) for line in lines[1:])
        assert texts == "".join((escaped(one) + escaped(other)).split())


def test_the_stated_order_names_columns_that_exist() -> None:
    """A head that is left out is not the first of its table; names and texts
    are different columns.
    """
    assert not NAMES & TEXTS
    assert len(set(LEFT_OUT_FIRST)) == len(LEFT_OUT_FIRST)
