"""Charts are well-formed SVG, stay inside their area, and label what they show."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.drill.report.timeline import (
    HEIGHT,
    LEFT,
    LINE,
    PLOT,
    TOP,
    WIDTH,
    Event,
    Lane,
    MarkLine,
    Series,
    chart_svg,
    lanes_svg,
)
from tests.picture import sheet

seconds = st.floats(-1e6, 1e6, allow_nan=False)
amounts = st.integers(-(2**63), 2**63)
texts = st.text(max_size=20)


def tree(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 # our own drawing


def chart(
    points: list[tuple[float, float]], *marks: MarkLine, ended: float = 2.0
) -> ElementTree.Element:
    return tree(chart_svg("a chart", ended, [Series("s", points)], marks=marks, inodes=True))


def labels(drawn: ElementTree.Element) -> dict[str, float]:
    """Texts of a drawing and how far down they are."""
    return {text.text or "": float(text.get("y", "nan")) for text in drawn.iter("text")}


@given(
    st.lists(st.tuples(seconds, amounts), max_size=20),
    st.lists(st.builds(MarkLine, texts, amounts), max_size=5),
    st.lists(st.builds(Event, texts, texts, seconds, seconds), max_size=3),
    st.lists(st.builds(Event, texts, texts, seconds, st.none()), max_size=5),
    seconds,
    st.booleans(),
)
def test_whatever_is_drawn_is_well_formed(
    points: list[tuple[float, float]],
    marks: list[MarkLine],
    spans: list[Event],
    ticks: list[Event],
    ended: float,
    inodes: bool,
) -> None:
    """Any times, amounts and names give one SVG element without NaN."""
    svg = chart_svg("c", ended, [Series("s", points)], marks=marks, inodes=inodes)
    lanes = lanes_svg("l", ended, [Lane("a lane", spans), Lane("another", ticks)])
    for drawing in (svg, lanes):
        assert tree(drawing).tag == "svg"
        assert "nan" not in {
            text for element in tree(drawing).iter() for text in element.attrib.values()
        }


def test_a_line_goes_down_as_the_disk_fills() -> None:
    """More is higher, later is further right, and the ends are where the axes end."""
    (path,) = chart([(0.0, 100.0), (2.0, 0.0)]).iter("path")
    assert path.get("d") == f"M{LEFT:.1f} {TOP:.1f}L{LEFT + PLOT:.1f} {HEIGHT - 34:.1f}"


def test_marks_that_lie_close_have_labels_apart() -> None:
    """Each mark keeps its height; labels move apart only as far as needed."""
    near = labels(chart([(0.0, 100.0)], MarkLine("low", 50.0), MarkLine("high", 51.0)))
    far = labels(chart([(0.0, 100.0)], MarkLine("low", 10.0), MarkLine("high", 90.0)))
    assert near["low"] - near["high"] == pytest.approx(LINE)
    assert far["low"] - far["high"] > 100.0


@pytest.mark.parametrize("amount", [0.0, 50.0, 100.0])
def test_the_labels_of_marks_that_lie_close_stay_in_the_chart(amount: float) -> None:
    """At the bottom, in the middle and at the top, five of them: none above the chart,
    below it, or over another.
    """
    drawn = labels(chart([(0.0, 100.0)], *(MarkLine(f"mark {n}", amount) for n in range(5))))
    places = sorted(place for text, place in drawn.items() if text.startswith("mark"))
    assert places[0] >= LINE - 5
    assert places[-1] <= HEIGHT
    assert all(lower - upper >= LINE - 0.1 for upper, lower in pairwise(places))


# How wide a character of DejaVu Sans is, which is wider than what browsers use for system-ui: in
# units of the size of the font, of the bold font for titles. Others count as the widest letter.
WIDE = {
    **dict.fromkeys("fijlrtI.,:;' ()|", 0.41), **dict.fromkeys("abcdeghknopqsuvxyzFJLEST/-ck", 0.64),
    **dict.fromkeys("0123456789", 0.64), **dict.fromkeys("ABCDGHKNOPQRUVXYZw%+=", 0.85),
}  # fmt: skip


def assert_nothing_is_clipped(svg: str) -> None:
    """Each text ends within the drawing that it is in, even in a wide font."""
    for drawing in [root := tree(svg), *(each for each in root.iter() if each.tag.endswith("svg"))]:
        for text in drawing:
            if not text.tag.endswith("text"):
                continue
            style, shown = text.get("class", ""), text.text or ""
            size = 17.0 if style == "title" else 13.0
            wide = size * sum(WIDE.get(character, 1.0) for character in shown)
            share = 1.0 if "end" in style.split() else 0.5 if "middle" in style.split() else 0.0
            left = float(text.get("x", "nan")) - share * wide
            assert left >= 0.0, shown
            assert left + wide <= WIDTH, shown


def test_nothing_is_clipped_at_any_edge() -> None:
    """Titles and sentences continue on another line; labels that are too long even for
    their margin end with `…`.
    """
    marks = [
        MarkLine("nodefs 10% + 5% = 1023.9MiB", 50.0),
        MarkLine("a-filesystem-of-your-own 10Mi = 10.0MiB", 20.0),
    ]
    lines = [
        Series("A (pressured-node, observed)", [(0.0, 9e9)]),
        Series("B: with reclaimd", [(0.0, 1.0)], "b"),
    ]
    name = "bytes available on nodefs, imagefs, containerfs (of 1023.9GiB); marks of A"
    drawn = chart_svg(name, 2.0, lines, marks=marks)
    lanes = lanes_svg(
        "l",
        2.0,
        [Lane("A: ReclaimPressure", []), Lane("A: sandboxes removed", [])],
        axis="seconds " * 9,
    )
    sentence = (
        "The kubelet alone: first byte freed 8.21s after its mark is crossed, 22 of 31 images"
        " removed. " * 3
    )
    svg = sheet(
        "A disk that fills is relieved before pods suffer: " * 2,
        [sentence],
        [(name, drawn), ("l", lanes)],
    )
    assert_nothing_is_clipped(svg)
    shown = [text.text for text in tree(svg).iter() if text.tag.endswith("text")]
    assert "nodefs 10% + 5% = 1023.9…" in shown
    assert "A: ReclaimPressure" in shown
    assert sum((text or "").count("22 of 31 images removed") for text in shown) >= 1


def test_a_lane_says_what_its_events_come_to() -> None:
    """How many moments, how long a condition lasted, and `none` where an
    empty row could be a mistake.
    """
    lanes = [
        Lane("ReclaimPressure", [Event("", "mark", 0.5, 1.75)]),
        Lane("images removed", [Event("", "image", 1.0), Event("", "image", 1.1)]),
        Lane("pods ended", []),
        Lane("passes", [Event("", "image", 1.0)], "17, in 1 pass"),
    ]
    shown = [text.text for text in tree(lanes_svg("l", 2.0, lanes, axis="seconds")).iter("text")]
    beside = ["1.25s", "2", "none", "17, in 1 pass"]
    assert [text for text in shown if text in beside] == beside
    assert shown[-1] == "seconds"


def test_several_lines_are_named_in_their_colours() -> None:
    """One alone needs no name."""
    two = tree(
        chart_svg("c", 1.0, [Series("alone", [(0.0, 1.0)]), Series("beside", [(0.0, 1.0)], "b")])
    )
    names = {text.text: text.get("class") for text in two.iter("text")}
    assert (names["alone"], names["beside"]) == ("a", "b")
    assert "alone" not in labels(tree(chart_svg("c", 1.0, [Series("alone", [(0.0, 1.0)])])))


def test_bytes_are_counted_in_powers_of_two() -> None:
    """So that each tick is a round amount."""
    drawn = labels(tree(chart_svg("c", 1.0, [Series("s", [(0.0, 1.7 * 2**30)])])))
    assert {"0B", "512MiB", "1GiB", "1.5GiB", "2GiB"} <= drawn.keys()
