"""The report: one self-contained page, JSON, JUnit for a CI.

The reports of real runs are tested where the scenarios are run: in
`tests/drill/scenario/test_library.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from eviction.cli.drill import files_of
from eviction.drill.judgement.judge import Check, DrillResult, Response
from eviction.drill.measurement.measurements import (
    ConditionPeriod,
    Episode,
    MeasuredFilesystem,
    MeasuredRemoval,
    Sample,
    downsample,
)
from eviction.drill.pressure.schedule import FaultOccurrence, PressurePeriod
from eviction.drill.report.document import LARGEST_POINTS, DrillReportJson, report_of
from eviction.drill.report.lines import checks_table, row_lines, story_rows, verdict_rows
from eviction.drill.report.page import junit_xml, page
from eviction.records.json_shapes import to_json
from eviction.types import NodeCondition
from reclaim.types import Action, Kind, Outcome, Reason, Verdict
from signals.types import FilesystemRole
from tests.drill.documents import MIB, measurements, one_pass, scenario
from tests.schemas import assert_as_described

LOADING = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"}
HOSTILE = "</title><script>alert('1')</script>\x1b[2J\x00\u202e\"&<img src=x onerror=y>]]>"


def result(*, held: bool = True, **changes: Any) -> DrillResult:
    """The result of an invented run, with its checks."""
    checks = (
        Check("relieved", "within 1s", "after 0.200 s", held=True),
        Check("new pod", "starts", "no", held=held),
    )
    made = scenario()
    return DrillResult(
        made.name,
        made.why,
        "a tmpfs of its own",
        measurements(**changes),
        checks,
    )


def report(**changes: Any) -> DrillReportJson:
    """The report of that run."""
    made = report_of(result(**changes))
    assert_as_described(to_json(made))
    return made


def parsed(html: str) -> ElementTree.Element:
    """The page as a tree; it is also well-formed XML."""
    return ElementTree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))  # noqa: S314 # our own page


def texts(tree: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(element.itertext()) for element in tree.iter(tag)]


def assert_self_contained(html: str) -> None:
    """The page loads nothing and has no script."""
    tree = parsed(html)
    assert not LOADING & {element.tag for element in tree.iter()}
    attributes = {name for element in tree.iter() for name in element.attrib}
    assert not {"src", "href", "srcset", "action"} & attributes
    assert not [name for name in attributes if name.startswith("on")]
    style = "".join(texts(tree, "style"))
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?://", html)
    assert "default-src 'none'" in html


def test_a_page_shows_marks_removals_and_conditions() -> None:
    """The mark with its label, each removal with its name on hover, the condition as
    a band, a fault as a tick.
    """
    html = page(
        report(
            faults=(FaultOccurrence("the runtime restarts", 1.15),),
            pressures=(PressurePeriod("a log grows", 0.0, 1.5),),
        )
    )
    titles = texts(parsed(html), "title")
    assert "image a:1, 1.100 s" in titles
    assert "ReclaimPressure, 1.010 s to 1.700 s" in titles
    assert "the runtime restarts, 1.150 s" in titles
    assert "a log grows, 0.000 s to 1.500 s" in titles
    assert "nodefs 10Mi = 10MiB" in texts(parsed(html), "text")


def test_a_page_marks_what_did_not_hold() -> None:
    """The verdict is at the top, and the expectation is marked."""
    good, bad = page(report(held=True)), page(report(held=False))
    assert ">everything held<" in good
    assert 'class="bad"' not in good
    assert ">NOT everything held<" in bad
    assert '<span class="bad">NOT</span></td><td class="name">new pod' in bad


def test_a_second_filesystem_has_a_chart_of_its_own() -> None:
    """It is drawn only if it has marks."""
    both = (
        MeasuredFilesystem(FilesystemRole.NODEFS, (FilesystemRole.NODEFS,), 100 * MIB, 1000),
        MeasuredFilesystem(
            FilesystemRole.IMAGEFS,
            (FilesystemRole.IMAGEFS, FilesystemRole.CONTAINERFS),
            50 * MIB,
            500,
        ),
    )
    samples = (
        Sample(0.0, ((50 * MIB, 900), (9 * MIB, 80))),
        Sample(1.0, ((9 * MIB, 800), (8 * MIB, 70))),
    )
    run = report(filesystems=both, samples=samples)
    assert run.series("imagefs", inodes=False) == [(0.0, 9 * MIB), (1.0, 8 * MIB)]
    assert run.series("nodefs", inodes=True) == [(0.0, 900), (1.0, 800)]
    assert "bytes available on nodefs (of 100.0MiB)" in texts(parsed(page(run)), "figcaption")


def test_a_filesystem_of_the_configurations_own_has_a_line_too() -> None:
    """Its amounts are under its own name, whatever that is."""
    own = FilesystemRole("buildcache")
    both = (
        MeasuredFilesystem(FilesystemRole.NODEFS, (FilesystemRole.NODEFS,), 100 * MIB, 1000),
        MeasuredFilesystem(own, (own,), 50 * MIB, 500),
    )
    run = report(filesystems=both, samples=(Sample(0.0, ((50 * MIB, 900), (9 * MIB, 80))),))
    assert run.series("buildcache", inodes=False) == [(0.0, 9 * MIB)]


def test_hostile_names_are_escaped_everywhere() -> None:
    """Names come from pods and images, and must not reach a browser, a terminal
    or a CI unescaped.
    """
    run = report(
        removals=(
            MeasuredRemoval(1.1, "image", HOSTILE, "id"),
            MeasuredRemoval(1.2, HOSTILE, HOSTILE, "id"),
        ),
        passes=(one_pass(HOSTILE, after=20 * MIB, reason=HOSTILE),),
        faults=(FaultOccurrence(HOSTILE, 1.0),),
        pressures=(PressurePeriod(HOSTILE, 0.0, 1.0),),
    )
    checks = [replace(check, name=HOSTILE, seen=HOSTILE, held=False) for check in run.checks]
    hostile = replace(
        run,
        scenario=HOSTILE,
        why=HOSTILE,
        filesystem=HOSTILE,
        layout=HOSTILE,
        checks=checks,
        marks=[replace(mark, value=HOSTILE, signal="nodefs.available") for mark in run.marks],
        conditions=[replace(period, condition=HOSTILE) for period in run.conditions],
    )
    for text in (page(hostile), junit_xml(hostile)):
        assert "<script" not in text
        assert "<img" not in text
        assert not set("\x1b\x00\u202e") & set(text)
    assert_self_contained(page(hostile))
    ElementTree.fromstring(junit_xml(hostile))  # noqa: S314 # our own file


def test_junit_names_what_was_expected_and_measured() -> None:
    """One case for each expectation; one that did not hold is a failure with both texts."""
    tree = ElementTree.fromstring(junit_xml(report(held=False)))  # noqa: S314 # our own file
    suite = tree.find("testsuite")
    assert suite is not None
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == (
        "reclaimd.drill.small",
        "2",
        "1",
    )
    (failure,) = tree.iter("failure")
    assert failure.get("message") == "expected: starts; measured: no"


def test_the_files_of_a_report() -> None:
    """The page first, then JSON, then JUnit."""
    files = files_of(report())
    assert list(files) == [f"drill-small.{kind}" for kind in ("html", "json", "xml")]
    assert json.loads(files["drill-small.json"]) == to_json(report())


def test_a_long_timeline_is_downsampled_and_keeps_its_lowest_point() -> None:
    """At most 2 000 points, in their order, with the lowest one."""
    samples = tuple(Sample(n / 500, ((1 if n == 7777 else 100 + n % 7, 5),)) for n in range(30_000))
    kept = downsample(samples, LARGEST_POINTS)
    assert len(kept) <= LARGEST_POINTS
    assert min(sample.available[0][0] for sample in kept) == 1
    assert [sample.seconds for sample in kept] == sorted(sample.seconds for sample in kept)
    assert downsample(samples[:1500], LARGEST_POINTS) == list(samples[:1500])


def test_downsampling_keeps_the_lowest_point_of_every_line() -> None:
    """Bytes and inodes of two filesystems, each with its lowest point at another time."""
    lows = {(0, 0): 111, (0, 1): 2222, (1, 0): 3333, (1, 1): 4444}

    def sample(n: int) -> Sample:
        rooms = [[100 + n % 7, 100 + n % 5] for _ in range(2)]
        for (place, unit), at in lows.items():
            rooms[place][unit] = 1 if n == at else rooms[place][unit]
        return Sample(float(n), tuple((room[0], room[1]) for room in rooms))

    kept = downsample([sample(n) for n in range(5000)], 100)
    assert len(kept) <= 100
    assert {sample.seconds for sample in kept} >= {float(at) for at in lows.values()}


def test_what_could_not_be_judged_is_always_reported() -> None:
    """The page, JUnit, the terminal and the verdict say so; the run holds if
    everything that was judged held.
    """
    checks = (
        *result().checks,
        Check("new pod", "starts afterwards", "not judged: not tried", None),
    )
    made = result()._replace(checks=checks)
    assert made.held
    run = report_of(made)
    assert "of what could be judged; 1 of 3 could not" in page(run)
    assert ">not judged<" in page(run)
    suite = ElementTree.fromstring(junit_xml(run)).find("testsuite")  # noqa: S314 # our own file
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "0", "1")
    assert [skipped.get("message") for skipped in suite.iter("skipped")] == [
        "not judged: not tried"
    ]
    assert story(run)[-1][1].endswith("1 of 3 could not be judged")


def test_an_observation_differs_from_a_run_of_reclaimd() -> None:
    """Its files have other names, the page says `observed`, and pods that ended are named."""
    made = result(ended_pods=(MeasuredRemoval(1.15, "pod", "default/web", "uid"),))._replace(
        response=Response.OBSERVED,
        checks=(),
    )
    run = report_of(made)
    html = page(run)
    assert_self_contained(html)
    assert texts(parsed(html), "h1") == ["small, observed"]
    assert "observed; nothing was expected" in html
    assert "default/web ended, 1.150 s" in texts(parsed(html), "title")


def story(run: DrillReportJson) -> list[tuple[str, str]]:
    """The rows of the story; a terminal shows them as they are."""
    rows = [*story_rows(run), *verdict_rows(run)]
    assert [re.split(r" {2,}", line, maxsplit=1) for line in row_lines(rows)] == [
        list(row) for row in rows
    ]
    return rows


def test_the_story_of_a_run() -> None:
    """The mark and its row, what went and what stayed (a line for each kind, with an example), the
    times, the verdict. The kinds stand in one order, whichever went first."""
    images = [
        ("b:1", Reason.IN_USE),
        ("c:1", Reason.RELIEVED),
        ("d:1", Reason.RELIEVED),
        ("e:1", Reason.IN_USE),
    ]
    kept = tuple(
        Outcome(Verdict(Kind.IMAGE, f"id {name}", name, Action.KEEP, why)) for name, why in images
    )
    web = Outcome(
        Verdict(Kind.CONTAINER, "id web", "default/web/app#0", Action.KEEP, Reason.RUNNING)
    )
    made = one_pass("a:1", after=20 * MIB)
    functions = (replace(made.functions[0], kept=(*kept, web)),)
    gone = (
        MeasuredRemoval(1.1, "image", "a:1", "id a:1"),
        MeasuredRemoval(1.2, "container", "job", "id job"),
    )
    run = report(
        removals=gone,
        passes=(replace(made, functions=functions, row=("DeleteUnusedImages",)),),
    )
    times = "first removal 100ms, first byte never, relief 200ms; lowest point 9.0MiB"
    assert story(run) == [
        ("crossed", "the mark of nodefs.available, 10Mi = 10.0MiB, after 1s"),
        ("row", "DeleteUnusedImages"),
        ("removed", "containers: 1, such as job"),
        ("removed", "images: 1, such as a:1 (no container uses it)"),
        ("kept", "containers: 1, such as default/web/app#0 (is running)"),
        ("kept", "images: 2, such as b:1 (a pod uses it)"),
        ("spared", "images: 2, such as c:1 (enough was freed without it)"),
        ("relief", f"from crossing the mark: {times}"),
        ("ok", "small: everything held"),
    ]


def test_the_story_of_a_run_that_did_not_hold() -> None:
    """What did not, and the verdict last."""
    assert story(report(held=False))[-2:] == [
        ("NOT", "new pod starts: no"),
        ("NOT", "small: NOT everything held"),
    ]


def test_the_story_of_an_observation_without_events() -> None:
    """No mark crossed and nothing removed: no times."""
    calm = report(episodes=(), removals=(), conditions=(), passes=())
    assert story(calm) == [("crossed", "no mark"), ("ok", "small: everything held")]


def test_times_of_an_observation_count_from_crossing() -> None:
    """A removal before the crossing does not count as the first one; a rise is the first byte. Why
    another component removed something is not known."""
    before = MeasuredRemoval(0.2, "image", "z:1", "id z")
    crossed = report(
        removals=(before, MeasuredRemoval(1.6, "image", "a:1", "id a")),
        episodes=(Episode(1.0, 2.0, first_rise=1.7),),
        passes=(),
        ended_pods=(
            MeasuredRemoval(1.5, "pod", "default/web", "u"),
            MeasuredRemoval(1.6, "pod", "default/db", "v"),
        ),
    )
    rows = dict(story(crossed))
    assert rows["crossed"] == "a mark after 1s"
    assert rows["relief"].startswith(
        "from crossing the mark: first removal 600ms, first byte 700ms, relief 1s; "
    )
    assert rows["removed"] == "images: 2, such as z:1"
    assert rows["ended"] == "pods: 2, such as default/web"


def test_the_expectations_are_a_table() -> None:
    """What held, what did not, and what was measured."""
    head, held, missed = checks_table(report(held=False))
    assert head.split() == ["HELD", "WHAT", "EXPECTED", "MEASURED"]
    assert (held[:4], missed[:4]) == ("ok  ", "NOT ")


def test_objects_of_any_kind_have_a_lane() -> None:
    """Files, which only other functions remove, too; pods that ended and each
    condition have one of their own.
    """
    run = report(
        removals=(MeasuredRemoval(1.1, "file", "ballast", "ballast"),),
        conditions=(
            ConditionPeriod(NodeCondition.RECLAIM_PRESSURE, 1.0, 1.5),
            ConditionPeriod(NodeCondition.DISK_PRESSURE, 1.1, 1.2),
        ),
        ended_pods=(MeasuredRemoval(1.15, "pod", "default/web", "u"),),
    )
    assert {"file removed", "ReclaimPressure", "DiskPressure", "pods ended"} <= set(
        texts(parsed(page(run)), "text")
    )


def test_a_condition_that_is_not_known_has_no_lane() -> None:
    """Of our own an empty lane says `none`; whether an observed component has
    reported any is not known.
    """
    ours = report(conditions=())
    observed = report_of(result(conditions=())._replace(response=Response.OBSERVED))
    assert "ReclaimPressure" in texts(parsed(page(ours)), "text")
    assert "ReclaimPressure" not in texts(parsed(page(observed)), "text")
