"""Charts are well-formed SVG, stay inside their area, and label what they show."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.drill.report.timeline import HEIGHT, LEFT, PLOT, TOP, Event, MarkLine, Series, chart_svg, lanes_svg

seconds = st.floats(-1e6, 1e6, allow_nan=False)
amounts = st.integers(-(2**63), 2**63)
texts = st.text(max_size=20)


def tree(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 # our own drawing


def chart(
    points: list[tuple[float, float]], *marks: MarkLine, began: float = 0.0, ended: float = 2.0
) -> ElementTree.Element:
    return tree(chart_svg("a chart", began, ended, [Series("s", points)], marks, inodes=True))


def labels(drawn: ElementTree.Element) -> dict[str, float]:
    """Texts of a drawing and how far down they are."""
    return {text.text or "": float(text.get("y", "nan")) for text in drawn.iter("text")}


@given(
    st.lists(st.tuples(seconds, amounts), max_size=20),
    st.lists(st.builds(MarkLine, texts, amounts), max_size=5),
    st.lists(st.builds(Event, texts, texts, seconds, seconds), max_size=3),
    st.lists(st.builds(Event, texts, texts, seconds), max_size=5),
    seconds,
    seconds,
    st.booleans(),
)
def test_whatever_is_drawn_is_well_formed(
    points: list[tuple[float, float]],
    marks: list[MarkLine],
    spans: list[Event],
    ticks: list[Event],
    began: float,
    ended: float,
    inodes: bool,
) -> None:
    """Any times, amounts and names give one SVG element without NaN."""
    svg = chart_svg("c", began, ended, [Series("s", points)], marks, [*spans, *ticks], inodes=inodes)
    lanes = lanes_svg("l", began, ended, [("a lane", spans), ("another", ticks)])
    for drawing in (svg, lanes):
        assert tree(drawing).tag == "svg"
        assert "nan" not in {text for element in tree(drawing).iter() for text in element.attrib.values()}


def test_a_line_goes_down_as_the_disk_fills() -> None:
    """More is higher, later is further right, and the ends are where the axes end."""
    (path,) = chart([(0.0, 100.0), (2.0, 0.0)]).iter("path")
    assert path.get("d") == f"M{LEFT:.1f} {TOP:.1f}L{LEFT + PLOT:.1f} {HEIGHT - 34:.1f}"


def test_marks_that_lie_close_have_labels_apart() -> None:
    """Each mark keeps its height; labels move apart only as far as needed."""
    near = labels(chart([(0.0, 100.0)], MarkLine("low", 50.0), MarkLine("high", 51.0)))
    far = labels(chart([(0.0, 100.0)], MarkLine("low", 10.0), MarkLine("high", 90.0)))
    assert near["low"] - near["high"] == pytest.approx(15.0)
    assert far["low"] - far["high"] > 100.0


def test_a_constant_amount_is_one_stroke() -> None:
    """Points between equal ones are left out, so the page of a long run is small."""
    still = [(n / 100, 50.0) for n in range(200)]
    (path,) = chart(still).iter("path")
    assert (path.get("d") or "").count("L") == 1


def test_of_many_points_those_are_drawn_that_can_be_told_apart() -> None:
    """Ten thousand points of a trembling amount, and a dip of a millisecond, which is seen."""
    trembling = [(number / 1000, 50.0 + number % 7) for number in range(10_000)]
    dip = [(at, 0.0 if at == 5.0 else amount) for at, amount in trembling]
    (path,), (with_dip,) = (chart(points, ended=10.0).iter("path") for points in (trembling, dip))
    heights = [float(point.split()[1]) for point in with_dip.get("d", "")[1:].split("L")]
    assert len(heights) < 4 * 671
    assert len(path.get("d", "")) < 32 * 1024
    assert max(heights) > 200.0, "0 is at the bottom, and the vertical axis goes down"
    assert max(float(point.split()[1]) for point in path.get("d", "")[1:].split("L")) < 200.0


def test_the_axis_of_a_comparison_counts_from_the_crossing() -> None:
    """Seconds before it are negative."""
    drawn = labels(chart([(-1.0, 5.0), (1.0, 5.0)], began=-1.0, ended=1.0))
    assert {"-1.0 s", "0.0 s", "1.0 s"} <= drawn.keys()
