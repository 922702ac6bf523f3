"""The report of a run: one self-contained page with its drawings, JSON, JUnit for a CI, its story.

The reports of real runs are tested where the scenarios are run: in `test_library.py`.
"""

import json
import re
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from eviction.cli.drill import files_of
from eviction.drill.judge import Check, DrillResult, Response
from eviction.drill.measurements import MeasuredRemoval, Sample, downsample
from eviction.drill.report.document import (
    DrillReportJson,
    checks_table,
    report_of,
    row_lines,
    story_rows,
    verdict_rows,
)
from eviction.drill.report.page import (
    HEIGHT,
    LINE,
    STYLE,
    WIDTH,
    Event,
    Lane,
    MarkLine,
    chart_svg,
    junit_xml,
    lanes_svg,
    page,
)
from eviction.drill.scenario import read_scenario
from eviction.drill.schedule import FaultOccurrence, PressurePeriod
from eviction.records.json_shapes import to_json
from eviction.records.passes import Pass
from reclaim.types import Action, Kind, Outcome, Reason, Verdict
from tests.drill.documents import MIB, measured, measurements, one_pass, scenario
from tests.drill.runs import report_of_run
from tests.drill.runs import run as run_of_scenario
from tests.expected import expect
from tests.moving_picture import MEASURED, PICTURE, PLOT, drawn, moving_picture
from tests.picture import NAMESPACE, sheet
from tests.schemas import assert_as_described

LOADING = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"}
HOSTILE = "</title><script>alert('1')</script>\x1b[2J\x00\u202e\"&<img src=x onerror=y>]]>"
HELD = Check("relieved", "within 1s", "after 0.200 s", held=True)
FAILED = Check("new pod", "starts", "no", held=False)
UNKNOWN = Check("new pod", "starts afterwards", "not judged: not tried", held=None)


def report(*checks: Check, response: Response = Response.OURS, **changes: Any) -> DrillReportJson:
    """The report of an invented run, as its schema says."""
    made = scenario()
    result = DrillResult(
        made.name, made.why, "a tmpfs of its own", measurements(**changes), checks, response
    )
    report = report_of(result)
    assert_as_described(to_json(report))
    return report


def tree(text: str) -> ElementTree.Element:
    """A page or a drawing, which is well-formed XML."""
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))  # noqa: S314 # our own


def assert_self_contained(html: str) -> None:
    """The page loads nothing and has no script."""
    elements = list(tree(html).iter())
    assert not LOADING & {element.tag for element in elements}
    attributes = {name for element in elements for name in element.attrib}
    assert not {"src", "href", "srcset", "action"} & attributes
    assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"https?://|url\(|@import", html)
    assert "default-src 'none'" in html


def with_what_stayed() -> Pass:
    """It has kept objects for more than one reason."""
    reasons = {"b:1": "in_use", "c:1": "relieved", "d:1": "relieved", "e:1": "in_use"}
    kept = [
        Outcome(Verdict(Kind.IMAGE, f"id {name}", name, Action.KEEP, why))
        for name, why in reasons.items()
    ]
    name = "default/web/app#0"
    kept.append(Outcome(Verdict(Kind.CONTAINER, f"id {name}", name, Action.KEEP, Reason.RUNNING)))
    made = one_pass("a:1", after=20 * MIB)
    functions = (replace(made.functions[0], kept=tuple(kept)),)
    return replace(made, functions=functions, row=("DeleteUnusedImages",))


MEASURED_IN = {
    name: measured(written)
    for name, written in yaml.safe_load(
        Path(__file__).with_name("reports.yaml").read_text()
    ).items()
}
STORIES: dict[str, DrillReportJson] = {
    "held": report(HELD, passes=(with_what_stayed(),), **MEASURED_IN["held"]),
    "failed": report(HELD, FAILED, UNKNOWN, **MEASURED_IN["failed"]),
    "not-judged": report(HELD, UNKNOWN, **MEASURED_IN["not-judged"]),
    "observed": report(response=Response.OBSERVED, **MEASURED_IN["observed"]),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_report_is_one_story_in_every_form(story: str) -> None:
    """On the terminal, as a page (but for its style), as JUnit and as JSON."""
    made = STORIES[story]
    files = files_of(made)
    html, document, junit = files.values()
    assert_self_contained(html)
    assert json.loads(document) == to_json(made)
    lines = [*row_lines([*story_rows(made), *verdict_rows(made)]), *checks_table(made)]
    text = "\n".join([*lines, "", *files, html.replace(STYLE, ""), junit, document])
    expect(Path(__file__).parent / "reports" / f"{story}.txt", text)


def test_hostile_names_are_escaped_everywhere() -> None:
    """Names come from pods and images, and must not reach a browser, a terminal or a CI
    unescaped."""
    gone = (
        MeasuredRemoval(1.1, "image", HOSTILE, "id"),
        MeasuredRemoval(1.2, HOSTILE, HOSTILE, "id"),
    )
    run = report(
        replace(FAILED, name=HOSTILE, seen=HOSTILE),
        removals=gone,
        passes=(one_pass(HOSTILE, after=20 * MIB, reason=HOSTILE),),
        faults=(FaultOccurrence(HOSTILE, 1.0),),
        pressures=(PressurePeriod(HOSTILE, 0.0, 1.0),),
    )
    texts: dict[str, Any] = dict.fromkeys(("scenario", "why", "filesystem", "layout"), HOSTILE)
    hostile = replace(
        run,
        **texts,
        marks=[replace(mark, value=HOSTILE) for mark in run.marks],
        conditions=[replace(period, condition=HOSTILE) for period in run.conditions],  # type: ignore[arg-type] # as an older report may have it
    )
    for text in (page(hostile), junit_xml(hostile)):
        assert "<script" not in text
        assert "<img" not in text
        assert not set("\x1b\x00\u202e") & set(text)
        assert len(list(tree(text).iter())) > 1
    assert_self_contained(page(hostile))


@settings(deadline=None)
@given(st.binary(min_size=4, max_size=400), st.integers(4, 80))
def test_a_long_timeline_keeps_the_lowest_point_of_every_line(noise: bytes, most: int) -> None:
    """Bytes and inodes of two filesystems; at most so many points, in their order, all along the
    time, and all of them if they are no more."""
    cut = [noise[at : at + 4] for at in range(0, len(noise) - 3, 4)]
    samples = [Sample(float(at), ((a, b), (c, d))) for at, (a, b, c, d) in enumerate(cut)]
    count, kept = len(samples), downsample(samples, most)
    assert kept == [each for each in samples if each in kept]
    assert len(kept) <= most
    assert len(kept) == count or count > most
    assert 2 * len(kept) >= min(count, most) // 4
    for place, unit in product((0, 1), (0, 1)):
        lowest = {min(each.available[place][unit] for each in some) for some in (samples, kept)}
        assert len(lowest) == 1


# ---- drawings

seconds = st.floats(-1e6, 1e6, allow_nan=False)
amounts = st.integers(-(2**63), 2**63)
texts = st.text(max_size=20)
events = st.builds(Event, texts, texts, seconds, st.none() | seconds)


@settings(deadline=None)
@given(
    st.lists(st.tuples(seconds, amounts), max_size=20),
    st.lists(st.builds(MarkLine, texts, amounts), max_size=5),
    st.lists(events, max_size=5),
    seconds,
    st.booleans(),
)
def test_whatever_is_drawn_is_well_formed(
    points: list[tuple[float, float]],
    marks: list[MarkLine],
    happened: list[Event],
    ended: float,
    inodes: bool,
) -> None:
    """Any times, amounts and names give one SVG element without NaN."""
    chart = chart_svg("c", ended, {"s": points}, marks=marks, inodes=inodes)
    for drawing in (chart, lanes_svg("l", ended, [Lane("a lane", happened), Lane("none", [])])):
        drawn = tree(drawing)
        assert drawn.tag == "svg"
        assert "nan" not in {text for each in drawn.iter() for text in each.attrib.values()}


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_labels_of_marks_stay_apart_and_in_the_chart(marked: list[float]) -> None:
    """In the order of the marks: more is higher."""
    marks = [MarkLine(f"mark {at}", amount) for at, amount in enumerate(sorted(marked))]
    drawn = tree(chart_svg("c", 2.0, {"s": [(0.0, 100.0)]}, marks=marks, inodes=True))
    places = {text.text: float(text.get("y", "nan")) for text in drawn.iter("text")}
    downwards = [places[mark.label] for mark in reversed(marks)]
    assert all(lower - upper >= LINE - 0.11 for upper, lower in pairwise(downwards))
    assert downwards[0] >= LINE - 5
    assert downwards[-1] <= HEIGHT


# How wide a character of DejaVu Sans is, which is wider than what browsers use for system-ui: in
# units of the size of the font, of the bold font for titles. Others count as the widest letter.
WIDE = {
    **dict.fromkeys("fijlrtI.,:;' ()|", 0.41),
    **dict.fromkeys("abcdeghknopqsuvxyzFJLEST/-ck0123456789", 0.64),
    **dict.fromkeys("ABCDGHKNOPQRUVXYZw%+=", 0.85),
}


def width_of(text: str) -> float:
    return sum(WIDE.get(character, 1.0) for character in text)


def test_nothing_is_clipped_at_any_edge() -> None:
    """Each text ends within its drawing, even in a wide font: titles and sentences go on in another
    line, labels that are too long for their margin end with `…`."""
    marks = [
        MarkLine("nodefs 10% + 5% = 1023.9MiB", 50.0),
        MarkLine("a-filesystem-of-your-own 10Mi = 10.0MiB", 20.0),
    ]
    lines = {"a": [(0.0, 9e9)], "b": [(0.0, 1.0)]}
    name = "bytes available on nodefs, imagefs, containerfs (of 1023.9GiB); marks of A"
    lanes = [Lane("A: ReclaimPressure", [], "17, in 1 pass"), Lane("A: sandboxes removed", [])]
    drawings = [
        (name, chart_svg(name, 2.0, lines, marks=marks)),
        ("l", lanes_svg("l", 2.0, lanes)),
    ]
    sentence = "The kubelet alone: first byte freed 8.21s after its mark, 22 of 31 images removed. "
    title = "A disk that fills is relieved before pods suffer: " * 2
    root, shown = tree(sheet(title, [("a", sentence * 3)], drawings)), set()
    for drawing in [root, *(each for each in root.iter() if each.tag.endswith("svg"))]:
        for text in (each for each in drawing if each.tag.endswith("text")):
            style, words = text.get("class", "").split(), text.text or ""
            shown.add(words)
            size = 17.0 if style == ["title"] else 13.0
            wide = size * width_of(words)
            share = 1.0 if "end" in style else 0.5 if "middle" in style else 0.0
            left = float(text.get("x", "nan")) - share * wide
            assert left >= 0.0, words
            assert left + wide <= WIDTH, words
    assert {"nodefs 10% + 5% = 1023.9…", "17, in 1 pass", "none"} <= shown


def test_the_moving_picture_is_of_the_stored_run_and_whole_where_nothing_moves() -> None:
    """No attribute hides a text, none is cut off, and all are legible on a phone of 360 pixels; it
    loads nothing, has no script, and moves only if motion is wanted."""
    svg, run = PICTURE.read_text(), json.loads(MEASURED.read_text())
    assert svg == moving_picture(run)
    assert len(svg) < 60 * 1024
    assert not re.search(r"https?://|url\(|@import|<script| on\w+=", svg.replace(NAMESPACE, ""))
    still, _, moves = svg.partition("@media (prefers-reduced-motion: no-preference) {")
    assert "animation" not in still + moves.partition("</style>")[2]
    assert set(re.findall(r'<(\w+)[^>]* opacity="0"', svg)) == {"rect"}
    shown = [text for text in tree(svg).iter() if text.tag.endswith("text")]
    for text in shown:
        size = float(text.get("font-size", 22.0))
        start = 0.0 if text.get("text-anchor") else float(text.get("x", 0.0))
        assert start + size * width_of(text.text or "") <= PLOT, text.text
        assert size * 328 / 640 > 10, text.text
    words = {text.text for text in shown}
    assert {"80 % full: reclaimd acts", f"{len(run['removals'])} removed"} < words


@pytest.mark.soak
def test_the_run_of_the_moving_picture_is_one_that_can_be_drawn() -> None:
    """Everything holds, and the kubelet's mark is not reached."""
    made = read_scenario(str(Path(__file__).with_name("filling-disk.yaml")))
    assert moving_picture(drawn(to_json(report_of_run(run_of_scenario(made)))))
